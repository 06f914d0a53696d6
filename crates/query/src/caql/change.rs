//! Difference from the previous slot: `counter` and `derivative` per second, `diff` per minute.

use super::function_table::FunctionTable;
use super::kernel::{Kernel, KernelFn, KernelInput, SlotMargin};
use super::points::{number, point};
use super::signature::InputKind::Numbers;
use crate::error::Result;
use crate::stream::{Stream, seconds};

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    let kernel = |run: KernelFn| Kernel { margin: |_, _| SlotMargin::before(1), run };
    table.add_map("counter", Numbers, kernel(|call| changes(call, 1.0, true)));
    table.add_map("derivative", Numbers, kernel(|call| changes(call, 1.0, false)));
    table.add_map("diff", Numbers, kernel(|call| changes(call, 60.0, false)));
}

fn changes(call: KernelInput<'_>, per: f64, only_up: bool) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, steps, slots_before: before, .. } = call;
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
