//! The shared recorder: `crates/hist/src/shared_recorder.rs` and the atomics that it imports. The
//! histogram that it records into is single-threaded and comes from the crate hist.
#![allow(dead_code, reason = "the models use a part of the file")]

#[path = "../../crates/hist/src/recorder.rs"]
mod recorder;
#[path = "../../crates/hist/src/shared_recorder.rs"]
mod shared_recorder;
#[path = "../../crates/hist/src/sync.rs"]
mod sync;

mod error {
    pub(crate) use hist::MergeError;
}
mod histogram {
    pub(crate) use hist::{Histogram, HistogramParts, Threshold};
}
mod scheme {
    pub(crate) use hist::{Integers, Scheme};
}
mod tracked_value {
    pub(crate) use hist::{DoubleDouble, TrackedValue};
}
