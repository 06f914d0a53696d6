//! Acknowledgements and clearances: alerts of rules and from outside, changed by the worker,
//! durable before the request is answered.
//!
//! Alerts of rules are stored in one file, and those from outside in another one. If the second
//! cannot be written, the answer says which alerts are changed, and a repetition changes the rest.

use std::sync::Arc;

use query::LabelSet;
use role::RouteError;
use rules::{AlertState, EvaluatedGroup};

use super::RuleWorker;
use crate::alert_place::AlertPlace;
use crate::alert_selection::{AlertSelection, alert_labels, fingerprint};
use crate::site_clearances::SiteClearance;
use crate::worker_control::{AlertChange, AlertChangeReply, AlertChangeRequest};

/// Alerts that were changed.
#[derive(Debug, Default)]
struct ChangedAlerts {
    fingerprints: Vec<String>,
    /// Those that were cleared.
    clearances: Vec<SiteClearance>,
}

impl RuleWorker {
    /// Makes the changes that requests wait for.
    pub(super) fn handle_requests(&mut self) {
        while let Some(request) = self.control.next_request() {
            let AlertChangeRequest { selection, change, reply } = request;
            let result = self.change_alerts(&selection, &change);
            // The client may have given up.
            let _ = reply.send(result);
        }
        self.mirror_primary();
    }

    fn change_alerts(
        &mut self,
        selection: &AlertSelection,
        change: &AlertChange,
    ) -> AlertChangeReply {
        let own = self.change_rule_alert(selection, change)?;
        let mut received = ChangedAlerts::default();
        let changed = self.received.change(|alert| {
            if !alert.is_firing || !selection.contains(&alert.labels) {
                return false;
            }
            received.fingerprints.push(fingerprint(&alert.labels));
            match change {
                AlertChange::Acknowledge(change) => alert.change_acknowledgements(change),
                AlertChange::Clear(clearance) => {
                    let place = AlertPlace::of_received(&alert.labels);
                    received.clearances.push(SiteClearance::new(place, clearance));
                    alert.clear(clearance)
                }
            }
        });
        let now_ns = self.intake.now();
        let is_stored = changed.is_ok();
        let clearances = own.clearances.into_iter();
        let clearances = clearances.chain(received.clearances.into_iter().filter(|_| is_stored));
        self.published.update(|state| {
            Arc::make_mut(&mut state.clearances).add(clearances, now_ns);
        });
        if matches!(changed, Ok(true)) {
            self.append_received_history();
            self.enqueue_received_notifications();
        }
        self.published.advance_revision();
        if let Err(error) = changed {
            let (changed, unchanged) = (own.fingerprints, received.fingerprints);
            let what = partial_change(&error.to_string(), changed, unchanged);
            return Err(RouteError::Unavailable(what));
        }
        let found = sorted(own.fingerprints.into_iter().chain(received.fingerprints));
        if found.is_empty() {
            let what = "no pending or firing alert is selected; list alerts with `topdeck alerts`";
            return Err(RouteError::NotFound(what.to_owned()));
        }
        Ok(found)
    }

    /// Changes alerts of rules. If the states cannot be stored, they stay as they were.
    fn change_rule_alert(
        &mut self,
        selection: &AlertSelection,
        change: &AlertChange,
    ) -> Result<ChangedAlerts, RouteError> {
        let (mut found, mut before) = (ChangedAlerts::default(), Vec::new());
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
                    AlertChange::Clear(clearance) => {
                        let place = AlertPlace::of_rule(group, &labels);
                        found.clearances.push(SiteClearance::new(place, clearance));
                        group.clear_alert(rule, &labels, clearance)
                    }
                };
                found.fingerprints.extend(is_found.then_some(print));
            }
        }
        self.store_changed_groups(before)?;
        Ok(found)
    }

    /// Stores, publishes and submits groups whose alerts changed without an evaluation. If the
    /// states cannot be stored, the groups stay as they were `before`.
    pub(super) fn store_changed_groups(
        &mut self,
        before: Vec<(usize, EvaluatedGroup)>,
    ) -> Result<(), RouteError> {
        if before.is_empty() {
            return Ok(());
        }
        self.save_states();
        if let Some(error) = &self.save_error {
            let what = format!("{error}; nothing is changed; retry");
            for (at, group) in before {
                self.groups[at].group = group;
            }
            return Err(RouteError::Unavailable(what));
        }
        for (at, _) in before {
            self.append_group_history(at);
            self.publish_snapshot(at);
            self.enqueue_notifications(at);
        }
        Ok(())
    }
}

/// Why some of the selected alerts are not changed, and which.
fn partial_change(error: &str, changed: Vec<String>, unchanged: Vec<String>) -> String {
    if changed.is_empty() {
        return format!("{error}; nothing is changed; retry");
    }
    let list = |prints: Vec<String>| sorted(prints).join(", ");
    format!(
        "{error}; changed: {} (alerts of rules); unchanged: {} (alerts from other programs); \
         repeat the request to change the rest",
        list(changed),
        list(unchanged)
    )
}

fn sorted(prints: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut prints: Vec<String> = prints.into_iter().collect();
    prints.sort_unstable();
    prints.dedup();
    prints
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
