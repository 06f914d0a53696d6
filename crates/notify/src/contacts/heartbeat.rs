//! Heartbeat (dead man's switch): a request at a fixed interval to a service that raises an alarm
//! when the requests stop.
//!
//! It receives no alerts, and a missed beat is not repeated. Any status 2xx is proof of delivery.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::Deserialize;

use crate::contact::{Contact, DeliveryContext};
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::notification::Notification;
use crate::setting_values::{ContactSecret, DurationText, KeyProblems};

/// Shortest interval.
const INTERVAL_MIN: Duration = Duration::from_secs(5);

/// Settings of a heartbeat.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeartbeatContact {
    /// URL of the check.
    url: ContactSecret,
    /// Interval: 1 min by default.
    #[serde(default = "default_interval")]
    interval: DurationText,
    /// `GET` (default) or `POST`.
    #[serde(default)]
    method: HeartbeatMethod,
}

/// Method of the request.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum HeartbeatMethod {
    #[default]
    #[serde(rename = "GET")]
    Get,
    #[serde(rename = "POST")]
    Post,
}

fn default_interval() -> DurationText {
    DurationText(Duration::from_secs(60))
}

impl Contact for HeartbeatContact {
    const KIND: &'static str = "heartbeat";

    fn check(&self, problems: &mut KeyProblems) {
        self.url.check_url("url", problems);
        if self.interval.0 < INTERVAL_MIN {
            let what = format!("interval is {:?}, must be at least 5s", self.interval.0);
            problems.add("interval", what);
        }
    }

    fn host(&self) -> Option<String> {
        self.url.url_host()
    }

    fn is_idempotent(&self, _notification: &Notification, _previous: Option<&str>) -> bool {
        true
    }

    fn heartbeat_interval(&self) -> Option<Duration> {
        Some(self.interval.0)
    }

    async fn send(
        &self,
        _notification: &Notification,
        context: &DeliveryContext<'_>,
    ) -> Result<DeliveryReceipt, DeliveryError> {
        let method = match self.method {
            HeartbeatMethod::Get => Method::GET,
            HeartbeatMethod::Post => Method::POST,
        };
        let url = self.url.read(context.dir)?;
        let reply = context.client.send(method, &url, HeaderMap::new(), Bytes::new()).await?;
        reply.accepted(context.now_ns)?;
        Ok(DeliveryReceipt::default())
    }
}
