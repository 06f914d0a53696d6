//! Decoder of Prometheus remote write, versions 1 and 2: a request into rows.
//!
//! A sample belongs to a counter or a gauge: version 2 declares the type in its metadata; without
//! metadata, the name decides (`convention.rs`). A classic histogram arrives as separate numeric
//! series and stays that. A native histogram, exponential or with custom buckets, is cumulative and
//! keeps its buckets; one with reset hint "gauge" is an instant value. Double counts are accepted
//! if they are integers.
//!
//! Timestamps are milliseconds. The start timestamp comes with each sample (version 2.0) or with
//! the series (draft rc.3, field 6). Staleness markers are preserved. The staleness marker of a
//! histogram series becomes a number with the same name and labels, because the series holds only
//! histograms; queries join the two series. Help texts and exemplars are passed on
//! (`SeriesSink::description`, `SeriesSink::exemplar`). A series may have exemplars alone: it is
//! that of its numbers, or of its native histograms if its name is none of a counter.
//!
//! Sources: <https://prometheus.io/docs/specs/prw/remote_write_spec/>,
//! <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>; prometheus v0.315.0,
//! `prompb/types.proto`, `prompb/io/prometheus/write/v2/types.proto`,
//! `storage/remote/write_handler.go`.

pub(crate) mod request_series;
pub(crate) mod row_writer;
mod v1;
mod v2;

#[cfg(test)]
mod tests;

use crate::input_error::{InputError, InputPosition};
use crate::series_sink::SeriesSink;

/// Largest expansion of a snappy byte: three bytes copy 64.
const EXPANSION_MAX: usize = 22;

/// Remote write message version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteWriteVersion {
    /// `prometheus.WriteRequest`.
    V1,
    /// `io.prometheus.write.v2.Request`.
    V2,
}

/// Counts of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteSummary {
    /// Numbers that became rows.
    pub samples: u64,
    /// Histograms that became rows, staleness markers included.
    pub histograms: u64,
    /// Exemplars that were taken.
    pub exemplars: u64,
    /// Rejected samples and histograms, and series with neither.
    pub rejected: u64,
    /// First errors; at most [`MAX_REPORTED_ERRORS`].
    pub errors: Vec<String>,
}

/// Reads a decompressed request. Rejected samples are counted and do not affect the others. After
/// an error, the body is not a request and the caller must discard the rows.
pub fn read_request(
    version: RemoteWriteVersion,
    body: &[u8],
    sink: &mut dyn SeriesSink,
) -> Result<WriteSummary, InputError> {
    match version {
        RemoteWriteVersion::V1 => v1::read_request(body, sink),
        RemoteWriteVersion::V2 => v2::read_request(body, sink),
    }
}

/// Decompresses snappy's block format. A body with a decompressed size above `max` bytes is
/// rejected before allocation.
pub fn decompress(body: &[u8], max: usize) -> Result<Vec<u8>, InputError> {
    let wrong = |expected, found: String| InputError::new(InputPosition::Byte(0), expected, found);
    let damage = |error: snap::Error| wrong("a block of snappy".to_owned(), error.to_string());
    let length = snap::raw::decompress_len(body).map_err(damage)?;
    if length > max {
        return Err(wrong(format!("at most {max} bytes when decompressed"), length.to_string()));
    }
    if length > body.len().saturating_mul(EXPANSION_MAX) {
        let found = format!("{} bytes that would become {length}", body.len());
        let expected = "a whole block of snappy; compress the body in snappy's block format";
        return Err(wrong(expected.to_owned(), found));
    }
    snap::raw::Decoder::new().decompress_vec(body).map_err(damage)
}
