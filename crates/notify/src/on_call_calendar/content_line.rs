//! Lines of an iCalendar file (RFC 5545, 3.1): unfolded, and split into name, parameters and value.
//!
//! A line that begins with a space or a tab continues the line above it. Lines end with CR LF or
//! with LF.

use super::CalendarProblem;

/// Longest line, unfolded: descriptions of invitations have some kilobytes.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A property, or the begin or end of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContentLine {
    /// Number of its first line in the file.
    pub(super) line: usize,
    /// In upper case.
    pub(super) name: String,
    /// Names in upper case.
    parameters: Vec<(String, String)>,
    pub(super) value: String,
}

impl ContentLine {
    /// A line for a part of a value.
    pub(super) fn new(
        line: usize,
        name: &str,
        parameters: &[(&str, &str)],
        value: &str,
    ) -> ContentLine {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let parameters = parameters.iter().map(owned).collect();
        ContentLine { line, name: name.to_owned(), parameters, value: value.to_owned() }
    }

    /// Value of a parameter, without quotes.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A problem of this line.
    pub(super) fn problem(&self, what: impl std::fmt::Display) -> CalendarProblem {
        CalendarProblem { line: self.line, what: format!("{}: {what}", self.name) }
    }

    /// The value as text, without escapes (3.3.11).
    pub(super) fn text(&self) -> Result<String, CalendarProblem> {
        let mut text = String::with_capacity(self.value.len());
        let mut characters = self.value.chars();
        while let Some(character) = characters.next() {
            match character {
                '\\' => match characters.next() {
                    Some('n' | 'N') => text.push('\n'),
                    Some(escaped @ ('\\' | ';' | ',')) => text.push(escaped),
                    Some(other) => {
                        let expected = r"expected \\ \; \, \n";
                        let what = format!("unknown escape \"\\{other}\"; {expected}");
                        return Err(self.problem(what));
                    }
                    None => return Err(self.problem("the text ends within an escape")),
                },
                other => text.push(other),
            }
        }
        Ok(text)
    }
}

/// All lines of a file, and the problems of those that are none.
pub(super) fn read_lines(bytes: &[u8]) -> (Vec<ContentLine>, Vec<CalendarProblem>) {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (mut lines, mut problems) = (Vec::new(), Vec::new());
    let mut add = |line: usize, unfolded: &[u8]| match read_line(line, unfolded) {
        Ok(found) => lines.push(found),
        Err(what) => problems.push(CalendarProblem { line, what }),
    };
    // A character may be folded between its bytes.
    let mut unfolded: Vec<u8> = Vec::new();
    let mut first = 0;
    for (at, physical) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let physical = physical.strip_suffix(b"\r").unwrap_or(physical);
        match physical {
            [b' ' | b'\t', rest @ ..] if !unfolded.is_empty() => unfolded.extend_from_slice(rest),
            _ => {
                if !unfolded.is_empty() {
                    add(first, &unfolded);
                }
                unfolded.clear();
                unfolded.extend_from_slice(physical);
                first = at + 1;
            }
        }
    }
    if !unfolded.is_empty() {
        add(first, &unfolded);
    }
    (lines, problems)
}

fn read_line(line: usize, unfolded: &[u8]) -> Result<ContentLine, String> {
    if unfolded.len() > LINE_BYTES_MAX {
        return Err(format!("line limit ({} KiB) exceeded", LINE_BYTES_MAX >> 10));
    }
    let text = std::str::from_utf8(unfolded).map_err(|_| "the line is not UTF-8".to_owned())?;
    if let Some(control) = text.chars().find(|&one| one.is_control() && one != '\t') {
        return Err(format!("the line contains the control character {control:?}"));
    }
    let expected = || "expected a property such as SUMMARY:eve".to_owned();
    let (name, mut rest) = split_name(text).ok_or_else(expected)?;
    let mut parameters = Vec::new();
    while let Some(after) = rest.strip_prefix(';') {
        let (parameter, after) = split_name(after).ok_or_else(expected)?;
        let after = after.strip_prefix('=').ok_or_else(expected)?;
        let (value, after) = split_parameter(after).ok_or_else(expected)?;
        parameters.push((parameter, value));
        rest = after;
    }
    let value = rest.strip_prefix(':').ok_or_else(expected)?.to_owned();
    Ok(ContentLine { line, name, parameters, value })
}

/// A name in upper case, and what follows.
fn split_name(text: &str) -> Option<(String, &str)> {
    let end = text.find(|one: char| !one.is_ascii_alphanumeric() && one != '-');
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    (!name.is_empty()).then(|| (name.to_ascii_uppercase(), rest))
}

/// Value of a parameter, which may be a list, and what follows.
fn split_parameter(text: &str) -> Option<(String, &str)> {
    let (mut value, mut rest) = (String::new(), text);
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (inside, after) = quoted.split_once('"')?;
            value.push_str(inside);
            rest = after;
        } else {
            let end = rest.find([',', ';', ':', '"'])?;
            value.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        match rest.strip_prefix(',') {
            Some(after) => {
                value.push(',');
                rest = after;
            }
            None => return rest.starts_with([';', ':']).then_some((value, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn read(bytes: &[u8]) -> Vec<ContentLine> {
        let (lines, problems) = read_lines(bytes);
        assert_eq!(problems, []);
        lines
    }

    #[track_caller]
    fn problem(bytes: &[u8]) -> String {
        let (_, problems) = read_lines(bytes);
        let CalendarProblem { line, what } = &problems[0];
        format!("{line}: {what}")
    }

    #[test]
    fn folded_lines_are_joined_with_both_ends_of_line() {
        let folded = "summary:On\r\n  call\r\n\t: eve\r\nX:1\n 2\n\nY:\n";
        let lines = read(folded.as_bytes());
        let short: Vec<_> =
            lines.iter().map(|one| (one.line, one.name.as_str(), one.value.as_str())).collect();
        assert_eq!(short, [(1, "SUMMARY", "On call: eve"), (4, "X", "12"), (7, "Y", "")]);
    }

    #[test]
    fn a_character_may_be_folded_between_its_bytes_and_a_mark_begins_the_file() {
        let lines = read(b"\xef\xbb\xbfSUMMARY:J\xc3\r\n \xbcrgen\r\n");
        assert_eq!(lines[0].value, "Jürgen");
    }

    #[test]
    fn parameters_may_be_quoted_and_lists() {
        let line = "ATTENDEE;CN=\"Smith; Eve: on, call\";MEMBER=\"a\",b;X-1=:mailto:eve@x.org";
        let lines = read(line.as_bytes());
        assert_eq!(lines[0].parameter("CN"), Some("Smith; Eve: on, call"));
        assert_eq!(lines[0].parameter("MEMBER"), Some("a,b"));
        assert_eq!((lines[0].parameter("X-1"), lines[0].parameter("ROLE")), (Some(""), None));
        assert_eq!(lines[0].value, "mailto:eve@x.org");
    }

    #[test]
    fn escapes_are_removed_and_unknown_ones_refused() {
        let text = |value: &str| read(format!("SUMMARY:{value}").as_bytes())[0].text();
        assert_eq!(text(r"a\, b\; c\\n\nd: e").unwrap(), "a, b; c\\n\nd: e");
        let what = r#"SUMMARY: unknown escape "\:"; expected \\ \; \, \n"#.to_owned();
        assert_eq!(text(r"a\:").unwrap_err(), CalendarProblem { line: 1, what });
        assert_eq!(text("a\\").unwrap_err().what, "SUMMARY: the text ends within an escape");
    }

    #[test]
    fn lines_that_are_no_properties_have_their_number() {
        for text in ["A:1\nno property\n", "A:1\nX;CN=\"a:b\n", "A:1\n:b\n", "A:1\nX;=a:b"] {
            assert_eq!(problem(text.as_bytes()), "2: expected a property such as SUMMARY:eve");
        }
        assert_eq!(problem(b" A:1\n"), "1: expected a property such as SUMMARY:eve");
        assert_eq!(problem(b"A:1\nB:\xff\n"), "2: the line is not UTF-8");
        assert_eq!(problem(b"A:\x07\n"), "1: the line contains the control character '\\u{7}'");
        let long = "A:".to_owned() + &"x".repeat(LINE_BYTES_MAX);
        assert_eq!(problem(long.as_bytes()), "1: line limit (64 KiB) exceeded");
    }
}
