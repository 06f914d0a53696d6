//! `count_values`: number of streams of a group with the same value, one result for each value.

use std::collections::HashMap;

use crate::error::{Result, SourceSpan};
use crate::eval::Evaluation;
use crate::histogram::GoPlainNumber;
use crate::labels::{LabelSet, NAME};
use crate::plan::{Aggregation, PlanOp};
use crate::promql;
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

use super::execution_error;

impl Evaluation<'_> {
    pub(super) fn count_values(
        &mut self,
        aggregate: &Aggregation,
        span: SourceSpan,
        steps: StepGrid,
    ) -> Result<Vec<Stream>> {
        let Some(PlanOp::Text(label)) = aggregate.param.as_ref().map(|param| &param.op) else {
            panic!("BUG: count_values has a label");
        };
        if !promql::is_label_name(label) {
            return execution_error(span, format!("invalid label name {label:?}"));
        }
        let grouping = &aggregate.grouping;
        let is_shown = !grouping.is_without || label != NAME && !grouping.names(label);
        let streams = self.streams(&aggregate.input, steps)?;
        let mut results: Vec<Stream> = Vec::new();
        let mut known: HashMap<LabelSet, usize> = HashMap::new();
        for stream in &streams {
            let group = grouping.group_labels(&stream.labels).with(label, "");
            // Values often stay the same over several steps.
            let mut recent: Option<(&StepValue, usize)> = None;
            let mut made = 0;
            for (step, value) in stream.points.iter().enumerate() {
                let Some(value) = value else { continue };
                let at = match recent {
                    Some((held, at)) if is_same_value(held, value) => at,
                    _ => {
                        let labels = match is_shown {
                            true => group.with(label, &label_text(value)),
                            false => group.clone(),
                        };
                        let next = results.len();
                        let at = *known.entry(labels.clone()).or_insert(next);
                        if at == next {
                            // Each new value allocates points for all steps.
                            self.budget.check_capacity(next + 1, steps.count)?;
                            results.push(Stream::new(labels, vec![None; steps.count]));
                        }
                        at
                    }
                };
                recent = Some((value, at));
                let point = &mut results[at].points[step];
                let count = match point {
                    Some(count) => count.number().unwrap_or(0.0),
                    None => {
                        made += 1;
                        0.0
                    }
                };
                *point = Some(StepValue::Number(count + 1.0));
            }
            self.budget.charge_samples(made)?;
        }
        self.release(&streams);
        Ok(results)
    }
}

/// Whether both have the same label text, by a cheap test: 0 and -0 differ.
fn is_same_value(a: &StepValue, b: &StepValue) -> bool {
    matches!((a, b), (StepValue::Number(a), StepValue::Number(b)) if a.to_bits() == b.to_bits())
}

/// Value as Prometheus formats it in a label.
fn label_text(value: &StepValue) -> String {
    match (value.number(), value.histogram()) {
        (Some(number), _) => GoPlainNumber(number).to_string(),
        (None, Some(histogram)) => histogram.to_string(),
        (None, None) => String::new(),
    }
}
