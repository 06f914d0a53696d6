//! Aggregations: `sum by (…)` and the others.

mod count_values;
mod fold;
mod hash;
mod heap;
mod mean;
mod number_groups;
mod pick;
mod sum;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;

use crate::error::{Error, Result, SourceSpan};
use crate::eval::Evaluation;
use crate::labels::LabelSet;
use crate::plan::{Aggregation, Grouping, PlanOp, RangeExtension};
use crate::promql::AggregateOp;
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

/// Streams of a group.
struct AggregateGroup {
    labels: LabelSet,
    members: Vec<Stream>,
}

impl Evaluation<'_> {
    pub(crate) fn aggregate(
        &mut self,
        aggregate: &Aggregation,
        span: SourceSpan,
        steps: StepGrid,
    ) -> Result<Vec<Stream>> {
        if aggregate.op == AggregateOp::CountValues {
            return self.count_values(aggregate, span, steps);
        }
        let params = match &aggregate.param {
            Some(node) => AggregateParam { numbers: self.scalar(node, steps)?, span: node.span },
            None => AggregateParam { numbers: Vec::new(), span },
        };
        match aggregate.op {
            AggregateOp::TopK
            | AggregateOp::BottomK
            | AggregateOp::LimitK
            | AggregateOp::LimitRatio => {
                let streams = self.streams(&aggregate.input, steps)?;
                self.pick(aggregate, &params, streams, span)
            }
            AggregateOp::Quantile => self.quantiles(aggregate, &params, steps),
            AggregateOp::Count | AggregateOp::Group
                if matches!(aggregate.input.op, PlanOp::Latest(_)) =>
            {
                if let Some(streams) = self.count_unread(aggregate, steps)? {
                    return Ok(streams);
                }
                self.keeps_units_apart = true;
                let streams = self.fold(aggregate, steps);
                self.keeps_units_apart = false;
                streams
            }
            _ => self.fold(aggregate, steps),
        }
    }
}

impl Evaluation<'_> {
    /// Number of selected series with a value at a single step, or 1, without reading their labels;
    /// `None` if these are needed.
    fn count_unread(
        &mut self,
        aggregate: &Aggregation,
        steps: StepGrid,
    ) -> Result<Option<Vec<Stream>>> {
        let PlanOp::Latest(fetch) = &aggregate.input.op else { return Ok(None) };
        let Grouping { is_without, labels } = &aggregate.grouping;
        let is_one_group = !is_without && labels.is_empty();
        if !steps.is_instant() || !is_one_group || fetch.extension != RangeExtension::None {
            return Ok(None);
        }
        let time = fetch.shift.apply(steps.start);
        let range = time.saturating_sub(self.settings.lookback)..time;
        let Some(count) = self.source.count_fresh(&fetch.selector, &range)? else {
            return Ok(None);
        };
        self.budget.check_series(usize::try_from(count.selected).unwrap_or(usize::MAX))?;
        if count.fresh == 0 {
            return Ok(Some(Vec::new()));
        }
        let value = match aggregate.op {
            AggregateOp::Group => 1.0,
            _ => count.fresh as f64,
        };
        self.budget.charge_samples(1)?;
        let points = vec![Some(StepValue::Number(value))];
        Ok(Some(vec![Stream::new(LabelSet::default(), points)]))
    }
}

/// Parameter of an aggregation at each step.
struct AggregateParam {
    numbers: Vec<f64>,
    span: SourceSpan,
}

impl AggregateParam {
    fn has_nan(&self) -> bool {
        self.numbers.iter().any(|number| number.is_nan())
    }

    /// Maximum; NaN if any value is NaN.
    fn max(&self) -> f64 {
        self.min_of(|number| -number).map_or(f64::NAN, |least| -least)
    }

    /// Minimum; NaN if any value is NaN.
    fn min(&self) -> f64 {
        self.min_of(|number| number).unwrap_or(f64::NAN)
    }

    /// The least result of a function; `None` if any value is NaN.
    fn min_of(&self, function: impl Fn(f64) -> f64) -> Option<f64> {
        let results = self.numbers.iter().map(|number| function(*number));
        (!self.has_nan()).then(|| results.fold(f64::INFINITY, f64::min))
    }
}

/// Groups in the order of their first streams.
fn group_streams(grouping: &Grouping, streams: Vec<Stream>) -> Vec<AggregateGroup> {
    let mut groups: Vec<AggregateGroup> = Vec::new();
    let mut known: HashMap<LabelSet, usize> = HashMap::new();
    for stream in streams {
        let labels = grouping.group_labels(&stream.labels);
        let at = *known.entry(labels).or_insert_with_key(|labels| {
            groups.push(AggregateGroup { labels: labels.clone(), members: Vec::new() });
            groups.len() - 1
        });
        groups[at].members.push(stream);
    }
    groups
}

fn execution_error<T>(span: SourceSpan, message: String) -> Result<T> {
    Err(Error::Execution { span, message })
}
