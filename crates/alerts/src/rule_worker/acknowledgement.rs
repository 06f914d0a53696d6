//! Acknowledgements: alerts of rules and from outside, changed by the worker, durable before the
//! request is answered.

use query::LabelSet;
use role::RouteError;
use rules::{AlertAcknowledgement, AlertState, EvaluatedGroup};

use super::RuleWorker;
use crate::alert_selection::{AlertSelection, alert_labels, fingerprint};
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
        if before.is_empty() {
            return Ok(found);
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
        Ok(found)
    }
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
