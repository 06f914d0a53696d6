//! Properties that hold for any bytes: one check per fuzz target, with its name.
//!
//! `fuzz/` includes this directory by path (hence `mod.rs`), and `fuzz_regressions` repeats the
//! checks on past findings. A decoded histogram must pass [`histogram`] and survive a round trip
//! through its own encoder unchanged.

mod foreign;
#[path = "../../../../hist/tests/it/checks/histogram.rs"]
mod histogram;

/// Panics on a violation.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, FuzzCheck); 6] = [
    ("circllhist", foreign::circllhist),
    ("hdr", foreign::hdr),
    ("hlog", foreign::hlog),
    ("otlp", foreign::otlp),
    ("prometheus", foreign::prometheus),
    ("ddsketch", foreign::ddsketch),
];
