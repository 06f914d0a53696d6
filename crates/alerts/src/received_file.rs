//! Stored alerts from outside: text, one fact per line, for a file that is replaced atomically.
//!
//! ```text
//! topdeck received alerts 1
//! alert STATE STARTS ENDS UPDATED TIMEOUT BEGAN TRANSITION URL
//! acknowledged AT UNTIL BY NOTE     of the preceding alert
//! label NAME VALUE                  of the preceding alert
//! annotation NAME VALUE             of the preceding alert
//! checksum CRC                      CRC-32C of all preceding lines, 8 hexadecimal digits
//! ```
//! `docs/formats/received-alerts.md` specifies the format.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::text_file::{checksum_line, escape_word, split_last_line, split_words, unescape_word};
use notify::AlertLabels;
use rules::AlertAcknowledgement;

use crate::received_alerts::ReceivedAlert;

const TITLE: &str = "topdeck received alerts ";
const VERSION: u32 = 1;

/// Why stored alerts cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ReceivedFileError {
    /// The title is missing: not a file of received alerts.
    #[error("cannot read received alerts: found no title, expected {TITLE:?}")]
    Title,
    /// A newer topdeck wrote it.
    #[error("cannot read received alerts: found version {0}, expected {VERSION}")]
    Version(String),
    /// The file is damaged.
    #[error("cannot read received alerts: the checksum does not match")]
    Checksum,
    /// The writer has a bug.
    #[error("cannot read received alerts: line {0} is invalid")]
    Line(usize),
}

/// Text of alerts.
pub(crate) fn encode_received<'a>(alerts: impl Iterator<Item = &'a ReceivedAlert>) -> String {
    let mut text = format!("{TITLE}{VERSION}\n");
    for alert in alerts {
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
        if let Some(AlertAcknowledgement { at_ns, until_ns, by, note }) = &alert.acknowledgement {
            let (by, note) = (escape_word(by), escape_word(note));
            _ = writeln!(text, "acknowledged {at_ns} {until_ns} {by} {note}");
        }
        for (keyword, pairs) in [("label", &alert.labels), ("annotation", &alert.annotations)] {
            for (name, value) in pairs {
                _ = writeln!(text, "{keyword} {} {}", escape_word(name), escape_word(value));
            }
        }
    }
    let checksum = checksum_line(&text);
    text + &checksum
}

/// Alerts of a text.
pub(crate) fn decode_received(text: &str) -> Result<Vec<ReceivedAlert>, ReceivedFileError> {
    let (body, last) = split_last_line(text);
    let title = body.lines().next().and_then(|line| line.strip_prefix(TITLE));
    let version = title.ok_or(ReceivedFileError::Title)?;
    if version != VERSION.to_string() {
        return Err(ReceivedFileError::Version(version.to_owned()));
    }
    if last != checksum_line(body) {
        return Err(ReceivedFileError::Checksum);
    }
    let mut alerts = Vec::new();
    for (index, line) in body.lines().enumerate().skip(1) {
        read_line(&mut alerts, line).ok_or(ReceivedFileError::Line(index + 1))?;
    }
    Ok(alerts)
}

fn read_line(alerts: &mut Vec<ReceivedAlert>, line: &str) -> Option<()> {
    let (keyword, rest) = line.split_once(' ')?;
    match keyword {
        "alert" => alerts.push(parse_alert(rest)?),
        "acknowledged" => {
            let [at, until, by, note] = split_words(rest)?;
            alerts.last_mut()?.acknowledgement = Some(AlertAcknowledgement {
                at_ns: at.parse().ok()?,
                until_ns: until.parse().ok()?,
                by: unescape_word(by)?,
                note: unescape_word(note)?,
            });
        }
        "label" => insert(&mut alerts.last_mut()?.labels, rest)?,
        "annotation" => insert(&mut alerts.last_mut()?.annotations, rest)?,
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
        acknowledgement: None,
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
            acknowledgement: Some(AlertAcknowledgement {
                at_ns: 1_700_000_030_000_000_000,
                until_ns: 1_700_003_630_000_000_000,
                by: "ann".to_owned(),
                note: "I am on it".to_owned(),
            }),
        }
    }

    #[test]
    fn the_page_shows_alerts_as_written() {
        let text = encode_received([example()].iter());
        let told = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
        assert_eq!(told, Some(text.as_str()));
        for word in text.lines().map(|line| line.split(' ').next().unwrap()) {
            assert!(PAGE.contains(&format!("| `{word}")), "{word}");
        }
    }

    #[test]
    fn alerts_round_trip_and_any_flipped_bit_is_detected() {
        let mut bare = example();
        (bare.acknowledgement, bare.is_firing) = (None, false);
        (bare.annotations, bare.generator_url) = (BTreeMap::new(), String::new());
        let alerts = vec![example(), bare];
        let text = encode_received(alerts.iter());
        assert_eq!(decode_received(&text), Ok(alerts));
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(flipped) = String::from_utf8(bytes) {
                assert!(decode_received(&flipped).is_err(), "bit {bit}");
            }
        }
        for end in 0..text.len() {
            assert!(decode_received(&text[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let found =
            decode_received("topdeck received alerts 2\nwhatever\n").unwrap_err().to_string();
        assert_eq!(found, "cannot read received alerts: found version 2, expected 1");
    }
}
