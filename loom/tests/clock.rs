//! Clock segment: `crates/clock/src/clock_segment.rs` and the atomics that it imports.
#![allow(dead_code, reason = "only the segment is built, without the clock")]

#[path = "../../crates/clock/src/clock_segment.rs"]
mod clock_segment;
#[path = "../../crates/clock/src/sync.rs"]
mod sync;
