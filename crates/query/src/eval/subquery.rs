//! Subqueries: values of an expression at its own steps, as samples.

use std::sync::Arc;

use crate::error::Result;
use crate::eval::Evaluation;
use crate::eval::select::MapSamples;
use crate::histogram::ResetHint;
use crate::plan::{RangeSelection, RangeSource};
use crate::stream::{SeriesPoint, SeriesPoints, StepGrid};
use crate::value::StepValue;

impl Evaluation<'_> {
    pub(crate) fn map_subquery<T>(
        &mut self,
        ranged: &RangeSelection,
        steps: StepGrid,
        map: &MapSamples<'_, T>,
    ) -> Result<Vec<T>> {
        let RangeSource::Subquery { inner, step, shift } = &ranged.source else {
            panic!("BUG: not a subquery");
        };
        let step = step.unwrap_or(self.settings.subquery_step);
        let first = shift.apply(steps.start).saturating_sub(ranged.range);
        let end = shift.apply(steps.end());
        // First multiple of the step after the start of the first window.
        let start = (first.div_euclid(step) + 1).saturating_mul(step);
        let sub_steps = StepGrid::covering(start, end, step);
        // Points for all steps are allocated before any value is known to exist.
        self.budget.charge_samples(sub_steps.count as u64)?;
        self.budget.release_samples(sub_steps.count as u64);
        let mut mapped = Vec::new();
        let is_range = sub_steps.is_instant() && sub_steps.start != end;
        let before = std::mem::replace(&mut self.is_range_of_one_step, is_range);
        let streams = self.streams(inner, sub_steps);
        self.is_range_of_one_step = before;
        for stream in streams? {
            let sample_count = stream.samples();
            let values = stream.points.into_iter().enumerate();
            let samples = values.filter_map(|(at, point)| {
                let (time, value) = (sub_steps.time(at), without_hint(point?));
                Some(SeriesPoint { start: None, time, value })
            });
            let samples = SeriesPoints {
                labels: stream.labels,
                drops_name: stream.drops_name,
                points: samples.collect(),
                is_running_total: false,
            };
            mapped.extend(map(self, samples)?);
            self.budget.release_samples(sample_count);
        }
        Ok(mapped)
    }
}

/// A reset hint is about successive raw samples. The subquery selects others, or one of them twice,
/// so resets must be detected again.
fn without_hint(value: StepValue) -> StepValue {
    match value {
        StepValue::Histogram(histogram)
            if matches!(histogram.hint, ResetHint::Reset | ResetHint::NotReset) =>
        {
            let mut histogram = Arc::unwrap_or_clone(histogram);
            histogram.hint = ResetHint::Unknown;
            StepValue::Histogram(Arc::new(histogram))
        }
        other => other,
    }
}
