//! PagerDuty, Events API v2.
//!
//! `dedup_key` is the id of the alert: a repeat changes nothing. Proof of delivery: status 202 and
//! `"status": "success"`. Limits: summary 1,024 characters, event 512,000 bytes, above which
//! `custom_details` is left out, as Alertmanager does.
//!
//! An event cannot contain a picture, only its URL: PagerDuty and the browsers of its users fetch
//! it from this node by a signed link (`picture_links.rs`), over HTTPS only. A picture that cannot
//! be stored costs the picture, not the event.

use std::borrow::Cow;

use http::HeaderMap;
use net::signature::to_hex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::http_client::join_url;
use crate::message::{impact_text, time_text, value_text};
use crate::notification::{Notification, NotifiedState};
use crate::setting_values::{ContactSecret, KeyProblems, url_host};
use crate::text_limit::{TextCut, TextLimit};

const SUMMARY: TextLimit = TextLimit::characters("summary", 1024);
const EVENT_BYTES_MAX: usize = 512_000;
const DETAILS: TextLimit = TextLimit::bytes("custom_details", 0);
/// Maximum length of `dedup_key`.
const DEDUP_KEY_CHARS_MAX: usize = 255;

/// Settings of PagerDuty.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PagerDutyContact {
    /// Integration key of the service.
    routing_key: ContactSecret,
    /// URL of the API.
    #[serde(default = "default_url")]
    url: String,
    /// URL under which PagerDuty reaches this node, for pictures; empty for none. By default that
    /// of the node, if it begins with `https://`.
    picture_url: Option<String>,
}

fn default_url() -> String {
    "https://events.pagerduty.com".to_owned()
}

impl Contact for PagerDutyContact {
    const KIND: &'static str = "pagerduty";

    fn check(&self, problems: &mut KeyProblems) {
        self.routing_key.check("routing_key", problems);
        problems.url("url", &self.url);
        if let Some(url) = self.picture_url.as_deref().filter(|url| !url.is_empty()) {
            problems.url("picture_url", url);
        }
    }

    fn host(&self) -> Option<String> {
        url_host(&self.url)
    }

    fn is_idempotent(&self, _notification: &Notification, _previous: Option<&str>) -> bool {
        true
    }

    fn shows_pictures(&self) -> bool {
        self.picture_url.as_deref() != Some("")
    }

    async fn send(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        let mut cuts = Vec::new();
        let key = self.routing_key.read(context.dir)?;
        let mut event = event(notification, context, &key, &mut cuts);
        let failure = match self.picture(notification, context) {
            Ok(None) => None,
            Ok(Some(image)) => {
                event["images"] = json!([image]);
                None
            }
            Err(error) => Some(error.to_string()),
        };
        let url = join_url(&self.url, "/v2/enqueue");
        let reply = context.client.post_json(&url, HeaderMap::new(), &event).await?;
        let reply = reply.accepted(context.now_ns)?;
        if reply.status != 202 || reply.json()?["status"] != "success" {
            return Err(reply.unconfirmed("expected 202 and \"status\": \"success\""));
        }
        Ok(DeliveryReceipt::with_cuts(cuts).without_picture(failure))
    }
}

impl PagerDutyContact {
    /// The image of an event that triggers an incident; `None` if there is none to be shown.
    fn picture(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> std::io::Result<Option<Value>> {
        let is_trigger =
            matches!(notification.state, NotifiedState::Firing | NotifiedState::Unknown);
        let Some(links) = context.pictures.filter(|_| is_trigger) else { return Ok(None) };
        let base_url = self.picture_url.as_deref().or(links.https_url()).unwrap_or("");
        let Some(picture) = notification.sendable_picture().filter(|_| !base_url.is_empty()) else {
            return Ok(None);
        };
        let src = links.publish(base_url, &notification.key, picture, context.now_ns)?;
        let mut image = json!({ "src": src, "alt": picture.alt });
        if let Some(link) = &notification.link {
            image["href"] = json!(link);
        }
        Ok(Some(image))
    }
}

fn event(
    notification: &Notification,
    context: &DeliveryContext<'_>,
    routing_key: &str,
    cuts: &mut Vec<TextCut>,
) -> Value {
    let text = context.text(notification);
    let action = match notification.state {
        NotifiedState::Firing | NotifiedState::Unknown => "trigger",
        NotifiedState::Acknowledged => "acknowledge",
        NotifiedState::Resolved => "resolve",
    };
    let label = |name: &str| notification.labels.get(name).cloned();
    let source = label("instance").or_else(|| label("job"));
    let at = jiff::Timestamp::from_nanosecond(notification.at_ns.into()).unwrap_or_default();
    let links: Vec<Value> =
        notification.link.iter().map(|link| json!({ "href": link, "text": "View" })).collect();
    let mut event = json!({
        "routing_key": routing_key,
        "event_action": action,
        "dedup_key": dedup_key(&notification.key.alert_id),
        "client": "topdeck",
        "links": links,
        "payload": {
            "summary": SUMMARY.apply(&format!("{}: {}", text.title, text.short), cuts),
            "source": source.unwrap_or_else(|| "topdeck".to_owned()),
            "severity": severity(notification.severity),
            "timestamp": at.to_string(),
            "class": notification.name,
            "custom_details": details(notification),
        },
    });
    if let Some(link) = &notification.link {
        event["client_url"] = json!(link);
    }
    let length = event.to_string().len();
    if length > EVENT_BYTES_MAX {
        cuts.push(TextCut { limit: DETAILS, length });
        event["payload"]["custom_details"] =
            json!({ "note": "left out: the event exceeds 512,000 bytes; open the link" });
    }
    event
}

fn details(notification: &Notification) -> Value {
    json!({
        "severity": notification.severity,
        "state": notification.state.name(),
        "criterion": notification.criterion,
        "value": value_text(notification),
        "time": time_text(notification),
        "affected": impact_text(notification),
        "what to do": notification.notes,
        "labels": notification.labels,
        "annotations": notification.annotations,
        "also firing": notification.also_firing,
    })
}

/// The id of the alert, or its SHA-256 if it is too long.
fn dedup_key(alert_id: &str) -> Cow<'_, str> {
    if alert_id.chars().count() <= DEDUP_KEY_CHARS_MAX {
        return alert_id.into();
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, alert_id.as_bytes());
    to_hex(digest.as_ref()).into()
}

fn severity(severity: u8) -> &'static str {
    match severity {
        ..=1 => "critical",
        2 => "error",
        3 => "warning",
        _ => "info",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_alert_id_stays_one_incident() {
        assert_eq!(dedup_key("a1"), "a1");
        let long = "x".repeat(256);
        assert_eq!(dedup_key(&long).len(), 64);
        assert_ne!(dedup_key(&long), dedup_key(&"x".repeat(257)));
    }
}
