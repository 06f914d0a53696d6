//! State of a row between refreshes: what has been read of its series, and until when.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;

use hist::{Histogram, Mixture};
use model::Gap;
use store::{DAY, HOUR, MINUTE, ReadView, SeriesEntryRef, TimeColumn, TimeGrid};

use super::affected_users::{AffectedUsers, RowUsers, UserReadLimit, UserScan};
use super::day_hours::{DayHours, HourlyThresholds, WorstHour};
use super::deviation::{DAYS, DAYS_MIN, Deviation};
use super::mini_heatmap::{COLUMNS, MinuteCounts, RowPresence};
use super::row_threshold::RowThreshold;
use super::{OverviewTimes, RECENT};
use crate::classic_buckets::distribution_columns;
use crate::compare::merge_error;
use crate::error::Result;

/// Values that arrive later than this are seen by the next complete read.
const LATE: i64 = 5 * MINUTE;
/// The hour is read whole, and compared with the past days, after this time.
const HOUR_READ_EVERY: i64 = 5 * MINUTE;
/// The day is read whole after this time.
pub(super) const DAY_READ_EVERY: i64 = 30 * MINUTE;
/// Maximum number of series whose rows are read for the length of rows: those of a row of the
/// overview come from programs that report alike.
const LENGTH_SERIES_MAX: usize = 8;
/// Maximum number of series whose rows are read to tell a minute without values from one without
/// rows; with more of them it is not told.
const ROW_SERIES_MAX: usize = 16;

/// What has been read of a row.
#[derive(Debug, Default)]
pub(super) struct RowState {
    pub(super) series: Vec<SeriesEntryRef>,
    /// Time of the last read; `None` before the first one.
    pub(super) read_at: Option<i64>,
    /// Values of the last five minutes.
    pub(super) recent: Mixture,
    /// Counts of the last minutes, until `minutes_end`.
    pub(super) minutes: MinuteCounts,
    minutes_end: i64,
    /// Values of today until `closed_end`, in total and by hour.
    closed: Mixture,
    closed_hours: DayHours,
    closed_end: i64,
    /// Values since the start of today, summed when they are read, so that a page sums nothing, and
    /// the threshold learned from those of them that are in `closed`.
    pub(super) today: Mixture,
    today_learned: Option<RowThreshold>,
    /// What was learned from each hour of today that ended.
    hourly_thresholds: HourlyThresholds,
    today_start: i64,
    /// Time of the last comparison with the past days.
    compared_at: Option<i64>,
    today_read_at: Option<i64>,
    pub(super) deviation: Option<Deviation>,
    /// Threshold learned from the days before `learned_on`.
    learned: Option<RowThreshold>,
    learned_on: Option<i64>,
    /// End of the newest row.
    pub(super) latest_end: Option<i64>,
    /// Known gaps since the start of today and in the last hour, found by the last reads of what
    /// is new, and of the whole.
    recent_gaps: Vec<Gap>,
    whole_gaps: Vec<Gap>,
    /// Users above the thresholds that were asked last.
    pub(super) user_scans: Vec<UserScan>,
    /// Whether the memory of the overview has no room for the row.
    pub(super) is_refused: bool,
    /// Score by which the row is sorted; it follows the actual score with hysteresis.
    pub(super) rank: Rank,
}

/// Minutes in which rows end, read when the first one is asked.
enum RowEnds {
    /// Of a range.
    Unread(Range<i64>),
    Minutes(BTreeSet<i64>),
}

/// Smallest range that contains some; empty without any.
fn enclosing(ranges: impl Iterator<Item = Range<i64>>) -> Range<i64> {
    ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}

/// Classes of rows, the last one first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RankClass {
    /// Usual, or unknown.
    #[default]
    Usual,
    /// Uncertain in the last five minutes.
    Uncertain,
    /// Affected in the last five minutes.
    Affected,
}

/// Score by which a row is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rank {
    pub(super) class: RankClass,
    pub(super) now: f64,
    pub(super) today: f64,
}

impl Rank {
    /// Order of rows: the higher rank first.
    pub(super) fn compare(&self, other: &Rank) -> Ordering {
        let class = other.class.cmp(&self.class);
        class
            .then_with(|| other.now.total_cmp(&self.now))
            .then_with(|| other.today.total_cmp(&self.today))
    }

    /// Takes the scores over if they differ by more than a quarter: rows whose scores are about
    /// equal would change places at every refresh.
    pub(super) fn follow(&mut self, class: RankClass, now: f64, today: f64) {
        self.class = class;
        let follow = |held: &mut f64, score: f64| {
            if score > *held * 1.25 || score < *held * 0.8 {
                *held = score;
            }
        };
        follow(&mut self.now, now);
        follow(&mut self.today, today);
    }
}

impl RowState {
    pub(super) fn with_series(mut self, series: Vec<SeriesEntryRef>) -> RowState {
        self.series = series;
        self
    }

    /// Whether the row was compared with the past days and has a complete day.
    pub(super) fn is_complete(&self) -> bool {
        self.compared_at.is_some() && self.today_read_at.is_some()
    }

    /// Known gaps since the start of today and in the last hour.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        let mut gaps = [&self.recent_gaps[..], &self.whole_gaps].concat();
        gaps.sort();
        gaps.dedup();
        gaps
    }

    /// Time from which the complete reads are due.
    pub(super) fn due_at(&self) -> i64 {
        let after = |at: Option<i64>, every: i64| at.map_or(i64::MIN, |at| at + every);
        after(self.compared_at, HOUR_READ_EVERY).min(after(self.today_read_at, DAY_READ_EVERY))
    }

    /// Whether the row's history has been read at least in part.
    pub(super) fn has_history(&self) -> bool {
        self.compared_at.is_some()
    }

    /// Threshold of the row: in this order one that was set, a declared one, one learned from the
    /// days before today, and one learned from today.
    pub(super) fn threshold(&self, set: Option<RowThreshold>) -> Option<RowThreshold> {
        set.or_else(|| RowThreshold::declared(&self.recent))
            .or_else(|| RowThreshold::declared(&self.today))
            .or_else(|| self.learned.clone())
            .or_else(|| self.today_learned.clone())
    }

    /// Memory of the row, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let values = [&self.recent, &self.closed, &self.today].map(mixture_bytes);
        let gaps = self.recent_gaps.iter().chain(&self.whole_gaps);
        size_of::<RowState>()
            + self.series.iter().map(series_bytes).sum::<usize>()
            + values.iter().sum::<usize>()
            + self.minutes.memory_bytes()
            + self.closed_hours.memory_bytes()
            + self.hourly_thresholds.memory_bytes()
            + self.user_scans.iter().map(UserScan::memory_bytes).sum::<usize>()
            + gaps.map(|gap| size_of::<Gap>() + gap.reason.len()).sum::<usize>()
    }

    /// Reads the last five minutes, and what follows the last read.
    pub(super) fn read_recent(&mut self, view: &ReadView, times: OverviewTimes) -> Result<()> {
        let OverviewTimes { now, today_start } = times;
        if self.today_start != today_start {
            self.today_start = today_start;
            (self.closed, self.closed_hours) = Default::default();
            (self.today, self.today_learned) = Default::default();
            self.hourly_thresholds = HourlyThresholds::default();
            self.today_read_at = None;
        }
        let mut gaps = Vec::new();
        self.recent = self.column(view, now - RECENT..now, &mut gaps)?;
        self.latest_end = view.latest_end(&self.series)?;
        if self.compared_at.is_some() {
            let next = minute_after(now);
            let start = (self.minutes_end - LATE).max(first_minute(now));
            self.read_minutes(view, start..next, &mut gaps)?;
        }
        if self.today_read_at.is_some() {
            self.read_today(view, now, &mut gaps)?;
        }
        self.recent_gaps = gaps;
        self.read_at = Some(now);
        Ok(())
    }

    /// Reads the hour and the day whole, and compares the hour with those of the past days.
    pub(super) fn read_history(&mut self, view: &ReadView, times: OverviewTimes) -> Result<()> {
        let OverviewTimes { now, today_start } = times;
        // Gaps in the past days are not those of the row's present values.
        let mut past_gaps = Vec::new();
        if self.compared_at.is_none_or(|at| at + HOUR_READ_EVERY <= now) {
            let mut gaps = Vec::new();
            self.read_minutes(view, first_minute(now)..minute_after(now), &mut gaps)?;
            self.whole_gaps = gaps;
            if self.minutes.has_intervals(first_minute(now)) {
                self.minutes.row_minutes = self.row_minutes(view, now)?;
            }
            let hour = self.column(view, now - HOUR..now, &mut past_gaps)?;
            // The hour of the clock that shares most with the last 60 minutes: rolled up, so that
            // each day is one row.
            let middle = now - HOUR / 2;
            let clock_hour = middle - middle.rem_euclid(HOUR);
            let past: Result<Vec<Mixture>> = (1..=DAYS as i64)
                .map(|day| clock_hour - day * DAY)
                .map(|start| self.column(view, start..start + HOUR, &mut past_gaps))
                .collect();
            self.deviation = Some(Deviation::of(&hour, &past?));
            self.compared_at = Some(now);
        }
        let day = now - now.rem_euclid(DAY);
        if self.learned_on != Some(day) {
            self.learned = self.learn(view, day, &mut past_gaps)?;
            self.learned_on = Some(day);
        }
        if self.today_read_at.is_none_or(|at| at + DAY_READ_EVERY <= now) {
            (self.closed, self.closed_hours) = Default::default();
            self.closed_end = today_start;
            let mut gaps = Vec::new();
            self.read_today(view, now, &mut gaps)?;
            self.whole_gaps.extend(gaps);
            self.today_read_at = Some(now);
        }
        Ok(())
    }

    /// The threshold learned from the days before one.
    fn learn(
        &self,
        view: &ReadView,
        day: i64,
        gaps: &mut Vec<Gap>,
    ) -> Result<Option<RowThreshold>> {
        let week = day - DAYS as i64 * DAY..day;
        let (mut first, mut days, mut values) = (None, 0, Mixture::default());
        let grid = TimeGrid { start: week.start, step: DAY, columns: DAYS as u64 };
        for column in distribution_columns(view, &self.series, grid)? {
            let column = column?;
            gaps.extend(column.gaps);
            if column.value.count() > 0 {
                first = first.or(Some(column.start));
                days += 1;
                values = sum([&values, &column.value])?;
            }
        }
        let Some(first) = first else { return Ok(None) };
        if days >= DAYS_MIN {
            return Ok(RowThreshold::learned(&values, week));
        }
        let grid = TimeGrid { start: first, step: HOUR, columns: ((day - first) / HOUR) as u64 };
        let mut hours = Vec::new();
        for column in distribution_columns(view, &self.series, grid)? {
            hours.push(column?.value);
        }
        // A service of few requests has no hour with enough of them.
        Ok(RowThreshold::learned_by_hour(&hours, first..day)
            .or_else(|| RowThreshold::learned(&values, week)))
    }

    fn read_minutes(
        &mut self,
        view: &ReadView,
        range: Range<i64>,
        gaps: &mut Vec<Gap>,
    ) -> Result<()> {
        let columns = (range.end - range.start) / MINUTE;
        let grid = TimeGrid { start: range.start, step: MINUTE, columns: columns.max(0) as u64 };
        let columns = distribution_columns(view, &self.series, grid)?;
        let columns = columns.collect::<Result<Vec<TimeColumn<Mixture>>>>()?;
        let empty = columns.iter().filter(|column| column.value.count() == 0);
        let mut ends = RowEnds::Unread(enclosing(empty.map(|column| column.start..column.end)));
        for column in columns {
            let presence = match column.value.count() {
                0 => self.presence(view, &mut ends, column.start)?,
                _ => RowPresence::Present,
            };
            let has_gap = !column.gaps.is_empty();
            self.minutes.set(column.start, &column.value, has_gap, presence);
            gaps.extend(column.gaps);
        }
        self.minutes.forget_before(first_minute(range.end - 1));
        self.minutes_end = range.end;
        Ok(())
    }

    /// Whether a row without values ends in a minute.
    fn presence(&self, view: &ReadView, ends: &mut RowEnds, start: i64) -> Result<RowPresence> {
        if self.latest_end.is_none_or(|latest| latest <= start) {
            return Ok(RowPresence::Absent);
        }
        if self.series.len() > ROW_SERIES_MAX {
            return Ok(RowPresence::Unknown);
        }
        if let RowEnds::Unread(range) = ends {
            let mut minutes = BTreeSet::new();
            for series in &self.series {
                view.samples(series, range.clone(), &mut |sample| {
                    // A row belongs to the nanosecond before its end.
                    let last = sample.end.saturating_sub(1);
                    minutes.insert(last - last.rem_euclid(MINUTE));
                })?;
            }
            *ends = RowEnds::Minutes(minutes);
        }
        let is_present = matches!(ends, RowEnds::Minutes(minutes) if minutes.contains(&start));
        Ok(if is_present { RowPresence::Present } else { RowPresence::Absent })
    }

    /// Continues today's values: those older than [`LATE`] are read once.
    fn read_today(&mut self, view: &ReadView, now: i64, gaps: &mut Vec<Gap>) -> Result<()> {
        let closed_end = (now - LATE).max(self.closed_end);
        let closed_end = closed_end - closed_end.rem_euclid(MINUTE);
        if closed_end > self.closed_end {
            self.close_hours(view, closed_end, gaps)?;
        }
        let open = self.column(view, self.closed_end..now, gaps)?;
        self.today = sum([&self.closed, &open])?;
        let closed = self.today_start..self.closed_end;
        let mut learn = RowThreshold::value_of_hour;
        let known = &mut self.hourly_thresholds;
        let hours = self.closed_hours.learned(known, self.closed_end, &mut learn)?;
        self.today_learned = RowThreshold::median_of_hours(hours, closed.clone())
            .or_else(|| RowThreshold::learned(&self.closed, closed));
        Ok(())
    }

    /// Adds the values until `end` to their hours, which begin at the start of today.
    fn close_hours(&mut self, view: &ReadView, end: i64, gaps: &mut Vec<Gap>) -> Result<()> {
        while self.closed_end < end {
            let into_hour = (self.closed_end - self.today_start).rem_euclid(HOUR);
            let start = self.closed_end - into_hour;
            let whole_hours = (end - start) / HOUR;
            // Whole hours are read at once, from rollups; the rest of an hour by itself.
            let (step, columns) = match into_hour == 0 && whole_hours > 0 {
                true => (HOUR, whole_hours),
                false => ((start + HOUR).min(end) - self.closed_end, 1),
            };
            let grid = TimeGrid { start: self.closed_end, step, columns: columns.unsigned_abs() };
            for column in distribution_columns(view, &self.series, grid)? {
                let column = column?;
                gaps.extend(column.gaps);
                let into_hour = (column.start - self.today_start).rem_euclid(HOUR);
                self.closed_hours.add(column.start - into_hour, &column.value)?;
                self.closed = sum([&self.closed, &column.value])?;
            }
            self.closed_end += step * columns;
        }
        Ok(())
    }

    /// Hour of today with most values above a threshold beyond those expected there.
    pub(super) fn worst_hour(&self, threshold: f64) -> Result<Option<WorstHour>> {
        self.closed_hours.worst(threshold, self.closed_end)
    }

    fn column(&self, view: &ReadView, range: Range<i64>, gaps: &mut Vec<Gap>) -> Result<Mixture> {
        read_column(view, &self.series, range, gaps)
    }

    /// Minutes of the longest of the rows of the last hour; `None` if rows are cumulative: these
    /// last since the row before.
    fn row_minutes(&self, view: &ReadView, now: i64) -> Result<Option<usize>> {
        let mut longest = 0;
        for series in self.series.iter().take(LENGTH_SERIES_MAX) {
            if series.as_ref().kind.is_cumulative() {
                return Ok(None);
            }
            view.samples(series, now - HOUR..now, &mut |sample| {
                longest = longest.max(sample.end.saturating_sub(sample.start));
            })?;
        }
        let minutes = usize::try_from(longest.saturating_add(MINUTE - 1) / MINUTE);
        Ok(Some(minutes.unwrap_or(COLUMNS).clamp(1, COLUMNS)))
    }

    /// Users above a threshold by the label that the settings name, else by one of sessions;
    /// `None` if the series have neither.
    pub(super) fn count_users(
        &mut self,
        view: &ReadView,
        times: OverviewTimes,
        (label, threshold): (Option<String>, Option<f64>),
        limit: &UserReadLimit<'_>,
    ) -> Result<Option<AffectedUsers>> {
        let Some(users) = RowUsers::of(&self.series, label.as_deref()) else { return Ok(None) };
        let Some(threshold) = threshold else { return Ok(Some(users.without_threshold())) };
        if let Some(many) = users.too_many() {
            return Ok(Some(many));
        }
        UserScan::select(&mut self.user_scans, (users.label(), threshold), times)
            .count(view, &users, times, limit)
            .map(Some)
    }

    /// Time of the last refresh that had time to count users.
    pub(super) fn users_attempted_at(&self) -> Option<i64> {
        self.user_scans.first().and_then(UserScan::attempted_at)
    }
}

/// Merged values of series in a range.
pub(super) fn read_column(
    view: &ReadView,
    series: &[SeriesEntryRef],
    range: Range<i64>,
    gaps: &mut Vec<Gap>,
) -> Result<Mixture> {
    if range.is_empty() {
        return Ok(Mixture::default());
    }
    let grid = TimeGrid { start: range.start, step: range.end - range.start, columns: 1 };
    let mut values = Mixture::default();
    for column in distribution_columns(view, series, grid)? {
        let column = column?;
        gaps.extend(column.gaps);
        values = column.value;
    }
    Ok(values)
}

/// A merge reserves the buckets of both sides, which may be twice the buckets of the sum.
fn mixture_bytes(of: &Mixture) -> usize {
    let part_bytes = |part: &Histogram| {
        let buckets = part.positive().len() + part.negative().len();
        size_of::<Histogram>() + 2 * buckets * size_of::<(i32, u64)>()
    };
    of.parts().iter().map(part_bytes).sum()
}

fn series_bytes(of: &SeriesEntryRef) -> usize {
    let series = &of.series;
    let label_bytes = |(name, value): &(String, String)| name.len() + value.len();
    size_of::<SeriesEntryRef>()
        + series.name().len()
        + series.unit().len()
        + size_of_val(series.labels())
        + series.labels().iter().map(label_bytes).sum::<usize>()
}

fn sum<const N: usize>(of: [&Mixture; N]) -> Result<Mixture> {
    let mut all = Mixture::default();
    for part in of.into_iter().flat_map(Mixture::parts).filter(|part: &&Histogram| !part.is_empty())
    {
        all.add(part).map_err(merge_error)?;
    }
    Ok(all)
}

/// Start of the first of the `COLUMNS` minutes that end with the minute of `now`.
pub(super) fn first_minute(now: i64) -> i64 {
    minute_after(now) - COLUMNS as i64 * MINUTE
}

fn minute_after(now: i64) -> i64 {
    now - now.rem_euclid(MINUTE) + MINUTE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_follows_only_a_clear_change() {
        let mut rank = Rank::default();
        let class = RankClass::Affected;
        rank.follow(class, 100.0, 0.0);
        rank.follow(class, 120.0, 0.0);
        assert_eq!(rank, Rank { class, now: 100.0, today: 0.0 });
        rank.follow(class, 126.0, 7.0);
        assert_eq!(rank, Rank { class, now: 126.0, today: 7.0 });
        rank.follow(RankClass::Usual, 0.0, 7.0);
        assert_eq!((rank.class, rank.now), (RankClass::Usual, 0.0));
    }

    #[test]
    fn affected_row_is_above_an_uncertain_one_with_more_requests() {
        let rank = |class, now| Rank { class, now, today: 0.0 };
        let affected = rank(RankClass::Affected, 10.0);
        let uncertain = rank(RankClass::Uncertain, 500.0);
        assert_eq!(affected.compare(&uncertain), Ordering::Less);
        assert_eq!(uncertain.compare(&rank(RankClass::Usual, 0.0)), Ordering::Less);
    }

    #[test]
    fn the_hour_ends_with_the_running_minute() {
        assert_eq!(first_minute(HOUR), MINUTE);
        assert_eq!(first_minute(HOUR + MINUTE - 1), MINUTE);
        assert_eq!(first_minute(HOUR + MINUTE), 2 * MINUTE);
    }
}
