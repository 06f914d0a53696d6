//! Prometheus histograms: native histograms in the messages of remote write and of the client
//! model, and classic histograms as cumulative counts. See docs/formats/prometheus.md.
//!
//! Bucket `i` of a native histogram is `(base^(i-1), base^i]`: bucket `i - 1` of [`Exp2`] and of
//! OTLP. Schemas -9..=8 are read unchanged, -4..=8 are written; 9..=52, which Prometheus reserves,
//! are downscaled to 8. Schema -53 has custom bounds, like classic histograms. One bucket above the
//! largest double counts infinities, which is [`Histogram::overflow`]. A NaN value increments the
//! count, is in no bucket and makes the sum NaN. Counts are whole numbers or doubles; doubles are
//! never rounded.
//!
//! Source: prometheus/prometheus v0.315.0, `prompb/types.proto`, `model/histogram`.

mod classic;
mod client;
mod float;
mod native;
mod plain;
mod remote;
mod reset_hint;
mod spans;

use hist::Histogram;

pub use classic::ClassicHistogram;
pub use client::{ClientBucket, ClientHistogram};
pub use float::FractionalHistogram;
pub use plain::{PlainReader, PlainSample};
pub use remote::{RemoteCount, RemoteHistogram, RemoteSample, RemoteZeroCount};
pub use reset_hint::ResetHint;
pub use spans::BucketSpan;

/// Sum of a staleness marker: the series has ended. A NaN with a payload that no computation
/// produces.
pub const STALE_MARKER: u64 = 0x7ff0_0000_0000_0002;

/// Sample of a Prometheus histogram series.
#[derive(Clone, Debug, PartialEq)]
pub enum HistogramSample {
    /// Whole counts.
    Integer(Histogram),
    /// Float counts, as from recording rules and scaled histograms.
    Float(FractionalHistogram),
    /// Staleness marker: the series has ended; no values.
    Stale,
}

const FORMAT: &str = "a Prometheus histogram";
const SCHEMA_CUSTOM: i32 = -53;
/// Schemas that Prometheus writes. The others in [`READ_SCHEMAS`] are reserved.
const WRITE_SCHEMAS: std::ops::RangeInclusive<i32> = -4..=8;
const READ_SCHEMAS: std::ops::RangeInclusive<i32> = -9..=52;
