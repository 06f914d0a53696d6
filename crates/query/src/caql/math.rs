//! `math:*`: functions of each number. What has no result is missing.

use std::f64::consts::{E, PI};

use super::kernel::{Kernel, KernelInput};
use super::points::{map, stream};
use crate::error::Result;
use crate::labels::LabelSet;
use crate::stream::Stream;

pub(super) fn kernel(name: &str) -> Option<Kernel> {
    let work: fn(KernelInput<'_>) -> Result<Vec<Stream>> = match name.strip_prefix("math:")? {
        "pi" => |work| constant(work, PI),
        "e" => |work| constant(work, E),
        "abs" => |work| plain(work, f64::abs),
        "sgn" => |work| plain(work, |x| if x == 0.0 { 0.0 } else { x.signum() }),
        "ceil" => |work| plain(work, f64::ceil),
        "floor" => |work| plain(work, f64::floor),
        "round" => |work| plain(work, |x| nearest(x, 1.0)),
        "sqrt" => |work| plain(work, f64::sqrt),
        "exp" => |work| plain(work, f64::exp),
        "ln" => |work| plain(work, f64::ln),
        "log2" => |work| plain(work, f64::log2),
        "log10" => |work| plain(work, f64::log10),
        "deg" => |work| plain(work, f64::to_degrees),
        "rad" => |work| plain(work, f64::to_radians),
        "sin" => |work| plain(work, f64::sin),
        "cos" => |work| plain(work, f64::cos),
        "tan" => |work| plain(work, f64::tan),
        "asin" => |work| plain(work, f64::asin),
        "acos" => |work| plain(work, f64::acos),
        "atan" => |work| plain(work, f64::atan),
        "sinh" => |work| plain(work, f64::sinh),
        "cosh" => |work| plain(work, f64::cosh),
        "tanh" => |work| plain(work, f64::tanh),
        "asinh" => |work| plain(work, f64::asinh),
        "acosh" => |work| plain(work, f64::acosh),
        "atanh" => |work| plain(work, f64::atanh),
        "logit" => |work| plain(work, |x| (x / (1.0 - x)).ln()),
        "sigmoid" => |work| plain(work, |x| 1.0 / (1.0 + (-x).exp())),
        "log" => |work| with(work, "base", |x, base| x.log(base)),
        "pow" => |work| with(work, "exponent", f64::powf),
        "roundx" => |work| with(work, "step", nearest),
        _ => return None,
    };
    Some(Kernel::slotwise(work))
}

/// The nearest multiple; of two as near, the greater.
fn nearest(x: f64, step: f64) -> f64 {
    (x / step + 0.5).floor() * step
}

fn plain(work: KernelInput<'_>, f: fn(f64) -> f64) -> Result<Vec<Stream>> {
    Ok(map(work.inputs, f))
}

fn with(work: KernelInput<'_>, argument: &str, f: fn(f64, f64) -> f64) -> Result<Vec<Stream>> {
    let given = work.arguments.number(argument).unwrap_or(f64::NAN);
    Ok(map(work.inputs, |x| f(x, given)))
}

fn constant(work: KernelInput<'_>, number: f64) -> Result<Vec<Stream>> {
    Ok(vec![stream(LabelSet::default(), vec![Some(number); work.steps.count])])
}
