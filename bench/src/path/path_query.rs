//! Queries of the data sets in the dialect of each server, and what is right.

use synthetic::Dataset;

use super::answer::{AnswerBounds, grouped};
use super::expected::CountOracle;
use super::server::PathServerKind;
use super::workload::{PathSet, WireFormat};
use crate::store::http::percent_encode;

/// Question of a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PathQuestion {
    /// Histogram of the only series.
    Columns,
    /// Histogram of all series.
    Sum,
    /// Quantile of all series, or of each endpoint.
    Quantile { q: f64, by_endpoint: bool },
    /// Share at or below [`LIMIT_S`].
    Share,
    /// Two quantiles and that share.
    Three,
    /// Values of one host at one moment.
    Count,
}

pub(crate) const LIMIT_S: f64 = 0.0123;

/// A query of a data set; its step is its window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PathQuery {
    pub(crate) set: PathSet,
    pub(crate) question: PathQuestion,
    pub(crate) window_minutes: usize,
    /// Target of its CPU time.
    pub(crate) target_ms: Option<f64>,
    /// Target of the peak resident memory.
    pub(crate) target_mb: Option<f64>,
}

const DAY: usize = 1_440;

impl PathQuery {
    const fn new(set: PathSet, question: PathQuestion, window_minutes: usize) -> PathQuery {
        PathQuery { set, question, window_minutes, target_ms: None, target_mb: None }
    }

    /// 40 series, one number.
    pub(crate) fn light() -> PathQuery {
        PathQuery::new(PathSet::B, PathQuestion::Count, 5)
    }

    /// The query of B with the largest answer.
    pub(crate) fn heaviest() -> PathQuery {
        PathQuery::new(PathSet::B, P99_BY_ENDPOINT, 5)
    }

    const fn within(self, target_ms: f64) -> PathQuery {
        PathQuery { target_ms: Some(target_ms), ..self }
    }

    const fn in_memory(self, target_mb: f64) -> PathQuery {
        PathQuery { target_mb: Some(target_mb), ..self }
    }

    /// Text for the table.
    pub(crate) fn title(&self) -> String {
        let text = match self.question {
            // Its text is that of three others.
            PathQuestion::Three => {
                format!("p99, p99.9 and the share at or below {} ms in one query", LIMIT_S * 1e3)
            }
            _ => format!("`{}`", self.text(PathServerKind::Prometheus, "increase")),
        };
        match self.is_instant() {
            true => format!("{text} at one moment"),
            false => format!("{text} every {} min", self.window_minutes),
        }
    }

    fn is_instant(&self) -> bool {
        self.window_minutes == DAY || self.question == PathQuestion::Count
    }

    /// Text for a server; `over` is the function that yields the growth within a window.
    pub(crate) fn text(&self, server: PathServerKind, over: &str) -> String {
        let bucket = self.set.bucket_label(server);
        let metric = self.set.metric(server);
        let minutes = self.window_minutes;
        let range =
            if self.window_minutes == DAY { "1d".to_owned() } else { format!("{minutes}m") };
        let growth = match bucket {
            Some(_) => format!("{over}({metric}_bucket[{range}])"),
            None => format!("{over}({metric}[{range}])"),
        };
        let sum = |by: &[&str]| {
            let by: Vec<&str> = by.iter().copied().chain(bucket).collect();
            match by.is_empty() {
                true => format!("sum({growth})"),
                false => format!("sum by ({}) ({growth})", by.join(", ")),
            }
        };
        let is_many = self.set != PathSet::A;
        match self.question {
            PathQuestion::Columns => growth,
            PathQuestion::Sum => sum(&[]),
            PathQuestion::Quantile { q, by_endpoint: true } => {
                format!("histogram_quantile({q}, {})", sum(&["endpoint"]))
            }
            PathQuestion::Quantile { q, .. } => {
                let of = if is_many { sum(&[]) } else { growth };
                format!("histogram_quantile({q}, {of})")
            }
            PathQuestion::Share if server.is_victoria() => {
                format!("histogram_share({LIMIT_S}, {growth})")
            }
            PathQuestion::Share => format!("histogram_fraction(-Inf, {LIMIT_S}, {growth})"),
            PathQuestion::Count if server.is_victoria() => {
                format!("sum({over}({metric}_count{{host=\"web-01\"}}[{range}]))")
            }
            PathQuestion::Count => {
                format!("sum(histogram_count({over}({metric}{{host=\"web-01\"}}[{range}])))")
            }
            PathQuestion::Three if server.is_victoria() => format!(
                "(histogram_quantiles(\"statistic\", 0.99, 0.999, {growth}), \
                 label_set(histogram_share({LIMIT_S}, {growth}), \"statistic\", \"below\"))"
            ),
            PathQuestion::Three => format!(
                "histogram_quantiles({growth}, \"statistic\", 0.99, 0.999) or \
                 label_replace(histogram_fraction(-Inf, {LIMIT_S}, {growth}), \"statistic\", \
                 \"below\", \"\", \"\")"
            ),
        }
    }

    /// Path of the request; the first step ends one window after the start of the data.
    pub(crate) fn path(&self, dataset: &Dataset, server: PathServerKind, over: &str) -> String {
        let query = percent_encode(&self.text(server, over));
        let [start, end] =
            [0, dataset.scale().minutes].map(|at| dataset.start_ns(at) / 1_000_000_000);
        // VictoriaMetrics keeps results of earlier queries.
        let cache = if server.is_victoria() { "&nocache=1" } else { "" };
        if self.is_instant() {
            return format!("/api/v1/query?query={query}&time={end}{cache}");
        }
        let step = self.window_minutes as i64 * 60;
        let start = start + step;
        format!("/api/v1/query_range?query={query}&start={start}&end={end}&step={step}{cache}")
    }

    /// What an exact function must answer; `None` if only other servers can say.
    pub(crate) fn expected(&self, counts: &CountOracle, widen: f64) -> Option<AnswerBounds> {
        let minutes = self.window_minutes;
        // Classic buckets are wider than any useful bounds.
        let is_classic = self.set.format() == WireFormat::Classic;
        Some(match self.question {
            PathQuestion::Columns | PathQuestion::Sum => counts.counts(minutes),
            _ if is_classic => return None,
            PathQuestion::Quantile { q, by_endpoint } => {
                counts.quantiles(q, minutes, by_endpoint, widen)
            }
            PathQuestion::Share => counts.shares(LIMIT_S, minutes, widen),
            PathQuestion::Count => return None,
            PathQuestion::Three => {
                let mut all = grouped(counts.shares(LIMIT_S, minutes, widen), "below");
                for (q, name) in [(0.99, "0.99"), (0.999, "0.999")] {
                    all.extend(grouped(counts.quantiles(q, minutes, false, widen), name));
                }
                all
            }
        })
    }
}

const P99_BY_ENDPOINT: PathQuestion = PathQuestion::Quantile { q: 0.99, by_endpoint: true };
const P99: PathQuestion = PathQuestion::Quantile { q: 0.99, by_endpoint: false };
const P99_9: PathQuestion = PathQuestion::Quantile { q: 0.999, by_endpoint: false };

/// All queries, with the targets of the issue that asked for this benchmark.
pub(crate) const QUERIES: [PathQuery; 14] = [
    PathQuery::new(PathSet::A, PathQuestion::Columns, 90).within(30.0),
    PathQuery::new(PathSet::A, P99, 4).within(30.0),
    PathQuery::new(PathSet::A, PathQuestion::Share, 4).within(30.0),
    PathQuery::new(PathSet::A, PathQuestion::Three, 4).within(40.0),
    PathQuery::new(PathSet::B, P99_9, 5).within(500.0).in_memory(300.0),
    PathQuery::new(PathSet::B, PathQuestion::Sum, 15).within(500.0),
    PathQuery::new(PathSet::B, P99_BY_ENDPOINT, 5).within(700.0),
    PathQuery::new(PathSet::B, PathQuestion::Sum, DAY).within(60.0),
    PathQuery::new(PathSet::BClassic, P99, 5),
    PathQuery::new(PathSet::BClassic, P99_BY_ENDPOINT, 5),
    PathQuery::new(PathSet::BClassic, PathQuestion::Sum, 15),
    PathQuery::new(PathSet::BOtlp, P99_9, 5).within(500.0).in_memory(300.0),
    PathQuery::new(PathSet::BOtlp, P99_BY_ENDPOINT, 5).within(700.0),
    PathQuery::new(PathSet::BOtlp, PathQuestion::Sum, 15).within(500.0),
];

impl PathSet {
    /// Label of the buckets where a histogram is several counters.
    fn bucket_label(self, server: PathServerKind) -> Option<&'static str> {
        match self.format() {
            WireFormat::Classic => Some("le"),
            _ if server.is_victoria() => Some("vmrange"),
            _ => None,
        }
    }

    /// Name of the metric, which Prometheus' translation of OTLP ends with the unit.
    fn metric(self, server: PathServerKind) -> &'static str {
        match self {
            PathSet::A => "disk_io_latency",
            PathSet::BOtlp if !server.is_victoria() => "http_request_duration_seconds",
            _ => "http_request_duration",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: PathQuery, server: PathServerKind, expected: &str) {
        assert_eq!(query.text(server, "increase"), expected);
    }

    #[test]
    fn every_server_is_asked_the_same_in_its_dialect() {
        use PathServerKind::{Prometheus, Topdeck, VictoriaOwn};
        let by_endpoint = PathQuery::new(PathSet::B, P99_BY_ENDPOINT, 5);
        let native =
            "histogram_quantile(0.99, sum by (endpoint) (increase(http_request_duration[5m])))";
        check(by_endpoint, Topdeck, native);
        check(by_endpoint, Prometheus, native);
        check(
            by_endpoint,
            VictoriaOwn,
            "histogram_quantile(0.99, sum by (endpoint, vmrange) \
             (increase(http_request_duration_bucket[5m])))",
        );
        check(
            PathQuery::new(PathSet::BClassic, PathQuestion::Sum, 15),
            Topdeck,
            "sum by (le) (increase(http_request_duration_bucket[15m]))",
        );
        check(
            PathQuery::new(PathSet::A, PathQuestion::Share, 4),
            VictoriaOwn,
            "histogram_share(0.0123, increase(disk_io_latency_bucket[4m]))",
        );
    }
}
