//! Telegram: `sendMessage` of the Bot API, as plain text, so that cutting it breaks no markup.
//!
//! Proof of delivery: `"ok": true`. Limit: 4,096 UTF-16 units.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::http_client::join_url;
use crate::notification::{Notification, NotifiedState};
use crate::setting_values::{ContactSecret, KeyProblems, url_host};
use crate::text_limit::{LengthUnit, TextLimit};

const TEXT: TextLimit = TextLimit { field: "text", length_max: 4096, unit: LengthUnit::Utf16Units };

/// Settings of Telegram.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TelegramContact {
    /// Token of the bot.
    token: ContactSecret,
    /// Chat: a number, or `@channel`.
    chat_id: String,
    /// Topic of a forum.
    message_thread_id: Option<i64>,
    /// URL of the API.
    #[serde(default = "default_url")]
    url: String,
}

fn default_url() -> String {
    "https://api.telegram.org".to_owned()
}

impl Contact for TelegramContact {
    const KIND: &'static str = "telegram";

    fn check(&self, problems: &mut KeyProblems) {
        self.token.check("token", problems);
        problems.url("url", &self.url);
        if self.chat_id.parse::<i64>().is_err() && !self.chat_id.starts_with('@') {
            problems.add("chat_id", "chat_id is neither a number in quotes nor @channel");
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
        let chat_id: Value = match self.chat_id.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => self.chat_id.as_str().into(),
        };
        let is_quiet =
            matches!(notification.state, NotifiedState::Resolved | NotifiedState::Acknowledged);
        let mut body = json!({
            "chat_id": chat_id,
            "text": TEXT.apply(&format!("{}\n{}", text.title, text.long), &mut cuts),
            "disable_notification": is_quiet,
        });
        if let Some(id) = self.message_thread_id {
            body["message_thread_id"] = id.into();
        }
        let token = self.token.read(context.dir)?;
        let url = join_url(&self.url, &format!("/bot{token}/sendMessage"));
        let reply = context.client.post_json(&url, HeaderMap::new(), &body).await?;
        let reply = reply.accepted(context.now_ns)?;
        let found = reply.json()?;
        if found["ok"] != true {
            let what = found["description"].as_str().unwrap_or("\"ok\" is not true");
            return Err(match found["error_code"].as_u64() {
                Some(429 | 500..) => DeliveryError::temporary(what),
                _ => reply.rejected(what),
            });
        }
        Ok(DeliveryReceipt::with_cuts(cuts))
    }
}
