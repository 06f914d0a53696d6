//! Lines have at most 100 columns.

use crate::repo::{RepoFiles, RuleFindings};
use crate::rust::{code_only, literal_lines};

/// Columns; a character is one column.
const WIDTH: usize = 100;

/// Exempt are lines that cannot be broken: table rows, code blocks, addresses, and in Rust
/// multi-line literals, which contain golden output. rustfmt breaks Rust code, except in macros and
/// attributes, so only comments and literals are checked; of TOML, C and shell only comments.
pub(crate) fn lines_fit(repo: &RepoFiles) -> RuleFindings {
    let mut findings = RuleFindings::default();
    let is_data =
        |path: &str| path.starts_with("testdata/") && !path.starts_with("testdata/extensions/");
    let ours = |path: &str| !is_data(path) && !path.ends_with("lock.json");
    for file in repo.files.iter().filter(|file| ours(&file.path)) {
        let extension = file.path.rsplit('.').next().unwrap_or_default();
        let wide = match extension {
            "rs" => wide_rust_lines(&file.text),
            "md" => wide_markdown_lines(&file.text),
            "ts" | "svelte" | "css" => wide_lines(&file.text).collect(),
            "toml" | "sh" | "c" | "h" => wide_comments(&file.text),
            _ => continue,
        };
        findings.checked += 1;
        for line in wide {
            let remedy = "break it";
            findings.add(&file.path, line, "the line is wider than 100 columns", remedy);
        }
    }
    findings
}

/// Numbers of lines that are too wide, from 1, except those with a single long word.
fn wide_lines(text: &str) -> impl Iterator<Item = usize> {
    // A line has at most as many columns as bytes.
    let is_wide =
        |line: &str| line.len() > WIDTH && line.chars().count() > WIDTH && !is_one_word(line);
    text.lines().enumerate().filter(move |(_, line)| is_wide(line)).map(|(index, _)| index + 1)
}

/// Whether the line consists of a mark and one long word, such as an address.
fn is_one_word(line: &str) -> bool {
    let longest = line.split_whitespace().map(|word| word.chars().count()).max();
    longest.is_some_and(|longest| longest > WIDTH / 2)
}

fn wide_comments(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let is_comment = |line: &usize| {
        let line = lines[line - 1].trim_start();
        ["#", "//", "/*", "* "].iter().any(|start| line.starts_with(start))
    };
    wide_lines(text).filter(is_comment).collect()
}

fn wide_rust_lines(text: &str) -> Vec<usize> {
    let wide: Vec<usize> = wide_lines(text).collect();
    if wide.is_empty() {
        return wide;
    }
    let spanned = literal_lines(text);
    let code = code_only(text);
    let code: Vec<&str> = code.lines().collect();
    let is_wide_code = |line: &usize| code[line - 1].trim_end().chars().count() > WIDTH;
    let mut is_code_block = false;
    let mut exempt = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//");
        let comment = comment.map(|rest| rest.trim_start_matches(['/', '!']).trim_start());
        match comment {
            Some(rest) if rest.starts_with("```") => is_code_block = !is_code_block,
            Some(rest) if is_code_block || rest.starts_with('|') => exempt.push(index + 1),
            Some(_) => {}
            None => is_code_block = false,
        }
    }
    let is_exempt =
        |line: &usize| spanned.contains(line) || exempt.contains(line) || is_wide_code(line);
    wide.into_iter().filter(|line| !is_exempt(line)).collect()
}

fn wide_markdown_lines(text: &str) -> Vec<usize> {
    let mut is_code_block = false;
    let mut exempt = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") {
            is_code_block = !is_code_block;
        } else if is_code_block || start.starts_with('|') {
            exempt.push(index + 1);
        }
    }
    wide_lines(text).filter(|line| !exempt.contains(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::check;

    #[test]
    fn a_wide_line_is_found() {
        let wide = "word ".repeat(21);
        let rust = format!(
            "//! R.\n// {wide}\n//! ```text\n//! {wide}\n//! ```\nlet a = r#\"\n{wide}\"#;\n"
        );
        let address = format!("<https://{}>", "a".repeat(100));
        let page = format!("{wide}\n| {wide} |\n\n```sh\n{wide}\n```\n\n{address}\n");
        let files = [("crates/a/src/a.rs", rust.as_str()), ("docs/a.md", page.as_str())];
        let problem = |place| format!("{place}: the line is wider than 100 columns: break it");
        let expected = ["crates/a/src/a.rs:2", "docs/a.md:1"].map(problem);
        let expected = expected.each_ref().map(String::as_str);
        check(lines_fit, &files, &expected);
    }
}
