//! Default step of a range query.

use crate::promql::{self, Expr, ExprKind};
use crate::request::Language;

/// Default number of steps of a result.
const DEFAULT_STEPS: i64 = 100;
/// Maximum number of steps that adjacent windows may give by default.
pub const STEPS_MAX: i64 = 2 * DEFAULT_STEPS;

/// Default step: the window of the expression, so that windows are adjacent, unless that gives more
/// than `steps_max` steps; otherwise about a hundredth of the range. `length` is the length of the
/// range in nanoseconds.
pub fn default_step(
    text: &str,
    language: Language,
    options: &promql::Options,
    length: i64,
    steps_max: i64,
) -> i64 {
    match common_window(text, language, options) {
        Some(window) if length / window <= steps_max => window,
        _ => round_up(length / DEFAULT_STEPS),
    }
}

/// Length of the windows in an expression, if all are equal. CAQL has none.
pub fn common_window(text: &str, language: Language, options: &promql::Options) -> Option<i64> {
    fn collect_windows(expr: &Expr, found: &mut Vec<Option<i64>>) {
        if let ExprKind::Matrix { range, .. } = &expr.kind {
            found.push(range.resolve(0, 0).ok());
        }
        expr.children().into_iter().for_each(|child| collect_windows(child, found));
    }
    if language == Language::Caql {
        return None;
    }
    let mut found = Vec::new();
    collect_windows(&promql::parse(text, options).ok()?, &mut found);
    found.dedup();
    match found[..] {
        [Some(one)] if one > 0 => Some(one),
        _ => None,
    }
}

/// Rounds up to a usual interval length.
fn round_up(length: i64) -> i64 {
    const ROUND_STEPS_S: [i64; 18] = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200,
        86_400,
    ];
    let round =
        ROUND_STEPS_S.iter().map(|seconds| seconds * store::SECOND).find(|round| *round >= length);
    round.unwrap_or_else(|| (length / store::DAY + 1).saturating_mul(store::DAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = store::MINUTE;

    #[track_caller]
    fn check(text: &str, length: i64, expected: i64) {
        let options = promql::Options::default();
        let step = default_step(text, Language::PromQl, &options, length, STEPS_MAX);
        assert_eq!(step, expected, "{text}");
    }

    #[test]
    fn windows_of_one_length_are_adjacent() {
        check("rate(x[5m])", 60 * MINUTE, 5 * MINUTE);
        check("rate(x[5m]) / rate(y[5m])", 60 * MINUTE, 5 * MINUTE);
    }

    #[test]
    fn other_expressions_have_about_a_hundred_steps() {
        check("rate(x[5m]) / rate(y[1m])", 60 * MINUTE, MINUTE);
        check("rate(x[1m])", 365 * store::DAY, 4 * store::DAY);
        check("x", 100 * store::SECOND, store::SECOND);
    }
}
