//! `randomwalk`: a synthetic stream for experiments.

use super::function_table::FunctionTable;
use super::kernel::{Kernel, KernelInput};
use super::points::stream;
use super::random_variates::RandomVariates;
use super::signature::ArgumentType::Number;
use super::signature::{DefaultValue, OutputKind};
use crate::error::Result;
use crate::labels::LabelSet;
use crate::stream::Stream;

/// Adds this function.
pub(super) fn add_functions(table: &mut FunctionTable) {
    table
        .add_source("randomwalk", OutputKind::Numbers, Kernel::without_margin(walk).into())
        .optional("max", Number, DefaultValue::Number(100.0))
        .optional("min", Number, DefaultValue::Number(0.0))
        .optional("change", Number, DefaultValue::Number(0.0))
        .option("seed", Number, DefaultValue::Number(-1.0))
        .random();
}

/// Random steps within the bounds. The same seed at the same position in a query gives the same
/// walk.
fn walk(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { arguments, steps, span, .. } = call;
    let of = |name: &str, default: f64| arguments.number(name).unwrap_or(default);
    let (a, b) = (of("max", 100.0), of("min", 0.0));
    let (least, most) = (a.min(b), a.max(b));
    let change = match of("change", 0.0) {
        0.0 => (most - least) / 20.0,
        change => change.abs(),
    };
    let seed = match of("seed", -1.0) {
        seed if seed < 0.0 => span.start as u64 ^ steps.start as u64,
        seed => seed.to_bits(),
    };
    let mut random = RandomVariates::new(seed);
    let mut at = f64::midpoint(least, most);
    let walked = (0..steps.count).map(|_| {
        at = (at + (random.unit_interval() * 2.0 - 1.0) * change).clamp(least, most);
        Some(at)
    });
    Ok(vec![stream(LabelSet::default(), walked)])
}
