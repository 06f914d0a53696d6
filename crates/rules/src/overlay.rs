//! Samples of the current iteration as part of what queries see.
//!
//! Rules of a group see each other's results in the same iteration, before these are durable: they
//! lie over the samples of the store. Recorded series are gauges.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hist::Mixture;
use model::{Gap, Selector, Series, SeriesKind};
use query::{
    LabelSet, Language, NAME, QueryContext, QueryRequest, ResultData, SeriesHandle, SeriesPoint,
    Settings, Source, SourceRead, StepValue, StoredMetric, execute, promql,
};
use store::{HistogramIncrements, NumberAggregate, TimeGrid};

use crate::alert_series::{ALERT_NAME, ALERTS, ALERTS_FOR_STATE};
use crate::evaluator::{OverlayEvaluator, RuleQueryError, RuleSample};

/// First key of the series that only the overlay has: above the indexes of stored series, and below
/// the keys with which the query engine marks series of its own.
const KEY_MIN: usize = usize::MAX / 4;
/// The same for the overlay of earlier iterations, which lies below that of the current one.
const HISTORY_KEY_MIN: usize = usize::MAX / 8;

/// Samples that are not stored yet, by series.
#[derive(Clone, Debug, Default)]
pub struct SampleOverlay {
    series: BTreeMap<LabelSet, Vec<SeriesPoint>>,
}

impl SampleOverlay {
    /// Adds a sample, unless the series has one at this time already. Returns whether it was added.
    pub fn push(&mut self, labels: &LabelSet, time_ns: i64, value: StepValue) -> bool {
        let points = self.series.entry(labels.clone()).or_default();
        match points.binary_search_by_key(&time_ns, |point| point.time) {
            Ok(_) => false,
            Err(at) => {
                points.insert(at, SeriesPoint { start: None, time: time_ns, value });
                true
            }
        }
    }

    /// Sample of a series at a time.
    pub fn value(&self, labels: &LabelSet, time_ns: i64) -> Option<&StepValue> {
        let points = self.series.get(labels)?;
        let at = points.binary_search_by_key(&time_ns, |point| point.time).ok()?;
        Some(&points[at].value)
    }

    fn points(&self, labels: &LabelSet, range: &Range<i64>) -> &[SeriesPoint] {
        let Some(points) = self.series.get(labels) else { return &[] };
        let from = points.partition_point(|point| point.time <= range.start);
        let to = points.partition_point(|point| point.time <= range.end).max(from);
        &points[from..to]
    }
}

/// Stored samples that do not count in a replay: it produces them anew.
#[derive(Debug, Default)]
pub(crate) struct ReplacedSamples {
    /// Metrics of recording rules.
    pub(crate) metrics: BTreeSet<String>,
    /// Names of alerts, for [`ALERTS`] and [`ALERTS_FOR_STATE`].
    pub(crate) alerts: BTreeSet<String>,
    /// From this time on.
    pub(crate) from_ns: i64,
}

impl ReplacedSamples {
    /// Whether a replay produces samples of the series.
    pub(crate) fn contains(&self, labels: &LabelSet) -> bool {
        match labels.name() {
            ALERTS | ALERTS_FOR_STATE => self.alerts.contains(labels.get(ALERT_NAME)),
            name => self.metrics.contains(name),
        }
    }
}

/// Evaluator of a source of the query engine.
pub struct SourceEvaluator<'a> {
    /// Stored samples.
    pub source: &'a dyn Source,
    /// Settings of queries.
    pub settings: &'a Settings,
    /// Enabled PromQL features.
    pub options: promql::Options,
    /// Cancels a query.
    pub context: &'a dyn QueryContext,
}

impl OverlayEvaluator for SourceEvaluator<'_> {
    fn instant_over(
        &self,
        overlay: &SampleOverlay,
        expression: &str,
        time_ns: i64,
    ) -> Result<Vec<RuleSample>, RuleQueryError> {
        let request = QueryRequest {
            text: expression,
            language: Language::PromQl,
            start: time_ns,
            end: time_ns,
            step: 0,
            options: self.options,
        };
        let source = OverlaySource::new(self.source, overlay);
        let result = execute(&source, &request, self.settings, self.context)
            .map_err(|error| RuleQueryError(error.to_string()))?;
        match result.data {
            ResultData::Vector(streams) => Ok(streams
                .into_iter()
                .filter_map(|mut stream| {
                    let value = stream.points.pop().flatten()?;
                    Some(RuleSample { labels: stream.labels, value })
                })
                .collect()),
            ResultData::Scalar(numbers) => Ok(numbers
                .into_iter()
                .map(|number| RuleSample {
                    labels: LabelSet::default(),
                    value: StepValue::Number(number),
                })
                .collect()),
            ResultData::Text(_) | ResultData::Matrix(_) | ResultData::RawSamples(_) => {
                Err(RuleQueryError("rule result is not a vector or scalar".to_owned()))
            }
        }
    }

    fn with_source(
        &self,
        _: &str,
        read: &mut dyn FnMut(&SourceEvaluator<'_>) -> Result<(), RuleQueryError>,
    ) -> Result<(), RuleQueryError> {
        read(self)
    }
}

/// Source with an overlay. Histograms and sums per column, which only CAQL reads of gauges, are
/// those of the stored series.
pub(crate) struct OverlaySource<'a> {
    source: &'a dyn Source,
    overlay: &'a SampleOverlay,
    key_min: usize,
    replaced: Option<&'a ReplacedSamples>,
}

impl<'a> OverlaySource<'a> {
    fn new(source: &'a dyn Source, overlay: &'a SampleOverlay) -> OverlaySource<'a> {
        OverlaySource { source, overlay, key_min: KEY_MIN, replaced: None }
    }

    /// Source with the samples of the iterations before, in place of stored ones.
    pub(crate) fn history(
        source: &'a dyn Source,
        overlay: &'a SampleOverlay,
        replaced: &'a ReplacedSamples,
    ) -> OverlaySource<'a> {
        OverlaySource { source, overlay, key_min: HISTORY_KEY_MIN, replaced: Some(replaced) }
    }
}

impl OverlaySource<'_> {
    /// Adds the series of the overlay that are not among the selected ones.
    fn add_series(&self, selector: &Selector, mut found: Vec<SeriesHandle>) -> Vec<SeriesHandle> {
        for (at, labels) in self.overlay.series.keys().enumerate() {
            let is_known = |handle: &SeriesHandle| {
                handle.kind == SeriesKind::Gauge && handle.labels == *labels
            };
            if selector.matches(&gauge(labels)) && !found.iter().any(is_known) {
                found.push(SeriesHandle {
                    labels: labels.clone(),
                    kind: SeriesKind::Gauge,
                    unit: String::new(),
                    key: self.key_min + at,
                });
            }
        }
        found
    }

    /// Series of the source below.
    fn stored(&self, series: &[SeriesHandle]) -> Vec<SeriesHandle> {
        series.iter().filter(|handle| handle.key < self.key_min).cloned().collect()
    }

    fn stored_references<'a>(&self, series: &[&'a SeriesHandle]) -> Vec<&'a SeriesHandle> {
        series.iter().copied().filter(|handle| handle.key < self.key_min).collect()
    }
}

fn gauge(labels: &LabelSet) -> Series {
    Series::new(labels.name(), SeriesKind::Gauge)
        .with_labels(labels.iter().filter(|(name, _)| *name != NAME))
}

impl Source for OverlaySource<'_> {
    fn select(&self, selector: &Selector) -> query::Result<Vec<SeriesHandle>> {
        Ok(self.add_series(selector, self.source.select(selector)?))
    }

    fn select_in_range(
        &self,
        selector: &Selector,
        range: &Range<i64>,
    ) -> query::Result<Vec<SeriesHandle>> {
        Ok(self.add_series(selector, self.source.select_in_range(selector, range)?))
    }

    fn bucket_count(&self, selector: &Selector) -> u64 {
        self.source.bucket_count(selector)
    }

    fn add_classic(&self, selector: &Selector, found: &mut Vec<SeriesHandle>) -> query::Result<()> {
        self.source.add_classic(selector, found)
    }

    fn take_hints(&self) -> Vec<String> {
        self.source.take_hints()
    }

    fn metrics(&self) -> query::Result<Vec<StoredMetric>> {
        let mut metrics = self.source.metrics()?;
        for labels in self.overlay.series.keys() {
            let (name, unit) = (labels.name().to_owned(), String::new());
            let metric = StoredMetric { name, unit, kind: SeriesKind::Gauge };
            if !metrics.contains(&metric) {
                metrics.push(metric);
            }
        }
        Ok(metrics)
    }

    fn time_range(
        &self,
        series: &[SeriesHandle],
        range: Range<i64>,
    ) -> query::Result<Option<Range<i64>>> {
        let mut total = self.source.time_range(&self.stored(series), range.clone())?;
        let points = series.iter().flat_map(|handle| self.overlay.points(&handle.labels, &range));
        for time in points.map(|point| point.time) {
            let found = total.unwrap_or(time - 1..time);
            total = Some(found.start.min(time - 1)..found.end.max(time));
        }
        Ok(total)
    }

    fn gaps(&self, series: &[&SeriesHandle], range: &Range<i64>) -> Vec<Gap> {
        self.source.gaps(&self.stored_references(series), range)
    }

    fn select_count(&self, selector: &Selector) -> query::Result<u64> {
        let matching = self.overlay.series.keys().filter(|labels| selector.matches(&gauge(labels)));
        Ok(self.source.select_count(selector)? + matching.count() as u64)
    }

    fn estimate_rows(&self, series: u64, range: &Range<i64>, step: Option<i64>) -> u64 {
        self.source.estimate_rows(series, range, step).saturating_add(series)
    }

    fn samples(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> query::Result<SourceRead<SeriesPoint>> {
        let mut read = match series.key < self.key_min {
            true => self.source.samples(series, range.clone())?,
            false => SourceRead { values: Vec::new(), gaps: Vec::new() },
        };
        if series.kind == SeriesKind::Gauge {
            if let Some(replaced) = self.replaced.filter(|it| it.contains(&series.labels)) {
                read.values.retain(|point| point.time < replaced.from_ns);
            }
            for point in self.overlay.points(&series.labels, &range) {
                let at = read.values.partition_point(|stored| stored.time < point.time);
                if read.values.get(at).is_none_or(|stored| stored.time != point.time) {
                    read.values.insert(at, point.clone());
                }
            }
        }
        Ok(read)
    }

    fn increments(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> query::Result<(Option<HistogramIncrements>, Vec<Gap>)> {
        match series.key < self.key_min {
            true => self.source.increments(series, range),
            false => Ok((None, Vec::new())),
        }
    }

    fn histograms(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Mixture>> {
        self.source.histograms(&self.stored_references(series), grid)
    }

    fn histograms_by_start(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Mixture>> {
        self.source.histograms_by_start(&self.stored_references(series), grid)
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Option<NumberAggregate>>> {
        self.source.numbers(&self.stored_references(series), grid)
    }

    fn texts(&self, series: &SeriesHandle, range: Range<i64>) -> query::Result<Vec<(i64, String)>> {
        self.source.texts(series, range)
    }
}
