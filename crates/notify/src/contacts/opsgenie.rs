//! Opsgenie, Alert API v2.
//!
//! `alias` is the id of the alert: a repeat changes nothing. Proof of delivery: status 202 and a
//! `requestId`. Limits: message 130 characters, description 15,000, entity 512,
//! details 8,000 in total, above which they are left out.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::http_client::{add_header, join_url};
use crate::notification::{Notification, NotifiedState};
use crate::setting_values::{ContactSecret, KeyProblems, url_host};
use crate::text_limit::{TextCut, TextLimit};

const MESSAGE: TextLimit = TextLimit::characters("message", 130);
const DESCRIPTION: TextLimit = TextLimit::characters("description", 15_000);
const ENTITY: TextLimit = TextLimit::characters("entity", 512);
const DETAILS: TextLimit = TextLimit::characters("details", 8000);

/// Settings of Opsgenie.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpsgenieContact {
    /// Key of an API integration.
    api_key: ContactSecret,
    /// Names of the teams that respond.
    #[serde(default)]
    teams: Vec<String>,
    /// URL of the API.
    #[serde(default = "default_url")]
    url: String,
}

fn default_url() -> String {
    "https://api.opsgenie.com".to_owned()
}

impl Contact for OpsgenieContact {
    const KIND: &'static str = "opsgenie";

    fn check(&self, problems: &mut KeyProblems) {
        self.api_key.check("api_key", problems);
        problems.url("url", &self.url);
        self.teams.iter().for_each(|team| problems.not_empty("teams", team));
    }

    fn host(&self) -> Option<String> {
        url_host(&self.url)
    }

    fn is_idempotent(&self, _notification: &Notification, _previous: Option<&str>) -> bool {
        true
    }

    async fn send(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        let mut cuts = Vec::new();
        let alias = utf8_percent_encode(&notification.key.alert_id, NON_ALPHANUMERIC);
        let (path, body) = match notification.state {
            NotifiedState::Firing | NotifiedState::Unknown => {
                ("/v2/alerts".to_owned(), self.alert(notification, context, &mut cuts))
            }
            state => {
                let action = match state {
                    NotifiedState::Acknowledged => "acknowledge",
                    _ => "close",
                };
                let path = format!("/v2/alerts/{alias}/{action}?identifierType=alias");
                let note = context.text(notification).short;
                (path, json!({ "source": "topdeck", "note": note }))
            }
        };
        let mut headers = http::HeaderMap::new();
        let key = self.api_key.read(context.dir)?;
        add_header(&mut headers, "authorization", &format!("GenieKey {key}"))?;
        let reply = context.client.post_json(&join_url(&self.url, &path), headers, &body).await?;
        let reply = reply.accepted(context.now_ns)?;
        if reply.status != 202 || !reply.json()?["requestId"].is_string() {
            return Err(reply.unconfirmed("expected 202 and a requestId"));
        }
        Ok(DeliveryReceipt::with_cuts(cuts))
    }
}

impl OpsgenieContact {
    fn alert(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
        cuts: &mut Vec<TextCut>,
    ) -> Value {
        let text = context.text(notification);
        let labels = &notification.labels;
        let length = labels.iter().flat_map(|(name, value)| [name, value]);
        let length: usize = length.map(|text| text.chars().count()).sum();
        let details = match length <= DETAILS.length_max {
            true => json!(labels),
            false => {
                cuts.push(TextCut { limit: DETAILS, length });
                json!({ "note": "left out: the labels exceed 8,000 characters" })
            }
        };
        let team = |name: &String| json!({ "name": name, "type": "team" });
        json!({
            "alias": notification.key.alert_id,
            "message": MESSAGE.apply(&text.title, cuts),
            "description": DESCRIPTION.apply(&text.long, cuts),
            "details": details,
            "source": "topdeck",
            "responders": self.teams.iter().map(team).collect::<Vec<_>>(),
            "priority": format!("P{}", notification.severity.clamp(1, 5)),
            "entity": ENTITY.apply(&notification.name, cuts),
        })
    }
}
