//! Continuing after an error: a value that cannot be read is replaced, so that the other errors of
//! the file are found in the same run.
//!
//! A placeholder takes the place of a scalar; a table or an element of an array is removed. Each
//! such key is remembered, and problems that are only a consequence of it are not reported.

use std::collections::HashMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::settings::problem::{Problem, ProblemCause, Problems};

/// Keys whose values could not be read, by the first byte of their table (the top level has none).
#[derive(Debug)]
pub(crate) struct UnreadKeys {
    keys: HashMap<(Option<usize>, String), Substitute>,
    /// Whether parts of the text are not in the document: any key may be missing.
    has_syntax_errors: bool,
}

/// What took the place of an unread value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Substitute {
    Nothing,
    Placeholder,
}

/// Step from a table or an array to what it contains.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    Key(String),
    Index(usize),
}

impl UnreadKeys {
    /// No unread keys so far, in a file with or without syntax errors.
    pub(crate) fn new(has_syntax_errors: bool) -> UnreadKeys {
        UnreadKeys { keys: HashMap::new(), has_syntax_errors }
    }

    pub(crate) fn has_syntax_errors(&self) -> bool {
        self.has_syntax_errors
    }

    /// Whether the value of a key could not be read.
    pub(crate) fn contains(&self, table: Option<usize>, key: &str) -> bool {
        self.keys.contains_key(&(table, key.to_owned()))
    }

    /// Whether the value of any key of a table could not be read.
    pub(crate) fn is_in_table(&self, table: Option<usize>) -> bool {
        self.keys.keys().any(|(start, _)| *start == table)
    }

    /// Replaces what the problems are about, so that the next attempt to read the document finds
    /// other problems. Returns the problems that are no consequence of earlier ones, and whether
    /// the document changed.
    pub(crate) fn repair(&mut self, root: &mut DeTable<'_>, found: Problems) -> (Problems, bool) {
        let (mut reported, mut is_changed) = (Problems::default(), false);
        for problem in found.into_vec() {
            let path = problem.byte.and_then(|byte| path_to(root, byte));
            let is_new = match path {
                Some(path) => {
                    is_changed = true;
                    self.repair_at(root, path, &problem)
                }
                None => true,
            };
            if is_new {
                reported.push(problem);
            }
        }
        (reported, is_changed)
    }

    /// Returns whether the problem is no consequence of an earlier one.
    fn repair_at(
        &mut self,
        root: &mut DeTable<'_>,
        mut path: Vec<PathStep>,
        problem: &Problem,
    ) -> bool {
        if let ProblemCause::MissingKey { key } = &problem.cause {
            return self.insert_missing(root, path, key);
        }
        if let Some(PathStep::Index(_)) = path.last() {
            remove(root, &path);
            return true;
        }
        let Some(PathStep::Key(key)) = path.pop() else { return true };
        let table = start_of(root, &path);
        let is_new = !self.contains(table, &key);
        let mut substitute = Substitute::Nothing;
        if let ProblemCause::UnknownKey { nearest: Some(nearest) } = &problem.cause {
            self.keys.entry((table, nearest.clone())).or_insert(Substitute::Nothing);
        }
        let is_readable = problem.cause == ProblemCause::InvalidValue && is_new;
        path.push(PathStep::Key(key.clone()));
        match value_at(root, &path) {
            Some(value) if is_readable && !(value.is_table() || value.is_array()) => {
                *value = DeValue::String("".into());
                substitute = Substitute::Placeholder;
            }
            _ => remove(root, &path),
        }
        let entry = self.keys.entry((table, key)).or_insert(substitute);
        if substitute == Substitute::Placeholder {
            *entry = substitute;
        }
        is_new
    }

    fn insert_missing(
        &mut self,
        root: &mut DeTable<'_>,
        mut path: Vec<PathStep>,
        key: &str,
    ) -> bool {
        // The path may lead to a placeholder, which is at the first byte of its table.
        while !path.is_empty() && !value_at(root, &path).is_some_and(|value| value.is_table()) {
            path.pop();
        }
        let table = start_of(root, &path);
        let before = self.keys.insert((table, key.to_owned()), Substitute::Placeholder);
        if before == Some(Substitute::Placeholder) {
            remove(root, &path);
        } else if let Some(DeValue::Table(entries)) = value_at(root, &path) {
            let byte = table.unwrap_or(0);
            let value = DeValue::String("".into());
            entries.insert(
                Spanned::new(byte..byte, key.to_owned().into()),
                Spanned::new(byte..byte, value),
            );
        }
        before.is_none() && !self.has_syntax_errors
    }
}

/// Path to the innermost key or value that begins at a byte.
fn path_to(root: &DeTable<'_>, byte: usize) -> Option<Vec<PathStep>> {
    let mut path = Vec::new();
    is_in_table(root, byte, &mut path).then_some(path)
}

fn is_in_table(table: &DeTable<'_>, byte: usize, path: &mut Vec<PathStep>) -> bool {
    table.iter().any(|(key, value)| {
        path.push(PathStep::Key(key.get_ref().to_string()));
        let is_found = is_in_value(value, byte, path) || key.span().start == byte;
        if !is_found {
            path.pop();
        }
        is_found
    })
}

fn is_in_value(value: &Spanned<DeValue<'_>>, byte: usize, path: &mut Vec<PathStep>) -> bool {
    let is_inside = match value.get_ref() {
        DeValue::Table(table) => is_in_table(table, byte, path),
        DeValue::Array(all) => all.iter().enumerate().any(|(index, value)| {
            path.push(PathStep::Index(index));
            let is_found = is_in_value(value, byte, path);
            if !is_found {
                path.pop();
            }
            is_found
        }),
        _ => false,
    };
    is_inside || value.span().start == byte
}

/// The value at the end of a path that is not empty.
fn spanned_at<'t, 'a>(
    root: &'t mut DeTable<'a>,
    path: &[PathStep],
) -> Option<&'t mut Spanned<DeValue<'a>>> {
    let (first, rest) = path.split_first()?;
    let PathStep::Key(first) = first else { return None };
    let mut value = root.iter_mut().find(|(key, _)| key.get_ref() == first)?.1;
    for step in rest {
        value = match (step, value.get_mut()) {
            (PathStep::Key(name), DeValue::Table(table)) => {
                table.iter_mut().find(|(key, _)| key.get_ref() == name)?.1
            }
            (PathStep::Index(index), DeValue::Array(all)) => all.get_mut(*index)?,
            _ => return None,
        };
    }
    Some(value)
}

fn value_at<'t, 'a>(root: &'t mut DeTable<'a>, path: &[PathStep]) -> Option<&'t mut DeValue<'a>> {
    spanned_at(root, path).map(Spanned::get_mut)
}

/// First byte of the table at a path; the top level has none.
fn start_of(root: &mut DeTable<'_>, path: &[PathStep]) -> Option<usize> {
    spanned_at(root, path).map(|value| value.span().start)
}

/// Removes the entry or element at a path.
fn remove(root: &mut DeTable<'_>, path: &[PathStep]) {
    match path.split_last() {
        Some((PathStep::Key(name), [])) => remove_key(root, name),
        Some((PathStep::Key(name), table)) => {
            if let Some(DeValue::Table(table)) = value_at(root, table) {
                remove_key(table, name);
            }
        }
        Some((PathStep::Index(index), array)) => {
            if let Some(DeValue::Array(all)) = value_at(root, array) {
                let elements = std::mem::replace(all, std::iter::empty().collect());
                let others = elements.into_iter().enumerate().filter(|(at, _)| at != index);
                *all = others.map(|(_, value)| value).collect();
            }
        }
        None => {}
    }
}

fn remove_key(table: &mut DeTable<'_>, name: &str) {
    let entries = std::mem::replace(table, std::iter::empty().collect());
    table.extend(entries.into_iter().filter(|(key, _)| key.get_ref() != name));
}
