//! Webhook: JSON of Alertmanager's webhook, version 4, signed with HMAC-SHA256.
//!
//! All fields of Alertmanager are there, one alert per message, and an object `topdeck` with what
//! it has no field for. The header `X-Topdeck-Signature-256` is `sha256=` and the HMAC-SHA256 of
//! the body in hexadecimal; `Idempotency-Key` is the key of the notification. Any status 2xx is
//! proof of delivery.
//!
//! Format: Alertmanager, `template/template.go` and `notify/webhook/webhook.go`.

use net::signature::to_hex;
use ring::hmac;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::fingerprint::label_fingerprint;
use crate::http_client::{add_header, bearer_headers};
use crate::notification::{Notification, NotifiedState};
use crate::setting_values::{ContactSecret, KeyProblems};

/// Settings of a webhook.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookContact {
    /// URL of the receiver.
    url: ContactSecret,
    /// Key of the signature.
    hmac_key: Option<ContactSecret>,
    /// Bearer token.
    token: Option<ContactSecret>,
    /// Whether the receiver recognizes a repeat by `Idempotency-Key`.
    #[serde(default)]
    idempotent: bool,
}

impl Contact for WebhookContact {
    const KIND: &'static str = "webhook";

    fn check(&self, problems: &mut KeyProblems) {
        self.url.check_url("url", problems);
        for (key, secret) in [("hmac_key", &self.hmac_key), ("token", &self.token)] {
            if let Some(secret) = secret {
                secret.check(key, problems);
            }
        }
    }

    fn host(&self) -> Option<String> {
        self.url.url_host()
    }

    fn is_idempotent(&self, _notification: &Notification, _previous: Option<&str>) -> bool {
        self.idempotent
    }

    async fn send(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        let read = |secret: &ContactSecret| secret.read(context.dir);
        let token = self.token.as_ref().map(read).transpose()?;
        let mut headers = bearer_headers(token.as_deref())?;
        let body = body(notification, context).to_string();
        if let Some(key) = &self.hmac_key {
            let signature = sign(read(key)?.as_bytes(), body.as_bytes());
            add_header(&mut headers, "x-topdeck-signature-256", &signature)?;
        }
        let key = percent_encoding::utf8_percent_encode(
            &notification.key.to_string(),
            percent_encoding::CONTROLS,
        )
        .to_string();
        add_header(&mut headers, "idempotency-key", &key)?;
        let url = read(&self.url)?;
        let sent = context.client.post(&url, headers, "application/json", body.into()).await?;
        sent.accepted(context.now_ns)?;
        Ok(DeliveryReceipt::default())
    }
}

fn sign(key: &[u8], body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), body);
    format!("sha256={}", to_hex(tag.as_ref()))
}

fn body(notification: &Notification, context: &DeliveryContext<'_>) -> Value {
    let status = match notification.state {
        NotifiedState::Resolved => "resolved",
        _ => "firing",
    };
    let mut labels = notification.labels.clone();
    labels.entry("alertname".to_owned()).or_insert_with(|| notification.name.clone());
    let ends_at = match notification.state {
        NotifiedState::Resolved => time_text(notification.at_ns),
        // Alertmanager's zero time.
        _ => "0001-01-01T00:00:00Z".to_owned(),
    };
    let pairs = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let fingerprint = label_fingerprint(pairs);
    let link = notification.link.as_deref().unwrap_or_default();
    let external_url = link.split("/#").next().unwrap_or_default();
    json!({
        "version": "4",
        "groupKey": format!("{{}}:{{alert_id={:?}}}", notification.key.alert_id),
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "topdeck",
        "groupLabels": { "alertname": notification.name },
        "commonLabels": labels,
        "commonAnnotations": notification.annotations,
        "routeLabels": {},
        "externalURL": external_url,
        "notification_reason": reason(notification),
        "alerts": [{
            "status": status,
            "labels": labels,
            "annotations": notification.annotations,
            "startsAt": time_text(notification.since_ns),
            "endsAt": ends_at,
            "generatorURL": link,
            "fingerprint": fingerprint,
        }],
        "topdeck": own_fields(notification, context),
    })
}

/// What Alertmanager has no field for.
fn own_fields(notification: &Notification, context: &DeliveryContext<'_>) -> Value {
    let value = notification.value.map(
        |value| json!({ "lower": value.lower, "estimate": value.estimate, "upper": value.upper }),
    );
    let text = context.text(notification);
    json!({
        "key": notification.key.to_string(),
        "mayBeDuplicate": context.may_be_duplicate,
        "state": notification.state.name(),
        "severity": notification.severity,
        "criterion": notification.criterion,
        "requests": notification.impact.requests,
        "users": notification.impact.users,
        "unit": notification.unit,
        "threshold": notification.threshold,
        "value": value,
        "notes": notification.notes,
        "alsoFiring": notification.also_firing,
        "title": text.title,
        "text": text.long,
    })
}

fn reason(notification: &Notification) -> &'static str {
    match notification.state {
        _ if notification.key.reminder > 0 => "repeat interval elapsed",
        NotifiedState::Firing => "first notification",
        NotifiedState::Resolved => "all alerts resolved",
        NotifiedState::Unknown | NotifiedState::Acknowledged => "none",
    }
}

/// RFC 3339.
fn time_text(ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(ns.into()).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2.
    #[test]
    fn the_signature_is_hmac_sha256() {
        let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(sign(b"Jefe", b"what do ya want for nothing?"), expected);
    }
}
