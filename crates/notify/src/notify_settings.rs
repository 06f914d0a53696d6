//! Settings of notifications: `[[contact]]`, `[route]`, `[[inhibit]]`, `[[time_interval]]`,
//! `[[rotation]]`, `[[escalation]]`, and `alertmanager_config`.
//!
//! All problems are found at once, each with its position.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::alertmanager_file::read_alertmanager_file;
use crate::contact_settings::{ConfiguredContact, read_contacts};
use crate::nearest_name::unknown_name;
use crate::notify_problem::{NotifyProblem, read_table, table_array};
use crate::receiver_table::{EscalationPolicy, EscalationStep, ReceiverTable};
use crate::rotation::OnCallRotation;
use crate::rotation_settings::RotationTable;
use crate::routing::{RoutingTables, RoutingTree};
use crate::setting_values::DurationOrZeroText;

/// Key of Alertmanager's file.
const FILE_KEY: &str = "alertmanager_config";

/// Settings of notifications.
#[derive(Clone, Debug, Default)]
pub struct NotifySettings {
    /// Contacts.
    pub contacts: Vec<ConfiguredContact>,
    /// Rotations.
    pub rotations: Vec<OnCallRotation>,
    /// Escalations.
    pub escalations: Vec<EscalationPolicy>,
    /// Routes; an empty tree if there are none.
    pub routing: RoutingTree,
    /// What Alertmanager's file has and topdeck does not use, with positions.
    pub unused: Vec<String>,
}

/// `[[escalation]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EscalationTable {
    name: Spanned<String>,
    steps: Spanned<Vec<Spanned<StepTable>>>,
}

/// One of its `steps`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepTable {
    after: DurationOrZeroText,
    receivers: Spanned<Vec<Spanned<String>>>,
}

impl NotifySettings {
    /// Keys of the settings file.
    pub const KEYS: [&'static str; 7] =
        ["contact", "route", "inhibit", "time_interval", "rotation", "escalation", FILE_KEY];

    /// Reads a settings file, and Alertmanager's file if it is named. Relative paths are resolved
    /// against `dir`.
    pub fn read(root: &DeTable<'_>, dir: &Path) -> Result<NotifySettings, Vec<NotifyProblem>> {
        let (contacts, mut problems) = read_contacts(root);
        let rotations: Vec<RotationTable> = tables(root, "rotation", &mut problems);
        let escalations = tables(root, "escalation", &mut problems);
        let mut names = ReceiverNames { names: BTreeMap::new(), problems };
        names.add_contacts(&contacts);
        let rotations =
            rotations.into_iter().filter_map(|table| table.build(&mut names, dir)).collect();
        let escalations =
            escalations.into_iter().filter_map(|table| names.escalation(table)).collect();
        let mut problems = std::mem::take(&mut names.problems);
        let receivers = names.receivers();
        let (routing, unused) = read_routing(root, dir, &receivers, &mut problems);
        let needs_route = contacts.iter().any(receives_alerts);
        if needs_route && routing.is_none() && problems.is_empty() {
            let byte = table_array(root, "contact", &mut problems)[0].span().start;
            let what = "contacts receive no alerts without a route; add [route] with `receiver`";
            problems.push(NotifyProblem { position: byte, what: what.to_owned() });
        }
        if !problems.is_empty() {
            model::sort::by_key(&mut problems, |problem| problem.position);
            return Err(problems);
        }
        let routing = routing.unwrap_or_default();
        Ok(NotifySettings { contacts, rotations, escalations, routing, unused })
    }

    pub(crate) fn into_receivers(self) -> (ReceiverTable, RoutingTree) {
        let receivers = ReceiverTable::new(self.contacts, self.rotations, self.escalations);
        (receivers, self.routing)
    }
}

fn receives_alerts(contact: &ConfiguredContact) -> bool {
    contact.contact.heartbeat_interval().is_none()
}

fn tables<T: serde::de::DeserializeOwned>(
    root: &DeTable<'_>,
    key: &str,
    problems: &mut Vec<NotifyProblem>,
) -> Vec<T> {
    let values = table_array(root, key, problems);
    values.iter().filter_map(|value| read_table(key, value, problems)).collect()
}

/// The tree, and what of Alertmanager's file is not used.
fn read_routing(
    root: &DeTable<'_>,
    dir: &Path,
    receivers: &BTreeSet<&str>,
    problems: &mut Vec<NotifyProblem>,
) -> (Option<RoutingTree>, Vec<String>) {
    let entry = |key: &str| root.iter().find(|(found, _)| found.get_ref() == key);
    if let Some((key, value)) = entry(FILE_KEY) {
        let mut add = |byte, what| problems.push(NotifyProblem { position: byte, what });
        for other in ["route", "inhibit", "time_interval"] {
            if let Some((other_key, _)) = entry(other) {
                let what = format!("{other} and {FILE_KEY} exclude each other; keep one");
                add(other_key.span().start, what);
            }
        }
        let DeValue::String(path) = value.get_ref() else {
            add(value.span().start, format!("{FILE_KEY} is not a path in quotes"));
            return (None, Vec::new());
        };
        return match read_alertmanager_file(&dir.join(&**path), receivers) {
            Ok((tree, unused)) => (Some(tree), unused),
            Err(all) => {
                all.into_iter().for_each(|what| add(key.span().start, what));
                (None, Vec::new())
            }
        };
    }
    let known = problems.len();
    let route = entry("route")
        .and_then(|(key, value)| Some((key.span().start, read_table("route", value, problems)?)));
    let parts = RoutingTables {
        route,
        inhibit: tables(root, "inhibit", problems),
        time_intervals: tables(root, "time_interval", problems),
    };
    let has_route = entry("route").is_some();
    if problems.len() > known {
        return (None, Vec::new());
    }
    match parts.build(receivers) {
        Ok(tree) => (has_route.then_some(tree), Vec::new()),
        Err(found) => {
            problems.extend(found);
            (None, Vec::new())
        }
    }
}

/// Kind of a receiver.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum ReceiverKind {
    Contact,
    Heartbeat,
    Rotation,
    Escalation,
}

/// Names of all receivers: unique, and known where they are used.
pub(crate) struct ReceiverNames<'a> {
    names: BTreeMap<std::borrow::Cow<'a, str>, ReceiverKind>,
    problems: Vec<NotifyProblem>,
}

impl<'a> ReceiverNames<'a> {
    fn add_contacts(&mut self, contacts: &'a [ConfiguredContact]) {
        for contact in contacts {
            let kind = match receives_alerts(contact) {
                true => ReceiverKind::Contact,
                false => ReceiverKind::Heartbeat,
            };
            self.names.insert(contact.name.as_str().into(), kind);
        }
    }

    pub(crate) fn add(&mut self, byte: usize, what: impl Into<String>) {
        self.problems.push(NotifyProblem { position: byte, what: what.into() });
    }

    pub(crate) fn problem_count(&self) -> usize {
        self.problems.len()
    }

    /// Names of receivers of a kind.
    pub(crate) fn of_kind(&self, kind: ReceiverKind) -> impl Iterator<Item = &str> {
        self.names.iter().filter(move |(_, of)| **of == kind).map(|(name, _)| &**name)
    }

    /// Adds the name of a rotation or an escalation.
    pub(crate) fn define(&mut self, name: &Spanned<String>, kind: ReceiverKind) {
        if self.names.insert(name.get_ref().clone().into(), kind).is_some() {
            let what =
                format!("the name {:?} is used twice; receivers need own names", name.get_ref());
            self.add(name.span().start, what);
        }
    }

    /// Checks a name where it is used.
    pub(crate) fn check(&mut self, name: &Spanned<String>, kinds: &[ReceiverKind]) {
        let is_known =
            self.names.get(name.get_ref().as_str()).is_some_and(|kind| kinds.contains(kind));
        if !is_known {
            let known = self.names.iter().filter(|(_, kind)| kinds.contains(kind));
            let what = unknown_name("receiver", name.get_ref(), known.map(|(name, _)| &**name));
            self.add(name.span().start, what);
        }
    }

    fn escalation(&mut self, table: EscalationTable) -> Option<EscalationPolicy> {
        let EscalationTable { name, steps } = table;
        let before = self.problems.len();
        self.define(&name, ReceiverKind::Escalation);
        if steps.get_ref().is_empty() {
            self.add(steps.span().start, "an escalation needs at least one step");
        }
        let mut earliest = std::time::Duration::ZERO;
        let mut read = Vec::new();
        for step in steps.into_inner() {
            let (byte, step) = (step.span().start, step.into_inner());
            if step.after.0 < earliest {
                self.add(byte, "a step is before the one above it; order the steps by `after`");
            }
            earliest = step.after.0;
            if step.receivers.get_ref().is_empty() {
                self.add(step.receivers.span().start, "a step needs at least one receiver");
            }
            for receiver in step.receivers.get_ref() {
                self.check(receiver, &[ReceiverKind::Contact, ReceiverKind::Rotation]);
            }
            let receivers = step.receivers.into_inner().into_iter().map(Spanned::into_inner);
            read.push(EscalationStep { after: step.after.0, receivers: receivers.collect() });
        }
        let is_valid = self.problems.len() == before;
        is_valid.then(|| EscalationPolicy { name: name.into_inner(), steps: read })
    }

    /// Names that a route can have.
    fn receivers(&self) -> BTreeSet<&str> {
        let names = self.names.iter().filter(|(_, kind)| **kind != ReceiverKind::Heartbeat);
        names.map(|(name, _)| &**name).collect()
    }
}
