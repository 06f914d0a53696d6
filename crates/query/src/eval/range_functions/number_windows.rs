//! Range functions of very many series of numbers, whose labels are not read: a series is a slice
//! of samples, and its values are added to those of its group.

use std::sync::OnceLock;

use crate::error::{Result, SourceSpan};
use crate::eval::Evaluation;
use crate::plan::{RangeExtension, RangeFunctionCall};
use crate::source::{GroupedRow, NumberGroups};
use crate::stream::StepGrid;
use crate::value::{StepValue, is_stale};

use super::series_warnings::SeriesWarnings;
use super::window::{SeriesSamples, TimedPoint};
use super::{RangeFunctionEval, RangeKernel, WindowFn, check_counter_name};

/// Takes the values of a series at all steps.
pub(crate) type ValueVisitor<'a> =
    dyn FnMut(&GroupedRow<'_>, &mut Vec<Option<StepValue>>) -> Result<()> + 'a;

impl RangeKernel {
    /// Whether only the times and values of numbers matter.
    pub(crate) fn is_of_numbers(&self) -> bool {
        matches!(self.work, WindowFn::Window(_) | WindowFn::Growth(_))
    }

    /// Whether the metric name still describes the result.
    pub(crate) fn keeps_name(&self) -> bool {
        self.keeps_name
    }
}

impl Evaluation<'_> {
    /// Passes the values of a range function of each series to `take`.
    pub(crate) fn each_number_window(
        &mut self,
        (over, kernel, span): (&RangeFunctionCall, &RangeKernel, SourceSpan),
        steps: StepGrid,
        groups: &dyn NumberGroups,
        rows_max: u64,
        take: &mut ValueVisitor<'_>,
    ) -> Result<()> {
        let mut numbers = Vec::with_capacity(over.args.len());
        for arg in &over.args {
            numbers.push(self.scalar(arg, steps)?);
        }
        let apply = RangeFunctionEval {
            call: over,
            kernel,
            span,
            steps,
            numbers,
            reported_name: OnceLock::new(),
            lookback: self.settings.lookback,
        };
        let keeps_starts = kernel.uses_starts && self.settings.start_timestamps;
        let types = self.settings.type_and_unit_labels;
        let mut samples = SeriesSamples::default();
        let mut points = Vec::with_capacity(steps.count);
        let labels = groups.labels();
        let gaps = groups.each(rows_max, &mut |row| {
            fill_floats(&mut samples, &row, keeps_starts);
            if samples.floats.is_empty() {
                return Ok(());
            }
            let mut warnings = SeriesWarnings::default();
            apply.points(self, &samples, &mut warnings, &mut points)?;
            let labels = &labels[row.group];
            if kernel.is_for_counters && apply.reported_name.get().is_none() {
                let warning = check_counter_name(labels, &points, types);
                if warning.is_some() {
                    // All series have the same name.
                    apply.reported_name.get_or_init(|| labels.name().to_owned());
                }
                warnings.extend(warning);
            }
            warnings.emit(labels.name(), over.first_span(), &mut self.warnings);
            take(&row, &mut points)
        })?;
        self.gaps.extend(gaps);
        Ok(())
    }
}

/// Samples of a series as a range function has them: of those with the same time, the last value
/// and the first start. Staleness markers are left out.
fn fill_floats(samples: &mut SeriesSamples, row: &GroupedRow<'_>, keeps_starts: bool) {
    let floats = &mut samples.floats;
    floats.clear();
    for sample in row.rows {
        match floats.last_mut() {
            Some(held) if held.time == sample.end => held.value = sample.value,
            _ => {
                let start = if keeps_starts { sample.start.min(sample.end) } else { sample.end };
                floats.push(TimedPoint { start, time: sample.end, value: sample.value });
            }
        }
    }
    floats.retain(|point| !is_stale(point.value));
}

/// Whether a range function is read so.
pub(crate) fn is_plain(call: &RangeFunctionCall, kernel: &RangeKernel) -> bool {
    kernel.is_of_numbers() && call.input.extension() == RangeExtension::None
}
