//! Opsgenie, Alert API v2.
//!
//! `alias` is the id of the alert: a repeat changes nothing. Proof of delivery: status 202 and a
//! `requestId`. Limits: message 130 characters, description 15,000, entity 512,
//! details 8,000 in total, above which they are left out.
//!
//! The picture is an attachment of the alert, after that was created, which Opsgenie does later. A
//! failure costs the picture only. A reminder has none: the alert has it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::form_body::FormBody;
use crate::http_client::{add_header, join_url};
use crate::notification::{Notification, NotifiedState, Picture};
use crate::setting_values::{ContactSecret, KeyProblems, url_host};
use crate::text_limit::{TextCut, TextLimit};

const ALERTS_PATH: &str = "/v2/alerts";
const MESSAGE: TextLimit = TextLimit::characters("message", 130);
const DESCRIPTION: TextLimit = TextLimit::characters("description", 15_000);
const ENTITY: TextLimit = TextLimit::characters("entity", 512);
const DETAILS: TextLimit = TextLimit::characters("details", 8000);
/// Timeout of the picture: Opsgenie has the alert already, and other notifications wait.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);
/// Waits for an alert to be created: 1.75 s in all.
const CREATION_WAITS: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1)];

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

    fn shows_pictures(&self) -> bool {
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
                (ALERTS_PATH.to_owned(), self.alert(notification, context, &mut cuts))
            }
            state => {
                let action = match state {
                    NotifiedState::Acknowledged => "acknowledge",
                    _ => "close",
                };
                let path = format!("{ALERTS_PATH}/{alias}/{action}?identifierType=alias");
                let note = context.text(notification).short;
                (path, json!({ "source": "topdeck", "note": note }))
            }
        };
        let mut headers = HeaderMap::new();
        let key = self.api_key.read(context.dir)?;
        add_header(&mut headers, "authorization", &format!("GenieKey {key}"))?;
        let url = join_url(&self.url, &path);
        let reply = context.client.post_json(&url, headers.clone(), &body).await?;
        let reply = reply.accepted(context.now_ns)?;
        let accepted = reply.json()?;
        let Some(request_id) = accepted["requestId"].as_str().filter(|_| reply.status == 202)
        else {
            return Err(reply.unconfirmed("expected 202 and a requestId"));
        };
        let is_first = path == ALERTS_PATH && notification.key.reminder == 0;
        let attached = match notification.sendable_picture().filter(|_| is_first) {
            Some(picture) => {
                let attach = self.attach(request_id, picture, &headers, context);
                tokio::time::timeout(ATTACH_TIMEOUT, attach).await.unwrap_or_else(|_| {
                    let seconds = ATTACH_TIMEOUT.as_secs();
                    Err(DeliveryError::temporary(format!("not attached within {seconds} s")))
                })
            }
            None => Ok(()),
        };
        let failure = attached.err().map(|error| error.to_string());
        Ok(DeliveryReceipt::with_cuts(cuts).without_picture(failure))
    }
}

impl OpsgenieContact {
    /// Attaches the picture to the alert that a request creates.
    async fn attach(
        &self,
        request_id: &str,
        picture: &Picture,
        headers: &HeaderMap,
        context: &DeliveryContext<'_>,
    ) -> Result<(), DeliveryError> {
        let alert_id = self.created_alert(request_id, headers, context).await?;
        let alert_id = utf8_percent_encode(&alert_id, NON_ALPHANUMERIC);
        let url = join_url(&self.url, &format!("{ALERTS_PATH}/{alert_id}/attachments"));
        let mut form = FormBody::default();
        form.add_picture("file", &picture.png);
        let reply = context.client.post_form(&url, headers.clone(), &form).await?;
        reply.accepted(context.now_ns).map(drop)
    }

    /// Waits until a request created its alert; returns the id of that.
    async fn created_alert(
        &self,
        request_id: &str,
        headers: &HeaderMap,
        context: &DeliveryContext<'_>,
    ) -> Result<String, DeliveryError> {
        let request_id = utf8_percent_encode(request_id, NON_ALPHANUMERIC);
        let url = join_url(&self.url, &format!("{ALERTS_PATH}/requests/{request_id}"));
        let mut result = None;
        for wait in CREATION_WAITS.into_iter().map(Some).chain([None]) {
            let client = context.client;
            let reply = client.send(Method::GET, &url, headers.clone(), Bytes::new()).await?;
            // Opsgenie responds 404 until the request is processed.
            if reply.status != 404 {
                let reply = reply.accepted(context.now_ns)?;
                let data = reply.json()?.get("data").cloned().unwrap_or_default();
                if let Some(id) = data["alertId"].as_str().filter(|id| !id.is_empty()) {
                    return Ok(id.to_owned());
                }
                result = data["status"].as_str().map(str::to_owned);
            }
            if let Some(wait) = wait {
                tokio::time::sleep(wait).await;
            }
        }
        let result = result.unwrap_or_else(|| "it is not processed".to_owned());
        Err(DeliveryError::temporary(format!("Opsgenie has not created the alert: {result}")))
    }

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
