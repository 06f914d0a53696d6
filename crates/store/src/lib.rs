//! Time-series store for histograms: exact merge, rollups.
//!
//! Write path: [`Store::ingest`] appends a [`model::Batch`] to the journal and acknowledges it; the
//! *head* reads it from there. The head is flushed to immutable *parts*: rows of a series are
//! *chunks* with a checksum each. One *manifest* names the live parts and the journal position they
//! cover. Closed days are rolled up, exactly.
//!
//! Read path: a [`ReadView`] is a consistent snapshot.
#![forbid(unsafe_code)]

mod mutex;
mod resolution;

mod cumulative_value;
mod row;

mod cumulative_sample;

mod column;
mod times;

mod chunk;

mod backend;
mod local_backend;
mod part;
mod quarantine;
mod series_file;

mod late_samples;
mod manifest;
mod manifest_file;

mod deleted_keys;
mod delta;
mod exemplar_access;
mod exemplars;
mod gallop;
mod gather;
mod head;
mod index;
mod trace_access;
mod traces;

mod options;
mod work_backoff;

mod inner;

mod base_parts;
mod change;
mod compact;
mod coverage;
mod deleted_series;
mod flush;
mod gauge_histogram;
mod journal_reader;
mod maintenance;
mod retention;
mod rollup;
mod sections;
mod stat;
mod store;

mod check;
mod snapshot;

mod grid;
mod merge;
mod time_column;
mod view;

mod error;

/// Layout constants that tests compare with the format pages.
pub mod layout {
    pub use crate::chunk::{
        BYTES_MAX as CHUNK_BYTES_MAX, FIELDS as CHUNK_FIELDS, HEADER_BYTES as CHUNK_HEADER_BYTES,
        MAGIC as CHUNK_MAGIC, ROWS_MAX as CHUNK_ROWS_MAX, VERSION as CHUNK_VERSION,
    };
    pub use crate::manifest::{PART_FIELDS as MANIFEST_PART_FIELDS, VERSION as MANIFEST_VERSION};
    pub use crate::part::{
        ENTRY, ENTRY_BYTES, FOOTER, FOOTER_BYTES, FOOTER_MAGIC, HEADER as PART_HEADER,
        HEADER_BYTES as PART_HEADER_BYTES, MAGIC as PART_MAGIC, VERSION as PART_VERSION,
    };
    pub use crate::traces::trace_part::{
        FOOTER as TRACE_FOOTER, FOOTER_BYTES as TRACE_FOOTER_BYTES, INDEX as TRACE_INDEX,
        MAGIC as TRACE_MAGIC, MERGED_TRACE_VERSION, TABLE as TRACE_TABLE, TRACE_INDEX_BYTES,
        TRACE_TABLE_BYTES, VERSION as TRACE_VERSION,
    };
}

/// Parsers below the checksums, for fuzzing: a fuzzer cannot produce valid checksums, a buggy
/// writer can.
#[doc(hidden)]
pub mod fuzzing {
    use crate::chunk::{self, HEADER_BYTES};
    use crate::manifest::Manifest;

    /// Parses any bytes as a chunk after fixing magic, version, length and checksum; returns the
    /// number of rows.
    pub fn chunk(bytes: &[u8]) -> Option<usize> {
        if bytes.len() < HEADER_BYTES {
            return None;
        }
        let mut bytes = bytes.to_vec();
        chunk::reseal_header(&mut bytes);
        let header = chunk::check(&bytes).ok()?;
        let rows = chunk::decode(&header, &bytes).ok()?.0.len();
        assert_eq!(rows, header.rows, "BUG: the row count differs from the header");
        Some(rows)
    }

    /// Parses any bytes as a part of traces, and its first block after fixing all checksums;
    /// returns the number of entries.
    pub fn trace_part(bytes: &[u8]) -> Option<usize> {
        crate::traces::trace_part::parse_resealed(bytes)
    }

    /// Parses any bytes as a manifest after fixing its checksum, and checks that what is parsed
    /// round-trips.
    pub fn manifest(text: &[u8]) -> bool {
        let checksum = format!("checksum {:08x}\n", crc32c::crc32c(text));
        let Ok(manifest) = Manifest::read(&[text, checksum.as_bytes()].concat()) else {
            return false;
        };
        let written = manifest.write();
        let again = Manifest::read(&written).expect("BUG: what was written is not read");
        assert_eq!(again.write(), written, "BUG: it does not round-trip");
        true
    }
}

pub use backend::{
    ChunkInfo, ChunkLocation, ChunkTaker, Part, PartWriter, SeriesRecord, Storage, StorageReader,
    StorageWriter,
};
pub use check::{ScrubDamage, ScrubProgress, ScrubReport};
pub use error::{Error, Result};
pub use exemplars::{
    EXEMPLAR_AHEAD_MAX, ExemplarCounts, ExemplarOptions, ExemplarRequest, ExemplarSelection,
    ExemplarStat, SelectedExemplar,
};
pub use grid::TimeGrid;
pub use index::{
    Cardinality, CardinalityError, CardinalityLimits, LabelCardinality, NewSeries, SelectedSeries,
    SeriesEntryRef, SeriesKeyRef,
};
pub use journal_reader::IngestProgress;
pub use manifest::{PartInfo, RetentionRule, SourceParts};
pub use options::Options;
pub use resolution::{DAY, HOUR, MINUTE, Resolution, SECOND};
pub use retention::DeletionResult;
pub use row::{NumberAggregate, Row};
pub use snapshot::SnapshotInfo;
pub use stat::StoreStat;
pub use store::Store;
pub use time_column::{ColumnFetch, FetchedColumns, TimeColumn};
pub use traces::trace_snapshot::{ReserveTrace, TraceSearchStep};
pub use traces::{StoredTrace, TraceOptions, TraceStat};
pub use view::increment_reader::{DecodedChunks, IncrementReader};
pub use view::increments::HistogramIncrements;
pub use view::label_groups::LabelGroups;
pub use view::number_rows::{LastNumber, NumberRows};
pub use view::sample_reader::SampleReader;
pub use view::window_reader::{WindowReader, WindowRows};
pub use view::{COLUMNS_MAX, ColumnIter, ReadView, RowCount, SeriesActivity};
