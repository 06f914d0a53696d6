//! Operators between streams, between a stream and a number, and between numbers.

pub(crate) mod bounds;
mod element;
mod join;
mod sets;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Place, Result};
use crate::eval::Evaluation;
use crate::labels::{Labels, NAME};
use crate::plan::Node;
use crate::promql::{BinaryOp, Matching};
use crate::stream::{Steps, Stream};
use crate::value::Value;

use element::{Outcome, Trouble};

/// What stands on a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Scalar,
    Vector,
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) operator: BinaryOp,
    pub(crate) left: (Side, Node),
    pub(crate) right: (Side, Node),
    pub(crate) matching: Matching,
    /// A comparison gives 0 or 1 and picks nothing.
    pub(crate) is_bool: bool,
}

/// What is as far on the other side of nought.
pub(crate) fn negated(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(-number),
        Value::Bracket(bracket) => Value::of_bracket(bounds::negated(**bracket)),
        Value::Histogram(_) | Value::Distribution(_) => {
            let mut histogram =
                Arc::unwrap_or_clone(value.histogram().expect("BUG: it is a distribution"));
            histogram.negate();
            Value::Histogram(Arc::new(histogram))
        }
    }
}

impl Evaluation<'_> {
    pub(crate) fn binary(
        &mut self,
        binary: &Binary,
        place: Place,
        steps: Steps,
    ) -> Result<Vec<Stream>> {
        let ((left_side, left), (right_side, right)) = (&binary.left, &binary.right);
        match (left_side, right_side) {
            (Side::Scalar, Side::Scalar) => self.between_scalars(binary, steps),
            (Side::Vector, Side::Scalar) => {
                let streams = self.streams(left, steps)?;
                let numbers = self.scalar(right, steps)?;
                self.with_scalar(binary, streams, &numbers, place)
            }
            (Side::Scalar, Side::Vector) => {
                let numbers = self.scalar(left, steps)?;
                let streams = self.streams(right, steps)?;
                self.with_scalar(binary, streams, &numbers, place)
            }
            (Side::Vector, Side::Vector) => {
                let left = self.streams(left, steps)?;
                let right = self.streams(right, steps)?;
                match binary.operator.is_set() {
                    true => sets::combine(self, binary, left, right, place, steps),
                    false => join::join(self, binary, left, right, place, steps),
                }
            }
        }
    }

    fn between_scalars(&mut self, binary: &Binary, steps: Steps) -> Result<Vec<Stream>> {
        let left = self.scalar(&binary.left.1, steps)?;
        let right = self.scalar(&binary.right.1, steps)?;
        self.budget.hold(steps.count as u64)?;
        let points = left.into_iter().zip(right).map(|(left, right)| {
            let result = match element::holds(binary.operator, left, right) {
                Some(holds) => f64::from(holds),
                None => element::computed(binary.operator, left, right).unwrap_or(f64::NAN),
            };
            Some(Value::Number(result))
        });
        Ok(vec![Stream::new(Labels::default(), points.collect())])
    }

    fn with_scalar(
        &mut self,
        binary: &Binary,
        mut streams: Vec<Stream>,
        numbers: &[f64],
        place: Place,
    ) -> Result<Vec<Stream>> {
        let operator = binary.operator;
        let is_scalar_left = binary.left.0 == Side::Scalar;
        // Of all that is wrong at a step, only the last is told.
        let mut troubles: Vec<Option<Trouble>> = vec![None; numbers.len()];
        for stream in &mut streams {
            let before = stream.samples();
            for ((point, number), trouble) in
                stream.points.iter_mut().zip(numbers).zip(&mut troubles)
            {
                let Some(value) = point.take() else { continue };
                let scalar = Value::Number(*number);
                let (left, right) = match is_scalar_left {
                    true => (&scalar, &value),
                    false => (&value, &scalar),
                };
                *point = match element::apply(operator, left, right) {
                    Ok(Outcome { holds, .. }) if binary.is_bool => {
                        Some(Value::Number(f64::from(holds)))
                    }
                    Ok(Outcome { holds: false, .. }) => None,
                    // A comparison picks values of the vector, on whichever side it stands.
                    Ok(_) if operator.is_comparison() => Some(value),
                    Ok(outcome) => Some(outcome.value),
                    Err(found) => {
                        *trouble = Some(found);
                        None
                    }
                };
            }
            self.budget.hold(stream.samples())?;
            self.budget.release(before);
            if changes_meaning(operator) || binary.is_bool {
                self.drop_name(stream);
            }
        }
        for trouble in troubles.into_iter().flatten() {
            trouble.tell(operator, place, &mut self.notes);
        }
        streams.retain(|stream| !stream.is_empty());
        self.merge_same(streams, place)
    }
}

/// Whether the result is another thing than what the metric's name says.
fn changes_meaning(operator: BinaryOp) -> bool {
    use BinaryOp::*;
    matches!(operator, Add | Subtract | Multiply | Divide | Modulo | Power | Atan2)
}

/// The labels by which streams find each other.
fn signature(matching: &Matching, labels: &Labels) -> Labels {
    let named = |label: &str| matching.labels.iter().any(|held| held == label);
    match matching.on {
        true => labels.keep(named),
        false => labels.keep(|label| label != NAME && !named(label)),
    }
}

/// Which streams have which signature: numbers from 0 for both sides, and how many there are.
struct Signatures {
    left: Vec<usize>,
    right: Vec<usize>,
    count: usize,
}

impl Signatures {
    fn of(matching: &Matching, left: &[Stream], right: &[Stream]) -> Signatures {
        let mut known: HashMap<Labels, usize> = HashMap::with_capacity(left.len());
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
