//! Increases of the buckets of a histogram in a time range: whether they are of the same scrapes.
//!
//! Increases can be subtracted only if they are between the same two scrapes. They are not where a
//! sender has changed its bounds, and where some samples of a scrape have not arrived yet: remote
//! write distributes the series of a scrape over several connections.

use std::ops::Range;

use store::{NumberAggregate, Row};

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

#[cfg(test)]
mod tests {
    use super::*;

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
