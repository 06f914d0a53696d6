//! `and`, `or` and `unless`: streams of one side, at the steps where the other has, or has not, one that matches.

use crate::error::{Place, Result};
use crate::eval::{Evaluation, merge_same};
use crate::promql::BinaryOp;
use crate::stream::{Steps, Stream};
use crate::value::Value;

use super::{Binary, Signatures};

pub(super) fn combine(
    evaluation: &mut Evaluation<'_>,
    binary: &Binary,
    mut left: Vec<Stream>,
    mut right: Vec<Stream>,
    place: Place,
    steps: Steps,
) -> Result<Vec<Stream>> {
    let signatures = Signatures::of(&binary.matching, &left, &right);
    let (left_is, right_is) = (&signatures.left, &signatures.right);
    if binary.operator == BinaryOp::Or {
        let present = Present::of(&left, left_is, signatures.count, steps);
        keep(evaluation, &mut right, right_is, |signature, step| !present.at(signature, step));
        left.append(&mut right);
        // What both sides have under the same labels becomes one, turn by turn.
        return merge_same(left, place);
    }
    let present = Present::of(&right, right_is, signatures.count, steps);
    let wanted = binary.operator == BinaryOp::And;
    keep(evaluation, &mut left, left_is, |signature, step| present.at(signature, step) == wanted);
    evaluation.release(&right);
    Ok(left)
}

/// At which steps there is a stream of a signature.
struct Present {
    is_present: Vec<bool>,
    steps: usize,
}

impl Present {
    fn of(streams: &[Stream], signatures: &[usize], count: usize, steps: Steps) -> Present {
        let steps = steps.count;
        let mut is_present = vec![false; count * steps];
        for (stream, signature) in streams.iter().zip(signatures) {
            let held = &mut is_present[signature * steps..][..steps];
            for (held, point) in held.iter_mut().zip(&stream.points) {
                *held |= point.is_some();
            }
        }
        Present { is_present, steps }
    }

    fn at(&self, signature: usize, step: usize) -> bool {
        self.is_present[signature * self.steps + step]
    }
}

/// Takes out points that are not wanted, and streams that have none left.
fn keep(
    evaluation: &Evaluation<'_>,
    streams: &mut Vec<Stream>,
    signatures: &[usize],
    wanted: impl Fn(usize, usize) -> bool,
) {
    let mut dropped = 0;
    for (stream, signature) in streams.iter_mut().zip(signatures) {
        for (step, point) in stream.points.iter_mut().enumerate() {
            if !wanted(*signature, step) {
                dropped += point.take().as_ref().map_or(0, Value::samples);
            }
        }
    }
    evaluation.budget.release(dropped);
    streams.retain(|stream| !stream.is_empty());
}
