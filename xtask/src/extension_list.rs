//! The list of extensions, `testdata/extensions/extensions.toml`: an extension of each kind, with
//! the lines that add it.

use anyhow::{Context as _, Result, bail};
use toml::{Table, Value};

/// Directory of the list and of the files it names.
pub(crate) const DIR: &str = "testdata/extensions/";
/// The list.
pub(crate) const LIST: &str = "testdata/extensions/extensions.toml";

/// An extension: a new file and the lines that add it.
#[derive(Debug, PartialEq)]
pub(crate) struct Extension {
    /// Such as `role`.
    pub(crate) kind: String,
    /// Path of its file in [`DIR`].
    pub(crate) example: String,
    /// Path of its file once it is added.
    pub(crate) file: String,
    /// Row of a table.
    pub(crate) row: InsertedLine,
    /// Line that the language requires for a new file: `mod` in Rust, `import` in JavaScript.
    pub(crate) declaration: InsertedLine,
}

/// A line that is inserted before or after an existing line.
#[derive(Debug, PartialEq)]
pub(crate) struct InsertedLine {
    /// Path of the changed file.
    pub(crate) file: String,
    pub(crate) line: String,
    /// The existing line.
    anchor: String,
    is_after: bool,
}

/// Parses the list.
pub(crate) fn parse(text: &str) -> Result<Vec<Extension>> {
    let list: Table = text.parse().with_context(|| format!("cannot parse {LIST}"))?;
    let entries = list.get("extension").and_then(Value::as_array);
    let entries = entries.with_context(|| format!("{LIST} has no [[extension]]"))?;
    entries.iter().map(Extension::read).collect()
}

impl Extension {
    fn read(entry: &Value) -> Result<Extension> {
        let line = |name: &str| {
            let line = entry.get(name).with_context(|| format!("{LIST}: {name} is missing"))?;
            InsertedLine::read(line)
        };
        Ok(Extension {
            kind: text(entry, "kind")?,
            example: text(entry, "example")?,
            file: text(entry, "file")?,
            row: line("row")?,
            declaration: line("declaration")?,
        })
    }
}

impl InsertedLine {
    fn read(entry: &Value) -> Result<InsertedLine> {
        let (anchor, is_after) = match (entry.get("before"), entry.get("after")) {
            (Some(_), None) => (text(entry, "before")?, false),
            (None, Some(_)) => (text(entry, "after")?, true),
            _ => bail!("{LIST}: a line has either before or after"),
        };
        Ok(InsertedLine {
            file: text(entry, "file")?,
            line: text(entry, "line")?,
            anchor,
            is_after,
        })
    }

    /// Returns the text of the file with the line; `Err` is the reason why it does not fit.
    pub(crate) fn insert(&self, text: &str) -> Result<String, String> {
        let lines: Vec<&str> = text.lines().collect();
        let anchor = self.anchor.as_str();
        let mut places = (0..lines.len()).filter(|&index| lines[index] == anchor);
        let (Some(place), None) = (places.next(), places.next()) else {
            let count = lines.iter().filter(|line| **line == anchor).count();
            return Err(format!("{count} lines are `{}`, expected 1", anchor.trim()));
        };
        let mut lines = lines;
        lines.insert(place + usize::from(self.is_after), &self.line);
        Ok(lines.join("\n") + "\n")
    }
}

fn text(entry: &Value, key: &str) -> Result<String> {
    let found = entry.get(key).and_then(Value::as_str);
    found.map(str::to_owned).with_context(|| format!("{LIST}: {key} is missing or not a text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(place: &str, text: &str, expected: Result<&str, &str>) {
        let entry: Table = format!("file = 'a.rs'\nline = 'new'\n{place}").parse().unwrap();
        let line = InsertedLine::read(&Value::Table(entry)).unwrap();
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(line.insert(text), expected);
    }

    #[test]
    fn a_line_is_inserted_next_to_its_anchor() {
        check("before = 'b'", "a\nb\n", Ok("a\nnew\nb\n"));
        check("after = 'b'", "a\nb\n", Ok("a\nb\nnew\n"));
        check("after = '  b'", "a\nb\n", Err("0 lines are `b`, expected 1"));
        check("after = 'b'", "b\nb\n", Err("2 lines are `b`, expected 1"));
    }

    #[test]
    fn a_line_has_one_anchor() {
        let both = "before = 'a'\nafter = 'b'\nfile = 'a.rs'\nline = 'new'";
        let error = InsertedLine::read(&Value::Table(both.parse().unwrap())).unwrap_err();
        assert!(error.to_string().ends_with("a line has either before or after"), "{error}");
    }
}
