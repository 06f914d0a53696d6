//! Span names without the ids and literals that some instrumentations put into them.
//!
//! A name is templated word by word as the path of a URL (`GET /users/123` is `GET /users/{n}`),
//! and one that begins like a statement as a statement (`select * from t where id = 7`).

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use protocol::fingerprint::{RouteTemplates, SqlDialect, StatementFingerprint};

/// Maximum length of a name in bytes; longer ones are cut. Fingerprints of statements are long.
const NAME_BYTES_MAX: usize = 512;
/// Names that are shorter, and have none of the characters of [`is_template`], have no ids.
const TOKEN_BYTES_MIN: usize = 64;
/// First words of statements that may have literals.
const STATEMENT_WORDS: [&str; 6] = ["select", "insert", "update", "delete", "merge", "with"];

/// Writer of templates, which reuses its memory.
#[derive(Default)]
pub(super) struct SpanNameTemplates {
    routes: RouteTemplates,
    statement: StatementFingerprint,
    word: String,
}

impl SpanNameTemplates {
    /// Replaces `template` by that of a name. `dialect` is the one if the name is a statement.
    pub(super) fn write(&mut self, name: &str, dialect: SqlDialect, template: &mut String) {
        template.clear();
        if is_template(name) {
            template.push_str(name);
        } else if is_statement(name) {
            template.push_str(self.statement.write(name, dialect));
        } else {
            // What is cut off anyway needs no template.
            let read = &name[..name.floor_char_boundary(2 * NAME_BYTES_MAX)];
            for (at, word) in read.split(' ').enumerate() {
                if at > 0 {
                    template.push(' ');
                }
                self.routes.write(without_query(word), &mut self.word);
                template.push_str(&self.word);
            }
        }
        template.truncate(template.floor_char_boundary(NAME_BYTES_MAX));
    }
}

/// Whether a name has no part that a template replaces.
fn is_template(name: &str) -> bool {
    let is_plain = |byte: u8| !byte.is_ascii_digit() && !b"@%?'\"#".contains(&byte);
    name.len() < TOKEN_BYTES_MIN && name.bytes().all(is_plain)
}

/// Whether a name begins like a statement. `DELETE /users/1` is a request.
pub(super) fn is_statement(name: &str) -> bool {
    let mut words = name.split_ascii_whitespace();
    let is_first = words
        .next()
        .is_some_and(|word| STATEMENT_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known)));
    is_first && words.next().is_some_and(|word| !word.starts_with('/') && !word.contains("://"))
}

/// The path of a URL without its query and fragment.
fn without_query(word: &str) -> &str {
    match word.contains('/') {
        true => word.split(['?', '#']).next().unwrap_or_default(),
        false => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: &str) {
        let mut template = "before".to_owned();
        SpanNameTemplates::default().write(name, SqlDialect::Postgres, &mut template);
        assert_eq!(template, expected);
    }

    #[test]
    fn ids_are_replaced() {
        for (name, expected) in [
            ("GET /users/{id}", "GET /users/{id}"),
            ("GET /users/123", "GET /users/{n}"),
            ("/users/123/", "/users/{n}/"),
            ("GET /api/v1/users?page=2#top", "GET /api/v1/users"),
            ("DELETE /users/7", "DELETE /users/{n}"),
            ("update https://a.example/b/17", "update https://a.example/b/{n}"),
            ("HGET user:123", "HGET user:{n}"),
            ("S3.PutObject", "S3.PutObject"),
            ("checkout", "checkout"),
            ("job 9fceb02d0ae598e95dc970b74767f19372d61af8", "job {hex}"),
            ("mail a@b.example", "mail {token}"),
            ("what?", "what?"),
            ("", ""),
            ("SELECT shop.orders", "SELECT shop.orders"),
            ("select * from t where id = 7", "select * from t where id = $1"),
            ("INSERT INTO t VALUES ('a', 2)", "INSERT INTO t VALUES ($1, $2)"),
            ("select 5", "select $1"),
        ] {
            check(name, expected);
        }
    }

    #[test]
    fn literals_follow_the_dialect() {
        let mut template = String::new();
        let name = "select \"a\" from t";
        let mut templates = SpanNameTemplates::default();
        templates.write(name, SqlDialect::Mysql, &mut template);
        assert_eq!(template, "select $1 from t");
        templates.write(name, SqlDialect::Postgres, &mut template);
        assert_eq!(template, name);
    }

    #[test]
    fn long_names_are_cut() {
        check(&"é/".repeat(10_000), &format!("{}{{rest*}}", "é/".repeat(33)));
        let words = "é ".repeat(10_000);
        check(&words, &words[..NAME_BYTES_MAX]);
    }
}
