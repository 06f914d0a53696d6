//! Hours of today: which one had most values above a threshold.
//!
//! The threshold may be another one at each question, so the values of each hour are retained. They
//! are encoded: about a byte per bucket, where a histogram in memory has 16.
//!
//! What is learned from an hour that ended is learned once: it is retained by the start of the hour
//! and a hash of its values ([`HourlyThresholds`]), and again only if values arrived late.
//!
//! An hour is named only if its excess is significant. A day has 24 hours, so each has a 24th of
//! the probability of error (Bonferroni): chance alone names an hour of one of a thousand rows.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;

use hist::codec::frame::{self, SeriesMeta};
use hist::{Bracket, LimitInclusion, Mixture};
use store::HOUR;

use super::excess::{ALPHA, ExcessSignificance};
use crate::compare::merge_error;
use crate::error::Result;

/// Hours of a day, by which its probability of error is divided.
const HOURS_PER_DAY: f64 = 24.0;

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
}

/// Values of an hour.
#[derive(Debug)]
struct EncodedHour {
    start: i64,
    count: u64,
    /// Hash of the frames.
    hash: u64,
    /// A frame for each part of the mixture.
    frames: Vec<Vec<u8>>,
}

impl EncodedHour {
    fn values(&self) -> Result<Mixture> {
        let mut values = Mixture::default();
        for bytes in &self.frames {
            let (histogram, _) = frame::decode(bytes).expect("BUG: a frame encoded in this file");
            values.add(&histogram).map_err(merge_error)?;
        }
        Ok(values)
    }
}

/// Values of the hours of today, by time.
#[derive(Debug, Default)]
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
        for part in values.parts().iter().filter(|part| !part.is_empty()) {
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
        let frames: Vec<Vec<u8>> = sum.parts().iter().map(encode).collect();
        let mut hasher = DefaultHasher::new();
        frames.hash(&mut hasher);
        let (count, hash) = (sum.count(), hasher.finish());
        self.hours.push(EncodedHour { start, count, hash, frames });
        Ok(())
    }

    /// The hour with the largest significant excess; `end` is the end of the values.
    pub(super) fn worst(&self, threshold: f64, end: i64) -> Result<Option<WorstHour>> {
        let mut worst: Option<(f64, WorstHour)> = None;
        for hour in &self.hours {
            let above = hour.values()?.count_above(threshold, LimitInclusion::Exclusive);
            let excess = ExcessSignificance::with_alpha(above, hour.count, ALPHA / HOURS_PER_DAY);
            let ExcessSignificance::Significant(beyond) = excess else { continue };
            if worst.as_ref().is_none_or(|(most, _)| beyond > *most) {
                let range = hour.start..(hour.start + HOUR).min(end);
                worst = Some((beyond, WorstHour { range, above, count: hour.count }));
            }
        }
        Ok(worst.map(|(_, hour)| hour))
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
        let frames = self.hours.iter().flat_map(|hour| &hour.frames);
        self.hours.capacity() * size_of::<EncodedHour>()
            + frames.map(|bytes| size_of::<Vec<u8>>() + bytes.capacity()).sum::<usize>()
    }
}

/// What was learned from hours that ended, at most those of a day.
#[derive(Debug, Default)]
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
        let found = hours.worst(250.0, end).unwrap()?;
        assert_eq!(found.count, 1_000);
        assert_eq!(found.range.end - found.range.start, HOUR);
        Some((found.range.start / HOUR, found.above.estimate))
    }

    #[test]
    fn worst_hour_is_that_of_the_incident() {
        assert_eq!(worst(&[10, 9, 200, 80, 11]), Some((2, 200)));
    }

    #[test]
    fn a_day_without_an_incident_has_no_worst_hour() {
        // 25 of 1,000 are significant once (p < 0.001), but not as one of 24 hours.
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
        let found = hours.worst(250.0, HOUR + HOUR / 4).unwrap().unwrap();
        assert_eq!(found.range, HOUR..HOUR + HOUR / 4);
        assert_eq!(found.above, Bracket::exact(90));
    }
}
