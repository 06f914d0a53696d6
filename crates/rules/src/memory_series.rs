//! Gauges in memory, as a source of the query engine.

use std::collections::BTreeMap;
use std::ops::Range;

use hist::Mixture;
use model::{Selector, Series, SeriesKind};
use query::{ColumnRead, LabelSet, NAME, SeriesHandle, SeriesPoint, Source, StepValue};
use store::{NumberAggregate, TimeGrid};

/// Series with their samples by time.
#[derive(Default)]
pub struct MemorySeries(BTreeMap<LabelSet, BTreeMap<i64, StepValue>>);

impl MemorySeries {
    /// Adds a sample, in place of one at the same time.
    pub fn push(&mut self, labels: &LabelSet, time_ns: i64, value: StepValue) {
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
        let samples = self.0.get(&series.labels).into_iter().flat_map(|held| {
            let after = std::ops::Bound::Excluded(range.start);
            let to = range.end.max(range.start);
            held.range((after, std::ops::Bound::Included(to)))
        });
        let point = |(&time, value): (&i64, &StepValue)| SeriesPoint {
            start: None,
            time,
            value: value.clone(),
        };
        Ok(ColumnRead { values: samples.map(point).collect(), gaps: Vec::new() })
    }

    fn histograms(
        &self,
        _: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<ColumnRead<Mixture>> {
        // All series are gauges, which have no distributions.
        let values = (0..grid.columns).map(|_| Mixture::default()).collect();
        Ok(ColumnRead { values, gaps: Vec::new() })
    }

    fn numbers(
        &self,
        _: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<ColumnRead<Option<NumberAggregate>>> {
        // PromQL reads the samples of gauges.
        Ok(ColumnRead { values: (0..grid.columns).map(|_| None).collect(), gaps: Vec::new() })
    }
}
