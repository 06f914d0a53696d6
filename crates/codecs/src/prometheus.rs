//! Prometheus histograms: native ones in the messages of remote write and of the client model, and
//! classic ones as cumulative counts. docs/formats/prometheus.md.
//!
//! Bucket `i` of a native histogram is `(base^(i-1), base^i]`: bucket `i - 1` of [`Exp2`], which is
//! OTLP's. Schemas -9..=8 are read as they are, -4..=8 written; 9..=52, which Prometheus reserves,
//! fold to 8 on request. Schema -53 has its own bounds, the classic ones. One bucket beyond the
//! greatest double counts infinities, which is [`Histogram::overflow`]. A value that is NaN raises
//! the count, is in no bucket and makes the sum NaN. Counts are whole or doubles; a double count is
//! not rounded unless asked to be.
//!
//! Source: prometheus/prometheus v0.315.0, `prompb/types.proto`, `model/histogram`.

mod classic;
mod client;
mod float;
mod native;
mod remote;
mod spans;

use hist::Histogram;

pub use classic::ClassicHistogram;
pub use client::{ClientBucket, ClientHistogram};
pub use float::{FloatHistogram, RoundedHistogram};
pub use remote::{RemoteCount, RemoteHistogram, RemoteZeroCount, ResetHint};
pub use spans::BucketSpan;

/// The sum of a sample that says: the series has ended. A NaN with a payload no computation makes.
pub const STALE_MARKER: u64 = 0x7ff0_0000_0000_0002;

/// Sample of a Prometheus histogram series.
#[derive(Clone, Debug, PartialEq)]
pub enum HistogramSample {
    /// Whole counts.
    Integer(Histogram),
    /// Counts that are doubles, as recording rules and scaled histograms have them.
    Float(FloatHistogram),
    /// The series has ended; no values.
    Stale,
}

const FORMAT: &str = "a Prometheus histogram";
const SCHEMA_CUSTOM: i32 = -53;
/// Schemas that Prometheus writes; beyond, as far as [`SCHEMAS_READ`], they are reserved.
const WRITE_SCHEMAS: std::ops::RangeInclusive<i32> = -4..=8;
const READ_SCHEMAS: std::ops::RangeInclusive<i32> = -9..=52;
