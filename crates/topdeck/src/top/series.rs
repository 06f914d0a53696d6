//! One metric over time: what it is, its latest value, and what it did in the last minute.

use std::collections::VecDeque;

use collect::Unit;
use hist::Histogram;
use shm::show::{Metric, Role, Value};

use crate::command::plain;
use crate::processes::values;
use crate::top::interval::{Change, Figures, Interval, ONE_LOOK};
use crate::top::reading::Reading;

/// So much of the past is kept of what is followed.
pub(crate) const KEPT_NS: u64 = 60_000_000_000;
/// Intervals kept at the most; a minute of the shortest.
const KEPT_MAX: usize = 620;
/// Why there are no percentiles.
const NOT_CLOSE: &str = "its buckets were not read at the look before: the next one tells";
/// A score goes to what happened now so fast.
const SCORE_WEIGHT: f64 = 0.3;

/// A metric over time.
#[derive(Debug)]
pub(crate) struct Series {
    /// As the process wrote it: what series are known by.
    pub(crate) name: String,
    labels: Vec<(String, String)>,
    /// As a reader sees it, fit for a terminal.
    pub(crate) shown: String,
    pub(crate) unit: Option<Unit>,
    pub(crate) help: String,
    pub(crate) role: Role,
    /// How many series this is the sum of; 1 is itself.
    pub(crate) members: usize,
    pub(crate) last: Option<(u64, Reading)>,
    /// The look before that.
    before: Option<(u64, Reading)>,
    pub(crate) interval: Option<Interval>,
    /// Of the latest interval, while it is followed.
    pub(crate) figures: Option<Figures>,
    /// Newest last, while it is followed.
    pub(crate) past: VecDeque<Past>,
    /// How many values each second it had lately.
    pub(crate) score: f64,
}

/// An interval as pictures show it.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) interval: Interval,
    pub(crate) p99: Option<f64>,
}

impl Series {
    pub(crate) fn new(metric: &Metric) -> Series {
        Series {
            name: metric.name.clone(),
            labels: metric.labels.clone(),
            shown: plain(&values::series(metric)),
            unit: values::unit(&plain(&metric.unit)),
            help: plain(metric.help.trim()),
            role: metric.role,
            members: 1,
            last: None,
            before: None,
            interval: None,
            figures: None,
            past: VecDeque::new(),
            score: 0.0,
        }
    }

    /// All series of one name together.
    pub(crate) fn total(of: &[&Series]) -> Option<Series> {
        let first = of.first()?;
        let shown = format!("{}, all {}", plain(&first.name), of.len());
        let (name, unit, help) = (first.name.clone(), first.unit.clone(), first.help.clone());
        Some(Series {
            name,
            labels: Vec::new(),
            shown,
            unit,
            help,
            role: first.role,
            members: of.len(),
            last: None,
            before: None,
            interval: None,
            figures: None,
            past: VecDeque::new(),
            score: 0.0,
        })
    }

    /// Whether this is the series that is now in its place.
    pub(crate) fn is_of(&self, metric: &Metric) -> bool {
        self.name == metric.name && self.labels == metric.labels
    }

    /// Takes note of another look; what is followed gets figures, and a past.
    pub(crate) fn look(&mut self, at_ns: u64, reading: Reading, is_followed: bool) {
        let interval = match &self.last {
            // Of the many that nobody looks at, distributions are not worked out.
            Some((before_ns, before)) if is_followed => {
                Interval::between((*before_ns, before), (at_ns, &reading))
            }
            Some((before_ns, before)) => Interval::counted((*before_ns, before), (at_ns, &reading)),
            None => Interval { start_ns: at_ns, end_ns: at_ns, change: Change::Unknown(ONE_LOOK) },
        };
        self.score = match (interval.rate(), reading.recorded()) {
            (Some(rate), _) if self.interval.is_some() => {
                self.score + SCORE_WEIGHT * (rate - self.score)
            }
            (Some(rate), _) => rate,
            // After one look nothing is known but what there is in all.
            (None, Some(all)) if self.last.is_none() => all as f64,
            (None, _) => self.score,
        };
        // A first interval is one that had two looks.
        self.interval = self.last.is_some().then_some(interval);
        self.before = self.last.replace((at_ns, reading));
        self.figures = None;
        if is_followed {
            self.follow();
            if let Some(interval) = &self.interval {
                let p99 = self.figures.and_then(|figures| figures.p99).map(|p99| p99.estimate);
                self.past.push_back(Past { interval: interval.clone(), p99 });
            }
        }
        while self.past.front().is_some_and(|past| past.interval.end_ns + KEPT_NS <= at_ns)
            || self.past.len() > KEPT_MAX
        {
            self.past.pop_front();
        }
    }

    /// Works out what a row shows.
    pub(crate) fn follow(&mut self) {
        if self.figures.is_some() || !self.is_histogram() {
            return;
        }
        if let (Some((before_ns, before)), Some((at_ns, now))) = (&self.before, &self.last)
            && self.interval.as_ref().is_some_and(|interval| interval.values().is_none())
        {
            self.interval = Some(Interval::between((*before_ns, before), (*at_ns, now)));
        }
        self.figures = self.interval.as_ref().and_then(Interval::values).map(Figures::of);
    }

    /// Its latest value, if it was read.
    pub(crate) fn value(&self) -> Option<&Value> {
        self.last.as_ref()?.1.value()
    }

    /// How many values it has, if it is a histogram.
    pub(crate) fn recorded(&self) -> Option<u64> {
        self.last.as_ref()?.1.recorded()
    }

    pub(crate) fn histogram(&self) -> Option<&Histogram> {
        self.last.as_ref()?.1.histogram()
    }

    pub(crate) fn is_histogram(&self) -> bool {
        self.recorded().is_some()
    }

    /// Whether its values are lengths of time.
    pub(crate) fn is_timing(&self) -> bool {
        let is_time = self.unit.as_ref().is_some_and(|unit| unit.in_nanoseconds().is_some());
        self.is_histogram() && (self.role == Role::Timing || is_time)
    }

    /// Why nothing is known of the last interval.
    pub(crate) fn why_unknown(&self) -> Option<&'static str> {
        match self.interval.as_ref().map(|interval| &interval.change) {
            None => Some(ONE_LOOK),
            Some(Change::Unknown(why)) => Some(why),
            Some(Change::Counted(_)) if self.is_histogram() => Some(NOT_CLOSE),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::made::{metric, recorded};

    const S: u64 = 1_000_000_000;

    fn of(values: &[u64]) -> Reading {
        Reading::Of(recorded(values))
    }

    #[test]
    fn what_is_followed_has_a_past_of_a_minute() {
        let mut series = Series::new(&metric("took", "ns", recorded(&[5])));
        for at in 0..100 {
            let values: Vec<u64> = (0..=at).collect();
            series.look(at * S, of(&values), true);
        }
        assert_eq!(series.past.len(), 60);
        assert_eq!(series.past.back().and_then(|past| past.interval.rate()), Some(1.0));
        assert!((series.score - 1.0).abs() < 0.01);
        series.look(100 * S, of(&[7]), true);
        assert_eq!(series.why_unknown(), Some(crate::top::interval::BEGAN_ANEW));
    }

    #[test]
    fn what_is_not_followed_is_counted_only() {
        let mut series = Series::new(&metric("took", "ns", recorded(&[5])));
        series.look(0, of(&[5]), false);
        assert_eq!(series.why_unknown(), Some(ONE_LOOK));
        series.look(S, of(&[5, 6]), false);
        assert_eq!((series.figures, series.past.len()), (None, 0));
        series.follow();
        assert_eq!(series.figures.map(|figures| figures.count), Some(1));
    }

    #[test]
    fn names_are_fit_for_a_terminal() {
        let mut metric = metric("a\x1b[2Jb", "ns", recorded(&[]));
        metric.labels = vec![("to".into(), "\r\nx".into())];
        assert_eq!(Series::new(&metric).shown, "a\\u{1b}[2Jb{to=\"\\r\\nx\"}");
    }

    #[test]
    fn what_was_only_counted_says_when_there_is_more() {
        let mut series = Series::new(&metric("took", "ns", recorded(&[5])));
        series.look(0, Reading::Recorded(1), false);
        series.look(S, of(&[5, 6, 7]), true);
        assert_eq!(series.interval.as_ref().and_then(Interval::rate), Some(2.0));
        assert_eq!((series.figures, series.why_unknown()), (None, Some(NOT_CLOSE)));
        series.look(2 * S, of(&[5, 6, 7, 9]), true);
        assert_eq!(series.figures.map(|figures| figures.count), Some(1));
        assert_eq!(series.why_unknown(), None);
    }
}
