//! Data model: series, samples, gaps, batches.
//!
//! Times are nanoseconds since the Unix epoch, as `i64`. A sample is what happened
//! from `start` to `end`; no decoder knows to which side a value at an end belongs.
//!
//! ```
//! use hist::Histogram;
//! use hist::codec::header::Temporality;
//! use model::{BatchWriter, SeriesKind, Sample, Series, SampleValue};
//!
//! let series = Series::new("http_request_duration", SeriesKind::Histogram(Temporality::Delta))
//!     .with_unit("ns")
//!     .with_label("host", "web-1")
//!     .validate()?;
//! let mut latencies = Histogram::default();
//! latencies.record(17_000_000.0);
//!
//! let mut batch = BatchWriter::default();
//! batch.series(&series);
//! batch.sample(&Sample { start: 0, end: 60_000_000_000, value: SampleValue::Histogram(Box::new(latencies.clone())) })?;
//! let batch = batch.finish();
//!
//! let entry = batch.read().next().unwrap()?;
//! assert_eq!(entry.series.id(), series.id());
//! assert_eq!(entry.decode()?, SampleValue::Histogram(Box::new(latencies)));
//! # Ok::<(), model::Error>(())
//! ```
#![forbid(unsafe_code)]

mod batch;
mod error;
mod exemplar;
mod exemplar_ladder;
mod forward_request;
mod gap;
mod sample;
pub mod selector;
mod series;
pub mod sort;
pub mod text_file;
mod trace;
pub mod wire;

pub use batch::{Batch, BatchEntry, BatchReader, BatchSeries, BatchWriter, HISTOGRAM_COUNT_MAX};
pub use error::{Error, Result};
pub use exemplar::{
    EXEMPLAR_ATTRIBUTES_MAX, EXEMPLAR_VALUE_BYTES_MAX, Exemplar, ExemplarAttributes,
    ExemplarReader, ExemplarSource, ExemplarWriter, span_sampling_key, splitmix64,
};
pub use exemplar_ladder::LadderCell;
pub use forward_request::{FORWARD_REQUEST_BYTES_MAX, ForwardRequest, ForwardRequestWriter};
pub use gap::Gap;
pub use sample::{Sample, SampleValue};
pub use selector::{Selector, SelectorError};
pub use series::{
    CANONICAL_KEY_BYTES_MAX, LABELS_MAX, Labels, NAME_BYTES_MAX, Series, SeriesId, SeriesKind,
    blake3_128, spell_unit,
};
pub use trace::{TraceId, TraceReader, TraceSpans, TraceWriter};
