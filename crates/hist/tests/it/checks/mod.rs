//! Properties that hold for any bytes: one check per fuzz target, with its name.
//!
//! `fuzz/` includes this directory by path (hence `mod.rs`), and `fuzz_regressions` repeats the
//! checks on past findings. Each check decodes its input; a decoded histogram must pass
//! [`histogram`] and survive a round trip through its own encoder unchanged.

mod accumulator;
mod histogram;
mod statistics;
mod topdeck_formats;

/// Panics on a violation.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, FuzzCheck); 4] = [
    ("frame", topdeck_formats::frame),
    ("block", topdeck_formats::block),
    ("accumulator", accumulator::frames),
    ("statistics", statistics::values),
];
