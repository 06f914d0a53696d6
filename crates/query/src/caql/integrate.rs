//! `integrate` and `integrate:while`: running sums.
//!
//! A number is a rate per minute, so a slot of ten minutes adds ten times its value; a rate per
//! second must be multiplied by 60 first. A function that counts the values of each slot, such as
//! `histogram:count_above`, gives totals independent of the slot length: they are added unchanged.
//! Sums start at the first requested slot with `base` or 0; a missing value adds nothing.

use hist::DoubleDouble;

use super::function_table::FunctionTable;
use super::kernel::{Kernel, KernelInput};
use super::points::{numbers, stream};
use super::signature::ArgumentType::{Number, OneOf};
use super::signature::DefaultValue::{self, Absent};
use super::signature::InputKind::Numbers;
use super::signature::{InputArity, OutputShape};
use crate::error::Result;
use crate::stream::Stream;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    table
        .add_map("integrate", Numbers, Kernel::without_margin(integrate))
        .optional("base", Number, Absent)
        .first_count_input(0);
    table
        .add_map("integrate:while", Numbers, Kernel::without_margin(integrate_while))
        .optional(
            "condition",
            OneOf(&["constant", "rising", "falling"]),
            DefaultValue::Text("constant"),
        )
        .inputs(InputArity::AtLeast(2))
        .shape(OutputShape::Other)
        .first_count_input(1);
}

fn integrate(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let base = call.arguments.number("base").unwrap_or(0.0);
    let restarts = vec![false; call.steps.count];
    Ok(call.inputs.iter().map(|input| sums(input, base, &restarts, weight(&call))).collect())
}

/// Sums of all streams but the first; they restart at 0 when the condition on the first stream
/// fails.
fn integrate_while(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let goes_on: fn(f64, f64) -> bool = match call.arguments.text("condition") {
        Some("rising") => |before, now| now >= before,
        Some("falling") => |before, now| now <= before,
        _ => |before, now| now == before,
    };
    let Some((condition, inputs)) = call.inputs.split_first() else { return Ok(Vec::new()) };
    // A missing value is skipped: the next number is compared with the one before the gap.
    let mut before = None;
    let restarts: Vec<bool> = numbers(condition)
        .map(|now| {
            let is_over =
                matches!((before, now), (Some(before), Some(now)) if !goes_on(before, now));
            before = now.or(before);
            is_over
        })
        .collect();
    Ok(inputs.iter().map(|input| sums(input, 0.0, &restarts, weight(&call))).collect())
}

/// Weight of a slot's number.
fn weight(call: &KernelInput<'_>) -> f64 {
    if call.are_counts { 1.0 } else { call.steps.step as f64 / MINUTE_NS }
}

fn sums(input: &Stream, base: f64, restarts: &[bool], weight: f64) -> Stream {
    let mut sum = DoubleDouble::new(base);
    let sums = numbers(input).zip(restarts).map(|(number, is_restart)| {
        if *is_restart {
            sum = DoubleDouble::default();
        }
        let more = number.filter(|number| number.is_finite()).unwrap_or(0.0);
        sum = sum.plus(DoubleDouble::new(more * weight));
        Some(sum.value())
    });
    Stream {
        drops_name: input.drops_name,
        ..stream(input.labels.clone(), sums.collect::<Vec<_>>())
    }
}

const MINUTE_NS: f64 = 60e9;

#[cfg(test)]
mod tests {
    use super::super::test_kernel::{
        A, B, MINUTE_NS, T0, format_streams, numbers, run_kernel, view,
    };
    use crate::stream::StepGrid;
    use crate::value::StepValue;

    #[test]
    fn golden() {
        let made = numbers(A);
        let found = run_kernel("integrate()", &[&made], view(10)).unwrap();
        assert_eq!(format_streams(&found), "1 3 6 10 15 21 28 36 45 55");
        let hour = |time: i64| Some(StepValue::Number(time.div_euclid(60 * MINUTE_NS) as f64));
        let one = |_: i64| Some(StepValue::Number(1.0));
        let steps = StepGrid { start: T0 + 55 * MINUTE_NS, step: MINUTE_NS, count: 10 };
        let found = run_kernel("integrate:while()", &[&hour, &one], steps).unwrap();
        assert_eq!(format_streams(&found), "1 2 3 4 5 1 2 3 4 5");
    }

    #[test]
    fn missing_values_add_nothing() {
        let made = numbers(B);
        let found = run_kernel("integrate(5)", &[&made], view(10)).unwrap();
        assert_eq!(format_streams(&found), "15 25 25 35 45 55 55 55 65 75");
    }

    #[test]
    fn a_longer_slot_adds_more() {
        let one = |_: i64| Some(StepValue::Number(1.0));
        let steps = StepGrid { start: T0, step: 10 * MINUTE_NS, count: 3 };
        assert_eq!(format_streams(&run_kernel("integrate()", &[&one], steps).unwrap()), "10 20 30");
    }

    #[test]
    fn while_it_rises_or_falls() {
        let (condition, one) = (numbers("1 1 2 . 1 1 0 3"), |_: i64| Some(StepValue::Number(1.0)));
        let while_it = |way: &str| {
            let call = format!("integrate:while({way:?})");
            format_streams(&run_kernel(&call, &[&condition, &one], view(8)).unwrap())
        };
        assert_eq!(while_it("rising"), "1 2 3 4 1 2 1 2");
        assert_eq!(while_it("falling"), "1 2 1 2 3 4 5 1");
        assert_eq!(while_it("constant"), "1 2 1 2 1 2 1 1");
    }
}
