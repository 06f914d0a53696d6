//! Acknowledgements and clearances: alerts of rules and from outside, changed by the worker,
//! durable before the request is answered. Acknowledgements of the primary site are made in the
//! same way.

use query::LabelSet;
use role::RouteError;
use rules::{AcknowledgementChange, AlertState, EvaluatedGroup};

use super::RuleWorker;
use crate::alert_selection::{AlertSelection, alert_labels, fingerprint};
use crate::received_alerts::ReceivedAlert;
use crate::site_acknowledgements::{AlertPlace, PrimaryAcknowledgements};
use crate::worker_control::{AlertChange, AlertChangeReply, AlertChangeRequest};

impl RuleWorker {
    /// Makes the changes that requests wait for.
    pub(super) fn handle_requests(&mut self) {
        while let Some(request) = self.control.next_request() {
            let AlertChangeRequest { selection, change, reply } = request;
            let result = self.change_alerts(&selection, &change);
            // The client may have given up.
            let _ = reply.send(result);
        }
        let found = self.control.take_mirrored();
        if let Some(found) = found.filter(|_| self.settings.has_primary()) {
            self.mirror(&found);
        }
    }

    /// Removes the acknowledgements of a former primary site: nobody can take them back.
    pub(super) fn forget_primary(&mut self) {
        if !self.has_forgotten_primary && !self.settings.has_primary() {
            self.has_forgotten_primary = self.mirror(&PrimaryAcknowledgements::default());
        }
    }

    /// Makes the acknowledgements of the primary site those of this one. If they cannot be stored,
    /// which is logged, those that the primary lists next are tried: it lists all, each second.
    /// Returns whether they are stored.
    fn mirror(&mut self, found: &PrimaryAcknowledgements) -> bool {
        let now_ns = self.intake.now();
        let mut before = Vec::new();
        for (at, scheduled) in self.groups.iter_mut().enumerate() {
            let group = &mut scheduled.group;
            let changes = mirrored_changes(group, found, now_ns);
            if changes.is_empty() {
                continue;
            }
            before.push((at, group.clone()));
            for (rule, labels, change) in changes {
                group.change_acknowledgements(rule, &labels, &change);
            }
        }
        let mut is_changed = !before.is_empty();
        let mut is_stored = self.store_acknowledgements(before).is_ok();
        is_changed &= is_stored;
        let change = |alert: &ReceivedAlert| {
            let place = || AlertPlace::of_received(&alert.labels);
            found.change(place, &alert.acknowledgements, now_ns).filter(|_| alert.is_firing)
        };
        if self.received.alerts().iter().any(|alert| change(alert).is_some()) {
            let changed = self.received.change(|alert| {
                change(alert).is_some_and(|change| alert.change_acknowledgements(&change))
            });
            match changed {
                Ok(_) => {
                    self.record_received();
                    self.submit_received();
                }
                Err(error) => {
                    self.log_received_error(Some(error.to_string()));
                    is_stored = false;
                }
            }
            is_changed = true;
        }
        if is_changed {
            self.board.advance_revision();
        }
        is_stored
    }

    fn change_alerts(
        &mut self,
        selection: &AlertSelection,
        change: &AlertChange,
    ) -> AlertChangeReply {
        let mut found = self.change_own(selection, change)?;
        let changed = self.received.change(|alert| {
            if !alert.is_firing || !selection.contains(&alert.labels) {
                return false;
            }
            found.push(fingerprint(&alert.labels));
            match change {
                AlertChange::Acknowledge(change) => alert.change_acknowledgements(change),
                AlertChange::Clear(clearance) => alert.clear(clearance),
            }
        });
        let is_changed = changed.map_err(|error| RouteError::Unavailable(error.to_string()))?;
        if is_changed {
            self.record_received();
            self.submit_received();
        }
        if found.is_empty() {
            let what = "no pending or firing alert is selected; list alerts with `topdeck alerts`";
            return Err(RouteError::NotFound(what.to_owned()));
        }
        found.sort();
        found.dedup();
        self.board.advance_revision();
        Ok(found)
    }

    /// Changes alerts of rules. If the states cannot be stored, they stay as they were.
    fn change_own(&mut self, selection: &AlertSelection, change: &AlertChange) -> AlertChangeReply {
        let (mut found, mut before) = (Vec::new(), Vec::new());
        for (at, scheduled) in self.groups.iter_mut().enumerate() {
            let group = &mut scheduled.group;
            let selected = selected_alerts(group, selection);
            if selected.is_empty() {
                continue;
            }
            before.push((at, group.clone()));
            for (rule, labels, print) in selected {
                let is_found = match change {
                    AlertChange::Acknowledge(change) => {
                        group.change_acknowledgements(rule, &labels, change)
                    }
                    AlertChange::Clear(clearance) => group.clear_alert(rule, &labels, clearance),
                };
                found.extend(is_found.then_some(print));
            }
        }
        self.store_acknowledgements(before)?;
        Ok(found)
    }

    /// Stores, publishes and submits groups whose alerts changed without an evaluation. If the
    /// states cannot be stored, the groups stay as they were `before`.
    fn store_acknowledgements(
        &mut self,
        before: Vec<(usize, EvaluatedGroup)>,
    ) -> Result<(), RouteError> {
        if before.is_empty() {
            return Ok(());
        }
        self.save();
        if let Some(error) = &self.save_error {
            let what = format!("{error}; nothing is changed; retry");
            for (at, group) in before {
                self.groups[at].group = group;
            }
            return Err(RouteError::Unavailable(what));
        }
        for (at, _) in before {
            self.record_group(at);
            self.publish_group(at);
            self.submit(at);
        }
        Ok(())
    }
}

/// Rule, labels and new acknowledgement of the active alerts that the primary site acknowledged
/// otherwise.
fn mirrored_changes(
    group: &EvaluatedGroup,
    found: &PrimaryAcknowledgements,
    now_ns: i64,
) -> Vec<(usize, LabelSet, AcknowledgementChange)> {
    let rules = group.rules().iter().enumerate();
    let changes = rules.flat_map(|(rule, evaluated)| {
        let alerts = evaluated.alerts().alerts();
        let active = alerts.filter(|(_, alert)| alert.state != AlertState::Inactive);
        active.filter_map(move |(labels, alert)| {
            let place = || AlertPlace::of_rule(group, labels);
            let change = found.change(place, &alert.acknowledgements, now_ns)?;
            Some((rule, labels.clone(), change))
        })
    });
    changes.collect()
}

/// Rule, labels and fingerprint of the active alerts that are selected.
fn selected_alerts(
    group: &EvaluatedGroup,
    selection: &AlertSelection,
) -> Vec<(usize, LabelSet, String)> {
    let rules = group.rules().iter().enumerate();
    let alerts = rules.flat_map(|(rule, evaluated)| {
        let alerts = evaluated.alerts().alerts();
        let active = alerts.filter(|(_, alert)| alert.state != AlertState::Inactive);
        active.filter_map(move |(labels, alert)| {
            let is_selected = selection.contains_rule_alert(labels, alert);
            is_selected.then(|| (rule, labels.clone(), fingerprint(&alert_labels(labels))))
        })
    });
    alerts.collect()
}
