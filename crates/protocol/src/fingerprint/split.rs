//! Division of a text with several statements.

use super::SqlDialect;
use super::lexer::{SqlLexer, SqlTokenKind};

/// The first statement of a text, without semicolon and space around it, and the text after it. The
/// first is empty if there are only comments, space and semicolons.
///
/// A semicolon in parentheses (CREATE RULE) or between BEGIN ATOMIC and END (CREATE FUNCTION) does
/// not end a statement.
pub(crate) fn split_statement(text: &str, dialect: SqlDialect) -> (&str, &str) {
    let trimmed = text.trim_ascii();
    let body = trimmed.strip_suffix(';').unwrap_or(trimmed);
    let starts_with_word = body.starts_with(|first: char| first.is_ascii_alphanumeric());
    if starts_with_word && !body.as_bytes().contains(&b';') {
        return (body.trim_ascii_end(), "");
    }
    split_by_tokens(text, dialect)
}

fn split_by_tokens(text: &str, dialect: SqlDialect) -> (&str, &str) {
    let (mut start, mut is_empty) = (0, true);
    let (mut parentheses, mut blocks) = (0_u32, 0_u32);
    let mut is_begin_before = false;
    for token in SqlLexer::new(text, dialect) {
        match (token.kind, token.text) {
            (SqlTokenKind::Space | SqlTokenKind::Comment, _) => continue,
            (SqlTokenKind::Symbol, ";") if is_empty => {
                start = token.end;
                continue;
            }
            (SqlTokenKind::Symbol, ";") if parentheses == 0 && blocks == 0 => {
                return (text[start..token.end - 1].trim_ascii(), &text[token.end..]);
            }
            (SqlTokenKind::Symbol, "(") => parentheses += 1,
            (SqlTokenKind::Symbol, ")") => parentheses = parentheses.saturating_sub(1),
            (SqlTokenKind::Word, word) => {
                let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
                if is("atomic") && is_begin_before || blocks > 0 && is("case") {
                    blocks += 1;
                } else if blocks > 0 && is("end") {
                    blocks -= 1;
                }
            }
            _ => {}
        }
        is_begin_before = token.text.eq_ignore_ascii_case("begin");
        is_empty = false;
    }
    (if is_empty { "" } else { text[start..].trim_ascii() }, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let (mut rest, mut found) = (text, Vec::new());
        loop {
            let (statement, after) = split_statement(rest, SqlDialect::Postgres);
            if statement.is_empty() {
                break;
            }
            found.push(statement);
            rest = after;
        }
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn statements_are_divided() {
        check("select 1", &["select 1"]);
        check(" select 1 ; ", &["select 1"]);
        check("select 1;select ';';;-- c\n", &["select 1", "select ';'"]);
        check(";; /* a;b */ select 1; select $$;$$", &["/* a;b */ select 1", "select $$;$$"]);
        check(
            "create rule r as on insert to t do (a; b); c",
            &["create rule r as on insert to t do (a; b)", "c"],
        );
        check(
            "create function f() begin atomic select case 1 end; select 2; end; c",
            &["create function f() begin atomic select case 1 end; select 2; end", "c"],
        );
        check("begin; commit", &["begin", "commit"]);
        check("-- only a comment", &[]);
        check("", &[]);
    }
}
