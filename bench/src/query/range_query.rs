//! Query texts in the language of each contender.

use synthetic::{Dataset, MINUTE_NS, THRESHOLD_NS};

use super::accuracy::EDGE_NS;
use crate::store::StoreWork;

/// Keys and titles of the queries whose cost is reported.
pub(super) const QUERIES: [(&str, &str); 7] = [
    ("heat-base", "A: the week as columns of 90 min, from the base"),
    ("heat", "A: the same from rollups"),
    ("p99", "A: p99 every 4 min"),
    ("p99.9", "A: p99.9 every 4 min"),
    ("below", "A: share at or below 12.3 ms every 4 min"),
    ("three", "A: these three in one query"),
    ("b-p99.9", "B: p99.9 of all series every 5 min"),
];

/// A range query.
pub(crate) struct RangeQuery {
    pub(crate) text: String,
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    pub(crate) step_ns: i64,
}

/// Query language. A window is as long as a step; PromQL sets it by the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// PromQL of topdeck; values are nanoseconds.
    PromQl,
    /// CAQL of topdeck; values are nanoseconds, shares are percentages.
    Caql,
    /// PromQL of Prometheus; values are seconds. `over` is the function that yields the increase
    /// within a window.
    Prometheus { over: &'static str },
}

const A: &str = "disk_io_latency";
const B: &str = "http_request_duration";

impl Dialect {
    /// Factor from its quantiles to nanoseconds.
    pub(super) fn nanoseconds(self) -> f64 {
        match self {
            Dialect::PromQl | Dialect::Caql => 1.0,
            Dialect::Prometheus { .. } => 1e9,
        }
    }

    /// Factor from its shares to 0 to 1.
    pub(super) fn parts(self) -> f64 {
        if self == Dialect::Caql { 0.01 } else { 1.0 }
    }

    pub(super) fn heatmap(self) -> String {
        match self {
            Dialect::Caql => format!("find:histogram(\"{A}\")|histogram:merge()"),
            _ => format!("sum({})", self.window(A, 90)),
        }
    }

    pub(super) fn quantile(self, q: f64, minutes: i64) -> String {
        match self {
            Dialect::Caql => {
                format!("find:histogram(\"{A}\")|histogram:percentile({})", percentile(q))
            }
            _ => format!("histogram_quantile({q}, {})", self.window(A, minutes)),
        }
    }

    pub(super) fn count_below(self) -> String {
        let limit = self.limit(THRESHOLD_NS);
        match self {
            Dialect::Caql => {
                format!("find:histogram(\"{A}\")|histogram:inverse_percentile({limit})")
            }
            _ => format!("histogram_fraction(0, {limit}, {})", self.window(A, 4)),
        }
    }

    pub(super) fn three_quantiles(self) -> String {
        let limit = self.limit(THRESHOLD_NS);
        match self {
            Dialect::Caql => format!(
                "pass{{ find:histogram(\"{A}\")|histogram:percentile(99, 99.9), \
                 find:histogram(\"{A}\")|histogram:inverse_percentile({limit}) }}"
            ),
            _ => {
                let window = self.window(A, 4);
                format!(
                    "histogram_quantiles({window}, \"statistic\", 0.99, 0.999) or \
                     label_replace(histogram_fraction(0, {limit}, {window}), \"statistic\", \
                     \"below\", \"\", \"\")"
                )
            }
        }
    }

    pub(super) fn count_above(self, is_edge: bool) -> String {
        let limit = self.limit(if is_edge { EDGE_NS } else { THRESHOLD_NS });
        let window = self.window(A, 4);
        match self {
            Dialect::PromQl => format!("histogram_count_above({limit}, {window})"),
            Dialect::Caql => format!("find:histogram(\"{A}\")|histogram:count_above({limit})"),
            Dialect::Prometheus { .. } => {
                format!("histogram_fraction({limit}, +Inf, {window}) * histogram_count({window})")
            }
        }
    }

    /// Counts of the series of some endpoints, or of all.
    pub(super) fn counts_of_b(self, endpoints: Option<&str>) -> String {
        match self {
            Dialect::Caql => format!(
                "find:histogram(\"{B}\", limit=3000)|histogram:merge()|histogram:percentile(99.9)"
            ),
            _ => {
                let selector = match endpoints {
                    Some(endpoints) => format!("{B}{{endpoint=~\"{endpoints}\"}}"),
                    None => B.to_owned(),
                };
                format!("histogram_quantile(0.999, sum({}))", self.window(&selector, 5))
            }
        }
    }

    fn window(self, selector: &str, minutes: i64) -> String {
        let over = match self {
            Dialect::Prometheus { over } => over,
            _ => "exact_increase",
        };
        format!("{over}({selector}[{minutes}m])")
    }

    fn limit(self, ns: u64) -> String {
        (ns as f64 / self.nanoseconds()).to_string()
    }
}

/// Formats a quantile as a percentile.
fn percentile(q: f64) -> f64 {
    (q * 1e6).round() / 1e4
}

/// A query over a whole data set, with a window as long as the step.
pub(super) fn over_dataset(dataset: &Dataset, minutes: i64, text: String) -> RangeQuery {
    let length = dataset.scale().minutes as i64 / minutes * minutes;
    let start_ns = dataset.start_ns(0);
    RangeQuery {
        text,
        start_ns,
        end_ns: start_ns + length * MINUTE_NS,
        step_ns: minutes * MINUTE_NS,
    }
}

/// The parameter that a sweep varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// Days of A.
    Span,
    /// Series of B.
    Series,
    /// Minutes of a step, over all of A.
    Step,
}

impl Sweep {
    pub(super) const ALL: [Sweep; 3] = [Sweep::Span, Sweep::Series, Sweep::Step];

    pub(super) fn description(self) -> &'static str {
        match self {
            Sweep::Span => "days of A, p99 every 4 min",
            Sweep::Series => "series of B, p99.9 every 5 min",
            Sweep::Step => "step, p99 over all of A",
        }
    }

    /// Formats a size.
    pub(super) fn size(self, size: f64) -> String {
        match self {
            Sweep::Step if size >= 60.0 => format!("{} h", size / 60.0),
            Sweep::Step => format!("{size} min"),
            Sweep::Series => size.to_string(),
            Sweep::Span => format!("{} d", (size * 100.0).round() / 100.0),
        }
    }
}

/// Queries of A of increasing size.
pub(super) fn sweeps_a(work: &StoreWork, dialect: Dialect) -> Vec<(Sweep, f64, RangeQuery)> {
    let dataset = &work.a;
    let mut all = Vec::new();
    let minutes = dataset.scale().minutes as i64;
    for sevenths in [1, 2, 4, 7] {
        let question = over_dataset(dataset, 4, dialect.quantile(0.99, 4));
        let length = minutes * sevenths / 7 / 4 * 4;
        let end_ns = question.start_ns + length * MINUTE_NS;
        let question = RangeQuery { end_ns, ..question };
        all.push((Sweep::Span, length as f64 / 1_440.0, question));
    }
    for step in [1, 4, 15, 60, 180, 360].into_iter().filter(|step| *step <= minutes) {
        all.push((
            Sweep::Step,
            step as f64,
            over_dataset(dataset, step, dialect.quantile(0.99, step)),
        ));
    }
    all
}

/// Number of endpoints of B; its series use them in turn.
const ENDPOINTS: usize = 40;

/// Queries of B of increasing size.
pub(super) fn sweeps_b(work: &StoreWork, dialect: Dialect) -> Vec<(Sweep, f64, RangeQuery)> {
    let dataset = &work.b;
    let endpoint = |at: usize| {
        let labels = dataset.series(at).labels;
        labels
            .into_iter()
            .find(|(name, _)| *name == "endpoint")
            .map(|(_, value)| value)
            .unwrap_or_default()
    };
    let of = |some: usize| {
        let endpoints: Vec<String> = (0..some).map(endpoint).collect();
        let text = dialect.counts_of_b(Some(&endpoints.join("|")));
        let series = (0..dataset.scale().series).filter(|at| at % ENDPOINTS < some).count();
        (Sweep::Series, series as f64, over_dataset(dataset, 5, text))
    };
    [5, 10, 20, ENDPOINTS].map(of).into()
}
