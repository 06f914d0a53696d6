//! CAQL lexer: one token at a time.
//!
//! Whitespace and `//` comments separate tokens. A duration is one token with all its elements,
//! `1d 6h`. A sign is a separate token: the parser knows from the preceding token whether it
//! belongs to a number.

use crate::error::{Error, Result, SourceSpan};

/// Token with its span.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CaqlToken<'a> {
    pub(super) kind: CaqlTokenKind<'a>,
    pub(super) span: SourceSpan,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum CaqlTokenKind<'a> {
    /// Name with its colons, as written; also keywords of operators and constants.
    Name(&'a str),
    Number(f64),
    /// Duration in nanoseconds.
    Duration(i64),
    /// String literal, decoded.
    String(String),
    Symbol(&'static str),
    End,
}

/// Symbols, longer ones first.
const SYMBOLS: [&str; 19] = [
    "==", ">=", "<=", "=", ">", "<", "|", "+", "-", "%", "*", "/", "^", "!", "(", ")", "{", "}",
    ",",
];

/// Symbols of other languages and their CAQL equivalents.
const FOREIGN: [(&str, &str); 6] = [
    ("!=", "`!=` is not an operator; write not (a == b)"),
    ("<>", "`<>` is not an operator; write not (a == b)"),
    ("||", "`||` is not an operator; write or, or | for a pipe"),
    ("&&", "`&&` is not an operator; write and"),
    ("=~", "`=~` is not an operator; use a tag search in find, such as and(host:/^web/)"),
    ("/*", "block comments are not supported; a comment is // to the end of the line"),
];

const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;
const HOUR_NS: i64 = 60 * MINUTE_NS;
const DAY_NS: i64 = 24 * HOUR_NS;
const WEEK_NS: i64 = 7 * DAY_NS;

/// Units from the longest, with their text.
pub(super) const UNITS: [(i64, &str); 5] =
    [(WEEK_NS, "w"), (DAY_NS, "d"), (HOUR_NS, "h"), (MINUTE_NS, "m"), (SECOND_NS, "s")];

fn unit_ns(word: &str) -> Option<i64> {
    Some(match word {
        "s" | "sec" | "second" | "seconds" => SECOND_NS,
        "m" | "M" | "min" | "minute" | "minutes" => MINUTE_NS,
        "h" | "hr" | "hour" | "hours" => HOUR_NS,
        "d" | "day" | "days" => DAY_NS,
        "w" | "wk" | "week" | "weeks" => WEEK_NS,
        _ => return None,
    })
}

pub(super) struct CaqlLexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> CaqlLexer<'a> {
    /// Lexer that starts at a byte offset, which is on a character boundary.
    pub(super) fn new(text: &'a str, at: usize) -> CaqlLexer<'a> {
        CaqlLexer { text, at }
    }

    pub(super) fn next(&mut self) -> Result<CaqlToken<'a>> {
        self.skip_blanks_and_comments();
        let start = self.at;
        let Some(first) = self.peek() else {
            return Ok(CaqlToken { kind: CaqlTokenKind::End, span: SourceSpan::new(start, start) });
        };
        let kind = match first {
            '0'..='9' => self.number_or_duration()?,
            'p' if self.rest()[1..].starts_with(is_quote) => {
                self.at += 1;
                CaqlTokenKind::String(self.decoded_string(start)?)
            }
            c if is_quote(c) => CaqlTokenKind::String(self.string_in_quotes()?.to_owned()),
            'a'..='z' | 'A'..='Z' | '_' => CaqlTokenKind::Name(self.name()?),
            _ => CaqlTokenKind::Symbol(self.symbol()?),
        };
        Ok(CaqlToken { kind, span: SourceSpan::new(start, self.at) })
    }

    /// Byte offset of the next character.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// Lexer of the same text at another byte offset.
    pub(super) fn with_offset(&self, at: usize) -> CaqlLexer<'a> {
        CaqlLexer { text: self.text, at }
    }

    // Whitespace.

    pub(super) fn skip_blanks_and_comments(&mut self) {
        loop {
            self.skip_blanks();
            if !self.rest().starts_with("//") {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    // Names and symbols.

    fn name(&mut self) -> Result<&'a str> {
        let start = self.at;
        loop {
            self.at += run(self.rest(), |c| c.is_ascii_alphanumeric() || c == '_');
            let colons = run(self.rest(), |c| c == ':');
            if colons == 0 {
                return Ok(&self.text[start..self.at]);
            }
            let after = &self.rest()[colons..];
            if colons > 2 || !after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                let name = &self.text[start..self.at];
                let message = format!("expected a name after `{name}:`, as in histogram:merge");
                return Err(self.error(self.at, self.at + colons, message));
            }
            self.at += colons;
        }
    }

    /// Reads a name for directives; empty if there is none.
    pub(super) fn word(&mut self) -> &'a str {
        let len = run(self.rest(), |c| c.is_ascii_alphanumeric() || c == '_');
        self.at += len;
        &self.text[self.at - len..self.at]
    }

    pub(super) fn take(&mut self, symbol: &str) -> bool {
        let is_there = self.rest().starts_with(symbol);
        self.at += if is_there { symbol.len() } else { 0 };
        is_there
    }

    fn symbol(&mut self) -> Result<&'static str> {
        let start = self.at;
        let starts = |symbol: &str| self.rest().starts_with(symbol);
        if let Some((foreign, message)) = FOREIGN.into_iter().find(|(foreign, _)| starts(foreign)) {
            return Err(self.error(start, start + foreign.len(), message));
        }
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| starts(symbol)) {
            self.at += symbol.len();
            return Ok(symbol);
        }
        let found = self.peek().unwrap_or_default();
        let end = start + found.len_utf8();
        let message = match found {
            '.' => "a number starts with a digit; write 0.5, not .5".to_owned(),
            '#' => "directives must precede the expression".to_owned(),
            ';' => "unexpected `;`: a query is one expression".to_owned(),
            '[' => "unexpected `[`; write window:sum(5m) or rolling:sum(5m) for a time range"
                .to_owned(),
            c => format!("unexpected `{}`", c.escape_debug()),
        };
        Err(self.error(start, end, message))
    }

    // Numbers.

    fn number_or_duration(&mut self) -> Result<CaqlTokenKind<'a>> {
        let start = self.at;
        let Some(mut total) = self.element()? else {
            let written = &self.text[start..self.at];
            let number: f64 = written.parse().unwrap_or(f64::INFINITY);
            if !number.is_finite() {
                return Err(self.error(start, self.at, "number exceeds the range of a double"));
            }
            return Ok(CaqlTokenKind::Number(number));
        };
        loop {
            let end = self.at;
            self.skip_blanks();
            let next = if self.peek().is_some_and(|c| c.is_ascii_digit()) {
                self.element()?
            } else {
                None
            };
            let Some(next) = next else {
                self.at = end;
                return Ok(CaqlTokenKind::Duration(total));
            };
            total = total.checked_add(next).ok_or_else(|| self.too_long(start))?;
        }
    }

    /// Reads a number and, if a unit follows, its nanoseconds. A number without a unit is left to
    /// the caller.
    fn element(&mut self) -> Result<Option<i64>> {
        let start = self.at;
        let digits = |c: char| c.is_ascii_digit();
        self.at += run(self.rest(), digits);
        let literal = &self.text[start..self.at];
        let mut fraction = "";
        if let Some(after) = self.rest().strip_prefix('.') {
            let len = run(after, digits);
            fraction = &after[..len];
            self.at += 1 + len;
            if len == 0 || self.rest().starts_with('.') {
                let end = self.at + usize::from(len > 0);
                return Err(self.error(
                    start,
                    end,
                    "a decimal point needs digits on both sides, as in 1.5",
                ));
            }
        }
        let unit_start = self.at;
        let word = &self.rest()[..run(self.rest(), |c| c.is_alphabetic() || c == '_')];
        if word.is_empty() {
            return Ok(None);
        }
        let Some(unit) = unit_ns(word) else {
            let end = unit_start + word.len();
            let is_exponent = matches!(word, "e" | "E");
            let message = if is_exponent {
                "exponents are not supported; write all digits".to_owned()
            } else {
                format!("unknown unit `{word}`; use s, m, h, d or w")
            };
            return Err(self.error(if is_exponent { start } else { unit_start }, end, message));
        };
        self.at += word.len();
        let literal = literal.parse::<i64>().ok().and_then(|literal| literal.checked_mul(unit));
        // Digits after the sixteenth are less than a nanosecond of a week.
        let digits: i64 = fraction.get(..fraction.len().min(16)).unwrap_or("").parse().unwrap_or(0);
        let scale = 10_i128.pow(fraction.len().min(16) as u32);
        let part = (i128::from(digits) * i128::from(unit) / scale) as i64;
        literal
            .and_then(|literal| literal.checked_add(part))
            .map(Some)
            .ok_or_else(|| self.too_long(start))
    }

    /// Reads a number of seconds or a duration without spaces, for directives.
    pub(super) fn seconds_or_duration(&mut self) -> Result<Option<i64>> {
        let start = self.at;
        if !self.peek().is_some_and(|c| c.is_ascii_digit()) {
            return Ok(None);
        }
        if let Some(mut ns) = self.element()? {
            while self.peek().is_some_and(|c| c.is_ascii_digit()) {
                let next = self.element()?;
                ns = next
                    .and_then(|next| ns.checked_add(next))
                    .ok_or_else(|| self.error(start, self.at, "duration without a unit"))?;
            }
            return Ok(Some(ns));
        }
        let seconds: f64 = self.text[start..self.at].parse().unwrap_or(f64::INFINITY);
        // Above a century, the number of nanoseconds may exceed an i64.
        Ok((seconds <= 3.2e9).then(|| (seconds * SECOND_NS as f64).round() as i64))
    }

    fn too_long(&self, start: usize) -> Error {
        self.error(start, self.at, "duration exceeds 292 years")
    }

    // Strings.

    pub(super) fn string_in_quotes(&mut self) -> Result<&'a str> {
        let start = self.at;
        let open = self.peek().unwrap_or_default();
        self.at += open.len_utf8();
        let inner = self.rest();
        let Some((len, close)) = inner.char_indices().find(|(_, c)| is_closing(open, *c)) else {
            let quote = if DOUBLE_QUOTES.contains(&open) { '"' } else { '\'' };
            let message = format!("unterminated string: missing {quote}");
            return Err(self.error(start, start + open.len_utf8(), message));
        };
        self.at += len + close.len_utf8();
        Ok(&inner[..len])
    }

    /// `p"…"`: percent codes are bytes, as in RFC 3986.
    fn decoded_string(&mut self, start: usize) -> Result<String> {
        let inner_start = self.at + self.peek().map_or(0, char::len_utf8);
        let inner = self.string_in_quotes()?;
        let mut out = Vec::with_capacity(inner.len());
        let mut rest = inner;
        while let Some(at) = rest.find('%') {
            out.extend_from_slice(&rest.as_bytes()[..at]);
            let code = rest.get(at + 1..at + 3);
            let code = code.filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) else {
                let position = inner_start + inner.len() - rest.len() + at;
                let message = "invalid percent code in p\"…\": two hexadecimal digits follow %; a \
                               literal % is %25";
                return Err(self.error(position, position + 1, message));
            };
            out.push(byte);
            rest = &rest[at + 3..];
        }
        out.extend_from_slice(rest.as_bytes());
        String::from_utf8(out)
            .map_err(|_| self.error(start, self.at, "the decoded string is not UTF-8"))
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn error(&self, start: usize, end: usize, message: impl Into<String>) -> Error {
        Error::Parse { span: SourceSpan::new(start, end), message: message.into() }
    }
}

/// Plain quote and its typographic forms.
const DOUBLE_QUOTES: [char; 5] = ['"', '“', '”', '„', '‟'];
const SINGLE_QUOTES: [char; 5] = ['\'', '‘', '’', '‚', '‛'];

pub(super) fn is_quote(c: char) -> bool {
    DOUBLE_QUOTES.contains(&c) || SINGLE_QUOTES.contains(&c)
}

/// A plain quote ends with the same; a typographic one with any of its kind, since word processors
/// mix them.
fn is_closing(open: char, c: char) -> bool {
    match open {
        '"' | '\'' => c == open,
        open if DOUBLE_QUOTES.contains(&open) => DOUBLE_QUOTES.contains(&c),
        _ => SINGLE_QUOTES.contains(&c),
    }
}

/// Bytes of the longest prefix of such characters.
fn run(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_part(c)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens of a text; for an error, the message and its span.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut lexer = CaqlLexer::new(text, 0);
        let mut found = Vec::new();
        loop {
            match lexer.next() {
                Ok(CaqlToken { kind: CaqlTokenKind::End, .. }) => break,
                Ok(CaqlToken { kind, .. }) => found.push(match kind {
                    CaqlTokenKind::Name(name) => name.to_owned(),
                    CaqlTokenKind::Number(number) => number.to_string(),
                    CaqlTokenKind::Duration(ns) => format!("{}s", ns as f64 / 1e9),
                    CaqlTokenKind::String(text) => format!("<{text}>"),
                    CaqlTokenKind::Symbol(symbol) => symbol.to_owned(),
                    CaqlTokenKind::End => String::new(),
                }),
                Err(error) => {
                    let span = error.span().unwrap();
                    found.push(format!("[{}] {error}", &text[span.start..span.end]));
                    break;
                }
            }
        }
        assert_eq!(found.join(" "), expected, "{text}");
    }

    #[test]
    fn names() {
        check("find", "find");
        check("histogram:count_above(1)", "histogram:count_above ( 1 )");
        check("graphite:find::average{}", "graphite:find::average { }");
        check("p", "p");
        check("pass{p}", "pass { p }");
        check("find:(", "[:] expected a name after `find:`, as in histogram:merge");
        check("a:::b", "[:::] expected a name after `a:`, as in histogram:merge");
    }

    #[test]
    fn numbers() {
        check("12 1.5 007", "12 1.5 7");
        check("1-2", "1 - 2");
        check("+5 -5", "+ 5 - 5");
        check("1e5", "[1e] exponents are not supported; write all digits");
        check(".5", "[.] a number starts with a digit; write 0.5, not .5");
        check("1.", "[1.] a decimal point needs digits on both sides, as in 1.5");
        check("1.2.3", "[1.2.] a decimal point needs digits on both sides, as in 1.5");
        let digits = "9".repeat(400);
        check(&digits, &format!("[{digits}] number exceeds the range of a double"));
    }

    #[test]
    fn durations() {
        check("5s 5sec", "10s");
        check("1second, 2seconds", "1s , 2s");
        check("1m,1M,1min,1minute,2minutes", "60s , 60s , 60s , 60s , 120s");
        check("1h,1hr,1hour,2hours", "3600s , 3600s , 3600s , 7200s");
        check("1d,1day,2days", "86400s , 86400s , 172800s");
        check("1w,1wk,1week,2weeks", "604800s , 604800s , 604800s , 1209600s");
        check("1d 6h", "108000s");
        check("1h30m", "5400s");
        check("1.5h", "5400s");
        check("0.25s", "0.25s");
        check("1m 5", "60s 5");
        check("90s | f", "90s | f");
        check("5 m", "5 m");
        check("5y", "[y] unknown unit `y`; use s, m, h, d or w");
        check("5mx", "[mx] unknown unit `mx`; use s, m, h, d or w");
        check("99999999w", "[99999999w] duration exceeds 292 years");
        check("15000w 300w", "[15000w 300w] duration exceeds 292 years");
    }

    #[test]
    fn texts() {
        check(r#""a b" 'c'"#, "<a b> <c>");
        check(r#""it's" 'a "b"'"#, r#"<it's> <a "b">"#);
        check("“a” ‘b’ „c“ “d\"", "<a> <b> <c> <d>");
        check("\"“\"", "<“>");
        check("p\"mtev%60eventer\" p'%C3%BC%25'", "<mtev`eventer> <ü%>");
        check("p“a%20b”", "<a b>");
        check(r#""^prod\.([^\.]+)\." "%n""#, r"<^prod\.([^\.]+)\.> <%n>");
        check("'a", "['] unterminated string: missing '");
        check(
            "p\"a%2\"",
            "[%] invalid percent code in p\"…\": two hexadecimal digits follow %; a literal % is \
             %25",
        );
        check("p\"%ff\"", "[p\"%ff\"] the decoded string is not UTF-8");
    }

    #[test]
    fn comments() {
        check("1 // and so on\n2//", "1 2");
        check("'//' // '", "<//>");
        check("6 / 3", "6 / 3");
    }

    #[test]
    fn symbols() {
        check("a==b>=c<=d>e<f=", "a == b >= c <= d > e < f =");
        check("!a|b%c*d^e", "! a | b % c * d ^ e");
        check("a != b", "a [!=] `!=` is not an operator; write not (a == b)");
        check("a && b", "a [&&] `&&` is not an operator; write and");
        check("a ? b", "a [?] unexpected `?`");
        check("a ü", "a [ü] unexpected `ü`");
    }
}
