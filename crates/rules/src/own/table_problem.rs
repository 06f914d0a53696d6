//! Problems of the tables of a rule file, each at a byte of it.

use decode::{DURATION_EXPECTED, parse_duration};
use toml::Spanned;

/// Problem at a byte of the file.
#[derive(Debug)]
pub(super) struct TableProblem {
    pub(super) byte: usize,
    pub(super) message: String,
}

pub(super) type TableResult<T> = Result<T, TableProblem>;

pub(super) fn problem<T, V>(at: &Spanned<V>, message: impl Into<String>) -> TableResult<T> {
    Err(TableProblem { byte: at.span().start, message: message.into() })
}

/// The value, if there is no problem.
pub(super) fn keep<T>(result: TableResult<T>, problems: &mut Vec<TableProblem>) -> Option<T> {
    result.map_err(|problem| problems.push(problem)).ok()
}

pub(super) fn duration(written: &Spanned<String>) -> TableResult<i64> {
    let text = written.get_ref();
    match parse_duration(text) {
        Some(ns) => Ok(ns),
        None => problem(written, format!("found {text:?}, {DURATION_EXPECTED}")),
    }
}

pub(super) fn nearest_name<'a>(
    found: &str,
    known: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let max = 1 + found.chars().count().min(40) / 3;
    let near = known.filter_map(|name| {
        let distance = query::edit_distance(found, name, max)?;
        Some((distance, name))
    });
    near.min().map(|(_, name)| name)
}

/// `unknown statistic "rat"; did you mean "rate"?`.
pub(super) fn unknown_name(what: &str, found: &str, known: &[&str]) -> String {
    match nearest_name(found, known.iter().copied()) {
        Some(name) => format!("unknown {what} {found:?}; did you mean {name:?}?"),
        None => format!("unknown {what} {found:?}; known: {}", known.join(", ")),
    }
}
