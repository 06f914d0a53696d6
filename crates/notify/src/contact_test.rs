//! Test message of a contact, marked as one.

use std::path::Path;
use std::time::Duration;

use net::tls::ClientTls;

use crate::contact::DeliveryContext;
use crate::contact_settings::ConfiguredContact;
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::http_client::HttpClient;
use crate::message::render_message;
use crate::message_template::{MessageTemplates, TemplateTexts};
use crate::notification::{AlertImpact, Notification, NotificationKey, NotifiedState};

/// Timeout of each phase of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A message to one contact that says that it is a test.
#[derive(Clone, Debug)]
pub struct ContactTest {
    notification: Notification,
    texts: TemplateTexts,
}

impl ContactTest {
    /// A test at a time. Tests at different times are different alerts.
    pub fn new(
        contact: &ConfiguredContact,
        templates: &dyn MessageTemplates,
        now_ns: i64,
    ) -> ContactTest {
        let notification = test_notification(&contact.name, now_ns);
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
            is_repeat: false,
            now_ns: self.notification.at_ns,
            texts: Some(&self.texts),
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
