//! Typed access to the keys of a mapping. Unknown keys and wrong types are problems.

use std::sync::Arc;

use query::edit_distance;
use query::promql::parse_duration;

use crate::rule_file::{LabelMap, ProblemList};
use crate::yaml::{FilePosition, YamlEntry, YamlNode, YamlValue};

/// Label of the metric name, which a rule cannot set as a label.
const METRIC_NAME: &str = "__name__";

/// Entries of a mapping.
pub(crate) struct Fields<'n> {
    entries: &'n [YamlEntry],
    position: FilePosition,
}

impl<'n> Fields<'n> {
    /// Entries of a node whose keys are known; `what` names it.
    pub(crate) fn read(
        problems: &mut ProblemList,
        node: &'n YamlNode,
        what: &str,
        known: &[&str],
    ) -> Option<Fields<'n>> {
        let YamlValue::Map(entries) = &node.value else {
            let message = format!("{what}: found {}, expected a mapping", node.kind());
            problems.error(node.position, message);
            return None;
        };
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let message = unknown_key(&entry.key, known);
            problems.error(entry.key_position, message);
        }
        Some(Fields { entries, position: node.position })
    }

    fn entry(&self, key: &str) -> Option<&'n YamlEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Position of a key; that of the mapping if it is absent.
    pub(crate) fn position(&self, key: &str) -> FilePosition {
        self.entry(key).map_or(self.position, |entry| entry.key_position)
    }

    /// Position of the value of a key.
    pub(crate) fn value_position(&self, key: &str) -> FilePosition {
        self.entry(key).map_or(self.position, |entry| entry.node.position)
    }

    /// Position of a key of a mapping that is the value of a key.
    pub(crate) fn entry_position(&self, key: &str, inner: &str) -> FilePosition {
        let below = match self.entry(key).map(|entry| &entry.node.value) {
            Some(YamlValue::Map(entries)) => entries.iter().find(|entry| entry.key == inner),
            _ => None,
        };
        below.map_or_else(|| self.position(key), |entry| entry.key_position)
    }

    /// Whether a key has a value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some_and(|entry| !matches!(entry.node.value, YamlValue::Null))
    }

    /// Text of a scalar.
    pub(crate) fn text(&self, problems: &mut ProblemList, key: &str) -> Option<String> {
        let entry = self.entry(key)?;
        match &entry.node.value {
            YamlValue::Null => None,
            YamlValue::Scalar(text) => Some(text.clone()),
            _ => {
                let message = format!("{key}: found {}, expected a text", entry.node.kind());
                problems.error(entry.node.position, message);
                None
            }
        }
    }

    /// Duration.
    pub(crate) fn duration(&self, problems: &mut ProblemList, key: &str) -> Option<i64> {
        let text = self.text(problems, key)?;
        match parse_duration(&text) {
            Ok(duration) => Some(duration),
            Err(_) => {
                let message = format!("{key}: found {text:?}, expected a duration such as 5m");
                problems.error(self.value_position(key), message);
                None
            }
        }
    }

    /// Limit; 0 and negative numbers are no limit.
    pub(crate) fn limit(&self, problems: &mut ProblemList, key: &str) -> usize {
        let Some(text) = self.text(problems, key) else { return 0 };
        match text.parse::<i64>() {
            Ok(limit) => usize::try_from(limit).unwrap_or(0),
            Err(_) => {
                let message = format!("{key}: found {text:?}, expected a whole number");
                problems.error(self.value_position(key), message);
                0
            }
        }
    }

    /// Items of a list.
    pub(crate) fn list(&self, problems: &mut ProblemList, key: &str) -> &'n [Arc<YamlNode>] {
        let Some(entry) = self.entry(key) else { return &[] };
        match &entry.node.value {
            YamlValue::Null => &[],
            YamlValue::List(items) => items,
            _ => {
                let message = format!("{key}: found {}, expected a list", entry.node.kind());
                problems.error(entry.node.position, message);
                &[]
            }
        }
    }

    /// Texts of a list.
    pub(crate) fn texts(&self, problems: &mut ProblemList, key: &str) -> Vec<String> {
        let mut texts = Vec::new();
        for node in self.list(problems, key) {
            match &node.value {
                YamlValue::Scalar(text) => texts.push(text.clone()),
                _ => {
                    let message = format!("{key}: found {}, expected a text", node.kind());
                    problems.error(node.position, message);
                }
            }
        }
        texts
    }

    /// Labels or annotations (`what`) with valid names.
    pub(crate) fn labels(&self, problems: &mut ProblemList, key: &str, what: &str) -> LabelMap {
        let mut labels = LabelMap::new();
        let Some(entry) = self.entry(key) else { return labels };
        let below = match &entry.node.value {
            YamlValue::Null => return labels,
            YamlValue::Map(below) => below,
            _ => {
                let message = format!("{key}: found {}, expected a mapping", entry.node.kind());
                problems.error(entry.node.position, message);
                return labels;
            }
        };
        for label in below {
            let name = &label.key;
            // Any text is valid since Prometheus 3; the replacement character stands for bytes that
            // were not UTF-8.
            let is_valid = !name.is_empty() && !name.contains(char::REPLACEMENT_CHARACTER);
            if !is_valid || (what == "label" && name == METRIC_NAME) {
                problems.error(label.key_position, format!("invalid {what} name {name:?}"));
            }
            match &label.node.value {
                YamlValue::Null => drop(labels.insert(name.clone(), String::new())),
                YamlValue::Scalar(text) => drop(labels.insert(name.clone(), text.clone())),
                _ => {
                    let found = label.node.kind();
                    let message = format!("{what} {name:?}: found {found}, expected a text");
                    problems.error(label.node.position, message);
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
