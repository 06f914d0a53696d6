//! Text output: control characters, line wrapping, plurals, shell quoting.

use std::path::Path;

use crate::value_formatter::count;

/// Escapes control characters in external text (file names, tags, labels) for terminals and XML.
pub fn escape_control(text: &str) -> String {
    let escaped = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Wraps text to lines of `width` characters.
pub fn wrap_text(text: &str, width: usize) -> Vec<String> {
    wrap_indented(text, width, "")
}

/// Wraps text, with `indent` before all lines except the first.
pub(crate) fn wrap_indented(text: &str, width: usize, indent: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("{indent}{word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Path quoted for a shell.
pub fn shell_quote(path: &Path) -> String {
    let path = escape_control(&path.display().to_string());
    let safe = |c: char| c.is_alphanumeric() || "/._-+,@%:".contains(c);
    match !path.is_empty() && path.chars().all(safe) {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// `1 row`, `2,000 rows`.
pub fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// Number of things, which are named in the singular with an article: `2 counters` of `a counter`.
pub fn count_text(n: u64, one: &str) -> String {
    let one = one.strip_prefix("a ").or_else(|| one.strip_prefix("an ")).unwrap_or(one);
    // The noun ends before what qualifies it.
    let end = [" of ", ", "].iter().filter_map(|part| one.find(part)).min().unwrap_or(one.len());
    let (noun, rest) = one.split_at(end);
    plural(n, one, &format!("{noun}s{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_things_are_in_the_plural() {
        assert_eq!(count_text(1, "a counter"), "1 counter");
        assert_eq!(count_text(2000, "an exemplar"), "2,000 exemplars");
        assert_eq!(count_text(2, "a single number"), "2 single numbers");
        assert_eq!(count_text(3, "a metric of another kind"), "3 metrics of another kind");
    }

    #[test]
    fn paths_are_shell_quoted() {
        assert_eq!(shell_quote(Path::new("/var/lib/app-1/j.old")), "/var/lib/app-1/j.old");
        assert_eq!(shell_quote(Path::new("my j")), "'my j'");
        assert_eq!(shell_quote(Path::new("it's")), r"'it'\''s'");
    }
}
