//! Microsoft Teams: an Adaptive Card to a workflow (Power Automate) or a connector.
//!
//! Proof of delivery: status 202 without a body (workflow), or 200 and the text `1` or nothing
//! (connector). A connector reports rate limits as text with status 200. A message may have about
//! 28 kB; the text is limited to 12,000 bytes, which JSON may double.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::notification::{Notification, NotifiedState};
use crate::setting_values::{ContactSecret, KeyProblems};
use crate::text_limit::{TextCut, TextLimit};

const TITLE: TextLimit = TextLimit::bytes("title", 1000);
const TEXT: TextLimit = TextLimit::bytes("text", 12_000);

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

    async fn send(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        let mut cuts = Vec::new();
        let card = card(notification, context, &mut cuts);
        let url = self.webhook_url.read(context.dir)?;
        let reply = context.client.post_json(&url, HeaderMap::new(), &card).await?;
        let reply = reply.accepted(context.now_ns)?;
        match (reply.status.as_u16(), reply.body.trim_ascii()) {
            (202, _) | (200, b"" | b"1") => Ok(DeliveryReceipt::with_cuts(cuts)),
            (_, body) if String::from_utf8_lossy(body).contains("429") => {
                Err(DeliveryError::temporary("Teams reported its rate limit (429)"))
            }
            _ => Err(reply.unconfirmed("expected 202, or 200 and \"1\"")),
        }
    }
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
