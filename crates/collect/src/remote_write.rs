//! Prometheus' remote write, versions 1 and 2: a request to rows.
//!
//! A sample is a number of a series that counts or of a gauge: version 2 says which, by its
//! metadata; where nobody says, names do (`convention.rs`). A classic histogram comes as its parts,
//! each a series of numbers of its own, and stays that. A native histogram, exponential or with
//! custom buckets, is a cumulative histogram on its own buckets; one whose reset hint is "gauge" is
//! what was seen at its moment. Double counts are taken if they are whole.
//!
//! Times are milliseconds. Since when something counts comes with each sample (version 2.0), or
//! with the series (its draft rc.3, field 6). Staleness markers stay what they are. That of a
//! histogram, which holds nothing else, is a number of the same name and labels: queries take both
//! for one series. Exemplars and help are passed by.
//!
//! Sources: <https://prometheus.io/docs/specs/prw/remote_write_spec/>,
//! <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>; prometheus v0.315.0,
//! `prompb/types.proto`, `prompb/io/prometheus/write/v2/types.proto`,
//! `storage/remote/write_handler.go`.

mod request_series;
mod row_writer;
mod v1;
mod v2;

#[cfg(test)]
mod tests;

use crate::input_error::{InputError, InputPosition};
use crate::row_sink::RowSink;

/// A byte of snappy cannot become more: three bytes copy 64.
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
    /// Histograms that became rows, ends of their series included.
    pub histograms: u64,
    /// None: exemplars are not kept.
    pub exemplars: u64,
    /// Samples and histograms that did not become rows, and series with neither.
    pub rejected: u64,
    /// Why, for the first of them: [`crate::place::TROUBLES_MAX`] at the most.
    pub errors: Vec<String>,
}

/// Reads a request, decompressed. What is refused is counted and leaves the rest as it is; after an
/// error the body is no request, and what `rows` took is to be thrown away.
pub fn read_request(
    version: RemoteWriteVersion,
    body: &[u8],
    rows: &mut dyn RowSink,
) -> Result<WriteSummary, InputError> {
    match version {
        RemoteWriteVersion::V1 => v1::read_request(body, rows),
        RemoteWriteVersion::V2 => v2::read_request(body, rows),
    }
}

/// Undoes snappy's block format. A body that would have more than `max` bytes is refused before
/// room is made for it.
pub fn decompress(body: &[u8], max: usize) -> Result<Vec<u8>, InputError> {
    let wrong = |expected, found: String| InputError::new(InputPosition::Byte(0), expected, found);
    let damage = |error: snap::Error| wrong("a block of snappy".to_owned(), error.to_string());
    let length = snap::raw::decompress_len(body).map_err(damage)?;
    if length > max {
        return Err(wrong(format!("at most {max} bytes when decompressed"), length.to_string()));
    }
    if length > body.len().saturating_mul(EXPANSION_MAX) {
        let found = format!("{} that say they become {length}", body.len());
        return Err(wrong("bytes of snappy enough for their claim".to_owned(), found));
    }
    snap::raw::Decoder::new().decompress_vec(body).map_err(damage)
}
