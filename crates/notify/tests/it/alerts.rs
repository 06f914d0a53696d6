//! Notifications and contacts for tests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hist::Bracket;
use net::tls::ClientTls;
use notify::{
    AlertImpact, ConfiguredContact, DeliveryContext, HttpClient, MessageComposition, MessageFacts,
    MessageTemplates, Notification, NotificationKey, NotifiedState, Picture, read_contacts,
};
use toml::de::DeTable;

/// 2023-11-14 22:13:20 UTC.
pub(crate) const START_NS: i64 = 1_700_000_000_000_000_000;
pub(crate) const SECOND_NS: i64 = 1_000_000_000;

/// A notification with every field.
pub(crate) fn notification(alert_id: &str, transition: u64) -> Notification {
    let text = |text: &str| text.to_owned();
    Notification {
        key: NotificationKey { alert_id: text(alert_id), transition, reminder: 0 },
        state: NotifiedState::Firing,
        severity: 1,
        name: text("CheckoutSlow"),
        labels: [("job", "shop"), ("zone", "eu 1")].map(|(k, v)| (text(k), text(v))).into(),
        annotations: [("summary", "Checkout is slow")].map(|(k, v)| (text(k), text(v))).into(),
        since_ns: START_NS,
        at_ns: START_NS + 300 * SECOND_NS,
        criterion: text("p99 of checkout latency above 250 ms for 5 min"),
        impact: AlertImpact { requests: Some(12_031), users: Some(811) },
        unit: text("s"),
        threshold: Some(0.25),
        value: Some(Bracket { lower: 0.3, estimate: 0.31, upper: 0.32 }),
        link: Some(text("https://topdeck.example/#/alerts/a1b2")),
        notes: Some(text("Restart the cart service.\nThen call Eve.")),
        also_firing: vec![text("CartErrors"), text("Disk 90 %")],
        picture: Some(Picture { png: b"\x89PNG\r\n\x1a\npicture".to_vec(), alt: text("latency") }),
    }
}

/// A notification whose texts exceed every limit.
pub(crate) fn huge_notification() -> Notification {
    let mut notification = notification("a1b2", 1);
    notification.name = "näme 🔥".repeat(500);
    notification.notes = Some("nötes 🔥".repeat(5000));
    let labels = (0..20_000).map(|at| (format!("label{at}"), format!("välue {at}")));
    notification.labels.extend(labels);
    notification
}

/// The contacts of a settings file without problems.
#[track_caller]
pub(crate) fn contacts(settings: &str) -> Vec<ConfiguredContact> {
    let root = DeTable::parse(settings).unwrap().into_inner();
    let (contacts, problems) = read_contacts(&root);
    assert!(problems.is_empty(), "{problems:?}\n{settings}");
    contacts
}

pub(crate) fn client(timeout: Duration) -> HttpClient {
    HttpClient::new(ClientTls::default(), timeout)
}

pub(crate) fn context(client: &HttpClient) -> DeliveryContext<'_> {
    DeliveryContext {
        client,
        dir: Path::new("/"),
        previous: None,
        may_be_duplicate: false,
        now_ns: START_NS,
        texts: None,
        pictures: None,
    }
}

pub(crate) fn name_templates() -> Arc<dyn MessageTemplates> {
    Arc::new(NameTemplates)
}

/// Messages with these templates, without links to pictures.
pub(crate) const COMPOSITION: MessageComposition<'static> =
    MessageComposition { templates: &NameTemplates, pictures: None };

/// Templates are texts in which `NAME` is the name of the alert; `!` fails.
#[derive(Debug)]
pub(crate) struct NameTemplates;

impl MessageTemplates for NameTemplates {
    fn expand(&self, template: &str, facts: &MessageFacts<'_>) -> Result<String, String> {
        match template {
            "!" => Err("it failed".to_owned()),
            _ => Ok(template.replace("NAME", &facts.notification.name)),
        }
    }
}
