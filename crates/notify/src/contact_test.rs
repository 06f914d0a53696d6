//! Test message of a contact, marked as one.

use std::path::Path;
use std::time::Duration;

use decode::Unit;
use hist::{Histogram, Mixture};
use net::tls::ClientTls;
use render::chart::heatmap::{Heatmap, HeatmapColumn};
use render::merged_distribution::MergedDistribution;
use render::raster;

use crate::contact::DeliveryContext;
use crate::contact_settings::ConfiguredContact;
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::http_client::HttpClient;
use crate::message::render_message;
use crate::message_template::{MessageTemplates, TemplateTexts};
use crate::notification::{AlertImpact, Notification, NotificationKey, NotifiedState, Picture};

/// Timeout of each phase of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A message to one contact that says that it is a test.
#[derive(Clone, Debug)]
pub struct ContactTest {
    notification: Notification,
    texts: TemplateTexts,
}

impl ContactTest {
    /// A test at a time, with a link to the page of the node. Tests at different times are other
    /// alerts.
    pub fn new(
        contact: &ConfiguredContact,
        templates: &dyn MessageTemplates,
        link: Option<String>,
        now_ns: i64,
    ) -> ContactTest {
        let mut notification = Notification { link, ..test_notification(&contact.name, now_ns) };
        if contact.contact.shows_pictures() {
            notification.picture = sample_picture(now_ns);
        }
        let texts = TemplateTexts::new(&contact.templates, templates, &notification, false, now_ns);
        ContactTest { notification, texts }
    }

    /// Title and text of the message, before any limit of the receiver.
    pub fn text(&self) -> String {
        let mut text = render_message(&self.notification, false);
        self.texts.apply(&mut text, false);
        format!("{}\n{}", text.title, text.long)
    }

    /// Why the message has default texts in place of those of templates.
    pub fn notes(&self) -> &[String] {
        &self.texts.notes
    }

    /// Sends the message once. A receiver that tracks alerts is then told that it is resolved.
    /// Returns notes, such as texts that were cut.
    pub async fn send(
        &self,
        contact: &ConfiguredContact,
        tls: ClientTls,
        dir: &Path,
    ) -> Result<Vec<String>, DeliveryError> {
        let client = HttpClient::new(tls, TIMEOUT);
        let mut context = DeliveryContext {
            client: &client,
            dir,
            previous: None,
            may_be_duplicate: false,
            now_ns: self.notification.at_ns,
            texts: Some(&self.texts),
            // A command answers no requests.
            pictures: None,
        };
        let receipt = contact.contact.send(&self.notification, &context).await?;
        let DeliveryReceipt { message_id, cuts, .. } = receipt;
        let tracks_alerts = contact.contact.is_idempotent(&self.notification, None)
            && contact.contact.heartbeat_interval().is_none();
        if tracks_alerts {
            context.previous = message_id.as_deref();
            let mut resolved = self.notification.clone();
            (resolved.state, resolved.key.transition) = (NotifiedState::Resolved, 2);
            contact.contact.send(&resolved, &context).await?;
        }
        let cuts = cuts.iter().map(ToString::to_string);
        Ok(cuts.chain(self.texts.notes.iter().cloned()).collect())
    }
}

/// Heatmap of an hour that nobody measured: requests that become slow after three quarters of it.
fn sample_picture(now_ns: i64) -> Option<Picture> {
    const MINUTE_NS: i64 = 60 * 1_000_000_000;
    let begin_ns = now_ns.div_euclid(MINUTE_NS).saturating_sub(60).saturating_mul(MINUTE_NS);
    let column = |minute: i64| {
        let mut histogram = Histogram::default();
        for request in 0..40_u32 {
            let is_slow = minute >= 45 && request % 4 == 0;
            let base_ms = if is_slow { 400.0 } else { 80.0 };
            histogram.record(base_ms * (1.0 + f64::from(request) / 40.0));
        }
        let start = begin_ns.saturating_add(minute * MINUTE_NS);
        let values = MergedDistribution::from(Mixture::from(histogram));
        HeatmapColumn { start, end: start.saturating_add(MINUTE_NS), values, gaps: Vec::new() }
    };
    let map = Heatmap {
        title: String::new(),
        unit: Some(Unit::Milliseconds),
        columns: (0..60).map(column).collect(),
        thresholds: vec![250.0],
        warnings: Vec::new(),
    };
    let alt = "A picture to test with, of no requests".to_owned();
    Some(Picture { png: raster::heatmap::picture(&map).ok()?, alt })
}

/// A notification that says that it is a test.
fn test_notification(contact: &str, now_ns: i64) -> Notification {
    let labels = [("contact".to_owned(), contact.to_owned())].into();
    let key = NotificationKey {
        alert_id: format!("test-{contact}-{}", now_ns / 1_000_000),
        transition: 1,
        reminder: 0,
    };
    Notification {
        key,
        state: NotifiedState::Firing,
        severity: 5,
        name: format!("Test of contact {contact}"),
        labels,
        annotations: Default::default(),
        since_ns: now_ns,
        at_ns: now_ns,
        criterion: "this is a test: no alert fires".to_owned(),
        impact: AlertImpact { requests: Some(0), users: None },
        unit: String::new(),
        threshold: None,
        value: None,
        link: None,
        notes: Some("Nothing. `topdeck contacts test` sent this.".to_owned()),
        also_firing: Vec::new(),
        picture: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_of_a_test_is_one_that_is_sent() {
        for now_ns in [0, 1_767_600_000_000_000_000] {
            let mut notification = test_notification("mail", now_ns);
            notification.picture = sample_picture(now_ns);
            let picture = notification.sendable_picture().expect("a small picture");
            assert!(picture.png.starts_with(b"\x89PNG"));
        }
    }
}
