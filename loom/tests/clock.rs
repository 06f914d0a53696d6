//! Lines of the clock: `crates/clock/src/line.rs` and the atomics it imports.
#![allow(dead_code, reason = "only the lines are built, without the clock that reads them")]

#[path = "../../crates/clock/src/line.rs"]
mod line;
#[path = "../../crates/clock/src/sync.rs"]
mod sync;
