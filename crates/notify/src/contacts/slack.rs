//! Slack: incoming webhook, or the Web API with one message per alert that follows its state.
//!
//! With the API, `chat.postMessage` creates the message and `chat.update` changes it; a reminder is
//! a reply in its thread, because an update notifies nobody. An update can be repeated without
//! harm, a new message cannot. Proof of delivery: `"ok": true` of the API, which reports errors
//! with status 200, and the text `ok` of a webhook. Messages of the API have a picture: what fails
//! about it costs the picture, not the message; a retry of the message shows the one that was
//! uploaded. A webhook takes none.

mod picture_upload;
mod uploaded_pictures;

use picture_upload::with_picture;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt, without_picture};
use crate::http_client::{HttpReply, bearer_headers, join_url};
use crate::message::message_color;
use crate::notification::Notification;
use crate::setting_values::{ContactSecret, KeyProblems, url_host};
use crate::text_limit::{TextCut, TextLimit};
use uploaded_pictures::UploadedPictures;

/// Limit of Alertmanager.
const TITLE: TextLimit = TextLimit::characters("title", 1024);
/// `chat.update` rejects longer texts (`msg_too_long`).
const TEXT: TextLimit = TextLimit::characters("text", 4000);

/// Errors of the API after which a later attempt may succeed.
const TEMPORARY: [&str; 6] = [
    "fatal_error",
    "internal_error",
    "ratelimited",
    "rate_limited",
    "request_timeout",
    "service_unavailable",
];
/// Errors of `chat.update` after which a new message is posted.
const NOT_UPDATABLE: [&str; 3] = ["message_not_found", "cant_update_message", "edit_window_closed"];

/// Settings of Slack: a webhook, or token and channel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlackContact {
    /// URL of an incoming webhook.
    webhook_url: Option<ContactSecret>,
    /// Bot token of the Web API.
    token: Option<ContactSecret>,
    /// Id or name of the channel.
    channel: Option<String>,
    /// URL of the Web API.
    #[serde(default = "default_url")]
    url: String,
    #[serde(skip)]
    uploaded: UploadedPictures,
}

fn default_url() -> String {
    "https://slack.com/api".to_owned()
}

impl Contact for SlackContact {
    const KIND: &'static str = "slack";

    fn check(&self, problems: &mut KeyProblems) {
        problems.url("url", &self.url);
        match (&self.webhook_url, &self.token, &self.channel) {
            (Some(webhook), None, None) => webhook.check_url("webhook_url", problems),
            (None, Some(token), Some(channel)) => {
                token.check("token", problems);
                problems.not_empty("channel", channel);
            }
            _ => problems.add("webhook_url", "set webhook_url, or both token and channel"),
        }
    }

    fn host(&self) -> Option<String> {
        match &self.webhook_url {
            Some(webhook) => webhook.url_host(),
            None => url_host(&self.url),
        }
    }

    fn is_idempotent(&self, notification: &Notification, previous: Option<&str>) -> bool {
        self.token.is_some() && notification.key.reminder == 0 && previous.is_some()
    }

    fn shows_pictures(&self) -> bool {
        self.token.is_some()
    }

    async fn send(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        let mut cuts = Vec::new();
        let message = message(notification, context, &mut cuts);
        match (&self.webhook_url, &self.token, &self.channel) {
            (Some(webhook), ..) => {
                let url = webhook.read(context.dir)?;
                self.send_to_webhook(&url, message, context).await?;
                Ok(DeliveryReceipt::with_cuts(cuts))
            }
            (None, Some(token), Some(channel)) => {
                let token = token.read(context.dir)?;
                let api = SlackApi { contact: self, token, channel, context };
                api.send(message, notification, cuts).await
            }
            _ => Err(DeliveryError::permanent("neither webhook_url nor token is set")),
        }
    }
}

/// The Web API, for one notification.
struct SlackApi<'a> {
    contact: &'a SlackContact,
    token: String,
    channel: &'a str,
    context: &'a DeliveryContext<'a>,
}

impl SlackApi<'_> {
    /// Sends a message with the picture of its notification, or without.
    async fn send(
        &self,
        message: Value,
        notification: &Notification,
        mut cuts: Vec<TextCut>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        let SlackApi { contact, token, channel, context } = self;
        let (mut rejected, mut failed) = (None, None);
        if let Some(picture) = notification.sendable_picture() {
            match contact.uploaded_picture(token, notification, picture, context, &mut cuts).await {
                Ok(file) => {
                    let message = with_picture(&message, &file, picture);
                    let sent =
                        contact.send_to_api(token, channel, message, notification, context).await;
                    match sent {
                        Err(DeliveryError::Permanent { reason }) => rejected = Some(reason),
                        Ok(id) => {
                            contact.uploaded.remove(&notification.key);
                            return Ok(receipt(id, cuts));
                        }
                        Err(error) => return Err(error),
                    }
                }
                Err(DeliveryError::Permanent { reason }) => rejected = Some(reason),
                // A retry of the message tries the picture again.
                Err(temporary) => failed = Some(temporary.to_string()),
            }
        }
        let sent = contact.send_to_api(token, channel, message, notification, context).await;
        let sent = sent.map(|id| receipt(id, cuts).without_picture(failed));
        without_picture(sent, rejected)
    }
}

fn receipt(message_id: String, cuts: Vec<TextCut>) -> DeliveryReceipt {
    DeliveryReceipt { message_id: Some(message_id), cuts, notes: Vec::new() }
}

impl SlackContact {
    async fn send_to_webhook(
        &self,
        url: &str,
        message: Value,
        context: &DeliveryContext<'_>,
    ) -> Result<(), DeliveryError> {
        let reply = context.client.post_json(url, Default::default(), &message).await?;
        let reply = reply.accepted(context.now_ns)?;
        match reply.body.trim_ascii() {
            b"ok" => Ok(()),
            _ => Err(reply.rejected("the response of the webhook is not \"ok\"")),
        }
    }

    /// Updates the message of the alert or posts one; returns its identity.
    async fn send_to_api(
        &self,
        token: &str,
        channel: &str,
        mut message: Value,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> Result<String, DeliveryError> {
        let previous = context.previous.and_then(|id| id.split_once(' '));
        if let Some((channel, ts)) = previous {
            let mut update = message.clone();
            update["channel"] = json!(channel);
            if notification.key.reminder > 0 {
                update["thread_ts"] = json!(ts);
                update["reply_broadcast"] = json!(true);
                self.call(token, "/chat.postMessage", &update, context).await?.confirm()?;
                return Ok(format!("{channel} {ts}"));
            }
            update["ts"] = json!(ts);
            let call = self.call(token, "/chat.update", &update, context).await?;
            if !NOT_UPDATABLE.contains(&call.error()) {
                call.confirm()?;
                return Ok(format!("{channel} {ts}"));
            }
        }
        message["channel"] = json!(channel);
        let body = self.call(token, "/chat.postMessage", &message, context).await?.confirm()?;
        match (body["channel"].as_str(), body["ts"].as_str()) {
            (Some(channel), Some(ts)) => Ok(format!("{channel} {ts}")),
            _ => Err(DeliveryError::unconfirmed("Slack did not return channel and ts")),
        }
    }

    async fn call(
        &self,
        token: &str,
        method: &str,
        message: &Value,
        context: &DeliveryContext<'_>,
    ) -> Result<SlackReply, DeliveryError> {
        let headers = bearer_headers(Some(token))?;
        let url = join_url(&self.url, method);
        let reply = context.client.post_json(&url, headers, message).await?;
        SlackReply::new(reply, context)
    }
}

/// Response of the Web API.
struct SlackReply {
    reply: HttpReply,
    body: Value,
}

impl SlackReply {
    fn new(reply: HttpReply, context: &DeliveryContext<'_>) -> Result<SlackReply, DeliveryError> {
        let reply = reply.accepted(context.now_ns)?;
        let body = reply.json()?;
        Ok(SlackReply { reply, body })
    }

    fn error(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }

    fn confirm(self) -> Result<Value, DeliveryError> {
        if self.body["ok"] == true {
            return Ok(self.body);
        }
        let what = format!("Slack error {:?}", self.error());
        match TEMPORARY.contains(&self.error()) {
            true => Err(DeliveryError::temporary(what)),
            false => Err(self.reply.rejected(&what)),
        }
    }
}

fn message(
    notification: &Notification,
    context: &DeliveryContext<'_>,
    cuts: &mut Vec<TextCut>,
) -> Value {
    let text = context.text(notification);
    let title = escape(&TITLE.apply(&text.title, cuts));
    let mut attachment = json!({
        "color": format!("#{:06x}", message_color(notification)),
        "title": title,
        "text": escape(&TEXT.apply(&text.long, cuts)),
        "fallback": title,
        "footer": "topdeck",
        "ts": notification.at_ns.div_euclid(1_000_000_000),
    });
    if let Some(link) = &notification.link {
        attachment["title_link"] = json!(link);
    }
    json!({ "text": title, "attachments": [attachment] })
}

/// Escapes the control characters of Slack's text format.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_mention_a_channel() {
        assert_eq!(escape("<!channel> a&b"), "&lt;!channel&gt; a&amp;b");
    }
}
