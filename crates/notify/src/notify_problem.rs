//! Problem of a settings file, and the reading of its tables.

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use crate::nearest_name::with_nearest_key;

/// Problem of a settings file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyProblem {
    /// Position in the file: a byte of TOML; line and column in one number of the YAML of an
    /// Alertmanager, which `position_text` splits.
    pub position: usize,
    /// The problem.
    pub what: String,
}

impl NotifyProblem {
    /// A problem that TOML's reader found in a table that begins at a byte.
    /// `more` are keys of the table that this reader does not know.
    pub(crate) fn of_toml(start: usize, error: &toml::de::Error, more: &[&str]) -> NotifyProblem {
        let byte = error.span().map_or(start, |span| span.start);
        NotifyProblem { position: byte, what: with_nearest_key(error.message(), more) }
    }
}

/// The elements of `[[key]]`; a problem if it is no array of tables.
pub(crate) fn table_array<'t, 'a>(
    root: &'t DeTable<'a>,
    key: &str,
    problems: &mut Vec<NotifyProblem>,
) -> &'t [Spanned<DeValue<'a>>] {
    let Some((found, value)) = root.iter().find(|(found, _)| found.get_ref() == key) else {
        return &[];
    };
    if let DeValue::Array(tables) = value.get_ref() {
        return tables;
    }
    let what = format!("{key} is not an array of tables; write [[{key}]]");
    problems.push(NotifyProblem { position: found.span().start, what });
    &[]
}

/// Reads a table; a problem if it is none, or has a problem.
pub(crate) fn read_table<T: DeserializeOwned>(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Vec<NotifyProblem>,
) -> Option<T> {
    let start = value.span().start;
    let Some(table) = value.get_ref().as_table() else {
        problems.push(NotifyProblem { position: start, what: format!("{key} is not a table") });
        return None;
    };
    let table = Spanned::new(value.span(), table.clone());
    match T::deserialize(Deserializer::from(table)) {
        Ok(read) => Some(read),
        Err(error) => {
            problems.push(NotifyProblem::of_toml(start, &error, &[]));
            None
        }
    }
}
