//! `and`, `or` and `unless`: streams of one side at the steps at which the other side has, or
//! lacks, a matching stream.

use crate::error::{Result, SourceSpan};
use crate::eval::{Evaluation, merge_equal_labels};
use crate::plan::BinaryOperation;
use crate::promql::BinaryOp;
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

use super::Signatures;

pub(super) fn combine(
    evaluation: &mut Evaluation<'_>,
    binary: &BinaryOperation,
    mut left: Vec<Stream>,
    mut right: Vec<Stream>,
    span: SourceSpan,
    steps: StepGrid,
) -> Result<Vec<Stream>> {
    let signatures = Signatures::from_streams(&binary.matching, &left, &right);
    let (left_is, right_is) = (&signatures.left, &signatures.right);
    if binary.operator == BinaryOp::Or {
        let present = SignaturePresence::from_streams(&left, left_is, signatures.count, steps);
        retain_points(evaluation, &mut right, right_is, |signature, step| {
            !present.at(signature, step)
        });
        left.append(&mut right);
        // Streams with equal labels on both sides are merged step by step.
        return merge_equal_labels(left, span);
    }
    let present = SignaturePresence::from_streams(&right, right_is, signatures.count, steps);
    let keeps_matches = binary.operator == BinaryOp::And;
    retain_points(evaluation, &mut left, left_is, |signature, step| {
        present.at(signature, step) == keeps_matches
    });
    evaluation.release(&right);
    Ok(left)
}

/// Steps at which a signature is present.
struct SignaturePresence {
    is_present: Vec<bool>,
    steps: usize,
}

impl SignaturePresence {
    fn from_streams(
        streams: &[Stream],
        signatures: &[usize],
        count: usize,
        steps: StepGrid,
    ) -> SignaturePresence {
        let steps = steps.count;
        let mut is_present = vec![false; count * steps];
        for (stream, signature) in streams.iter().zip(signatures) {
            let present = &mut is_present[signature * steps..][..steps];
            for (present, point) in present.iter_mut().zip(&stream.points) {
                *present |= point.is_some();
            }
        }
        SignaturePresence { is_present, steps }
    }

    fn at(&self, signature: usize, step: usize) -> bool {
        self.is_present[signature * self.steps + step]
    }
}

/// Removes unselected points, and streams without points.
fn retain_points(
    evaluation: &Evaluation<'_>,
    streams: &mut Vec<Stream>,
    signatures: &[usize],
    predicate: impl Fn(usize, usize) -> bool,
) {
    let mut dropped = 0;
    for (stream, signature) in streams.iter_mut().zip(signatures) {
        for (step, point) in stream.points.iter_mut().enumerate() {
            if !predicate(*signature, step) {
                dropped += point.take().as_ref().map_or(0, StepValue::samples);
            }
        }
    }
    evaluation.budget.release_samples(dropped);
    streams.retain(|stream| !stream.is_empty());
}
