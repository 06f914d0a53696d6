//! YAML as TOML values: every value is a text, except `true` and `false` without quotes, and
//! entries without a value are left out. A position is a line and a column in one number.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::notify_problem::NotifyProblem;

/// Maximum number of nodes with every alias written out.
const NODES_MAX: usize = 1 << 17;
/// Maximum nesting; the tree is dropped recursively.
const DEPTH_MAX: usize = 64;
/// Columns are below; longer lines have the position of their end.
const COLUMNS: usize = 1 << 20;

type FileNode = Spanned<DeValue<'static>>;

/// List or mapping that has begun.
struct OpenFileNode {
    position: usize,
    anchor: usize,
    children: Vec<Option<FileNode>>,
    is_map: bool,
}

#[derive(Default)]
struct ValueBuilder {
    open: Vec<OpenFileNode>,
    anchors: HashMap<usize, (Option<FileNode>, usize)>,
    nodes: usize,
}

/// "12:3": line and column of a position.
pub(super) fn position_text(position: usize) -> String {
    format!("{}:{}", position / COLUMNS, position % COLUMNS)
}

fn position(marker: &Marker) -> usize {
    marker.line() * COLUMNS + (marker.col() + 1).min(COLUMNS - 1)
}

fn problem(byte: usize, what: impl Into<String>) -> NotifyProblem {
    NotifyProblem { position: byte, what: what.into() }
}

/// The first document of a text.
pub(super) fn read_yaml(text: &str) -> Result<FileNode, NotifyProblem> {
    let mut builder = ValueBuilder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            problem(position(error.marker()), format!("invalid YAML: {}", error.info()))
        })?;
        if let Some(root) = builder.push(event, position(&span.start))? {
            return Ok(root);
        }
    }
    Err(problem(COLUMNS + 1, "the file is empty"))
}

impl ValueBuilder {
    /// Adds an event; returns the root when it is complete.
    fn push(&mut self, event: Event<'_>, at: usize) -> Result<Option<FileNode>, NotifyProblem> {
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let value = match (style == ScalarStyle::Plain, &*text) {
                    (true, "" | "~" | "null" | "Null" | "NULL") => None,
                    (true, "true" | "false") => Some(DeValue::Boolean(&*text == "true")),
                    _ => Some(DeValue::String(text.into_owned().into())),
                };
                (value.map(|value| Spanned::new(at..at, value)), anchor)
            }
            Event::Alias(id) => match self.anchors.get(&id) {
                Some((node, weight)) => {
                    self.nodes = self.nodes.saturating_add(*weight);
                    if self.nodes > NODES_MAX {
                        return Err(problem(at, nodes_limit()));
                    }
                    (node.clone(), 0)
                }
                None => return Err(problem(at, "alias inside its own anchor")),
            },
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                if self.open.len() == DEPTH_MAX {
                    return Err(problem(at, format!("nesting limit ({DEPTH_MAX}) reached")));
                }
                let is_map = matches!(event, Event::MappingStart(..));
                let children = Vec::new();
                self.open.push(OpenFileNode { position: at, anchor, children, is_map });
                return Ok(None);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let done = self.open.pop().expect("BUG: the parser closes what it opened");
                let value = match done.is_map {
                    true => DeValue::Table(entries(done.children)?),
                    false => DeValue::Array(done.children.into_iter().flatten().collect()),
                };
                (Some(Spanned::new(done.position..done.position, value)), done.anchor)
            }
            _ => return Ok(None),
        };
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(problem(at, nodes_limit()));
        }
        if anchor != 0 {
            let weight = weight(node.as_ref());
            self.anchors.insert(anchor, (node.clone(), weight));
        }
        match self.open.last_mut() {
            Some(parent) => {
                parent.children.push(node);
                Ok(None)
            }
            None => Ok(node),
        }
    }
}

fn nodes_limit() -> String {
    format!("limit of {NODES_MAX} nodes exceeded, counting aliases")
}

/// Number of nodes of a tree.
fn weight(node: Option<&FileNode>) -> usize {
    match node.map(Spanned::get_ref) {
        Some(DeValue::Array(items)) => {
            1 + items.iter().map(|item| weight(Some(item))).sum::<usize>()
        }
        Some(DeValue::Table(table)) => {
            1 + table.iter().map(|(_, value)| 1 + weight(Some(value))).sum::<usize>()
        }
        _ => 1,
    }
}

/// Entries of a mapping from its keys and values.
fn entries(children: Vec<Option<FileNode>>) -> Result<DeTable<'static>, NotifyProblem> {
    let mut table = DeTable::new();
    let mut children = children.into_iter();
    while let (Some(key), Some(value)) = (children.next(), children.next()) {
        let Some(key) = key else { continue };
        let at = key.span();
        let name = match key.into_inner() {
            DeValue::String(name) => name,
            DeValue::Boolean(flag) => flag.to_string().into(),
            _ => return Err(problem(at.start, "a key must be a text")),
        };
        if name == "<<" {
            return Err(problem(at.start, "merge keys (<<) are not supported; write the keys"));
        }
        if table.keys().any(|known: &Spanned<_>| known.get_ref() == &name) {
            return Err(problem(at.start, format!("key {name:?} repeated")));
        }
        if let Some(value) = value {
            table.insert(Spanned::new(at, name), value);
        }
    }
    Ok(table)
}
