//! Acknowledgements: alerts of rules and from outside, changed by the worker, durable before the
//! request is answered. Those of the primary site are made in the same way.

use query::LabelSet;
use role::RouteError;
use rules::{AlertAcknowledgement, AlertState, EvaluatedGroup};

use super::RuleWorker;
use crate::alert_selection::{AlertSelection, alert_labels, fingerprint};
use crate::received_alerts::ReceivedAlert;
use crate::site_acknowledgements::{AcknowledgementChange, PrimaryAcknowledgements};
use crate::worker_control::{AcknowledgementReply, AcknowledgementRequest};

impl RuleWorker {
    /// Makes the changes that requests wait for.
    pub(super) fn handle_requests(&mut self) {
        while let Some(request) = self.control.next_request() {
            let AcknowledgementRequest { selection, acknowledgement, reply } = request;
            let result = self.acknowledge(&selection, acknowledgement.as_ref());
            // The client may have given up.
            let _ = reply.send(result);
        }
        if let Some(found) = self.control.take_mirrored() {
            self.mirror(&found);
        }
    }

    /// Makes the acknowledgements of the primary site those of this one. If they cannot be stored,
    /// which is logged, those that the primary lists next are tried: it lists all, each second.
    fn mirror(&mut self, found: &PrimaryAcknowledgements) {
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
                match change {
                    AcknowledgementChange::Set(new) => group.acknowledge(rule, &labels, new),
                    AcknowledgementChange::Remove => group.unacknowledge(rule, &labels),
                };
            }
        }
        let mut is_changed = !before.is_empty();
        is_changed &= self.store_acknowledgements(before).is_ok();
        let change = |alert: &ReceivedAlert| {
            let known = alert.acknowledgement.as_ref();
            found.change(|| alert.labels.clone(), known, now_ns).filter(|_| alert.is_firing)
        };
        if self.received.alerts().iter().any(|alert| change(alert).is_some()) {
            let changed = self.received.change(|alert| {
                let change = change(alert);
                change.is_some_and(|change| alert.acknowledge(change.acknowledgement()))
            });
            match changed {
                Ok(_) => {
                    self.record_received();
                    self.submit_received();
                }
                Err(error) => self.log_received_error(Some(error.to_string())),
            }
            is_changed = true;
        }
        if is_changed {
            self.board.advance_revision();
        }
    }

    fn acknowledge(
        &mut self,
        selection: &AlertSelection,
        new: Option<&AlertAcknowledgement>,
    ) -> AcknowledgementReply {
        let mut found = self.acknowledge_own(selection, new)?;
        let change = self.received.change(|alert| {
            if !alert.is_firing || !selection.contains(&alert.labels) {
                return false;
            }
            found.push(fingerprint(&alert.labels));
            alert.acknowledge(new)
        });
        let is_changed = change.map_err(|error| RouteError::Unavailable(error.to_string()))?;
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
    fn acknowledge_own(
        &mut self,
        selection: &AlertSelection,
        new: Option<&AlertAcknowledgement>,
    ) -> AcknowledgementReply {
        let (mut found, mut before) = (Vec::new(), Vec::new());
        for (at, scheduled) in self.groups.iter_mut().enumerate() {
            let group = &mut scheduled.group;
            let selected = selected_alerts(group, selection);
            if selected.is_empty() {
                continue;
            }
            before.push((at, group.clone()));
            for (rule, labels, print) in selected {
                let is_found = match new {
                    Some(new) => group.acknowledge(rule, &labels, new.clone()),
                    None => group.unacknowledge(rule, &labels),
                };
                found.extend(is_found.then_some(print));
            }
        }
        self.store_acknowledgements(before)?;
        Ok(found)
    }

    /// Stores, publishes and submits groups whose acknowledgements changed. If the states cannot be
    /// stored, the groups stay as they were `before`.
    fn store_acknowledgements(
        &mut self,
        before: Vec<(usize, EvaluatedGroup)>,
    ) -> Result<(), RouteError> {
        if before.is_empty() {
            return Ok(());
        }
        self.save();
        if let Some(error) = &self.save_error {
            let what = format!("{error}; the acknowledgement is not changed; retry");
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
            let known = alert.acknowledgement.as_ref();
            let change = found.change(|| alert_labels(labels), known, now_ns)?;
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
        active.filter_map(move |(labels, _)| {
            let texts = alert_labels(labels);
            let is_selected = selection.contains(&texts);
            is_selected.then(|| (rule, labels.clone(), fingerprint(&texts)))
        })
    });
    alerts.collect()
}
