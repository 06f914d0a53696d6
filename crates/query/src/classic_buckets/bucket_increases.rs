//! Increases of the buckets of a histogram in a time range: whether they are of the same scrapes.
//!
//! Increases can be subtracted only if they are between the same two scrapes. They are not where a
//! sender has changed its bounds, and where some samples of a scrape have not arrived yet: remote
//! write distributes the series of a scrape over several connections.

use std::ops::Range;

use store::{NumberAggregate, Row};

/// A bucket may rise by so many values less than a lower one, or by one in `SKEW_SHARE`. A program
/// reads its counters one after the other while it counts: they differ by the values of that time,
/// which is far below a hundredth of the time between two scrapes. Where only some buckets show a
/// restart, they differ by up to all values since the one before it.
const SKEW_VALUES: u64 = 16;
const SKEW_SHARE: u64 = 100;

/// Increase of a counter, from the sample before the first one to the last one.
pub(super) type Increase = Row<NumberAggregate>;

/// Whether increases are of the same scrapes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ScrapeAgreement {
    /// There are none.
    Empty,
    /// They are.
    Same,
    /// They are not, but those before and after this time may be.
    Cut(i64),
    /// They are not.
    Different,
}

impl ScrapeAgreement {
    /// Agreement of the buckets that have an increase in a range.
    pub(super) fn of(range: &Range<i64>, increases: &[Option<Increase>]) -> ScrapeAgreement {
        let rows = || increases.iter().flatten();
        let extremes = |time: fn(&Increase) -> i64| {
            let times = || rows().map(time);
            times().min().zip(times().max())
        };
        let (Some(starts), Some(ends)) = (extremes(|row| row.start), extremes(|row| row.end))
        else {
            return ScrapeAgreement::Empty;
        };
        let counts = || rows().map(|row| row.value.count);
        let (fewest, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
        // The counts find bounds that were away in between, the times an increase that spans more
        // than one scrape.
        let has_same_times = starts.0 == starts.1 && ends.0 == ends.1;
        if fewest == most && has_same_times {
            return ScrapeAgreement::Same;
        }
        let is_inside = |time: i64| range.start < time && time < range.end;
        let middle = i64::midpoint(range.start, range.end);
        let cut = match (ends.0 < ends.1, starts.0 < starts.1) {
            // A bucket ends: its last sample is missing, or its bound is not in use any more.
            (true, _) => ends.0,
            (false, _) if most <= 1 => return ScrapeAgreement::Different,
            (false, true) if is_inside(starts.1) => starts.1,
            (false, _) => middle,
        };
        match is_inside(cut) {
            true => ScrapeAgreement::Cut(cut),
            false => ScrapeAgreement::Different,
        }
    }
}

/// Adds a later increase, or one of another spelling of the same bound.
pub(super) fn add(sum: &mut Option<Increase>, row: Increase) {
    match sum {
        Some(sum) => {
            sum.start = sum.start.min(row.start);
            sum.end = sum.end.max(row.end);
            sum.value.add(&row.value);
        }
        empty => *empty = Some(row),
    }
}

/// Whether no bucket rose by clearly less than a lower one, which it contains. A counter that is
/// larger after a restart than before it has not been reset for its reader.
pub(super) fn are_cumulative(increases: &[Option<Increase>]) -> bool {
    let mut below = 0_u64;
    increases.iter().flatten().map(round_count).all(|up_to| {
        let lacking = below.saturating_sub(up_to);
        below = below.max(up_to);
        lacking <= SKEW_VALUES.max(below / SKEW_SHARE)
    })
}

/// Whether the increase of a sum is of the same scrapes as increases that agree.
pub(super) fn are_of_same_scrapes(increases: &[Option<Increase>], sum: &Increase) -> bool {
    let scrapes = |of: &Increase| (of.start, of.end, of.value.count);
    sum.value.nan == 0 && increases.iter().flatten().all(|of| scrapes(of) == scrapes(sum))
}

pub(super) fn round_count(increase: &Increase) -> u64 {
    increase.value.sum.value().round().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_a_few_values_apart_are_cumulative_and_a_restart_of_some_is_not() {
        let check = |increases: &[f64], expected: bool| {
            let row = |&value: &f64| {
                let value = NumberAggregate::of_number(value);
                Some(Increase { start: 0, end: 1, value })
            };
            let increases: Vec<_> = [None].into_iter().chain(increases.iter().map(row)).collect();
            assert_eq!(are_cumulative(&increases), expected, "{increases:?}");
        };
        check(&[], true);
        check(&[60.0, 98.0, 100.0], true);
        check(&[60.0, 98.0, 82.0], true);
        check(&[60.0, 98.0, 81.0], false);
        // Compared with the highest of the lower ones.
        check(&[60.0, 50.0, 43.0], false);
        check(&[10_000.0, 9_900.0], true);
        check(&[10_000.0, 9_899.0, 20_000.0], false);
    }

    /// Increases by start, end and number of samples.
    #[track_caller]
    fn check(increases: &[Option<(i64, i64, u64)>], expected: ScrapeAgreement) {
        let row = |&(start, end, count): &(i64, i64, u64)| {
            let value = NumberAggregate { count, ..NumberAggregate::of_number(1.0) };
            Increase { start, end, value }
        };
        let increases: Vec<_> = increases.iter().map(|of| of.as_ref().map(row)).collect();
        assert_eq!(ScrapeAgreement::of(&(0..100), &increases), expected);
    }

    #[test]
    fn increases_between_the_same_scrapes_agree() {
        check(&[None, None], ScrapeAgreement::Empty);
        check(&[Some((10, 20, 1)), None, Some((10, 20, 1))], ScrapeAgreement::Same);
    }

    #[test]
    fn a_bucket_without_the_last_sample_is_cut_off_there() {
        check(&[Some((0, 80, 8)), Some((0, 90, 9))], ScrapeAgreement::Cut(80));
        check(&[Some((0, 50, 5)), Some((60, 90, 3)), Some((0, 90, 9))], ScrapeAgreement::Cut(50));
        check(&[Some((60, 90, 3)), Some((0, 90, 9))], ScrapeAgreement::Cut(60));
    }

    #[test]
    fn bounds_that_were_away_in_between_are_searched() {
        check(&[Some((0, 90, 6)), Some((0, 90, 9))], ScrapeAgreement::Cut(50));
        // The first increase begins before they were away.
        check(&[Some((-40, 90, 9)), Some((0, 90, 9))], ScrapeAgreement::Cut(50));
    }

    #[test]
    fn one_increase_over_a_missing_sample_is_of_other_scrapes() {
        check(&[Some((70, 90, 1)), Some((80, 90, 1))], ScrapeAgreement::Different);
    }
}
