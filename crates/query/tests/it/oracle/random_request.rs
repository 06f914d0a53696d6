//! Random queries whose results a reference implementation can compute.

use std::fmt;

use store::{MINUTE, SECOND};

use super::random_queries::Splitmix64;
use super::raw::{BEGIN, LENGTH, RawSeries, TagMap};

/// Random query.
#[derive(Clone, Debug)]
pub(crate) enum RandomQuery {
    ExactIncrease { word: &'static str, is_rate: bool, pick: SeriesPick },
    RangeStatistic { statistic: RangeStatistic, pick: SeriesPick },
    Rate { is_rate: bool, pick: SeriesPick },
    Statistic { statistic: HistogramStatistic, input: Box<RandomQuery> },
    Fold { fold: AggregateKind, by: GroupBy, input: Box<RandomQuery> },
    Running(Box<RandomQuery>),
    Binary { operator: char, left: Box<RandomQuery>, right: Box<RandomQuery> },
    Scaled { operator: char, input: Box<RandomQuery>, number: f64 },
}

/// Series, and the window before each step.
#[derive(Clone, Debug)]
pub(crate) struct SeriesPick {
    pub(crate) name: &'static str,
    pub(crate) condition: &'static str,
    pub(crate) range: i64,
    pub(crate) offset: i64,
    pub(crate) at: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum RangeStatistic {
    Avg,
    Sum,
    Count,
    Min,
    Max,
    First,
    Last,
    Stddev,
    Stdvar,
    Changes,
    Median,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum HistogramStatistic {
    Count,
    Sum,
    Avg,
    Stddev,
    Stdvar,
    Max,
    Min,
    /// Percent.
    Quantile(u8),
    Fraction(f64, f64),
    Between(f64, f64),
    Above(f64),
    Below(f64),
    Share(f64),
    UsersAffected(f64, f64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum AggregateKind {
    Sum,
    Avg,
    Max,
    Min,
    Count,
}

#[derive(Clone, Debug)]
pub(crate) struct GroupBy {
    is_without: bool,
    label: Option<&'static str>,
}

impl GroupBy {
    pub(crate) fn tags(&self, tags: &TagMap) -> TagMap {
        let mut tags = tags.clone();
        tags.retain(|name, _| (self.label == Some(name)) != self.is_without);
        tags
    }
}

impl SeriesPick {
    pub(crate) fn picks(&self, series: &RawSeries) -> bool {
        let tag = |name: &str| series.tags.get(name).map_or("", |value| value);
        let is_so = match self.condition {
            "" => true,
            "host=\"a\"" => tag("host") == "a",
            "host!=\"a\"" => tag("host") != "a",
            "zone=~\"x|y\"" => matches!(tag("zone"), "x" | "y"),
            "zone=\"\"" => tag("zone").is_empty(),
            other => panic!("BUG: {other:?}"),
        };
        series.series.name() == self.name && is_so
    }
}

fn pick_one<T: Copy>(random: &mut Splitmix64, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

fn pick(random: &mut Splitmix64, name: &'static str) -> SeriesPick {
    let condition = ["", "", "", "host=\"a\"", "host!=\"a\"", "zone=~\"x|y\"", "zone=\"\""];
    let range =
        [MINUTE, 5 * MINUTE, 10 * MINUTE, 90 * SECOND, 7 * SECOND, 20 * MINUTE, 61_001_000_000];
    let offset = [0, 0, 0, 0, MINUTE, -5 * MINUTE, 13 * SECOND];
    let at = match random.below(8) {
        0 => Some(BEGIN + random.below(90) as i64 * MINUTE),
        _ => None,
    };
    let (condition, range) = (pick_one(random, &condition), pick_one(random, &range));
    SeriesPick { name, condition, range, offset: pick_one(random, &offset), at }
}

impl RandomQuery {
    pub(crate) fn new(random: &mut Splitmix64, depth: u32) -> RandomQuery {
        match random.below(10) {
            0 if depth > 0 => {
                RandomQuery::Running(Box::new(RandomQuery::numbers(random, depth - 1)))
            }
            1 if depth > 0 => RandomQuery::distributions(random),
            _ => RandomQuery::numbers(random, depth),
        }
    }

    fn numbers(random: &mut Splitmix64, depth: u32) -> RandomQuery {
        let simple = |random: &mut Splitmix64| match random.below(4) {
            0 => {
                use RangeStatistic::*;
                let all = [Avg, Sum, Count, Min, Max, First, Last, Stddev, Stdvar, Changes, Median];
                RandomQuery::RangeStatistic {
                    statistic: pick_one(random, &all),
                    pick: pick(random, "load"),
                }
            }
            1 => {
                let name = pick_one(random, &["bytes_total", "bytes_total", "requests"]);
                RandomQuery::Rate { is_rate: random.below(2) == 0, pick: pick(random, name) }
            }
            2 => {
                let name = pick_one(random, &["bytes_total", "requests"]);
                RandomQuery::exact_increase(random, name)
            }
            _ => {
                let of = Box::new(RandomQuery::distributions(random));
                RandomQuery::Statistic { statistic: HistogramStatistic::new(random), input: of }
            }
        };
        if depth == 0 {
            return simple(random);
        }
        match random.below(6) {
            0 | 1 => {
                let fold = pick_one(
                    random,
                    &[
                        AggregateKind::Sum,
                        AggregateKind::Avg,
                        AggregateKind::Max,
                        AggregateKind::Min,
                        AggregateKind::Count,
                    ],
                );
                let of = Box::new(RandomQuery::numbers(random, depth - 1));
                RandomQuery::Fold { fold, by: GroupBy::new(random), input: of }
            }
            2 => RandomQuery::Binary {
                operator: pick_one(random, &['+', '-', '*', '/']),
                left: Box::new(RandomQuery::numbers(random, depth - 1)),
                right: Box::new(RandomQuery::numbers(random, depth - 1)),
            },
            3 => RandomQuery::Scaled {
                operator: pick_one(random, &['+', '-', '*', '/']),
                input: Box::new(RandomQuery::numbers(random, depth - 1)),
                number: pick_one(random, &[2.0, -3.5, 1000.0, 0.001]),
            },
            4 => {
                let of = Box::new(RandomQuery::distributions(random));
                RandomQuery::Statistic { statistic: HistogramStatistic::new(random), input: of }
            }
            _ => simple(random),
        }
    }

    fn exact_increase(random: &mut Splitmix64, name: &'static str) -> RandomQuery {
        let words: &[&str] = match name {
            "mixed" => &["exact_increase"],
            "latency" | "requests" => &["exact_increase", "sum_over_time", "exact_rate"],
            _ => &["exact_increase", "exact_rate"],
        };
        let word = pick_one(random, words);
        let mut pick = pick(random, name);
        // If buckets of other schemes must be moved, bounds do not hold.
        if name == "mixed" {
            pick.at = None;
        }
        RandomQuery::ExactIncrease { word, is_rate: word == "exact_rate", pick }
    }

    fn distributions(random: &mut Splitmix64) -> RandomQuery {
        let name = pick_one(random, &["latency", "latency", "mixed", "waited"]);
        let happened = RandomQuery::exact_increase(random, name);
        match random.below(2) {
            0 => happened,
            _ => RandomQuery::Fold {
                fold: AggregateKind::Sum,
                by: GroupBy::new(random),
                input: Box::new(happened),
            },
        }
    }

    /// Whether recorded distributions are merged with minimum and maximum: for exact reads of
    /// deltas.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            RandomQuery::ExactIncrease { word, pick, .. } => {
                let is_exact = *word == "exact_increase" || pick.at.is_none();
                matches!(pick.name, "latency" | "mixed") && is_exact
            }
            RandomQuery::Fold { input: of, .. } => of.is_whole(),
            _ => false,
        }
    }
}

impl GroupBy {
    fn new(random: &mut Splitmix64) -> GroupBy {
        let label = pick_one(random, &[None, Some("host"), Some("zone")]);
        GroupBy { is_without: random.below(3) == 0, label }
    }
}

impl HistogramStatistic {
    fn new(random: &mut Splitmix64) -> HistogramStatistic {
        use HistogramStatistic::*;
        let limit = |random: &mut Splitmix64| {
            pick_one(random, &[0.0, 0.1, 0.25, -0.5, 1e-4, 0.001, 0.0123, 1.0, 2.0, 4.0, 100.0])
        };
        match random.below(14) {
            0 => Count,
            1 => Sum,
            2 => Avg,
            3 => Stddev,
            4 => Stdvar,
            5 => Max,
            6 => Min,
            7 => Fraction(limit(random), limit(random)),
            8 => Between(limit(random), limit(random)),
            9 => Above(limit(random)),
            10 => Below(limit(random)),
            11 => Share(limit(random)),
            12 => UsersAffected(limit(random), pick_one(random, &[1.0, 1000.0])),
            _ => Quantile(pick_one(random, &[0, 1, 10, 25, 50, 90, 95, 99, 100])),
        }
    }
}

/// Start, end and step; the step is 0 for an instant query.
pub(crate) fn times(random: &mut Splitmix64) -> (i64, i64, i64) {
    let start = BEGIN - 5 * MINUTE + random.below(80) as i64 * MINUTE;
    let start = start + pick_one(random, &[0, 0, 1, -1, 13 * SECOND, 1_000_000]);
    let step = pick_one(
        random,
        &[0, MINUTE, 5 * MINUTE, 15 * SECOND, 17 * SECOND, 61_000_000_001, 90 * MINUTE],
    );
    let count = random.below(30) as i64;
    (start, (start + step * count).min(BEGIN + 2 * LENGTH), step)
}

impl fmt::Display for SeriesPick {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{{{}}}[{}ms]", self.name, self.condition, self.range / 1_000_000)?;
        if self.offset != 0 {
            write!(out, " offset {}ms", self.offset / 1_000_000)?;
        }
        match self.at {
            Some(at) => write!(out, " @ {}", at / SECOND),
            None => Ok(()),
        }
    }
}

impl fmt::Display for GroupBy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_without { "without" } else { "by" };
        write!(out, "{word} ({})", self.label.unwrap_or(""))
    }
}

impl fmt::Display for RandomQuery {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RandomQuery::ExactIncrease { word, pick, .. } => write!(out, "{word}({pick})"),
            RandomQuery::RangeStatistic { statistic: RangeStatistic::Median, pick } => {
                write!(out, "quantile_over_time(0.5, {pick})")
            }
            RandomQuery::RangeStatistic { statistic: RangeStatistic::Changes, pick } => {
                write!(out, "changes({pick})")
            }
            RandomQuery::RangeStatistic { statistic: over, pick } => {
                write!(out, "{}_over_time({pick})", format!("{over:?}").to_lowercase())
            }
            RandomQuery::Rate { is_rate, pick } => {
                write!(out, "{}({pick})", if *is_rate { "rate" } else { "increase" })
            }
            RandomQuery::Fold { fold, by, input: of } => {
                write!(out, "{} {by} ({of})", format!("{fold:?}").to_lowercase())
            }
            RandomQuery::Running(of) => write!(out, "running_total({of})"),
            RandomQuery::Binary { operator, left, right } => {
                write!(out, "({left} {operator} {right})")
            }
            RandomQuery::Scaled { operator, input: of, number } => {
                write!(out, "({of} {operator} {number})")
            }
            RandomQuery::Statistic { statistic, input: of } => match statistic {
                HistogramStatistic::Quantile(percent) => {
                    write!(out, "histogram_quantile({}, {of})", f64::from(*percent) / 100.0)
                }
                HistogramStatistic::Fraction(a, b) => {
                    write!(out, "histogram_fraction({a}, {b}, {of})")
                }
                HistogramStatistic::Between(a, b) => {
                    write!(out, "histogram_count_between({a}, {b}, {of})")
                }
                HistogramStatistic::Above(a) => write!(out, "histogram_count_above({a}, {of})"),
                HistogramStatistic::Below(a) => write!(out, "histogram_count_below({a}, {of})"),
                HistogramStatistic::Share(a) => {
                    write!(out, "histogram_inverse_quantile({a}, {of})")
                }
                HistogramStatistic::UsersAffected(a, n) => {
                    write!(out, "users_affected({a}, {n}, {of})")
                }
                plain => write!(out, "histogram_{}({of})", format!("{plain:?}").to_lowercase()),
            },
        }
    }
}
