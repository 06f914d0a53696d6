//! Rejected series: counted, and reported as gaps and log lines at a limited rate.
//!
//! A sender that gets an error response may retry forever. So gaps and log lines are aggregated:
//! the rejections of one producer for one reason are reported 10 s after the previous report, then
//! after twice the interval each time, up to 1 h.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use model::Gap;
use store::CardinalityError;

use crate::meter::{EventCounter, Meter};

/// Maximum number of distinct producer and reason pairs at a time; further ones are aggregated.
const KINDS_MAX: usize = 64;
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
const REPORT_INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// Names of the limits, as the label values of the metric.
const LIMITS: [&str; 4] =
    ["max_series", "max_producer_series", "max_metric_series", "max_label_values"];

/// Rejection of a series: limit and reason.
#[derive(Clone, Debug)]
pub(crate) struct Rejection {
    limit: &'static str,
    /// Reason for gaps: without the series, which would make each reason distinct.
    reason: String,
    /// Message for the sender.
    pub(crate) message: String,
}

impl Rejection {
    /// The rejection of a series; `None` if no limit is the cause.
    pub(crate) fn from_index_error(refused: &CardinalityError, metric: &str) -> Option<Rejection> {
        let limit = refused.limit()?;
        let what = match refused {
            CardinalityError::ValuesPerLabel { label, .. } => format!("values of label {label}"),
            _ => "series".to_owned(),
        };
        let reason = format!("new {what} of metric {metric} rejected: limit {limit} reached");
        Some(Rejection { limit, reason, message: refused.to_string() })
    }

    /// The gap that replaces rejected samples.
    pub(crate) fn gap(&self, producer: u64, times: (i64, i64), samples: u64) -> Gap {
        let reason = self.reason.clone();
        let (start, end) = times;
        Gap { start, end, producer: Some(producer), lost: Some(samples), reason }
    }
}

/// Rejections since the start of the process.
#[derive(Debug)]
pub(crate) struct Rejections {
    counters: [(&'static str, EventCounter); LIMITS.len()],
    by_reason: Mutex<BTreeMap<(Option<u64>, String), RejectionStats>>,
}

/// Rejections of one producer for one reason.
#[derive(Debug)]
struct RejectionStats {
    samples: u64,
    start: i64,
    end: i64,
    /// Time of the next report.
    next_report: Instant,
    report_interval: Duration,
}

impl Rejections {
    pub(crate) fn new(meter: &Arc<Meter>) -> Rejections {
        let counter = |limit| {
            let about = "Samples of new series rejected, by the limit reached";
            let name = "topdeck_intake_samples_rejected_total";
            (limit, meter.counter(name, about, &[("reason", limit)]))
        };
        Rejections { counters: LIMITS.map(counter), by_reason: Mutex::default() }
    }

    /// Counts rejected samples.
    pub(crate) fn count(&self, rejection: &Rejection, samples: u64) {
        if let Some((_, counter)) = self.counters.iter().find(|it| it.0 == rejection.limit) {
            counter.add(samples);
        }
    }

    /// Counts a rejected sample of an interval, and adds it to the next gap.
    pub(crate) fn add(&self, producer: u64, rejection: &Rejection, (start, end): (i64, i64)) {
        self.count(rejection, 1);
        let mut kinds = self.by_reason.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (Some(producer), rejection.reason.clone());
        if kinds.len() >= KINDS_MAX && !kinds.contains_key(&key) {
            key = (None, format!("new series rejected: limit {} reached", rejection.limit));
        }
        let kind = kinds.entry(key).or_insert_with(|| RejectionStats {
            samples: 0,
            start: i64::MAX,
            end: i64::MIN,
            next_report: Instant::now(),
            report_interval: REPORT_INTERVAL,
        });
        kind.samples = kind.samples.saturating_add(1);
        kind.start = kind.start.min(start);
        kind.end = kind.end.max(end);
    }

    /// Returns the due gaps; with `all`, also those that are not due yet.
    pub(crate) fn take_due_gaps(&self, now: Instant, all: bool) -> Vec<Gap> {
        let mut kinds = self.by_reason.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gaps = Vec::new();
        kinds.retain(|(producer, reason), kind| {
            if kind.samples == 0 {
                // No rejection for a whole interval: the entry is removed.
                return kind.next_report > now;
            }
            if all || kind.next_report <= now {
                gaps.push(Gap {
                    start: kind.start,
                    end: kind.end,
                    producer: *producer,
                    lost: Some(kind.samples),
                    reason: reason.clone(),
                });
                (kind.samples, kind.start, kind.end) = (0, i64::MAX, i64::MIN);
                kind.next_report = now.checked_add(kind.report_interval).unwrap_or(now);
                kind.report_interval =
                    kind.report_interval.saturating_mul(2).min(REPORT_INTERVAL_MAX);
            }
            true
        });
        gaps
    }

    /// Adds gaps that could not be written to the next report.
    pub(crate) fn requeue_gaps(&self, gaps: Vec<Gap>) {
        let mut kinds = self.by_reason.lock().unwrap_or_else(PoisonError::into_inner);
        for gap in gaps {
            if let Some(kind) = kinds.get_mut(&(gap.producer, gap.reason)) {
                kind.samples = kind.samples.saturating_add(gap.lost.unwrap_or(0));
                (kind.start, kind.end) = (kind.start.min(gap.start), kind.end.max(gap.end));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection(metric: &str) -> Rejection {
        let (series, found, max) = (format!("{metric}{{a=\"b\"}}"), 4, 3);
        Rejection::from_index_error(
            &CardinalityError::SeriesPerProducer { series, found, max },
            metric,
        )
        .unwrap()
    }

    #[test]
    fn repeated_rejections_are_reported_less_often() {
        let rejections = Rejections::new(&Arc::default());
        let began = Instant::now();
        let mut told = 0;
        for second in 0..36_000 {
            rejections.add(7, &rejection("m"), (second, second + 1));
            let gaps = rejections.take_due_gaps(began + Duration::from_secs(second as u64), false);
            told += gaps.len();
            for gap in gaps {
                let reason = "new series of metric m rejected: limit max_producer_series reached";
                assert_eq!((gap.producer, gap.reason.as_str()), (Some(7), reason));
            }
        }
        assert!((10..30).contains(&told), "{told} in ten hours");
        let gaps = rejections.take_due_gaps(began, true);
        assert_eq!((gaps.len(), gaps[0].end), (1, 36_000));
    }

    #[test]
    fn rejected_samples_are_reported_up_to_the_limit() {
        let rejections = Rejections::new(&Arc::default());
        for n in 0..1_000 {
            rejections.add(n, &rejection(&format!("m{n}")), (n as i64, n as i64 + 1));
        }
        let gaps = rejections.take_due_gaps(Instant::now(), true);
        assert_eq!(gaps.len(), KINDS_MAX + 1);
        assert_eq!(gaps.iter().map(|gap| gap.lost.unwrap()).sum::<u64>(), 1_000);
        rejections.requeue_gaps(gaps);
        let gaps = rejections.take_due_gaps(Instant::now(), true);
        assert_eq!(gaps.iter().map(|gap| gap.lost.unwrap()).sum::<u64>(), 1_000);
    }
}
