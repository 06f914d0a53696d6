//! Telegram: `sendMessage` of the Bot API, as plain text, so that cutting it breaks no markup; or
//! `sendPhoto`, if there is a picture and the text fits below it. A message that is rejected with
//! the picture is sent without.
//!
//! Proof of delivery: `"ok": true`. Limits: 4,096 UTF-16 units, and 1,024 below a picture.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt, without_picture};
use crate::form_body::FormBody;
use crate::http_client::{HttpReply, join_url};
use crate::notification::{Notification, NotifiedState};
use crate::setting_values::{ContactSecret, KeyProblems, url_host};
use crate::text_limit::{LengthUnit, TextLimit};

const TEXT: TextLimit = TextLimit { field: "text", length_max: 4096, unit: LengthUnit::Utf16Units };
/// Longest text below a picture in UTF-16 units.
const CAPTION_UNITS_MAX: usize = 1024;

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
        let chat_id: Value = match self.chat_id.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => self.chat_id.as_str().into(),
        };
        let is_quiet =
            matches!(notification.state, NotifiedState::Resolved | NotifiedState::Acknowledged);
        let text = format!("{}\n{}", text.title, text.long);
        let token = self.token.read(context.dir)?;
        let url = |method: &str| join_url(&self.url, &format!("/bot{token}/{method}"));
        let mut rejected = None;
        let picture = notification.sendable_picture();
        let fits = text.encode_utf16().count() <= CAPTION_UNITS_MAX;
        if let Some(picture) = picture.filter(|_| fits) {
            let mut form = FormBody::default();
            form.add_text("chat_id", &self.chat_id);
            form.add_text("caption", &text);
            form.add_text("disable_notification", &is_quiet.to_string());
            if let Some(id) = self.message_thread_id {
                form.add_text("message_thread_id", &id.to_string());
            }
            form.add_picture("photo", &picture.png);
            let sent = context.client.post_form(&url("sendPhoto"), HeaderMap::new(), &form).await;
            match sent.and_then(|reply| confirm(reply, context)) {
                Err(DeliveryError::Permanent { reason }) => rejected = Some(reason),
                sent => return sent.map(|()| DeliveryReceipt::default()),
            }
        }
        let mut body = json!({
            "chat_id": chat_id,
            "text": TEXT.apply(&text, &mut cuts),
            "disable_notification": is_quiet,
        });
        if let Some(id) = self.message_thread_id {
            body["message_thread_id"] = id.into();
        }
        let reply = context.client.post_json(&url("sendMessage"), HeaderMap::new(), &body).await;
        let sent = reply.and_then(|reply| confirm(reply, context));
        without_picture(sent.map(|()| DeliveryReceipt::with_cuts(cuts)), rejected)
    }
}

fn confirm(reply: HttpReply, context: &DeliveryContext<'_>) -> Result<(), DeliveryError> {
    let reply = reply.accepted(context.now_ns)?;
    let found = reply.json()?;
    if found["ok"] == true {
        return Ok(());
    }
    let what = found["description"].as_str().unwrap_or("\"ok\" is not true");
    Err(match found["error_code"].as_u64() {
        Some(429 | 500..) => DeliveryError::temporary(what),
        _ => reply.rejected(what),
    })
}
