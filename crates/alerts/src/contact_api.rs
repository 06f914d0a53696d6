//! `/v1/contacts`: contacts, whether they are reached, and what they got last.

use std::time::Duration;

use notify::{
    AttemptReport, ContactStatus, NotifierStatus, PendingNotification, UndeliveredNotification,
};
use role::json::Json::{self, Bool, Integer, List, Null, Object, Text};
use role::json::integer;
use role::{RouteFormat, RouteSpec};

use crate::notifier_status::text_json;

/// List.
pub(crate) static CONTACTS: RouteSpec = RouteSpec {
    name: "contacts",
    path: "/v1/contacts",
    about: "Contacts of alerts: whether they are reached, their last deliveries, what waits, and \
            what they did not get. Of receivers only host and port.",
    parameters: &[],
    format: RouteFormat::Json,
};

/// Response of `/v1/contacts`.
pub(crate) fn contacts(status: Option<&NotifierStatus>) -> Json {
    let none = NotifierStatus::default();
    let status = status.unwrap_or(&none);
    Object(vec![
        ("schema", integer(1)),
        ("is_held", Bool(status.is_held)),
        ("error", text_json(status.error.as_ref())),
        ("contacts", List(status.contacts.iter().map(contact_json).collect())),
        ("pending", List(status.pending.iter().map(pending_json).collect())),
        ("undelivered", List(status.undelivered.iter().map(undelivered_json).collect())),
        ("warnings", List(status.warnings.iter().map(|one| text_json(Some(one))).collect())),
    ])
}

/// `ok` if the last attempt was accepted, `failing` if not, `unused` without one.
fn state_name(contact: &ContactStatus) -> &'static str {
    match (contact.failing_since_ns, contact.delivered_ns) {
        (Some(_), _) => "failing",
        (None, Some(_)) => "ok",
        (None, None) => "unused",
    }
}

fn contact_json(contact: &ContactStatus) -> Json {
    Object(vec![
        ("name", Text(contact.name.clone())),
        ("kind", Text(contact.kind.to_owned())),
        ("host", optional_text(contact.host.as_deref())),
        ("state", Text(state_name(contact).to_owned())),
        ("failing_since_ns", optional_time(contact.failing_since_ns)),
        ("failover", optional_text(contact.failover.as_deref())),
        ("pending", integer(contact.pending as u64)),
        ("oldest_due_ns", optional_time(contact.oldest_due_ns)),
        ("delivered", integer(contact.delivered)),
        ("failed", integer(contact.failed)),
        ("delivered_ns", optional_time(contact.delivered_ns)),
        ("last_error", text_json(contact.last_error.as_ref())),
        ("deliveries", List(contact.attempts.iter().rev().map(attempt_json).collect())),
    ])
}

fn attempt_json(attempt: &AttemptReport) -> Json {
    let latency_ns =
        |latency: Duration| Integer(latency.as_nanos().try_into().unwrap_or(i128::MAX));
    Object(vec![
        ("at_ns", Integer(attempt.at_ns.into())),
        ("key", Text(attempt.key.to_string())),
        ("alert", Text(attempt.alert.clone())),
        ("state", optional_text(attempt.state.map(|state| state.name()))),
        ("outcome", Text(attempt.verdict.name().to_owned())),
        ("attempts", attempt.attempts.map_or(Null, |count| integer(count.into()))),
        ("latency_ns", attempt.latency.map_or(Null, latency_ns)),
        ("may_be_duplicate", Bool(attempt.may_be_duplicate)),
        ("failover", optional_text(attempt.failover.as_deref())),
        ("note", Text(attempt.note.clone())),
    ])
}

fn pending_json(pending: &PendingNotification) -> Json {
    Object(vec![
        ("contact", Text(pending.contact.clone())),
        ("key", Text(pending.key.to_string())),
        ("alert", Text(pending.alert.clone())),
        ("state", Text(pending.state.name().to_owned())),
        ("due_ns", Integer(pending.due_ns.into())),
        ("attempts", integer(pending.attempts.into())),
        ("next_ns", Integer(pending.next_ns.into())),
        ("has_failed_over", Bool(pending.has_failed_over)),
        ("note", Text(pending.note.clone())),
    ])
}

/// A notification that a contact did not get and will not get.
pub(crate) fn undelivered_json(undelivered: &UndeliveredNotification) -> Json {
    Object(vec![
        ("contact", Text(undelivered.contact.clone())),
        ("key", Text(undelivered.key.to_string())),
        ("reason", Text(undelivered.reason.clone())),
    ])
}

fn optional_text(text: Option<&str>) -> Json {
    text.map_or(Null, |text| Text(text.to_owned()))
}

fn optional_time(time: Option<i64>) -> Json {
    time.map_or(Null, |time| Integer(time.into()))
}
