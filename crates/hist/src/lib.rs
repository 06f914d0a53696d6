//! Whole latency distributions: recorded in nanoseconds of time, merged exactly, asked with brackets.
//!
//! The way through the crate, from the outside in: a [`Histogram`] holds bucket counts on the grid of a
//! [`Scheme`] with exact side values; statistics ([`Histogram::quantile`] and its neighbours) read it as
//! cells and answer with a [`Bracket`]; a [`Mixture`] keeps families apart that do not nest. Codecs carry
//! foreign histograms in and out without changing a bucket.
#![forbid(unsafe_code)]

mod accumulator;
mod bracket;
mod buckets;
mod cells;
pub mod codec;
mod distance;
mod error;
mod histogram;
mod mixture;
mod modality;
mod quantile;
mod recorder;
mod scheme;
mod shared_recorder;
mod side;
mod statistics;
mod sync;

pub use accumulator::Accumulator;
pub use bracket::Bracket;
pub use buckets::Buckets;
pub use cells::Cell;
pub use distance::{kolmogorov_smirnov, wasserstein};
pub use error::{DecodeError, EncodeError, MergeError, SchemeError};
pub use histogram::{Histogram, Parts, PartsError, Threshold};
pub use mixture::{Converted, Mixture};
pub use quantile::{Cumulative, Method};
pub use recorder::Recorder;
pub use scheme::{Exp2, Explicit, Interpolation, Log, LogLinear2, Scheme};
pub use shared_recorder::{Handle, SharedRecorder};
pub use side::{Side, Sum};
pub use statistics::Bound;
