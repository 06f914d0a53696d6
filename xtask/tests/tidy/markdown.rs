//! Markdown: links inside the repository resolve. Anchors of headings are those of GitHub.

use std::collections::HashMap;

use crate::repo::{RepoFile, RepoFiles, RuleFindings, line_at};

/// Every relative link of every Markdown file names a file or directory, and its `#anchor` a
/// heading in that file.
pub(crate) fn links_resolve(repo: &RepoFiles) -> RuleFindings {
    let mut findings = RuleFindings::default();
    for file in repo.files.iter().filter(|file| is_markdown(&file.path)) {
        for link in links(&file.text).iter().filter(|link| is_relative(link.target)) {
            findings.checked += 1;
            if let Err((found, remedy)) = check_target(repo, file, link.target) {
                let found = format!("link to `{}`, {found}", link.target);
                findings.add(&file.path, link.line, &found, remedy);
            }
        }
    }
    findings
}

/// Returns the problem of a target and its remedy.
fn check_target(
    repo: &RepoFiles,
    from: &RepoFile,
    target: &str,
) -> Result<(), (String, &'static str)> {
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (target, None),
    };
    let Some(path) = resolve(&from.path, path) else {
        return Err((
            "outside the repository".into(),
            "link to a file in the repository, or \
                                                      remove the link",
        ));
    };
    if !repo.has(&path) {
        return Err((format!("but {path} does not exist"), "correct the path, or commit the file"));
    }
    match (anchor, repo.file(&path)) {
        (Some(anchor), Some(file)) if is_markdown(&path) => {
            let found = headings(&file.text).into_iter().any(|heading| heading.anchor == anchor);
            let missing =
                || (format!("but no heading of {path} has that anchor"), "correct the anchor");
            found.then_some(()).ok_or_else(missing)
        }
        _ => Ok(()),
    }
}

/// Resolves a path relative to the file `from`; `None` if it leaves the repository.
fn resolve(from: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(from.to_owned());
    }
    let path = path.replace("%20", " ");
    let mut steps: Vec<&str> = match path.starts_with('/') {
        true => Vec::new(),
        false => from.rsplit_once('/').map_or(Vec::new(), |(dir, _)| dir.split('/').collect()),
    };
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => drop(steps.pop()?),
            name => steps.push(name),
        }
    }
    Some(steps.join("/"))
}

fn is_markdown(path: &str) -> bool {
    path.ends_with(".md")
}

/// No scheme such as `https:` or `mailto:`.
fn is_relative(target: &str) -> bool {
    let scheme = target.split_once(':').map_or("", |(scheme, _)| scheme);
    scheme.is_empty() || !scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

#[derive(Debug, PartialEq)]
struct MarkdownLink<'a> {
    line: usize,
    target: &'a str,
}

/// Targets of `[text](target)`, `[label]: target`, and of `src` and `href` in HTML, except in code.
fn links(text: &str) -> Vec<MarkdownLink<'_>> {
    let prose = without_code_spans(&without_fences(text));
    // Code is blanked byte by byte, so offsets in both texts are equal.
    assert_eq!(prose.len(), text.len(), "blanking changed the length");
    let targets = [inline_targets(&prose), definition_targets(&prose), html_targets(&prose)];
    let mut ranges: Vec<(usize, usize)> = targets.concat();
    ranges.sort_unstable();
    let link = |(start, end): (usize, usize)| MarkdownLink {
        line: line_at(text, start),
        target: text[start..end].trim_matches(['<', '>']),
    };
    ranges.into_iter().map(link).filter(|link| !link.target.is_empty()).collect()
}

fn inline_targets(prose: &str) -> Vec<(usize, usize)> {
    let starts = prose.match_indices("](").map(|(at, open)| at + open.len());
    starts.filter_map(|start| Some((start, start + inline_length(&prose[start..])?))).collect()
}

/// Length up to the title or the closing parenthesis; inner parentheses are balanced.
fn inline_length(rest: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in rest.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            c if c.is_whitespace() => return rest[at..].contains(')').then_some(at),
            _ => {}
        }
    }
    None
}

fn definition_targets(prose: &str) -> Vec<(usize, usize)> {
    let target = |(start, line): (usize, &str)| {
        let label = line.trim_start().strip_prefix('[').filter(|label| !label.starts_with('^'))?;
        let target = label.split_once("]:")?.1.split_whitespace().next()?;
        let at = start + line.find(target)?;
        Some((at, at + target.len()))
    };
    lines_with_offset(prose).filter_map(target).collect()
}

fn html_targets(prose: &str) -> Vec<(usize, usize)> {
    let openings = [" src=\"", " href=\""];
    let starts = openings
        .iter()
        .flat_map(|open| prose.match_indices(open).map(|(at, open)| at + open.len()));
    starts.filter_map(|start| Some((start, start + prose[start..].find('"')?))).collect()
}

/// A `#` heading.
pub(crate) struct MarkdownHeading {
    pub(crate) text: String,
    /// The anchor, without `#`.
    pub(crate) anchor: String,
}

pub(crate) fn headings(text: &str) -> Vec<MarkdownHeading> {
    let prose = without_fences(text);
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut headings = Vec::new();
    for line in prose.lines() {
        let Some(text) = heading_text(line) else { continue };
        let base = slug(text);
        let count = seen.entry(base.clone()).or_default();
        // The second of two equal headings has the anchor `name-1`.
        let anchor = if *count == 0 { base } else { format!("{base}-{count}") };
        *count += 1;
        headings.push(MarkdownHeading { text: text.to_owned(), anchor });
    }
    headings
}

fn heading_text(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    let text = rest.strip_prefix(' ')?;
    (1..=6).contains(&level).then(|| text.trim().trim_end_matches('#').trim_end())
}

/// Anchor as GitHub derives it: the visible text in lower case; letters, digits, `_` and `-` stay,
/// spaces become `-`.
fn slug(heading: &str) -> String {
    let mut slug = String::new();
    for c in visible(heading).chars() {
        match c {
            ' ' => slug.push('-'),
            '_' | '-' => slug.push(c),
            c if c.is_alphanumeric() => slug.extend(c.to_lowercase()),
            _ => {}
        }
    }
    slug
}

/// Visible text: the text of `[text](target)`.
fn visible(heading: &str) -> String {
    let mut shown = String::new();
    let mut rest = heading;
    while let Some(at) = rest.find("](") {
        shown.push_str(&rest[..at]);
        rest = &rest[at + 2..];
        rest = inline_length(rest).map_or("", |length| &rest[length..]);
    }
    shown + rest
}

/// Blanks fenced code; offsets and lines stay.
fn without_fences(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut open: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        let fence = fence(line);
        let closes = |open: &str| {
            let info = line.trim().trim_start_matches(['`', '~']);
            fence.is_some_and(|fence| fence.starts_with(open)) && info.is_empty()
        };
        let code = open.is_some() || fence.is_some();
        open = match open {
            Some(open) if closes(open) => None,
            Some(open) => Some(open),
            None => fence,
        };
        match code {
            true => prose.push_str(&blank(line)),
            false => prose.push_str(line),
        }
    }
    prose
}

/// The run of at least three characters that opens or closes a code block.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|c| "`~".contains(*c))?;
    let length = line.len() - line.trim_start_matches(mark).len();
    (length >= 3).then(|| &line[..length])
}

/// Blanks code spans in paragraphs; offsets and lines stay.
fn without_code_spans(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('`') {
        prose.push_str(&rest[..at]);
        rest = &rest[at..];
        let tick_count = rest.len() - rest.trim_start_matches('`').len();
        let length = span_length(rest, tick_count);
        match length {
            Some(length) => prose.push_str(&blank(&rest[..length])),
            None => prose.push_str(&rest[..tick_count]),
        }
        rest = &rest[length.unwrap_or(tick_count)..];
    }
    prose + rest
}

/// A code span ends at the next run of as many backticks in the same paragraph; without one the
/// backticks are text.
fn span_length(rest: &str, tick_count: usize) -> Option<usize> {
    let paragraph = rest.find("\n\n").map_or(rest, |end| &rest[..end]);
    let mut at = tick_count;
    while let Some(next) = paragraph[at..].find('`') {
        let run = &paragraph[at + next..];
        let run_length = run.len() - run.trim_start_matches('`').len();
        at += next + run_length;
        if run_length == tick_count {
            return Some(at);
        }
    }
    None
}

/// As many blank bytes.
fn blank(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

fn lines_with_offset(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |offset, line| {
        let start = *offset;
        *offset += line.len();
        Some((start, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::check;

    #[track_caller]
    fn check_targets(text: &str, expected: &[(usize, &str)]) {
        let links = links(text);
        let found: Vec<(usize, &str)> = links.iter().map(|link| (link.line, link.target)).collect();
        assert_eq!(found, expected);
    }

    #[track_caller]
    fn check_anchors(text: &str, expected: &[&str]) {
        let headings = headings(text);
        let anchors: Vec<&str> = headings.iter().map(|heading| heading.anchor.as_str()).collect();
        assert_eq!(anchors, expected);
    }

    /// Checks docs/a.md next to docs/b.md, which has a heading, and src/lib.rs.
    #[track_caller]
    fn check_link(link: &str, expected: &[&str]) {
        let text = format!("# Here\n\n{link}\n");
        let files =
            [("docs/a.md", text.as_str()), ("docs/b.md", "## The `b` file\n"), ("src/lib.rs", "")];
        check(links_resolve, &files, expected);
    }

    #[test]
    fn links_are_seen() {
        check_targets("a [b](c.md) d ![e](f.png)", &[(1, "c.md"), (1, "f.png")]);
        check_targets("[a](b.md \"title\")\n[c](<d.md>)", &[(1, "b.md"), (2, "d.md")]);
        check_targets("[`code`](b.md#x)", &[(1, "b.md#x")]);
        check_targets("[a](b_(c).md)", &[(1, "b_(c).md")]);
        check_targets("[![a](b.svg)](c.md)", &[(1, "b.svg"), (1, "c.md")]);
        check_targets("See [x].\n\n[x]: y.md\n[^1]: no.md", &[(3, "y.md")]);
        check_targets(
            "<img alt=\"p\" src=\"p.png\">\n<a href=\"q.md\">",
            &[(1, "p.png"), (2, "q.md")],
        );
        check_targets("ö `ü` [ä](ß.md)", &[(1, "ß.md")]);
    }

    #[test]
    fn code_holds_no_links() {
        check_targets("`[a](b)` ``[c`](d)`` and ` [e](f)", &[(1, "f")]);
        check_targets("```md\n[a](b)\n```\n[c](d)", &[(4, "d")]);
        check_targets("````\n```\n[a](b)\n````\n~~~\n[c](d)\n~~~\n", &[]);
        check_targets("```\n```rust\n[a](b)\n```\n[c](d)", &[(5, "d")]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        check_anchors(
            "# A b\n## C: `d_e`, f!\n# A b\nno # heading\n#no",
            &["a-b", "c-d_e-f", "a-b-1"],
        );
        check_anchors(
            "## [Text](url.md) & more ##\n```\n# code\n```\n# Größe",
            &["text--more", "größe"],
        );
    }

    #[test]
    fn existing_targets_resolve() {
        for link in ["[x](b.md)", "[x](../src/lib.rs#L7)", "[x](/src/)", "[x](..)", "[x](./a.md)"] {
            check_link(link, &[]);
        }
        check_link("[x](#here) [y](b.md#the-b-file) [z](https://example.org/nothing)", &[]);
    }

    #[test]
    fn a_missing_file_is_found() {
        let problem = "docs/a.md:3: link to `c.md`, but docs/c.md does not exist: correct the \
                       path, or commit the file";
        check_link("[x](c.md)", &[problem]);
        let problem = problem.replace("c.md", "b.mdx");
        check_link("[x](b.mdx)", &[&problem]);
    }

    #[test]
    fn a_missing_heading_is_found() {
        let problem = "docs/a.md:3: link to `b.md#there`, but no heading of docs/b.md has that \
                       anchor: correct the anchor";
        check_link("[x](b.md#there)", &[problem]);
        let problem = "docs/a.md:3: link to `#there`, but no heading of docs/a.md has that anchor: \
                       correct the anchor";
        check_link("[x](#there)", &[problem]);
    }

    #[test]
    fn a_link_out_of_the_repository_is_found() {
        let problem = "docs/a.md:3: link to `../../x.md`, outside the repository: link to a file \
                       in the repository, or remove the link";
        check_link("[x](../../x.md)", &[problem]);
    }

    #[test]
    fn a_link_with_a_scheme_is_not_ours() {
        let relative = ["a.md", "#b", "a/b:c.md"].map(is_relative);
        assert_eq!(relative, [true; 3]);
        let foreign = ["https://a.org", "mailto:a@b.org", "git+ssh://x"].map(is_relative);
        assert_eq!(foreign, [false; 3]);
    }
}
