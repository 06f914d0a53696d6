//! A change of state of an alert, as a line of the history: `docs/formats/alert-history.md`.
//!
//! ```text
//! NUMBER TIME EVENT SOURCE ALERT SEVERITY VALUE SINCE UNTIL NAME BY NOTE [LABEL VALUE]… CRC
//! ```

use std::fmt::Write as _;

use model::text_file::{checksum_line, escape_word, unescape_word};
use notify::AlertLabels;

/// Longest note in a line, in characters.
const NOTE_CHARS_MAX: usize = 1000;

/// What happened to an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryEvent {
    /// The condition holds, but not yet for long enough.
    Pending,
    /// A pending alert ended.
    Ended,
    Firing,
    /// A firing alert has another severity.
    Severity,
    Resolved,
    /// There is no data: the alert holds its state.
    Unknown,
    /// There is data again.
    Known,
    Acknowledged,
    /// The acknowledgement expired, or was taken back.
    Unacknowledged,
}

impl HistoryEvent {
    /// All events.
    pub(crate) const ALL: [HistoryEvent; 9] = [
        HistoryEvent::Pending,
        HistoryEvent::Ended,
        HistoryEvent::Firing,
        HistoryEvent::Severity,
        HistoryEvent::Resolved,
        HistoryEvent::Unknown,
        HistoryEvent::Known,
        HistoryEvent::Acknowledged,
        HistoryEvent::Unacknowledged,
    ];

    /// Name in files and responses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            HistoryEvent::Pending => "pending",
            HistoryEvent::Ended => "ended",
            HistoryEvent::Firing => "firing",
            HistoryEvent::Severity => "severity",
            HistoryEvent::Resolved => "resolved",
            HistoryEvent::Unknown => "unknown",
            HistoryEvent::Known => "known",
            HistoryEvent::Acknowledged => "acknowledged",
            HistoryEvent::Unacknowledged => "unacknowledged",
        }
    }

    /// Event with this name.
    pub(crate) fn parse(name: &str) -> Option<HistoryEvent> {
        HistoryEvent::ALL.into_iter().find(|event| event.name() == name)
    }
}

/// A change of state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HistoryEntry {
    /// Grows by 1 with each change.
    pub(crate) number: u64,
    pub(crate) time_ns: i64,
    pub(crate) event: HistoryEvent,
    /// Whether the alert is of another program.
    pub(crate) is_received: bool,
    /// Identity of the alert while it exists, as in notifications.
    pub(crate) alert_id: String,
    /// 1 (worst) to 5.
    pub(crate) severity: u8,
    /// Value of the rule, if it is a number.
    pub(crate) value: Option<f64>,
    /// When the alert fired, or before that, when its condition began to hold.
    pub(crate) since_ns: i64,
    /// Expiry of an acknowledgement.
    pub(crate) until_ns: Option<i64>,
    pub(crate) name: String,
    /// Who acknowledged.
    pub(crate) by: String,
    pub(crate) note: String,
    pub(crate) labels: AlertLabels,
}

impl HistoryEntry {
    /// The line, with its line feed.
    pub(crate) fn encode(&self) -> String {
        let source = if self.is_received { "received" } else { "rule" };
        let value = self.value.map_or("-".to_owned(), |it| format!("{:016x}", it.to_bits()));
        let until = self.until_ns.map_or("-".to_owned(), |it| it.to_string());
        let note: String = self.note.chars().take(NOTE_CHARS_MAX).collect();
        let mut line = format!(
            "{} {} {} {source} {} {} {value} {} {until} {} {} {}",
            self.number,
            self.time_ns,
            self.event.name(),
            self.alert_id,
            self.severity,
            self.since_ns,
            escape_word(&self.name),
            escape_word(&self.by),
            escape_word(&note),
        );
        for (name, value) in &self.labels {
            // Writing to a string does not fail.
            _ = write!(line, " {} {}", escape_word(name), escape_word(value));
        }
        let checksum = checksum(&line);
        line + " " + &checksum + "\n"
    }

    /// Entry of a line without its line feed; `None` if it is damaged.
    pub(crate) fn decode(line: &str) -> Option<HistoryEntry> {
        let (body, found) = line.rsplit_once(' ')?;
        if checksum(body) != found {
            return None;
        }
        let mut words = body.split(' ');
        let mut word = || words.next();
        let optional = |word: &str| match word {
            "-" => Some(None),
            number => number.parse().ok().map(Some),
        };
        let mut entry = HistoryEntry {
            number: word()?.parse().ok()?,
            time_ns: word()?.parse().ok()?,
            event: HistoryEvent::parse(word()?)?,
            is_received: match word()? {
                "received" => true,
                "rule" => false,
                _ => return None,
            },
            alert_id: word()?.to_owned(),
            severity: word()?.parse().ok()?,
            value: match word()? {
                "-" => None,
                bits => Some(f64::from_bits(u64::from_str_radix(bits, 16).ok()?)),
            },
            since_ns: word()?.parse().ok()?,
            until_ns: optional(word()?)?,
            name: unescape_word(word()?)?,
            by: unescape_word(word()?)?,
            note: unescape_word(word()?)?,
            labels: AlertLabels::new(),
        };
        while let Some(name) = word() {
            entry.labels.insert(unescape_word(name)?, unescape_word(word()?)?);
        }
        Some(entry)
    }
}

/// CRC-32C, 8 hexadecimal digits.
fn checksum(text: &str) -> String {
    let line = checksum_line(text);
    line.trim_end().rsplit(' ').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/formats/alert-history.md");

    /// A change of an alert.
    pub(crate) fn entry(event: HistoryEvent) -> HistoryEntry {
        let pairs = [("alertname", "DiskFull"), ("host", "db 1")];
        HistoryEntry {
            number: 17,
            time_ns: 1_700_000_060_000_000_000,
            event,
            is_received: false,
            alert_id: "0123456789abcdef0123456789abcdef".to_owned(),
            severity: 2,
            value: Some(0.75),
            since_ns: 1_700_000_000_000_000_000,
            until_ns: None,
            name: "DiskFull".to_owned(),
            by: String::new(),
            note: String::new(),
            labels: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        }
    }

    #[test]
    fn the_page_shows_lines_as_written() {
        let acknowledged = HistoryEntry {
            number: 18,
            time_ns: 1_700_000_120_000_000_000,
            until_ns: Some(1_700_003_720_000_000_000),
            by: "ann".to_owned(),
            note: "on it".to_owned(),
            value: None,
            is_received: true,
            ..entry(HistoryEvent::Acknowledged)
        };
        let text = entry(HistoryEvent::Firing).encode() + &acknowledged.encode();
        let expected = format!("```text\ntopdeck alert history 1\n{text}```");
        assert!(PAGE.contains(&expected), "{expected}");
        for event in HistoryEvent::ALL {
            assert!(PAGE.contains(&format!("`{}`", event.name())), "{}", event.name());
        }
    }

    #[test]
    fn lines_are_read_as_written_and_damage_is_found() {
        for event in HistoryEvent::ALL {
            let entry = entry(event);
            let line = entry.encode();
            let line = line.trim_end();
            assert_eq!(HistoryEntry::decode(line).as_ref(), Some(&entry));
            for end in 0..line.len() {
                assert_eq!(HistoryEntry::decode(&line[..end]), None, "{end}");
            }
            let damaged = line.replace("DiskFull", "DiskFulk");
            assert_eq!(HistoryEntry::decode(&damaged), None);
        }
    }
}
