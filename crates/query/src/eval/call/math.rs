//! Functions of floats. Distributions are skipped.

use hist::Bracket;

use crate::error::Result;
use crate::eval::Evaluation;
use crate::stream::Stream;
use crate::value::StepValue;

use super::FunctionCall;

/// Monotonicity of a function; determines how bounds map.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Monotonicity {
    /// Non-decreasing.
    Rising,
    /// Non-increasing.
    Falling,
    /// Increasing with the distance from zero.
    FromZero,
    /// Not monotonic: the bounds are lost.
    Any,
}

/// Applies a function to each float.
pub(crate) fn map(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
    trend: Monotonicity,
    f: impl Fn(f64) -> f64,
) -> Result<Vec<Stream>> {
    evaluation.map_points(call, 0, |_, value| apply(value, trend, &f))
}

fn apply(value: &StepValue, trend: Monotonicity, f: impl Fn(f64) -> f64) -> Option<StepValue> {
    let Bracket { lower, estimate, upper } = match value {
        StepValue::Number(number) => return Some(StepValue::Number(f(*number))),
        StepValue::Bracket(bracket) => **bracket,
        StepValue::Histogram(_) | StepValue::Distribution(_) => return None,
    };
    let estimate = f(estimate);
    Some(match trend {
        Monotonicity::Rising => StepValue::from_bounds(f(lower), estimate, f(upper)),
        Monotonicity::Falling => StepValue::from_bounds(f(upper), estimate, f(lower)),
        Monotonicity::FromZero => {
            let (a, b) = (f(lower), f(upper));
            let least = if lower <= 0.0 && upper >= 0.0 { f(0.0) } else { a.min(b) };
            StepValue::from_bounds(least, estimate, a.max(b))
        }
        Monotonicity::Any => StepValue::Number(estimate),
    })
}

/// From here on, x² + 1 equals x² in a double.
const SQUARE_DOMINATES: f64 = (1u64 << 28) as f64;

/// `f64::acosh` returns infinity if the square overflows.
pub(crate) fn acosh(x: f64) -> f64 {
    if x > SQUARE_DOMINATES { x.ln() + std::f64::consts::LN_2 } else { x.acosh() }
}

/// `f64::asinh` returns infinity if the square overflows.
pub(crate) fn asinh(x: f64) -> f64 {
    let size = x.abs();
    if size > SQUARE_DOMINATES {
        (size.ln() + std::f64::consts::LN_2).copysign(x)
    } else {
        x.asinh()
    }
}

pub(crate) fn clamp(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let min = evaluation.scalar(&call.args[1], call.steps)?;
    let max = evaluation.scalar(&call.args[2], call.steps)?;
    evaluation.map_points(call, 0, |step, value| clamp_value(value, min[step], max[step]))
}

pub(crate) fn clamp_max(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let max = evaluation.scalar(&call.args[1], call.steps)?;
    evaluation.map_points(call, 0, |step, value| clamp_value(value, f64::NEG_INFINITY, max[step]))
}

pub(crate) fn clamp_min(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let min = evaluation.scalar(&call.args[1], call.steps)?;
    evaluation.map_points(call, 0, |step, value| clamp_value(value, min[step], f64::INFINITY))
}

fn clamp_value(value: &StepValue, min: f64, max: f64) -> Option<StepValue> {
    if max < min {
        return None;
    }
    apply(value, Monotonicity::Rising, |x| greater(min, lesser(max, x)))
}

/// Rounds to the nearest multiple; halves round up.
pub(crate) fn round(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let nearest = match call.args.get(1) {
        Some(nearest) => evaluation.scalar(nearest, call.steps)?,
        None => vec![1.0; call.steps.count],
    };
    evaluation.map_points(call, 0, |step, value| {
        // Prometheus divides by the inverse: 0.1 has no exact double, 10 has.
        let inverse = 1.0 / nearest[step];
        apply(value, Monotonicity::Rising, |x| (x * inverse + 0.5).floor() / inverse)
    })
}

/// −1, 0 or 1; NaN for NaN.
pub(crate) fn sign(x: f64) -> f64 {
    match x {
        x if x < 0.0 => -1.0,
        x if x > 0.0 => 1.0,
        x => x,
    }
}

/// Maximum of two. NaN if either is NaN, unless the other is +Inf.
pub(crate) fn greater(a: f64, b: f64) -> f64 {
    match (a, b) {
        (a, b) if a == f64::INFINITY || b == f64::INFINITY => f64::INFINITY,
        (a, b) if a.is_nan() || b.is_nan() => f64::NAN,
        // Of 0 and -0, the positive one.
        (a, b) if a == 0.0 && b == 0.0 => a + b,
        (a, b) => a.max(b),
    }
}

/// Minimum of two. NaN if either is NaN, unless the other is -Inf.
pub(crate) fn lesser(a: f64, b: f64) -> f64 {
    -greater(-a, -b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(trend: Monotonicity, f: fn(f64) -> f64, bounds: [f64; 3], expected: [f64; 3]) {
        let [lower, estimate, upper] = bounds;
        let value = StepValue::Bracket(Box::new(Bracket { lower, estimate, upper }));
        let found = apply(&value, trend, f).and_then(|value| value.bracket()).unwrap();
        assert_eq!([found.lower, found.estimate, found.upper], expected);
    }

    #[test]
    fn bounds_are_mapped() {
        check(Monotonicity::Rising, f64::sqrt, [1.0, 4.0, 9.0], [1.0, 2.0, 3.0]);
        check(Monotonicity::Falling, |x| -x, [1.0, 4.0, 9.0], [-9.0, -4.0, -1.0]);
        check(Monotonicity::FromZero, f64::abs, [-3.0, 1.0, 2.0], [0.0, 1.0, 3.0]);
        check(Monotonicity::FromZero, f64::abs, [-3.0, -2.0, -1.0], [1.0, 2.0, 3.0]);
        check(Monotonicity::Any, f64::sin, [-3.0, 0.0, 2.0], [0.0, 0.0, 0.0]);
        check(Monotonicity::Rising, f64::ln, [-1.0, 1.0, 2.0], [0.0, 0.0, 0.0]);
    }

    #[test]
    fn nan_is_unchanged() {
        assert!(greater(f64::NAN, 1.0).is_nan());
        assert!(lesser(1.0, f64::NAN).is_nan());
        assert_eq!(greater(f64::NAN, f64::INFINITY), f64::INFINITY);
        assert_eq!(lesser(f64::NEG_INFINITY, f64::NAN), f64::NEG_INFINITY);
        assert!(greater(-0.0, 0.0).is_sign_positive());
        assert!(lesser(-0.0, 0.0).is_sign_negative());
    }
}
