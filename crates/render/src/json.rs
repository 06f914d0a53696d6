//! JSON with fields in insertion order: indented for people, with short objects on one line;
//! compact (`{:#}`) for programs.

pub mod heatmap;
pub mod statistics;

use std::fmt::{self, Write as _};

use hist::Cell;

/// JSON value; fields keep their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Integer.
    Integer(i128),
    /// Finite number.
    Number(f64),
    /// String.
    Text(String),
    /// Array.
    List(Vec<Json>),
    /// Array of objects with `lower`, `upper` and `count`: compact in memory, because there may be
    /// many.
    Cells(Vec<Cell>),
    /// Object with a fixed set of keys.
    Object(Vec<(&'static str, Json)>),
    /// Object with arbitrary keys.
    Map(Vec<(String, Json)>),
}

use Json::{List, Null, Object, Text};

/// Integer value.
pub fn integer(n: u64) -> Json {
    Json::Integer(n.into())
}

/// Number, or `null` for infinity (no bound) and NaN, which JSON cannot express.
pub fn number(x: f64) -> Json {
    if x.is_finite() { Json::Number(x) } else { Null }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f.alternate() {
            true => self.write_dense(f),
            false => self.write(f, 0),
        }
    }
}

/// Maximum width of an object on one line.
const LINE_BYTES: usize = 96;

impl Json {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        match self {
            Null => f.write_str("null"),
            Json::Bool(value) => write!(f, "{value}"),
            Json::Integer(n) => write!(f, "{n}"),
            // Shortest decimal that reads back to the same double.
            Json::Number(x) => write!(f, "{x:?}"),
            Text(text) => write_text(f, text),
            List(items) if items.is_empty() => f.write_str("[]"),
            List(items) => {
                let line = |f: &mut fmt::Formatter<'_>, at: usize| items[at].write(f, depth + 1);
                write_block(f, ('[', ']'), items.len(), depth, line)
            }
            Json::Cells(cells) => List(cells.iter().map(cell).collect()).write(f, depth),
            Object(fields) => {
                let flat = || {
                    let scalar = |json: &Json| {
                        !matches!(json, List(_) | Json::Cells(_) | Object(_) | Json::Map(_))
                    };
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

impl Json {
    /// Heap memory of the value, in bytes.
    pub fn held_bytes(&self) -> usize {
        match self {
            Null | Json::Bool(_) | Json::Integer(_) | Json::Number(_) => 0,
            Text(text) => text.capacity(),
            List(items) => {
                items.capacity() * size_of::<Json>()
                    + items.iter().map(Json::held_bytes).sum::<usize>()
            }
            Json::Cells(cells) => cells.capacity() * size_of::<Cell>(),
            Object(fields) => {
                fields.capacity() * size_of::<(&str, Json)>()
                    + fields.iter().map(|(_, value)| value.held_bytes()).sum::<usize>()
            }
            Json::Map(fields) => {
                let of = |(name, value): &(String, Json)| name.capacity() + value.held_bytes();
                fields.capacity() * size_of::<(String, Json)>()
                    + fields.iter().map(of).sum::<usize>()
            }
        }
    }

    fn write_dense(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            List(items) => write_between(f, ('[', ']'), items, |f, item| item.write_dense(f)),
            Json::Cells(cells) => {
                write_between(f, ('[', ']'), cells, |f, of| cell(of).write_dense(f))
            }
            Object(fields) => write_between(f, ('{', '}'), fields, |f, (key, value)| {
                write_text(f, key)?;
                f.write_char(':')?;
                value.write_dense(f)
            }),
            Json::Map(fields) => write_between(f, ('{', '}'), fields, |f, (key, value)| {
                write_text(f, key)?;
                f.write_char(':')?;
                value.write_dense(f)
            }),
            plain => plain.write(f, 0),
        }
    }
}

fn write_between<T>(
    f: &mut fmt::Formatter<'_>,
    (open, close): (char, char),
    items: &[T],
    mut item: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_char(open)?;
    for (at, of) in items.iter().enumerate() {
        if at > 0 {
            f.write_char(',')?;
        }
        item(f, of)?;
    }
    f.write_char(close)
}

fn cell(cell: &Cell) -> Json {
    Object(vec![
        ("lower", number(cell.lower)),
        ("upper", number(cell.upper)),
        ("count", integer(cell.count)),
    ])
}

fn one_line(fields: &[(&'static str, Json)]) -> Option<String> {
    let parts: Vec<String> =
        fields.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
    let text = format!("{{{}}}", parts.join(", "));
    (text.len() <= LINE_BYTES).then_some(text)
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

/// Writes a quoted JSON string. What needs no escape is written in one piece: the writer counts the
/// memory of a response at each write. Character by character, that took about half the time of an
/// overview (debug build).
pub fn write_text(f: &mut dyn fmt::Write, text: &str) -> fmt::Result {
    let needs_escape = |c: char| matches!(c, '"' | '\\') || c.is_control();
    f.write_char('"')?;
    let mut written = 0;
    for (at, c) in text.char_indices().filter(|(_, c)| needs_escape(*c)) {
        f.write_str(&text[written..at])?;
        written = at + c.len_utf8();
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            // JSON does not require escapes above 0x7e, but a terminal may interpret these
            // characters.
            c => write!(f, "\\u{:04x}", c as u32)?,
        }
    }
    f.write_str(&text[written..])?;
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_escapes_is_one_write_and_the_rest_is_written_around_escapes() {
        struct Writes(Vec<String>);
        impl fmt::Write for Writes {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.push(text.to_owned());
                Ok(())
            }
        }
        let mut writes = Writes(Vec::new());
        write_text(&mut writes, &"0123é".repeat(100)).unwrap();
        assert_eq!(writes.0, ["\"", &"0123é".repeat(100), "\""]);
        let mut text = String::new();
        write_text(&mut text, "\u{9b}é\\a\"\n").unwrap();
        assert_eq!(text, r#""\u009bé\\a\"\n""#);
    }

    #[test]
    fn compact_and_pretty_output() {
        let json = Object(vec![
            ("a", integer(1)),
            ("b", List(vec![number(0.5), Null, Text("x\"\n\u{1}\u{9b}".to_owned())])),
            ("c", Json::Cells(vec![Cell { lower: 1.0, upper: f64::INFINITY, count: 2 }])),
            ("d", Json::Map(vec![("é".to_owned(), Json::Bool(true))])),
            ("e", List(Vec::new())),
        ]);
        let dense = r#"{"a":1,"b":[0.5,null,"x\"\n\u0001\u009b"],"c":[{"lower":1.0,"upper":null,"count":2}],"d":{"é":true},"e":[]}"#;
        assert_eq!(format!("{json:#}"), dense);
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(dense), read(&json.to_string()));
    }
}
