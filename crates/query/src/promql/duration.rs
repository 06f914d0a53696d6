//! Durations in expressions: literals, and expressions that are evaluated once step and range are
//! known.

use crate::error::{Error, Result, SourceSpan};

/// Duration, constant or expression.
#[derive(Clone, Debug, PartialEq)]
pub enum DurationValue {
    /// Duration in nanoseconds.
    Nanos(i64),
    /// Duration expression.
    Expr(DurationExpr),
}

/// Duration expression, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct DurationExpr {
    /// Kind of the expression.
    pub kind: DurationKind,
    /// Span in the text.
    pub span: SourceSpan,
}

/// Kind of a duration expression.
#[derive(Clone, Debug, PartialEq)]
pub enum DurationKind {
    /// Seconds, with a sign.
    Seconds(f64),
    /// `step()`: step of the query.
    Step,
    /// `range()`: duration from the first to the last step of the query.
    Range,
    /// `-duration`.
    Negative(Box<DurationExpr>),
    /// `(duration)`.
    Paren(Box<DurationExpr>),
    /// `left op right`, `min_of(left, right)`, `max_of(left, right)`.
    Two(DurationOp, Box<DurationExpr>, Box<DurationExpr>),
}

/// Operator of two durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum DurationOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
    MinOf,
    MaxOf,
}

impl DurationOp {
    /// Text in an expression.
    pub fn text(self) -> &'static str {
        match self {
            DurationOp::Add => "+",
            DurationOp::Subtract => "-",
            DurationOp::Multiply => "*",
            DurationOp::Divide => "/",
            DurationOp::Modulo => "%",
            DurationOp::Power => "^",
            DurationOp::MinOf => "min_of",
            DurationOp::MaxOf => "max_of",
        }
    }
}

/// Seconds above which nanoseconds overflow an `i64`.
const SECONDS_MAX: f64 = 9_223_372_036.854_776;

/// Whether seconds exceed the range of nanoseconds. NaN is not detected here, as in Prometheus.
pub(super) fn is_out_of_range(seconds: f64) -> bool {
    seconds.abs() > SECONDS_MAX
}

/// Seconds in nanoseconds, rounded.
pub(super) fn nanos(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

impl DurationValue {
    /// Zero duration.
    pub const ZERO: DurationValue = DurationValue::Nanos(0);

    /// Length of a range or a step, above 0, given the step and the range of the query.
    pub fn resolve(&self, step_ns: i64, range_ns: i64) -> Result<i64> {
        self.evaluate(step_ns, range_ns, false)
    }

    /// Length of an offset, which may be negative.
    pub(crate) fn resolve_offset(&self, step_ns: i64, range_ns: i64) -> Result<i64> {
        self.evaluate(step_ns, range_ns, true)
    }

    fn evaluate(&self, step_ns: i64, range_ns: i64, may_be_negative: bool) -> Result<i64> {
        let tree = match self {
            DurationValue::Nanos(nanos) => return Ok(*nanos),
            DurationValue::Expr(tree) => tree,
        };
        let seconds = tree.seconds(step_ns, range_ns)?;
        let wrong = if !seconds.is_finite() {
            "duration is NaN or infinite"
        } else if seconds <= 0.0 && !may_be_negative {
            "duration must be greater than 0"
        } else if is_out_of_range(seconds) {
            "duration is out of range"
        } else {
            // Whole milliseconds, truncated, as in Prometheus.
            return Ok(((seconds * 1000.0) as i64).saturating_mul(1_000_000));
        };
        Err(tree.error(wrong))
    }

    pub(super) fn clear_spans(&mut self) {
        if let DurationValue::Expr(tree) = self {
            tree.clear_spans();
        }
    }
}

impl DurationExpr {
    fn seconds(&self, step_ns: i64, range_ns: i64) -> Result<f64> {
        let (op, left, right) = match &self.kind {
            DurationKind::Seconds(seconds) => return Ok(*seconds),
            DurationKind::Step => return Ok(step_ns as f64 / 1e9),
            DurationKind::Range => return Ok(range_ns as f64 / 1e9),
            DurationKind::Negative(inner) => return Ok(-inner.seconds(step_ns, range_ns)?),
            DurationKind::Paren(inner) => return inner.seconds(step_ns, range_ns),
            DurationKind::Two(op, left, right) => {
                (*op, left.seconds(step_ns, range_ns)?, right.seconds(step_ns, range_ns)?)
            }
        };
        Ok(match op {
            DurationOp::Add => left + right,
            DurationOp::Subtract => left - right,
            DurationOp::Multiply => left * right,
            DurationOp::Divide if right == 0.0 => return Err(self.error("division by zero")),
            DurationOp::Divide => left / right,
            DurationOp::Modulo if right == 0.0 => return Err(self.error("modulo by zero")),
            DurationOp::Modulo => left % right,
            DurationOp::Power => left.powf(right),
            // Unlike `f64::min`, NaN wins, as in Go; both are rejected in the end.
            _ if left.is_nan() || right.is_nan() => f64::NAN,
            DurationOp::MinOf => left.min(right),
            DurationOp::MaxOf => left.max(right),
        })
    }

    fn error(&self, message: &str) -> Error {
        Error::Execution { span: self.span, message: message.to_owned() }
    }

    fn clear_spans(&mut self) {
        self.span = SourceSpan::default();
        match &mut self.kind {
            DurationKind::Negative(inner) | DurationKind::Paren(inner) => inner.clear_spans(),
            DurationKind::Two(_, left, right) => {
                left.clear_spans();
                right.clear_spans();
            }
            DurationKind::Seconds(_) | DurationKind::Step | DurationKind::Range => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ast::ExprKind;
    use super::super::{Options, parse};

    /// Resolves with a step of 10 s and a range of 1 h.
    #[track_caller]
    fn check(range: &str, expected: Result<i64, &str>) {
        let expr = parse(&format!("x[{range}]"), &Options::all()).unwrap();
        let ExprKind::Matrix { range, .. } = expr.kind else { panic!("no range: {expr:?}") };
        let found = range.resolve(10_000_000_000, 3_600_000_000_000).map_err(|e| e.to_string());
        assert_eq!(found, expected.map(|ms| ms * 1_000_000).map_err(str::to_owned));
    }

    #[test]
    fn durations_are_worked_out() {
        check("5m", Ok(300_000));
        check("step()", Ok(10_000));
        check("range() / 2", Ok(1_800_000));
        check("step() + 2 * 3", Ok(16_000));
        check("-(2 - step()) ^ 2 + 100", Ok(36_000));
        check("max_of(step(), min_of(1m, 2m))", Ok(60_000));
        check("1m % 7", Ok(4_000));
        check("1 / 3 + 0", Ok(333));
    }

    #[test]
    fn durations_that_cannot_be() {
        check("5 - step()", Err("duration must be greater than 0"));
        check("step() / (step() - 10)", Err("division by zero"));
        check("step() % (step() - 10)", Err("modulo by zero"));
        check("(-2) ^ 0.5", Err("duration is NaN or infinite"));
        check("1e9 * 1e9", Err("duration is out of range"));
    }
}
