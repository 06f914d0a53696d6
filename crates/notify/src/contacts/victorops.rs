//! VictorOps (Splunk On-Call), REST endpoint.
//!
//! `entity_id` is the id of the alert: a repeat changes nothing. Proof of delivery:
//! `"result": "success"`. Limit: `state_message` 20,480 characters, as Alertmanager.

use http::HeaderMap;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::http_client::join_url;
use crate::notification::{Notification, NotifiedState};
use crate::setting_values::{ContactSecret, KeyProblems, url_host};
use crate::text_limit::TextLimit;

const STATE_MESSAGE: TextLimit = TextLimit::characters("state_message", 20_480);

/// Settings of VictorOps.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VictorOpsContact {
    /// Key of the REST integration.
    api_key: ContactSecret,
    /// Routing key of the team.
    routing_key: String,
    /// URL of the endpoint.
    #[serde(default = "default_url")]
    url: String,
}

fn default_url() -> String {
    "https://alert.victorops.com".to_owned()
}

impl Contact for VictorOpsContact {
    const KIND: &'static str = "victorops";

    fn check(&self, problems: &mut KeyProblems) {
        self.api_key.check("api_key", problems);
        problems.not_empty("routing_key", &self.routing_key);
        problems.url("url", &self.url);
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
        let text = context.text(notification);
        let message_type = match (notification.state, notification.severity) {
            (NotifiedState::Resolved, _) => "RECOVERY",
            (NotifiedState::Acknowledged, _) => "ACKNOWLEDGEMENT",
            (_, ..=2) => "CRITICAL",
            (_, 3) => "WARNING",
            _ => "INFO",
        };
        let body = json!({
            "message_type": message_type,
            "entity_id": notification.key.alert_id,
            "entity_display_name": text.title,
            "state_message": STATE_MESSAGE.apply(&text.long, &mut cuts),
            "state_start_time": notification.since_ns.div_euclid(1_000_000_000),
            "monitoring_tool": "topdeck",
        });
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let key = encode(&self.api_key.read(context.dir)?);
        let path = format!("/integrations/generic/20131114/alert/{key}/");
        let url = join_url(&self.url, &path) + &encode(&self.routing_key);
        let reply = context.client.post_json(&url, HeaderMap::new(), &body).await?;
        let reply = reply.accepted(context.now_ns)?;
        if reply.json()?["result"] != "success" {
            return Err(reply.unconfirmed("expected \"result\": \"success\""));
        }
        Ok(DeliveryReceipt::with_cuts(cuts))
    }
}
