//! Source in memory: series with samples, as a script loads them.
//!
//! Histograms keep only the reset information that a chunk of Prometheus' storage keeps: each but
//! the first of a chunk had no reset, gauges stay gauges, and for the others nothing is known.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hist::Mixture;
use model::{Selector, Series, SeriesKind};
use query::{
    FloatHistogram, LabelSet, NAME, ResetHint, Result, SeriesHandle, SeriesPoint, Source,
    SourceRead, StepValue, is_stale,
};
use store::{NumberAggregate, TimeGrid};

use crate::script::LoadCommand;

/// All series of a script.
#[derive(Default)]
pub(crate) struct ScriptSource {
    series: Vec<ScriptSeries>,
    indexes: BTreeMap<LabelSet, usize>,
}

struct ScriptSeries {
    labels: LabelSet,
    series: Series,
    /// Samples as loaded.
    loaded: Vec<SeriesPoint>,
    /// Samples as read.
    samples: Vec<SeriesPoint>,
}

impl ScriptSource {
    /// Adds the series of a `load` command.
    pub(crate) fn load(&mut self, load: &LoadCommand) -> Result<(), String> {
        for loaded in &load.series {
            let mut samples = Vec::with_capacity(loaded.values.len());
            for (at, item) in loaded.values.iter().enumerate() {
                let Some(written) = item else { continue };
                let time = load.step * at as i64;
                let start = loaded.starts.get(at).copied().flatten().map(|offset| time + offset);
                // Prometheus encodes an unknown start as timestamp 0.
                let start = start.filter(|&start| start != 0);
                samples.push(SeriesPoint { start, time, value: written.value.clone() });
            }
            self.add(&loaded.labels, samples)?;
        }
        Ok(())
    }

    /// Adds samples to a series.
    pub(crate) fn add(
        &mut self,
        labels: &LabelSet,
        samples: Vec<SeriesPoint>,
    ) -> Result<(), String> {
        let at = match self.indexes.get(labels) {
            Some(&at) => at,
            None => {
                let series = series_of(labels)?;
                self.indexes.insert(labels.clone(), self.series.len());
                let (loaded, samples) = (Vec::new(), Vec::new());
                self.series.push(ScriptSeries { labels: labels.clone(), series, loaded, samples });
                self.series.len() - 1
            }
        };
        let held = &mut self.series[at];
        held.loaded.extend(samples);
        held.loaded.sort_by_key(|sample| sample.time);
        held.loaded.dedup_by_key(|sample| sample.time);
        held.samples = held.loaded.clone();
        hint(&mut held.samples);
        Ok(())
    }
}

fn series_of(labels: &LabelSet) -> Result<Series, String> {
    let mut series = Series::new(labels.name(), SeriesKind::Gauge);
    for (name, value) in labels.iter().filter(|(name, _)| *name != NAME) {
        series = series.with_label(name, value);
    }
    Ok(series)
}

/// Sets the reset hint of each histogram.
fn hint(samples: &mut [SeriesPoint]) {
    let mut before: Option<Arc<FloatHistogram>> = None;
    for sample in samples {
        let StepValue::Histogram(histogram) = &mut sample.value else {
            // A staleness marker is part of the chunk and ends it; any other float is not part of
            // it.
            before = None;
            continue;
        };
        let goes_on = before.as_ref().is_some_and(|before| continues(before, histogram));
        before = Some(Arc::clone(histogram));
        let known = match histogram.hint {
            ResetHint::Gauge => ResetHint::Gauge,
            _ if goes_on => ResetHint::NotReset,
            _ => ResetHint::Unknown,
        };
        Arc::make_mut(histogram).hint = known;
    }
}

/// Whether a histogram fits into the chunk of the previous one.
fn continues(before: &FloatHistogram, histogram: &FloatHistogram) -> bool {
    let covers = |old: &[(i32, f64)], new: &[(i32, f64)]| {
        old.iter().all(|&(index, count)| {
            let at = new.binary_search_by_key(&index, |&(index, _)| index);
            at.is_ok_and(|at| new[at].1 >= count)
        })
    };
    !matches!(histogram.hint, ResetHint::Gauge | ResetHint::Reset)
        && before.hint != ResetHint::Gauge
        && !is_stale(before.sum)
        && histogram.count >= before.count
        && histogram.grid == before.grid
        && histogram.zero_threshold == before.zero_threshold
        && histogram.zero_count >= before.zero_count
        && covers(&before.positive, &histogram.positive)
        && covers(&before.negative, &histogram.negative)
}

impl Source for ScriptSource {
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>> {
        let picked =
            self.series.iter().enumerate().filter(|(_, held)| selector.matches(&held.series));
        let handle = |(key, held): (usize, &ScriptSeries)| SeriesHandle {
            labels: held.labels.clone(),
            kind: held.series.kind(),
            unit: String::new(),
            key,
        };
        Ok(picked.map(handle).collect())
    }

    fn samples(&self, series: &SeriesHandle, range: Range<i64>) -> Result<SourceRead<SeriesPoint>> {
        let samples = &self.series[series.key].samples;
        let from = samples.partition_point(|sample| sample.time <= range.start);
        let to = samples.partition_point(|sample| sample.time <= range.end).max(from);
        Ok(SourceRead { values: samples[from..to].to_vec(), gaps: Vec::new() })
    }

    fn histograms(&self, _: &[&SeriesHandle], grid: TimeGrid) -> Result<SourceRead<Mixture>> {
        // All series are gauges, which have no distributions.
        let values = (0..grid.columns).map(|_| Mixture::default()).collect();
        Ok(SourceRead { values, gaps: Vec::new() })
    }

    fn numbers(
        &self,
        _: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<SourceRead<Option<NumberAggregate>>> {
        Ok(SourceRead { values: (0..grid.columns).map(|_| None).collect(), gaps: Vec::new() })
    }
}
