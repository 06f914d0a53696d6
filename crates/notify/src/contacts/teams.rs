//! Microsoft Teams: an Adaptive Card to a workflow (Power Automate) or a connector.
//!
//! Proof of delivery: status 202 without a body (workflow), or 200 and the text `1` or nothing
//! (connector). A connector reports rate limits as text with status 200. A message may have about
//! 28 kB; the text is limited to 12,000 bytes, which JSON may double. The picture is part of the
//! card, as a data URI, if the message has at most 25,000 bytes with it: users saw larger ones
//! rejected. A message that is rejected with it is sent without.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt, without_picture};
use crate::http_client::HttpReply;
use crate::notification::{Notification, NotifiedState, Picture};
use crate::setting_values::{ContactSecret, KeyProblems};
use crate::text_limit::{TextCut, TextLimit};

const TITLE: TextLimit = TextLimit::bytes("title", 1000);
const TEXT: TextLimit = TextLimit::bytes("text", 12_000);
/// For people who do not see the picture.
const PICTURE_TEXT: TextLimit = TextLimit::characters("text of the picture", 1000);
/// Largest message with a picture.
const PICTURE_MESSAGE_BYTES_MAX: usize = 25_000;

/// Settings of Teams.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TeamsContact {
    /// URL of the workflow or connector.
    webhook_url: ContactSecret,
}

impl Contact for TeamsContact {
    const KIND: &'static str = "teams";

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
        let card = card(notification, context, &mut cuts);
        let url = self.webhook_url.read(context.dir)?;
        let mut rejected = None;
        let picture = notification.sendable_picture();
        if let Some(card) = picture.and_then(|picture| with_picture(&card, picture)) {
            let sent = context.client.post_json(&url, HeaderMap::new(), &card).await;
            match sent.and_then(|reply| confirm(reply, context)) {
                Err(DeliveryError::Permanent { reason }) => rejected = Some(reason),
                sent => return sent.map(|()| DeliveryReceipt::with_cuts(cuts)),
            }
        }
        let sent = context.client.post_json(&url, HeaderMap::new(), &card).await;
        let sent = sent.and_then(|reply| confirm(reply, context));
        without_picture(sent.map(|()| DeliveryReceipt::with_cuts(cuts)), rejected)
    }
}

fn confirm(reply: HttpReply, context: &DeliveryContext<'_>) -> Result<(), DeliveryError> {
    let reply = reply.accepted(context.now_ns)?;
    let body = String::from_utf8_lossy(reply.body.trim_ascii()).into_owned();
    match (reply.status.as_u16(), body.as_str()) {
        (202, _) | (200, "" | "1") => Ok(()),
        (_, body) if body.contains("429") => {
            Err(DeliveryError::temporary("Teams reported its rate limit (429)"))
        }
        (_, body) if body.contains("HTTP error 413") => {
            Err(reply.rejected("the message is too large (413)"))
        }
        _ => Err(reply.unconfirmed("expected 202, or 200 and \"1\"")),
    }
}

/// A message whose card shows a picture below the texts; `None` if it is too large.
fn with_picture(message: &Value, picture: &Picture) -> Option<Value> {
    let mut message = message.clone();
    let image = json!({
        "type": "Image",
        "url": format!("data:image/png;base64,{}", STANDARD.encode(&picture.png)),
        "altText": PICTURE_TEXT.apply(&picture.alt, &mut Vec::new()),
        "size": "Stretch",
    });
    message["attachments"][0]["content"]["body"].as_array_mut()?.push(image);
    (message.to_string().len() <= PICTURE_MESSAGE_BYTES_MAX).then_some(message)
}

fn card(
    notification: &Notification,
    context: &DeliveryContext<'_>,
    cuts: &mut Vec<TextCut>,
) -> Value {
    let text = context.text(notification);
    let color = match (notification.state, notification.severity) {
        (NotifiedState::Resolved, _) => "good",
        (NotifiedState::Acknowledged, _) => "accent",
        (NotifiedState::Unknown, _) => "default",
        (NotifiedState::Firing, ..=2) => "attention",
        (NotifiedState::Firing, _) => "warning",
    };
    let mut body = vec![json!({
        "type": "TextBlock",
        "text": TITLE.apply(&text.title, cuts),
        "weight": "Bolder",
        "size": "Medium",
        "wrap": true,
        "style": "heading",
        "color": color,
    })];
    // A single line feed is not a line break in a text block.
    let lines = TEXT.apply(&text.long, cuts).replace('\n', "\n\n");
    body.push(json!({ "type": "TextBlock", "text": lines, "wrap": true }));
    let mut content = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": body,
        "msteams": { "width": "full" },
    });
    if let Some(link) = &notification.link {
        content["actions"] = json!([{ "type": "Action.OpenUrl", "title": "View", "url": link }]);
    }
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": content,
        }],
    })
}
