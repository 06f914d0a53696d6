//! Translates Go regexes for the `regex` crate.
//!
//! Both engines are linear, and the syntaxes mostly agree. Differences are rewritten: `\d`, `\s`,
//! `\w` and `\b` are ASCII in Go; `[` in a class, `{` that starts no repetition, `\<` and `\>` are
//! literal; Go has `\Q…\E` and octal escapes. Only `\B` is not rewritten: it differs next to
//! non-ASCII letters.

use std::iter::Peekable;
use std::str::Chars;

/// Maximum repetition count.
const REPEAT_MAX: u32 = 1000;

/// Equivalent regex for the `regex` crate, or the error; other errors are left to that crate.
pub(super) fn translate(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    let mut groups = 0usize;
    let mut was_repeated = false;
    while let Some(c) = chars.next() {
        let repeats = if c == '{' { repetition(chars.clone()) } else { None };
        let is_repeated = repeats.is_some() || matches!(c, '*' | '+' | '?');
        if is_repeated && was_repeated {
            return Err("invalid nested repetition operator".to_owned());
        }
        was_repeated = is_repeated;
        match c {
            '\\' if chars.peek() == Some(&'Q') => {
                chars.next();
                quoted(&mut chars, &mut out)?;
            }
            '\\' => escape(&mut chars, &mut out, false)?,
            '[' => class(&mut chars, &mut out)?,
            '{' => match repeats {
                Some(text)
                    if text.split(',').any(|n| n.parse().is_ok_and(|n: u32| n > REPEAT_MAX)) =>
                {
                    return Err(format!("invalid repeat count: `{{{text}}}`"));
                }
                Some(text) => {
                    out.push('{');
                    out.push_str(&text);
                    out.push('}');
                    chars.nth(text.len());
                }
                None => out.push_str("\\{"),
            },
            '}' => out.push_str("\\}"),
            '(' => {
                groups += 1;
                out.push('(');
                if chars.peek() == Some(&'?') && !are_flags_known(chars.clone()) {
                    return Err("invalid or unsupported Perl syntax".to_owned());
                }
            }
            ')' => {
                // `a)|(b` is not a regex and must not become one by the group around it.
                groups = groups.checked_sub(1).ok_or("unexpected )")?;
                out.push(')');
            }
            c => out.push(c),
        }
        if is_repeated && chars.next_if_eq(&'?').is_some() {
            out.push('?');
        }
    }
    if groups > 0 { Err("missing closing )".to_owned()) } else { Ok(out) }
}

/// Whether `(?` is followed by a name, or by flags that Go has.
fn are_flags_known(mut after: Peekable<Chars<'_>>) -> bool {
    after.next();
    match after.next() {
        Some('P' | '<') => true,
        Some(c) => std::iter::once(c)
            .chain(after)
            .take_while(|c| !matches!(c, ':' | ')'))
            .all(|c| matches!(c, 'i' | 'm' | 's' | 'U' | '-')),
        None => true,
    }
}

/// Text between braces, if it is `n`, `n,` or `n,m`.
fn repetition(after: Peekable<Chars<'_>>) -> Option<String> {
    // Longer numbers exceed any limit, and scanning further would make `{{{{…` quadratic.
    const LENGTH_MAX: usize = 24;
    let mut has_end = false;
    let text: String = after
        .take(LENGTH_MAX)
        .take_while(|c| {
            has_end = *c == '}';
            c.is_ascii_digit() || *c == ','
        })
        .collect();
    let (min, max) = text.split_once(',').unwrap_or((&text, ""));
    (has_end && !min.is_empty() && !max.contains(',')).then_some(text)
}

/// Translates from `\Q` to `\E`.
fn quoted(chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), String> {
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next_if_eq(&'E').is_some() {
            return Ok(());
        }
        push(out, c);
    }
    // Go accepts it, but Prometheus puts it into a group.
    Err("missing closing )".to_owned())
}

/// Writes a literal character.
fn push(out: &mut String, c: char) {
    if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
        out.push('\\');
    }
    out.push(c);
}

/// Translates an escape.
fn escape(chars: &mut Peekable<Chars<'_>>, out: &mut String, in_class: bool) -> Result<(), String> {
    let Some(c) = chars.next() else {
        return Err("trailing backslash at end of expression".to_owned());
    };
    let class = match c {
        'd' | 'D' => "0-9",
        's' | 'S' => "\\t\\n\\x0C\\r ",
        'w' | 'W' => "0-9A-Za-z_",
        'b' if !in_class => {
            out.push_str("(?-u:\\b)");
            return Ok(());
        }
        '0'..='7' => return octal(c, chars, out),
        c if c.is_ascii_punctuation() => {
            push(out, c);
            return Ok(());
        }
        c => {
            out.push('\\');
            out.push(c);
            // Name of a Unicode class, or number of a character.
            if matches!(c, 'p' | 'P' | 'x') && chars.peek() == Some(&'{') {
                let rest = chars.by_ref();
                for c in rest {
                    out.push(c);
                    if c == '}' {
                        break;
                    }
                }
            }
            return Ok(());
        }
    };
    out.push_str(if c.is_ascii_uppercase() { "[^" } else { "[" });
    out.push_str(class);
    out.push(']');
    Ok(())
}

/// `\0`, `\12`, `\123`: a character by its octal number. A single non-zero digit would be a back
/// reference.
fn octal(first: char, chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), String> {
    let mut number = first.to_digit(8).unwrap_or(0);
    let mut count = 1;
    while count < 3
        && let Some(digit) = chars.peek().and_then(|c| c.to_digit(8))
    {
        chars.next();
        number = number * 8 + digit;
        count += 1;
    }
    if count == 1 && number != 0 {
        return Err(format!("invalid escape sequence: `\\{first}`"));
    }
    out.push_str(&format!("\\x{{{number:x}}}"));
    Ok(())
}

/// Translates a class, from `[` to `]`.
fn class(chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), String> {
    out.push('[');
    if chars.peek() == Some(&'^') {
        chars.next();
        out.push('^');
    }
    let mut is_first = true;
    loop {
        let c = chars.next().ok_or("missing closing ]")?;
        match c {
            ']' if !is_first => break,
            '\\' => escape(chars, out, true)?,
            '[' if chars.peek() == Some(&':') => match named_class(chars.clone()) {
                Some(name) => {
                    out.push_str(&format!("[:{name}:]"));
                    chars.nth(name.len() + 2);
                }
                None => out.push_str("\\["),
            },
            // `-` is a range operator, unless at either end.
            '-' if !is_first && chars.peek() != Some(&']') => out.push('-'),
            c => push(out, c),
        }
        is_first = false;
    }
    out.push(']');
    Ok(())
}

/// Name of a class such as `[:alpha:]`, which is ASCII in both.
fn named_class(mut after: Peekable<Chars<'_>>) -> Option<String> {
    after.next();
    const LENGTH_MAX: usize = 8;
    let name: String = after.by_ref().take(LENGTH_MAX).take_while(|c| *c != ':').collect();
    let is_name = name.chars().all(|c| c == '^' || c.is_ascii_lowercase());
    (is_name && after.next() == Some(']')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::matcher::anchored_regex;

    #[track_caller]
    fn check(regex: &str, matching: &[&str], others: &[&str]) {
        let regex = anchored_regex(regex).unwrap();
        for text in matching {
            assert!(regex.is_match(text), "{regex} does not match {text:?}");
        }
        for text in others {
            assert!(!regex.is_match(text), "{regex} matches {text:?}");
        }
    }

    #[track_caller]
    fn check_fails(regex: &str, expected: &str) {
        let error = anchored_regex(regex).unwrap_err();
        assert!(error.starts_with(&format!("error parsing regexp: {expected}")), "{error}");
    }

    #[test]
    fn regexes_match_as_in_go() {
        check("a|b.c", &["a", "b\nc"], &["ab", "bc", "xa", ""]);
        check(r"\d+\s\w\b", &["1 a", "12\tb"], &["١ a", "1\u{a0}a", "1 ä"]);
        check(r"[\d-]+", &["1-2", "-"], &["٣"]);
        check(r"[^\w]", &["ä", "-"], &["a"]);
        check("[[a&&b-]+", &["[", "a&b-"], &["c", "]"]);
        check("[+--]+", &["+,-"], &["."]);
        check("[]a-c-]+", &["]", "b-"], &["^"]);
        check("[[:alpha:]_]+", &["ab_"], &["ä", ":"]);
        check("{foo}{1,2}?", &["{foo}", "{foo}}"], &["{foo"]);
        check("a+?(b*?)c??", &["a", "aab", "ac"], &["b"]);
        check(r"a{,2}", &["a{,2}"], &["aa"]);
        check(r"\Qa.b|\E+", &["a.b|", "a.b||"], &["axb"]);
        check(r"\<\>\_\/\-", &["<>_/-"], &[]);
        check(r"\101\0\x41\x{42}", &["A\0AB"], &[]);
        check("(?i)Ab(?-i:c)", &["aBc"], &["abC"]);
        check("(?P<x>a)(?:b)(?<y>c)", &["abc"], &[]);
        check("#  a", &["#  a"], &["a"]);
    }

    #[test]
    fn invalid_regexes_are_rejected() {
        check_fails("a)|(b", "unexpected )");
        check_fails("(a", "missing closing )");
        check_fails("[a", "missing closing ]");
        check_fails("(?x) a", "invalid or unsupported Perl syntax");
        check_fails(r"a\", "trailing backslash");
        check_fails(r"(a)\1", "invalid escape sequence");
        check_fails("a+*", "invalid nested repetition operator");
        check_fails("a{2}{3}", "invalid nested repetition operator");
        check_fails(r"\Qa", "missing closing )");
        check_fails("a{1001}", "invalid repeat count");
        check_fails("((a{1000}){1000}){1000}", "compiled regex exceeds 1048576 bytes");
        check_fails("*", "repetition operator missing expression");
        check_fails(&"(".repeat(100_000), "missing closing )");
        let deep = format!("{}{}", "(".repeat(1000), ")".repeat(1000));
        check_fails(&deep, "exceed");
    }
}
