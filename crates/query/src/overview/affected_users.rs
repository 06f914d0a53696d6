//! Users, or sessions, with a value above the threshold of a row: in the last five minutes, and
//! today.
//!
//! Users are the values of a label of the row's series. Each one is read by itself: the last five
//! minutes at each refresh, and the hours of today before them once. A read of a user without newer
//! rows is a look-up. What is read is counted, so another threshold, or the day of another time
//! zone, is another [`UserScan`].
//!
//! A refresh that is out of time leaves a pass over the users unfinished. The next one continues
//! with the time of that pass, so that it ends however many users there are; its numbers are of
//! that time.
//!
//! Limits: `USERS_MAX` users per row, `SCANS_MAX` thresholds per row, and the time of a refresh.
//! What is beyond them is unknown. Values that arrive more than five minutes late are counted when
//! the day is read anew, within half an hour.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use hist::{Bracket, LimitInclusion};
use store::{HOUR, ReadView, SeriesEntryRef};

use super::day_values::DAY_READ_EVERY;
use super::row_reader::RowReader;
use super::{OverviewTimes, RECENT};
use crate::error::Result;

/// Labels that tell sessions or users apart. `user` is not one of them: it is often an account of a
/// database, which many people share.
const USER_LABELS: [&str; 4] = ["session", "session_id", "sessionId", "user_id"];
/// Maximum number of users of a row: each is read by itself, at each refresh.
const USERS_MAX: usize = 1_000;
/// Maximum number of thresholds and days of a row whose counts are retained: those of four readers.
const SCANS_MAX: usize = 4;
/// Length of a read of the hours of today, after which the time is checked.
const CLOSED_STEP: i64 = 6 * HOUR;

/// Label that tells users apart: the one that the settings name, if some series has it (`has_value`
/// tells), else the first of `session`, `session_id`, `sessionId` and `user_id` that one has.
pub fn label_of_users(configured: Option<&str>, has_value: impl Fn(&str) -> bool) -> Option<&str> {
    match configured {
        Some(label) => Some(label).filter(|label| has_value(label)),
        None => USER_LABELS.into_iter().find(|label| has_value(label)),
    }
}

/// Users of a row with a value above its threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct AffectedUsers {
    /// Label that tells users apart.
    pub label: String,
    /// Those of the last five minutes; `None` if unknown.
    pub now: Option<Bracket<u64>>,
    /// Those since the start of today; `None` if unknown.
    pub today: Option<Bracket<u64>>,
    /// Why a number is unknown.
    pub reason: Option<String>,
    /// Whether the next refresh continues to read.
    pub is_pending: bool,
}

/// Time for the reads of users.
pub(super) struct UserReadLimit<'a> {
    pub(super) budget: Duration,
    pub(super) elapsed: &'a dyn Fn() -> Duration,
}

impl UserReadLimit<'_> {
    fn is_reached(&self) -> bool {
        (self.elapsed)() >= self.budget
    }
}

/// Series of a row by user.
pub(super) struct RowUsers<'a> {
    label: &'a str,
    users: BTreeMap<&'a str, &'a [SeriesEntryRef]>,
}

impl<'a> RowUsers<'a> {
    /// The label that [`label_of_users`] finds; `None` if no series has it.
    pub(super) fn label_of(
        series: &[SeriesEntryRef],
        configured: Option<&'a str>,
    ) -> Option<&'a str> {
        label_of_users(configured, |label| {
            series.iter().any(|found| found.series.label(label).is_some_and(|of| !of.is_empty()))
        })
    }

    /// By a label, by which the series are sorted.
    pub(super) fn of(series: &'a mut [SeriesEntryRef], label: &'a str) -> RowUsers<'a> {
        model::sort::by(series, |a, b| a.series.label(label).cmp(&b.series.label(label)));
        let series: &'a [SeriesEntryRef] = series;
        let by_user = series.chunk_by(|a, b| a.series.label(label) == b.series.label(label));
        let of_user = |some: &'a [SeriesEntryRef]| {
            let user = some.first()?.series.label(label)?;
            (!user.is_empty()).then_some((user, some))
        };
        RowUsers { label, users: model::sort::map(by_user.filter_map(of_user)) }
    }

    pub(super) fn label(&self) -> &str {
        self.label
    }

    /// The answer of a row without a threshold.
    pub(super) fn without_threshold(&self) -> AffectedUsers {
        self.unknown("no threshold", false)
    }

    /// The answer of a row with more users than are read.
    pub(super) fn too_many(&self) -> Option<AffectedUsers> {
        let found = self.users.len();
        let why = format!("users limit ({USERS_MAX}) exceeded: there are {found}");
        (found > USERS_MAX).then(|| self.unknown(&why, false))
    }

    /// The answer while another reader counts.
    pub(super) fn counted_elsewhere(&self) -> AffectedUsers {
        self.unknown("another reader counts them", true)
    }

    fn unknown(&self, reason: &str, is_pending: bool) -> AffectedUsers {
        let (label, reason) = (self.label.to_owned(), Some(reason.to_owned()));
        AffectedUsers { label, now: None, today: None, reason, is_pending }
    }
}

/// Values of the users of a row above a threshold, as far as they have been read.
#[derive(Debug)]
pub(super) struct UserScan {
    label: String,
    threshold: f64,
    today_start: i64,
    /// When the first read of the day began.
    began_at: i64,
    users: BTreeMap<String, UserCounts>,
    /// Time of the pass that is not finished: its last minutes end there.
    pass_at: Option<i64>,
    /// Times of the last refresh that asked for the counts, and of the last one that had time for
    /// them.
    asked_at: i64,
    attempted_at: Option<i64>,
}

/// Numbers of values of a user above the threshold.
#[derive(Clone, Copy, Debug)]
struct UserCounts {
    /// Since the start of today, until `closed_end`.
    closed: Bracket<u64>,
    closed_end: i64,
    /// In the five minutes before `recent_at`, and in those of them that are of today.
    recent: Bracket<u64>,
    recent_today: Bracket<u64>,
    recent_at: Option<i64>,
}

impl UserScan {
    /// The scan of a label and a threshold, the last used one first; a new one takes the place of
    /// that which was used longest ago.
    pub(super) fn select<'s>(
        scans: &'s mut Vec<UserScan>,
        (label, threshold): (&str, f64),
        times: OverviewTimes,
    ) -> &'s mut UserScan {
        let OverviewTimes { now, today_start } = times;
        scans.retain(|scan| scan.began_at + DAY_READ_EVERY > now);
        let is_same = |scan: &UserScan| {
            (scan.label == label && scan.today_start == today_start)
                && scan.threshold.to_bits() == threshold.to_bits()
        };
        let scan = match scans.iter().position(is_same) {
            Some(at) => scans.remove(at),
            None => UserScan {
                label: label.to_owned(),
                threshold,
                today_start,
                began_at: now,
                users: BTreeMap::new(),
                pass_at: None,
                asked_at: now,
                attempted_at: None,
            },
        };
        scans.insert(0, scan);
        scans.truncate(SCANS_MAX);
        &mut scans[0]
    }

    pub(super) fn attempted_at(&self) -> Option<i64> {
        self.attempted_at
    }

    /// Memory of the counts, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let user_bytes = |name: &String| name.capacity() + size_of::<(String, UserCounts)>();
        size_of::<UserScan>() + self.users.keys().map(user_bytes).sum::<usize>()
    }

    /// Reads what is new, the last minutes first, and counts the users above the threshold.
    pub(super) fn count(
        &mut self,
        view: &ReadView,
        series: &RowUsers<'_>,
        times: OverviewTimes,
        limit: &UserReadLimit<'_>,
    ) -> Result<AffectedUsers> {
        // Series may have been deleted or retired.
        self.users.retain(|user, _| series.users.contains_key(user.as_str()));
        // A pass that nobody asked for in the meantime would tell of a time long ago.
        let held = self.pass_at.filter(|_| self.asked_at + RECENT > times.now);
        let pass_at = held.unwrap_or(times.now);
        self.pass_at = Some(pass_at);
        self.asked_at = times.now;
        if !self.read_recent(view, series, pass_at, limit)? {
            return Ok(series.unknown("not read yet: out of time", true));
        }
        let is_read = self.close(view, series, pass_at - RECENT, limit)?;
        if is_read {
            self.pass_at = None;
            self.attempted_at = Some(times.now);
        }
        let now = number_of(&self.users, |counts| counts.recent);
        let today = number_of(&self.users, |counts| sum(counts.closed, counts.recent_today));
        Ok(AffectedUsers {
            label: self.label.clone(),
            now: Some(now),
            today: is_read.then_some(today),
            reason: (!is_read).then(|| "today not read whole yet: out of time".to_owned()),
            is_pending: !is_read,
        })
    }

    /// Continues a pass with the last minutes of the users; returns whether all are there.
    fn read_recent(
        &mut self,
        view: &ReadView,
        series: &RowUsers<'_>,
        pass_at: i64,
        limit: &UserReadLimit<'_>,
    ) -> Result<bool> {
        let unread = UserCounts {
            closed: Bracket::exact(0),
            closed_end: self.today_start,
            recent: Bracket::exact(0),
            recent_today: Bracket::exact(0),
            recent_at: None,
        };
        for (user, of_user) in &series.users {
            if !self.users.contains_key(*user) {
                self.users.insert((*user).to_owned(), unread);
            }
            let counts = self.users.get_mut(*user).expect("BUG: inserted above");
            if counts.recent_at == Some(pass_at) {
                continue;
            }
            if limit.is_reached() {
                return Ok(false);
            }
            self.attempted_at = Some(self.asked_at);
            let start = pass_at - RECENT;
            counts.recent = above(view, of_user, start..pass_at, self.threshold)?;
            counts.recent_today = match self.today_start > start {
                true => above(view, of_user, self.today_start..pass_at, self.threshold)?,
                false => counts.recent,
            };
            counts.recent_at = Some(pass_at);
        }
        Ok(true)
    }

    /// Continues the counts of today until `end`; returns whether all are there.
    fn close(
        &mut self,
        view: &ReadView,
        series: &RowUsers<'_>,
        end: i64,
        limit: &UserReadLimit<'_>,
    ) -> Result<bool> {
        for (user, of_user) in &series.users {
            let counts = self.users.get_mut(*user).expect("BUG: a user was not read");
            while counts.closed_end < end {
                if limit.is_reached() {
                    return Ok(false);
                }
                self.attempted_at = Some(self.asked_at);
                let next = (counts.closed_end + CLOSED_STEP).min(end);
                let closed = above(view, of_user, counts.closed_end..next, self.threshold)?;
                counts.closed = sum(counts.closed, closed);
                counts.closed_end = next;
            }
        }
        Ok(true)
    }
}

/// Number of values above a threshold in a range.
fn above(
    view: &ReadView,
    series: &[SeriesEntryRef],
    range: Range<i64>,
    threshold: f64,
) -> Result<Bracket<u64>> {
    // Most sessions are over.
    if range.is_empty() || view.latest_end(series)?.is_none_or(|end| end <= range.start) {
        return Ok(Bracket::exact(0));
    }
    // Gaps are those of the row.
    let values = RowReader::new(view, series).column(range, &mut Vec::new())?;
    Ok(values.count_above(threshold, LimitInclusion::Exclusive))
}

/// Number of users with a value above the threshold.
fn number_of(
    users: &BTreeMap<String, UserCounts>,
    count: impl Fn(&UserCounts) -> Bracket<u64>,
) -> Bracket<u64> {
    let affected = users.values().map(|counts| {
        let one = |n: u64| n.min(1);
        let Bracket { lower, estimate, upper } = count(counts);
        Bracket { lower: one(lower), estimate: one(estimate), upper: one(upper) }
    });
    affected.fold(Bracket::exact(0), sum)
}

fn sum(a: Bracket<u64>, b: Bracket<u64>) -> Bracket<u64> {
    Bracket {
        lower: a.lower.saturating_add(b.lower),
        estimate: a.estimate.saturating_add(b.estimate),
        upper: a.upper.saturating_add(b.upper),
    }
}
