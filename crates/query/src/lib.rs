//! Query engine: PromQL and CAQL over a store.
//!
//! ```
//! use hist::{Histogram, codec::header::Temporality};
//! use model::{BatchWriter, SeriesKind, Sample, Series, SampleValue};
//! use query::{ResultData, Language, QueryRequest, Settings, StoreSource, execute, promql};
//! # use std::{path::Path, sync::Arc};
//! # let start = 1_600_002_000 * store::SECOND;
//! # let clock: journal::WallClock = Arc::new(move || start + store::HOUR);
//! # let settings = journal::Settings { buffer_bytes: 64 << 10, segment_bytes: 256 << 10, ..Default::default() };
//! # let journal = journal::Options { is_exclusive: true, has_background_thread: false, clock: Arc::clone(&clock), ..Default::default() };
//! # let options = store::Options { has_background_thread: false, journal, clock, ..Default::default() };
//!
//! let disk: Arc<dyn disk::Disk> = Arc::new(sim::SimDisk::new(1).process());
//! store::Store::create(&disk, Path::new("/store"), &settings)?;
//! let store = store::Store::open(disk, Path::new("/store"), &options)?;
//! let mut latencies = Histogram::default();
//! (1..=1000).for_each(|ms| latencies.record(f64::from(ms)));
//! let mut batch = BatchWriter::default();
//! batch.series(&Series::new("latency", SeriesKind::Histogram(Temporality::Delta)).with_unit("ms").validate()?);
//! let end = start + store::MINUTE;
//! batch.sample(&Sample { start, end, value: SampleValue::Histogram(Box::new(latencies)) })?;
//! let _ack = store.ingest(None, &batch.finish(), journal::Level::Disk)?;
//!
//! let text = "histogram_quantile(0.99, sum_over_time(latency[1m]))";
//! let options = promql::Options::default();
//! let request = QueryRequest { text, language: Language::PromQl, start: end, end, step: 0, options };
//! let view = store.view()?;
//! let result = execute(&StoreSource::new(&view), &request, &Settings::default(), &|| false)?;
//! let ResultData::Vector(streams) = result.data else { panic!("an instant query has a vector") };
//! let p99 = streams[0].points[0].as_ref().and_then(|value| value.bracket()).unwrap();
//! assert!(p99.contains(990.0) && p99.upper / p99.lower < 1.03, "the truth, and how near it is known");
//! assert_eq!(result.unit.as_deref(), Some("ms"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Times are nanoseconds since the Unix epoch, as `i64`. The crate reads no file and knows no clock
//! of its own; it reads series on as many threads as [`Settings::threads`] says, and works no
//! longer, and holds no more memory, than its [`QueryContext`] allows.
#![forbid(unsafe_code)]

pub mod breakdown;
pub mod burn_rate;
pub mod caql;
mod classic_buckets;
mod classic_part;
mod column_grid;
pub mod compare;
mod context;
mod edit_distance;
mod engine;
mod error;
mod estimate;
mod eval;
pub mod heatmap;
mod histogram;
mod labels;
mod limits;
pub mod maxima;
pub mod notation;
pub mod overview;
mod plain_numbers;
mod plan;
mod prometheus_name;
mod prometheus_source;
pub mod promql;
mod query_warnings;
mod request;
pub mod selection;
mod selector_hint;
mod settings;
mod sliding;
mod source;
pub mod step;
mod store_source;
mod stream;
mod threshold_range;
pub mod trace_shape;
mod unit;
mod unknown_names;
mod value;

/// Query internals for tests.
#[doc(hidden)]
pub mod testing {
    pub use crate::engine::execute_with_stats;
}

pub use classic_buckets::{
    bucket_count, bucket_counters, bucket_warnings, distribution_columns, distribution_count,
    each_classic_histogram, select_distributions,
};
pub use context::QueryContext;
pub use edit_distance::edit_distance;
pub use engine::{QueryResult, ResultData, execute};
pub use error::{Error, Result, SourceSpan};
pub use estimate::estimate;
pub use histogram::{
    AddOutcome, Bucket, BucketGrid, Compensation, FloatHistogram, IncompatibleHistograms,
    ResetHint, TrimSide,
};
pub use labels::{LabelSet, NAME, TYPE, UNIT};
pub use limits::Limits;
pub use prometheus_name::prometheus_series;
pub use prometheus_source::{
    NamedSeries, classic_names, select_by_prometheus_name, select_named_series, selects_buckets,
};
pub use query_warnings::{QueryWarningKind, QueryWarnings};
pub use request::{Language, QueryRequest};
pub use selector_hint::{selector_hint, selector_text, unit_selector_text};
pub use settings::Settings;
pub use source::{
    FreshCount, GroupedRow, NumberGroups, SeriesHandle, Source, SourceRead, StoredMetric,
    WindowSource,
};
pub use store_source::StoreSource;
pub use stream::{SeriesPoint, SeriesPoints, StepGrid, Stream, seconds};
pub use threshold_range::{ThresholdRange, differing_bounds_warning};
pub use unknown_names::unknown_names;
pub use value::{STALE_BITS, StepValue, is_stale};
