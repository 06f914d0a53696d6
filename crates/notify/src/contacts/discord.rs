//! Discord: incoming webhook with an embed.
//!
//! `?wait=true` makes Discord respond after the message is saved. Proof of delivery: the `id` of
//! the message. Limits: title 256 characters, description 4,096. The picture is an attachment that
//! the embed shows; a message that is rejected with it is sent without.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt, without_picture};
use crate::form_body::{FormBody, PICTURE_FILE};
use crate::http_client::HttpReply;
use crate::message::message_color;
use crate::notification::{Notification, Picture};
use crate::setting_values::{ContactSecret, KeyProblems};
use crate::text_limit::{TextCut, TextLimit};

const TITLE: TextLimit = TextLimit::characters("title", 256);
const DESCRIPTION: TextLimit = TextLimit::characters("description", 4096);
/// Of the attachment, for people who do not see it.
const PICTURE_TEXT: TextLimit = TextLimit::characters("description of the picture", 1024);

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
        let mut rejected = None;
        if let Some(picture) = notification.sendable_picture() {
            let form = form(&body, picture, &mut cuts);
            let sent = context.client.post_form(&url, HeaderMap::new(), &form).await;
            match sent.and_then(|reply| confirm(reply, context)) {
                Err(DeliveryError::Permanent { reason }) => rejected = Some(reason),
                sent => return sent.map(|()| DeliveryReceipt::with_cuts(cuts)),
            }
        }
        let reply = context.client.post_json(&url, HeaderMap::new(), &body).await;
        let sent = reply.and_then(|reply| confirm(reply, context));
        without_picture(sent.map(|()| DeliveryReceipt::with_cuts(cuts)), rejected)
    }
}

/// A message whose embed shows a picture.
fn form(message: &Value, picture: &Picture, cuts: &mut Vec<TextCut>) -> FormBody {
    let mut message = message.clone();
    message["embeds"][0]["image"] = json!({ "url": format!("attachment://{PICTURE_FILE}") });
    let text = PICTURE_TEXT.apply(&picture.alt, cuts);
    message["attachments"] = json!([{ "id": 0, "filename": PICTURE_FILE, "description": text }]);
    let mut form = FormBody::default();
    form.add_json("payload_json", &message);
    form.add_picture("files[0]", &picture.png);
    form
}

fn confirm(reply: HttpReply, context: &DeliveryContext<'_>) -> Result<(), DeliveryError> {
    let reply = reply.accepted(context.now_ns)?;
    match reply.json()?["id"].is_string() {
        true => Ok(()),
        false => Err(reply.unconfirmed("the response has no id")),
    }
}
