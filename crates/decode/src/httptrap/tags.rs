//! Stream tags: `foo|ST[env:prod,app:web]` at the end of a name, or a list or object under `_tags`.
//!
//! The category is the label's name; the text after the first colon is its value. Either part may
//! be `b"…"`, base64. A tag without a value has the value "true", as StatsD tags do. A category may
//! repeat but a label may not: its distinct values are sorted and joined by commas. A suffix that
//! is not a valid tag list stays in the name.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use crate::json::JsonToken;

use super::tokens;

const TAGS_START: &str = "|ST[";

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) type LabelPairs = Vec<(String, String)>;

/// Splits the tags off the end of the name and adds them to `labels`.
pub(super) fn split_tags<'a>(name: &'a str, labels: &mut LabelPairs) -> &'a str {
    let parts = name.strip_suffix(']').and_then(|name| name.rsplit_once(TAGS_START));
    let Some((plain, list)) = parts.filter(|(plain, _)| !plain.is_empty()) else { return name };
    let before = labels.len();
    for tag in list.split(',').filter(|tag| !tag.is_empty()) {
        match parse_tag(tag) {
            Some(label) => labels.push(label),
            None => {
                labels.truncate(before);
                return name;
            }
        }
    }
    plain
}

fn parse_tag(tag: &str) -> Option<(String, String)> {
    let (category, value) = tag.split_once(':').unwrap_or((tag, ""));
    let (category, value) = (decode_part(category)?, decode_part(value)?);
    let value = if value.is_empty() { "true".to_owned() } else { value };
    (!category.is_empty()).then_some((category, value))
}

fn decode_part(text: &str) -> Option<String> {
    let coded = text.strip_prefix("b\"").and_then(|text| text.strip_suffix('"'));
    match coded {
        Some(coded) => String::from_utf8(BASE64.decode(coded).ok()?).ok(),
        None => Some(text.to_owned()),
    }
}

/// Parses tags in JSON: a list of strings, one string with commas, or an object. `None` for
/// anything else.
pub(super) fn parse_tags(bytes: &[u8]) -> Option<LabelPairs> {
    let mut tokens = tokens(bytes);
    let mut labels = LabelPairs::new();
    let list = |text: &str, labels: &mut LabelPairs| -> Option<()> {
        for tag in text.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
            labels.push(parse_tag(tag)?);
        }
        Some(())
    };
    match tokens.value().ok()? {
        JsonToken::Text(text) => list(&text, &mut labels)?,
        JsonToken::Array => {
            while tokens.element().ok()? {
                let JsonToken::Text(text) = tokens.value().ok()? else { return None };
                list(&text, &mut labels)?;
            }
        }
        JsonToken::Object => {
            while let Some(category) = tokens.key().ok()? {
                let value = match tokens.value().ok()? {
                    JsonToken::Text(text) => text,
                    JsonToken::Number(text) => text.to_owned(),
                    JsonToken::Bool(value) => value.to_string(),
                    JsonToken::Object | JsonToken::Array | JsonToken::Null => return None,
                };
                labels.push((category, value));
            }
        }
        JsonToken::Number(_) | JsonToken::Bool(_) | JsonToken::Null => return None,
    }
    Some(labels)
}

/// Sorts labels by name and merges equal names.
pub(super) fn merge_labels(mut labels: LabelPairs) -> LabelPairs {
    labels.sort_unstable();
    labels.dedup();
    let mut joined = LabelPairs::with_capacity(labels.len());
    for (name, value) in labels {
        match joined.last_mut() {
            Some((last, values)) if *last == name => {
                values.push(',');
                values.push_str(&value);
            }
            _ => joined.push((name, value)),
        }
    }
    joined
}
