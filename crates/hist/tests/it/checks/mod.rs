//! What must hold for any bytes at all: one check per fuzz target, by its name.
//!
//! `fuzz/` includes this folder by path (hence `mod.rs`), and `fuzz_regressions` repeats the checks
//! on inputs that once broke something. Each decodes its input; what decodes must bear everything
//! that [`histogram`] asks, and come back from its own encoder as it was.

mod accumulator;
mod histogram;
mod statistics;
mod topdeck_formats;

/// Panics where something broke.
pub(crate) type Check = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, Check); 4] = [
    ("frame", topdeck_formats::frame),
    ("block", topdeck_formats::block),
    ("accumulator", accumulator::frames),
    ("statistics", statistics::values),
];
