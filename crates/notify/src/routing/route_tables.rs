//! Tables of routes, inhibition and time intervals, as in a settings file and in Alertmanager's.
//!
//! Names of receivers and time intervals keep their positions, so that unknown ones are reported
//! there.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::Spanned;

use super::interval_text::{
    DayMinute, MonthDayRange, MonthRange, WeekdayRange, YearRange, ZoneName,
};
use super::{AlertMatcher, AlertRoute, GroupBy, InhibitRule, RoutingTree, TimeInterval};
use crate::nearest_name::unknown_name;
use crate::notify_problem::NotifyProblem;
use crate::setting_values::{DurationOrZeroText, DurationText};

/// `[route]`, and each of its `routes`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RouteTable {
    receiver: Option<Spanned<String>>,
    group_by: Option<Vec<String>>,
    group_wait: Option<DurationOrZeroText>,
    group_interval: Option<DurationText>,
    repeat_interval: Option<DurationText>,
    matchers: Vec<Spanned<MatcherList>>,
    #[serde(rename = "continue")]
    continues: Option<Spanned<bool>>,
    mute_time_intervals: Vec<Spanned<String>>,
    active_time_intervals: Vec<Spanned<String>>,
    routes: Vec<RouteTable>,
}

/// `[[inhibit]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InhibitTable {
    source_matchers: Vec<MatcherList>,
    target_matchers: Vec<MatcherList>,
    #[serde(default)]
    equal: Vec<String>,
}

/// `[[time_interval]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimeIntervalTable {
    name: Spanned<String>,
    time_intervals: Vec<TimeIntervalEntryTable>,
}

/// One of its `time_intervals`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TimeIntervalEntryTable {
    times: Vec<Spanned<TimeRangeTable>>,
    weekdays: Vec<WeekdayRange>,
    days_of_month: Vec<MonthDayRange>,
    months: Vec<MonthRange>,
    years: Vec<YearRange>,
    location: ZoneName,
}

/// One of its `times`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeRangeTable {
    start_time: DayMinute,
    end_time: DayMinute,
}

/// Matchers in one text.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct MatcherList(Vec<AlertMatcher>);

impl TryFrom<String> for MatcherList {
    type Error = String;

    fn try_from(text: String) -> Result<MatcherList, String> {
        AlertMatcher::parse_list(&text).map(MatcherList).map_err(|error| error.to_string())
    }
}

/// Everything that routes alerts.
#[derive(Debug, Default)]
pub(crate) struct RoutingTables {
    /// The root and its position.
    pub(crate) route: Option<(usize, RouteTable)>,
    pub(crate) inhibit: Vec<InhibitTable>,
    pub(crate) time_intervals: Vec<TimeIntervalTable>,
}

impl RoutingTables {
    /// The tree, whose receivers have known names; an empty one if there is no route.
    pub(crate) fn build(
        self,
        receivers: &BTreeSet<&str>,
    ) -> Result<RoutingTree, Vec<NotifyProblem>> {
        let mut problems = Vec::new();
        let mut time_intervals: BTreeMap<String, Vec<TimeInterval>> = BTreeMap::new();
        for table in self.time_intervals {
            let (byte, name) = (table.name.span().start, table.name.into_inner());
            if time_intervals.contains_key(&name) {
                let what = format!("duplicate time interval {name:?}");
                problems.push(NotifyProblem { position: byte, what });
            }
            let ranges = table.time_intervals.into_iter();
            let ranges = ranges.map(|range| range.build(&mut problems)).collect();
            time_intervals.insert(name, ranges);
        }
        let mut builder = RouteBuilder { receivers, time_intervals: &time_intervals, problems };
        let root = self.route.map(|(byte, table)| {
            builder.root(byte, &table);
            builder.route(table)
        });
        if !builder.problems.is_empty() {
            return Err(builder.problems);
        }
        let inhibit_rules = self.inhibit.into_iter().map(InhibitTable::build).collect();
        Ok(RoutingTree { root: root.unwrap_or_default(), inhibit_rules, time_intervals })
    }
}

/// Builds routes and collects their problems.
struct RouteBuilder<'a> {
    receivers: &'a BTreeSet<&'a str>,
    time_intervals: &'a BTreeMap<String, Vec<TimeInterval>>,
    problems: Vec<NotifyProblem>,
}

impl RouteBuilder<'_> {
    fn root(&mut self, byte: usize, table: &RouteTable) {
        let matchers = table.matchers.first().map(|matcher| matcher.span().start);
        let continues = table.continues.as_ref().filter(|continues| *continues.get_ref());
        let mut add = |byte: usize, what: &str| {
            self.problems.push(NotifyProblem { position: byte, what: what.to_owned() });
        };
        if table.receiver.is_none() {
            add(byte, "the root route has no receiver; set `receiver`");
        }
        if let Some(byte) = matchers.or(continues.map(|continues| continues.span().start)) {
            add(byte, "the root route matches every alert; move this to one of its `routes`");
        }
    }

    fn route(&mut self, table: RouteTable) -> AlertRoute {
        if let Some(receiver) = &table.receiver
            && !self.receivers.contains(receiver.get_ref().as_str())
        {
            let what = unknown_name("receiver", receiver.get_ref(), self.receivers.iter().copied());
            self.problems.push(NotifyProblem { position: receiver.span().start, what });
        }
        for name in table.mute_time_intervals.iter().chain(&table.active_time_intervals) {
            if !self.time_intervals.contains_key(name.get_ref()) {
                let known = self.time_intervals.keys().map(String::as_str);
                let what = unknown_name("time interval", name.get_ref(), known);
                self.problems.push(NotifyProblem { position: name.span().start, what });
            }
        }
        let names = |names: Vec<Spanned<String>>| names.into_iter().map(Spanned::into_inner);
        let group_by = table.group_by.map(|labels| match labels.iter().any(|one| one == "...") {
            true => GroupBy::All,
            false => GroupBy::Labels(labels.into_iter().collect()),
        });
        AlertRoute {
            receiver: table.receiver.map(Spanned::into_inner),
            matchers: table.matchers.into_iter().flat_map(|list| list.into_inner().0).collect(),
            continues: table.continues.is_some_and(Spanned::into_inner),
            group_by,
            group_wait: table.group_wait.map(|text| text.0),
            group_interval: table.group_interval.map(|text| text.0),
            repeat_interval: table.repeat_interval.map(|text| text.0),
            mute_time_intervals: names(table.mute_time_intervals).collect(),
            active_time_intervals: names(table.active_time_intervals).collect(),
            routes: table.routes.into_iter().map(|route| self.route(route)).collect(),
        }
    }
}

impl InhibitTable {
    fn build(self) -> InhibitRule {
        let all = |lists: Vec<MatcherList>| lists.into_iter().flat_map(|list| list.0).collect();
        InhibitRule {
            source_matchers: all(self.source_matchers),
            target_matchers: all(self.target_matchers),
            equal: self.equal,
        }
    }
}

impl TimeIntervalEntryTable {
    fn build(self, problems: &mut Vec<NotifyProblem>) -> TimeInterval {
        let mut interval = TimeInterval::in_zone(self.location.0);
        for times in self.times {
            let (byte, times) = (times.span().start, times.into_inner());
            let (start, end) = (times.start_time.0, times.end_time.0);
            if start >= end {
                let what = "start_time is not before end_time; split it at midnight".to_owned();
                problems.push(NotifyProblem { position: byte, what });
            }
            interval.times.push((start, end));
        }
        interval.weekdays = ranges(self.weekdays, |range| range.0);
        interval.days_of_month = ranges(self.days_of_month, |range| (range.start, range.end));
        interval.months = ranges(self.months, |range| range.0);
        interval.years = ranges(self.years, |range| range.0);
        interval
    }
}

fn ranges<T, R>(ranges: Vec<T>, range: impl Fn(T) -> R) -> Vec<R> {
    ranges.into_iter().map(range).collect()
}
