//! Random questions whose answers can be worked out the slow way.

use std::fmt;

use store::{MINUTE, SECOND};

use super::anything::Random;
use super::raw::{BEGIN, LENGTH, RawSeries, Tags};

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Happened { word: &'static str, is_rate: bool, pick: Pick },
    Over { over: Over, pick: Pick },
    Rate { is_rate: bool, pick: Pick },
    Statistic { statistic: Statistic, of: Box<Ask> },
    Fold { fold: Fold, by: By, of: Box<Ask> },
    Running(Box<Ask>),
    Binary { operator: char, left: Box<Ask>, right: Box<Ask> },
    Scaled { operator: char, of: Box<Ask>, number: f64 },
}

/// Which series, and the stretch of time before each step.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub(crate) name: &'static str,
    pub(crate) condition: &'static str,
    pub(crate) range: i64,
    pub(crate) offset: i64,
    pub(crate) at: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Over {
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
pub(crate) enum Statistic {
    Count,
    Sum,
    Avg,
    Stddev,
    Stdvar,
    Max,
    Min,
    /// In percent.
    Quantile(u8),
    Fraction(f64, f64),
    Between(f64, f64),
    Above(f64),
    Below(f64),
    Share(f64),
    Harmed(f64, f64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fold {
    Sum,
    Avg,
    Max,
    Min,
    Count,
}

#[derive(Clone, Debug)]
pub(crate) struct By {
    is_without: bool,
    label: Option<&'static str>,
}

impl By {
    pub(crate) fn tags(&self, tags: &Tags) -> Tags {
        let mut tags = tags.clone();
        tags.retain(|name, _| (self.label == Some(name)) != self.is_without);
        tags
    }
}

impl Pick {
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

fn of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

fn pick(random: &mut Random, name: &'static str) -> Pick {
    let condition = ["", "", "", "host=\"a\"", "host!=\"a\"", "zone=~\"x|y\"", "zone=\"\""];
    let range =
        [MINUTE, 5 * MINUTE, 10 * MINUTE, 90 * SECOND, 7 * SECOND, 20 * MINUTE, 61_001_000_000];
    let offset = [0, 0, 0, 0, MINUTE, -5 * MINUTE, 13 * SECOND];
    let at = match random.below(8) {
        0 => Some(BEGIN + random.below(90) as i64 * MINUTE),
        _ => None,
    };
    let (condition, range) = (of(random, &condition), of(random, &range));
    Pick { name, condition, range, offset: of(random, &offset), at }
}

impl Ask {
    pub(crate) fn new(random: &mut Random, depth: u32) -> Ask {
        match random.below(10) {
            0 if depth > 0 => Ask::Running(Box::new(Ask::numbers(random, depth - 1))),
            1 if depth > 0 => Ask::distributions(random),
            _ => Ask::numbers(random, depth),
        }
    }

    fn numbers(random: &mut Random, depth: u32) -> Ask {
        let simple = |random: &mut Random| match random.below(4) {
            0 => {
                use Over::*;
                let all = [Avg, Sum, Count, Min, Max, First, Last, Stddev, Stdvar, Changes, Median];
                Ask::Over { over: of(random, &all), pick: pick(random, "load") }
            }
            1 => {
                let name = of(random, &["bytes_total", "bytes_total", "requests"]);
                Ask::Rate { is_rate: random.below(2) == 0, pick: pick(random, name) }
            }
            2 => {
                let name = of(random, &["bytes_total", "requests"]);
                Ask::happened(random, name)
            }
            _ => {
                let of = Box::new(Ask::distributions(random));
                Ask::Statistic { statistic: Statistic::new(random), of }
            }
        };
        if depth == 0 {
            return simple(random);
        }
        match random.below(6) {
            0 | 1 => {
                let fold = of(random, &[Fold::Sum, Fold::Avg, Fold::Max, Fold::Min, Fold::Count]);
                let of = Box::new(Ask::numbers(random, depth - 1));
                Ask::Fold { fold, by: By::new(random), of }
            }
            2 => Ask::Binary {
                operator: of(random, &['+', '-', '*', '/']),
                left: Box::new(Ask::numbers(random, depth - 1)),
                right: Box::new(Ask::numbers(random, depth - 1)),
            },
            3 => Ask::Scaled {
                operator: of(random, &['+', '-', '*', '/']),
                of: Box::new(Ask::numbers(random, depth - 1)),
                number: of(random, &[2.0, -3.5, 1000.0, 0.001]),
            },
            4 => {
                let of = Box::new(Ask::distributions(random));
                Ask::Statistic { statistic: Statistic::new(random), of }
            }
            _ => simple(random),
        }
    }

    fn happened(random: &mut Random, name: &'static str) -> Ask {
        let words: &[&str] = match name {
            "mixed" => &["exact_increase"],
            "latency" | "requests" => &["exact_increase", "sum_over_time", "exact_rate"],
            _ => &["exact_increase", "exact_rate"],
        };
        let word = of(random, words);
        let mut pick = pick(random, name);
        // Where buckets of other families would have to be moved, bounds do not hold.
        if name == "mixed" {
            pick.at = None;
        }
        Ask::Happened { word, is_rate: word == "exact_rate", pick }
    }

    fn distributions(random: &mut Random) -> Ask {
        let name = of(random, &["latency", "latency", "mixed", "waited"]);
        let happened = Ask::happened(random, name);
        match random.below(2) {
            0 => happened,
            _ => Ask::Fold { fold: Fold::Sum, by: By::new(random), of: Box::new(happened) },
        }
    }

    /// Whether values are put together as they were measured, extremes and all: of deltas, read exactly.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Ask::Happened { word, pick, .. } => {
                let is_exact = *word == "exact_increase" || pick.at.is_none();
                matches!(pick.name, "latency" | "mixed") && is_exact
            }
            Ask::Fold { of, .. } => of.is_whole(),
            _ => false,
        }
    }
}

impl By {
    fn new(random: &mut Random) -> By {
        let label = of(random, &[None, Some("host"), Some("zone")]);
        By { is_without: random.below(3) == 0, label }
    }
}

impl Statistic {
    fn new(random: &mut Random) -> Statistic {
        use Statistic::*;
        let limit = |random: &mut Random| {
            of(random, &[0.0, 0.1, 0.25, -0.5, 1e-4, 0.001, 0.0123, 1.0, 2.0, 4.0, 100.0])
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
            12 => Harmed(limit(random), of(random, &[1.0, 1000.0])),
            _ => Quantile(of(random, &[0, 1, 10, 25, 50, 90, 95, 99, 100])),
        }
    }
}

/// Moments that are asked about: start, end, step; of one moment the step is 0.
pub(crate) fn times(random: &mut Random) -> (i64, i64, i64) {
    let start = BEGIN - 5 * MINUTE + random.below(80) as i64 * MINUTE;
    let start = start + of(random, &[0, 0, 1, -1, 13 * SECOND, 1_000_000]);
    let step =
        of(random, &[0, MINUTE, 5 * MINUTE, 15 * SECOND, 17 * SECOND, 61_000_000_001, 90 * MINUTE]);
    let count = random.below(30) as i64;
    (start, (start + step * count).min(BEGIN + 2 * LENGTH), step)
}

impl fmt::Display for Pick {
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

impl fmt::Display for By {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_without { "without" } else { "by" };
        write!(out, "{word} ({})", self.label.unwrap_or(""))
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ask::Happened { word, pick, .. } => write!(out, "{word}({pick})"),
            Ask::Over { over: Over::Median, pick } => {
                write!(out, "quantile_over_time(0.5, {pick})")
            }
            Ask::Over { over: Over::Changes, pick } => write!(out, "changes({pick})"),
            Ask::Over { over, pick } => {
                write!(out, "{}_over_time({pick})", format!("{over:?}").to_lowercase())
            }
            Ask::Rate { is_rate, pick } => {
                write!(out, "{}({pick})", if *is_rate { "rate" } else { "increase" })
            }
            Ask::Fold { fold, by, of } => {
                write!(out, "{} {by} ({of})", format!("{fold:?}").to_lowercase())
            }
            Ask::Running(of) => write!(out, "running_total({of})"),
            Ask::Binary { operator, left, right } => write!(out, "({left} {operator} {right})"),
            Ask::Scaled { operator, of, number } => write!(out, "({of} {operator} {number})"),
            Ask::Statistic { statistic, of } => match statistic {
                Statistic::Quantile(percent) => {
                    write!(out, "histogram_quantile({}, {of})", f64::from(*percent) / 100.0)
                }
                Statistic::Fraction(a, b) => write!(out, "histogram_fraction({a}, {b}, {of})"),
                Statistic::Between(a, b) => {
                    write!(out, "histogram_count_between({a}, {b}, {of})")
                }
                Statistic::Above(a) => write!(out, "histogram_count_above({a}, {of})"),
                Statistic::Below(a) => write!(out, "histogram_count_below({a}, {of})"),
                Statistic::Share(a) => write!(out, "histogram_inverse_quantile({a}, {of})"),
                Statistic::Harmed(a, n) => write!(out, "users_harmed({a}, {n}, {of})"),
                plain => write!(out, "histogram_{}({of})", format!("{plain:?}").to_lowercase()),
            },
        }
    }
}
