//! Routing of alerts as Alertmanager does it: a tree of routes, groups, inhibition, time intervals.
//!
//! Pure: alerts and time come as arguments. [`AlertGroups`] says what is sent to which receiver and
//! why. The semantics are those of Alertmanager 0.34 (`dispatch/route.go`, `dispatch/dispatch.go`,
//! `notify/notify.go`, `inhibit/inhibit.go`, `timeinterval/timeinterval.go`).

mod groups;
mod interval_text;
mod matcher;
mod recurrence;
mod route_tables;
mod time_interval;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

pub use groups::{AlertGroups, GroupNotification, GroupReason, RoutedAlert};
pub(crate) use interval_text::ZoneName;
pub use matcher::{AlertMatcher, MatcherError};
pub use recurrence::{Recurrence, RecurrenceError};
pub(crate) use route_tables::{InhibitTable, RoutingTables, TimeIntervalTable};
pub use time_interval::{TimeInterval, TimeIntervalError};

/// Labels of an alert.
pub type AlertLabels = BTreeMap<String, String>;

/// Labels by which the alerts of a route are grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// These labels; none is one group.
    Labels(BTreeSet<String>),
    /// All labels: each alert is a group (`...`).
    All,
}

/// A node of the tree as configured. `None` is inherited.
#[derive(Clone, Debug, Default)]
pub struct AlertRoute {
    /// Receiver; the root needs one.
    pub receiver: Option<String>,
    /// All must match.
    pub matchers: Vec<AlertMatcher>,
    /// Whether the routes after this one are tried too (`continue`).
    pub continues: bool,
    /// Grouping; one group by default.
    pub group_by: Option<GroupBy>,
    /// Delay of the first notification of a group: 30 s by default.
    pub group_wait: Option<Duration>,
    /// Interval of further notifications of a group: 5 min by default.
    pub group_interval: Option<Duration>,
    /// Interval of repeated notifications: 4 h by default.
    pub repeat_interval: Option<Duration>,
    /// Names of intervals in which nothing is sent. Not inherited.
    pub mute_time_intervals: Vec<String>,
    /// Names of the only intervals in which something is sent. Not inherited.
    pub active_time_intervals: Vec<String>,
    /// Children.
    pub routes: Vec<AlertRoute>,
}

/// While a source alert fires, target alerts with the same values of some labels are not sent.
#[derive(Clone, Debug, Default)]
pub struct InhibitRule {
    /// All match a source.
    pub source_matchers: Vec<AlertMatcher>,
    /// All match a target.
    pub target_matchers: Vec<AlertMatcher>,
    /// Labels whose values are equal; a missing label equals an empty one.
    pub equal: Vec<String>,
}

/// Group of an alert.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlertGroupPlace {
    /// Receiver.
    pub receiver: String,
    /// Position of the route in the tree.
    pub route: Vec<usize>,
    /// Labels of the group.
    pub labels: AlertLabels,
    /// Names of the time intervals that keep the route silent now.
    pub muted_by: Vec<String>,
}

/// The tree of routes, inhibition and time intervals.
#[derive(Clone, Debug, Default)]
pub struct RoutingTree {
    /// The root matches every alert.
    pub root: AlertRoute,
    /// Inhibition.
    pub inhibit_rules: Vec<InhibitRule>,
    /// Time intervals by name.
    pub time_intervals: BTreeMap<String, Vec<TimeInterval>>,
}

/// A tree is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoutingError {
    /// The root has no receiver.
    #[error("cannot use routes: the root has no receiver; set `receiver`")]
    NoReceiver,
    /// The root has matchers, or continues.
    #[error("cannot use routes: the root has matchers or `continue`; it matches every alert")]
    RootMatchers,
    /// A name of a time interval does not exist.
    #[error("cannot use routes: unknown time interval {0:?}")]
    UnknownTimeInterval(String),
}

/// Options of a route with everything inherited.
#[derive(Clone, Debug)]
pub(crate) struct RouteOptions {
    pub(crate) receiver: String,
    pub(crate) group_by: GroupBy,
    pub(crate) group_wait: Duration,
    pub(crate) group_interval: Duration,
    pub(crate) repeat_interval: Duration,
    mute_time_intervals: Vec<String>,
    active_time_intervals: Vec<String>,
}

impl RoutingTree {
    /// Checks that the tree is complete.
    pub fn check(&self) -> Result<(), RoutingError> {
        if self.root.receiver.is_none() {
            return Err(RoutingError::NoReceiver);
        }
        if !self.root.matchers.is_empty() || self.root.continues {
            return Err(RoutingError::RootMatchers);
        }
        let mut routes = vec![&self.root];
        while let Some(route) = routes.pop() {
            let names = route.mute_time_intervals.iter().chain(&route.active_time_intervals);
            for name in names {
                if !self.time_intervals.contains_key(name) {
                    return Err(RoutingError::UnknownTimeInterval(name.clone()));
                }
            }
            routes.extend(&route.routes);
        }
        Ok(())
    }

    /// Receivers of an alert, by the route that matched: the deepest ones, and after the first only
    /// those that a route with `continue` leads to.
    pub fn receivers(&self, labels: &AlertLabels) -> Vec<String> {
        self.matching(labels).into_iter().map(|(_, options)| options.receiver).collect()
    }

    /// Groups of an alert: where each of its routes puts it.
    pub fn group_places(&self, labels: &AlertLabels, now_ns: i64) -> Vec<AlertGroupPlace> {
        let routes = self.matching(labels).into_iter();
        let place = |(route, options): (Vec<usize>, RouteOptions)| AlertGroupPlace {
            labels: groups::group_labels(&options.group_by, labels),
            muted_by: self.muting_intervals(&options, now_ns),
            receiver: options.receiver,
            route,
        };
        routes.map(place).collect()
    }

    /// Routes of an alert: index path and options.
    pub(crate) fn matching(&self, labels: &AlertLabels) -> Vec<(Vec<usize>, RouteOptions)> {
        let default = RouteOptions {
            receiver: String::new(),
            group_by: GroupBy::Labels(BTreeSet::new()),
            group_wait: Duration::from_secs(30),
            group_interval: Duration::from_secs(300),
            repeat_interval: Duration::from_secs(4 * 3600),
            mute_time_intervals: Vec::new(),
            active_time_intervals: Vec::new(),
        };
        let mut found = Vec::new();
        self.root.find(labels, &default, &mut Vec::new(), &mut found);
        found
    }

    /// Whether time intervals keep a route silent.
    pub(crate) fn is_muted(&self, options: &RouteOptions, now_ns: i64) -> bool {
        !self.muting_intervals(options, now_ns).is_empty()
    }

    /// Names of the time intervals that keep a route silent.
    fn muting_intervals(&self, options: &RouteOptions, now_ns: i64) -> Vec<String> {
        let contains = |name: &&String| {
            let intervals = self.time_intervals.get(*name).map(Vec::as_slice).unwrap_or_default();
            intervals.iter().any(|interval| interval.contains(now_ns))
        };
        let muting = options.mute_time_intervals.iter().filter(contains);
        let active = &options.active_time_intervals;
        let is_outside = !active.iter().any(|name| contains(&name));
        let outside = active.iter().filter(|_| is_outside);
        muting.chain(outside).cloned().collect()
    }
}

/// Values of the equal labels of all sources, by rule.
///
/// An alert that is source and target of a rule is not inhibited by another such alert, so that two
/// of them cannot silence each other.
#[derive(Debug)]
pub struct InhibitionIndex<'a> {
    rules: Vec<InhibitionSources<'a>>,
}

/// Numbers of sources by the values of the equal labels.
type SourceNumbers<'a> = HashMap<Vec<&'a str>, usize>;

#[derive(Debug)]
struct InhibitionSources<'a> {
    rule: &'a InhibitRule,
    /// Of sources that are no targets.
    pure: SourceNumbers<'a>,
    /// Of sources that are targets, too.
    mixed: SourceNumbers<'a>,
}

impl<'a> InhibitionIndex<'a> {
    /// The index of the firing alerts.
    pub fn new(
        tree: &'a RoutingTree,
        firing: impl Iterator<Item = &'a AlertLabels> + Clone,
    ) -> InhibitionIndex<'a> {
        let sources = |rule: &'a InhibitRule| {
            let (mut pure, mut mixed) = (SourceNumbers::new(), SourceNumbers::new());
            for (number, labels) in firing.clone().enumerate() {
                if !match_all(&rule.source_matchers, labels) {
                    continue;
                }
                let is_target = match_all(&rule.target_matchers, labels);
                let values = if is_target { &mut mixed } else { &mut pure };
                values.entry(rule.equal_values(labels)).or_insert(number);
            }
            InhibitionSources { rule, pure, mixed }
        };
        InhibitionIndex { rules: tree.inhibit_rules.iter().map(sources).collect() }
    }

    /// Whether a firing alert inhibits this one.
    pub(crate) fn is_inhibited(&self, labels: &AlertLabels) -> bool {
        self.inhibiting_source(labels).is_some()
    }

    /// Number of a firing alert that inhibits this one, in the order in which they were given.
    pub fn inhibiting_source(&self, labels: &AlertLabels) -> Option<usize> {
        self.rules.iter().find_map(|sources| {
            let rule = sources.rule;
            if !match_all(&rule.target_matchers, labels) {
                return None;
            }
            let values = rule.equal_values(labels);
            let mixed = || match match_all(&rule.source_matchers, labels) {
                true => None,
                false => sources.mixed.get(&values),
            };
            sources.pure.get(&values).or_else(mixed).copied()
        })
    }
}

impl InhibitRule {
    fn equal_values<'a>(&self, labels: &'a AlertLabels) -> Vec<&'a str> {
        self.equal.iter().map(|name| labels.get(name).map_or("", String::as_str)).collect()
    }
}

fn match_all(matchers: &[AlertMatcher], labels: &AlertLabels) -> bool {
    matchers.iter().all(|matcher| matcher.matches(labels))
}

impl AlertRoute {
    /// Adds the routes of an alert; whether there is one.
    fn find(
        &self,
        labels: &AlertLabels,
        parent: &RouteOptions,
        path: &mut Vec<usize>,
        found: &mut Vec<(Vec<usize>, RouteOptions)>,
    ) -> bool {
        if !self.matchers.iter().all(|matcher| matcher.matches(labels)) {
            return false;
        }
        let options = RouteOptions {
            receiver: self.receiver.clone().unwrap_or_else(|| parent.receiver.clone()),
            group_by: self.group_by.clone().unwrap_or_else(|| parent.group_by.clone()),
            group_wait: self.group_wait.unwrap_or(parent.group_wait),
            group_interval: self.group_interval.unwrap_or(parent.group_interval),
            repeat_interval: self.repeat_interval.unwrap_or(parent.repeat_interval),
            mute_time_intervals: self.mute_time_intervals.clone(),
            active_time_intervals: self.active_time_intervals.clone(),
        };
        let mut has_child = false;
        for (at, route) in self.routes.iter().enumerate() {
            path.push(at);
            let is_match = route.find(labels, &options, path, found);
            path.pop();
            has_child |= is_match;
            if is_match && !route.continues {
                break;
            }
        }
        if !has_child {
            found.push((path.clone(), options));
        }
        true
    }
}
