//! `randomwalk`: a stream to try things with.

use super::kernel::{Kernel, KernelInput};
use super::points::stream;
use crate::error::Result;
use crate::labels::LabelSet;
use crate::stream::Stream;

pub(super) fn kernel(name: &str) -> Option<Kernel> {
    (name == "randomwalk").then(|| Kernel::slotwise(walk))
}

/// Steps up and down between the bounds. The same seed, and the same place in a query, walks the same way.
fn walk(work: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { arguments, steps, span: place, .. } = work;
    let of = |name: &str, default: f64| arguments.number(name).unwrap_or(default);
    let (a, b) = (of("max", 100.0), of("min", 0.0));
    let (least, most) = (a.min(b), a.max(b));
    let change = match of("change", 0.0) {
        0.0 => (most - least) / 20.0,
        change => change.abs(),
    };
    let seed = match of("seed", -1.0) {
        seed if seed < 0.0 => place.start as u64 ^ steps.start as u64,
        seed => seed.to_bits(),
    };
    let mut state = seed;
    let mut at = f64::midpoint(least, most);
    let walked = (0..steps.count).map(|_| {
        at = (at + (unit_interval(&mut state) * 2.0 - 1.0) * change).clamp(least, most);
        Some(at)
    });
    Ok(vec![stream(LabelSet::default(), walked)])
}

/// A number from 0 to 1 (SplitMix64; Steele, Lea and Flood, 2014).
fn unit_interval(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
