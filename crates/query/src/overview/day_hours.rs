//! Hours of today: which one had most values above a threshold.
//!
//! The threshold may be another one at each question, so the values of each hour are retained. They
//! are encoded: about a byte per bucket, where a histogram in memory has 16. The number above the
//! threshold that was asked last is retained, too: all rows are ranked by their worst hours.
//!
//! What is learned from an hour that ended is learned once: it is retained by the start of the hour
//! and a hash of its values ([`HourlyThresholds`]), and again only if values arrived late.
//!
//! An hour is named only if its excess is significant. A day has up to 30 hours, those of yesterday
//! before six o'clock, so each has a 30th of the probability of error (Bonferroni): chance alone
//! names an hour of one of a thousand rows.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use hist::codec::frame::{self, SeriesMeta};
use hist::{Bracket, LimitInclusion, Mixture};
use store::HOUR;

use super::excess::{ALPHA, ExcessSignificance, ExpectedValues};
use super::row_threshold::RowThreshold;
use crate::compare::merge_error;
use crate::error::Result;

/// Most hours of a day, by which its probability of error is divided.
const HOURS_PER_DAY: f64 = 30.0;

/// Least burn rate of an hour of the same period, as a share of that of the worst one.
const PERIOD_SHARE: f64 = 0.25;

/// Hour of today with most values above the threshold beyond those expected there.
#[derive(Clone, Debug, PartialEq)]
pub struct WorstHour {
    /// Its time, in nanoseconds since the Unix epoch. The current hour ends with the values that
    /// have been counted.
    pub range: Range<i64>,
    /// Values above the threshold.
    pub above: Bracket<u64>,
    /// Values in total.
    pub count: u64,
    /// Their share as a ratio to the expected one.
    pub burn_rate: Bracket,
    /// The hour and those next to it that are not much better: what happened rarely ends with the
    /// hour.
    pub period: AffectedPeriod,
    /// Values above the threshold beyond those expected there.
    pub(super) beyond: f64,
}

/// Hours with significantly more values above the threshold than expected.
#[derive(Clone, Debug, PartialEq)]
pub struct AffectedPeriod {
    /// Their time, as that of an hour.
    pub range: Range<i64>,
    /// Values above the threshold.
    pub above: Bracket<u64>,
    /// Values in total.
    pub count: u64,
}

impl AffectedPeriod {
    fn add(&mut self, hour: Range<i64>, above: Bracket<u64>, count: u64) {
        self.range = self.range.start.min(hour.start)..self.range.end.max(hour.end);
        let sum = |a: u64, b: u64| a.saturating_add(b);
        self.above = Bracket {
            lower: sum(self.above.lower, above.lower),
            estimate: sum(self.above.estimate, above.estimate),
            upper: sum(self.above.upper, above.upper),
        };
        self.count = sum(self.count, count);
    }
}

/// Number of values above a threshold.
#[derive(Clone, Copy, Debug)]
struct CountAbove {
    threshold: f64,
    above: Bracket<u64>,
}

/// Values of an hour. Clones share them.
#[derive(Clone, Debug)]
struct EncodedHour {
    start: i64,
    count: u64,
    /// Hash of the frames.
    hash: u64,
    /// A frame for each part of the mixture.
    frames: Arc<[Vec<u8>]>,
    /// The threshold that was asked last, and the values above it.
    above: Arc<Mutex<Option<CountAbove>>>,
}

impl EncodedHour {
    /// Values above a threshold beyond those expected there, as one of the hours of a day; the
    /// values above it; and the number of all.
    fn excess(
        &self,
        threshold: &RowThreshold,
    ) -> Result<(ExcessSignificance, Bracket<u64>, ExpectedValues)> {
        let memo = || self.above.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, limit) = (*memo(), threshold.value);
        let above = match known {
            Some(known) if known.threshold.to_bits() == limit.to_bits() => known.above,
            _ => self.values()?.count_above(limit, LimitInclusion::Exclusive),
        };
        *memo() = Some(CountAbove { threshold: limit, above });
        let expected = ExpectedValues::of(self.count, Some(threshold));
        let alpha = ALPHA / HOURS_PER_DAY;
        Ok((ExcessSignificance::with_alpha(above, expected, alpha), above, expected))
    }

    fn values(&self) -> Result<Mixture> {
        let mut values = Mixture::default();
        for bytes in self.frames.iter() {
            let (histogram, _) = frame::decode(bytes).expect("BUG: a frame encoded in this file");
            values.add(&histogram).map_err(merge_error)?;
        }
        Ok(values)
    }
}

/// Values of the hours of today, by time.
#[derive(Clone, Debug, Default)]
pub(super) struct DayHours {
    hours: Vec<EncodedHour>,
}

impl DayHours {
    /// Adds values of the hour that begins at `start`, the last one or a later one.
    pub(super) fn add(&mut self, start: i64, values: &Mixture) -> Result<()> {
        let mut sum = match self.hours.last() {
            Some(last) if last.start == start => last.values()?,
            _ => Mixture::default(),
        };
        for part in values.components().iter().filter(|part| !part.is_empty()) {
            sum.add(part).map_err(merge_error)?;
        }
        if sum.count() == 0 {
            return Ok(());
        }
        self.hours.retain(|hour| hour.start != start);
        let encode = |part| {
            let mut bytes = Vec::new();
            frame::encode(part, SeriesMeta::default(), &mut bytes);
            bytes.shrink_to_fit();
            bytes
        };
        let frames: Arc<[Vec<u8>]> = sum.components().iter().map(encode).collect();
        let mut hasher = DefaultHasher::new();
        frames.hash(&mut hasher);
        let (count, hash) = (sum.count(), hasher.finish());
        self.hours.push(EncodedHour { start, count, hash, frames, above: Arc::default() });
        Ok(())
    }

    /// Start of the first hour with values.
    pub(super) fn first_start(&self) -> Option<i64> {
        self.hours.first().map(|hour| hour.start)
    }

    /// The hour with the largest significant excess; `end` is the end of the values.
    pub(super) fn worst(&self, threshold: &RowThreshold, end: i64) -> Result<Option<WorstHour>> {
        let mut worst: Option<(usize, WorstHour)> = None;
        for (at, hour) in self.hours.iter().enumerate() {
            let (excess, above, expected) = hour.excess(threshold)?;
            let ExcessSignificance::Significant(beyond) = excess else { continue };
            let Some(burn_rate) = expected.burn_rate(above) else { continue };
            if worst.as_ref().is_none_or(|(_, worst)| beyond > worst.beyond) {
                let (range, count) = (hour.start..(hour.start + HOUR).min(end), hour.count);
                let period = AffectedPeriod { range: range.clone(), above, count };
                worst = Some((at, WorstHour { range, above, count, burn_rate, period, beyond }));
            }
        }
        let Some((at, mut worst)) = worst else { return Ok(None) };
        let least_rate = worst.burn_rate.estimate * PERIOD_SHARE;
        for hours in [&mut (0..at).rev() as &mut dyn Iterator<Item = usize>, &mut (at + 1..)] {
            for at in hours {
                let Some(hour) = self.hours.get(at) else { break };
                let range = hour.start..(hour.start + HOUR).min(end);
                let (excess, above, expected) = hour.excess(threshold)?;
                let is_next =
                    range.end == worst.period.range.start || range.start == worst.period.range.end;
                let is_affected = matches!(excess, ExcessSignificance::Significant(_))
                    && expected.burn_rate(above).is_some_and(|rate| rate.estimate >= least_rate);
                if !is_next || !is_affected {
                    break;
                }
                worst.period.add(range, above, hour.count);
            }
        }
        Ok(Some(worst))
    }

    /// Start of the hours, one after the other, with a significant excess, of which the last one
    /// contains `time`; `None` if that one has none.
    pub(super) fn affected_since(
        &self,
        threshold: &RowThreshold,
        time: i64,
    ) -> Result<Option<i64>> {
        let mut since: Option<i64> = None;
        let before = self.hours.iter().rev().skip_while(|hour| hour.start > time);
        for hour in before {
            let is_next = match since {
                Some(since) => hour.start + HOUR == since,
                None => time < hour.start + HOUR,
            };
            let (excess, ..) = hour.excess(threshold)?;
            if !is_next || !matches!(excess, ExcessSignificance::Significant(_)) {
                break;
            }
            since = Some(hour.start);
        }
        Ok(since)
    }

    /// What `learn` returns for each of the hours that ended by `end`; it is not called for those
    /// that are known.
    pub(super) fn learned(
        &self,
        known: &mut HourlyThresholds,
        end: i64,
        learn: &mut dyn FnMut(&Mixture) -> Option<f64>,
    ) -> Result<Vec<f64>> {
        let ended = self.hours.iter().filter(|hour| hour.start + HOUR <= end);
        let learned = ended.map(|hour| match known.find(hour) {
            Some(known) => Ok(known),
            None => Ok(LearnedHour {
                start: hour.start,
                hash: hour.hash,
                value: learn(&hour.values()?),
            }),
        });
        let learned: Result<Vec<LearnedHour>> = learned.collect();
        // Those of hours that had other values, or are gone, are forgotten.
        known.hours = learned?;
        Ok(known.hours.iter().filter_map(|hour| hour.value).collect())
    }

    /// Memory of the frames, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let frames = self.hours.iter().flat_map(|hour| hour.frames.iter());
        self.hours.capacity() * size_of::<EncodedHour>()
            + frames.map(|bytes| size_of::<Vec<u8>>() + bytes.capacity()).sum::<usize>()
    }
}

/// What was learned from hours that ended, at most those of a day.
#[derive(Clone, Debug, Default)]
pub(super) struct HourlyThresholds {
    hours: Vec<LearnedHour>,
}

#[derive(Clone, Copy, Debug)]
struct LearnedHour {
    start: i64,
    hash: u64,
    /// `None` if the hour has too few values.
    value: Option<f64>,
}

impl HourlyThresholds {
    /// What was learned from the same values of the same hour.
    fn find(&self, hour: &EncodedHour) -> Option<LearnedHour> {
        let is_same = |known: &&LearnedHour| (known.start, known.hash) == (hour.start, hour.hash);
        self.hours.iter().find(is_same).copied()
    }

    /// Memory of what was learned, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.hours.capacity() * size_of::<LearnedHour>()
    }
}

#[cfg(test)]
mod tests {
    use hist::Histogram;

    use super::*;

    /// That of an SLO.
    fn of(value: f64, share: f64) -> RowThreshold {
        RowThreshold::of_slo(value, "slo", share)
    }

    fn values(fast: u64, slow: u64) -> Mixture {
        let mut histogram = Histogram::default();
        histogram.record_n(10.0, fast);
        histogram.record_n(900.0, slow);
        Mixture::from(histogram)
    }

    /// Hours with the slow values of 1,000 each, added in two portions.
    fn worst(slow: &[u64]) -> Option<(i64, u64)> {
        let mut hours = DayHours::default();
        for (at, slow) in slow.iter().enumerate() {
            let start = at as i64 * HOUR;
            hours.add(start, &values(500, *slow)).unwrap();
            hours.add(start, &values(500 - slow, 0)).unwrap();
        }
        let end = slow.len() as i64 * HOUR;
        let found = hours.worst(&of(250.0, 0.01), end).unwrap()?;
        assert_eq!(found.count, 1_000);
        assert_eq!(found.range.end - found.range.start, HOUR);
        Some((found.range.start / HOUR, found.above.estimate))
    }

    #[test]
    fn worst_hour_is_that_of_the_incident() {
        assert_eq!(worst(&[10, 9, 200, 80, 11]), Some((2, 200)));
    }

    /// An incident from 12:40 to 13:25 had half of its requests.
    #[test]
    fn period_of_the_worst_hour_has_the_hours_next_to_it_that_are_not_much_better() {
        let period = |slow: &[u64]| {
            let mut hours = DayHours::default();
            for (at, slow) in slow.iter().enumerate() {
                hours.add(at as i64 * HOUR, &values(1_000 - slow, *slow)).unwrap();
            }
            let end = slow.len() as i64 * HOUR;
            let AffectedPeriod { range, above, count } =
                hours.worst(&of(250.0, 0.01), end).unwrap().unwrap().period;
            (range.start / HOUR..range.end / HOUR, above.estimate, count)
        };
        assert_eq!(period(&[9, 150, 200, 8, 180]), (1..3, 350, 2_000));
        assert_eq!(period(&[200, 60, 60, 300, 40]), (3..4, 300, 1_000));
        assert_eq!(period(&[60, 300, 80, 100]), (1..4, 480, 3_000));
    }

    #[test]
    fn a_day_without_an_incident_has_no_worst_hour() {
        // 25 of 1,000 are significant once (p < 0.001), but not as one of 30 hours.
        assert_eq!(worst(&[10, 25, 12]), None);
        assert_eq!(worst(&[]), None);
    }

    /// Each refresh of the overview read all hours of the day again for the median of their p99.
    #[test]
    fn p99_of_an_hour_that_ended_is_learned_once_unless_values_came_late() {
        let mut hours = DayHours::default();
        let mut known = HourlyThresholds::default();
        for hour in 0..3 {
            hours.add(hour * HOUR, &values(1_000, 0)).unwrap();
        }
        let mut reads = 0;
        let mut learn = |hours: &DayHours, end: i64| {
            let mut greatest = |values: &Mixture| {
                reads += 1;
                values.max().map(|max| max.estimate)
            };
            let learned = hours.learned(&mut known, end, &mut greatest).unwrap();
            (learned, reads)
        };
        // The third hour has not ended.
        assert_eq!(learn(&hours, 2 * HOUR + 1), (vec![10.0; 2], 2));
        assert_eq!(learn(&hours, 2 * HOUR + 2), (vec![10.0; 2], 2));
        assert_eq!(learn(&hours, 3 * HOUR), (vec![10.0; 3], 3));
        // The day is read anew, and the second hour has other values.
        let mut anew = DayHours::default();
        anew.add(0, &values(1_000, 0)).unwrap();
        anew.add(HOUR, &values(1_000, 500)).unwrap();
        anew.add(2 * HOUR, &values(1_000, 0)).unwrap();
        assert_eq!(learn(&anew, 3 * HOUR), (vec![10.0, 900.0, 10.0], 4));
        assert_eq!(learn(&anew, 3 * HOUR), (vec![10.0, 900.0, 10.0], 4));
        assert_eq!(known.hours.len(), 3);
    }

    #[test]
    fn the_current_hour_ends_with_its_values() {
        let mut hours = DayHours::default();
        hours.add(HOUR, &values(10, 90)).unwrap();
        let found = hours.worst(&of(250.0, 0.01), HOUR + HOUR / 4).unwrap().unwrap();
        assert_eq!(found.range, HOUR..HOUR + HOUR / 4);
        assert_eq!(found.above, Bracket::exact(90));
        assert_eq!(found.burn_rate.estimate, 90.0);
        // Another threshold, another objective.
        assert_eq!(hours.worst(&of(950.0, 0.01), 2 * HOUR).unwrap(), None);
        assert_eq!(hours.worst(&of(250.0, 0.95), 2 * HOUR).unwrap(), None);
        assert!(hours.worst(&of(250.0, 0.01), 2 * HOUR).unwrap().is_some());
    }

    #[test]
    fn affected_hours_are_followed_back_to_the_first_of_them() {
        let mut hours = DayHours::default();
        for (hour, slow) in [(0, 90), (1, 0), (2, 80), (3, 90), (5, 90)] {
            hours.add(hour * HOUR, &values(100 - slow, slow)).unwrap();
        }
        let since = |time: i64| hours.affected_since(&of(250.0, 0.01), time).unwrap();
        assert_eq!(since(3 * HOUR + 5), Some(2 * HOUR));
        assert_eq!((since(HOUR + 5), since(4 * HOUR + 5)), (None, None));
        assert_eq!((since(5 * HOUR), since(7)), (Some(5 * HOUR), Some(0)));
    }
}
