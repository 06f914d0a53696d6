//! ntfy: push messages by topic.
//!
//! Proof of delivery: the JSON response has an `id`. A message above 4,096 bytes would become an
//! attachment, so it is cut.

use serde::Deserialize;
use serde_json::json;

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::http_client::bearer_headers;
use crate::notification::{Notification, NotifiedState};
use crate::setting_values::{ContactSecret, KeyProblems, url_host};
use crate::text_limit::TextLimit;

/// Not a limit of ntfy: phones show no more.
const TITLE: TextLimit = TextLimit::characters("title", 250);
const MESSAGE: TextLimit = TextLimit::bytes("message", 4096);

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
        let mut body = json!({
            "topic": self.topic.read(context.dir)?,
            "title": TITLE.apply(&text.title, &mut cuts),
            "message": MESSAGE.apply(&text.long, &mut cuts),
            "priority": priority,
            "tags": [tag],
        });
        if let Some(link) = &notification.link {
            body["click"] = json!(link);
        }
        let read = |secret: &ContactSecret| secret.read(context.dir);
        let token = self.token.as_ref().map(read).transpose()?;
        let headers = bearer_headers(token.as_deref())?;
        let reply = context.client.post_json(&self.url, headers, &body).await?;
        let reply = reply.accepted(context.now_ns)?;
        if !reply.json()?["id"].is_string() {
            return Err(reply.unconfirmed("the response has no id"));
        }
        Ok(DeliveryReceipt::with_cuts(cuts))
    }
}
