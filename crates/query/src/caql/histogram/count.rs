//! How many values there are, and how many above, below and between thresholds.
//!
//! Thresholds count whole bins, theirs included: the estimate is every value that may be meant, the bracket leaves
//! out those of which that is not sure. A threshold on the edge of a bin, as are all of two digits on circllhist's
//! grid, is exact from that side; so is one that the histogram was told to count, and what lies past its extremes.

use hist::{Bracket, LimitInclusion, Mixture};

use super::super::kernel::Kernel;
use super::{StatisticQuery, for_each_distribution, scale};

pub(super) fn kernel(name: &str) -> Option<Kernel> {
    Some(Kernel::slotwise(match name {
        "count" => {
            |mut work| for_each_distribution(&mut work, |_| None, |mixture, _| Some(all(mixture)))
        }
        "rate" => |mut work| {
            for_each_distribution(
                &mut work,
                |_| None,
                |mixture, asked| Some(rate(all(mixture), asked)),
            )
        },
        "count_above" => |mut work| {
            for_each_distribution(&mut work, threshold_name, |m, asked| Some(above(m, asked)))
        },
        "count_below" => |mut work| {
            for_each_distribution(&mut work, threshold_name, |m, asked| {
                Some(below(m, asked.argument))
            })
        },
        "count_bin" => |mut work| {
            for_each_distribution(&mut work, threshold_name, |m, asked| Some(bin(m, asked)))
        },
        "count_between" => |mut work| {
            for_each_distribution(&mut work, |_| None, |m, asked| Some(between(m, asked)))
        },
        "rate_above" => |mut work| {
            for_each_distribution(&mut work, threshold_name, |m, asked| {
                Some(rate(above(m, asked), asked))
            })
        },
        "rate_below" => |mut work| {
            for_each_distribution(&mut work, threshold_name, |m, asked| {
                Some(rate(below(m, asked.argument), asked))
            })
        },
        "rate_bin" => |mut work| {
            for_each_distribution(&mut work, threshold_name, |m, asked| {
                Some(rate(bin(m, asked), asked))
            })
        },
        "ratio_above" => |mut work| {
            for_each_distribution(&mut work, threshold_name, |m, asked| ratio(above(m, asked), m))
        },
        "ratio_below" => |mut work| {
            for_each_distribution(&mut work, threshold_name, |m, asked| {
                ratio(below(m, asked.argument), m)
            })
        },
        "ratio_between" => |mut work| {
            for_each_distribution(&mut work, |_| None, |m, asked| ratio(between(m, asked), m))
        },
        _ => return None,
    }))
}

fn threshold_name(threshold: f64) -> Option<String> {
    Some(threshold.to_string())
}

fn all(mixture: &Mixture) -> Bracket {
    Bracket::exact(mixture.count() as f64)
}

/// Those at or above the threshold, and all that share a bin with it.
fn above(mixture: &Mixture, asked: &StatisticQuery<'_>) -> Bracket {
    max_bracket(mixture.count_above(asked.argument, LimitInclusion::Inclusive))
}

/// Those at or below the threshold, and all that share a bin with it.
fn below(mixture: &Mixture, threshold: f64) -> Bracket {
    let above = mixture.count_above(threshold, LimitInclusion::Exclusive);
    max_bracket(above.complement(mixture.count()))
}

fn max_bracket(known: Bracket<u64>) -> Bracket {
    let upper = known.upper as f64;
    Bracket { lower: known.lower as f64, estimate: upper, upper }
}

/// Those in the bins of each part that hold the threshold.
fn bin(mixture: &Mixture, asked: &StatisticQuery<'_>) -> Bracket {
    let counts = mixture.parts().iter().map(|part| part.count_nearby(asked.argument) as f64);
    Bracket::exact(counts.sum())
}

/// Those above the lower threshold and not above the upper: what is below the one and not below the other.
fn between(mixture: &Mixture, asked: &StatisticQuery<'_>) -> Bracket {
    let (lower, upper) = (asked.number("lower"), asked.number("upper"));
    if upper <= lower {
        return Bracket::exact(0.0);
    }
    let (low, high) = (below(mixture, lower), below(mixture, upper));
    Bracket {
        lower: (high.lower - low.upper).max(0.0),
        estimate: high.estimate - low.estimate,
        upper: high.upper - low.lower,
    }
}

/// So many in the period that is asked for.
fn rate(count: Bracket, asked: &StatisticQuery<'_>) -> Bracket {
    scale(count, 1.0 / asked.periods(asked.work.arguments.duration("period")))
}

/// As a share of all; of none there is no share.
fn ratio(count: Bracket, mixture: &Mixture) -> Option<Bracket> {
    let all = mixture.count();
    (all > 0).then(|| count.map(|count| count / all as f64))
}
