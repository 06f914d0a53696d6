//! History of one metric.

use std::collections::VecDeque;

use decode::Unit;
use hist::Histogram;
use shm::snapshot::{MetricRole, MetricValue, ProcessSeries};

use crate::top::metric_interval::{IntervalChange, IntervalStats, MetricInterval, ONE_SAMPLE};
use crate::top::partial_value::PartialValue;
use crate::values;
use render::text::escape_control;

/// History kept for followed series.
pub(crate) const POINTS_NS: u64 = 60_000_000_000;
/// Limit of kept intervals: a minute of the shortest.
const POINTS_MAX: usize = 620;
/// Why there are no percentiles.
const BUCKETS_NOT_READ: &str = "buckets were not read in the previous sample; known after the next";
/// Weight of the latest interval in the score (exponential moving average).
const SCORE_WEIGHT: f64 = 0.3;

/// History of a metric.
#[derive(Debug)]
pub(crate) struct SeriesHistory {
    /// Name as written by the process, which identifies the series.
    pub(crate) name: String,
    labels: Vec<(String, String)>,
    /// Name escaped for a terminal.
    pub(crate) display_name: String,
    pub(crate) unit: Option<Unit>,
    pub(crate) help: String,
    pub(crate) role: MetricRole,
    /// Number of series in this total; 1 for a single series.
    pub(crate) members: usize,
    pub(crate) last: Option<(u64, PartialValue)>,
    /// The sample before the last.
    previous: Option<(u64, PartialValue)>,
    pub(crate) interval: Option<MetricInterval>,
    /// Statistics of the latest interval, while it is followed.
    pub(crate) stats: Option<IntervalStats>,
    /// Newest last, while it is followed.
    pub(crate) points: VecDeque<SparkPoint>,
    /// Recent number of values per second.
    pub(crate) score: f64,
}

/// Interval as used in graphs.
#[derive(Clone, Debug)]
pub(crate) struct SparkPoint {
    pub(crate) interval: MetricInterval,
    pub(crate) p99: Option<f64>,
}

impl SeriesHistory {
    pub(crate) fn new(metric: &ProcessSeries) -> SeriesHistory {
        SeriesHistory {
            name: metric.name.clone(),
            labels: metric.labels.clone(),
            display_name: escape_control(&values::series_name(metric)),
            unit: values::parse_unit(&escape_control(&metric.unit)),
            help: escape_control(metric.help.trim()),
            role: metric.role,
            members: 1,
            last: None,
            previous: None,
            interval: None,
            stats: None,
            points: VecDeque::new(),
            score: 0.0,
        }
    }

    /// Total of all series of one name.
    pub(crate) fn total(of: &[&SeriesHistory]) -> Option<SeriesHistory> {
        let first = of.first()?;
        let name_text = format!("{}, all {}", escape_control(&first.name), of.len());
        let (name, unit, help) = (first.name.clone(), first.unit.clone(), first.help.clone());
        Some(SeriesHistory {
            name,
            labels: Vec::new(),
            display_name: name_text,
            unit,
            help,
            role: first.role,
            members: of.len(),
            last: None,
            previous: None,
            interval: None,
            stats: None,
            points: VecDeque::new(),
            score: 0.0,
        })
    }

    /// Whether this is the series that is now at its index.
    pub(crate) fn matches(&self, metric: &ProcessSeries) -> bool {
        self.name == metric.name && self.labels == metric.labels
    }

    /// Adds a sample; followed series get statistics and history.
    pub(crate) fn record(&mut self, at_ns: u64, reading: PartialValue, is_followed: bool) {
        let interval = match &self.last {
            // Distributions of unfollowed series are not computed.
            Some((before_ns, before)) if is_followed => {
                MetricInterval::between((*before_ns, before), (at_ns, &reading))
            }
            Some((before_ns, before)) => {
                MetricInterval::between_counts((*before_ns, before), (at_ns, &reading))
            }
            None => MetricInterval {
                start_ns: at_ns,
                end_ns: at_ns,
                change: IntervalChange::Unknown(ONE_SAMPLE),
            },
        };
        self.score = match (interval.rate(), reading.recorded()) {
            (Some(rate), _) if self.interval.is_some() => {
                self.score + SCORE_WEIGHT * (rate - self.score)
            }
            (Some(rate), _) => rate,
            // After one sample only the total is known.
            (None, Some(all)) if self.last.is_none() => all as f64,
            (None, _) => self.score,
        };
        // The first interval needs two samples.
        self.interval = self.last.is_some().then_some(interval);
        self.previous = self.last.replace((at_ns, reading));
        self.stats = None;
        if is_followed {
            self.update_stats();
            if let Some(interval) = &self.interval {
                let p99 = self.stats.and_then(|figures| figures.p99).map(|p99| p99.estimate);
                self.points.push_back(SparkPoint { interval: interval.clone(), p99 });
            }
        }
        while self.points.front().is_some_and(|past| past.interval.end_ns + POINTS_NS <= at_ns)
            || self.points.len() > POINTS_MAX
        {
            self.points.pop_front();
        }
    }

    /// Computes the statistics of a row.
    pub(crate) fn update_stats(&mut self) {
        if self.stats.is_some() || !self.is_histogram() {
            return;
        }
        if let (Some((before_ns, before)), Some((at_ns, now))) = (&self.previous, &self.last)
            && self.interval.as_ref().is_some_and(|interval| interval.values().is_none())
        {
            self.interval = Some(MetricInterval::between((*before_ns, before), (*at_ns, now)));
        }
        self.stats =
            self.interval.as_ref().and_then(MetricInterval::values).map(IntervalStats::new);
    }

    /// Latest value, if it was read.
    pub(crate) fn value(&self) -> Option<&MetricValue> {
        self.last.as_ref()?.1.value()
    }

    /// Number of values of a histogram.
    pub(crate) fn recorded(&self) -> Option<u64> {
        self.last.as_ref()?.1.recorded()
    }

    pub(crate) fn histogram(&self) -> Option<&Histogram> {
        self.last.as_ref()?.1.histogram()
    }

    pub(crate) fn is_histogram(&self) -> bool {
        self.recorded().is_some()
    }

    /// Whether its values are durations.
    pub(crate) fn is_timing(&self) -> bool {
        let is_time = self.unit.as_ref().is_some_and(|unit| unit.in_nanoseconds().is_some());
        self.is_histogram() && (self.role == MetricRole::Timing || is_time)
    }

    /// Why the last interval is unknown.
    pub(crate) fn unknown_reason(&self) -> Option<&'static str> {
        match self.interval.as_ref().map(|interval| &interval.change) {
            None => Some(ONE_SAMPLE),
            Some(IntervalChange::Unknown(reason)) => Some(reason),
            Some(IntervalChange::Counter(_)) if self.is_histogram() => Some(BUCKETS_NOT_READ),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::fixtures::{metric, recorded};

    const S: u64 = 1_000_000_000;

    fn full_reading(values: &[u64]) -> PartialValue {
        PartialValue::Full(recorded(values))
    }

    #[test]
    fn followed_series_keeps_a_minute_of_points() {
        let mut series = SeriesHistory::new(&metric("took", "ns", recorded(&[5])));
        for at in 0..100 {
            let values: Vec<u64> = (0..=at).collect();
            series.record(at * S, full_reading(&values), true);
        }
        assert_eq!(series.points.len(), 60);
        assert_eq!(series.points.back().and_then(|past| past.interval.rate()), Some(1.0));
        assert!((series.score - 1.0).abs() < 0.01);
        series.record(100 * S, full_reading(&[7]), true);
        assert_eq!(series.unknown_reason(), Some(crate::top::metric_interval::COUNTER_RESET));
    }

    #[test]
    fn unfollowed_series_is_only_counted() {
        let mut series = SeriesHistory::new(&metric("took", "ns", recorded(&[5])));
        series.record(0, full_reading(&[5]), false);
        assert_eq!(series.unknown_reason(), Some(ONE_SAMPLE));
        series.record(S, full_reading(&[5, 6]), false);
        assert_eq!((series.stats, series.points.len()), (None, 0));
        series.update_stats();
        assert_eq!(series.stats.map(|figures| figures.count), Some(1));
    }

    #[test]
    fn names_are_escaped_for_a_terminal() {
        let mut metric = metric("a\x1b[2Jb", "ns", recorded(&[]));
        metric.labels = vec![("to".into(), "\r\nx".into())];
        assert_eq!(SeriesHistory::new(&metric).display_name, "a\\u{1b}[2Jb{to=\"\\r\\nx\"}");
    }

    #[test]
    fn counted_series_says_when_details_follow() {
        let mut series = SeriesHistory::new(&metric("took", "ns", recorded(&[5])));
        series.record(0, PartialValue::CountOnly(1), false);
        series.record(S, full_reading(&[5, 6, 7]), true);
        assert_eq!(series.interval.as_ref().and_then(MetricInterval::rate), Some(2.0));
        assert_eq!((series.stats, series.unknown_reason()), (None, Some(BUCKETS_NOT_READ)));
        series.record(2 * S, full_reading(&[5, 6, 7, 9]), true);
        assert_eq!(series.stats.map(|figures| figures.count), Some(1));
        assert_eq!(series.unknown_reason(), None);
    }
}
