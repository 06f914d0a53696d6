//! Problems of settings: message, location, suggested key.

use std::fmt;
use std::path::{Path, PathBuf};

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Line number from 1, if known.
    line: Option<usize>,
    /// Column from 1 in characters, and the source line.
    source_line: Option<(usize, String)>,
    what: String,
    /// The first byte of the key or value, if known.
    pub(crate) byte: Option<usize>,
    pub(crate) cause: ProblemCause,
}

/// What is wrong, as far as it matters for what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProblemCause {
    InvalidValue,
    UnknownKey { nearest: Option<String> },
    MissingKey { key: String },
}

/// All problems of a settings file. Its text has a line for each problem, followed by the source
/// line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    file: Option<PathBuf>,
    all: Vec<Problem>,
}

impl Problems {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn push(&mut self, problem: Problem) {
        self.all.push(problem);
    }

    /// Adds the problems of another part of the file.
    pub fn extend(&mut self, other: Problems) {
        self.all.extend(other.all);
    }

    /// The first problem of each line: a syntax error often causes others after it.
    pub(crate) fn first_of_lines(self) -> Problems {
        let mut problems = self.sorted();
        problems.all.dedup_by_key(|problem| problem.line);
        problems
    }

    /// Whether the source line of any problem meets a condition.
    pub(crate) fn any_line(&self, condition: impl Fn(&str) -> bool) -> bool {
        let mut lines = self.all.iter().filter_map(|problem| problem.source_line.as_ref());
        lines.any(|(_, line)| condition(line))
    }

    /// Adds the problems of other lines: what follows a syntax error in its line is not known.
    pub fn extend_other_lines(&mut self, other: Problems) {
        let lines: Vec<usize> = self.all.iter().filter_map(|problem| problem.line).collect();
        let is_other = |line: &usize| !lines.contains(line);
        let other = other.all.into_iter();
        self.all.extend(other.filter(|problem| problem.line.as_ref().is_none_or(is_other)));
    }

    /// All problems.
    pub(crate) fn into_vec(self) -> Vec<Problem> {
        self.all
    }

    /// Sorts the problems by line.
    pub fn sorted(mut self) -> Problems {
        self.all.sort_by_key(|problem| problem.line);
        self
    }

    /// A problem of the file as a whole.
    pub fn of_file(path: &Path, what: String) -> Problems {
        let problem = Problem::without_position(what);
        Problems { file: Some(path.to_owned()), all: vec![problem] }
    }

    /// Prefixes each line with the file's name.
    pub fn in_file(mut self, path: &Path) -> Problems {
        self.file = Some(path.to_owned());
        self
    }

    pub(crate) fn of_toml(text: &str, error: &toml::de::Error) -> Problems {
        let (what, cause) = match error.message() {
            "invalid socket address syntax" => {
                let what = "expected an IP address and a port, as in \"127.0.0.1:7717\"";
                (what.to_owned(), ProblemCause::InvalidValue)
            }
            message => match list_expected(message) {
                Some(what) => (what, ProblemCause::InvalidValue),
                None => cause_of(message),
            },
        };
        let problem = match error.span() {
            Some(span) => Problem::at(text, span.start, what),
            None => Problem::without_position(what),
        };
        Problems { file: None, all: vec![Problem { cause, ..problem }] }
    }
}

/// Text of a value where a list is expected: a single text lacks only the brackets.
fn list_expected(message: &str) -> Option<String> {
    let found = message.strip_prefix("invalid type: ")?.strip_suffix(", expected a sequence")?;
    Some(match found.strip_prefix("string ") {
        Some(text) => format!("found the text {text}, expected a list, as in [{text}]"),
        None => format!("found {found}, expected a list in brackets"),
    })
}

impl Problem {
    /// A problem without a position in the file.
    pub(crate) fn without_position(what: String) -> Problem {
        let cause = ProblemCause::InvalidValue;
        Problem { line: None, source_line: None, what, byte: None, cause }
    }

    /// An unknown key.
    pub(crate) fn unknown_key(text: &str, byte: usize, found: &str, known: &[&str]) -> Problem {
        let cause =
            ProblemCause::UnknownKey { nearest: nearest_key(found, known).map(str::to_owned) };
        Problem { cause, ..Problem::at(text, byte, unknown_key(found, known)) }
    }

    /// A problem at a byte of the text.
    pub(crate) fn at(text: &str, byte: usize, what: String) -> Problem {
        let before = text.get(..byte).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[start..].chars().count() + 1;
        let source_line = text[start..].lines().next().unwrap_or("").to_owned();
        Problem {
            line: Some(line),
            source_line: Some((column, source_line)),
            what,
            byte: Some(byte),
            cause: ProblemCause::InvalidValue,
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        for (at, problem) in self.all.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            if let Some(file) = &file {
                write!(f, "{file}")?;
                match problem.line {
                    Some(line) => write!(f, ":{line}: ")?,
                    None => f.write_str(": ")?,
                }
            } else if let Some(line) = problem.line {
                write!(f, "line {line}: ")?;
            }
            f.write_str(&problem.what)?;
            if let Some((column, line)) = &problem.source_line {
                // Tabs are kept, so that the marker lines up with the source line.
                let blank: String = line
                    .chars()
                    .take(column - 1)
                    .map(|c| if c == '\t' { c } else { ' ' })
                    .collect();
                write!(f, "\n  | {line}\n  | {blank}^")?;
            }
        }
        Ok(())
    }
}

/// Rewrites serde's "unknown field `x`, expected one of `a`, `b`" with the nearest key, and
/// "missing field `x`" with what to do.
fn cause_of(message: &str) -> (String, ProblemCause) {
    let mut quoted = message.split('`').skip(1).step_by(2);
    match quoted.next() {
        Some(found) if message.starts_with("unknown field") => {
            let known: Vec<&str> = quoted.collect();
            let nearest = nearest_key(found, &known).map(str::to_owned);
            (unknown_key(found, &known), ProblemCause::UnknownKey { nearest })
        }
        Some(key) if message.starts_with("missing field") => {
            let what = format!("missing key {key:?}; add it to this table");
            (what, ProblemCause::MissingKey { key: key.to_owned() })
        }
        _ => {
            let is_rust_type = |word: &str| matches!(word, "usize" | "u64" | "u32");
            let what = match message.rsplit_once(" expected ") {
                Some((found, last)) if is_rust_type(last) => {
                    format!("{found} expected a whole number")
                }
                _ => message.to_owned(),
            };
            (what, ProblemCause::InvalidValue)
        }
    }
}

/// Message for an unknown key with the nearest known one.
fn unknown_key(found: &str, known: &[&str]) -> String {
    match nearest_key(found, known) {
        Some(nearest) => format!("unknown key {found:?}; did you mean {nearest:?}?"),
        None => format!("unknown key {found:?}; known keys: {}", known.join(", ")),
    }
}

fn nearest_key<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    let nearest = known.iter().min_by_key(|known| distance(found, known))?;
    (distance(found, nearest) <= 1 + found.chars().count() / 3).then_some(nearest)
}

/// Levenshtein distance: letters to change, insert or delete.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_named() {
        let check = |message: &str, shown: &str| assert_eq!(cause_of(message).0, shown);
        check(
            "unknown field `lisen`, expected one of `listen`, `limits`",
            "unknown key \"lisen\"; did you mean \"listen\"?",
        );
        check(
            "unknown field `colour`, expected `listen` or `limits`",
            "unknown key \"colour\"; known keys: listen, limits",
        );
        check("missing field `url`", "missing key \"url\"; add it to this table");
        check("invalid type", "invalid type");
        check("string \"a\", expected usize", "string \"a\", expected a whole number");
        assert_eq!(
            (distance("kitten", "sitting"), distance("", "ab"), distance("a", "a")),
            (3, 2, 0)
        );
    }
}
