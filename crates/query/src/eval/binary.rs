//! Binary operators between two vectors, a vector and a scalar, and two scalars.

pub(crate) mod bounds;
mod element;
mod join;
mod sets;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Result, SourceSpan};
use crate::eval::Evaluation;
use crate::labels::{LabelSet, NAME};
use crate::plan::{BinaryOperation, OperandKind};
use crate::promql::{BinaryOp, VectorMatching};
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

use element::{ElementResult, OperationWarning};

/// Negated value.
pub(crate) fn negate_value(value: &StepValue) -> StepValue {
    match value {
        StepValue::Number(number) => StepValue::Number(-number),
        StepValue::Bracket(bracket) => StepValue::from_bracket(bounds::negate_bracket(**bracket)),
        StepValue::Histogram(_) | StepValue::Distribution(_) => {
            let mut histogram =
                Arc::unwrap_or_clone(value.histogram().expect("BUG: it is a distribution"));
            histogram.negate();
            StepValue::Histogram(Arc::new(histogram))
        }
    }
}

/// Whether a duration is meant in the unit of the other operand, as in `latency > 250ms`.
fn takes_unit(operator: BinaryOp) -> bool {
    let of_same_unit = matches!(
        operator,
        BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Divide | BinaryOp::Modulo
    );
    of_same_unit || operator.is_comparison()
}

impl Evaluation<'_> {
    pub(crate) fn binary(
        &mut self,
        binary: &BinaryOperation,
        span: SourceSpan,
        steps: StepGrid,
    ) -> Result<Vec<Stream>> {
        let ((left_side, left), (right_side, right)) = (&binary.left, &binary.right);
        match (left_side, right_side) {
            (OperandKind::Scalar, OperandKind::Scalar) => self.between_scalars(binary, steps),
            (OperandKind::Vector, OperandKind::Scalar) => {
                let streams = self.streams(left, steps)?;
                let numbers = match takes_unit(binary.operator) {
                    true => self.scalar_in_unit(right, left, steps)?,
                    false => self.scalar(right, steps)?,
                };
                self.with_scalar(binary, streams, &numbers, span)
            }
            (OperandKind::Scalar, OperandKind::Vector) => {
                let numbers = match takes_unit(binary.operator) {
                    true => self.scalar_in_unit(left, right, steps)?,
                    false => self.scalar(left, steps)?,
                };
                let streams = self.streams(right, steps)?;
                self.with_scalar(binary, streams, &numbers, span)
            }
            (OperandKind::Vector, OperandKind::Vector) => {
                let left = self.streams(left, steps)?;
                let right = self.streams(right, steps)?;
                match binary.operator.is_set() {
                    true => sets::combine(self, binary, left, right, span, steps),
                    false => join::join(self, binary, left, right, span, steps),
                }
            }
        }
    }

    fn between_scalars(
        &mut self,
        binary: &BinaryOperation,
        steps: StepGrid,
    ) -> Result<Vec<Stream>> {
        let left = self.scalar(&binary.left.1, steps)?;
        let right = self.scalar(&binary.right.1, steps)?;
        self.budget.charge_samples(steps.count as u64)?;
        let points = left.into_iter().zip(right).map(|(left, right)| {
            let result = match element::compare(binary.operator, left, right) {
                Some(holds) => f64::from(holds),
                None => element::compute(binary.operator, left, right).unwrap_or(f64::NAN),
            };
            Some(StepValue::Number(result))
        });
        Ok(vec![Stream::new(LabelSet::default(), points.collect())])
    }

    fn with_scalar(
        &mut self,
        binary: &BinaryOperation,
        mut streams: Vec<Stream>,
        numbers: &[f64],
        span: SourceSpan,
    ) -> Result<Vec<Stream>> {
        let operator = binary.operator;
        let is_scalar_left = binary.left.0 == OperandKind::Scalar;
        // Only the last warning of each step is reported.
        let mut warnings: Vec<Option<OperationWarning>> = vec![None; numbers.len()];
        for stream in &mut streams {
            let before = stream.samples();
            for ((point, number), warning) in
                stream.points.iter_mut().zip(numbers).zip(&mut warnings)
            {
                let Some(value) = point.take() else { continue };
                let scalar = StepValue::Number(*number);
                let (left, right) = match is_scalar_left {
                    true => (&scalar, &value),
                    false => (&value, &scalar),
                };
                *point = match element::apply(operator, left, right) {
                    Ok(ElementResult { holds, .. }) if binary.is_bool => {
                        Some(StepValue::Number(f64::from(holds)))
                    }
                    Ok(ElementResult { holds: false, .. }) => None,
                    // A comparison filters the vector, whichever side it is on.
                    Ok(_) if operator.is_comparison() => Some(value),
                    Ok(outcome) => Some(outcome.value),
                    Err(found) => {
                        *warning = Some(found);
                        None
                    }
                };
            }
            self.budget.charge_samples(stream.samples())?;
            self.budget.release_samples(before);
            if is_name_dropped(operator) || binary.is_bool {
                self.drop_name(stream);
            }
        }
        for warning in warnings.into_iter().flatten() {
            warning.emit(operator, span, &mut self.warnings);
        }
        streams.retain(|stream| !stream.is_empty());
        self.merge_equal_labels(streams, span)
    }
}

/// Whether the operator changes the meaning of the values, so that the metric name is dropped.
fn is_name_dropped(operator: BinaryOp) -> bool {
    use BinaryOp::*;
    matches!(operator, Add | Subtract | Multiply | Divide | Modulo | Power | Atan2)
}

/// Labels used for matching.
fn signature(matching: &VectorMatching, labels: &LabelSet) -> LabelSet {
    let named = |label: &str| matching.labels.iter().any(|held| held == label);
    match matching.on {
        true => labels.filter(named),
        false => labels.filter(|label| label != NAME && !named(label)),
    }
}

/// Match group index of each stream.
struct Signatures {
    left: Vec<usize>,
    right: Vec<usize>,
    count: usize,
}

impl Signatures {
    fn from_streams(matching: &VectorMatching, left: &[Stream], right: &[Stream]) -> Signatures {
        let mut known: HashMap<LabelSet, usize> = HashMap::with_capacity(left.len());
        let mut number = |streams: &[Stream]| -> Vec<usize> {
            let number_of = |stream: &Stream| {
                let next = known.len();
                *known.entry(signature(matching, &stream.labels)).or_insert(next)
            };
            streams.iter().map(number_of).collect()
        };
        let (left, right) = (number(left), number(right));
        Signatures { left, right, count: known.len() }
    }
}
