//! What must hold for any bytes at all: one check per fuzz target, by its name.
//!
//! `fuzz/` includes this folder by path (hence `mod.rs`), and `fuzz_regressions` repeats the checks
//! on inputs that once broke something. What decodes must bear everything that [`histogram`] asks,
//! and come back from its own encoder as it was.

mod foreign;
#[path = "../../../../hist/tests/it/checks/histogram.rs"]
mod histogram;

/// Panics where something broke.
pub(crate) type Check = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, Check); 6] = [
    ("circllhist", foreign::circllhist),
    ("hdr", foreign::hdr),
    ("hlog", foreign::hlog),
    ("otlp", foreign::otlp),
    ("prometheus", foreign::prometheus),
    ("ddsketch", foreign::ddsketch),
];
