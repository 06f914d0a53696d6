//! Stored silences: text, one fact per line, for a file that is replaced atomically.
//!
//! ```text
//! topdeck silences 1
//! silence ID STARTS ENDS UPDATED BY COMMENT
//! matcher NAME OPERATOR VALUE       of the preceding silence
//! recurs INTERVAL                   of the preceding silence: JSON
//! annotation NAME VALUE             of the preceding silence
//! checksum CRC                      CRC-32C of all preceding lines, 8 hexadecimal digits
//! ```
//! `docs/formats/silences.md` specifies the format.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::text_file::{checksum_line, escape_word, split_last_line, split_words, unescape_word};

use crate::routing::{AlertMatcher, Recurrence};
use crate::silence::Silence;

const TITLE: &str = "topdeck silences ";
/// Format version that is written, and the only one that is read.
pub const SILENCE_FILE_VERSION: u32 = 1;

/// Why stored silences cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SilenceFileError {
    /// The title is missing: not a file of silences.
    #[error("cannot read silences: found no title, expected {TITLE:?}")]
    Title,
    /// A newer topdeck wrote it.
    #[error("cannot read silences: found version {found}, expected {SILENCE_FILE_VERSION}")]
    Version {
        /// Version of the file.
        found: String,
    },
    /// The file is damaged.
    #[error("cannot read silences: the checksum does not match")]
    Checksum,
    /// The writer has a bug.
    #[error("cannot read silences: line {line} is invalid")]
    Line {
        /// Line, from 1.
        line: usize,
    },
}

/// Text of silences.
pub fn encode_silences(silences: &[Silence]) -> String {
    let mut text = format!("{TITLE}{SILENCE_FILE_VERSION}\n");
    for silence in silences {
        let Silence { id, starts_ns, ends_ns, updated_ns, created_by, comment, .. } = silence;
        let (id, by, comment) = (escape_word(id), escape_word(created_by), escape_word(comment));
        // Writing to a string does not fail.
        _ = writeln!(text, "silence {id} {starts_ns} {ends_ns} {updated_ns} {by} {comment}");
        for matcher in &silence.matchers {
            let (name, value) = (escape_word(matcher.name()), escape_word(matcher.value()));
            _ = writeln!(text, "matcher {name} {} {value}", matcher.operator());
        }
        for recurrence in &silence.recurrences {
            _ = writeln!(text, "recurs {}", escape_word(&recurrence.to_json().to_string()));
        }
        for (name, value) in &silence.annotations {
            _ = writeln!(text, "annotation {} {}", escape_word(name), escape_word(value));
        }
    }
    let checksum = checksum_line(&text);
    text + &checksum
}

/// Silences of a text.
pub fn decode_silences(text: &str) -> Result<Vec<Silence>, SilenceFileError> {
    let (body, last) = split_last_line(text);
    let title = body.lines().next().and_then(|line| line.strip_prefix(TITLE));
    let version = title.ok_or(SilenceFileError::Title)?;
    if version != SILENCE_FILE_VERSION.to_string() {
        return Err(SilenceFileError::Version { found: version.to_owned() });
    }
    if last != checksum_line(body) {
        return Err(SilenceFileError::Checksum);
    }
    let mut silences: Vec<Silence> = Vec::new();
    for (index, line) in body.lines().enumerate().skip(1) {
        read_line(&mut silences, line).ok_or(SilenceFileError::Line { line: index + 1 })?;
    }
    Ok(silences)
}

fn read_line(silences: &mut Vec<Silence>, line: &str) -> Option<()> {
    let (keyword, rest) = line.split_once(' ')?;
    match keyword {
        "silence" => {
            let [id, starts, ends, updated, by, comment] = split_words(rest)?;
            silences.push(Silence {
                id: unescape_word(id)?,
                matchers: Vec::new(),
                starts_ns: starts.parse().ok()?,
                ends_ns: ends.parse().ok()?,
                recurrences: Vec::new(),
                created_by: unescape_word(by)?,
                comment: unescape_word(comment)?,
                annotations: BTreeMap::new(),
                updated_ns: updated.parse().ok()?,
            });
        }
        "matcher" => {
            let [name, operator, value] = split_words(rest)?;
            let (name, value) = (unescape_word(name)?, unescape_word(value)?);
            let matcher = AlertMatcher::of_operator(&name, operator, &value)?;
            silences.last_mut()?.matchers.push(matcher);
        }
        "recurs" => {
            let value = serde_json::from_str(&unescape_word(rest)?).ok()?;
            silences.last_mut()?.recurrences.push(Recurrence::from_json(value).ok()?);
        }
        "annotation" => {
            let [name, value] = split_words(rest)?;
            let annotations = &mut silences.last_mut()?.annotations;
            if annotations.insert(unescape_word(name)?, unescape_word(value)?).is_some() {
                return None;
            }
        }
        _ => return None,
    }
    Some(())
}
