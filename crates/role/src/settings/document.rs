//! A parsed settings file with the location of each key.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use crate::settings::problem::{Problem, Problems};
use crate::settings::unread_keys::UnreadKeys;
use crate::settings::value::with_dir;

/// A settings file.
#[derive(Debug)]
pub struct Document<'a> {
    text: &'a str,
    dir: &'a Path,
    root: DeTable<'a>,
    unread: UnreadKeys,
}

/// A renamed key: its old name is rejected.
#[derive(Clone, Copy, Debug)]
pub struct RenamedKey {
    /// The table, with dots between the names of nested tables; empty for the top level.
    pub table: &'static str,
    /// The rejected old name.
    pub old: &'static str,
    /// The new name.
    pub new: &'static str,
}

/// A table of the file: `[http.limits]`, the second `[[check]]`, or the top level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRef<'a> {
    pub(crate) name: &'a str,
    pub(crate) index: Option<usize>,
}

impl<'a> TableRef<'a> {
    /// Keys above the first table.
    pub const ROOT: TableRef<'static> = TableRef { name: "", index: None };

    /// `[name]`, with dots between the names of nested tables.
    pub const fn named(name: &'a str) -> TableRef<'a> {
        TableRef { name, index: None }
    }

    /// One of several `[[name]]`; the first has index 0.
    pub const fn nth(name: &'a str, index: usize) -> TableRef<'a> {
        TableRef { name, index: Some(index) }
    }
}

impl<'a> Document<'a> {
    /// Parses a file; relative paths in it are resolved against `dir`.
    pub fn parse(text: &'a str, dir: &'a Path) -> Result<Document<'a>, Problems> {
        let root = DeTable::parse(text).map_err(|error| Problems::of_toml(text, &error))?;
        Ok(Document { text, dir, root: root.into_inner(), unread: UnreadKeys::new(false) })
    }

    /// Parses a file as far as possible; returns its syntax errors, too. An error in the header of
    /// a table leaves its keys without a table: then there is no document.
    pub fn parse_recoverable(text: &'a str, dir: &'a Path) -> (Option<Document<'a>>, Problems) {
        let (root, errors) = DeTable::parse_recoverable(text);
        let mut problems = Problems::default();
        errors.iter().for_each(|error| problems.extend(Problems::of_toml(text, error)));
        let problems = problems.first_of_lines();
        if problems.any_line(|line| line.trim_start().starts_with('[')) {
            return (None, problems);
        }
        let unread = UnreadKeys::new(!problems.is_empty());
        (Some(Document { text, dir, root: root.into_inner(), unread }), problems)
    }

    /// Replaces values that could not be read, so that reading again finds other problems. Returns
    /// the problems that are no consequence of earlier ones, and whether anything was replaced.
    pub fn repair(&mut self, found: Problems) -> (Problems, bool) {
        self.unread.repair(&mut self.root, found)
    }

    /// Reads top-level keys: a field of `T` for each.
    pub fn read<T: DeserializeOwned>(&self, keys: &[&str]) -> Result<T, Problems> {
        self.read_table(TableRef::ROOT, keys)
    }

    /// Reads keys of a table: a field of `T` for each. An absent table has no keys.
    pub fn read_table<T: DeserializeOwned>(
        &self,
        table: TableRef<'_>,
        keys: &[&str],
    ) -> Result<T, Problems> {
        let (start, table) = self.table(table).unzip();
        let entries = table.into_iter().flatten();
        let entries = entries.filter(|(key, _)| keys.contains(&&**key.get_ref()));
        let entries: DeTable<'a> =
            entries.map(|(key, value)| (key.clone(), value.clone())).collect();
        let start = start.flatten().unwrap_or(0);
        let deserializer = Deserializer::from(Spanned::new(start..start, entries));
        let read = with_dir(self.dir, || T::deserialize(deserializer));
        read.map_err(|error| Problems::of_toml(self.text, &error))
    }

    /// The top level, for an owner of keys that reads values by itself.
    pub fn root(&self) -> &DeTable<'a> {
        &self.root
    }

    /// The directory against which relative paths are resolved.
    pub fn dir(&self) -> &Path {
        self.dir
    }

    /// Problems at positions in bytes, found by an owner that reads values by itself.
    pub fn problems_at(&self, found: impl IntoIterator<Item = (usize, String)>) -> Problems {
        let mut problems = Problems::default();
        for (byte, what) in found {
            problems.push(Problem::at(self.text, byte, what));
        }
        problems
    }

    /// Returns a problem for each unknown key of a table.
    pub fn unknown_keys(&self, table: TableRef<'_>, known: &[&str]) -> Problems {
        let mut problems = Problems::default();
        let keys = self.table(table).into_iter().flat_map(|(_, table)| table.keys());
        for key in keys.filter(|key| !known.contains(&&**key.get_ref())) {
            let (byte, found) = (key.span().start, key.get_ref());
            problems.push(Problem::unknown_key(self.text, byte, found, known));
        }
        problems
    }

    /// Removes renamed keys from the document; returns a problem for each.
    pub fn take_renamed_keys(&mut self, renamed: &[RenamedKey]) -> Problems {
        let mut problems = Problems::default();
        let text = self.text;
        for &RenamedKey { table, old, new } in renamed {
            let Some(table) = self.table_mut(table) else { continue };
            let keys = std::mem::replace(table, std::iter::empty().collect());
            for (key, value) in keys {
                if key.get_ref() == old {
                    let what = format!("{old:?} was renamed to {new:?}");
                    problems.push(Problem::at(text, key.span().start, what));
                } else {
                    table.insert(key, value);
                }
            }
        }
        problems
    }

    /// A string value of the file.
    pub fn text_of(&self, table: TableRef<'_>, key: &str) -> Option<&str> {
        let (_, table) = self.table(table)?;
        entry(table, key)?.1.get_ref().as_str()
    }

    /// The first byte of a table; the top level and absent tables have none.
    pub(crate) fn start_of(&self, table: TableRef<'_>) -> Option<usize> {
        self.table(table).and_then(|(start, _)| start)
    }

    /// Whether the value of a key could not be read.
    pub fn is_unread(&self, table: TableRef<'_>, key: &str) -> bool {
        self.unread.contains(self.start_of(table), key)
    }

    /// Whether the value of any key of the table at a byte could not be read.
    pub(crate) fn has_unread_keys(&self, start: Option<usize>) -> bool {
        self.unread.is_in_table(start)
    }

    /// Whether parts of the text are not in the document.
    pub(crate) fn has_syntax_errors(&self) -> bool {
        self.unread.has_syntax_errors()
    }

    /// A problem of a key; if the key is absent, of its table.
    pub(crate) fn problem(&self, table: TableRef<'_>, key: &str, what: String) -> Problem {
        let span = self.table(table).and_then(|(start, table)| match entry(table, key) {
            Some((key, _)) => Some(key.span().start),
            None => start,
        });
        match span {
            Some(byte) => Problem::at(self.text, byte, what),
            None => Problem::without_position(what),
        }
    }

    /// A table that is not an element of an array of tables.
    fn table_mut(&mut self, name: &str) -> Option<&mut DeTable<'a>> {
        let mut found = &mut self.root;
        for name in name.split('.').filter(|name| !name.is_empty()) {
            let (_, value) = found.iter_mut().find(|(key, _)| key.get_ref() == name)?;
            found = match value.get_mut() {
                DeValue::Table(table) => table,
                _ => return None,
            };
        }
        Some(found)
    }

    /// A table and the byte at which it begins; the top level has none.
    fn table(&self, table: TableRef<'_>) -> Option<(Option<usize>, &DeTable<'a>)> {
        let (mut start, mut found) = (None, &self.root);
        for name in table.name.split('.').filter(|name| !name.is_empty()) {
            let mut value = entry(found, name)?.1;
            if let (DeValue::Array(all), Some(index)) = (value.get_ref(), table.index) {
                value = all.get(index)?;
            }
            start = Some(value.span().start);
            found = value.get_ref().as_table()?;
        }
        Some((start, found))
    }
}

type Entry<'t, 'a> = (&'t Spanned<std::borrow::Cow<'a, str>>, &'t Spanned<DeValue<'a>>);

fn entry<'t, 'a>(table: &'t DeTable<'a>, key: &str) -> Option<Entry<'t, 'a>> {
    table.iter().find(|(found, _)| &**found.get_ref() == key)
}
