//! What is measured, as data: series, samples, gaps, and batches of them as bytes.
//!
//! Times are nanoseconds since the Unix epoch, as `i64`. A sample is what happened in `[start, end)`.
//!
//! ```
//! use hist::Histogram;
//! use hist::codec::header::Temporality;
//! use model::{BatchWriter, Kind, Sample, Series, Value};
//!
//! let series = Series::new("http_request_duration", Kind::Histogram(Temporality::Delta))
//!     .with_unit("ns")
//!     .with_label("host", "web-1")
//!     .checked()?;
//! let mut latencies = Histogram::default();
//! latencies.record(17_000_000.0);
//!
//! let mut batch = BatchWriter::default();
//! batch.series(&series);
//! batch.sample(&Sample { start: 0, end: 60_000_000_000, value: Value::Histogram(Box::new(latencies.clone())) })?;
//! let batch = batch.finish();
//!
//! let entry = batch.read().next().unwrap()?;
//! assert_eq!(entry.series.id(), series.id());
//! assert_eq!(entry.decode()?, Value::Histogram(Box::new(latencies)));
//! # Ok::<(), model::Error>(())
//! ```
#![forbid(unsafe_code)]

mod batch;
mod error;
mod gap;
mod parcel;
mod sample;
pub mod selector;
mod series;
pub mod wire;

pub use batch::{Batch, BatchReader, BatchWriter, Entry, HISTOGRAM_COUNT_MAX, SeriesRef};
pub use error::{Error, Result};
pub use gap::Gap;
pub use parcel::{PARCEL_BYTES_MAX, Parcel, ParcelWriter};
pub use sample::{Sample, Value};
pub use selector::{Selector, SelectorError};
pub use series::{
    FORM_BYTES_MAX, Kind, LABELS_MAX, Labels, NAME_BYTES_MAX, Series, SeriesId, UNIT_BYTES_MAX,
};
