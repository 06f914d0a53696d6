//! Notification: what happened to an alert, as plain values.
//!
//! It is all that this crate knows of alerts. Times are nanoseconds since the Unix epoch.

use std::collections::BTreeMap;
use std::fmt;

use hist::Bracket;

/// Maximum size of a picture: it is stored in the log of deliveries.
pub(crate) const PICTURE_BYTES_MAX: usize = 64 << 10;

/// Lengths of a notification that is shortened.
const SHORT_TEXT_CHARS: usize = 2000;
const SHORT_LABEL_CHARS: usize = 200;
const SHORT_LABELS_MAX: usize = 50;

/// Identity of a notification: the same event has the same key, also after a restart and at another
/// site. Keys of one alert are ordered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NotificationKey {
    /// Identity of the alert while it exists: receivers use it to recognize the alert.
    pub alert_id: String,
    /// Number of the alert's state change.
    pub transition: u64,
    /// Number of the reminder of this state; 0 for the state change itself.
    pub reminder: u32,
}

impl fmt::Display for NotificationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.alert_id, self.transition)?;
        match self.reminder {
            0 => Ok(()),
            reminder => write!(f, "/{reminder}"),
        }
    }
}

/// State of the alert that is notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifiedState {
    /// The condition holds.
    Firing,
    /// Data are missing or the query fails; the alert keeps its severity and is not resolved.
    Unknown,
    /// Somebody acknowledged it.
    Acknowledged,
    /// The condition no longer holds.
    Resolved,
}

impl NotifiedState {
    pub(crate) const ALL: [NotifiedState; 4] = [
        NotifiedState::Firing,
        NotifiedState::Unknown,
        NotifiedState::Acknowledged,
        NotifiedState::Resolved,
    ];

    /// The state with a name.
    pub fn from_name(name: &str) -> Option<NotifiedState> {
        NotifiedState::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Word for people and for the log of deliveries.
    pub fn name(self) -> &'static str {
        match self {
            NotifiedState::Firing => "firing",
            NotifiedState::Unknown => "unknown",
            NotifiedState::Acknowledged => "acknowledged",
            NotifiedState::Resolved => "resolved",
        }
    }
}

/// Number of requests and users affected since the alert began; `None` if not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlertImpact {
    /// Requests.
    pub requests: Option<u64>,
    /// Users, by sessions or by a population label.
    pub users: Option<u64>,
}

/// Small picture of the distribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// PNG file. A picture above 64 KiB is not sent.
    pub png: Vec<u8>,
    /// Text for receivers that show no pictures.
    pub alt: String,
}

/// What happened to an alert.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// Identity.
    pub key: NotificationKey,
    /// New state.
    pub state: NotifiedState,
    /// 1 (worst) to 5.
    pub severity: u8,
    /// Name of the alert.
    pub name: String,
    /// Labels of the alert.
    pub labels: BTreeMap<String, String>,
    /// Annotations of its rule, expanded.
    pub annotations: BTreeMap<String, String>,
    /// Time at which the alert began to fire.
    pub since_ns: i64,
    /// Time of this state change.
    pub at_ns: i64,
    /// The criterion that holds, in words: "p99 of checkout latency above 250 ms for 5 min".
    pub criterion: String,
    /// Number of requests and users affected.
    pub impact: AlertImpact,
    /// Unit of value and threshold, as of a series; empty if not known.
    pub unit: String,
    /// Threshold of the criterion.
    pub threshold: Option<f64>,
    /// The value that was compared, with its bounds.
    pub value: Option<Bracket>,
    /// URL of the exact view.
    pub link: Option<String>,
    /// What to do.
    pub notes: Option<String>,
    /// Names of other alerts that fire now.
    pub also_firing: Vec<String>,
    /// Picture of the distribution.
    pub picture: Option<Picture>,
}

impl Notification {
    /// Whether the condition holds or may hold, and nobody takes care of it.
    pub(crate) fn needs_attention(&self) -> bool {
        matches!(self.state, NotifiedState::Firing | NotifiedState::Unknown)
    }

    /// Approximate size in memory.
    pub(crate) fn size_bytes(&self) -> usize {
        let maps = self.labels.iter().chain(&self.annotations);
        let maps: usize = maps.map(|(name, value)| name.len() + value.len() + 64).sum();
        let others: usize = self.also_firing.iter().map(|name| name.len() + 24).sum();
        let texts = [&self.link, &self.notes].map(|text| text.as_ref().map_or(0, String::len));
        let picture = self.picture.as_ref().map_or(0, |picture| picture.png.len());
        let plain = self.name.len() + self.criterion.len() + self.unit.len();
        size_of::<Notification>() + maps + others + texts.iter().sum::<usize>() + picture + plain
    }

    /// The picture, unless it is too large.
    pub(crate) fn sendable_picture(&self) -> Option<&Picture> {
        self.picture.as_ref().filter(|picture| picture.png.len() <= PICTURE_BYTES_MAX)
    }
}

impl Notification {
    /// Shortens a notification that is too large to store: the alert matters more than its texts.
    pub(crate) fn shorten(&mut self) {
        let cut = |text: &str, length_max: usize| text.chars().take(length_max).collect::<String>();
        self.picture = None;
        self.annotations.clear();
        self.also_firing.clear();
        for text in [&mut self.name, &mut self.criterion, &mut self.unit] {
            *text = cut(text, SHORT_TEXT_CHARS);
        }
        let labels = self.labels.iter().take(SHORT_LABELS_MAX);
        let label = |(name, value): (&String, &String)| {
            (cut(name, SHORT_LABEL_CHARS), cut(value, SHORT_LABEL_CHARS))
        };
        self.labels = model::sort::map(labels.map(label));
        // A URL that is cut leads nowhere.
        self.link = self.link.take().filter(|link| link.len() <= SHORT_TEXT_CHARS);
        let notes = cut(self.notes.as_deref().unwrap_or_default(), SHORT_TEXT_CHARS);
        let note = "(texts, labels and picture were shortened: the alert exceeded 256 KiB)";
        self.notes = Some(format!("{notes}\n{note}").trim_start().to_owned());
    }
}

/// A notification with every field, for tests.
#[cfg(test)]
pub(crate) fn example_notification() -> Notification {
    let text = |text: &str| text.to_owned();
    Notification {
        key: NotificationKey { alert_id: text("a1b2"), transition: 3, reminder: 0 },
        state: NotifiedState::Firing,
        severity: 1,
        name: text("CheckoutSlow"),
        labels: [("job", "shop"), ("zone", "eu 1")].map(|(k, v)| (text(k), text(v))).into(),
        annotations: [("summary", "Checkout is slow")].map(|(k, v)| (text(k), text(v))).into(),
        since_ns: 1_700_000_000_000_000_000,
        at_ns: 1_700_000_300_000_000_000,
        criterion: text("p99 of checkout latency above 250 ms for 5 min"),
        impact: AlertImpact { requests: Some(12_031), users: Some(811) },
        unit: text("s"),
        threshold: Some(0.25),
        value: Some(Bracket { lower: 0.3, estimate: 0.31, upper: 0.32 }),
        link: Some(text("https://topdeck.example/#/alerts/a1b2")),
        notes: Some(text("Restart the cart service.\nThen call Eve.")),
        also_firing: vec![text("CartErrors"), text("Disk 90 %")],
        picture: Some(Picture { png: b"\x89PNG\r\n\x1a\nx".to_vec(), alt: text("latency") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reminder_has_a_key_of_its_own_after_the_state_change() {
        let first = example_notification().key;
        let reminder = NotificationKey { reminder: 2, ..first.clone() };
        assert_eq!((first.to_string(), reminder.to_string()), ("a1b2/3".into(), "a1b2/3/2".into()));
        assert!(reminder > first);
        assert!(NotificationKey { transition: 4, ..first } > reminder);
    }

    #[test]
    fn a_picture_above_the_limit_is_not_sent() {
        let mut notification = example_notification();
        assert!(notification.sendable_picture().is_some());
        let png = vec![0; PICTURE_BYTES_MAX + 1];
        notification.picture = Some(Picture { png, alt: String::new() });
        assert!(notification.sendable_picture().is_none());
    }
}
