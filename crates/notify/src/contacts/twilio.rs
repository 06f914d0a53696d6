//! SMS by Twilio, or by a service with the same form.
//!
//! Proof of delivery: status 201 and a `sid`. Limit: 1,600 characters.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::http_client::{add_header, join_url};
use crate::notification::Notification;
use crate::setting_values::{ContactSecret, KeyProblems, url_host};
use crate::text_limit::TextLimit;

const BODY: TextLimit = TextLimit::characters("body", 1600);

/// Settings of Twilio.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TwilioContact {
    /// Id of the account.
    account_sid: String,
    /// Token of the account.
    auth_token: ContactSecret,
    /// Sender: a phone number or a registered name.
    from: String,
    /// Receiver: a phone number.
    to: String,
    /// URL of the API.
    #[serde(default = "default_url")]
    url: String,
}

fn default_url() -> String {
    "https://api.twilio.com".to_owned()
}

impl Contact for TwilioContact {
    const KIND: &'static str = "twilio";

    fn check(&self, problems: &mut KeyProblems) {
        self.auth_token.check("auth_token", problems);
        problems.not_empty("account_sid", &self.account_sid);
        problems.not_empty("from", &self.from);
        problems.url("url", &self.url);
        let digits = self.to.strip_prefix('+').unwrap_or_default();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let what = format!("to is {:?}; expected a phone number such as +4930123456", self.to);
            problems.add("to", what);
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
        let link = notification.link.as_deref().unwrap_or_default();
        let text = format!("{}: {} {link}", text.title, text.short);
        let text = BODY.apply(text.trim_end(), &mut cuts);
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let (to, from) = (encode(&self.to), encode(&self.from));
        let form = format!("To={to}&From={from}&Body={}", encode(&text));
        let token = self.auth_token.read(context.dir)?;
        let credentials = STANDARD.encode(format!("{}:{token}", self.account_sid));
        let mut headers = HeaderMap::new();
        add_header(&mut headers, "authorization", &format!("Basic {credentials}"))?;
        let path = format!("/2010-04-01/Accounts/{}/Messages.json", encode(&self.account_sid));
        let url = join_url(&self.url, &path);
        let kind = "application/x-www-form-urlencoded";
        let reply = context.client.post(&url, headers, kind, form.into()).await?;
        let reply = reply.accepted(context.now_ns)?;
        if reply.status != 201 || !reply.json()?["sid"].is_string() {
            return Err(reply.unconfirmed("expected 201 and a sid"));
        }
        Ok(DeliveryReceipt::with_cuts(cuts))
    }
}
