//! Reads the streams of own rules: windows, baselines, times of rows, ends.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;

use hist::{Bracket, Mixture};
use model::selector::UNIT as UNIT_TAG;
use model::{Selector, SeriesKind};
use query::{
    LabelSet, Language, NAME, QueryRequest, ResultData, SeriesHandle, SeriesPoint, Source,
    StepValue, WindowSource, execute, is_stale,
};
use store::{NumberAggregate, TimeGrid, WindowRows};

use super::absence::{FIRST_ROW_AGE_MAX_NS, LEARNING_RANGE_NS, ObservedArrivals};
use super::forecast::{GaugePoint, interval_ns};
use super::read_recorder::ReadRecorder;
use super::rule_absence::stream_labels;
use super::shape_change::BASELINE_WINDOWS;
use crate::affected_users::{USER_READS_MAX, UserSeries, count_above, label_of_users, with_rows};
use crate::alert_series::is_alert_series;
use crate::evaluator::RuleQueryError;
use crate::overlay::SourceEvaluator;

/// Lengths of the ranges in which the newest row before others is looked for, each longer.
const ROW_SEARCH_NS: [i64; 3] = [60 * 1_000_000_000, 3600 * 1_000_000_000, FIRST_ROW_AGE_MAX_NS];

/// Series that are one stream.
pub(super) struct SelectedStream {
    /// Labels without the metric name, or those of `by`.
    pub(super) labels: LabelSet,
    handles: Vec<SeriesHandle>,
}

/// Window of a stream, as it was read.
#[derive(Clone, Debug)]
pub(super) struct ReadWindow {
    pub(super) window: Rc<StreamWindow>,
    /// Its rows, if it is known when it has others.
    pub(super) rows: Option<WindowRows>,
}

/// Values of a stream in a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StreamWindow {
    pub(crate) labels: LabelSet,
    /// Unit of the values; empty if unknown.
    pub(crate) unit: String,
    pub(crate) value: WindowValue,
}

/// Values of a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WindowValue {
    Missing,
    /// Number that is the result of a query.
    Result(Bracket),
    Distribution(Mixture),
    Counter(NumberAggregate),
    Gauge(NumberAggregate),
    /// By time.
    Texts(Vec<String>),
}

impl WindowValue {
    /// Number of values. Nobody knows how many a query has read.
    pub(super) fn count(&self) -> u64 {
        match self {
            WindowValue::Missing => 0,
            WindowValue::Result(_) => u64::MAX,
            WindowValue::Distribution(mixture) => mixture.count(),
            WindowValue::Counter(summary) | WindowValue::Gauge(summary) => summary.count,
            WindowValue::Texts(texts) => texts.len() as u64,
        }
    }
}

/// Streams of a selector. Series with the same name and labels are one stream, whatever their kind:
/// the staleness markers of a histogram are a gauge.
pub(super) fn select_streams(
    source: &dyn Source,
    selector: &Selector,
    by: Option<&[String]>,
) -> query::Result<Vec<SelectedStream>> {
    let handles = source.select_with_classic(selector)?;
    let Some(by) = by else {
        let mut streams: Vec<SelectedStream> = Vec::with_capacity(handles.len());
        for handle in handles {
            let is_last = |stream: &&mut SelectedStream| stream.handles[0].labels == handle.labels;
            match streams.last_mut().filter(is_last) {
                Some(stream) => stream.handles.push(handle),
                None => streams.push(SelectedStream {
                    labels: stream_labels(&handle.labels, None),
                    handles: vec![handle],
                }),
            }
        }
        return Ok(streams);
    };
    let mut groups: BTreeMap<LabelSet, Vec<SeriesHandle>> = BTreeMap::new();
    for handle in handles {
        let labels = stream_labels(&handle.labels, Some(by));
        groups.entry(labels).or_default().push(handle);
    }
    Ok(groups.into_iter().map(|(labels, handles)| SelectedStream { labels, handles }).collect())
}

/// Series by metric. Those of alerts are left out: they end with them.
pub(super) fn streams_by_metric(series: Vec<SeriesHandle>) -> Vec<SelectedStream> {
    let mut metrics: BTreeMap<LabelSet, Vec<SeriesHandle>> = BTreeMap::new();
    for handle in series {
        if !is_alert_series(handle.labels.name().as_bytes()) {
            let metric = handle.labels.filter(|name| name == NAME);
            metrics.entry(metric).or_default().push(handle);
        }
    }
    metrics.into_iter().map(|(labels, handles)| SelectedStream { labels, handles }).collect()
}

impl SelectedStream {
    /// Its series.
    pub(super) fn series(&self) -> Vec<&SeriesHandle> {
        self.handles.iter().collect()
    }

    fn of_kind(&self, is_kind: impl Fn(SeriesKind) -> bool) -> Vec<&SeriesHandle> {
        self.handles.iter().filter(|handle| is_kind(handle.kind)).collect()
    }

    fn histograms(&self) -> Vec<&SeriesHandle> {
        self.of_kind(|kind| matches!(kind, SeriesKind::Histogram(_)))
    }

    /// Values in a range, start exclusive, end inclusive, and their rows; `windows` is of the same
    /// range.
    pub(super) fn window(
        &self,
        source: &dyn Source,
        windows: Option<&dyn WindowSource>,
        range: Range<i64>,
    ) -> Result<ReadWindow, RuleQueryError> {
        let histograms = self.histograms();
        if let Some(windows) = windows.filter(|_| histograms.len() == self.handles.len()) {
            let (mixture, rows) = windows.histogram(&histograms).map_err(query_error)?;
            let window = match mixture.count() {
                0 => self.of_value(String::new(), WindowValue::Missing),
                _ => self.of_value(common_unit(&histograms)?, WindowValue::Distribution(mixture)),
            };
            return Ok(ReadWindow { window: Rc::new(window), rows });
        }
        // Rows that arrive before the values are read are not among these.
        let rows = windows.and_then(|windows| windows.rows(&self.series()));
        let window = Rc::new(self.values(source, range)?);
        Ok(ReadWindow { window, rows })
    }

    /// Values in a range.
    fn values(
        &self,
        source: &dyn Source,
        range: Range<i64>,
    ) -> Result<StreamWindow, RuleQueryError> {
        let grid = TimeGrid { start: range.start, step: range.end - range.start, columns: 1 };
        let histograms = self.histograms();
        if !histograms.is_empty() {
            let read = source.histograms(&histograms, grid).map_err(query_error)?;
            if let Some(mixture) = read.values.into_iter().find(|mixture| mixture.count() > 0) {
                let unit = common_unit(&histograms)?;
                return Ok(self.of_value(unit, WindowValue::Distribution(mixture)));
            }
        }
        let counters = self.of_kind(|kind| matches!(kind, SeriesKind::Counter(_)));
        let gauges = self.of_kind(|kind| kind == SeriesKind::Gauge);
        type ToWindow = fn(NumberAggregate) -> WindowValue;
        let numbers: [(_, ToWindow); 2] =
            [(counters, WindowValue::Counter), (gauges, WindowValue::Gauge)];
        for (handles, to_window) in numbers {
            if handles.is_empty() {
                continue;
            }
            let read = source.numbers(&handles, grid).map_err(query_error)?;
            let summary = read.values.into_iter().flatten().find(|summary| summary.count > 0);
            if let Some(summary) = summary {
                return Ok(self.of_value(common_unit(&handles)?, to_window(summary)));
            }
        }
        let mut texts = Vec::new();
        for handle in self.of_kind(|kind| kind == SeriesKind::Text) {
            texts.extend(source.texts(handle, range.clone()).map_err(query_error)?);
        }
        model::sort::by_key(&mut texts, |(time, _)| *time);
        let value = match texts.is_empty() {
            true => WindowValue::Missing,
            false => WindowValue::Texts(texts.into_iter().map(|(_, text)| text).collect()),
        };
        Ok(self.of_value(String::new(), value))
    }

    fn of_value(&self, unit: String, value: WindowValue) -> StreamWindow {
        StreamWindow { labels: self.labels.clone(), unit, value }
    }

    /// Distributions of windows around a time before.
    pub(super) fn baseline(
        &self,
        source: &dyn Source,
        time_ns: i64,
        window_ns: i64,
    ) -> Result<Vec<Mixture>, RuleQueryError> {
        let before_ns = window_ns.saturating_mul(BASELINE_WINDOWS as i64 / 2);
        let start = time_ns.saturating_sub(before_ns).saturating_sub(window_ns);
        let grid = TimeGrid { start, step: window_ns, columns: BASELINE_WINDOWS };
        Ok(source.histograms(&self.histograms(), grid).map_err(query_error)?.values)
    }

    /// Number of users with a value above a limit; of values, if no series of the stream has a
    /// label that tells users apart, not even one without rows in the range. `None` without values.
    pub(super) fn users_above(
        &self,
        source: &dyn Source,
        range: Range<i64>,
        limit: f64,
        label: Option<&str>,
    ) -> Result<Option<Bracket>, RuleQueryError> {
        let grid = TimeGrid { start: range.start, step: range.end - range.start, columns: 1 };
        let above = |series: &[&SeriesHandle]| {
            let read = source.histograms(series, grid).map_err(query_error)?;
            Ok(count_above(&read.values.into_iter().next().unwrap_or_default(), limit))
        };
        let all: Vec<SeriesHandle> = self.histograms().into_iter().cloned().collect();
        let has_users = label_of_users(&all, label).is_some();
        let active = with_rows(source, all, &range);
        match UserSeries::of(&active, label) {
            Some(users) => users.count(USER_READS_MAX, &above).map(Some),
            // These values are of no user.
            None if has_users => Ok(above(&self.histograms())?.map(|_| Bracket::exact(0.0))),
            None => above(&self.histograms()),
        }
    }

    /// Greatest number of the newest rows of the gauges in a range; `None` if all are markers of an
    /// end.
    pub(super) fn newest_number(
        &self,
        source: &dyn Source,
        range: Range<i64>,
    ) -> Result<Option<f64>, RuleQueryError> {
        let mut greatest: Option<f64> = None;
        for handle in self.of_kind(|kind| kind == SeriesKind::Gauge) {
            let points = source.samples(handle, range.clone()).map_err(query_error)?.values;
            let Some(point) = points.last() else { continue };
            let number = point.value.number().filter(|number| !is_stale(*number));
            greatest = greatest.into_iter().chain(number).reduce(f64::max);
        }
        Ok(greatest)
    }

    /// Largest or smallest values of the gauges by interval, up to a time.
    pub(super) fn extremes(
        &self,
        source: &dyn Source,
        time_ns: i64,
        window_ns: i64,
        is_largest: bool,
    ) -> Result<Vec<GaugePoint>, RuleQueryError> {
        let step = interval_ns(window_ns);
        // Whole intervals are read from rollups; only the last one is not over.
        let end = time_ns.div_euclid(step) * step;
        let columns = window_ns / step;
        let start = end.saturating_sub(columns * step);
        let whole = TimeGrid { start, step, columns: columns.unsigned_abs() };
        let last = TimeGrid { start: end, step: time_ns - end, columns: 1 };
        let gauges = self.of_kind(|kind| kind == SeriesKind::Gauge);
        let mut points = Vec::new();
        for grid in [whole, last].into_iter().filter(|grid| grid.step > 0) {
            let read = source.numbers(&gauges, grid).map_err(query_error)?;
            for (at, summary) in (0..).zip(read.values) {
                let Some(summary) = summary.filter(|summary| summary.count > summary.nan) else {
                    continue;
                };
                points.push(GaugePoint {
                    time_s: (grid.column(at).end - time_ns) as f64 / 1e9,
                    value: if is_largest { summary.max } else { summary.min },
                });
            }
        }
        Ok(points)
    }

    /// Adds the rows that ended up to a time to the clock of the stream.
    pub(super) fn add_rows(
        &self,
        source: &dyn Source,
        clock: &mut ObservedArrivals,
        time_ns: i64,
    ) -> query::Result<()> {
        let start_ns = match clock.newest_ns() {
            Some(newest_ns) => newest_ns,
            None => match self.newest_end(source, time_ns)? {
                Some(end_ns) => end_ns.saturating_sub(LEARNING_RANGE_NS),
                None => return Ok(()),
            },
        };
        let mut ends = Vec::new();
        for handle in &self.handles {
            if handle.kind == SeriesKind::Text {
                let texts = source.texts(handle, start_ns..time_ns)?;
                ends.extend(texts.into_iter().map(|(time, _)| time));
                continue;
            }
            let points = source.samples(handle, start_ns..time_ns)?.values;
            let rows = points.iter().filter(|point| !is_marker(&point.value));
            ends.extend(rows.map(|point| point.time));
        }
        ends.sort_unstable();
        ends.into_iter().for_each(|end_ns| clock.add(end_ns, time_ns));
        Ok(())
    }

    /// End of the newest row before a time.
    pub(super) fn last_end(&self, source: &dyn Source, time_ns: i64) -> query::Result<Option<i64>> {
        let all = i64::MIN / 2..time_ns;
        Ok(source.time_range(&self.handles, all)?.map(|range| range.end))
    }

    /// End of the newest row of the last day.
    fn newest_end(&self, source: &dyn Source, time_ns: i64) -> query::Result<Option<i64>> {
        let range = time_ns.saturating_sub(FIRST_ROW_AGE_MAX_NS + 1)..time_ns;
        Ok(source.time_range(&self.handles, range)?.map(|range| range.end))
    }

    /// Whether somebody retired all series of the stream: the newest row of each that ended at a
    /// time or before marks a retirement. Markers of sources that stopped are none.
    pub(super) fn is_retired(&self, source: &dyn Source, time_ns: i64) -> query::Result<bool> {
        // The marker of a histogram is a series with the same labels.
        let mut newest: HashMap<&LabelSet, (i64, bool)> = HashMap::new();
        for handle in &self.handles {
            if let Some(row) = newest_row(source, handle, time_ns)? {
                let known = newest.entry(&handle.labels).or_insert(row);
                *known = row.max(*known);
            }
        }
        Ok(!newest.is_empty() && newest.values().all(|(_, is_retirement)| *is_retirement))
    }
}

/// End of the newest row of a series that ended up to a time, and whether it is the marker of a
/// retirement.
fn newest_row(
    source: &dyn Source,
    handle: &SeriesHandle,
    time_ns: i64,
) -> query::Result<Option<(i64, bool)>> {
    let series = std::slice::from_ref(handle);
    let Some(found) = source.time_range(series, i64::MIN / 2..time_ns)? else { return Ok(None) };
    // The range ends with the newest row, unless later rows follow.
    let lengths = if found.end < time_ns { &[2][..] } else { &ROW_SEARCH_NS };
    for length in lengths {
        let range = found.end.saturating_sub(*length)..found.end.saturating_add(1).min(time_ns);
        let newest = if handle.kind == SeriesKind::Text {
            let texts = source.texts(handle, range)?;
            texts.last().map(|(time, _)| (*time, false))
        } else {
            let points = source.samples(handle, range)?.values;
            let is_retirement =
                |point: &SeriesPoint| point.start.is_some() && is_marker(&point.value);
            points.last().map(|point| (point.time, is_retirement(point)))
        };
        if newest.is_some() {
            return Ok(newest);
        }
    }
    Ok(Some((found.start, false)))
}

fn is_marker(value: &StepValue) -> bool {
    matches!(value, StepValue::Number(number) if is_stale(*number))
}

fn common_unit(handles: &[&SeriesHandle]) -> Result<String, RuleQueryError> {
    let unit = handles.first().map_or("", |handle| &handle.unit);
    match handles.iter().find(|handle| handle.unit != unit) {
        None => Ok(unit.to_owned()),
        Some(other) => {
            let (labels, found) = (&other.labels, &other.unit);
            let narrow = labels.with(UNIT_TAG, if unit.is_empty() { found } else { unit });
            Err(RuleQueryError(format!(
                "cannot merge {labels}: found the units {unit:?} and {found:?}; select one with \
                 __unit, as in {narrow}"
            )))
        }
    }
}

/// Streams of the result of a query at a time. CAQL is evaluated over one step, the window.
pub(super) fn query_streams(
    evaluator: &SourceEvaluator<'_>,
    language: Language,
    text: &str,
    window: Range<i64>,
) -> Result<Vec<StreamWindow>, RuleQueryError> {
    let (start, end, step) = match language {
        Language::PromQl => (window.end, window.end, 0),
        Language::Caql => (window.start, window.end, window.end - window.start),
    };
    let options = evaluator.options;
    let request = QueryRequest { text, language, start, end, step, options };
    let result = execute(evaluator.source, &request, evaluator.settings, evaluator.context)
        .map_err(query_error)?;
    let unit = result.unit.unwrap_or_default();
    let values: Vec<(LabelSet, StepValue)> = match result.data {
        ResultData::Vector(streams) | ResultData::Matrix(streams) => {
            let last = |mut stream: query::Stream| {
                let value = stream.points.pop().flatten()?;
                Some((stream.labels, value))
            };
            streams.into_iter().filter_map(last).collect()
        }
        ResultData::Scalar(numbers) => {
            let numbers = numbers.into_iter().map(StepValue::Number);
            numbers.map(|number| (LabelSet::default(), number)).collect()
        }
        ResultData::Text(_) | ResultData::RawSamples(_) => {
            return Err(RuleQueryError("rule result is not a vector or scalar".to_owned()));
        }
    };
    let window = |(labels, value): (LabelSet, StepValue)| {
        let labels = stream_labels(&labels, None);
        let value = match value {
            StepValue::Distribution(mixture) => WindowValue::Distribution((*mixture).clone()),
            StepValue::Histogram(_) => {
                let cause = "the result is a histogram of PromQL arithmetic; use exact_increase";
                return Err(RuleQueryError(format!("cannot measure {labels}: {cause}")));
            }
            number => match number.bracket().filter(|value| !value.estimate.is_nan()) {
                Some(bracket) => WindowValue::Result(bracket),
                None => WindowValue::Missing,
            },
        };
        Ok(StreamWindow { labels, unit: unit.clone(), value })
    };
    values.into_iter().map(window).collect()
}

/// Selectors of the series that a query looks for, each once.
pub(crate) fn query_selectors(
    evaluator: &SourceEvaluator<'_>,
    language: Language,
    text: &str,
    window: Range<i64>,
) -> Result<Vec<Selector>, RuleQueryError> {
    let recorder = ReadRecorder::new(evaluator.source);
    let recorded = SourceEvaluator { source: &recorder, ..*evaluator };
    query_streams(&recorded, language, text, window)?;
    Ok(recorder.into_reads().selectors)
}

pub(super) fn query_error(error: query::Error) -> RuleQueryError {
    RuleQueryError(error.to_string())
}
