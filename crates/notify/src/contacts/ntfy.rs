//! ntfy: push messages by topic.
//!
//! Proof of delivery: the JSON response has an `id`. A message above 4,096 bytes would become an
//! attachment, so it is cut. The picture is an attachment: the body of a `PUT`, whose parameters
//! are the other fields. A server may allow no attachments: then the message is sent without.

use http::{HeaderMap, Method};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt, without_picture};
use crate::form_body::PICTURE_FILE;
use crate::http_client::{HttpReply, bearer_headers, join_url};
use crate::notification::{Notification, NotifiedState, Picture};
use crate::setting_values::{ContactSecret, KeyProblems, url_host};
use crate::text_limit::TextLimit;

/// Not a limit of ntfy: phones show no more.
const TITLE: TextLimit = TextLimit::characters("title", 250);
const MESSAGE: TextLimit = TextLimit::bytes("message", 4096);
/// Longest URL with parameters: half of what servers and proxies read as one line (8 KiB).
const URL_BYTES_MAX: usize = 4096;

/// Settings of ntfy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NtfyContact {
    /// Topic.
    topic: ContactSecret,
    /// Access token.
    token: Option<ContactSecret>,
    /// URL of the server.
    #[serde(default = "default_url")]
    url: String,
}

fn default_url() -> String {
    "https://ntfy.sh".to_owned()
}

impl Contact for NtfyContact {
    const KIND: &'static str = "ntfy";

    fn check(&self, problems: &mut KeyProblems) {
        self.topic.check("topic", problems);
        problems.url("url", &self.url);
        if let Some(token) = &self.token {
            token.check("token", problems);
        }
    }

    fn host(&self) -> Option<String> {
        url_host(&self.url)
    }

    fn shows_pictures(&self) -> bool {
        true
    }

    async fn send(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        let mut cuts = Vec::new();
        let text = context.text(notification);
        let (priority, tag) = match (notification.state, notification.severity) {
            (NotifiedState::Resolved, _) => (3, "white_check_mark"),
            (NotifiedState::Acknowledged, _) => (2, "eyes"),
            (NotifiedState::Unknown, severity) => (6 - severity.clamp(1, 5), "question"),
            (NotifiedState::Firing, severity) => (6 - severity.clamp(1, 5), "rotating_light"),
        };
        let topic = self.topic.read(context.dir)?;
        let title = TITLE.apply(&text.title, &mut cuts);
        let message = MESSAGE.apply(&text.long, &mut cuts);
        let read = |secret: &ContactSecret| secret.read(context.dir);
        let token = self.token.as_ref().map(read).transpose()?;
        let headers = bearer_headers(token.as_deref())?;
        let mut rejected = None;
        if let Some(picture) = notification.sendable_picture() {
            let priority = priority.to_string();
            let mut parameters = vec![
                ("title", title.as_str()),
                ("message", message.as_str()),
                ("priority", priority.as_str()),
                ("tags", tag),
                ("filename", PICTURE_FILE),
            ];
            parameters.extend(notification.link.as_deref().map(|link| ("click", link)));
            let url = picture_url(&self.url, &topic, &parameters);
            if url.len() <= URL_BYTES_MAX {
                let sent = put_picture(&url, headers.clone(), picture, context).await;
                match sent {
                    Err(DeliveryError::Permanent { reason }) => rejected = Some(reason),
                    sent => return sent.map(|()| DeliveryReceipt::with_cuts(cuts)),
                }
            }
        }
        let mut body = json!({
            "topic": topic,
            "title": title,
            "message": message,
            "priority": priority,
            "tags": [tag],
        });
        if let Some(link) = &notification.link {
            body["click"] = json!(link);
        }
        let reply = context.client.post_json(&self.url, headers, &body).await;
        let sent = reply.and_then(|reply| confirm(reply, context));
        without_picture(sent.map(|()| DeliveryReceipt::with_cuts(cuts)), rejected)
    }
}

fn picture_url(base: &str, topic: &str, parameters: &[(&str, &str)]) -> String {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let parameters: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    join_url(base, &format!("/{}?{}", encode(topic), parameters.join("&")))
}

async fn put_picture(
    url: &str,
    headers: HeaderMap,
    picture: &Picture,
    context: &DeliveryContext<'_>,
) -> Result<(), DeliveryError> {
    let body = picture.png.clone().into();
    let reply = context.client.send(Method::PUT, url, headers, body).await?;
    confirm(reply, context)
}

fn confirm(reply: HttpReply, context: &DeliveryContext<'_>) -> Result<(), DeliveryError> {
    let reply = reply.accepted(context.now_ns)?;
    match reply.json()?["id"].is_string() {
        true => Ok(()),
        false => Err(reply.unconfirmed("the response has no id")),
    }
}
