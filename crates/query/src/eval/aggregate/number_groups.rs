//! `sum`, `avg`, `count` and `group` of very many series of numbers: only the labels by which they
//! are grouped are read. The results are those of other aggregations, except that the series of a
//! group are added in another order, which the compensated sums hide but for the last bit. If a sum
//! could overflow in some order, the series are read again, in that of other aggregations.

use std::ops::Range;

use crate::error::{Result, SourceSpan};
use crate::eval::Evaluation;
use crate::eval::range_functions::{RangeKernel, ValueVisitor, is_plain};
use crate::eval::series::{AHEAD_RANGE_MAX, AHEAD_SAMPLES, AHEAD_SERIES_MIN};
use crate::plan::{
    Aggregation, Grouping, PlanOp, RangeExtension, RangeFunctionCall, RangeSource, SeriesFetch,
};
use crate::promql::{self, AggregateOp, PromqlKernel};
use crate::source::{GroupedRow, NumberGroups};
use crate::stream::{StepGrid, Stream};
use crate::value::{StepValue, is_stale};

use super::fold::GroupAggregator;

/// What is aggregated.
enum NumberInput<'p> {
    /// The latest sample at each step.
    Latest,
    /// A range function.
    Windows(&'p RangeFunctionCall, &'static RangeKernel, SourceSpan),
}

impl<'p> NumberInput<'p> {
    fn of(aggregate: &'p Aggregation) -> Option<(NumberInput<'p>, &'p SeriesFetch)> {
        let input = &aggregate.input;
        match &input.op {
            PlanOp::Latest(fetch) => Some((NumberInput::Latest, fetch)),
            PlanOp::RangeFunction(call) => {
                let PromqlKernel::Range(kernel) = promql::kernel(call.function) else {
                    return None;
                };
                let RangeSource::Series(fetch) = &call.input.source else { return None };
                let is_read = is_plain(call, kernel);
                is_read.then_some((NumberInput::Windows(call, kernel, input.span), fetch))
            }
            _ => None,
        }
    }
}

impl Evaluation<'_> {
    /// Adds the values of the series of numbers that an aggregation is of to its groups. If these
    /// are others or few, or their order matters, it is false, and the groups are of no use.
    pub(super) fn fold_numbers(
        &mut self,
        aggregate: &Aggregation,
        steps: StepGrid,
        folded: &mut dyn GroupAggregator,
    ) -> Result<bool> {
        let is_folded = matches!(
            aggregate.op,
            AggregateOp::Sum | AggregateOp::Avg | AggregateOp::Count | AggregateOp::Group
        );
        if !is_folded || self.settings.type_and_unit_labels || steps.count == 0 {
            return Ok(false);
        }
        let Some((input, fetch)) = NumberInput::of(aggregate) else { return Ok(false) };
        if fetch.extension != RangeExtension::None {
            return Ok(false);
        }
        let range = self.number_range(&input, fetch, steps);
        if range.end.saturating_sub(range.start) > AHEAD_RANGE_MAX {
            return Ok(false);
        }
        let Grouping { is_without, labels: names } = &aggregate.grouping;
        let keeps = |label: &[u8]| names.iter().any(|name| name.as_bytes() == label) != *is_without;
        let source = self.source;
        let series_min = AHEAD_SERIES_MIN as u64;
        let found = source.number_groups(&fetch.selector, &range, series_min, &keeps)?;
        let Some(found) = found else { return Ok(false) };
        for hint in source.take_hints() {
            self.warnings.warn(fetch.span, hint);
        }
        self.budget.check_series(found.series())?;
        self.budget.check_capacity(found.labels().len(), steps.count)?;
        let mut group_of = Vec::with_capacity(found.labels().len());
        for labels in found.labels() {
            let mut stream = Stream::new(labels.clone(), Vec::new());
            if let NumberInput::Windows(_, kernel, _) = input
                && !kernel.keeps_name()
            {
                self.drop_name(&mut stream);
            }
            let labels = aggregate.grouping.group_labels(&stream.labels);
            group_of.push((folded.group_at(labels, steps), stream));
        }
        let mut has_value = vec![false; found.series()];
        let is_summed = matches!(aggregate.op, AggregateOp::Sum | AggregateOp::Avg);
        let (mut largest, gaps_before) = (0.0_f64, self.gaps.len());
        let take = &mut |row: &GroupedRow<'_>, points: &mut Vec<Option<StepValue>>| {
            has_value[row.series] |= points.iter().any(Option::is_some);
            if is_summed {
                largest = points.iter().flatten().map(finite_magnitude).fold(largest, f64::max);
            }
            let (group, stream) = &group_of[row.group];
            folded.push_at(*group, (stream.drops_name, stream.labels.name()), points);
            Ok(())
        };
        match input {
            NumberInput::Latest => self.each_latest(fetch, steps, &*found, take)?,
            NumberInput::Windows(call, kernel, span) => {
                let call = (call, kernel, span);
                self.each_number_window(call, steps, &*found, AHEAD_SAMPLES, take)?;
            }
        }
        // Twice, because the sums are rounded.
        if (2.0 * largest * found.series() as f64).is_infinite() {
            self.gaps.truncate(gaps_before);
            return Ok(false);
        }
        let order = found.order(&|series| has_value[series]);
        folded.set_order(&order.into_iter().map(|group| group_of[group].0).collect::<Vec<_>>());
        folded.charge_all(self, steps)?;
        Ok(true)
    }

    fn number_range(
        &self,
        input: &NumberInput<'_>,
        fetch: &SeriesFetch,
        steps: StepGrid,
    ) -> Range<i64> {
        let lookback = self.settings.lookback;
        match input {
            NumberInput::Latest => {
                let start = fetch.shift.apply(steps.start).saturating_sub(lookback);
                start..fetch.shift.apply(steps.end())
            }
            NumberInput::Windows(call, ..) => call.input.samples_range(fetch, steps, lookback),
        }
    }

    /// Passes the latest sample of each series at each step to `take`.
    fn each_latest(
        &mut self,
        fetch: &SeriesFetch,
        steps: StepGrid,
        found: &dyn NumberGroups,
        take: &mut ValueVisitor<'_>,
    ) -> Result<()> {
        let lookback = self.settings.lookback;
        let mut points: Vec<Option<StepValue>> = Vec::with_capacity(steps.count);
        let gaps = found.each(AHEAD_SAMPLES, &mut |row| {
            if row.series.is_multiple_of(SERIES_UNCHECKED) {
                self.budget.check_deadline()?;
            }
            points.clear();
            let mut passed = 0;
            for step in steps.times() {
                let timestamp = fetch.shift.apply(step);
                let more = row.rows[passed..].iter().take_while(|sample| sample.end <= timestamp);
                passed += more.count();
                let latest = row.rows[..passed].last().filter(|sample| {
                    sample.end > timestamp.saturating_sub(lookback) && !is_stale(sample.value)
                });
                points.push(latest.map(|sample| StepValue::Number(sample.value)));
            }
            take(&row, &mut points)
        })?;
        self.gaps.extend(gaps);
        Ok(())
    }
}

/// Distance of a number and its finite bounds from 0.
fn finite_magnitude(value: &StepValue) -> f64 {
    let bounds = value.bracket().map_or([0.0; 3], |of| [of.lower, of.estimate, of.upper]);
    bounds.into_iter().filter(|end| end.is_finite()).fold(0.0, |most, end| most.max(end.abs()))
}

/// Series between two checks of the deadline.
const SERIES_UNCHECKED: usize = 1024;
