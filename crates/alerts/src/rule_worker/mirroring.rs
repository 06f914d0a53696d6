//! Changes of the primary site: the worker makes its acknowledgements and clearances those of this
//! site.
//!
//! If they cannot be stored, which is logged, those that the primary lists next are tried: it lists
//! all, each second.

use query::LabelSet;
use rules::{AcknowledgementChange, AlertClearance, AlertState, EvaluatedGroup};

use super::RuleWorker;
use crate::alert_place::AlertPlace;
use crate::received_alerts::ReceivedAlert;
use crate::site_acknowledgements::PrimaryAcknowledgements;
use crate::site_clearances::PrimaryClearances;
use crate::worker_control::PrimaryChanges;

/// A change of an alert of a rule.
struct RuleAlertChange<C> {
    rule: usize,
    labels: LabelSet,
    change: C,
}

impl RuleWorker {
    /// Makes the changes that the primary site lists.
    pub(super) fn mirror_primary(&mut self) {
        let told = self.control.take_mirrored();
        let Some(told) = told.filter(|_| self.settings.has_primary()) else { return };
        let PrimaryChanges { acknowledgements, clearances } = told;
        // An alert that was cleared there is not acknowledged.
        let due = self.mirrored_clearances.due(&clearances);
        if self.mirror_clearances(&due) {
            self.mirrored_clearances.set(&clearances);
        }
        self.mirror_acknowledgements(&acknowledgements);
    }

    /// Removes the acknowledgements of a former primary site: nobody can take them back.
    pub(super) fn forget_primary(&mut self) {
        if !self.has_forgotten_primary && !self.settings.has_primary() {
            let none = PrimaryAcknowledgements::default();
            self.has_forgotten_primary = self.mirror_acknowledgements(&none);
        }
    }

    /// Makes the acknowledgements of the primary site those of this one. Returns whether they are
    /// stored.
    fn mirror_acknowledgements(&mut self, found: &PrimaryAcknowledgements) -> bool {
        let now_ns = self.intake.now();
        let of_group = |group: &EvaluatedGroup| acknowledgement_changes(group, found, now_ns);
        let is_stored = self.change_groups(&of_group, |group, rule, labels, change| {
            group.change_acknowledgements(rule, labels, &change);
        });
        let of_received = |alert: &ReceivedAlert| {
            let place = || AlertPlace::of_received(&alert.labels);
            let known = &alert.acknowledgements;
            found.change(place, known, None, now_ns).filter(|_| alert.is_firing)
        };
        let is_received_stored = self
            .change_received(&of_received, |alert, change| alert.change_acknowledgements(&change));
        is_stored && is_received_stored
    }

    /// Ends the alerts that were cleared at the primary site. Returns whether that is stored.
    fn mirror_clearances(&mut self, due: &PrimaryClearances) -> bool {
        if due.is_empty() {
            return true;
        }
        let of_group = |group: &EvaluatedGroup| cleared_alerts(group, due);
        let is_stored = self.change_groups(&of_group, |group, rule, labels, clearance| {
            group.clear_alert(rule, labels, &clearance);
        });
        let of_received = |alert: &ReceivedAlert| {
            let place = || AlertPlace::of_received(&alert.labels);
            due.of_alert(place, alert.began_ns).filter(|_| alert.is_firing).cloned()
        };
        let is_received_stored =
            self.change_received(&of_received, |alert, clearance| alert.clear(&clearance));
        is_stored && is_received_stored
    }

    /// Changes alerts of rules: `find` lists those of a group. Returns whether the changes are
    /// stored.
    fn change_groups<C>(
        &mut self,
        find: &dyn Fn(&EvaluatedGroup) -> Vec<RuleAlertChange<C>>,
        change: impl Fn(&mut EvaluatedGroup, usize, &LabelSet, C),
    ) -> bool {
        let mut before = Vec::new();
        for (at, scheduled) in self.groups.iter_mut().enumerate() {
            let group = &mut scheduled.group;
            let changes = find(group);
            if changes.is_empty() {
                continue;
            }
            before.push((at, group.clone()));
            for RuleAlertChange { rule, labels, change: found } in changes {
                change(group, rule, &labels, found);
            }
        }
        let has_changed = !before.is_empty();
        let is_stored = self.store_changed_groups(before).is_ok();
        if has_changed && is_stored {
            self.published.advance_revision();
        }
        is_stored
    }

    /// Changes alerts from other programs. Returns whether the changes are stored.
    fn change_received<C>(
        &mut self,
        find: &dyn Fn(&ReceivedAlert) -> Option<C>,
        change: impl Fn(&mut ReceivedAlert, C) -> bool,
    ) -> bool {
        if self.received.alerts().iter().all(|alert| find(alert).is_none()) {
            return true;
        }
        let changed =
            self.received.change(|alert| find(alert).is_some_and(|found| change(alert, found)));
        match changed {
            Ok(_) => {
                self.append_received_history();
                self.enqueue_received_notifications();
                self.published.advance_revision();
                true
            }
            Err(error) => {
                self.log_received_error(Some(error.to_string()));
                false
            }
        }
    }
}

/// New acknowledgements of the active alerts that the primary site acknowledged otherwise.
fn acknowledgement_changes(
    group: &EvaluatedGroup,
    found: &PrimaryAcknowledgements,
    now_ns: i64,
) -> Vec<RuleAlertChange<AcknowledgementChange>> {
    let rules = group.rules().iter().enumerate();
    let changes = rules.flat_map(|(rule, evaluated)| {
        let alerts = evaluated.alerts().alerts();
        let active = alerts.filter(|(_, alert)| alert.state != AlertState::Inactive);
        active.filter_map(move |(labels, alert)| {
            let place = || AlertPlace::of_rule(group, labels);
            let (known, severity) = (&alert.acknowledgements, alert.severity());
            let change = found.change(place, known, severity, now_ns)?;
            Some(RuleAlertChange { rule, labels: labels.clone(), change })
        })
    });
    changes.collect()
}

/// Clearances of the active alerts that the primary site cleared.
fn cleared_alerts(
    group: &EvaluatedGroup,
    due: &PrimaryClearances,
) -> Vec<RuleAlertChange<AlertClearance>> {
    let rules = group.rules().iter().enumerate();
    let cleared = rules.flat_map(|(rule, evaluated)| {
        let alerts = evaluated.alerts().alerts();
        let active = alerts.filter(|(_, alert)| alert.state != AlertState::Inactive);
        active.filter_map(move |(labels, alert)| {
            let place = || AlertPlace::of_rule(group, labels);
            let change = due.of_alert(place, alert.active_at_ns)?.clone();
            Some(RuleAlertChange { rule, labels: labels.clone(), change })
        })
    });
    cleared.collect()
}
