//! Stored alerts from outside: text, one fact per line, in changes that end with a checksum.
//!
//! ```text
//! topdeck received alerts 3
//! alert STATE STARTS ENDS UPDATED TIMEOUT BEGAN TRANSITION URL
//! acknowledged AT UNTIL BY NOTE     of the preceding alert
//! mirrored AT UNTIL BY NOTE URL     of the preceding alert
//! forgotten                         the alert of these labels is forgotten
//! label NAME VALUE                  of the preceding alert
//! annotation NAME VALUE             of the preceding alert
//! checksum CRC                      CRC-32C of the lines since the checksum before
//! ```
//! `docs/formats/received-alerts.md` specifies the format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use model::text_file::{checksum_line, escape_word, split_last_line, split_words, unescape_word};
use notify::AlertLabels;
use rules::AlertAcknowledgements;

use crate::received_alerts::ReceivedAlert;

const TITLE: &str = "topdeck received alerts ";
const VERSION: u32 = 3;
/// It has no line `mirrored`.
const VERSION_WITHOUT_MIRRORED: u32 = 2;
/// Its only checksum ends the file.
const VERSION_OF_ONE_CHANGE: u32 = 1;
/// Begin of the last line of a change.
const CHECKSUM: &[u8] = b"checksum ";

/// A change of one alert.
pub(crate) enum ReceivedChange {
    /// It is new, or another one.
    Stored(Arc<ReceivedAlert>),
    Forgotten(AlertLabels),
}

/// Alerts of a file.
#[derive(Debug, Default, PartialEq)]
pub struct DecodedAlerts {
    /// By their labels.
    pub alerts: BTreeMap<AlertLabels, ReceivedAlert>,
    /// Whether its last change was cut, or is damaged.
    pub is_cut: bool,
}

/// Why stored alerts cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceivedFileError {
    /// The title is missing: not a file of received alerts.
    #[error("cannot read received alerts: found no title, expected {TITLE:?}")]
    Title,
    /// A newer topdeck wrote it.
    #[error("cannot read received alerts: found version {0}, expected {VERSION} at most")]
    Version(String),
    /// The file is damaged.
    #[error("cannot read received alerts: the checksum does not match")]
    Checksum,
    /// The writer has a bug.
    #[error("cannot read received alerts: line {0} is invalid")]
    Line(usize),
}

/// File of alerts.
pub fn encode_received(alerts: &[Arc<ReceivedAlert>]) -> String {
    let mut text = format!("{TITLE}{VERSION}\n");
    alerts.iter().for_each(|alert| write_alert(&mut text, alert));
    let checksum = checksum_line(&text);
    text + &checksum
}

/// Changes, to be appended to a file.
pub(crate) fn encode_changes(changes: &[ReceivedChange]) -> String {
    let mut text = String::new();
    for change in changes {
        match change {
            ReceivedChange::Stored(alert) => write_alert(&mut text, alert),
            ReceivedChange::Forgotten(labels) => {
                text.push_str("forgotten\n");
                write_pairs(&mut text, "label", labels);
            }
        }
    }
    let checksum = checksum_line(&text);
    text + &checksum
}

fn write_alert(text: &mut String, alert: &ReceivedAlert) {
    let state = if alert.is_firing { "firing" } else { "resolved" };
    // Writing to a string does not fail.
    _ = writeln!(
        text,
        "alert {state} {} {} {} {} {} {} {}",
        alert.starts_ns,
        alert.ends_ns,
        alert.updated_ns,
        u8::from(alert.is_timeout),
        alert.began_ns,
        alert.transition,
        escape_word(&alert.generator_url)
    );
    alert.acknowledgements.write_lines(text);
    write_pairs(text, "label", &alert.labels);
    write_pairs(text, "annotation", &alert.annotations);
}

fn write_pairs(text: &mut String, keyword: &str, pairs: &BTreeMap<String, String>) {
    for (name, value) in pairs {
        _ = writeln!(text, "{keyword} {} {}", escape_word(name), escape_word(value));
    }
}

/// Alerts of a file. A kill or a power loss cuts at most its last change, which is left out.
pub fn decode_received(bytes: &[u8]) -> Result<DecodedAlerts, ReceivedFileError> {
    let line_end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let title = String::from_utf8_lossy(&bytes[..line_end]);
    let version = title.strip_prefix(TITLE).ok_or(ReceivedFileError::Title)?;
    match version.parse() {
        Ok(VERSION | VERSION_WITHOUT_MIRRORED) => decode_changes(bytes),
        Ok(VERSION_OF_ONE_CHANGE) => {
            let text = std::str::from_utf8(bytes).map_err(|_| ReceivedFileError::Checksum)?;
            let (body, last) = split_last_line(text);
            if last != checksum_line(body) {
                return Err(ReceivedFileError::Checksum);
            }
            let mut decoded = DecodedAlerts::default();
            decoded.apply(body, 2)?;
            Ok(decoded)
        }
        _ => Err(ReceivedFileError::Version(version.to_owned())),
    }
}

fn decode_changes(bytes: &[u8]) -> Result<DecodedAlerts, ReceivedFileError> {
    let mut decoded = DecodedAlerts::default();
    // The first line is the title.
    let (mut rest, mut line) = (bytes, 2);
    while let Some((body, after)) = next_change(rest) {
        let Some(body) = body else {
            // Nothing is appended after a change that was cut.
            let is_first = rest.len() == bytes.len();
            if is_first || has_change(after) {
                return Err(ReceivedFileError::Checksum);
            }
            decoded.is_cut = true;
            return Ok(decoded);
        };
        line = decoded.apply(body, line)?;
        rest = after;
    }
    if rest.len() == bytes.len() {
        return Err(ReceivedFileError::Checksum);
    }
    decoded.is_cut = !rest.is_empty();
    Ok(decoded)
}

/// Lines of the first change, `None` if its checksum does not match, and what follows it. `None` if
/// no line is a checksum.
fn next_change(bytes: &[u8]) -> Option<(Option<&str>, &[u8])> {
    let mut start = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let end = start + line.len();
        if line.starts_with(CHECKSUM) {
            let body = std::str::from_utf8(&bytes[..start]).ok();
            let body = body.filter(|body| checksum_line(body).as_bytes() == line);
            return Some((body, &bytes[end..]));
        }
        start = end;
    }
    None
}

fn has_change(mut bytes: &[u8]) -> bool {
    while let Some((body, after)) = next_change(bytes) {
        if body.is_some() {
            return true;
        }
        bytes = after;
    }
    false
}

/// Lines of one alert.
struct AlertLines {
    alert: ReceivedAlert,
    is_forgotten: bool,
}

impl DecodedAlerts {
    /// Applies the lines of a change; the first of a file has the title. Returns the number of the
    /// next change's first line.
    fn apply(&mut self, body: &str, first_line: usize) -> Result<usize, ReceivedFileError> {
        let mut changed: Vec<AlertLines> = Vec::new();
        let mut number = first_line;
        for line in body.lines().filter(|line| !line.starts_with(TITLE)) {
            read_line(&mut changed, line).ok_or(ReceivedFileError::Line(number))?;
            number += 1;
        }
        for AlertLines { alert, is_forgotten } in changed {
            match is_forgotten {
                true => drop(self.alerts.remove(&alert.labels)),
                false => drop(self.alerts.insert(alert.labels.clone(), alert)),
            }
        }
        Ok(number + 1)
    }
}

fn read_line(lines: &mut Vec<AlertLines>, line: &str) -> Option<()> {
    let (keyword, rest) = line.split_once(' ').unwrap_or((line, ""));
    let is_stored = |lines: &&mut AlertLines| !lines.is_forgotten;
    match keyword {
        "alert" => lines.push(AlertLines { alert: parse_alert(rest)?, is_forgotten: false }),
        "forgotten" if rest.is_empty() => {
            lines.push(AlertLines { alert: ReceivedAlert::default(), is_forgotten: true });
        }
        "acknowledged" | "mirrored" => {
            let alert = &mut lines.last_mut().filter(is_stored)?.alert;
            alert.acknowledgements.read_line(keyword, rest)?;
        }
        "label" => insert(&mut lines.last_mut()?.alert.labels, rest)?,
        "annotation" => insert(&mut lines.last_mut().filter(is_stored)?.alert.annotations, rest)?,
        _ => return None,
    }
    Some(())
}

fn parse_alert(rest: &str) -> Option<ReceivedAlert> {
    let [state, starts, ends, updated, timeout, began, transition, url] = split_words(rest)?;
    let flag = |word: &str, names: [&str; 2]| match word {
        word if word == names[0] => Some(false),
        word if word == names[1] => Some(true),
        _ => None,
    };
    Some(ReceivedAlert {
        labels: AlertLabels::new(),
        annotations: BTreeMap::new(),
        starts_ns: starts.parse().ok()?,
        ends_ns: ends.parse().ok()?,
        updated_ns: updated.parse().ok()?,
        is_timeout: flag(timeout, ["0", "1"])?,
        generator_url: unescape_word(url)?,
        began_ns: began.parse().ok()?,
        is_firing: flag(state, ["resolved", "firing"])?,
        transition: transition.parse().ok()?,
        acknowledgements: AlertAcknowledgements::default(),
    })
}

fn insert(pairs: &mut BTreeMap<String, String>, rest: &str) -> Option<()> {
    let [name, value] = split_words(rest)?;
    match pairs.insert(unescape_word(name)?, unescape_word(value)?) {
        None => Some(()),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use rules::{AcknowledgementChange, AlertAcknowledgement};

    use super::*;

    const PAGE: &str = include_str!("../../../docs/formats/received-alerts.md");

    fn example() -> ReceivedAlert {
        let pairs = |list: &[(&str, &str)]| {
            list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        ReceivedAlert {
            labels: pairs(&[("alertname", "Down"), ("instance", "db 1")]),
            annotations: pairs(&[("summary", "db 1 is down")]),
            starts_ns: 1_700_000_000_000_000_000,
            ends_ns: 1_700_000_300_000_000_000,
            updated_ns: 1_700_000_060_000_000_000,
            is_timeout: true,
            generator_url: "http://prometheus:9090/graph".to_owned(),
            began_ns: 1_700_000_001_000_000_000,
            is_firing: true,
            transition: 2,
            acknowledgements: acknowledgements(&[None, Some("https://north:7717")]),
        }
    }

    /// Those that were made at sites.
    fn acknowledgements(origins: &[Option<&str>]) -> AlertAcknowledgements {
        let mut made = AlertAcknowledgements::default();
        for origin in origins {
            made.apply(&AcknowledgementChange::Set(AlertAcknowledgement {
                at_ns: 1_700_000_030_000_000_000,
                until_ns: 1_700_003_630_000_000_000,
                by: "ann".to_owned(),
                note: "I am on it".to_owned(),
                origin: origin.map(str::to_owned),
            }));
        }
        made
    }

    fn other() -> ReceivedAlert {
        ReceivedAlert {
            labels: [("alertname".to_owned(), "Up".to_owned())].into(),
            annotations: BTreeMap::new(),
            acknowledgements: AlertAcknowledgements::default(),
            is_firing: false,
            generator_url: String::new(),
            ..example()
        }
    }

    fn resolved() -> ReceivedAlert {
        let acknowledgements = AlertAcknowledgements::default();
        ReceivedAlert { is_firing: false, acknowledgements, ..example() }
    }

    fn stored(alert: ReceivedAlert) -> ReceivedChange {
        ReceivedChange::Stored(Arc::new(alert))
    }

    /// Both alerts, then a change of one and the end of the other.
    fn text() -> String {
        let resolved = resolved();
        let forgotten = ReceivedChange::Forgotten(other().labels);
        encode_received(&[Arc::new(example()), Arc::new(other())])
            + &encode_changes(&[stored(resolved)])
            + &encode_changes(&[forgotten])
    }

    /// Labels and states of the alerts of a file.
    fn states(bytes: &[u8]) -> Result<Vec<(String, bool)>, ReceivedFileError> {
        let alerts = decode_received(bytes)?.alerts.into_values();
        Ok(alerts.map(|alert| (alert.labels["alertname"].clone(), alert.is_firing)).collect())
    }

    #[test]
    fn the_page_shows_alerts_as_written() {
        let forgotten = ReceivedChange::Forgotten(other().labels);
        let text = encode_received(&[Arc::new(example())]) + &encode_changes(&[forgotten]);
        let told = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
        assert_eq!(told, Some(text.as_str()));
        for word in text.lines().map(|line| line.split(' ').next().unwrap()) {
            assert!(PAGE.contains(&format!("| `{word}")), "{word}");
        }
    }

    #[test]
    fn alerts_round_trip_through_changes() {
        let decoded = decode_received(text().as_bytes()).unwrap();
        assert!(!decoded.is_cut);
        let resolved = resolved();
        assert_eq!(decoded.alerts.into_values().collect::<Vec<_>>(), [resolved]);
        let decoded = decode_received(encode_received(&[Arc::new(example())]).as_bytes()).unwrap();
        assert_eq!(decoded.alerts.into_values().collect::<Vec<_>>(), [example()]);
        assert_eq!(decode_received(encode_received(&[]).as_bytes()), Ok(DecodedAlerts::default()));
    }

    #[test]
    fn earlier_versions_are_read() {
        const STORED: &str = "topdeck received alerts 1
alert firing 1700000000000000000 1700000300000000000 1700000060000000000 1 1700000001000000000 2 \
http://prometheus:9090/graph
acknowledged 1700000030000000000 1700003630000000000 ann I%20am%20on%20it
label alertname Down
label instance db%201
annotation summary db%201%20is%20down
checksum 188665dd
";
        let expected = ReceivedAlert { acknowledgements: acknowledgements(&[None]), ..example() };
        let decoded = decode_received(STORED.as_bytes()).unwrap();
        assert_eq!(decoded.alerts.values().collect::<Vec<_>>(), [&expected]);
        // Version 2 has a checksum for each change.
        let (body, _) = STORED.split_once("checksum ").unwrap();
        let body = body.replace("alerts 1\n", "alerts 2\n");
        let decoded = decode_received((body.clone() + &checksum_line(&body)).as_bytes()).unwrap();
        assert_eq!(decoded.alerts.into_values().collect::<Vec<_>>(), [expected]);
        for end in 0..STORED.len() {
            assert!(decode_received(&STORED.as_bytes()[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_cut_loses_the_last_change_only() {
        let text = text();
        let whole = encode_received(&[Arc::new(example()), Arc::new(other())]).len();
        let last = text.len() - encode_changes(&[ReceivedChange::Forgotten(other().labels)]).len();
        let (down, up) = ("Down".to_owned(), "Up".to_owned());
        for end in 0..text.len() {
            let expected = match end {
                end if end < whole => None,
                end if end < last => Some(vec![(down.clone(), true), (up.clone(), false)]),
                _ => Some(vec![(down.clone(), false), (up.clone(), false)]),
            };
            let found = states(&text.as_bytes()[..end]).ok();
            assert_eq!(found, expected, "cut at {end}");
            // A power loss may leave other bytes behind the cut.
            let zeros = [&text.as_bytes()[..end], &vec![0; text.len() - end]].concat();
            assert_eq!(states(&zeros).ok(), expected, "zeros from {end}");
            if let Ok(decoded) = decode_received(&text.as_bytes()[..end]) {
                assert_eq!(decoded.is_cut, end != whole && end != last, "cut at {end}");
            }
        }
    }

    #[test]
    fn any_flipped_bit_is_detected() {
        let text = text();
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let is_detected = decode_received(&bytes).is_ok_and(|decoded| decoded.is_cut);
            assert!(is_detected || decode_received(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let found =
            decode_received(b"topdeck received alerts 4\nwhatever\n").unwrap_err().to_string();
        assert_eq!(found, "cannot read received alerts: found version 4, expected 3 at most");
    }

    #[test]
    fn arbitrary_lines_are_no_panic() {
        for body in [
            "forgotten x",
            "label a b",
            "acknowledged 1 2 a b",
            "mirrored 1 2 a b c",
            "forgotten\nannotation a b",
        ] {
            let first = encode_received(&[Arc::new(example())]);
            let body = format!("{body}\n");
            let text = first + &body + &checksum_line(&body);
            assert!(matches!(decode_received(text.as_bytes()), Err(ReceivedFileError::Line(_))));
        }
        for bytes in [&b""[..], b"\n", b"topdeck", b"checksum \n", &[0xff; 40]] {
            assert_eq!(decode_received(bytes), Err(ReceivedFileError::Title));
        }
    }
}
