//! Overview of all distributions: which rows have requests above their threshold, how many, and
//! how unusual the last hour is.
//!
//! A row is a metric with distributions, or a metric of one service; the counters of the buckets of
//! a classic histogram are one metric. An [`Overview`] is kept between questions: a refresh reads
//! what is new, first the last five minutes of every row, then, in the time that is left, the
//! histories that are due. What has not been read yet is unknown, and is shown as unknown.
//!
//! A page is answered from what the refresh has read and summed: it computes the threshold and the
//! score of every row, and everything else only of the rows that it shows. Users are counted for
//! these rows only ([`affected_users`]).
//!
//! Today begins at the midnight of each reader, before six o'clock at the one before; what was read
//! of the days of readers in a few other time zones is retained.
//!
//! The distributions of load runs have no rows: a run ends, and would be shown as a service that
//! fell silent.
//!
//! Limits: [`ROWS_MAX`] rows, [`SERIES_MAX`] series per row, [`MEMORY_BYTES_MAX`].

pub mod affected_users;
pub mod day_hours;
pub mod deviation;
pub mod mini_heatmap;
pub mod row_threshold;

mod day_values;
mod excess;
mod found_rows;
mod load_runs;
mod onset;
mod row_ranking;
mod row_reader;
mod row_state;
mod summary;

pub use self::summary::OverviewSummary;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hist::{Bracket, Mixture};
use model::{Gap, Selector, Series, selector};
use store::{DAY, HOUR, MINUTE, ReadView};

use self::affected_users::{AffectedUsers, UserReadLimit};
use self::day_hours::WorstHour;
use self::deviation::Deviation;
use self::excess::{ExcessSignificance, ExpectedValues};
use self::found_rows::FoundRows;
use self::mini_heatmap::MiniHeatmap;
use self::row_ranking::RowRanking;
use self::row_state::{Rank, RowState};
use self::row_threshold::RowThreshold;
use crate::error::{Error, Result};

/// "Now": the last five minutes, in nanoseconds.
pub const RECENT: i64 = 5 * MINUTE;
/// Maximum number of rows.
pub const ROWS_MAX: usize = 5_000;
/// Maximum number of series of a row.
pub const SERIES_MAX: usize = 5_000;
/// Usual maximum memory of an overview, in bytes: room for [`ROWS_MAX`] rows of 46 kB, which a row
/// has with 40 different values in each minute of the hour.
pub const MEMORY_BYTES_MAX: usize = 256 << 20;

/// Length of a day to which the one before it belongs, in nanoseconds.
const YOUNG_DAY: i64 = 6 * HOUR;
/// Labels that name the service of a series; the first one that it has counts.
const SERVICE_LABELS: [&str; 4] = ["service.name", "service_name", "service", "job"];
/// Prefixes of topdeck's metrics of itself and of the host.
const OWN_PREFIX: &str = "topdeck_";
const HOST_PREFIX: &str = "host_";
/// Share of the time that the reads of the last five minutes may take.
const RECENT_SHARE: f64 = 0.6;

/// Times of a refresh, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverviewTimes {
    /// The current time.
    pub now: i64,
    /// Start of today, see [`OverviewTimes::of_utc_day`].
    pub today_start: i64,
}

impl OverviewTimes {
    /// Times of the day of `now` in UTC, which has no clock changes; the day that ends at `now` if
    /// that is midnight. Until six o'clock yesterday is a part of today: at 00:17 the incident of
    /// 22:00 is what a reader looks for.
    pub fn of_utc_day(now: i64) -> OverviewTimes {
        let midnight = utc_midnight(now);
        let is_young = now.saturating_sub(midnight) < YOUNG_DAY;
        OverviewTimes { now, today_start: if is_young { midnight - DAY } else { midnight } }
    }

    /// Whether today began before the midnight of `now` in UTC: texts, whose times are in UTC, call
    /// it yesterday then. The duration would not tell it: where clocks change, a day that a client
    /// chose has 23 or 25 hours.
    pub fn has_yesterday(&self) -> bool {
        self.today_start < utc_midnight(self.now)
    }
}

/// Start of the day of a time, or of the day that ends there.
fn utc_midnight(now: i64) -> i64 {
    let before = now.saturating_sub(1);
    before - before.rem_euclid(DAY)
}

/// Identity of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// Metric name.
    pub name: String,
    /// Unit; empty if unknown.
    pub unit: String,
    /// Label and value that name the service.
    pub service: Option<(String, String)>,
}

impl RowKey {
    fn of(series: &Series) -> RowKey {
        let service = SERVICE_LABELS.iter().find_map(|label| {
            series.label(label).map(|value| ((*label).to_owned(), value.to_owned()))
        });
        RowKey { name: series.name().to_owned(), unit: series.unit().to_owned(), service }
    }

    /// Selector of the row's series. The unit is needed where a metric has several.
    pub fn selector(&self, has_unit: bool) -> Selector {
        let equals = |name: &str, value: &str| Selector::label_equals(name, value);
        let service = self.service.iter().map(|(label, value)| equals(label, value));
        let unit = has_unit.then(|| equals(selector::UNIT, &self.unit));
        let name = equals(selector::NAME, &self.name);
        Selector::and([name].into_iter().chain(service).chain(unit).collect())
    }

    /// Group of the row.
    pub fn group(&self) -> RowGroup {
        match &self.name {
            name if name.starts_with(OWN_PREFIX) => RowGroup::Topdeck,
            name if name.starts_with(HOST_PREFIX) => RowGroup::Host,
            _ => RowGroup::Services,
        }
    }
}

/// Group of rows. Each is ranked on its own: a host does a hundred times as many operations as a
/// service that runs on it has requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowGroup {
    /// Metrics that other programs send.
    Services,
    /// Metrics that topdeck measures of its host.
    Host,
    /// Topdeck's metrics of itself.
    Topdeck,
}

impl RowGroup {
    /// Groups and their names.
    pub const ALL: [(RowGroup, &'static str); 3] = [
        (RowGroup::Services, "services"),
        (RowGroup::Host, "host"),
        (RowGroup::Topdeck, "topdeck"),
    ];

    /// Group with a name.
    pub fn parse(name: &str) -> Option<RowGroup> {
        RowGroup::ALL.iter().find(|group| group.1 == name).map(|group| group.0)
    }
}

/// Row of the overview. Counts are of values; whether they are requests is for the reader to say.
#[derive(Clone, Debug)]
pub struct OverviewRow {
    /// Identity.
    pub key: RowKey,
    /// Whether other rows have the same metric in another unit.
    pub has_other_unit: bool,
    /// Number of series.
    pub series: usize,
    /// Values of the last five minutes.
    pub recent: Arc<Mixture>,
    /// Number of values today.
    pub count_today: u64,
    /// Threshold; `None` if there are too few values to learn one.
    pub threshold: Option<RowThreshold>,
    /// Values above the threshold in the last five minutes, and today; `None` without a threshold,
    /// and today's before the day has been read.
    pub above: (Option<Bracket<u64>>, Option<Bracket<u64>>),
    /// Hour of today with most values above the threshold beyond those expected there; `None`
    /// without an hour with significantly more, or before the day has been read.
    pub worst_hour: Option<WorstHour>,
    /// Since when it is affected: a minute of the last hour, or an hour of today, in nanoseconds
    /// since the Unix epoch; `None` if it is not now, or if that is not known.
    pub affected_since: Option<Range<i64>>,
    /// Users with a value above the threshold; `None` if no label tells users apart.
    pub users: Option<AffectedUsers>,
    /// How unusual the last hour is; `None` before it has been compared.
    pub deviation: Option<Deviation>,
    /// The last hour; `None` without values in it.
    pub heatmap: Option<MiniHeatmap>,
    /// End of the newest data, in nanoseconds since the Unix epoch.
    pub latest_end: Option<i64>,
    /// Time of the last read; `None` before the first one.
    pub read_at: Option<i64>,
    /// Known gaps in what was read.
    pub gaps: Vec<Gap>,
}

impl OverviewRow {
    /// Values above the threshold beyond those expected there in the last five minutes, 0 if
    /// chance explains them: `None` if unknown, or if the buckets are too wide to tell.
    pub fn affected_now(&self) -> Option<f64> {
        match ExcessSignificance::of(self.above.0?, self.expected(self.recent.count())) {
            ExcessSignificance::Significant(beyond) => Some(beyond),
            ExcessSignificance::Uncertain(_) => None,
            ExcessSignificance::Insignificant => Some(0.0),
        }
    }

    /// Share of the values that is expected above the threshold.
    pub fn expected_share(&self) -> f64 {
        self.expected(0).share
    }

    /// Number of the values of the last five minutes that is expected above the threshold.
    pub fn expected_now(&self) -> f64 {
        self.expected(self.recent.count()).number()
    }

    /// Number of the values of today that is expected above the threshold.
    pub fn expected_today(&self) -> f64 {
        self.expected(self.count_today).number()
    }

    /// Share above the threshold in the last five minutes as a ratio to the expected one. Its lower
    /// bound is one of chance, too; `None` if unknown.
    pub fn burn_rate_now(&self) -> Option<Bracket> {
        self.expected(self.recent.count()).burn_rate(self.above.0?)
    }

    /// What can be said about the last five minutes.
    pub fn state(&self) -> RowStatus {
        RowStatus::of(self.above.0, self.expected(self.recent.count()))
    }

    /// What can be said about today.
    pub fn state_today(&self) -> RowStatus {
        RowStatus::of(self.above.1, self.expected(self.count_today))
    }

    fn expected(&self, count: u64) -> ExpectedValues {
        ExpectedValues::of(count, self.threshold.as_ref())
    }
}

/// What can be said about a row in a time range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowStatus {
    /// Significantly more values above the threshold than expected; above a learned one twice as
    /// many.
    Affected,
    /// Perhaps: the bucket around the threshold is too wide to tell.
    Uncertain,
    /// Not more than expected, or so few more that chance explains them.
    Usual,
    /// No data, not read yet, or no threshold.
    Unknown,
}

impl RowStatus {
    fn of(above: Option<Bracket<u64>>, expected: ExpectedValues) -> RowStatus {
        match above.map(|above| ExcessSignificance::of(above, expected)) {
            _ if expected.count == 0 => RowStatus::Unknown,
            None => RowStatus::Unknown,
            Some(ExcessSignificance::Significant(_)) => RowStatus::Affected,
            Some(ExcessSignificance::Uncertain(_)) => RowStatus::Uncertain,
            Some(ExcessSignificance::Insignificant) => RowStatus::Usual,
        }
    }
}

/// Rows by rank, and what is missing from them.
#[derive(Clone, Debug)]
pub struct OverviewPage {
    /// Times of the refresh.
    pub times: OverviewTimes,
    /// Rows of the page.
    pub rows: Vec<OverviewRow>,
    /// What is worst among all rows, those of other pages included.
    pub summary: OverviewSummary,
    /// Number of rows in total.
    pub total: usize,
    /// Number of rows whose history has not been read yet.
    pub incomplete: usize,
    /// Metrics without a row, and why.
    pub unranked: Vec<(String, String)>,
}

/// Part of the ranked rows.
#[derive(Clone, Copy, Debug)]
pub struct PageRange {
    /// Number of rows before the first one.
    pub offset: usize,
    /// Maximum number of rows.
    pub limit: usize,
}

/// Overview of a group of rows. A clone is a snapshot, which shares what has been read: readers
/// have one while the overview is refreshed.
#[derive(Clone, Debug)]
pub struct Overview {
    group: RowGroup,
    memory_bytes_max: usize,
    rows: BTreeMap<RowKey, Arc<RowState>>,
    /// Metrics that have rows of several units.
    several_units: BTreeSet<String>,
    unranked: Vec<(String, String)>,
    times: OverviewTimes,
}

impl Overview {
    /// An overview that has read nothing. Rows for which `memory_bytes_max` has no room are
    /// unranked; [`MEMORY_BYTES_MAX`] is the usual limit.
    pub fn new(group: RowGroup, memory_bytes_max: usize) -> Overview {
        Overview {
            group,
            memory_bytes_max,
            rows: BTreeMap::new(),
            several_units: BTreeSet::new(),
            unranked: Vec::new(),
            times: OverviewTimes { now: 0, today_start: 0 },
        }
    }

    /// Time of the last refresh, in nanoseconds since the Unix epoch.
    pub fn refreshed_at(&self) -> i64 {
        self.times.now
    }

    /// Whether a refresh at the same time would read more.
    pub fn has_due_reads(&self) -> bool {
        let OverviewTimes { now, today_start } = self.times;
        self.rows
            .values()
            .any(|row| row.last_reads(today_start) < (now, now) || row.due_at(today_start) <= now)
    }

    /// Reads what is new. Stops when `elapsed` exceeds `budget`: the oldest reads are repeated
    /// first, so that repeated refreshes reach every row. One row and one history are read in any
    /// case: to find the rows may take longer than `budget`.
    pub fn refresh(
        &mut self,
        view: &ReadView,
        times: OverviewTimes,
        (budget, elapsed): (Duration, &dyn Fn() -> Duration),
    ) -> Result<()> {
        self.times = times;
        self.find_rows(view);
        let mut bytes: usize = memory_bytes(&self.rows);
        let mut rows: Vec<(&RowKey, &mut Arc<RowState>)> = self.rows.iter_mut().collect();
        // Rows whose buckets exceed a limit.
        let mut excluded: Vec<(RowKey, String)> = Vec::new();
        let mut exclude = |key: &RowKey, read: Result<()>| match read {
            Err(error @ Error::Limit { .. }) => {
                excluded.push((key.clone(), error.to_string()));
                Ok(())
            }
            read => read,
        };
        model::sort::by_key(&mut rows, |(_, row)| row.last_reads(times.today_start));
        let mut has_read = false;
        for (key, row) in &mut rows {
            // By an earlier part of this refresh.
            if row.last_reads(times.today_start) == (times.now, times.now) {
                break;
            }
            if has_read && elapsed() >= budget.mul_f64(RECENT_SHARE) {
                break;
            }
            // Half: a row that is refused below frees what was read here, and the next refresh
            // would have room for it again.
            if row.read_at.is_none() && bytes >= self.memory_bytes_max / 2 {
                Arc::make_mut(row).is_refused = true;
                continue;
            }
            bytes -= row.memory_bytes();
            let read = Arc::make_mut(row).read_recent(view, times);
            // One beyond a limit is the first again at the next refresh.
            has_read |= read.is_ok();
            exclude(key, read)?;
            bytes += row.memory_bytes();
        }
        let due_at = |row: &RowState| row.due_at(times.today_start);
        rows.retain(|(_, row)| row.read_at.is_some() && due_at(row) <= times.now);
        model::sort::by_key(&mut rows, |(_, row)| due_at(row));
        has_read = false;
        for (key, row) in rows {
            if has_read && elapsed() >= budget {
                break;
            }
            if !row.has_history() && bytes >= self.memory_bytes_max {
                Arc::make_mut(row).is_refused = true;
                continue;
            }
            bytes -= row.memory_bytes();
            let read = Arc::make_mut(row).read_history(view, times);
            has_read |= read.is_ok();
            exclude(key, read)?;
            bytes += row.memory_bytes();
        }
        for (key, why) in excluded {
            if self.rows.remove(&key).is_some() {
                self.unranked.push((key.name, why));
            }
        }
        self.release_memory();
        Ok(())
    }

    /// Whether users were counted for a row.
    pub fn has_users(&self) -> bool {
        self.rows.values().any(|row| row.has_users())
    }

    /// Counts the users above the thresholds of the rows of a page. `label` gives the label that
    /// the settings name for a row. Stops when `elapsed` exceeds `budget`: rows whose last attempt
    /// is oldest are first, so that repeated calls reach every row. Returns whether it has counted
    /// all.
    pub fn count_users(
        &self,
        view: &ReadView,
        page: &mut OverviewPage,
        label: &dyn Fn(&RowKey) -> Option<String>,
        (budget, elapsed): (Duration, &dyn Fn() -> Duration),
    ) -> Result<bool> {
        let limit = UserReadLimit { budget, elapsed };
        let OverviewPage { rows, summary, .. } = page;
        let mut rows: Vec<&mut OverviewRow> = rows.iter_mut().chain(summary.rows_mut()).collect();
        let attempted_at =
            |key: &RowKey| self.rows.get(key).and_then(|row| row.users_attempted_at());
        model::sort::by_key(&mut rows, |row| attempted_at(&row.key));
        let mut is_complete = true;
        for row in rows {
            let Some(state) = self.rows.get(&row.key) else { continue };
            let threshold = row.threshold.as_ref().map(|threshold| threshold.value);
            row.users =
                state.count_users(view, self.times, (label(&row.key), threshold), &limit)?;
            is_complete &= row.users.as_ref().is_none_or(|users| !users.is_pending);
        }
        Ok(is_complete)
    }

    /// Removes days of other time zones, then the rows that were refused, then those of the lowest
    /// rank, until the others fit.
    fn release_memory(&mut self) {
        let mut bytes = memory_bytes(&self.rows);
        if bytes > self.memory_bytes_max {
            self.rows.values_mut().for_each(|row| Arc::make_mut(row).release_other_days());
            bytes = memory_bytes(&self.rows);
        }
        if bytes <= self.memory_bytes_max && !self.rows.values().any(|row| row.is_refused) {
            return;
        }
        let mut rows: Vec<(&RowKey, &Arc<RowState>)> = self.rows.iter().collect();
        model::sort::by(&mut rows, |(_, a), (_, b)| {
            a.is_refused.cmp(&b.is_refused).then_with(|| a.rank().compare(&b.rank()))
        });
        let mut removed: Vec<RowKey> = Vec::new();
        for (key, row) in rows.into_iter().rev() {
            if row.is_refused || bytes > self.memory_bytes_max {
                bytes -= row.memory_bytes();
                removed.push(key.clone());
            }
        }
        let mut by_name: BTreeMap<String, usize> = BTreeMap::new();
        for key in removed {
            self.rows.remove(&key);
            *by_name.entry(key.name).or_default() += 1;
        }
        let limit = self.memory_bytes_max;
        self.unranked.extend(by_name.into_iter().map(|(name, rows)| {
            (name, format!("memory limit ({limit} bytes) exceeded: {rows} of its rows left out"))
        }));
    }

    /// Rows of the series that exist now.
    fn find_rows(&mut self, view: &ReadView) {
        let FoundRows { rows: mut found, unranked } =
            FoundRows::find(view, self.group, self.memory_bytes_max);
        self.unranked = unranked;
        let rows = found.len();
        found.retain(|key, series| {
            let is_small = series.len() <= SERIES_MAX;
            if !is_small {
                self.unranked.push((key.name.clone(), found_rows::too_many_series(series.len())));
            }
            is_small
        });
        if rows > ROWS_MAX {
            let why = format!("rows limit ({ROWS_MAX}) exceeded: there are {rows}");
            let beyond = found.keys().skip(ROWS_MAX);
            self.unranked.extend(beyond.map(|key| (key.name.clone(), why.clone())));
        }
        let mut held = std::mem::take(&mut self.rows);
        for (key, series) in found.into_iter().take(ROWS_MAX) {
            let state = held.remove(&key).unwrap_or_default();
            self.rows.insert(key, state.with_series(series));
        }
        // Keys are sorted by name, then by unit.
        let neighbours = self.rows.keys().zip(self.rows.keys().skip(1));
        let differ = neighbours.filter(|(a, b)| a.name == b.name && a.unit != b.unit);
        self.several_units = differ.map(|(key, _)| key.name.clone()).collect();
    }

    /// Ranked rows: affected ones first, then uncertain ones; among them by values affected in the
    /// last five minutes, then in the worst hour of today, then by name. A rank changes only if the
    /// row's state changes or its score by more than a quarter. `set` gives the threshold of a row
    /// that the user or an SLO sets.
    pub fn page(
        &self,
        range: PageRange,
        set: &dyn Fn(&RowKey) -> Option<RowThreshold>,
    ) -> OverviewPage {
        let times = self.times;
        let mut ranked = Vec::with_capacity(self.rows.len());
        for (key, state) in &self.rows {
            let standing = RowRanking::of(state, set(key), times);
            let RowRanking { class, affected_now, affected_today, .. } = standing;
            let rank = state.follow_rank(class, affected_now, affected_today);
            ranked.push((key, state, standing, rank));
        }
        // Stable: rows of equal rank stay in the order of their names.
        model::sort::by(&mut ranked, |(.., a), (.., b)| a.compare(b));
        let total = ranked.len();
        let incomplete =
            ranked.iter().filter(|(_, state, ..)| !state.is_complete(times.today_start)).count();
        let row = |(key, state, standing, _): &(&RowKey, &Arc<RowState>, RowRanking, Rank)| {
            standing.row(key, state, (times, self.several_units.contains(&key.name)))
        };
        let all = ranked.iter().map(|one| (one, one.2.severity()));
        let summary = OverviewSummary::of(all, |one| OverviewRow { heatmap: None, ..row(one) });
        let rows = ranked.iter().skip(range.offset).take(range.limit).map(row).collect();
        OverviewPage { times, rows, summary, total, incomplete, unranked: self.unranked.clone() }
    }

    /// The same for readers whose today begins at another time.
    pub fn of_day(mut self, today_start: i64) -> Overview {
        self.times.today_start = today_start;
        self
    }
}

fn memory_bytes(rows: &BTreeMap<RowKey, Arc<RowState>>) -> usize {
    rows.values().map(|row| row.memory_bytes()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An incident from 21:26 to 22:12 was gone at 00:17, and all rows were green.
    #[test]
    fn until_six_o_clock_yesterday_belongs_to_today() {
        let midnight = 20_000 * DAY;
        let start = |now: i64| OverviewTimes::of_utc_day(now).today_start;
        assert_eq!(start(midnight), midnight - DAY, "the day that ends");
        assert_eq!(start(midnight + 17 * MINUTE), midnight - DAY);
        assert_eq!(start(midnight + 6 * HOUR - 1), midnight - DAY);
        assert_eq!(start(midnight + 6 * HOUR), midnight);
    }

    /// The page sends the start of its day, which has 23 or 25 hours where clocks change.
    #[test]
    fn a_day_of_a_clock_change_is_named_by_its_midnight() {
        let midnight = 20_000 * DAY;
        let check = |now: i64, today_start: i64, expected: bool| {
            assert_eq!(OverviewTimes { now, today_start }.has_yesterday(), expected);
        };
        // London: after a day of 23 hours, 00:17 BST; the last minutes of one of 25 hours.
        check(midnight + DAY - 43 * MINUTE, midnight, false);
        check(midnight + DAY - MINUTE, midnight - HOUR, true);
        check(midnight + 17 * MINUTE, midnight - 23 * HOUR, true);
        check(midnight + DAY, midnight, false);
    }
}
