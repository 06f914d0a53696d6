//! JSON as topdeck prints it: fields in the order they were given, short objects on one line.

use std::fmt::{self, Write as _};

/// A value in the order in which it is written.
pub(crate) enum Json {
    Null,
    Bool(bool),
    Integer(i128),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
    /// An object whose keys are no fields.
    Map(Vec<(String, Json)>),
}

use Json::{List, Null, Object, Text};

pub(crate) fn integer(n: u64) -> Json {
    Json::Integer(n.into())
}

/// JSON has no infinity: no bound.
pub(crate) fn number(x: f64) -> Json {
    if x.is_finite() { Json::Number(x) } else { Null }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

/// Objects up to this wide stay on one line.
const LINE_CHARS: usize = 96;

impl Json {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        match self {
            Null => f.write_str("null"),
            Json::Bool(value) => write!(f, "{value}"),
            Json::Integer(n) => write!(f, "{n}"),
            // The shortest decimal that reads back to the same double.
            Json::Number(x) => write!(f, "{x:?}"),
            Text(text) => write_text(f, text),
            List(items) if items.is_empty() => f.write_str("[]"),
            List(items) => {
                let line = |f: &mut fmt::Formatter<'_>, at: usize| items[at].write(f, depth + 1);
                write_block(f, ('[', ']'), items.len(), depth, line)
            }
            Object(fields) => {
                let flat = || {
                    let scalar = |json: &Json| !matches!(json, List(_) | Object(_) | Json::Map(_));
                    fields
                        .iter()
                        .all(|(_, value)| scalar(value))
                        .then(|| one_line(fields))
                        .flatten()
                };
                if let Some(text) = flat() {
                    return f.write_str(&text);
                }
                write_block(f, ('{', '}'), fields.len(), depth, |f, at| {
                    write_text(f, fields[at].0)?;
                    f.write_str(": ")?;
                    fields[at].1.write(f, depth + 1)
                })
            }
            Json::Map(fields) if fields.is_empty() => f.write_str("{}"),
            Json::Map(fields) => write_block(f, ('{', '}'), fields.len(), depth, |f, at| {
                write_text(f, &fields[at].0)?;
                f.write_str(": ")?;
                fields[at].1.write(f, depth + 1)
            }),
        }
    }
}

fn one_line(fields: &[(&'static str, Json)]) -> Option<String> {
    let parts: Vec<String> =
        fields.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
    let text = format!("{{{}}}", parts.join(", "));
    (text.len() <= LINE_CHARS).then_some(text)
}

fn write_block(
    f: &mut fmt::Formatter<'_>,
    (open, close): (char, char),
    len: usize,
    depth: usize,
    mut item: impl FnMut(&mut fmt::Formatter<'_>, usize) -> fmt::Result,
) -> fmt::Result {
    f.write_char(open)?;
    for at in 0..len {
        f.write_str(if at > 0 { ",\n" } else { "\n" })?;
        f.write_str(&"  ".repeat(depth + 1))?;
        item(f, at)?;
    }
    write!(f, "\n{}{close}", "  ".repeat(depth))
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}
