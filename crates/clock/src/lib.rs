//! Time: nanoseconds from the processor's counter, compared all the time with the system's clocks,
//! each reading with a bound of its error; and the time of day, with a generation that tells of
//! every step.
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
//! | read | what it is for | order |
//! |---|---|---|
//! | [`now`] | times that are kept | who sees what a thread did after a reading reads no lesser time |
//! | [`now_relaxed`] | times of one thread | as above but for some hundred nanoseconds |
//! | [`now_bounded`] | `now` and how far it may be off | as `now` |
//! | [`Stopwatch`] | how long something took, on one thread | never negative |
//! | [`recent`] | when a millisecond is near enough | none |
//! | [`wall`] | time of day | as `now`; steps increment the generation |
//!
//! Nanoseconds are those of `CLOCK_MONOTONIC`: since the machine started, without the time that it
//! was suspended. `now` never goes back. The first call starts a thread, which compares counter and
//! system once a second; there is no waiting at start. Where the counter cannot be trusted, the
//! system is asked, and [`status`] says why.
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
pub use global::KEEPER_FAULT;
pub use global::{
    CalibratorObserver, error_bound_ns, now, now_bounded, now_coarse, now_unordered,
    observe_calibrator, status, wall,
};
pub use reading::BoundedTime;
pub use status::{ClockMode, ClockStatus};
pub use stopwatch::Stopwatch;
pub use wall::WallTime;
