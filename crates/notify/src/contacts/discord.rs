//! Discord: incoming webhook with an embed.
//!
//! `?wait=true` makes Discord respond after the message is saved. Proof of delivery: the `id` of
//! the message. Limits: title 256 characters, description 4,096.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::json;

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::message::message_color;
use crate::notification::Notification;
use crate::setting_values::{ContactSecret, KeyProblems};
use crate::text_limit::TextLimit;

const TITLE: TextLimit = TextLimit::characters("title", 256);
const DESCRIPTION: TextLimit = TextLimit::characters("description", 4096);

/// Settings of Discord.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DiscordContact {
    /// URL of the webhook.
    webhook_url: ContactSecret,
}

impl Contact for DiscordContact {
    const KIND: &'static str = "discord";

    fn check(&self, problems: &mut KeyProblems) {
        self.webhook_url.check_url("webhook_url", problems);
    }

    fn host(&self) -> Option<String> {
        self.webhook_url.url_host()
    }

    async fn send(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        let mut cuts = Vec::new();
        let text = context.text(notification);
        let at = jiff::Timestamp::from_nanosecond(notification.at_ns.into()).unwrap_or_default();
        let mut embed = json!({
            "title": TITLE.apply(&text.title, &mut cuts),
            "description": DESCRIPTION.apply(&text.long, &mut cuts),
            "color": message_color(notification),
            "timestamp": at.to_string(),
        });
        if let Some(link) = &notification.link {
            embed["url"] = json!(link);
        }
        // Without `parse`, "@everyone" in a label would mention everyone.
        let body = json!({ "embeds": [embed], "allowed_mentions": { "parse": [] } });
        let url = self.webhook_url.read(context.dir)?;
        let mark = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{mark}wait=true");
        let reply = context.client.post_json(&url, HeaderMap::new(), &body).await?;
        let reply = reply.accepted(context.now_ns)?;
        if !reply.json()?["id"].is_string() {
            return Err(reply.unconfirmed("the response has no id"));
        }
        Ok(DeliveryReceipt::with_cuts(cuts))
    }
}
