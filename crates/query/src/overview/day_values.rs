//! Values of a row since the start of a day, in total and by hour.
//!
//! A day begins at the midnight of a reader: two readers in two time zones have two days.

use hist::Mixture;
use model::Gap;
use store::{HOUR, MINUTE, TimeGrid};

use super::day_hours::{DayHours, HourlyThresholds, WorstHour};
use super::row_reader::{RowReader, gap_bytes, merge, mixture_bytes};
use super::row_threshold::RowThreshold;
use crate::error::Result;

/// Values that arrive later than this are seen by the next complete read.
pub(super) const LATE: i64 = 5 * MINUTE;
/// The day is read whole after this time.
pub(super) const DAY_READ_EVERY: i64 = 30 * MINUTE;

/// What has been read of a day.
#[derive(Clone, Debug)]
pub(super) struct DayValues {
    /// Start of the day, in nanoseconds since the Unix epoch.
    pub(super) start: i64,
    /// Values until `closed_end`, in total and by hour, and the known gaps in them.
    closed: Mixture,
    closed_hours: DayHours,
    closed_gaps: Vec<Gap>,
    closed_end: i64,
    /// Minute of the first of them, or start of the day.
    closed_first: Option<i64>,
    /// All values, summed when they are read, so that a page sums nothing, and the threshold that
    /// was learned from those of them that are in `closed`.
    pub(super) all: Mixture,
    pub(super) learned: Option<RowThreshold>,
    /// What was learned from each hour that ended.
    hourly_thresholds: HourlyThresholds,
    /// Time of the last read of the whole day.
    whole_read_at: Option<i64>,
    /// Times of the last refresh that was for this day, and of the last one that read the row.
    pub(super) asked_at: i64,
    pub(super) refreshed_at: Option<i64>,
}

impl DayValues {
    /// A day of which nothing has been read.
    pub(super) fn new(start: i64) -> DayValues {
        DayValues {
            start,
            closed: Mixture::default(),
            closed_hours: DayHours::default(),
            closed_gaps: Vec::new(),
            closed_end: start,
            closed_first: None,
            all: Mixture::default(),
            learned: None,
            hourly_thresholds: HourlyThresholds::default(),
            whole_read_at: None,
            asked_at: 0,
            refreshed_at: None,
        }
    }

    /// Whether the day has been read.
    pub(super) fn is_read(&self) -> bool {
        self.whole_read_at.is_some()
    }

    /// Time from which the whole day is due.
    pub(super) fn due_at(&self) -> i64 {
        self.whole_read_at.map_or(i64::MIN, |at| at + DAY_READ_EVERY)
    }

    /// Known gaps in the values that are not read again at each refresh.
    pub(super) fn gaps(&self) -> &[Gap] {
        &self.closed_gaps
    }

    /// Memory of the values, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<DayValues>()
            + mixture_bytes(&self.closed)
            + mixture_bytes(&self.all)
            + self.closed_hours.memory_bytes()
            + self.hourly_thresholds.memory_bytes()
            + gap_bytes(&self.closed_gaps)
    }

    /// Reads the whole day. Gaps of its last minutes are added to `gaps`.
    pub(super) fn read_whole(
        &mut self,
        reader: RowReader<'_>,
        now: i64,
        gaps: &mut Vec<Gap>,
    ) -> Result<()> {
        (self.closed, self.closed_hours) = Default::default();
        self.closed_gaps.clear();
        self.closed_first = None;
        self.closed_end = self.start;
        self.read_on(reader, now, gaps)?;
        self.whole_read_at = Some(now);
        Ok(())
    }

    /// Continues the values: those older than [`LATE`] are read once. Gaps of the others are added
    /// to `gaps`.
    pub(super) fn read_on(
        &mut self,
        reader: RowReader<'_>,
        now: i64,
        gaps: &mut Vec<Gap>,
    ) -> Result<()> {
        let closed_end = (now - LATE).max(self.closed_end);
        let closed_end = closed_end - closed_end.rem_euclid(MINUTE);
        if closed_end > self.closed_end {
            self.close_hours(reader, closed_end)?;
        }
        let open = reader.column(self.closed_end..now, gaps)?;
        self.all = merge(&self.closed, &open)?;
        self.find_first(reader)?;
        let closed = self.closed_first.unwrap_or(self.start)..self.closed_end;
        let mut learn = RowThreshold::value_of_hour;
        let known = &mut self.hourly_thresholds;
        let hours = self.closed_hours.learned(known, self.closed_end, &mut learn)?;
        self.learned = RowThreshold::median_of_hours(hours, closed.clone())
            .or_else(|| RowThreshold::learned(&self.closed, closed));
        Ok(())
    }

    /// Finds the first minute with values, where they begin later than the day.
    fn find_first(&mut self, reader: RowReader<'_>) -> Result<()> {
        let hour = match self.closed_hours.first_start() {
            Some(hour) if self.closed_first.is_none() => hour,
            _ => return Ok(()),
        };
        let mut first = hour;
        if hour > self.start {
            let minutes = (HOUR.min(self.closed_end - hour) / MINUTE).unsigned_abs();
            for column in
                reader.columns(TimeGrid { start: hour, step: MINUTE, columns: minutes })?
            {
                let column = column?;
                if column.value.count() > 0 {
                    first = column.start;
                    break;
                }
            }
        }
        self.closed_first = Some(first);
        Ok(())
    }

    /// Adds the values until `end` to their hours, which begin at the start of the day.
    fn close_hours(&mut self, reader: RowReader<'_>, end: i64) -> Result<()> {
        while self.closed_end < end {
            let into_hour = (self.closed_end - self.start).rem_euclid(HOUR);
            let start = self.closed_end - into_hour;
            let whole_hours = (end - start) / HOUR;
            // Whole hours are read at once, from rollups; the rest of an hour by itself.
            let (step, columns) = match into_hour == 0 && whole_hours > 0 {
                true => (HOUR, whole_hours),
                false => ((start + HOUR).min(end) - self.closed_end, 1),
            };
            let grid = TimeGrid { start: self.closed_end, step, columns: columns.unsigned_abs() };
            for column in reader.columns(grid)? {
                let column = column?;
                self.closed_gaps.extend(column.gaps);
                let into_hour = (column.start - self.start).rem_euclid(HOUR);
                self.closed_hours.add(column.start - into_hour, &column.value)?;
                self.closed = merge(&self.closed, &column.value)?;
                // A read that is cancelled continues here.
                self.closed_end = column.start + step;
            }
            self.closed_end = grid.start + step * columns;
        }
        // A gap that continues is one of many columns.
        self.closed_gaps.sort_unstable();
        self.closed_gaps.dedup();
        Ok(())
    }

    /// Hour with most values above a threshold beyond those expected there.
    pub(super) fn worst_hour(&self, threshold: &RowThreshold) -> Result<Option<WorstHour>> {
        self.closed_hours.worst(threshold, self.closed_end)
    }

    /// Start of the affected hours that last until `time`.
    pub(super) fn affected_since(
        &self,
        threshold: &RowThreshold,
        time: i64,
    ) -> Result<Option<i64>> {
        self.closed_hours.affected_since(threshold, time)
    }
}
