//! Single-threaded measurements: contenders take turns, once per round.
//!
//! A temporary disturbance of the machine then affects all of them, and the median over rounds
//! removes it. The order rotates from round to round, so that no contender always follows the same
//! one.

use std::hint::black_box;

use crate::clock::cpu_time;
use crate::report::Samples;

/// One library and one operation.
pub(crate) struct BenchContender<'a> {
    pub(crate) name: String,
    /// Exact statistics that it keeps besides buckets, or another distinction.
    pub(crate) remark: &'static str,
    /// Runs one pass and returns its number of operations.
    pass: Box<dyn FnMut() -> u64 + 'a>,
}

impl<'a> BenchContender<'a> {
    pub(crate) fn new(
        name: impl Into<String>,
        about: &'static str,
        pass: impl FnMut() -> u64 + 'a,
    ) -> BenchContender<'a> {
        BenchContender { name: name.into(), remark: about, pass: Box::new(pass) }
    }
}

/// Number of passes per sample.
#[derive(Clone, Copy)]
pub(crate) enum Passes {
    Exactly(u32),
    /// As many as take this long, determined during warm-up.
    Milliseconds(u32),
}

/// Nanoseconds per operation of each contender, in the given order.
pub(crate) fn measure(
    contenders: &mut [BenchContender],
    rounds: usize,
    passes: Passes,
) -> Vec<Samples> {
    let mut samples: Vec<Samples> =
        contenders.iter().map(|one| Samples::new(&one.name, one.remark)).collect();
    let passes: Vec<u32> =
        contenders.iter_mut().map(|one| warm_up(&mut *one.pass, passes)).collect();
    for round in 0..rounds {
        for turn in 0..contenders.len() {
            let at = (turn + round) % contenders.len();
            samples[at].values.push(sample(&mut *contenders[at].pass, passes[at]));
        }
    }
    samples
}

/// Two passes to warm up memory and branch predictors; returns the number of passes per sample.
fn warm_up(pass: &mut dyn FnMut() -> u64, passes: Passes) -> u32 {
    pass();
    let before = cpu_time();
    pass();
    let took = (cpu_time() - before).as_secs_f64();
    match passes {
        Passes::Exactly(passes) => passes,
        Passes::Milliseconds(ms) => (f64::from(ms) / 1e3 / took.max(1e-9)).ceil() as u32,
    }
}

fn sample(pass: &mut dyn FnMut() -> u64, passes: u32) -> f64 {
    let before = cpu_time();
    let operations: u64 = (0..passes).map(|_| pass()).sum();
    (cpu_time() - before).as_secs_f64() * 1e9 / operations as f64
}

/// Passes each value to `record`, like a caller with one value at a time.
///
/// `target` escapes before the loop and each value passes through `black_box`, so the compiler can
/// neither keep counts in registers from one value to the next nor compute ahead. The barriers are
/// the same for all contenders.
#[inline(always)]
pub(crate) fn for_each_value<H, T: Copy>(
    target: &mut H,
    values: &[T],
    mut record: impl FnMut(&mut H, T),
) -> u64 {
    let target = black_box(target);
    for &value in values {
        record(target, black_box(value));
    }
    values.len() as u64
}
