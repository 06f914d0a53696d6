//! Clock: nanoseconds from the CPU counter (x86-64: TSC, ARM: CNTVCT), calibrated against the
//! system clock, each reading with an error bound; and the wall clock with a generation that each
//! step increments.
//!
//! ```
//! let start = clock::now();
//! let stopwatch = clock::Stopwatch::start();
//! let took_ns = stopwatch.elapsed_ns();
//! assert!(clock::now() >= start + took_ns / 2);
//! let wall = clock::wall();
//! println!("{} ns since 1970, generation {}", wall.unix_ns, wall.generation);
//! ```
//!
//! | reading | use | order |
//! |---|---|---|
//! | [`now`] | stored times | never earlier than a reading whose effects the thread has seen |
//! | [`now_unordered`] | times of one thread | as `now`, except for some hundred nanoseconds |
//! | [`now_bounded`] | `now` with its error bound | as `now` |
//! | [`Stopwatch`] | a duration on one thread | never negative |
//! | [`now_coarse`] | times with a resolution of a millisecond | none |
//! | [`wall`] | wall clock | as `now`; steps increment the generation |
//!
//! Nanoseconds are those of `CLOCK_MONOTONIC`: since boot, without suspend. `now` never goes back.
//! The first call starts a thread that compares the counter with the system clock once per second;
//! no call waits for it. If the counter is unreliable, the system clock is read, and [`status`] has
//! the reason.
#![deny(unsafe_code)]

mod calibration;
mod calibrator;
mod clock_segment;
mod counter;
mod global;
mod machine;
mod reading;
mod status;
mod stopwatch;
mod sync;
mod wall;

#[doc(hidden)]
pub use global::CALIBRATOR_FAULT;
pub use global::{
    CalibratorObserver, error_bound_ns, now, now_bounded, now_coarse, now_unordered,
    observe_calibrator, status, wall,
};
pub use reading::BoundedTime;
pub use status::{ClockMode, ClockStatus};
pub use stopwatch::Stopwatch;
pub use wall::WallTime;
