//! Groups of alerts: when a group is sent to its receiver, and why.
//!
//! A group waits `group_wait` for more alerts, then is looked at each `group_interval`. It is sent
//! if an alert is new, changed its state or is resolved, or if `repeat_interval` has elapsed. An
//! alert that is more severe than all others of the group does not wait: the group is looked at at
//! once, which does not move its next look.
//! Resolved alerts are forgotten once they were sent, or were never sent as firing. What a group
//! sent last is not stored: the caller knows it from the log of deliveries.
//!
//! An alert that fires while it is silenced or inhibited is sent by the first look after that. The
//! end of a silenced alert is left to the caller: only those hear of it who know the alert.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use journal::supervisor::catch_panic;

use super::{AlertLabels, GroupBy, InhibitionIndex, RouteOptions, RoutingTree};
use crate::silence::{ActiveSilences, SilenceSet};

/// Delay after a group could not be sent.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// State of an alert for its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedAlert {
    /// Identity of the alert.
    pub id: String,
    /// Labels. With other labels it moves to other groups, which do not report its end.
    pub labels: AlertLabels,
    /// 1 (worst) to 5.
    pub severity: u8,
    /// Time at which it began.
    pub since_ns: i64,
    /// Number of its state change: another one is reported as a new alert is.
    pub transition: u64,
    /// Whether it is resolved.
    pub is_resolved: bool,
}

/// Why a group is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupReason {
    /// It is new.
    FirstNotification,
    /// It has new alerts, or alerts in a new state.
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
    /// A repetition is for those who were notified up to this time. It matters if nobody was on
    /// call for an alert: others are not notified at each look.
    pub repeats_before_ns: i64,
}

/// All groups.
#[derive(Debug)]
pub struct AlertGroups {
    tree: RoutingTree,
    /// By path of the route and labels of the group.
    groups: BTreeMap<GroupPlace, AlertGroup>,
    /// Labels of the firing alerts, for inhibition.
    firing: BTreeMap<String, AlertLabels>,
    silences: SilenceSet,
    panics: Vec<String>,
}

/// Path of the route, and labels of the group.
type GroupPlace = (Vec<usize>, AlertLabels);

#[derive(Debug)]
struct AlertGroup {
    options: RouteOptions,
    alerts: BTreeMap<String, RoutedAlert>,
    next_ns: i64,
    /// Whether an alert does not wait for the next look.
    is_urgent: bool,
    /// Severity of the worst alert that was sent, before the first look of the worst one; `None` if
    /// there is none.
    worst: Option<u8>,
    was_flushed: bool,
    last: Option<GroupContent>,
}

/// What was sent last.
#[derive(Debug)]
struct GroupContent {
    /// Number of the state change, by id.
    firing: BTreeMap<String, u64>,
    resolved: BTreeSet<String>,
    at_ns: i64,
}

impl AlertGroups {
    /// No groups. [`RoutingTree::check`] finds errors of the tree.
    pub fn new(tree: RoutingTree) -> AlertGroups {
        let (groups, firing) = (BTreeMap::new(), BTreeMap::new());
        let silences = SilenceSet::default();
        AlertGroups { tree, groups, firing, silences, panics: Vec::new() }
    }

    /// Uses other silences from now on.
    pub fn set_silences(&mut self, silences: SilenceSet) {
        self.silences = silences;
    }

    /// Adds or changes an alert; returns whether a group will report it. A resolved alert that no
    /// group has is ignored, and one that no group sent is not reported.
    pub fn update(&mut self, alert: &RoutedAlert, now_ns: i64) -> bool {
        let before = match alert.is_resolved {
            true => self.firing.remove(&alert.id),
            false => self.firing.insert(alert.id.clone(), alert.labels.clone()),
        };
        if alert.is_resolved && self.silences.active(now_ns).is_silenced(&alert.labels) {
            self.forget(&alert.id, before.as_ref().unwrap_or(&alert.labels), &BTreeSet::new());
            return false;
        }
        let left = before.filter(|before| *before != alert.labels);
        let earlier = left.as_ref().and_then(|before| self.severity_in_groups(&alert.id, before));
        let is_worse = earlier.is_some_and(|earlier| alert.severity < earlier);
        let mut is_reported = false;
        let mut places = BTreeSet::new();
        for (path, options) in self.tree.matching(&alert.labels) {
            let labels = group_labels(&options.group_by, &alert.labels);
            places.insert((path.clone(), labels.clone()));
            let wait_ns = nanos(options.group_wait);
            let at = (path, labels);
            let known = self.groups.get(&at);
            if alert.is_resolved && known.is_none_or(|group| !group.alerts.contains_key(&alert.id))
            {
                continue;
            }
            let was_sent = |group: &AlertGroup| {
                group.last.as_ref().is_some_and(|last| last.firing.contains_key(&alert.id))
            };
            is_reported |= !alert.is_resolved || known.is_some_and(was_sent);
            let group = self.groups.entry(at).or_insert_with(|| AlertGroup {
                options,
                alerts: BTreeMap::new(),
                next_ns: now_ns.saturating_add(wait_ns),
                is_urgent: false,
                worst: None,
                was_flushed: false,
                last: None,
            });
            if !alert.is_resolved {
                group.note_severity(alert.severity, is_worse);
            }
            // An alert that is already older than the wait does not wait again.
            if !group.was_flushed && alert.since_ns.saturating_add(wait_ns) < now_ns {
                group.next_ns = now_ns;
            }
            group.alerts.insert(alert.id.clone(), alert.clone());
        }
        if let Some(left) = left {
            self.forget(&alert.id, &left, &places);
        }
        is_reported
    }

    /// Groups of an alert with these labels.
    fn places(&self, labels: &AlertLabels) -> Vec<GroupPlace> {
        let matching = self.tree.matching(labels).into_iter();
        matching.map(|(path, options)| (path, group_labels(&options.group_by, labels))).collect()
    }

    fn severity_in_groups(&self, id: &str, labels: &AlertLabels) -> Option<u8> {
        let places = self.places(labels);
        let mut groups = places.iter().filter_map(|place| self.groups.get(place));
        groups.find_map(|group| group.alerts.get(id)).map(|alert| alert.severity)
    }

    /// Removes an alert that had these labels from its groups, but some.
    fn forget(&mut self, id: &str, labels: &AlertLabels, kept: &BTreeSet<GroupPlace>) {
        for place in self.places(labels).into_iter().filter(|place| !kept.contains(place)) {
            let Some(group) = self.groups.get_mut(&place) else { continue };
            group.alerts.remove(id);
            if let Some(last) = &mut group.last {
                last.firing.remove(id);
            }
            if group.alerts.is_empty() {
                self.groups.remove(&place);
            }
        }
    }

    /// Time at which [`AlertGroups::flush_due`] has something to look at.
    pub fn next_due_ns(&self) -> Option<i64> {
        let due_ns = |group: &AlertGroup| if group.is_urgent { i64::MIN } else { group.next_ns };
        self.groups.values().map(due_ns).min()
    }

    /// Number of groups.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Ids of the resolved alerts that are not sent yet.
    pub(crate) fn resolved_ids(&self) -> BTreeSet<&str> {
        let alerts = self.groups.values().flat_map(|group| group.alerts.values());
        alerts.filter(|alert| alert.is_resolved).map(|alert| alert.id.as_str()).collect()
    }

    /// Receivers of an alert with these labels.
    pub(crate) fn receivers(&self, labels: &AlertLabels) -> BTreeSet<String> {
        let matching = self.tree.matching(labels).into_iter();
        matching.map(|(_, options)| options.receiver).collect()
    }

    /// Receivers that may hear of an alert now: no silence, inhibition or time interval forbids it.
    pub(crate) fn unmuted_receivers(&self, labels: &AlertLabels, now_ns: i64) -> Vec<String> {
        if self.silences.active(now_ns).is_silenced(labels)
            || InhibitionIndex::new(&self.tree, self.firing.values()).is_inhibited(labels)
        {
            return Vec::new();
        }
        let routes = self.tree.matching(labels).into_iter();
        let unmuted = routes.filter(|(_, options)| !self.tree.is_muted(options, now_ns));
        unmuted.map(|(_, options)| options.receiver).collect()
    }

    /// Sends the groups that are due. `send` returns the time at which the last message to the
    /// receiver was queued, which is earlier than now if it already knew everything. After an error
    /// the group is due again 5 s later, and the other groups wait for the next call. A panic costs
    /// one look at the group.
    pub fn flush_due<E>(
        &mut self,
        now_ns: i64,
        mut send: impl FnMut(&GroupNotification) -> Result<i64, E>,
    ) -> Result<(), E> {
        let AlertGroups { tree, groups, firing, silences, panics } = self;
        if groups.values().all(|group| !group.is_due(now_ns)) {
            return Ok(());
        }
        let inhibition = InhibitionIndex::new(tree, firing.values());
        let silences = silences.active(now_ns);
        let look = GroupLook { tree, inhibition: &inhibition, silences: &silences, now_ns };
        for ((_, labels), group) in groups.iter_mut().filter(|(_, group)| group.is_due(now_ns)) {
            let next_ns = group.next_look_ns(now_ns);
            match catch_panic(|| group.flush(labels, &look, &mut send)) {
                Ok(flushed) => flushed?,
                Err(panic) => {
                    let receiver = &group.options.receiver;
                    let what = format!("a group of receiver {receiver:?} is not sent: {panic}");
                    panics.push(what);
                    group.plan_look(next_ns);
                }
            }
        }
        groups.retain(|_, group| !group.alerts.is_empty());
        Ok(())
    }

    /// Panics since the last call: each cost one look at a group.
    pub(crate) fn take_panics(&mut self) -> Vec<String> {
        std::mem::take(&mut self.panics)
    }
}

/// What a look at a group needs.
struct GroupLook<'a> {
    tree: &'a RoutingTree,
    inhibition: &'a InhibitionIndex<'a>,
    silences: &'a ActiveSilences<'a>,
    now_ns: i64,
}

impl AlertGroup {
    /// Sends the group if there is a reason.
    fn flush<E>(
        &mut self,
        labels: &AlertLabels,
        look: &GroupLook<'_>,
        send: &mut impl FnMut(&GroupNotification) -> Result<i64, E>,
    ) -> Result<(), E> {
        let now_ns = look.now_ns;
        let next_ns = self.next_look_ns(now_ns);
        if look.tree.is_muted(&self.options, now_ns) {
            // What is resolved meanwhile is sent after the interval.
            self.plan_look(next_ns);
            return Ok(());
        }
        let unmuted: Vec<&RoutedAlert> = self
            .alerts
            .values()
            .filter(|alert| !look.inhibition.is_inhibited(&alert.labels))
            .filter(|alert| !look.silences.is_silenced(&alert.labels))
            .collect();
        let of_state = |is_resolved: bool| {
            let alerts = unmuted.iter().filter(move |alert| alert.is_resolved == is_resolved);
            alerts.map(|alert| (alert.id.clone(), alert.transition))
        };
        let mut content = GroupContent {
            firing: model::sort::map(of_state(false)),
            resolved: of_state(true).map(|(id, _)| id).collect(),
            at_ns: now_ns,
        };
        let handled = content.resolved.clone();
        if let Some(reason) = self.reason(&content) {
            let notification = GroupNotification {
                receiver: self.options.receiver.clone(),
                labels: labels.clone(),
                firing: content.firing.keys().cloned().collect(),
                resolved: content.resolved.clone(),
                reason,
                repeats_before_ns: self.repeats_before_ns(now_ns),
            };
            match send(&notification) {
                Ok(queued_ns) => content.at_ns = queued_ns.min(now_ns),
                Err(error) => {
                    self.is_urgent = false;
                    self.next_ns = now_ns.saturating_add(nanos(RETRY_DELAY));
                    return Err(error);
                }
            }
            self.last = Some(content);
            self.note_sent();
        } else if !self.was_flushed {
            self.worst = None;
        }
        self.plan_look(next_ns);
        self.alerts.retain(|id, alert| !(alert.is_resolved && handled.contains(id)));
        Ok(())
    }

    /// A look that is further away than any delay was planned before the clock stepped back.
    fn is_due(&self, now_ns: i64) -> bool {
        self.is_urgent || self.is_look_due(now_ns)
    }

    fn is_look_due(&self, now_ns: i64) -> bool {
        let delay = self.options.group_wait.max(self.options.group_interval).max(RETRY_DELAY);
        self.next_ns <= now_ns || self.next_ns > now_ns.saturating_add(nanos(delay))
    }

    /// Time of the look after one at this time.
    fn next_look_ns(&self, now_ns: i64) -> i64 {
        match self.is_look_due(now_ns) {
            true => now_ns.saturating_add(nanos(self.options.group_interval)),
            false => self.next_ns,
        }
    }

    fn plan_look(&mut self, next_ns: i64) {
        (self.is_urgent, self.was_flushed, self.next_ns) = (false, true, next_ns);
    }

    /// Notes the severity of an alert: one that is worse than all others, or than it was itself in
    /// another group, is urgent.
    fn note_severity(&mut self, severity: u8, is_worse: bool) {
        self.is_urgent |= is_worse || self.worst.is_some_and(|worst| severity < worst);
        if !self.was_flushed {
            self.worst = Some(self.worst.map_or(severity, |worst| worst.min(severity)));
        }
    }

    /// Notes that alerts were sent, or that there were none to send.
    fn note_sent(&mut self) {
        let sent = self.last.iter().flat_map(|last| last.firing.keys());
        let severities = sent.filter_map(|id| self.alerts.get(id)).map(|alert| alert.severity);
        self.worst = severities.min();
    }

    fn repeats_before_ns(&self, now_ns: i64) -> i64 {
        match &self.last {
            Some(last) if last.at_ns == i64::MIN => {
                now_ns.saturating_sub(nanos(self.options.repeat_interval))
            }
            _ => i64::MAX,
        }
    }

    /// Why the content is sent; `None` if it is not (`notify/notify.go`, `needsUpdate`).
    fn reason(&self, content: &GroupContent) -> Option<GroupReason> {
        let Some(last) = &self.last else {
            return (!content.firing.is_empty()).then_some(GroupReason::FirstNotification);
        };
        if content.firing.iter().any(|(id, transition)| last.firing.get(id) != Some(transition)) {
            return Some(GroupReason::NewAlerts);
        }
        if content.firing.is_empty() {
            // An inhibited or silenced alert is not resolved.
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

pub(super) fn group_labels(group_by: &GroupBy, labels: &AlertLabels) -> AlertLabels {
    let is_meant = |name: &String| match group_by {
        GroupBy::All => true,
        GroupBy::Labels(names) => names.contains(name),
    };
    let kept = labels.iter().filter(|(name, _)| is_meant(name));
    model::sort::map(kept.map(|(name, value)| (name.clone(), value.clone())))
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
