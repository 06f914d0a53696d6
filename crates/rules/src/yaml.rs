//! YAML documents as trees in which every node knows its line and column.
//!
//! Events come from `saphyr-parser`, which covers YAML 1.2 and depends on one small crate.
//! Deserializers with serde (`serde-saphyr`, `serde_norway`) stop at the first error and give no
//! positions of values that parsed well; a rule file needs both: one bad rule must leave the others
//! usable, and a label name that YAML accepts can still be wrong. Aliases share nodes, and merge
//! keys (`<<`) are resolved.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

/// Maximum number of nodes with every alias written out: a few lines of nested aliases stand for
/// billions of nodes. The largest public rule files have some 20,000.
const NODES_MAX: usize = 1 << 20;
/// Maximum nesting. The schema of rule files has 6 levels; the tree is dropped recursively.
const DEPTH_MAX: usize = 64;

/// Line and column in a file, both from 1; columns are characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePosition {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl From<&Marker> for FilePosition {
    fn from(marker: &Marker) -> FilePosition {
        FilePosition { line: marker.line(), column: marker.col() + 1 }
    }
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Error with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct YamlError {
    pub(crate) position: FilePosition,
    pub(crate) message: String,
}

/// Node of a document.
#[derive(Debug)]
pub(crate) struct YamlNode {
    pub(crate) position: FilePosition,
    pub(crate) value: YamlValue,
    /// Number of nodes, including this one, with every alias written out.
    weight: usize,
}

/// Value of a node.
#[derive(Debug)]
pub(crate) enum YamlValue {
    /// Empty, `~` or `null`.
    Null,
    /// Any other scalar, as text.
    Scalar(String),
    /// List.
    List(Vec<Arc<YamlNode>>),
    /// Mapping in the order of the file; keys are unique.
    Map(Vec<YamlEntry>),
}

/// Entry of a mapping.
#[derive(Clone, Debug)]
pub(crate) struct YamlEntry {
    pub(crate) key: String,
    pub(crate) key_position: FilePosition,
    pub(crate) node: Arc<YamlNode>,
}

impl YamlNode {
    fn new(position: FilePosition, value: YamlValue) -> YamlNode {
        let below = match &value {
            YamlValue::Null | YamlValue::Scalar(_) => 0,
            YamlValue::List(items) => {
                items.iter().fold(0, |sum: usize, item| sum.saturating_add(item.weight))
            }
            YamlValue::Map(entries) => {
                entries.iter().fold(0, |sum: usize, entry| sum.saturating_add(entry.node.weight))
            }
        };
        YamlNode { position, value, weight: below.saturating_add(1) }
    }

    /// What the node is, for errors.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            YamlValue::Null => "nothing",
            YamlValue::Scalar(_) => "a text",
            YamlValue::List(_) => "a list",
            YamlValue::Map(_) => "a mapping",
        }
    }
}

/// First document of a text, which is null if it is empty, and the position of a second document.
pub(crate) fn parse_yaml(text: &str) -> Result<(Arc<YamlNode>, Option<FilePosition>), YamlError> {
    let mut builder = TreeBuilder::default();
    let mut root = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| YamlError::from_scan(&error))?;
        let position = FilePosition::from(&span.start);
        if let (Event::DocumentStart(_), Some(root)) = (&event, &root) {
            return Ok((Arc::clone(root), Some(position)));
        }
        if let Some(node) = builder.push(event, position)? {
            root = Some(node);
        }
    }
    let empty = || Arc::new(YamlNode::new(FilePosition { line: 1, column: 1 }, YamlValue::Null));
    Ok((root.unwrap_or_else(empty), None))
}

impl YamlError {
    fn new(position: FilePosition, message: impl Into<String>) -> YamlError {
        YamlError { position, message: message.into() }
    }

    fn from_scan(error: &ScanError) -> YamlError {
        YamlError::new(error.marker().into(), format!("invalid YAML: {}", error.info()))
    }
}

/// List or mapping that has begun.
struct OpenNode {
    position: FilePosition,
    anchor: usize,
    children: Vec<Arc<YamlNode>>,
    is_map: bool,
}

#[derive(Default)]
struct TreeBuilder {
    open: Vec<OpenNode>,
    anchors: HashMap<usize, Arc<YamlNode>>,
}

impl TreeBuilder {
    /// Adds an event; returns the root when it is complete.
    fn push(
        &mut self,
        event: Event<'_>,
        position: FilePosition,
    ) -> Result<Option<Arc<YamlNode>>, YamlError> {
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_null = style == ScalarStyle::Plain
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let value = match is_null {
                    true => YamlValue::Null,
                    false => YamlValue::Scalar(text.into_owned()),
                };
                (Arc::new(YamlNode::new(position, value)), anchor)
            }
            Event::Alias(id) => match self.anchors.get(&id) {
                Some(node) => (Arc::clone(node), 0),
                None => return Err(YamlError::new(position, "alias inside its own anchor")),
            },
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                if self.open.len() == DEPTH_MAX {
                    let message = format!("nesting limit ({DEPTH_MAX}) reached");
                    return Err(YamlError::new(position, message));
                }
                let is_map = matches!(event, Event::MappingStart(..));
                self.open.push(OpenNode { position, anchor, children: Vec::new(), is_map });
                return Ok(None);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let done = self.open.pop().expect("BUG: the parser closes what it opened");
                let value = match done.is_map {
                    true => YamlValue::Map(entries(&done.children)?),
                    false => YamlValue::List(done.children),
                };
                (Arc::new(YamlNode::new(done.position, value)), done.anchor)
            }
            _ => return Ok(None),
        };
        if node.weight > NODES_MAX {
            let message = format!("limit of {NODES_MAX} nodes exceeded, counting aliases");
            return Err(YamlError::new(position, message));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, Arc::clone(&node));
        }
        match self.open.last_mut() {
            Some(parent) => {
                parent.children.push(node);
                Ok(None)
            }
            None => Ok(Some(node)),
        }
    }
}

/// Entries of a mapping from its keys and values; merge keys are resolved.
fn entries(children: &[Arc<YamlNode>]) -> Result<Vec<YamlEntry>, YamlError> {
    let mut entries: Vec<YamlEntry> = Vec::with_capacity(children.len() / 2);
    let mut first_uses: HashMap<String, FilePosition> = HashMap::new();
    let mut merged = Vec::new();
    for pair in children.chunks_exact(2) {
        let [key, node] = pair else { unreachable!("BUG: a chunk has 2 nodes") };
        let text = match &key.value {
            YamlValue::Scalar(text) => text.clone(),
            YamlValue::Null => String::new(),
            _ => return Err(YamlError::new(key.position, "a key must be a text")),
        };
        if text == "<<" {
            merged.push(Arc::clone(node));
            continue;
        }
        if let Some(first) = first_uses.insert(text.clone(), key.position) {
            let message = format!("key {text:?} repeated; the first one is in line {}", first.line);
            return Err(YamlError::new(key.position, message));
        }
        let (key_position, node) = (key.position, Arc::clone(node));
        entries.push(YamlEntry { key: text, key_position, node });
    }
    for node in merged {
        let sources = match &node.value {
            YamlValue::List(items) => items.clone(),
            _ => vec![node],
        };
        for source in sources {
            let YamlValue::Map(below) = &source.value else {
                return Err(YamlError::new(source.position, "a merge key needs a mapping"));
            };
            for entry in below {
                if !first_uses.contains_key(&entry.key) {
                    first_uses.insert(entry.key.clone(), entry.key_position);
                    entries.push(entry.clone());
                }
            }
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(node: &YamlNode) -> String {
        match &node.value {
            YamlValue::Null => "null".to_owned(),
            YamlValue::Scalar(text) => format!("{text:?}@{}", node.position),
            YamlValue::List(items) => {
                let items: Vec<_> = items.iter().map(|item| show(item)).collect();
                format!("[{}]", items.join(", "))
            }
            YamlValue::Map(entries) => {
                let entries: Vec<_> = entries
                    .iter()
                    .map(|entry| {
                        format!("{}@{}: {}", entry.key, entry.key_position, show(&entry.node))
                    })
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = match parse_yaml(text) {
            Ok((root, None)) => show(&root),
            Ok((root, Some(second))) => format!("{} then {second}", show(&root)),
            Err(error) => format!("{}: {}", error.position, error.message),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn every_key_and_value_has_its_line_and_column() {
        check(
            "a: 1\nb:\n  - x\n  - y: ~\n",
            "{a@1:1: \"1\"@1:4, b@2:1: [\"x\"@3:5, {y@4:5: null}]}",
        );
        check("", "null");
        check("# only a comment\n", "null");
        check("a: 1\n---\nb: 2\n", "{a@1:1: \"1\"@1:4} then 2:1");
    }

    #[test]
    fn aliases_and_merge_keys_are_resolved() {
        let text = "base: &base\n  for: 5m\n  severity: page\nrule:\n  <<: *base\n  for: 1m\n";
        let base = r#"{for@2:3: "5m"@2:8, severity@3:3: "page"@3:13}"#;
        let rule = r#"{for@6:3: "1m"@6:8, severity@3:3: "page"@3:13}"#;
        check(text, &format!("{{base@1:1: {base}, rule@4:1: {rule}}}"));
        check("a: &x\n  - *x\n", "2:5: alias inside its own anchor");
    }

    #[test]
    fn mistakes_are_located() {
        check("a: 1\na: 2\n", "2:1: key \"a\" repeated; the first one is in line 1");
        check("[a]: 1\n", "1:1: a key must be a text");
        let message = match parse_yaml("groups:\n  - name: \"a\n") {
            Err(error) => error.message,
            Ok(_) => panic!("an open quote was accepted"),
        };
        assert!(message.starts_with("invalid YAML: "), "{message}");
    }

    #[test]
    fn nested_aliases_do_not_explode() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let below = format!("*a{}", level - 1);
            let list = vec![below; 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{list}]\n"));
        }
        let message = parse_yaml(&text).expect_err("a billion nodes").message;
        assert_eq!(message, "limit of 1048576 nodes exceeded, counting aliases");
        let deep = "[".repeat(DEPTH_MAX + 1) + &"]".repeat(DEPTH_MAX + 1);
        let message = parse_yaml(&deep).expect_err("too deep").message;
        assert_eq!(message, "nesting limit (64) reached");
    }
}
