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
        let what = match error.message() {
            "invalid socket address syntax" => {
                "expected an IP address and a port, as in \"127.0.0.1:7717\"".to_owned()
            }
            message => with_nearest(message),
        };
        let problem = match error.span() {
            Some(span) => Problem::at(text, span.start, what),
            None => Problem::without_position(what),
        };
        Problems { file: None, all: vec![problem] }
    }
}

impl Problem {
    /// A problem without a position in the file.
    pub(crate) fn without_position(what: String) -> Problem {
        Problem { line: None, source_line: None, what }
    }

    /// A problem at a byte of the text.
    pub(crate) fn at(text: &str, byte: usize, what: String) -> Problem {
        let before = text.get(..byte).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[start..].chars().count() + 1;
        let source_line = text[start..].lines().next().unwrap_or("").to_owned();
        Problem { line: Some(line), source_line: Some((column, source_line)), what }
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

/// Rewrites serde's "unknown field `x`, expected one of `a`, `b`" with the nearest key.
fn with_nearest(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let Some(found) = quoted.next().filter(|_| message.starts_with("unknown field")) else {
        return message.to_owned();
    };
    unknown_key(found, &quoted.collect::<Vec<_>>())
}

/// Message for an unknown key with the nearest known one.
pub(crate) fn unknown_key(found: &str, known: &[&str]) -> String {
    let nearest = known.iter().min_by_key(|known| distance(found, known));
    let nearest_key =
        nearest.filter(|known| distance(found, known) <= 1 + found.chars().count() / 3);
    match nearest_key {
        Some(nearest_key) => format!("unknown key {found:?}; did you mean {nearest_key:?}?"),
        None => format!("unknown key {found:?}; known keys: {}", known.join(", ")),
    }
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
        let check = |message: &str, shown: &str| assert_eq!(with_nearest(message), shown);
        check(
            "unknown field `lisen`, expected one of `listen`, `limits`",
            "unknown key \"lisen\"; did you mean \"listen\"?",
        );
        check(
            "unknown field `colour`, expected `listen` or `limits`",
            "unknown key \"colour\"; known keys: listen, limits",
        );
        check("invalid type", "invalid type");
        assert_eq!(
            (distance("kitten", "sitting"), distance("", "ab"), distance("a", "a")),
            (3, 2, 0)
        );
    }
}
