//! Groups of alerts: when a group is sent to its receiver, and why.
//!
//! A group waits `group_wait` for more alerts, then is looked at each `group_interval`. It is sent
//! if an alert is new or resolved, or if `repeat_interval` has elapsed. Resolved alerts are
//! forgotten once they were sent, or were never sent as firing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{AlertLabels, GroupBy, RouteOptions, RoutingTree};

/// State of an alert for its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedAlert {
    /// Identity of the alert.
    pub id: String,
    /// Labels; they do not change while the alert exists.
    pub labels: AlertLabels,
    /// Time at which it began.
    pub since_ns: i64,
    /// Whether it is resolved.
    pub is_resolved: bool,
}

/// Why a group is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupReason {
    /// It is new.
    FirstNotification,
    /// It has new alerts.
    NewAlerts,
    /// Some alerts are resolved.
    SomeResolved,
    /// All alerts are resolved.
    AllResolved,
    /// `repeat_interval` has elapsed.
    RepeatInterval,
}

/// A group that is sent now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNotification {
    /// Receiver.
    pub receiver: String,
    /// Labels of the group.
    pub labels: AlertLabels,
    /// Ids of the alerts that fire.
    pub firing: BTreeSet<String>,
    /// Ids of the alerts that are resolved.
    pub resolved: BTreeSet<String>,
    /// Cause.
    pub reason: GroupReason,
}

/// All groups.
#[derive(Debug)]
pub struct AlertGroups {
    tree: RoutingTree,
    /// By path of the route and labels of the group.
    groups: BTreeMap<(Vec<usize>, AlertLabels), AlertGroup>,
    /// Labels of the firing alerts, for inhibition.
    firing: BTreeMap<String, AlertLabels>,
}

#[derive(Debug)]
struct AlertGroup {
    options: RouteOptions,
    alerts: BTreeMap<String, RoutedAlert>,
    next_ns: i64,
    was_flushed: bool,
    last: Option<GroupContent>,
}

/// What was sent last.
#[derive(Debug)]
struct GroupContent {
    firing: BTreeSet<String>,
    resolved: BTreeSet<String>,
    at_ns: i64,
}

impl AlertGroups {
    /// No groups. [`RoutingTree::check`] finds errors of the tree.
    pub fn new(tree: RoutingTree) -> AlertGroups {
        AlertGroups { tree, groups: BTreeMap::new(), firing: BTreeMap::new() }
    }

    /// Adds or changes an alert. A resolved alert that no group has is ignored.
    pub fn update(&mut self, alert: &RoutedAlert, now_ns: i64) {
        match alert.is_resolved {
            true => self.firing.remove(&alert.id),
            false => self.firing.insert(alert.id.clone(), alert.labels.clone()),
        };
        for (path, options) in self.tree.matching(&alert.labels) {
            let labels = group_labels(&options.group_by, &alert.labels);
            let wait_ns = nanos(options.group_wait);
            if alert.is_resolved && !self.groups.contains_key(&(path.clone(), labels.clone())) {
                continue;
            }
            let group = self.groups.entry((path, labels)).or_insert_with(|| AlertGroup {
                options,
                alerts: BTreeMap::new(),
                next_ns: now_ns.saturating_add(wait_ns),
                was_flushed: false,
                last: None,
            });
            // An alert that is already older than the wait does not wait again.
            if !group.was_flushed && alert.since_ns.saturating_add(wait_ns) < now_ns {
                group.next_ns = now_ns;
            }
            group.alerts.insert(alert.id.clone(), alert.clone());
        }
    }

    /// Time at which [`AlertGroups::flush_due`] has something to look at.
    pub fn next_due_ns(&self) -> Option<i64> {
        self.groups.values().map(|group| group.next_ns).min()
    }

    /// Groups that are sent now.
    pub fn flush_due(&mut self, now_ns: i64) -> Vec<GroupNotification> {
        let AlertGroups { tree, groups, firing } = self;
        let mut sent = Vec::new();
        for ((_, labels), group) in groups.iter_mut() {
            if group.next_ns > now_ns {
                continue;
            }
            group.was_flushed = true;
            group.next_ns = now_ns.saturating_add(nanos(group.options.group_interval));
            if tree.is_muted(&group.options, now_ns) {
                // What is resolved meanwhile is sent after the interval.
                continue;
            }
            let is_audible =
                |alert: &&RoutedAlert| !tree.is_inhibited(&alert.labels, firing.values());
            let audible: Vec<&RoutedAlert> = group.alerts.values().filter(is_audible).collect();
            let ids = |is_resolved: bool| -> BTreeSet<String> {
                let alerts = audible.iter().filter(|alert| alert.is_resolved == is_resolved);
                alerts.map(|alert| alert.id.clone()).collect()
            };
            let content = GroupContent { firing: ids(false), resolved: ids(true), at_ns: now_ns };
            let handled = content.resolved.clone();
            if let Some(reason) = group.reason(&content) {
                sent.push(GroupNotification {
                    receiver: group.options.receiver.clone(),
                    labels: labels.clone(),
                    firing: content.firing.clone(),
                    resolved: content.resolved.clone(),
                    reason,
                });
                group.last = Some(content);
            }
            group.alerts.retain(|id, alert| !(alert.is_resolved && handled.contains(id)));
        }
        groups.retain(|_, group| !group.alerts.is_empty());
        sent
    }
}

impl AlertGroup {
    /// Why the content is sent; `None` if it is not (`notify/notify.go`, `needsUpdate`).
    fn reason(&self, content: &GroupContent) -> Option<GroupReason> {
        let Some(last) = &self.last else {
            return (!content.firing.is_empty()).then_some(GroupReason::FirstNotification);
        };
        if !content.firing.is_subset(&last.firing) {
            return Some(GroupReason::NewAlerts);
        }
        if content.firing.is_empty() {
            // An inhibited alert is not resolved.
            let is_resolved = !content.resolved.is_empty() && !last.firing.is_empty();
            return is_resolved.then_some(GroupReason::AllResolved);
        }
        if !content.resolved.is_subset(&last.resolved) {
            return Some(GroupReason::SomeResolved);
        }
        let repeat_ns = last.at_ns.saturating_add(nanos(self.options.repeat_interval));
        (repeat_ns < content.at_ns).then_some(GroupReason::RepeatInterval)
    }
}

fn group_labels(group_by: &GroupBy, labels: &AlertLabels) -> AlertLabels {
    let is_meant = |name: &String| match group_by {
        GroupBy::All => true,
        GroupBy::Labels(names) => names.contains(name),
    };
    let kept = labels.iter().filter(|(name, _)| is_meant(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
