//! JSON as topdeck writes it: fields in the order they were given; for people with short objects on
//! one line, for programs (`{:#}`) without a blank.

pub mod heatmap;
pub mod statistics;

use std::fmt::{self, Write as _};

use hist::Cell;

/// A value in the order in which it is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// A number, which is finite.
    Number(f64),
    /// A text.
    Text(String),
    /// Values in a row.
    List(Vec<Json>),
    /// Objects of `lower`, `upper` and `count`, of which there can be very many.
    Cells(Vec<Cell>),
    /// An object whose keys are fields.
    Object(Vec<(&'static str, Json)>),
    /// An object whose keys are no fields.
    Map(Vec<(String, Json)>),
}

use Json::{List, Null, Object, Text};

/// A count.
pub fn integer(n: u64) -> Json {
    Json::Integer(n.into())
}

/// JSON has no infinity: no bound.
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
    /// Bytes that it holds in memory, beside its own.
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

/// A text in quotes.
pub fn write_text(f: &mut dyn fmt::Write, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            // Those above 0x7e need not be, but a terminal may obey them.
            c if c.is_control() => write!(f, "\\u{:04x}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

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
