//! State of a row between refreshes: what has been read of its series, and until when.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use hist::Mixture;
use model::Gap;
use store::{DAY, HOUR, MINUTE, ReadView, SeriesEntryRef, TimeColumn, TimeGrid};

use super::affected_users::{AffectedUsers, RowUsers, UserReadLimit, UserScan};
use super::day_hours::WorstHour;
use super::day_values::{DayValues, LATE};
use super::deviation::{DAYS, DAYS_MIN, Deviation};
use super::mini_heatmap::{COLUMNS, MinuteCounts, SamplePresence};
use super::onset::onset;
use super::row_reader::{RowReader, gap_bytes, merge, mixture_bytes};
use super::row_threshold::{RowThreshold, ThresholdOrigin};
use super::{OverviewTimes, RECENT};
use crate::error::Result;

/// The hour is read whole, and compared with the past days, after this time.
const HOUR_READ_EVERY: i64 = 5 * MINUTE;
/// Maximum number of days whose values are retained: those of readers in as many time zones. The
/// one that was asked last is first.
const DAYS_HELD_MAX: usize = 3;
/// A day that nobody asked for so long is forgotten.
const DAY_HELD: i64 = HOUR;
/// Maximum number of series whose rows are read for the length of rows: those of a row of the
/// overview come from programs that report alike.
const LENGTH_SERIES_MAX: usize = 8;
/// Maximum number of series that are asked for rows until so many have some.
const LENGTH_TRIES_MAX: usize = 64;
/// Range of the samples from whose distances the length of cumulative rows is learned.
const LENGTH_RANGE: i64 = 4 * HOUR;
/// Maximum number of series whose rows are read to tell a minute without values from one without
/// rows; with more of them it is not told.
const ROW_SERIES_MAX: usize = 16;

/// What has been read of a row. A clone is a snapshot: readers have one while the row is read on.
#[derive(Clone, Debug, Default)]
pub(super) struct RowState {
    pub(super) series: Arc<[SeriesEntryRef]>,
    /// Time of the last read; `None` before the first one.
    pub(super) read_at: Option<i64>,
    /// Values of the last five minutes.
    pub(super) recent: Arc<Mixture>,
    /// Counts of the last minutes, until `minutes_end`.
    pub(super) minutes: MinuteCounts,
    minutes_end: i64,
    /// Values of today, which begins at another time in each time zone.
    days: Vec<DayValues>,
    /// Time of the last comparison with the past days.
    compared_at: Option<i64>,
    pub(super) deviation: Option<Deviation>,
    /// Threshold learned from the days before `learned_on`.
    learned: Option<RowThreshold>,
    learned_on: Option<i64>,
    /// End of the newest row.
    pub(super) latest_end: Option<i64>,
    /// Known gaps in what each refresh reads again, and in the last hour.
    recent_gaps: Vec<Gap>,
    hour_gaps: Vec<Gap>,
    /// Users above the thresholds that were asked last; of all snapshots.
    user_scans: Arc<Mutex<Vec<UserScan>>>,
    /// Whether the memory of the overview has no room for the row.
    pub(super) is_refused: bool,
    /// Score by which the row is sorted; it follows the actual score with hysteresis. Of all
    /// snapshots.
    rank: Arc<Mutex<Rank>>,
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
    /// The row with the series that exist now; itself if these are known.
    pub(super) fn with_series(mut self: Arc<Self>, series: Vec<SeriesEntryRef>) -> Arc<RowState> {
        let id = |of: &SeriesEntryRef| (of.as_ref().position(), of.as_ref().id());
        if !self.series.iter().map(id).eq(series.iter().map(id)) {
            Arc::make_mut(&mut self).series = series.into();
        }
        self
    }

    pub(super) fn rank(&self) -> Rank {
        *self.rank.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the scores over, see [`Rank::follow`].
    pub(super) fn follow_rank(&self, class: RankClass, now: f64, today: f64) -> Rank {
        let mut rank = self.rank.lock().unwrap_or_else(PoisonError::into_inner);
        rank.follow(class, now, today);
        *rank
    }

    /// Values of the day that begins at a time, if the row has been read for it.
    pub(super) fn day(&self, start: i64) -> Option<&DayValues> {
        self.days.iter().find(|day| day.start == start)
    }

    /// Whether the row was compared with the past days and has the whole day.
    pub(super) fn is_complete(&self, today_start: i64) -> bool {
        self.compared_at.is_some() && self.day(today_start).is_some_and(DayValues::is_read)
    }

    /// Known gaps since the start of today and in the last hour.
    pub(super) fn gaps(&self, today_start: i64) -> Vec<Gap> {
        let of_day = self.day(today_start).map_or(&[][..], DayValues::gaps);
        let mut gaps = [&self.recent_gaps[..], &self.hour_gaps, of_day].concat();
        gaps.sort_unstable();
        gaps.dedup();
        gaps
    }

    /// Times of the last reads of the row, for the day and at all. The rows of a day whose readers
    /// take turns with those of another one are all read.
    pub(super) fn last_reads(&self, today_start: i64) -> (i64, i64) {
        let of_day = self.day(today_start).and_then(|day| day.refreshed_at);
        (of_day.unwrap_or(i64::MIN), self.read_at.unwrap_or(i64::MIN))
    }

    /// Time from which the complete reads are due.
    pub(super) fn due_at(&self, today_start: i64) -> i64 {
        let compared = self.compared_at.map_or(i64::MIN, |at| at + HOUR_READ_EVERY);
        compared.min(self.day(today_start).map_or(i64::MIN, DayValues::due_at))
    }

    /// Whether the row's history has been read at least in part.
    pub(super) fn has_history(&self) -> bool {
        self.compared_at.is_some()
    }

    /// Threshold of the row: in this order one that was set, a declared one, one of an SLO of some
    /// of its series, one learned from the days before today, and one learned from today.
    pub(super) fn threshold(
        &self,
        set: Option<RowThreshold>,
        today_start: i64,
    ) -> Option<RowThreshold> {
        let today = self.day(today_start);
        let (of_part, set) = match set {
            Some(set) if matches!(set.origin, ThresholdOrigin::SloOfPart(_)) => (Some(set), None),
            set => (None, set),
        };
        set.or_else(|| RowThreshold::declared(&self.recent))
            .or_else(|| RowThreshold::declared(&today?.all))
            .or(of_part)
            .or_else(|| self.learned.clone())
            .or_else(|| today?.learned.clone())
    }

    /// Memory of the row, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<RowState>()
            + self.series.iter().map(series_bytes).sum::<usize>()
            + mixture_bytes(&self.recent)
            + self.days.iter().map(DayValues::memory_bytes).sum::<usize>()
            + self.minutes.memory_bytes()
            + self.scan_bytes()
            + gap_bytes(&self.recent_gaps)
            + gap_bytes(&self.hour_gaps)
    }

    /// Takes the day of a refresh to the front; a new one has nothing read.
    fn select_day(&mut self, OverviewTimes { now, today_start }: OverviewTimes) {
        self.days.retain(|day| day.start == today_start || day.asked_at + DAY_HELD > now);
        let mut day = match self.days.iter().position(|day| day.start == today_start) {
            Some(at) => self.days.remove(at),
            None => DayValues::new(today_start),
        };
        day.asked_at = now;
        self.days.insert(0, day);
        self.days.truncate(DAYS_HELD_MAX);
    }

    /// Removes the days of readers of other time zones than the last one.
    pub(super) fn release_other_days(&mut self) {
        self.days.truncate(1);
    }

    /// Reads the last five minutes, and what follows the last read.
    pub(super) fn read_recent(&mut self, view: &ReadView, times: OverviewTimes) -> Result<()> {
        let now = times.now;
        self.select_day(times);
        let mut gaps = Vec::new();
        let recent = RowReader::new(view, &self.series).column(now - RECENT..now, &mut gaps)?;
        self.recent = Arc::new(recent);
        self.latest_end = view.latest_end(&self.series)?;
        if self.compared_at.is_some() {
            let start = (self.minutes_end - LATE).max(first_minute(now));
            self.read_minutes(view, start..minute_after(now))?;
        }
        let day = self.days.first_mut().expect("BUG: a refresh has a day");
        if day.is_read() {
            day.read_on(RowReader::new(view, &self.series), now, &mut gaps)?;
        }
        day.refreshed_at = Some(now);
        self.recent_gaps = gaps;
        self.read_at = Some(now);
        Ok(())
    }

    /// Reads the hour and the day whole, and compares the hour with those of the past days.
    pub(super) fn read_history(&mut self, view: &ReadView, times: OverviewTimes) -> Result<()> {
        let OverviewTimes { now, today_start } = times;
        self.select_day(times);
        // Gaps in the past days are not those of the row's present values.
        let mut past_gaps = Vec::new();
        if self.compared_at.is_none_or(|at| at + HOUR_READ_EVERY <= now) {
            self.read_minutes(view, first_minute(now)..minute_after(now))?;
            let lacks_rows = self.minutes.lacks_samples(first_minute(now));
            self.minutes.row_minutes = match lacks_rows {
                true => self.row_minutes(view, now)?,
                false => None,
            };
            let reader = RowReader::new(view, &self.series);
            let hour = reader.column(now - HOUR..now, &mut past_gaps)?;
            // The hour of the clock that shares most with the last 60 minutes: rolled up, so that
            // each day is one row.
            let middle = now - HOUR / 2;
            let clock_hour = middle - middle.rem_euclid(HOUR);
            let past: Result<Vec<Mixture>> = (1..=DAYS as i64)
                .map(|day| clock_hour - day * DAY)
                .map(|start| reader.column(start..start + HOUR, &mut past_gaps))
                .collect();
            self.deviation = Some(Deviation::of(&hour, &past?));
            self.compared_at = Some(now);
        }
        let utc_day = now - now.rem_euclid(DAY);
        if self.learned_on != Some(utc_day) {
            self.learned = self.learn(view, utc_day)?;
            self.learned_on = Some(utc_day);
        }
        if self.day(today_start).is_none_or(|day| day.due_at() <= now) {
            let reader = RowReader::new(view, &self.series);
            let day = self.days.first_mut().expect("BUG: a refresh has a day");
            day.read_whole(reader, now, &mut self.recent_gaps)?;
        }
        Ok(())
    }

    /// The threshold learned from the days before one.
    fn learn(&self, view: &ReadView, day: i64) -> Result<Option<RowThreshold>> {
        let reader = RowReader::new(view, &self.series);
        let week = day - DAYS as i64 * DAY..day;
        let (mut first, mut days, mut values) = (None, 0, Mixture::default());
        let grid = TimeGrid { start: week.start, step: DAY, columns: DAYS as u64 };
        for column in reader.columns(grid)? {
            let column = column?;
            if column.value.count() > 0 {
                first = first.or(Some(column.start));
                days += 1;
                values = merge(&values, &column.value)?;
            }
        }
        let Some(first) = first else { return Ok(None) };
        if days >= DAYS_MIN {
            return Ok(RowThreshold::learned(&values, week));
        }
        let grid = TimeGrid { start: first, step: HOUR, columns: ((day - first) / HOUR) as u64 };
        let mut hours = Vec::new();
        for column in reader.columns(grid)? {
            hours.push(column?.value);
        }
        // A service of few requests has no hour with enough of them.
        Ok(RowThreshold::learned_by_hour(&hours, first..day)
            .or_else(|| RowThreshold::learned(&values, week)))
    }

    fn read_minutes(&mut self, view: &ReadView, range: Range<i64>) -> Result<()> {
        let columns = (range.end - range.start) / MINUTE;
        let grid = TimeGrid { start: range.start, step: MINUTE, columns: columns.max(0) as u64 };
        let columns = RowReader::new(view, &self.series).columns(grid)?;
        let columns = columns.collect::<Result<Vec<TimeColumn<Mixture>>>>()?;
        let empty = columns.iter().filter(|column| column.value.count() == 0);
        // Those of earlier minutes are not read again.
        let first = first_minute(range.end - 1);
        self.hour_gaps.retain(|gap| gap.start < range.start && first < gap.end);
        let mut ends = RowEnds::Unread(enclosing(empty.map(|column| column.start..column.end)));
        for column in columns {
            let presence = match column.value.count() {
                0 => self.presence(view, &mut ends, column.start)?,
                _ => SamplePresence::Present,
            };
            let has_gap = !column.gaps.is_empty();
            self.minutes.set(column.start, &column.value, has_gap, presence);
            self.hour_gaps.extend(column.gaps);
        }
        self.hour_gaps.sort_unstable();
        self.hour_gaps.dedup();
        self.minutes.forget_before(first);
        self.minutes_end = range.end;
        Ok(())
    }

    /// Whether a row without values ends in a minute.
    fn presence(&self, view: &ReadView, ends: &mut RowEnds, start: i64) -> Result<SamplePresence> {
        if self.latest_end.is_none_or(|latest| latest <= start) {
            return Ok(SamplePresence::Absent);
        }
        if self.series.len() > ROW_SERIES_MAX {
            return Ok(SamplePresence::Unknown);
        }
        if let RowEnds::Unread(range) = ends {
            let mut minutes = BTreeSet::new();
            for series in self.series.iter() {
                view.samples(series, range.clone(), &mut |sample| {
                    // A row belongs to the nanosecond before its end.
                    let last = sample.end.saturating_sub(1);
                    minutes.insert(last - last.rem_euclid(MINUTE));
                })?;
            }
            *ends = RowEnds::Minutes(minutes);
        }
        let is_present = matches!(ends, RowEnds::Minutes(minutes) if minutes.contains(&start));
        Ok(if is_present { SamplePresence::Present } else { SamplePresence::Absent })
    }

    /// Hour of today with most values above a threshold beyond those expected there.
    pub(super) fn worst_hour(
        &self,
        threshold: &RowThreshold,
        today_start: i64,
    ) -> Result<Option<WorstHour>> {
        match self.day(today_start) {
            Some(day) => day.worst_hour(threshold),
            None => Ok(None),
        }
    }

    /// Since when too many values are above a threshold: a minute of the last hour, or an hour of
    /// today. `None` if they are not now, too close to it to tell, or since before today's second
    /// hour, which may be since yesterday.
    pub(super) fn affected_since(
        &self,
        threshold: &RowThreshold,
        times: OverviewTimes,
    ) -> Result<Option<Range<i64>>> {
        let minutes = self.minutes.above(threshold.value);
        let now_minutes = usize::try_from(RECENT / MINUTE).unwrap_or(1);
        let row_minutes = self.minutes.row_minutes.unwrap_or(1);
        let first = onset(&minutes, now_minutes.max(row_minutes), threshold);
        let Some(at) = first.map(|first| minutes[first].start) else { return Ok(None) };
        // The values of a row are of any of the minutes that it covers.
        let since = at - (row_minutes as i64 - 1) * MINUTE..at + MINUTE;
        if since.start > first_minute(times.now) {
            return Ok(Some(since));
        }
        // It began before the minutes that are held. What began before today is not known.
        let day = self.day(times.today_start);
        let hour = day.map(|day| day.affected_since(threshold, since.start)).transpose()?.flatten();
        let hour = hour.filter(|start| *start > times.today_start);
        Ok(hour.map(|start| start..start + HOUR))
    }

    /// Minutes that a row covers: the median of the series that have rows, the lower one of two. A
    /// series that reports at another interval, or was silent, does not decide for the others.
    fn row_minutes(&self, view: &ReadView, now: i64) -> Result<Option<usize>> {
        let tries = self.series.len().min(LENGTH_TRIES_MAX);
        let mut lengths = Vec::new();
        // Spread over the row: neighbours are often of one program.
        for series in (0..tries).map(|at| &self.series[at * self.series.len() / tries]) {
            if lengths.len() == LENGTH_SERIES_MAX {
                break;
            }
            lengths.extend(row_length(view, series, now)?);
        }
        lengths.sort_unstable();
        let median = lengths.get(lengths.len().saturating_sub(1) / 2);
        let minutes = |length: &i64| usize::try_from(length.saturating_add(MINUTE - 1) / MINUTE);
        Ok(median.map(|length| minutes(length).unwrap_or(COLUMNS).clamp(1, COLUMNS)))
    }

    /// Users above a threshold by the label that the settings name, else by one of sessions;
    /// `None` if the series have neither.
    pub(super) fn count_users(
        &self,
        view: &ReadView,
        times: OverviewTimes,
        (label, threshold): (Option<String>, Option<f64>),
        limit: &UserReadLimit<'_>,
    ) -> Result<Option<AffectedUsers>> {
        let Some(label) = RowUsers::label_of(&self.series, label.as_deref()) else {
            return Ok(None);
        };
        let mut series = self.series.to_vec();
        let users = RowUsers::of(&mut series, label);
        let Some(threshold) = threshold else { return Ok(Some(users.without_threshold())) };
        if let Some(many) = users.too_many() {
            return Ok(Some(many));
        }
        // Another reader counts them: this one does not wait.
        let mut scans = match self.user_scans.try_lock() {
            Ok(scans) => scans,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(Some(users.counted_elsewhere())),
        };
        UserScan::select(&mut scans, (users.label(), threshold), times)
            .count(view, &users, times, limit)
            .map(Some)
    }

    /// Time of the last refresh that had time to count users; `None` also while they are counted.
    pub(super) fn users_attempted_at(&self) -> Option<i64> {
        self.user_scans.try_lock().ok()?.first().and_then(UserScan::attempted_at)
    }

    /// Whether users were counted for the row.
    pub(super) fn has_users(&self) -> bool {
        self.user_scans.try_lock().is_ok_and(|scans| !scans.is_empty())
    }

    /// Memory of the users; while they are counted, they are not measured.
    fn scan_bytes(&self) -> usize {
        let scans = self.user_scans.try_lock();
        scans.map_or(0, |scans| scans.iter().map(UserScan::memory_bytes).sum())
    }
}

/// Longest row of a series in the last hour; `None` without rows. Cumulative ones last since the
/// row before. What is clearly longer than the median is a pause, or was sent after one.
fn row_length(view: &ReadView, series: &SeriesEntryRef, now: i64) -> Result<Option<i64>> {
    let is_cumulative = series.as_ref().kind.is_cumulative();
    let range = if is_cumulative { LENGTH_RANGE } else { HOUR };
    let (mut lengths, mut before) = (Vec::new(), None);
    view.samples(series, now - range..now, &mut |sample| {
        let start = if is_cumulative { before } else { Some(sample.start) };
        lengths.extend(start.map(|start: i64| sample.end.saturating_sub(start)));
        before = Some(sample.end);
    })?;
    lengths.sort_unstable();
    if let Some(median) = lengths.get(lengths.len() / 2).copied() {
        lengths.retain(|length| *length <= median.saturating_add(median / 2));
    }
    Ok(lengths.last().copied())
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
