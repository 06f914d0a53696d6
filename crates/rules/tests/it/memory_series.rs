//! Gauges in memory, as a source of the query engine.

use std::collections::BTreeMap;
use std::ops::Range;

use hist::Mixture;
use model::{Selector, Series, SeriesKind};
use query::{ColumnRead, LabelSet, NAME, SeriesHandle, SeriesPoint, Source, StepValue};
use store::{NumberSummary, TimeGrid};

/// Series with their samples by time.
#[derive(Default)]
pub(crate) struct MemorySeries(BTreeMap<LabelSet, BTreeMap<i64, StepValue>>);

impl MemorySeries {
    pub(crate) fn push(&mut self, labels: &LabelSet, time_ns: i64, value: StepValue) {
        self.0.entry(labels.clone()).or_default().insert(time_ns, value);
    }
}

impl Source for MemorySeries {
    fn select(&self, selector: &Selector) -> query::Result<Vec<SeriesHandle>> {
        let series = |labels: &LabelSet| {
            Series::new(labels.name(), SeriesKind::Gauge)
                .with_labels(labels.iter().filter(|(name, _)| *name != NAME))
        };
        let matching =
            self.0.keys().enumerate().filter(|(_, labels)| selector.matches(&series(labels)));
        let handle = |(key, labels): (usize, &LabelSet)| SeriesHandle {
            labels: labels.clone(),
            kind: SeriesKind::Gauge,
            unit: String::new(),
            key,
        };
        Ok(matching.map(handle).collect())
    }

    fn samples(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> query::Result<ColumnRead<SeriesPoint>> {
        let samples = self.0[&series.labels].range(range.start + 1..=range.end);
        let point = |(&time, value): (&i64, &StepValue)| SeriesPoint {
            start: None,
            time,
            value: value.clone(),
        };
        Ok(ColumnRead { values: samples.map(point).collect(), gaps: Vec::new() })
    }

    fn histograms(&self, _: &[&SeriesHandle], _: TimeGrid) -> query::Result<ColumnRead<Mixture>> {
        panic!("BUG: gauges have no distributions")
    }

    fn numbers(
        &self,
        _: &[&SeriesHandle],
        _: TimeGrid,
    ) -> query::Result<ColumnRead<Option<NumberSummary>>> {
        panic!("BUG: PromQL reads samples of gauges")
    }
}
