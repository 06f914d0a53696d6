//! Parser of both selector syntaxes.
//!
//! ```text
//! selector <- search / name? '{' matcher (',' matcher)* ','? '}' / name
//! search   <- ('and' / 'or') '(' element (',' element)* ')' / 'not(' element ')'
//! element  <- search / '*' / part (':' part)?
//! name     <- part
//! part     <- '/' regex '/' / '[' ('exact' / 'default' / 're') ']'? (bare / string)
//! matcher  <- label ('=' / '!=' / '=~' / '!~') string / string
//! ```
//! Whitespace is allowed between tokens. As in reconnoiter's `noit_metric_tag_search.c`, text
//! between slashes is a regex only if its part ends there, and text with `*` or `?` is a glob also
//! in quotes.

use super::{DEPTH_MAX, KIND, KINDS, LENGTH_MAX, NAME, REGEXES_MAX, renamed_kind};
use super::{Pattern, Regex, Selector, SelectorError};

type Result<T> = std::result::Result<T, SelectorError>;

pub(super) fn parse(text: &str) -> Result<Selector> {
    if text.len() > LENGTH_MAX {
        let (found, expected) = (format!("{} bytes", text.len()), format!("at most {LENGTH_MAX}"));
        return Err(SelectorError { column: 1, found, expected });
    }
    let mut parser = SelectorParser { text, at: 0, regexes: 0 };
    let selector = parser.selector()?;
    parser.skip_blanks();
    if parser.peek().is_some() {
        return Err(parser.expected_error("the end"));
    }
    Ok(selector)
}

/// Characters of an unquoted value.
pub(super) fn is_plain_in_value(c: char) -> bool {
    c == ':' || is_plain_in_name(c)
}

/// Characters of an unquoted tag name.
pub(super) fn is_plain_in_name(c: char) -> bool {
    let is_ours = matches!(c, ',' | '(' | ')' | '{' | '}' | '"' | '\\' | ':' | '*' | '?');
    !is_ours && !c.is_whitespace() && !c.is_control()
}

struct SelectorParser<'a> {
    text: &'a str,
    at: usize,
    regexes: usize,
}

impl<'a> SelectorParser<'a> {
    fn selector(&mut self) -> Result<Selector> {
        self.skip_blanks();
        if self.list_operator().is_some() {
            return self.element(1);
        }
        let mut parts = Vec::new();
        match self.peek() {
            Some('{') => {}
            None => {
                return Err(self.expected_error("a name, name{…}, and(…), or {} for every series"));
            }
            Some(_) => parts.extend(self.name()?),
        }
        if self.consume("{") {
            self.matchers(&mut parts)?;
        }
        Ok(Selector::and(parts))
    }

    /// Parses the metric name at the start; `None` for `*`.
    fn name(&mut self) -> Result<Option<Selector>> {
        let start = self.at;
        let pattern = self.part("a name, name{…} or and(…)", is_plain_in_value)?;
        let is_bare = !self.text[start..].starts_with(['"', '/', '[']);
        let colon = self.text[start..self.at].find(':').filter(|_| is_bare);
        self.skip_blanks();
        if let (Some(colon), false) = (colon, self.peek() == Some('{')) {
            self.at = start + colon;
            return Err(self.expected_error("and(tag:value), or {…} after a name with a colon"));
        }
        let is_any = pattern == Pattern::Glob("*".to_owned());
        Ok((!is_any).then(|| Selector::tag(NAME, pattern)))
    }

    // Tag search.

    /// The list operator at the current position.
    fn list_operator(&self) -> Option<&'static str> {
        ["and(", "or(", "not("].into_iter().find(|word| self.rest().starts_with(word))
    }

    fn element(&mut self, depth: usize) -> Result<Selector> {
        let Some(word) = self.list_operator() else { return self.tag() };
        if depth > DEPTH_MAX {
            let found = format!("level {depth} of and(…), or(…), not(…)");
            return Err(SelectorError {
                found,
                ..self.expected_error(&format!("at most {DEPTH_MAX}"))
            });
        }
        self.at += word.len();
        let mut parts = Vec::new();
        loop {
            self.skip_blanks();
            parts.push(self.element(depth + 1)?);
            self.skip_blanks();
            if self.consume(")") {
                break;
            }
            let is_not = word == "not(";
            if is_not || !self.consume(",") {
                return Err(self.expected_error(if is_not { "`)`" } else { "`,` or `)`" }));
            }
        }
        Ok(match word {
            "and(" => Selector::and(parts),
            "or(" => Selector::or(parts),
            _ => Selector::negate(parts.remove(0)),
        })
    }

    fn tag(&mut self) -> Result<Selector> {
        let start = self.at;
        let any = Pattern::Glob("*".to_owned());
        let name = match self.part("a tag, and(…), or(…) or not(…)", is_plain_in_name)? {
            Pattern::Exact(name) if !name.is_empty() => name,
            pattern if pattern == any && self.peek() != Some(':') => return Ok(Selector::All),
            _ => {
                let found = format!("`{}`", &self.text[start..self.at]);
                return Err(self.error(
                    start,
                    found,
                    "a tag name; patterns are allowed in values only",
                ));
            }
        };
        if !self.consume(":") {
            return Ok(Selector::tag(name, any));
        }
        let start = self.at;
        let pattern = self.part("a value, or \"\" for a missing tag", is_plain_in_value)?;
        self.check_kind(start, Selector::tag(name, pattern))
    }

    fn part(&mut self, expected: &str, is_plain: fn(char) -> bool) -> Result<Pattern> {
        let start = self.at;
        if let Some(source) = self.slashed_regex(is_plain) {
            return self.regex(start, || Regex::search(source)).map(Pattern::Regex);
        }
        let mut implementation = "";
        if self.consume("[") {
            let words = ["exact", "default", "re"];
            implementation = words.into_iter().find(|word| self.consume(word)).unwrap_or_default();
            if implementation.is_empty() || !self.consume("]") {
                let found = "another way to match".to_owned();
                return Err(self.error(start, found, "[exact], [default] or [re]"));
            }
        }
        let text = match self.peek() {
            Some('"') => self.string()?,
            _ => {
                let rest = self.rest();
                let is_end = |c| !is_plain(c) && !matches!(c, '*' | '?');
                let len = rest.find(is_end).unwrap_or(rest.len());
                if len == 0 {
                    return Err(self.expected_error(expected));
                }
                self.at += len;
                rest[..len].to_owned()
            }
        };
        match implementation {
            "re" => self.regex(start, || Regex::search(&text)).map(Pattern::Regex),
            "" | "default" if text.contains(['*', '?']) => Ok(Pattern::Glob(text)),
            _ => Ok(Pattern::Exact(text)),
        }
    }

    /// The regex between slashes, if the part ends after it. Otherwise nothing is consumed.
    fn slashed_regex(&mut self, is_plain: fn(char) -> bool) -> Option<&'a str> {
        let inner = self.rest().strip_prefix('/')?;
        let mut is_escaped = false;
        let len = inner.find(|c| {
            let is_end = c == '/' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        })?;
        let ends = match inner[len + 1..].chars().next() {
            None | Some(',' | ')' | '{') => true,
            Some(':') => !is_plain(':'),
            Some(c) => c.is_whitespace(),
        };
        self.at += if ends { len + 2 } else { 0 };
        ends.then(|| &inner[..len])
    }

    // Prometheus.

    fn matchers(&mut self, parts: &mut Vec<Selector>) -> Result<()> {
        loop {
            self.skip_blanks();
            if self.consume("}") {
                return Ok(());
            }
            parts.push(self.matcher()?);
            self.skip_blanks();
            if !self.consume(",") && self.peek() != Some('}') {
                return Err(self.expected_error("`,` or `}`"));
            }
        }
    }

    fn matcher(&mut self) -> Result<Selector> {
        let is_quoted = matches!(self.peek(), Some('"' | '\'' | '`'));
        let name = if is_quoted {
            self.string()?
        } else {
            let rest = self.rest();
            let is_end = |c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '-' | ':');
            let len = rest.find(is_end).unwrap_or(rest.len());
            self.at += len;
            rest[..len].to_owned()
        };
        if name.is_empty() {
            return Err(self.expected_error("a label name or `}`"));
        }
        self.skip_blanks();
        if is_quoted && matches!(self.peek(), Some(',' | '}')) {
            return Ok(Selector::label_equals(NAME, name));
        }
        let operators = ["=~", "!~", "!=", "="];
        let Some(operator) = operators.into_iter().find(|operator| self.consume(operator)) else {
            return Err(self.expected_error("=, !=, =~ or !~"));
        };
        self.skip_blanks();
        let start = self.at;
        if !matches!(self.peek(), Some('"' | '\'' | '`')) {
            return Err(self.expected_error("a text in quotes"));
        }
        let value = self.string()?;
        let selector = if operator.ends_with('~') {
            self.regex(start, || Selector::label_matches(name, &value))?
        } else {
            Selector::label_equals(name, value)
        };
        let selector = self.check_kind(start, selector)?;
        Ok(if operator.starts_with('!') { Selector::negate(selector) } else { selector })
    }

    // Both syntaxes.

    /// A quoted string with Go's escapes; a backquoted one has none.
    fn string(&mut self) -> Result<String> {
        let quote = self.next().expect("BUG: the caller saw a quote");
        let mut out = String::new();
        loop {
            let start = self.at;
            match self.next() {
                None => return Err(self.expected_error(&format!("a closing {quote}"))),
                Some(c) if c == quote => return Ok(out),
                Some('\\') if quote != '`' => match self.escaped() {
                    Some(c) => out.push(c),
                    None => {
                        let found = format!("`{}`", &self.text[start..self.at]);
                        return Err(self.error(start, found, "\\\\, \\\", \\n, \\t, \\u1234"));
                    }
                },
                Some(c) => out.push(c),
            }
        }
    }

    fn escaped(&mut self) -> Option<char> {
        let digits = match self.next()? {
            'a' => return Some('\u{7}'),
            'b' => return Some('\u{8}'),
            'f' => return Some('\u{c}'),
            'n' => return Some('\n'),
            'r' => return Some('\r'),
            't' => return Some('\t'),
            'v' => return Some('\u{b}'),
            c @ ('\\' | '"' | '\'') => return Some(c),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => return None,
        };
        let hex =
            self.rest().get(..digits).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))?;
        self.at += digits;
        let code = u32::from_str_radix(hex, 16).ok()?;
        // `\xff` is a byte in Go, and not valid UTF-8 alone.
        char::from_u32(code).filter(|c| digits > 2 || c.is_ascii())
    }

    /// Compiles a regex unless the limit is reached. Its errors are reported at `start`.
    fn regex<T>(&mut self, start: usize, make: impl FnOnce() -> Result<T>) -> Result<T> {
        self.regexes += 1;
        if self.regexes > REGEXES_MAX {
            let found = format!("regex {}", self.regexes);
            return Err(self.error(start, found, &format!("at most {REGEXES_MAX}")));
        }
        make().map_err(|error| SelectorError { column: self.column(start), ..error })
    }

    /// Rejects an unknown kind, and conditions that only kinds of earlier versions meet.
    fn check_kind(&self, start: usize, selector: Selector) -> Result<Selector> {
        if let Selector::Tag { name, pattern } = &selector
            && name == KIND
            && let Some((old, new)) = renamed_kind(pattern)
        {
            return Err(self.error(start, format!("kind {old:?}"), &format!("its new name {new}")));
        }
        if let Selector::Tag { name, pattern: Pattern::Exact(word) } = &selector
            && name == KIND
            && !word.is_empty()
            && KINDS.iter().all(|(_, known)| known != word)
        {
            let words = KINDS.map(|(_, word)| word).join(", ");
            return Err(self.error(start, format!("kind {word:?}"), &format!("one of {words}")));
        }
        Ok(selector)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn consume(&mut self, text: &str) -> bool {
        let is_there = self.rest().starts_with(text);
        self.at += if is_there { text.len() } else { 0 };
        is_there
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn expected_error(&self, expected: &str) -> SelectorError {
        let found = self.peek().map_or("the end".to_owned(), |c| format!("`{}`", c.escape_debug()));
        self.error(self.at, found, expected)
    }

    fn error(&self, at: usize, found: String, expected: &str) -> SelectorError {
        SelectorError { column: self.column(at), found, expected: expected.to_owned() }
    }

    fn column(&self, at: usize) -> usize {
        self.text[..at].chars().count() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formatted selector, after a check that it parses to the same one.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = match parse(text) {
            Ok(selector) => {
                let shown = selector.to_string();
                assert_eq!(parse(&shown), Ok(selector), "{shown}");
                shown
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn prometheus() {
        check(
            r#"http_request_duration{host="web-1",endpoint=~"/api/.*",region!="eu",zone!~"x.+"}"#,
            r"and(__name:http_request_duration,host:web-1,endpoint:/^(?s:\/api\/.*)$/,not(region:eu),not(zone:/^(?s:x.+)$/))",
        );
        check(r#"{__name__=~"http_.*"}"#, "and(__name:/^(?s:http_.*)$/)");
        check("up", "and(__name:up)");
        check("up{}", "and(__name:up)");
        check("{}", "*");
        check(" { } ", "*");
        check(r#"job:latency:p99{ a = "b" , }"#, "and(__name:job:latency:p99,a:b)");
        check(
            r#"{"http.server.duration", "service.name"='x'}"#,
            "and(__name:http.server.duration,service.name:x)",
        );
        check(r#"{a=""}"#, r#"and(a:"")"#);
        check(r#"{a=~"b|"}"#, r#"or(a:b,a:"")"#);
        check(r#"{a=~"b?"}"#, r#"or(a:"",a:/^(?s:b?)$/)"#);
        check(r#"{a=~".*"}"#, "*");
        check(r#"{a=~".+"}"#, "and(a:*)");
        check(r#"{a="x*"}"#, r#"and(a:[exact]"x*")"#);
        check(r#"{a="\"\\\u00e9\n"}"#, "and(a:\"\\\"\\\\é\n\")");
        check(r"{a=~`\d\/\\`}", r"and(a:/^(?s:\d\/\\)$/)");
    }

    #[test]
    fn tag_searches() {
        let text =
            "and(__name:http_request_*,host:web-*,not(region:eu),or(zone:a,zone:/^b[0-9]+$/))";
        check(text, text);
        check("and( a:b , c )", "and(a:b,c:*)");
        check("or(a:b)", "and(a:b)");
        check("or(and(a:b),not(not(c:d)))", "or(a:b,not(not(c:d)))");
        check("and(a:b,*)", "and(a:b)");
        check("not(*)", "not(*)");
        check("or(a,*)", "*");
        check("*", "*");
        check("http_*", "and(__name:http_*)");
        check("http_*{a!='b'}", "and(__name:http_*,not(a:b))");
        check("*{a='b'}", "and(a:b)");
        check("/^http/", "and(__name:/^http/)");
        check("and(a:/api/users,b:/x/)", r#"and(a:"/api/users",b:/x/)"#);
        check(r#"and(a:"b c*",d:[exact]e*,f:[re]g+)"#, r#"and(a:"b c*",d:[exact]"e*",f:/g+/)"#);
        check(r#"and(a:[default]b?,"c d":[exact]e)"#, r#"and(a:b?,"c d":e)"#);
        check(r"and(a:/b\/c\\/)", r"and(a:/b\/c\\/)");
        check("and(and:or,url:http://x=y)", "and(and:or,url:http://x=y)");
        check("and(__name__:x)", "and(__name:x)");
    }

    #[test]
    fn invalid_selectors_are_rejected() {
        let column = |text, expected| check(text, expected);
        column(
            "",
            "column 1: found the end, expected a name, name{…}, and(…), or {} for every series",
        );
        column(
            "  ",
            "column 3: found the end, expected a name, name{…}, and(…), or {} for every series",
        );
        column(
            "host:web",
            "column 5: found `:`, expected and(tag:value), or {…} after a name with a colon",
        );
        column("up{a}", "column 5: found `}`, expected =, !=, =~ or !~");
        column("up{a=b}", "column 6: found `b`, expected a text in quotes");
        column("up{a=\"b}", "column 9: found the end, expected a closing \"");
        column("up{a='b'", "column 9: found the end, expected `,` or `}`");
        column("up{,}", "column 4: found `,`, expected a label name or `}`");
        column("ü{a='b'} x", "column 10: found `x`, expected the end");
        column(r#"{a="\d"}"#, "column 5: found `\\d`, expected \\\\, \\\", \\n, \\t, \\u1234");
        column(
            r#"{a=~"b("}"#,
            "column 5: found the invalid regex \"b(\" (unclosed group), expected a valid regex",
        );
        column("and()", "column 5: found `)`, expected a tag, and(…), or(…) or not(…)");
        column("and(a:b", "column 8: found the end, expected `,` or `)`");
        column("not(a,b)", "column 6: found `,`, expected `)`");
        column("and(a:)", "column 7: found `)`, expected a value, or \"\" for a missing tag");
        column(
            "and(a*:b)",
            "column 5: found `a*`, expected a tag name; patterns are allowed in values only",
        );
        column(
            "and(a:[graphite]b)",
            "column 7: found another way to match, expected [exact], [default] or [re]",
        );
        column("and(a:b c)", "column 9: found `c`, expected `,` or `)`");
        column(
            "and(__kind:histograms)",
            "column 12: found kind \"histograms\", expected one of delta-histogram, \
             cumulative-histogram, delta-counter, cumulative-counter, gauge, text",
        );
    }

    #[test]
    fn limits() {
        let nested = |depth| format!("{}a:b{}", "not(".repeat(depth), ")".repeat(depth));
        assert!(parse(&nested(DEPTH_MAX)).is_ok());
        check(
            &nested(33),
            "column 129: found level 33 of and(…), or(…), not(…), expected at most 32",
        );
        check(&"a".repeat(16385), "column 1: found 16385 bytes, expected at most 16384");
        let regexes = format!("or({})", vec!["a:/b/"; 33].join(","));
        check(&regexes, "column 198: found regex 33, expected at most 32");
    }
}
