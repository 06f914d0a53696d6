//! Binary operation on two values.

use std::sync::Arc;

use crate::error::SourceSpan;
use crate::histogram::{FloatHistogram, IncompatibleHistograms, ResetHint, TrimSide};
use crate::promql::BinaryOp;
use crate::query_warnings::QueryWarnings;
use crate::value::StepValue;

use super::bounds;

/// Result of a binary operation on two values.
#[derive(Debug, PartialEq)]
pub(super) struct ElementResult {
    /// Result; for a comparison, the left value.
    pub(super) value: StepValue,
    /// Whether a comparison holds; true for other operators.
    pub(super) holds: bool,
    /// Warning to report.
    pub(super) warning: Option<OperationWarning>,
}

/// Warning of a binary operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationWarning {
    /// Operator not defined for these kinds: whether left and right are histograms.
    Kinds(bool, bool),
    /// Histograms without common buckets.
    Layout,
    /// One histogram has a hint for a reset, the other for no reset.
    ResetsCollide,
    /// Custom bounds differed; only common bounds remain.
    BoundsReconciled,
}

impl OperationWarning {
    /// Adds the warning with Prometheus' text.
    pub(super) fn emit(self, operator: BinaryOp, span: SourceSpan, notes: &mut QueryWarnings) {
        let text = operator.text();
        let done = if operator == BinaryOp::Add { "addition" } else { "subtraction" };
        match self {
            OperationWarning::Kinds(left, right) => {
                let kind = |is_histogram| if is_histogram { "histogram" } else { "float" };
                let (left, right) = (kind(left), kind(right));
                notes.info(
                    span,
                    format!(
                        "PromQL info: incompatible sample types encountered for binary operator \
                         \"{text}\": {left} {text} {right}"
                    ),
                );
            }
            OperationWarning::Layout => notes.warn(
                span,
                format!(
                    "PromQL warning: incompatible bucket layout encountered for binary operator \
                     {text}"
                ),
            ),
            OperationWarning::ResetsCollide => notes.warn(
                span,
                format!("PromQL warning: conflicting counter resets during histogram {done}"),
            ),
            OperationWarning::BoundsReconciled => notes.info(
                span,
                format!("PromQL info: mismatched custom buckets were reconciled during {done}"),
            ),
        }
    }
}

/// Applies an operator to two values; not defined for set operators.
pub(super) fn apply(
    operator: BinaryOp,
    left: &StepValue,
    right: &StepValue,
) -> Result<ElementResult, OperationWarning> {
    let kinds = OperationWarning::Kinds(left.is_distribution(), right.is_distribution());
    if let (Some(left_number), Some(right_number)) = (left.number(), right.number()) {
        if let Some(holds) = compare(operator, left_number, right_number) {
            return Ok(ElementResult { value: left.clone(), holds, warning: None });
        }
        let result = compute(operator, left_number, right_number).ok_or(kinds)?;
        return Ok(to_result(with_bounds(operator, left, right, result)));
    }
    let (left_histogram, right_histogram) = (left.histogram(), right.histogram());
    match (left_histogram, right_histogram) {
        (Some(histogram), None) => {
            let number = right.number().unwrap_or(f64::NAN);
            let mut histogram = Arc::unwrap_or_clone(histogram);
            match operator {
                BinaryOp::Multiply => histogram.mul(number),
                BinaryOp::Divide => histogram.div(number),
                BinaryOp::TrimUpper => histogram.trim(number, TrimSide::Below),
                BinaryOp::TrimLower => histogram.trim(number, TrimSide::Above),
                _ => return Err(kinds),
            }
            Ok(to_result(StepValue::Histogram(Arc::new(histogram))))
        }
        (None, Some(histogram)) if operator == BinaryOp::Multiply => {
            let mut histogram = Arc::unwrap_or_clone(histogram);
            histogram.mul(left.number().unwrap_or(f64::NAN));
            Ok(to_result(StepValue::Histogram(Arc::new(histogram))))
        }
        (Some(a), Some(b)) => match operator {
            BinaryOp::Add | BinaryOp::Subtract => combine_histograms(operator, a, &b),
            BinaryOp::Equal | BinaryOp::NotEqual => {
                let holds = a.equals(&b) == (operator == BinaryOp::Equal);
                Ok(ElementResult { value: left.clone(), holds, warning: None })
            }
            _ => Err(kinds),
        },
        _ => Err(kinds),
    }
}

/// Result of a comparison; `None` for other operators.
pub(super) fn compare(operator: BinaryOp, left: f64, right: f64) -> Option<bool> {
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

/// Result of an arithmetic operator; `None` for other operators.
pub(super) fn compute(operator: BinaryOp, left: f64, right: f64) -> Option<f64> {
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

fn to_result(value: StepValue) -> ElementResult {
    ElementResult { value, holds: true, warning: None }
}

fn with_bounds(operator: BinaryOp, left: &StepValue, right: &StepValue, result: f64) -> StepValue {
    if let (StepValue::Number(_), StepValue::Number(_)) = (left, right) {
        return StepValue::Number(result);
    }
    let bracket = match (left.bracket(), right.bracket()) {
        (Some(left), Some(right)) => bounds::result_bounds(operator, left, right, result),
        _ => None,
    };
    bracket.map_or(StepValue::Number(result), StepValue::from_bracket)
}

/// Sum or difference of histograms. With conflicting reset hints there is none, as in Prometheus.
fn combine_histograms(
    operator: BinaryOp,
    left: Arc<FloatHistogram>,
    right: &FloatHistogram,
) -> Result<ElementResult, OperationWarning> {
    let mut result = Arc::unwrap_or_clone(left);
    let combined = match operator {
        BinaryOp::Add => result.add(right),
        _ => result.sub(right),
    };
    let combined = combined.map_err(|_: IncompatibleHistograms| OperationWarning::Layout)?;
    if operator == BinaryOp::Subtract {
        result.hint = ResetHint::Gauge;
    }
    if combined.resets_collide {
        return Err(OperationWarning::ResetsCollide);
    }
    let warning = combined.bounds_reconciled.then_some(OperationWarning::BoundsReconciled);
    Ok(ElementResult { value: StepValue::Histogram(Arc::new(result)), holds: true, warning })
}
