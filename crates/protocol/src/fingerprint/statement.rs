//! Fingerprint of a statement.

use super::SqlDialect;
use super::lexer::{SqlLexer, SqlToken, SqlTokenKind};
use super::literal_list::LiteralLists;
use crate::observer::STATEMENT_BYTES_MAX;

/// Words after which a sign belongs to the number that follows.
const OPERATOR_WORDS: &[&str] = &[
    "and",
    "any",
    "between",
    "by",
    "case",
    "default",
    "else",
    "in",
    "interval",
    "like",
    "limit",
    "not",
    "offset",
    "on",
    "or",
    "return",
    "returning",
    "select",
    "set",
    "then",
    "values",
    "when",
    "where",
];

/// Writer of fingerprints, which reuses its memory.
#[derive(Debug, Default)]
pub struct StatementFingerprint {
    text: String,
    lists: LiteralLists,
}

/// What the last tokens were.
#[derive(Default)]
struct TokenContext<'a> {
    /// The last token, if it was a word.
    word: &'a str,
    /// Whether the last token ends an operand, so that a sign is an operator.
    is_operand: bool,
    /// Length of the text before a sign that may belong to a number.
    sign_start: Option<usize>,
    is_cast: bool,
}

impl StatementFingerprint {
    /// The fingerprint of a statement, of at most [`STATEMENT_BYTES_MAX`] bytes. Only the first
    /// [`STATEMENT_BYTES_MAX`] bytes of the statement are read.
    pub fn write(&mut self, statement: &str, dialect: SqlDialect) -> &str {
        let statement = &statement[..statement.floor_char_boundary(STATEMENT_BYTES_MAX)];
        self.text.clear();
        self.lists.clear();
        let mut number = 1 + last_placeholder(statement, dialect);
        let mut context = TokenContext::default();
        let mut has_space = false;
        for token in SqlLexer::new(statement, dialect) {
            if matches!(token.kind, SqlTokenKind::Space | SqlTokenKind::Comment) {
                has_space = true;
                continue;
            }
            let start = self.text.len();
            if std::mem::take(&mut has_space) && start > 0 {
                self.text.push(' ');
            }
            self.append(&token, start, &mut context, &mut number);
            if self.text.len() > STATEMENT_BYTES_MAX {
                self.text.truncate(start.min(STATEMENT_BYTES_MAX));
                break;
            }
        }
        let end = self.text.trim_end_matches([';', ' ']).len();
        self.text.truncate(end);
        &self.text
    }

    /// Appends a token. `start` is the length of the text before the space before it.
    fn append<'a>(
        &mut self,
        token: &SqlToken<'a>,
        start: usize,
        context: &mut TokenContext<'a>,
        number: &mut u32,
    ) {
        let sign_start = context.sign_start.take();
        let word = std::mem::take(&mut context.word);
        let was_cast = std::mem::take(&mut context.is_cast);
        let is_literal = is_literal(token, word);
        match (token.kind, token.text) {
            (SqlTokenKind::Symbol, "(" | "[" | ",") => {
                // The element ends before the space that was just appended.
                self.lists.open(token.text, word, &self.text[..start], *number);
                self.text.push_str(token.text);
                context.is_operand = false;
            }
            (SqlTokenKind::Symbol, ")" | "]") => {
                self.lists.close(token.text, &mut self.text, number);
                context.is_operand = true;
            }
            _ if is_literal => {
                self.lists.element(token, true, was_cast);
                if let Some(sign_start) = sign_start.filter(|_| !token.text.starts_with('\'')) {
                    self.text.truncate(sign_start);
                }
                self.text.push('$');
                push_number(*number, &mut self.text);
                *number += 1;
                context.is_operand = true;
            }
            (kind, text) => {
                context.is_cast = text == "::";
                self.lists.element(token, false, was_cast || context.is_cast);
                let may_be_sign = matches!(text, "-" | "+");
                if may_be_sign && (!context.is_operand || is_operator_word(word)) {
                    context.sign_start = Some(self.text.len());
                }
                self.text.push_str(text);
                context.is_operand = kind != SqlTokenKind::Symbol;
                if kind == SqlTokenKind::Word {
                    context.word = text;
                }
            }
        }
    }
}

/// Whether a token is a literal value: a literal, or a keyword that is one, but not as in
/// `IS NOT NULL`.
fn is_literal(token: &SqlToken<'_>, before: &str) -> bool {
    let is_keyword = || {
        let word = token.text;
        let is_value = ["null", "true", "false"].iter().any(|one| word.eq_ignore_ascii_case(one));
        is_value && !["is", "not", "set"].iter().any(|one| before.eq_ignore_ascii_case(one))
    };
    match token.kind {
        SqlTokenKind::Literal => true,
        SqlTokenKind::Word => matches!(token.text.len(), 4 | 5) && is_keyword(),
        _ => false,
    }
}

fn is_operator_word(word: &str) -> bool {
    (2..=9).contains(&word.len()) && OPERATOR_WORDS.iter().any(|one| word.eq_ignore_ascii_case(one))
}

/// The highest number of a placeholder `$1`.
fn last_placeholder(statement: &str, dialect: SqlDialect) -> u32 {
    if !statement.as_bytes().contains(&b'$') {
        return 0;
    }
    let placeholders = SqlLexer::new(statement, dialect)
        .filter(|token| token.kind == SqlTokenKind::Placeholder)
        .filter_map(|token| token.text.strip_prefix('$')?.parse().ok());
    // A higher number is none that a driver has written.
    placeholders.filter(|number| *number <= u32::from(u16::MAX)).max().unwrap_or(0)
}

fn push_number(number: u32, text: &mut String) {
    if number >= 10 {
        push_number(number / 10, text);
    }
    text.push(char::from(b'0' + (number % 10) as u8));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dialect: SqlDialect, statement: &str, expected: &str) {
        let mut fingerprint = StatementFingerprint::default();
        assert_eq!(fingerprint.write(statement, dialect), expected, "{statement}");
        // It is a fingerprint itself, unless a list is cut.
        if !expected.contains("...") {
            assert_eq!(fingerprint.write(expected, dialect), expected);
        }
    }

    #[test]
    fn literals_become_placeholders() {
        let check = |statement, expected| check(SqlDialect::Postgres, statement, expected);
        check("select 1", "select $1");
        check(
            "SELECT * FROM t WHERE a = 'x' AND b > 1.5;",
            "SELECT * FROM t WHERE a = $1 AND b > $2",
        );
        check("select $1, 'a', $2", "select $1, $3, $2");
        check(
            "update t set a = NULL where b is not null",
            "update t set a = $1 where b is not null",
        );
        check("select true, not false, a is true", "select $1, not false, a is true");
        check("select -1, a - 1, a -1, (-1), 2 * -1", "select $1, a - $2, a -$3, ($4), $5 * $6");
        check("select interval '1 day', x::numeric", "select interval $1, x::numeric");
        check("select -'1'::int", "select -$1::int");
        check("  select\n\t1 -- c\n + /* d */ 2 ; ", "select $1 + $2");
        check("select \"A b\", t1.c2 from s3.t4", "select \"A b\", t1.c2 from s3.t4");
        check("", "");
        check("-- only", "");
        check("select 'open", "select $1");
    }

    #[test]
    fn lists_have_one_element() {
        let check = |statement, expected| check(SqlDialect::Postgres, statement, expected);
        check(
            "select a from t where b in (1, 2,3) and c = 4",
            "select a from t where b in ($1, ...) and c = $2",
        );
        check("b IN (1)", "b IN ($1, ...)");
        check("b in ($1, $2, $3)", "b in ($1, ...)");
        check("b in ('a'::text, 'b'::text)", "b in ($1::text, ...)");
        check("(a, b) in ((1, 2), (3, 4))", "(a, b) in (($1, $2), ...)");
        check("b in (select 1)", "b in (select $1)");
        check("b in (f(1), 2)", "b in (f($1), $2)");
        check("b = any(array[1, -2]) or c = 1", "b = any(array[$1, ...]) or c = $2");
        check(
            "insert into t (a, b) values (1, 'x'), (2, 'y'), (3, default) returning 5",
            "insert into t (a, b) values ($1, $2), ... returning $3",
        );
        check(
            "insert into t values (1, now()), (2, now())",
            "insert into t values ($1, now()), ($2, now())",
        );
        check("insert into t values (1)", "insert into t values ($1)");
        check("values (1, 2), (3, 4)", "values ($1, $2), ...");
    }

    #[test]
    fn dialects_differ() {
        check(SqlDialect::Mysql, "select \"a\", `b` # c\n", "select $1, `b`");
        check(SqlDialect::Mysql, "a in (?, ?, ?) and b = ?", "a in (?, ...) and b = ?");
        check(SqlDialect::Mysql, "/*!40001 select 1 */", "select $1");
        let statement = "a = 123e4567-e89b-12d3-a456-426614174000 and b = 0xff // c";
        check(SqlDialect::Cql, statement, "a = $1 and b = $2");
        for (name, dialect) in [
            ("mysql", SqlDialect::Mysql),
            ("cassandra", SqlDialect::Cql),
            ("postgres", SqlDialect::Postgres),
        ] {
            assert_eq!(SqlDialect::of_protocol(name), dialect);
        }
    }

    #[test]
    fn fingerprints_are_bounded() {
        let mut fingerprint = StatementFingerprint::default();
        let statement = format!("select {}", "1+".repeat(STATEMENT_BYTES_MAX));
        let text = fingerprint.write(&statement, SqlDialect::Postgres);
        assert!(text.len() <= STATEMENT_BYTES_MAX && text.len() > STATEMENT_BYTES_MAX - 10);
        let deep = ["in (".repeat(3000), "1,2".to_owned(), ")".repeat(3000)].concat();
        let text = fingerprint.write(&deep, SqlDialect::Postgres);
        assert!(text.ends_with("))))"), "{text}");
    }
}
