//! Latency histograms: nanosecond recording, exact merge, statistics with bounds.
//!
//! Overview: a [`Histogram`] has bucket counts on the grid of a [`Scheme`], with exact summary
//! statistics (sum, min, max). Statistics with bounds ([`Histogram::quantile`] and others) read it
//! as cells and return a [`Bracket`]. A [`Mixture`] holds histograms of families that do not nest.
//! [`codec`] has topdeck's own formats. The formats of other systems are in the crate `codecs`,
//! which depends on this one.
//!
//! # Recording and statistics
//!
//! ```
//! use hist::{LimitInclusion, Histogram};
//!
//! // Latencies in milliseconds, with an objective of 50 ms that is counted exactly.
//! let mut latencies = Histogram::default().with_thresholds(&[50.0])?;
//! for value in [12.0, 15.0, 17.5, 21.0, 480.0] {
//!     latencies.record(value);
//! }
//! latencies.record_n(14.0, 95);
//!
//! // Every result has bounds. Count, sum, minimum and maximum are exact.
//! assert_eq!(latencies.count(), 100);
//! assert_eq!(latencies.max().unwrap().estimate, 480.0);
//! let p99 = latencies.quantile(0.99).unwrap();
//! assert!(p99.lower <= 21.0 && 21.0 <= p99.upper);
//! assert!((p99.estimate - 21.0).abs() / 21.0 < 0.022);
//!
//! let too_slow = latencies.count_above(50.0, LimitInclusion::Exclusive);
//! assert!(too_slow.is_exact() && too_slow.estimate == 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Merging and subtracting
//!
//! ```
//! use hist::{Histogram, Mixture, Scheme, kolmogorov_smirnov, wasserstein};
//!
//! let (mut monday, mut tuesday) = (Histogram::default(), Histogram::default());
//! monday.record_n(1.0, 100);
//! tuesday.record_n(3.0, 100);
//!
//! // Distances between the days: no overlap, and each value differs by 2.
//! assert!(kolmogorov_smirnov(&monday, &tuesday).unwrap().contains(1.0));
//! assert!(wasserstein(&monday, &tuesday).unwrap().contains(2.0));
//!
//! // Merging equals recording all values into one histogram; subtracting reverts it.
//! let mut both = monday.clone();
//! both.merge(&tuesday)?;
//! assert_eq!(both.mean().unwrap().estimate, 2.0);
//! assert_eq!(both.modality().estimate, 2);
//! both.subtract(&monday)?;
//! assert_eq!(both.positive(), tuesday.positive());
//!
//! // The buckets of another family do not nest in these: a mixture keeps both.
//! let mut foreign = Histogram::new(Scheme::LogLinear10);
//! foreign.record(2.0);
//! assert!(both.merge(&foreign).is_err());
//! let mut mixture = Mixture::default();
//! mixture.add(&both)?;
//! mixture.add(&foreign)?;
//! assert_eq!(mixture.count(), 101);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Coordinated omission
//!
//! ```
//! use hist::Histogram;
//!
//! // Operations should start every 10 ms, but one took 100 ms, so nine were not measured.
//! let mut latencies = Histogram::default();
//! latencies.record_corrected(100.0, 10.0)?;
//! assert_eq!(latencies.count(), 10);
//! assert_eq!(latencies.sum().estimate, 550.0);
//! # Ok::<(), hist::MergeError>(())
//! ```
#![forbid(unsafe_code)]

mod accumulator;
mod bracket;
mod buckets;
mod cells;
pub mod codec;
mod convert;
mod distance;
mod error;
mod histogram;
mod mixture;
mod modality;
mod moments;
mod quantile;
mod recorder;
mod scheme;
mod shared_recorder;
mod statistics;
mod sum_bounds;
mod sum_check;
mod sync;
mod tracked_value;

pub use accumulator::Accumulator;
pub use bracket::Bracket;
pub use buckets::Buckets;
pub use cells::Cell;
pub use convert::Conversion;
pub use distance::{kolmogorov_smirnov, wasserstein};
pub use error::{DecodeError, EncodeError, MergeError, SchemeError};
pub use histogram::{Histogram, HistogramParts, PartsError, Threshold};
pub use mixture::Mixture;
pub use quantile::{CumulativeHistogram, QuantileMethod};
pub use recorder::Recorder;
pub use scheme::{
    BucketPosition, Exp2, Explicit, Integers, Interpolation, LogLinear2, Logarithmic, ScaledGrid,
    Scheme,
};
pub use shared_recorder::{SharedRecorder, ThreadRecorder};
pub use statistics::LimitInclusion;
pub use tracked_value::{DoubleDouble, TrackedValue};

/// Compiles and runs the examples of the repository's README that use this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod page {}
