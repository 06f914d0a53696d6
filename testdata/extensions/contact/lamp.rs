//! Example of a contact: a lamp that shows the severity of an alert. The file has a setting with
//! its check, an error, and a test; deliveries and failures of each contact are metrics of the
//! framework (`topdeck_notifications_total`).

use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::notification::{Notification, NotifiedState};
use crate::setting_values::{ContactSecret, KeyProblems};

/// `kind = "lamp"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LampContact {
    /// URL of the lamp.
    url: ContactSecret,
    /// Mildest severity that it shows, 1 to 5.
    #[serde(default = "default_severity")]
    mildest_severity: u8,
}

#[derive(Debug, thiserror::Error)]
enum LampError {
    #[error("cannot light the lamp: its bulb is broken; replace it")]
    BrokenBulb,
}

fn default_severity() -> u8 {
    3
}

impl LampContact {
    fn colour(&self, notification: &Notification) -> &'static str {
        match (notification.state, notification.severity) {
            (NotifiedState::Resolved, _) => "off",
            (_, severity) if severity > self.mildest_severity => "off",
            (_, 1 | 2) => "red",
            _ => "amber",
        }
    }
}

fn check_bulb(response: &Value) -> Result<(), LampError> {
    if response["bulb"] == "broken" { Err(LampError::BrokenBulb) } else { Ok(()) }
}

impl Contact for LampContact {
    const KIND: &'static str = "lamp";

    fn check(&self, problems: &mut KeyProblems) {
        self.url.check_url("url", problems);
        if !(1..=5).contains(&self.mildest_severity) {
            let what = format!("mildest_severity is {}, must be 1 to 5", self.mildest_severity);
            problems.add("mildest_severity", what);
        }
    }

    fn host(&self) -> Option<String> {
        self.url.url_host()
    }

    async fn send(
        &self,
        notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        let url = self.url.read(context.dir)?;
        let body = json!({"colour": self.colour(notification)});
        let reply = context.client.post_json(&url, HeaderMap::new(), &body).await?;
        let reply = reply.accepted(context.now_ns)?;
        let response = serde_json::from_slice(&reply.body).unwrap_or(Value::Null);
        check_bulb(&response).map_err(|error| DeliveryError::permanent(error.to_string()))?;
        Ok(DeliveryReceipt::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_bulb_is_an_error() {
        let error = check_bulb(&json!({"bulb": "broken"})).unwrap_err().to_string();
        assert_eq!(error, "cannot light the lamp: its bulb is broken; replace it");
        assert!(check_bulb(&Value::Null).is_ok());
    }

    #[test]
    fn its_settings_are_checked() {
        let text = "url = \"ftp://a\"\nmildest_severity = 9\n";
        let lamp: LampContact = toml::from_str(text).unwrap();
        let mut problems = KeyProblems::default();
        lamp.check(&mut problems);
        let problems: Vec<String> = problems.into_problems().map(|(_, what)| what).collect();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert_eq!(problems[1], "mildest_severity is 9, must be 1 to 5");
    }
}
