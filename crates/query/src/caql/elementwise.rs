//! `each:*`: elementwise operation with a constant.

use super::kernel::{Kernel, KernelInput};
use super::operators::{pair, with_bounds};
use super::points::point;
use crate::error::Result;
use crate::stream::Stream;
use crate::value::StepValue;

pub(super) fn kernel(name: &str) -> Option<Kernel> {
    let work: fn(KernelInput<'_>) -> Result<Vec<Stream>> = match name.strip_prefix("each:")? {
        "add" => |work| each(work, "add"),
        "sub" => |work| each(work, "sub"),
        "mul" => |work| each(work, "mul"),
        "div" => |work| each(work, "div"),
        "mod" => |work| each(work, "mod"),
        "exp" => |work| each(work, "exp"),
        "eq" => |work| each(work, "eq"),
        "geq" => |work| each(work, "geq"),
        "gt" => |work| each(work, "gt"),
        "leq" => |work| each(work, "leq"),
        "lt" => |work| each(work, "lt"),
        "coalesce" => |work| Ok(coalesce(work, "x")),
        _ => return None,
    };
    Some(Kernel::slotwise(work))
}

fn each(work: KernelInput<'_>, word: &str) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = work;
    let x = arguments.number("x").unwrap_or(f64::NAN);
    for held in inputs.iter_mut().flat_map(|stream| &mut stream.points) {
        let Some(value) = held.take() else { continue };
        let number = value.number().map(|number| pair(word, number, x));
        let number = number.filter(|number| number.is_finite());
        *held = number.map(|number| {
            with_bounds(word, [&value].into_iter(), Some(x), number)
                .unwrap_or(StepValue::Number(number))
        });
    }
    Ok(inputs)
}

/// Puts an argument where nothing is.
pub(super) fn coalesce(work: KernelInput<'_>, argument: &str) -> Vec<Stream> {
    let KernelInput { mut inputs, arguments, .. } = work;
    let instead = point(arguments.number(argument));
    for held in inputs.iter_mut().flat_map(|stream| &mut stream.points) {
        if held.is_none() {
            *held = instead.clone();
        }
    }
    inputs
}
