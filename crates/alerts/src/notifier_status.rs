//! Status and metrics of notifications.

use intake::{Meter, MetricSnapshot, SnapshotValue};
use notify::{ContactStatus, NotifierStatus, TimedText};
use role::json::Json::{self, Integer, List, Null, Object, Text};
use role::json::integer;

use crate::contact_api::undelivered_json;
use crate::notifier_handle::NotifierHandle;

/// Registers the counters of contacts.
pub(crate) fn register_metrics(meter: &Meter, notifier: &NotifierHandle) {
    let notifier = notifier.clone();
    meter.register_collector(move |all| {
        let status = notifier.status().unwrap_or_default();
        for contact in &status.contacts {
            let mut add = |name, help, count: u64| {
                let labels = vec![("contact".to_owned(), contact.name.clone())];
                let value = SnapshotValue::Counter(count as f64);
                all.push(MetricSnapshot { name, help, labels, value });
            };
            add("topdeck_notifications_total", "Delivered notifications", contact.delivered);
            add(
                "topdeck_notifications_failed_total",
                "Failed attempts to deliver a notification",
                contact.failed,
            );
        }
    });
}

/// Section `notifications` of the status. `primary` is what is known of the primary site.
pub(crate) fn status_json(status: Option<&NotifierStatus>, primary: Json) -> Json {
    let none = NotifierStatus::default();
    let status = status.unwrap_or(&none);
    Object(vec![
        ("pending", integer(status.log.pending as u64)),
        ("error", text_json(status.error.as_ref())),
        ("contacts", List(status.contacts.iter().map(contact_json).collect())),
        ("undelivered", List(status.undelivered.iter().map(undelivered_json).collect())),
        ("warnings", List(status.warnings.iter().map(|one| text_json(Some(one))).collect())),
        ("damaged_lines", integer(status.log.damaged_lines)),
        ("primary", primary),
    ])
}

fn contact_json(contact: &ContactStatus) -> Json {
    let time = |time: Option<i64>| time.map_or(Null, |time| Integer(time.into()));
    Object(vec![
        ("name", Text(contact.name.clone())),
        ("kind", Text(contact.kind.to_owned())),
        ("pending", integer(contact.pending as u64)),
        ("oldest_due_ns", time(contact.oldest_due_ns)),
        ("delivered", integer(contact.delivered)),
        ("failed", integer(contact.failed)),
        ("delivered_ns", time(contact.delivered_ns)),
        ("last_error", text_json(contact.last_error.as_ref())),
    ])
}

/// Text and its time; null without one.
pub(crate) fn text_json(text: Option<&TimedText>) -> Json {
    text.map_or(Null, |text| {
        let at_ns = ("at_ns", Integer(text.at_ns.into()));
        Object(vec![at_ns, ("text", Text(text.text.clone()))])
    })
}
