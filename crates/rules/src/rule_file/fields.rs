//! Typed access to the keys of a mapping. Unknown keys and wrong types are problems.

use std::sync::Arc;

use query::edit_distance;
use query::promql::parse_duration;

use super::{LabelMap, RuleFileParser};
use crate::yaml::{FilePosition, YamlEntry, YamlNode, YamlValue};

/// Label of the metric name, which a rule cannot set as a label.
const METRIC_NAME: &str = "__name__";

/// Entries of a mapping.
pub(super) struct Fields<'n> {
    entries: &'n [YamlEntry],
    position: FilePosition,
}

impl<'n> Fields<'n> {
    /// Entries of a node whose keys are known; `what` names it.
    pub(super) fn read(
        parser: &mut RuleFileParser<'_>,
        node: &'n YamlNode,
        what: &str,
        known: &[&str],
    ) -> Option<Fields<'n>> {
        let YamlValue::Map(entries) = &node.value else {
            let message = format!("{what}: found {}, expected a mapping", node.kind());
            parser.error(node.position, message);
            return None;
        };
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let message = unknown_key(&entry.key, known);
            parser.error(entry.key_position, message);
        }
        Some(Fields { entries, position: node.position })
    }

    fn entry(&self, key: &str) -> Option<&'n YamlEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Position of a key; that of the mapping if it is absent.
    pub(super) fn position(&self, key: &str) -> FilePosition {
        self.entry(key).map_or(self.position, |entry| entry.key_position)
    }

    /// Position of the value of a key.
    pub(super) fn value_position(&self, key: &str) -> FilePosition {
        self.entry(key).map_or(self.position, |entry| entry.node.position)
    }

    /// Position of a key of a mapping that is the value of a key.
    pub(super) fn entry_position(&self, key: &str, inner: &str) -> FilePosition {
        let below = match self.entry(key).map(|entry| &entry.node.value) {
            Some(YamlValue::Map(entries)) => entries.iter().find(|entry| entry.key == inner),
            _ => None,
        };
        below.map_or_else(|| self.position(key), |entry| entry.key_position)
    }

    /// Whether a key has a value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some_and(|entry| !matches!(entry.node.value, YamlValue::Null))
    }

    /// Text of a scalar.
    pub(super) fn text(&self, parser: &mut RuleFileParser<'_>, key: &str) -> Option<String> {
        let entry = self.entry(key)?;
        match &entry.node.value {
            YamlValue::Null => None,
            YamlValue::Scalar(text) => Some(text.clone()),
            _ => {
                let message = format!("{key}: found {}, expected a text", entry.node.kind());
                parser.error(entry.node.position, message);
                None
            }
        }
    }

    /// Duration.
    pub(super) fn duration(&self, parser: &mut RuleFileParser<'_>, key: &str) -> Option<i64> {
        let text = self.text(parser, key)?;
        match parse_duration(&text) {
            Ok(duration) => Some(duration),
            Err(_) => {
                let message = format!("{key}: found {text:?}, expected a duration such as 5m");
                parser.error(self.value_position(key), message);
                None
            }
        }
    }

    /// Limit; 0 and negative numbers are no limit.
    pub(super) fn limit(&self, parser: &mut RuleFileParser<'_>, key: &str) -> usize {
        let Some(text) = self.text(parser, key) else { return 0 };
        match text.parse::<i64>() {
            Ok(limit) => usize::try_from(limit).unwrap_or(0),
            Err(_) => {
                let message = format!("{key}: found {text:?}, expected a whole number");
                parser.error(self.value_position(key), message);
                0
            }
        }
    }

    /// Items of a list.
    pub(super) fn list(&self, parser: &mut RuleFileParser<'_>, key: &str) -> &'n [Arc<YamlNode>] {
        let Some(entry) = self.entry(key) else { return &[] };
        match &entry.node.value {
            YamlValue::Null => &[],
            YamlValue::List(items) => items,
            _ => {
                let message = format!("{key}: found {}, expected a list", entry.node.kind());
                parser.error(entry.node.position, message);
                &[]
            }
        }
    }

    /// Labels or annotations (`what`) with valid names.
    pub(super) fn labels(
        &self,
        parser: &mut RuleFileParser<'_>,
        key: &str,
        what: &str,
    ) -> LabelMap {
        let mut labels = LabelMap::new();
        let Some(entry) = self.entry(key) else { return labels };
        let below = match &entry.node.value {
            YamlValue::Null => return labels,
            YamlValue::Map(below) => below,
            _ => {
                let message = format!("{key}: found {}, expected a mapping", entry.node.kind());
                parser.error(entry.node.position, message);
                return labels;
            }
        };
        for label in below {
            let name = &label.key;
            // Any text is valid since Prometheus 3; the replacement character stands for bytes that
            // were not UTF-8.
            let is_valid = !name.is_empty() && !name.contains(char::REPLACEMENT_CHARACTER);
            if !is_valid || (what == "label" && name == METRIC_NAME) {
                parser.error(label.key_position, format!("invalid {what} name {name:?}"));
            }
            match &label.node.value {
                YamlValue::Null => drop(labels.insert(name.clone(), String::new())),
                YamlValue::Scalar(text) => drop(labels.insert(name.clone(), text.clone())),
                _ => {
                    let found = label.node.kind();
                    let message = format!("{what} {name:?}: found {found}, expected a text");
                    parser.error(label.node.position, message);
                }
            }
        }
        labels
    }
}

/// Message for an unknown key, with the nearest known one.
fn unknown_key(key: &str, known: &[&str]) -> String {
    let max = 1 + key.chars().count().min(40) / 3;
    let near = known.iter().filter_map(|name| Some((edit_distance(key, name, max)?, name)));
    match near.min() {
        Some((_, name)) => format!("unknown key {key:?}; did you mean {name:?}?"),
        None => format!("unknown key {key:?}; known keys are {}", known.join(", ")),
    }
}
