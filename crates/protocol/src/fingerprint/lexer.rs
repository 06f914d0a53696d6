//! Lexer of SQL and CQL: divides any text into tokens without gaps. It never fails.

use super::SqlDialect;

/// Lexer of a statement.
#[derive(Clone, Debug)]
pub(super) struct SqlLexer<'a> {
    text: &'a str,
    dialect: SqlDialect,
    at: usize,
    /// Whether the next point or sign may belong to a number.
    is_operand_before: bool,
}

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SqlToken<'a> {
    pub(super) kind: SqlTokenKind,
    pub(super) text: &'a str,
    /// Offset of its end.
    pub(super) end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SqlTokenKind {
    Space,
    Comment,
    /// A keyword or a name without quotes.
    Word,
    QuotedName,
    /// A string, number or UUID.
    Literal,
    /// `$1`, `?`, `:name`.
    Placeholder,
    /// One other character.
    Symbol,
}

const UUID_BYTES: usize = 36;

impl<'a> SqlLexer<'a> {
    pub(super) fn new(text: &'a str, dialect: SqlDialect) -> SqlLexer<'a> {
        SqlLexer { text, dialect, at: 0, is_operand_before: false }
    }

    fn token(&mut self) -> (SqlTokenKind, usize) {
        let bytes = &self.text.as_bytes()[self.at..];
        let second = bytes.get(1).copied().unwrap_or(0);
        match bytes[0] {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => {
                let end =
                    bytes.iter().position(|byte| !byte.is_ascii_whitespace() && *byte != 0x0b);
                (SqlTokenKind::Space, end.unwrap_or(bytes.len()))
            }
            b'-' if second == b'-' && self.is_line_comment(bytes) => self.line_comment(bytes),
            b'#' if self.dialect == SqlDialect::Mysql => self.line_comment(bytes),
            b'/' if second == b'/' && self.dialect == SqlDialect::Cql => self.line_comment(bytes),
            b'/' if second == b'*' => (SqlTokenKind::Comment, self.block_comment(bytes)),
            // The end of a comment whose content MySQL executes.
            b'*' if second == b'/' && self.dialect == SqlDialect::Mysql => {
                (SqlTokenKind::Comment, 2)
            }
            b'\'' => {
                let has_escapes = self.dialect == SqlDialect::Mysql;
                (SqlTokenKind::Literal, quoted(bytes, b'\'', has_escapes))
            }
            b'"' if self.dialect == SqlDialect::Mysql => {
                (SqlTokenKind::Literal, quoted(bytes, b'"', true))
            }
            quote @ (b'"' | b'`') => quoted_name(bytes, quote),
            b'$' => self.dollar(bytes),
            b'?' => (SqlTokenKind::Placeholder, 1),
            b':' if second.is_ascii_alphabetic() || second == b'_' => {
                (SqlTokenKind::Placeholder, 1 + word_length(&bytes[1..]))
            }
            // `::` is a cast, and `:=` an assignment.
            b':' if matches!(second, b':' | b'=') => (SqlTokenKind::Symbol, 2),
            b'.' if second.is_ascii_digit() && !self.is_operand_before => {
                (SqlTokenKind::Literal, number_length(bytes))
            }
            _ if self.dialect == SqlDialect::Cql && is_uuid(bytes) => {
                (SqlTokenKind::Literal, UUID_BYTES)
            }
            b'0'..=b'9' => (SqlTokenKind::Literal, number_length(bytes)),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'@' | 0x80.. => self.word(bytes),
            _ => (SqlTokenKind::Symbol, 1),
        }
    }

    /// A word, or a string with a prefix.
    fn word(&self, bytes: &[u8]) -> (SqlTokenKind, usize) {
        let length = word_length(bytes);
        let (word, rest) = bytes.split_at(length);
        match (word, rest.first()) {
            (b"e" | b"E", Some(b'\'')) if self.dialect == SqlDialect::Postgres => {
                (SqlTokenKind::Literal, 1 + quoted(rest, b'\'', true))
            }
            (b"b" | b"B" | b"x" | b"X" | b"n" | b"N", Some(b'\'')) => {
                let has_escapes = self.dialect == SqlDialect::Mysql;
                (SqlTokenKind::Literal, 1 + quoted(rest, b'\'', has_escapes))
            }
            (b"u" | b"U", Some(b'&')) if rest.get(1) == Some(&b'\'') => {
                (SqlTokenKind::Literal, 2 + quoted(&rest[1..], b'\'', false))
            }
            (b"u" | b"U", Some(b'&')) if rest.get(1) == Some(&b'"') => {
                let (kind, length) = quoted_name(&rest[1..], b'"');
                (kind, 2 + length)
            }
            _ => (SqlTokenKind::Word, length),
        }
    }

    /// `$1`, or a string between dollars with a tag: `$a$...$a$`.
    fn dollar(&self, bytes: &[u8]) -> (SqlTokenKind, usize) {
        let digits = bytes[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 {
            return (SqlTokenKind::Placeholder, 1 + digits);
        }
        // MySQL has no strings between dollars.
        if self.dialect == SqlDialect::Mysql {
            return (SqlTokenKind::Symbol, 1);
        }
        let tag_bytes = word_length(&bytes[1..]);
        let is_quote = bytes.get(1 + tag_bytes) == Some(&b'$');
        // A dollar is part of a word, so that the tag may have swallowed the second one.
        let tag_end = bytes[1..=tag_bytes].iter().position(|byte| *byte == b'$').map(|at| at + 1);
        let Some(tag_end) = tag_end.or(is_quote.then_some(1 + tag_bytes)) else {
            return (SqlTokenKind::Symbol, 1);
        };
        let (tag, rest) = bytes.split_at(tag_end + 1);
        let end = rest.windows(tag.len()).position(|window| window == tag);
        (SqlTokenKind::Literal, end.map_or(bytes.len(), |end| 2 * tag.len() + end))
    }

    /// MySQL requires a space after `--`.
    fn is_line_comment(&self, bytes: &[u8]) -> bool {
        self.dialect != SqlDialect::Mysql
            || bytes.get(2).is_none_or(|byte| byte.is_ascii_whitespace() || *byte < b' ')
    }

    fn line_comment(&self, bytes: &[u8]) -> (SqlTokenKind, usize) {
        let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        (SqlTokenKind::Comment, end.unwrap_or(bytes.len()))
    }

    fn block_comment(&self, bytes: &[u8]) -> usize {
        let content = &bytes[2..];
        let has_mark = content.starts_with(b"!") || content.starts_with(b"M!");
        if self.dialect == SqlDialect::Mysql && has_mark {
            // MySQL executes the content: `/*!50001 ... */`, MariaDB `/*M!100100 ... */`.
            let is_executed = |byte: &&u8| matches!(byte, b'!' | b'M' | b'0'..=b'9');
            return 2 + content.iter().take_while(is_executed).count();
        }
        let (mut at, mut depth) = (2, 1);
        while let Some(pair) = bytes.get(at..at + 2) {
            match pair {
                b"*/" => {
                    (at, depth) = (at + 2, depth - 1);
                    if depth == 0 {
                        return at;
                    }
                }
                b"/*" if self.dialect == SqlDialect::Postgres => (at, depth) = (at + 2, depth + 1),
                _ => at += 1,
            }
        }
        bytes.len()
    }
}

impl<'a> Iterator for SqlLexer<'a> {
    type Item = SqlToken<'a>;

    fn next(&mut self) -> Option<SqlToken<'a>> {
        if self.at == self.text.len() {
            return None;
        }
        let (kind, length) = self.token();
        let mut end = self.at + length;
        // Tokens end at ASCII characters; an end inside another one would be a defect.
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        let token = SqlToken { kind, text: &self.text[self.at..end], end };
        self.at = end;
        match kind {
            SqlTokenKind::Space | SqlTokenKind::Comment => {}
            SqlTokenKind::Symbol => self.is_operand_before = matches!(token.text, ")" | "]"),
            _ => self.is_operand_before = true,
        }
        Some(token)
    }
}

/// Length of a quoted token; a doubled quote continues it. Without an end, all bytes.
fn quoted(bytes: &[u8], quote: u8, has_escapes: bool) -> usize {
    let mut at = 1;
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == quote || *byte == b'\\') {
        at += found + 1;
        if bytes[at - 1] == b'\\' {
            at += usize::from(has_escapes && at < bytes.len());
        } else if bytes.get(at) == Some(&quote) {
            at += 1;
        } else {
            return at;
        }
    }
    bytes.len()
}

/// A name in quotes; without an end it contains what follows, literals too.
fn quoted_name(bytes: &[u8], quote: u8) -> (SqlTokenKind, usize) {
    let length = quoted(bytes, quote, false);
    let quotes = bytes[..length].iter().filter(|byte| **byte == quote).count();
    let is_closed = quotes.is_multiple_of(2);
    (if is_closed { SqlTokenKind::QuotedName } else { SqlTokenKind::Literal }, length)
}

/// Whether a byte is part of a word. A table, because most bytes of a statement are.
const IS_WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        let one = byte as u8;
        table[byte] = one.is_ascii_alphanumeric() || matches!(one, b'_' | b'$' | b'@' | 0x80..);
        byte += 1;
    }
    table
};

fn word_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !IS_WORD[usize::from(*byte)]).unwrap_or(bytes.len())
}

/// Length of a number, with all letters that follow it.
fn number_length(bytes: &[u8]) -> usize {
    let mut at = 0;
    let mut is_decimal = true;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'e' | b'E' if is_decimal && matches!(bytes.get(at + 1), Some(b'+' | b'-')) => at += 1,
            b'.' if is_decimal && bytes.get(at + 1) != Some(&b'.') => {}
            b'0'..=b'9' => {}
            _ if byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80 => is_decimal = false,
            _ => break,
        }
        at += 1;
    }
    at
}

/// Whether a UUID starts here.
fn is_uuid(bytes: &[u8]) -> bool {
    let Some(text) = bytes.get(..UUID_BYTES) else { return false };
    let is_part = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.iter().enumerate().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens without space, divided by `|`; literals are in brackets, and comments in braces.
    #[track_caller]
    fn check(dialect: SqlDialect, text: &str, expected: &str) {
        let tokens = SqlLexer::new(text, dialect).filter_map(|token| match token.kind {
            SqlTokenKind::Space => None,
            SqlTokenKind::Literal => Some(format!("[{}]", token.text)),
            SqlTokenKind::Comment => Some(format!("{{{}}}", token.text)),
            _ => Some(token.text.to_owned()),
        });
        assert_eq!(tokens.collect::<Vec<_>>().join("|"), expected, "{text}");
    }

    #[test]
    fn postgres_quotes() {
        let check = |text, expected| check(SqlDialect::Postgres, text, expected);
        check("select 'it''s', \"a\"\"b\"", "select|['it''s']|,|\"a\"\"b\"");
        check(r"'\' = E'a\'b' = e'\\'", r"['\']|=|[E'a\'b']|=|[e'\\']");
        check(
            "U&'d\\0061' U&\"x\" b'01' X'1f' n'a'",
            "[U&'d\\0061']|U&\"x\"|[b'01']|[X'1f']|[n'a']",
        );
        check("$$a$b$$ $t$x$$y$t$ $1 a$b", "[$$a$b$$]|[$t$x$$y$t$]|$1|a$b");
        check("/* a /* b */ c */ x -- y\nz", "{/* a /* b */ c */}|x|{-- y}|z");
        check("'open", "['open]");
        check("$t$open", "[$t$open]");
        // Literals follow in a name without an end.
        check("\"a from t where b='c'", "[\"a from t where b='c']");
        check("U&\"a b='c'", "[U&\"a b='c']");
        check("a /* open", "a|{/* open}");
        check("\u{e9}t\u{e9} 'd\u{e9}'", "\u{e9}t\u{e9}|['d\u{e9}']");
    }

    #[test]
    fn numbers() {
        let check = |text, expected| check(SqlDialect::Postgres, text, expected);
        check("1 1.5 = .5 1e-5 0x1F 1_000 t.5", "[1]|[1.5]|=|[.5]|[1e-5]|[0x1F]|[1_000]|t|.|[5]");
        check("1..10 a[1:2] 123abc", "[1]|.|[.10]|a|[|[1]|:|[2]|]|[123abc]");
        check("x::int y:=1 :name", "x|::|int|y|:=|[1]|:name");
        check("a1 = 5-3", "a1|=|[5]|-|[3]");
    }

    #[test]
    fn mysql_quotes() {
        let check = |text, expected| check(SqlDialect::Mysql, text, expected);
        check("select \"a\\\"b\", `c``d`, 'e\\'f'", "select|[\"a\\\"b\"]|,|`c``d`|,|['e\\'f']");
        check("a # b\nc -- d\n5--3", "a|{# b}|c|{-- d}|[5]|-|-|[3]");
        check("/*!50001 select 'a' */ 1", "{/*!50001}|select|['a']|{*/}|[1]");
        check("/*!50001 a */", "{/*!50001}|a|{*/}");
        check("/*M!100100 a */", "{/*M!100100}|a|{*/}");
        check("/*Model's id=7*/ b", "{/*Model's id=7*/}|b");
        check("`a b='c'", "[`a b='c']");
        check("$$ $a$", "$|$|$|a$");
        check("_utf8'a' @v @@global.x", "_utf8|['a']|@v|@@global|.|x");
    }

    #[test]
    fn cql_literals() {
        let check = |text: &str, expected: &str| check(SqlDialect::Cql, text, expected);
        let id = "e23e4567-e89b-12d3-a456-426614174000";
        check(&format!("id = {id} // c"), &format!("id|=|[{id}]|{{// c}}"));
        check("0xCAFE 12h30m \"Name\"", "[0xCAFE]|[12h30m]|\"Name\"");
    }
}
