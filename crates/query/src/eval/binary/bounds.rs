//! Bounds of a result, from bounds of its operands. Each bound is rounded outwards, so that the
//! true value stays between them.

use hist::Bracket;

use crate::promql::BinaryOp;

/// Bounds of `estimate`, the result of an operator; `None` if they are unbounded.
pub(crate) fn result_bounds(
    operator: BinaryOp,
    left: Bracket,
    right: Bracket,
    estimate: f64,
) -> Option<Bracket> {
    let (lower, upper) = match operator {
        BinaryOp::Add => (left.lower + right.lower, left.upper + right.upper),
        BinaryOp::Subtract => (left.lower - right.upper, left.upper - right.lower),
        BinaryOp::Multiply => corners(left, right, |a, b| a * b)?,
        // A divisor range that contains 0 gives no bounds.
        BinaryOp::Divide if right.lower > 0.0 || right.upper < 0.0 => {
            corners(left, right, |a, b| a / b)?
        }
        _ => return None,
    };
    bracket_around(next_below(lower), estimate, next_above(upper))
}

/// Negated bracket.
pub(super) fn negate_bracket(bracket: Bracket) -> Bracket {
    Bracket { lower: -bracket.upper, estimate: -bracket.estimate, upper: -bracket.lower }
}

/// Next double below; a sum of exactly 0 is exact.
pub(crate) fn next_below(bound: f64) -> f64 {
    if bound == 0.0 { bound } else { bound.next_down() }
}

/// Next double above; a sum of exactly 0 is exact.
pub(crate) fn next_above(bound: f64) -> f64 {
    if bound == 0.0 { bound } else { bound.next_up() }
}

/// Bracket around an estimate; `None` if any of the values is NaN.
pub(crate) fn bracket_around(lower: f64, estimate: f64, upper: f64) -> Option<Bracket> {
    let is_known = !lower.is_nan() && !estimate.is_nan() && !upper.is_nan();
    is_known.then(|| Bracket { lower: lower.min(estimate), estimate, upper: upper.max(estimate) })
}

/// Minimum and maximum over all combinations of the operands' bounds.
fn corners(left: Bracket, right: Bracket, f: impl Fn(f64, f64) -> f64) -> Option<(f64, f64)> {
    let (mut least, mut greatest) = (f64::INFINITY, f64::NEG_INFINITY);
    for a in [left.lower, left.upper] {
        for b in [right.lower, right.upper] {
            let corner = f(a, b);
            if corner.is_nan() {
                return None;
            }
            (least, greatest) = (least.min(corner), greatest.max(corner));
        }
    }
    Some((least, greatest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bracket(lower: f64, upper: f64) -> Bracket {
        Bracket { lower, estimate: f64::midpoint(lower, upper), upper }
    }

    #[track_caller]
    fn check(
        operator: BinaryOp,
        left: (f64, f64),
        right: (f64, f64),
        expected: Option<(f64, f64)>,
    ) {
        let (left, right) = (bracket(left.0, left.1), bracket(right.0, right.1));
        let estimate = super::super::element::compute(operator, left.estimate, right.estimate);
        let found = result_bounds(operator, left, right, estimate.unwrap());
        let Some((lower, upper)) = expected else { return assert_eq!(found, None) };
        let found = found.unwrap();
        assert!(found.lower <= lower && (found.lower - lower).abs() < 1e-12, "{found:?}");
        assert!(found.upper >= upper && (found.upper - upper).abs() < 1e-12, "{found:?}");
        assert!(found.contains(found.estimate));
    }

    #[test]
    fn results_lie_within() {
        check(BinaryOp::Add, (1.0, 2.0), (10.0, 20.0), Some((11.0, 22.0)));
        check(BinaryOp::Subtract, (1.0, 2.0), (10.0, 20.0), Some((-19.0, -8.0)));
        check(BinaryOp::Multiply, (-1.0, 2.0), (-3.0, 4.0), Some((-6.0, 8.0)));
        check(BinaryOp::Divide, (1.0, 2.0), (4.0, 8.0), Some((0.125, 0.5)));
        check(BinaryOp::Divide, (1.0, 2.0), (-8.0, -4.0), Some((-0.5, -0.125)));
    }

    #[test]
    fn unbounded_results_have_no_bracket() {
        check(BinaryOp::Divide, (1.0, 2.0), (-1.0, 1.5), None);
        check(BinaryOp::Divide, (1.0, 2.0), (0.0, 1.0), None);
        check(BinaryOp::Power, (1.0, 2.0), (1.0, 2.0), None);
        check(BinaryOp::Multiply, (0.0, 1.0), (1.0, f64::INFINITY), None);
    }
}
