//! Binary operators with vector matching.
//!
//! Streams with equal matching labels form a group. In a group, one side ("the one") has at most
//! one stream at each step; the other ("the many") may have several, except in one-to-one matching.
//! Groups are evaluated one after the other. Errors and warnings are reported as if evaluation had
//! gone step by step: the error of the earliest step, and only the last warning of each step.

use std::collections::HashMap;

use crate::error::{Error, Result, SourceSpan};
use crate::eval::{Evaluation, duplicate_labels_error};
use crate::labels::LabelSet;
use crate::limits::QueryBudget;
use crate::plan::BinaryOperation;
use crate::promql::MatchCardinality;
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

use super::element::{self, OperationWarning};
use super::{Signatures, is_name_dropped, signature};

pub(super) fn join(
    evaluation: &mut Evaluation<'_>,
    binary: &BinaryOperation,
    left: Vec<Stream>,
    right: Vec<Stream>,
    span: SourceSpan,
    steps: StepGrid,
) -> Result<Vec<Stream>> {
    let signatures = Signatures::from_streams(&binary.matching, &left, &right);
    let mut groups = vec![MatchGroup::default(); signatures.count];
    let is_turned = binary.matching.cardinality == MatchCardinality::OneToMany;
    let (many, one, many_is, one_is) = match is_turned {
        true => (right, left, signatures.right, signatures.left),
        false => (left, right, signatures.left, signatures.right),
    };
    for (at, signature) in many_is.iter().enumerate() {
        groups[*signature].many.push(at);
    }
    for (at, signature) in one_is.iter().enumerate() {
        groups[*signature].one.push(at);
    }
    let mut join = Join {
        binary,
        is_swapped: is_turned,
        is_delayed: evaluation.settings.delayed_name_removal,
        span,
        many: &many,
        one: &one,
        needed_steps: needed_steps(binary, &many, &one, steps),
        recent_outputs: vec![None; many.len() + one.len()],
        outputs_by_pair: HashMap::new(),
        results: Vec::new(),
        by_labels: HashMap::new(),
        warnings: vec![None; steps.count],
        failure: None,
    };
    for (number, group) in groups.iter().enumerate() {
        join.group(number, group, &evaluation.budget)?;
    }
    if let Some((_, error)) = join.failure {
        return Err(error);
    }
    for (_, warning) in join.warnings.into_iter().flatten() {
        warning.emit(binary.operator, span, &mut evaluation.warnings);
    }
    let mut results = join.results;
    results.retain(|result| !result.stream.is_empty());
    model::sort::by_key(&mut results, |result| result.order);
    evaluation.release(&many);
    evaluation.release(&one);
    Ok(results.into_iter().map(|result| result.stream).collect())
}

/// Streams with equal matching labels.
#[derive(Clone, Debug, Default)]
struct MatchGroup {
    many: Vec<usize>,
    one: Vec<usize>,
}

/// Order in which Prometheus processes a step: streams of the many first, then unmatched streams of
/// the one.
type JoinOrder = (bool, usize);

/// Order of errors: step, phase within the step, stream.
type ErrorOrder = (usize, u8, usize);

struct JoinOutput {
    stream: Stream,
    order: JoinOrder,
    /// Group and step of the last occurrence.
    last_seen: Option<(usize, usize)>,
}

struct Join<'a> {
    binary: &'a BinaryOperation,
    /// Whether the one is on the left.
    is_swapped: bool,
    /// Whether the name removal of a `bool` comparison is delayed to the end; arithmetic drops
    /// names at once.
    is_delayed: bool,
    span: SourceSpan,
    many: &'a [Stream],
    one: &'a [Stream],
    /// Steps at which there can be a result.
    needed_steps: Vec<bool>,
    /// For each stream of the many, then each unmatched stream of the one: the last matched stream
    /// (its index plus 1; 0 for none) and the output of that pair.
    recent_outputs: Vec<Option<(usize, usize)>>,
    /// Output of each pair, for streams that matched several others.
    outputs_by_pair: HashMap<(usize, usize), usize>,
    results: Vec<JoinOutput>,
    by_labels: HashMap<LabelSet, usize>,
    /// Last warning of each step.
    warnings: Vec<Option<(JoinOrder, OperationWarning)>>,
    failure: Option<(ErrorOrder, Error)>,
}

/// Steps at which anything can match: a step at which one side is empty and has no fill value is
/// skipped.
fn needed_steps(
    binary: &BinaryOperation,
    many: &[Stream],
    one: &[Stream],
    steps: StepGrid,
) -> Vec<bool> {
    let present = |streams: &[Stream]| {
        let mut present = vec![false; steps.count];
        for stream in streams {
            for (present, point) in present.iter_mut().zip(&stream.points) {
                *present |= point.is_some();
            }
        }
        present
    };
    let is_filled = binary.matching.fill_left.is_some() || binary.matching.fill_right.is_some();
    let of = |(many, one)| if is_filled { many || one } else { many && one };
    present(many).into_iter().zip(present(one)).map(of).collect()
}

impl Join<'_> {
    fn group(&mut self, number: usize, group: &MatchGroup, budget: &QueryBudget<'_>) -> Result<()> {
        let (matching, many, one) = (&self.binary.matching, self.many, self.one);
        let (fill_many, fill_one) = (matching.fill_left, matching.fill_right);
        if group.many.is_empty() && fill_many.is_none() && group.one.len() < 2
            || group.one.is_empty() && fill_one.is_none()
        {
            return Ok(());
        }
        for step in 0..self.needed_steps.len() {
            if !self.needed_steps[step] {
                continue;
            }
            if self.failure.as_ref().is_some_and(|((failed, ..), _)| step > *failed) {
                break;
            }
            let mut present = group.one.iter().filter(|at| one[**at].points[step].is_some());
            let single = present.next().copied();
            if let (Some(first), Some(second)) = (single, present.next().copied()) {
                let error = self.ambiguous_error(first, second);
                self.fail((step, 0, second), error);
                continue;
            }
            let (mut is_matched, mut made) = (false, 0);
            for at in &group.many {
                let Some(value) = &many[*at].points[step] else { continue };
                let filled;
                let other = match (single, fill_one) {
                    (Some(at), _) => one[at].points[step].as_ref(),
                    (None, Some(fill)) => {
                        filled = StepValue::Number(fill);
                        Some(&filled)
                    }
                    (None, None) => break,
                };
                let Some(other) = other else { continue };
                let pair = MatchedPair { many: Some(*at), one: single, group: number, step };
                made += self.pair(&pair, value, other, &mut is_matched);
            }
            if let (Some(fill), Some(at), false) = (fill_many, single, is_matched)
                && let Some(value) = &one[at].points[step]
            {
                let pair = MatchedPair { many: None, one: single, group: number, step };
                made += self.pair(&pair, &StepValue::Number(fill), value, &mut is_matched);
            }
            budget.charge_samples(made)?;
        }
        Ok(())
    }

    /// Evaluates a pair; returns the sample count of the result.
    fn pair(
        &mut self,
        pair: &MatchedPair,
        many: &StepValue,
        one: &StepValue,
        is_matched: &mut bool,
    ) -> u64 {
        let binary = self.binary;
        let (left, right) = if self.is_swapped { (one, many) } else { (many, one) };
        let order = pair.order();
        let outcome = match element::apply(binary.operator, left, right) {
            Ok(outcome) => outcome,
            Err(warning) => {
                self.record_warning(pair.step, order, warning);
                return 0;
            }
        };
        if let Some(warning) = outcome.warning {
            self.record_warning(pair.step, order, warning);
        }
        let at = self.output(pair);
        let output = &mut self.results[at];
        let error_order = (pair.step, 1 + u8::from(order.0), order.1);
        let met = Some((pair.group, pair.step));
        if binary.matching.cardinality == MatchCardinality::OneToOne {
            if *is_matched {
                let error = self.error(
                    "multiple matches for labels: many-to-one matching must be explicit \
                     (group_left/group_right)",
                );
                self.fail(error_order, error);
                return 0;
            }
        } else if output.last_seen == met {
            let error = self
                .error("multiple matches for labels: grouping labels must ensure unique matches");
            self.fail(error_order, error);
            return 0;
        }
        *is_matched = true;
        output.last_seen = met;
        let value = match (binary.is_bool, outcome.holds) {
            (true, holds) => StepValue::Number(f64::from(holds)),
            (false, true) => outcome.value,
            (false, false) => return 0,
        };
        let point = &mut output.stream.points[pair.step];
        if point.is_some() {
            self.fail((pair.step, 3, 0), duplicate_labels_error(self.span));
            return 0;
        }
        let samples = value.samples();
        *point = Some(value);
        samples
    }

    /// Output index of a pair of streams.
    fn output(&mut self, pair: &MatchedPair) -> usize {
        let (slot, met) = (pair.slot(self.many.len()), pair.one.map_or(0, |at| at + 1));
        if let Some((recent, output)) = self.recent_outputs[slot]
            && recent == met
        {
            return output;
        }
        let output = match self.outputs_by_pair.get(&(slot, met)) {
            Some(output) => *output,
            None => {
                let output = self.new_output(pair);
                self.outputs_by_pair.insert((slot, met), output);
                output
            }
        };
        self.recent_outputs[slot] = Some((met, output));
        output
    }

    fn new_output(&mut self, pair: &MatchedPair) -> usize {
        let labels = self.labels(pair);
        let next = self.results.len();
        let at = *self.by_labels.entry(labels.clone()).or_insert(next);
        if at < next {
            let output = &mut self.results[at];
            output.order = output.order.min(pair.order());
            return at;
        }
        let mut stream = Stream::new(labels, vec![None; self.needed_steps.len()]);
        // A delayed name removal of the operands is discarded, as in Prometheus.
        stream.drops_name = self.binary.is_bool && self.is_delayed;
        self.results.push(JoinOutput { stream, order: pair.order(), last_seen: None });
        at
    }

    fn labels(&self, pair: &MatchedPair) -> LabelSet {
        let matching = &self.binary.matching;
        let labels =
            |streams: &[Stream], at: Option<usize>| at.map(|at| streams[at].labels.clone());
        let (many, one) = (labels(self.many, pair.many), labels(self.one, pair.one));
        // The fill value has the labels of the group.
        let group = |other: &Option<LabelSet>| {
            other.as_ref().map(|labels| signature(matching, labels)).unwrap_or_default()
        };
        let one = one.unwrap_or_else(|| group(&many));
        let mut result = many.unwrap_or_else(|| signature(matching, &one));
        if is_name_dropped(self.binary.operator) || self.binary.is_bool && !self.is_delayed {
            result = result.without_metadata();
        }
        if matching.cardinality == MatchCardinality::OneToOne {
            let named = |label: &str| matching.labels.iter().any(|name| name == label);
            result = result.filter(|label| named(label) == matching.on);
        }
        for label in &matching.include {
            result = result.with(label, one.get(label));
        }
        result
    }

    fn record_warning(&mut self, step: usize, order: JoinOrder, warning: OperationWarning) {
        let warnings = &mut self.warnings[step];
        if warnings.is_none_or(|(last, _)| last <= order) {
            *warnings = Some((order, warning));
        }
    }

    fn fail(&mut self, order: ErrorOrder, error: Error) {
        if self.failure.as_ref().is_none_or(|(earliest, _)| order < *earliest) {
            self.failure = Some((order, error));
        }
    }

    fn ambiguous_error(&self, first: usize, second: usize) -> Error {
        let group = format_labels(&signature(&self.binary.matching, &self.one[second].labels));
        let mut names = [first, second].map(|at| format_labels(&self.one[at].labels));
        names.sort_unstable();
        let ([first, second], side) = (names, if self.is_swapped { "left" } else { "right" });
        self.error(&format!(
            "found duplicate series for the match group {group} on the {side} hand-side of the \
             operation: [{first}, {second}];many-to-many matching not allowed: matching labels \
             must be unique on one side"
        ))
    }

    fn error(&self, message: &str) -> Error {
        Error::Execution { span: self.span, message: message.to_owned() }
    }
}

/// Two streams matched at a step; `None` for a fill value.
struct MatchedPair {
    many: Option<usize>,
    one: Option<usize>,
    group: usize,
    step: usize,
}

impl MatchedPair {
    fn order(&self) -> JoinOrder {
        match (self.many, self.one) {
            (Some(at), _) => (false, at),
            (None, at) => (true, at.unwrap_or(0)),
        }
    }

    fn slot(&self, many: usize) -> usize {
        match self.order() {
            (false, at) => at,
            (true, at) => many + at,
        }
    }
}

/// Labels as Prometheus formats them in errors, including the name.
fn format_labels(labels: &LabelSet) -> String {
    let pair = |(label, value): (&str, &str)| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_plain = !label.starts_with(|c: char| c.is_ascii_digit()) && label.chars().all(plain);
        if is_plain { format!("{label}={value:?}") } else { format!("{label:?}={value:?}") }
    };
    format!("{{{}}}", labels.iter().map(pair).collect::<Vec<_>>().join(", "))
}
