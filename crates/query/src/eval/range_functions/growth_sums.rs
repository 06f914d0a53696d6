//! Sums of the growth of several series: `sum by (…) (increase(…))` of cumulative histograms whose
//! increments are stored.
//!
//! Window by window, the counts of a series are added to those of its group. Series are summed in
//! packs of a fixed size, and packs in their order, so the result does not depend on threads.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use model::SeriesKind;

use crate::error::Result;
use crate::eval::Evaluation;
use crate::histogram::{DenseSum, SchemeConversion};
use crate::labels::LabelSet;
use crate::limits::SAMPLE_BYTES;
use crate::plan::{Grouping, RangeExtension, SeriesFetch};
use crate::source::SeriesHandle;
use crate::stream::Stream;

use super::{RangeFunctionEval, WindowFn};

/// Series that are summed before their sums are added to those of other series.
pub(super) const PACK_SERIES: usize = 16;

/// Results of some series: streams, or sums of all of them.
pub(crate) enum SeriesBatch {
    Streams(Vec<Stream>),
    Sums(GrowthSums),
}

/// Sums by group.
#[derive(Default)]
pub(crate) struct GrowthSums {
    pub(crate) groups: Vec<GrowthSum>,
    /// Labels of the series that have a value.
    pub(super) series: Vec<LabelSet>,
}

/// Growth of the series of a group.
pub(crate) struct GrowthSum {
    pub(crate) labels: LabelSet,
    /// Metric name of the series, unless it was dropped.
    pub(crate) metric: String,
    pub(crate) drops_name: bool,
    pub(crate) conversion: Arc<SchemeConversion>,
    /// Sum at each step, once there is a value.
    pub(crate) steps: Vec<Option<DenseSum>>,
}

impl GrowthSums {
    /// Sample count towards limits.
    pub(crate) fn samples(&self) -> u64 {
        let sums = self.groups.iter().flat_map(|group| group.steps.iter().flatten());
        sums.map(DenseSum::samples).sum()
    }
}

/// Labels of a series, and the handles to read it.
pub(super) type SeriesHandles = (LabelSet, Vec<SeriesHandle>);

impl RangeFunctionEval<'_> {
    /// Whether sums of series may be possible.
    pub(super) fn is_summable(&self) -> bool {
        matches!(self.kernel.work, WindowFn::Growth(growth) if growth.is_counter)
            && self.call.input.extension() == RangeExtension::None
            && !self.has_fixed_window()
    }

    /// Sums of a pack of series, or their streams if they cannot be summed here.
    pub(super) fn pack(
        &self,
        evaluation: &mut Evaluation<'_>,
        pack: &[SeriesHandles],
        fetch: &SeriesFetch,
        range: &Range<i64>,
        (grouping, retained): (&Grouping, &AtomicUsize),
    ) -> Result<SeriesBatch> {
        let stream = |evaluation: &mut Evaluation<'_>, (labels, handles): &SeriesHandles| {
            let series = (labels.clone(), handles.as_slice());
            self.series(evaluation, series, fetch, range, retained)
        };
        let mut sums = GrowthSums::default();
        let mut charged = 0;
        let mut is_summed = true;
        for series in pack {
            is_summed = match self.add_series(evaluation, series, range, grouping, &mut sums)? {
                Some(is_summed) => is_summed,
                // Many series may have no sample in the range.
                None => {
                    let found = stream(evaluation, series)?;
                    evaluation.release(found.as_slice());
                    found.is_none()
                }
            };
            let more = sums.samples().saturating_sub(charged);
            evaluation.budget.charge_samples(more)?;
            charged += more;
            if !is_summed {
                break;
            }
        }
        if is_summed {
            return Ok(SeriesBatch::Sums(sums));
        }
        evaluation.budget.release_samples(charged);
        let mut streams = Vec::with_capacity(pack.len());
        for series in pack {
            streams.extend(stream(evaluation, series)?);
        }
        Ok(SeriesBatch::Streams(streams))
    }

    /// Adds a series; false if it cannot be summed, `None` if it is of histograms without
    /// increments.
    fn add_series(
        &self,
        evaluation: &mut Evaluation<'_>,
        (labels, handles): &SeriesHandles,
        range: &Range<i64>,
        grouping: &Grouping,
        sums: &mut GrowthSums,
    ) -> Result<Option<bool>> {
        let WindowFn::Growth(growth) = self.kernel.work else { return Ok(Some(false)) };
        let Some(increments) = self.increments(evaluation, handles, range, growth)? else {
            let is_histogram =
                |handle: &SeriesHandle| matches!(handle.kind, SeriesKind::Histogram(_));
            return Ok(if handles.iter().all(is_histogram) { None } else { Some(false) });
        };
        let mut stream = Stream::new(labels.clone(), Vec::new());
        evaluation.drop_name(&mut stream);
        let group_labels = grouping.group_labels(&stream.labels);
        let conversion = SchemeConversion::new(increments.scheme(), increments.zero_threshold());
        let at = match sums.groups.iter().position(|group| group.labels == group_labels) {
            Some(at) => at,
            None => {
                sums.groups.push(GrowthSum {
                    labels: group_labels,
                    metric: stream.labels.name().to_owned(),
                    drops_name: false,
                    conversion: Arc::new(conversion.clone()),
                    steps: vec![None; self.steps.count],
                });
                sums.groups.len() - 1
            }
        };
        let group = &mut sums.groups[at];
        if *group.conversion != conversion || group.metric != stream.labels.name() {
            return Ok(Some(false));
        }
        let held = increments.held_bytes() as u64 / SAMPLE_BYTES;
        evaluation.budget.charge_samples(held)?;
        let mut has_values = false;
        let is_supported =
            self.each_growth(evaluation, &increments, growth, &mut |at, window| {
                has_values = true;
                window.add_to(group.steps[at].get_or_insert_default())
            })?;
        evaluation.budget.release_samples(held);
        if has_values {
            group.drops_name |= stream.drops_name;
            sums.series.push(stream.labels);
        } else if group.steps.iter().all(Option::is_none) {
            // Groups are in the order of their first values.
            sums.groups.remove(at);
        }
        Ok(Some(is_supported))
    }
}
