//! Receivers: what a route names: a contact, an on-call rotation, or an escalation.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use render::time::format_age;

use crate::contact_settings::{ConfiguredContact, failover_chain};
use crate::rotation::OnCallRotation;

/// Receivers that hear of an alert one after the other, until somebody acknowledges it.
#[derive(Clone, Debug)]
pub struct EscalationPolicy {
    /// Unique name among contacts, rotations and escalations.
    pub name: String,
    /// At least one, by time.
    pub(crate) steps: Vec<EscalationStep>,
}

impl fmt::Display for EscalationPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.steps.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            let after = match step.after.is_zero() {
                true => "at once".to_owned(),
                false => format!("after {}", format_age(step.after)),
            };
            write!(f, "{separator}{after}: {}", step.receivers.join(", "))?;
        }
        Ok(())
    }
}

/// Step of an escalation.
#[derive(Clone, Debug)]
pub(crate) struct EscalationStep {
    /// Time after the alert fired.
    pub(crate) after: Duration,
    /// Names of contacts and rotations.
    pub(crate) receivers: Vec<String>,
}

/// All receivers by name.
#[derive(Debug, Default)]
pub(crate) struct ReceiverTable {
    contacts: Vec<ConfiguredContact>,
    rotations: BTreeMap<String, OnCallRotation>,
    escalations: BTreeMap<String, EscalationPolicy>,
}

impl ReceiverTable {
    pub(crate) fn new(
        contacts: Vec<ConfiguredContact>,
        rotations: Vec<OnCallRotation>,
        escalations: Vec<EscalationPolicy>,
    ) -> ReceiverTable {
        let rotations = rotations.into_iter().map(|one| (one.name.clone(), one));
        let escalations = escalations.into_iter().map(|one| (one.name.clone(), one));
        let (rotations, escalations) = (model::sort::map(rotations), model::sort::map(escalations));
        ReceiverTable { contacts, rotations, escalations }
    }

    pub(crate) fn contacts(&self) -> &[ConfiguredContact] {
        &self.contacts
    }

    pub(crate) fn contact(&self, name: &str) -> Option<&ConfiguredContact> {
        self.contacts.iter().find(|contact| contact.name == name)
    }

    pub(crate) fn escalation(&self, name: &str) -> Option<&EscalationPolicy> {
        self.escalations.get(name)
    }

    /// A contact and its failover contacts.
    pub(crate) fn failover_chain<'a>(&'a self, contact: &'a str) -> Vec<&'a str> {
        failover_chain(&self.contacts, contact)
    }

    /// The contact of a contact or a rotation; none if nobody is on call. Of a rotation whose
    /// members include some that `is_notified`, these: a handover does not page somebody else
    /// for the same state. Else `on_call` says who is.
    pub(crate) fn contacts_of(
        &self,
        receiver: &str,
        is_notified: impl Fn(&str) -> bool,
        on_call: impl FnOnce(&OnCallRotation) -> Option<String>,
    ) -> Vec<String> {
        let Some(rotation) = self.rotations.get(receiver) else {
            return self
                .contact(receiver)
                .map(|contact| contact.name.clone())
                .into_iter()
                .collect();
        };
        let notified = rotation.all_members().filter(|member| is_notified(member));
        let mut contacts: Vec<String> = notified.map(str::to_owned).collect();
        if contacts.is_empty() {
            contacts.extend(on_call(rotation));
        }
        contacts
    }
}
