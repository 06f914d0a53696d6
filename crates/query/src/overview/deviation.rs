//! Deviation: how unusual the last hour of a row is.
//!
//! The last hour is compared with the same hour of the last seven days: the median of its
//! Wasserstein distances to those days, as a ratio to the median of the distances of those days
//! among themselves. About 1 is usual, whatever the metric; a row of 5 is five times as far from
//! the past days as they are from each other. No distribution is assumed and nothing is fitted, so
//! fewer than `DAYS_MIN` days are too short a history to say anything.

use hist::{Bracket, Mixture};

/// Days of the history.
pub const DAYS: usize = 7;
/// Least number of days with values for a ratio.
pub const DAYS_MIN: usize = 3;

/// How unusual the last hour is.
#[derive(Clone, Debug, PartialEq)]
pub enum Deviation {
    /// Compared with the same hour of some past days.
    Ratio {
        /// Distance as a ratio to the spread; `None` if the past days do not differ.
        ratio: Option<Bracket>,
        /// Median distance to the past days, in the unit of the values.
        distance: Bracket,
        /// Median distance of the past days among themselves.
        spread: Bracket,
        /// Number of days with values.
        days: usize,
    },
    /// Fewer than `DAYS_MIN` days have values in this hour.
    HistoryTooShort {
        /// Number of days with values.
        days: usize,
    },
    /// The last hour has no values.
    NoValues,
}

impl Deviation {
    /// Compares an hour with the same hour of past days; days without values do not count.
    pub(super) fn of(hour: &Mixture, past: &[Mixture]) -> Deviation {
        let past: Vec<&Mixture> = past.iter().filter(|day| day.count() > 0).collect();
        let days = past.len();
        if hour.count() == 0 {
            return Deviation::NoValues;
        }
        if days < DAYS_MIN {
            return Deviation::HistoryTooShort { days };
        }
        let among = past
            .iter()
            .enumerate()
            .flat_map(|(at, day)| past[at + 1..].iter().filter_map(|other| day.wasserstein(other)));
        let to_past = past.iter().filter_map(|day| hour.wasserstein(day));
        let (Some(distance), Some(spread)) = (median(to_past), median(among)) else {
            return Deviation::HistoryTooShort { days };
        };
        let ratio = (spread.estimate > 0.0).then(|| Bracket {
            lower: distance.lower / spread.upper,
            estimate: distance.estimate / spread.estimate,
            upper: if spread.lower > 0.0 { distance.upper / spread.lower } else { f64::INFINITY },
        });
        Deviation::Ratio { ratio, distance, spread, days }
    }
}

/// Median of brackets: the median of the bounds bounds the median of the values.
fn median(of: impl Iterator<Item = Bracket>) -> Option<Bracket> {
    let all: Vec<Bracket> = of.collect();
    let middle = |bound: fn(&Bracket) -> f64| {
        let mut sorted: Vec<f64> = all.iter().map(bound).collect();
        sorted.sort_by(f64::total_cmp);
        let at = sorted.len() / 2;
        let upper = *sorted.get(at)?;
        Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[at - 1], upper) })
    };
    Some(Bracket {
        lower: middle(|of| of.lower)?,
        estimate: middle(|of| of.estimate)?,
        upper: middle(|of| of.upper)?,
    })
}

#[cfg(test)]
mod tests {
    use hist::Histogram;

    use super::*;

    fn around(centre: f64) -> Mixture {
        let mut histogram = Histogram::default();
        (0..100).for_each(|n| histogram.record(centre + f64::from(n) / 10.0));
        Mixture::from(histogram)
    }

    #[test]
    fn an_hour_like_the_past_ones_has_a_ratio_of_about_one() {
        let past: Vec<Mixture> = [100.0, 103.0, 101.0, 98.0, 104.0, 99.0, 102.0].map(around).into();
        let Deviation::Ratio { ratio, days, .. } = Deviation::of(&around(101.0), &past) else {
            panic!("a week is long enough")
        };
        let ratio = ratio.unwrap();
        assert_eq!(days, 7);
        assert!((0.5..2.0).contains(&ratio.estimate), "{ratio:?}");
        assert!(ratio.lower <= ratio.estimate && ratio.estimate <= ratio.upper);
    }

    #[test]
    fn a_shifted_hour_has_the_ratio_of_its_distance_to_the_spread() {
        // Distances among the days: 2, 2 and 4; of the hour to them: 30, 28 and 26.
        let past: Vec<Mixture> = [100.0, 102.0, 104.0].map(around).into();
        let deviation = Deviation::of(&around(130.0), &past);
        let Deviation::Ratio { ratio, distance, spread, .. } = deviation else { panic!() };
        assert!(distance.contains(28.0) && spread.contains(2.0), "{distance:?} {spread:?}");
        assert!(ratio.unwrap().contains(14.0), "{ratio:?}");
    }

    #[test]
    fn two_days_are_too_short_a_history_and_days_without_values_do_not_count() {
        let past = [around(1.0), Mixture::default(), around(2.0), Mixture::default()];
        let found = Deviation::of(&around(1.0), &past);
        assert_eq!(found, Deviation::HistoryTooShort { days: 2 });
        assert_eq!(Deviation::of(&Mixture::default(), &past), Deviation::NoValues);
    }

    #[test]
    fn equal_days_give_a_distance_without_a_ratio() {
        let one = |value: f64| {
            let mut histogram = Histogram::default();
            histogram.record_n(value, 10);
            Mixture::from(histogram)
        };
        let past = [one(5.0), one(5.0), one(5.0)];
        let Deviation::Ratio { ratio, distance, .. } = Deviation::of(&one(8.0), &past) else {
            panic!()
        };
        assert!(ratio.is_none() && distance.contains(3.0), "{ratio:?} {distance:?}");
    }
}
