//! One value against another.

use std::sync::Arc;

use crate::error::Place;
use crate::histogram::{FloatHistogram, Incompatible, Keep, ResetHint};
use crate::note::Notes;
use crate::promql::BinaryOp;
use crate::value::Value;

use super::bounds;

/// What comes of two values.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome {
    /// The result; of a comparison, the left one.
    pub(super) value: Value,
    /// Whether a comparison holds; of other operators, true.
    pub(super) holds: bool,
    /// What should be said of it.
    pub(super) remark: Option<Trouble>,
}

/// Why two values give nothing, or what they give should not be read without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The operator is not for these; whether left and right are histograms.
    Kinds(bool, bool),
    /// Histograms whose buckets have nothing in common.
    Layout,
    /// One says that there was a reset, the other that there was none.
    ResetsCollide,
    /// Custom bounds differed: those that both have remain.
    BoundsReconciled,
}

impl Trouble {
    /// Notes it, in Prometheus' words.
    pub(super) fn tell(self, operator: BinaryOp, place: Place, notes: &mut Notes) {
        let text = operator.text();
        let done = if operator == BinaryOp::Add { "addition" } else { "subtraction" };
        match self {
            Trouble::Kinds(left, right) => {
                let kind = |is_histogram| if is_histogram { "histogram" } else { "float" };
                let (left, right) = (kind(left), kind(right));
                notes.info(
                    place,
                    format!(
                        "PromQL info: incompatible sample types encountered for binary operator \
                         \"{text}\": {left} {text} {right}"
                    ),
                );
            }
            Trouble::Layout => notes.warn(
                place,
                format!(
                    "PromQL warning: incompatible bucket layout encountered for binary operator {text}"
                ),
            ),
            Trouble::ResetsCollide => notes.warn(
                place,
                format!("PromQL warning: conflicting counter resets during histogram {done}"),
            ),
            Trouble::BoundsReconciled => notes.info(
                place,
                format!("PromQL info: mismatched custom buckets were reconciled during {done}"),
            ),
        }
    }
}

/// The operator on two values. No set operator.
pub(super) fn apply(operator: BinaryOp, left: &Value, right: &Value) -> Result<Outcome, Trouble> {
    let kinds = Trouble::Kinds(left.is_distribution(), right.is_distribution());
    if let (Some(left_number), Some(right_number)) = (left.number(), right.number()) {
        if let Some(holds) = holds(operator, left_number, right_number) {
            return Ok(Outcome { value: left.clone(), holds, remark: None });
        }
        let result = computed(operator, left_number, right_number).ok_or(kinds)?;
        return Ok(outcome(with_bounds(operator, left, right, result)));
    }
    let (left_histogram, right_histogram) = (left.histogram(), right.histogram());
    match (left_histogram, right_histogram) {
        (Some(histogram), None) => {
            let number = right.number().unwrap_or(f64::NAN);
            let mut histogram = Arc::unwrap_or_clone(histogram);
            match operator {
                BinaryOp::Multiply => histogram.mul(number),
                BinaryOp::Divide => histogram.div(number),
                BinaryOp::TrimUpper => histogram.trim(number, Keep::Below),
                BinaryOp::TrimLower => histogram.trim(number, Keep::Above),
                _ => return Err(kinds),
            }
            Ok(outcome(Value::Histogram(Arc::new(histogram))))
        }
        (None, Some(histogram)) if operator == BinaryOp::Multiply => {
            let mut histogram = Arc::unwrap_or_clone(histogram);
            histogram.mul(left.number().unwrap_or(f64::NAN));
            Ok(outcome(Value::Histogram(Arc::new(histogram))))
        }
        (Some(a), Some(b)) => match operator {
            BinaryOp::Add | BinaryOp::Subtract => combined(operator, a, &b),
            BinaryOp::Equal | BinaryOp::NotEqual => {
                let holds = a.equals(&b) == (operator == BinaryOp::Equal);
                Ok(Outcome { value: left.clone(), holds, remark: None })
            }
            _ => Err(kinds),
        },
        _ => Err(kinds),
    }
}

/// Whether a comparison holds; `None` of another operator.
pub(super) fn holds(operator: BinaryOp, left: f64, right: f64) -> Option<bool> {
    Some(match operator {
        BinaryOp::Equal => left == right,
        BinaryOp::NotEqual => left != right,
        BinaryOp::Greater => left > right,
        BinaryOp::GreaterOrEqual => left >= right,
        BinaryOp::Less => left < right,
        BinaryOp::LessOrEqual => left <= right,
        _ => return None,
    })
}

/// What an operator of arithmetic gives; `None` of another one.
pub(super) fn computed(operator: BinaryOp, left: f64, right: f64) -> Option<f64> {
    Some(match operator {
        BinaryOp::Add => left + right,
        BinaryOp::Subtract => left - right,
        BinaryOp::Multiply => left * right,
        BinaryOp::Divide => left / right,
        BinaryOp::Modulo => left % right,
        BinaryOp::Power => left.powf(right),
        BinaryOp::Atan2 => left.atan2(right),
        _ => return None,
    })
}

fn outcome(value: Value) -> Outcome {
    Outcome { value, holds: true, remark: None }
}

fn with_bounds(operator: BinaryOp, left: &Value, right: &Value, result: f64) -> Value {
    if let (Value::Number(_), Value::Number(_)) = (left, right) {
        return Value::Number(result);
    }
    let bracket = match (left.bracket(), right.bracket()) {
        (Some(left), Some(right)) => bounds::of(operator, left, right, result),
        _ => None,
    };
    bracket.map_or(Value::Number(result), Value::of_bracket)
}

/// The sum or difference of histograms. Where resets collide there is none: so Prometheus has it.
fn combined(
    operator: BinaryOp,
    left: Arc<FloatHistogram>,
    right: &FloatHistogram,
) -> Result<Outcome, Trouble> {
    let mut result = Arc::unwrap_or_clone(left);
    let combined = match operator {
        BinaryOp::Add => result.add(right),
        _ => result.sub(right),
    };
    let combined = combined.map_err(|_: Incompatible| Trouble::Layout)?;
    if operator == BinaryOp::Subtract {
        result.hint = ResetHint::Gauge;
    }
    if combined.resets_collide {
        return Err(Trouble::ResetsCollide);
    }
    let remark = combined.bounds_reconciled.then_some(Trouble::BoundsReconciled);
    Ok(Outcome { value: Value::Histogram(Arc::new(result)), holds: true, remark })
}
