//! How a stream differs from its slot before: `counter` and `derivative` per second, `diff` per minute.

use super::kernel::{Kernel, KernelInput};
use super::points::{number, point};
use crate::error::Result;
use crate::stream::{Stream, seconds};

pub(super) fn kernel(name: &str) -> Option<Kernel> {
    let work: fn(KernelInput<'_>) -> Result<Vec<Stream>> = match name {
        "counter" => |work| changes(work, 1.0, true),
        "derivative" => |work| changes(work, 1.0, false),
        "diff" => |work| changes(work, 60.0, false),
        _ => return None,
    };
    Some(Kernel { reach: |_, _| (1, 0), run: work })
}

fn changes(work: KernelInput<'_>, per: f64, only_up: bool) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, steps, slots_before: before, .. } = work;
    let scale = seconds(steps.step) / per;
    for stream in &mut inputs {
        let change = |at: usize| {
            let change = number(stream, at)? - number(stream, at.checked_sub(1)?)?;
            (!only_up || change >= 0.0).then(|| change / scale)
        };
        stream.points = (before..before + steps.count).map(|at| point(change(at))).collect();
    }
    Ok(inputs)
}
