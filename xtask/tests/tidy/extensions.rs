//! Extension points: an extension of each kind is one new file and one line.

use std::collections::BTreeMap;

use crate::extension_list::{DIR, Extension, InsertedLine, LIST, parse};
use crate::repo::{RepoFiles, RuleFindings};

/// The page that shows the counted result.
const PAGE: &str = "CONTRIBUTING.md";
/// Columns of a line.
const WIDTH: usize = 100;

/// Files and lines that an extension adds.
#[derive(Debug, PartialEq)]
struct AddedSize {
    files: usize,
    /// Lines without declarations of files.
    lines: usize,
}

/// Each listed extension can be added: its file is new, and its lines have a place. It is tested,
/// and the table of [`PAGE`] has its size.
pub(crate) fn extensions_are_one_file_and_one_line(repo: &RepoFiles) -> RuleFindings {
    let mut findings = RuleFindings::default();
    let list = repo.file(LIST).map_or("", |file| file.text.as_str());
    let extensions = match parse(list) {
        Ok(extensions) => extensions,
        Err(error) => {
            findings.add(LIST, 1, &format!("{error:#}"), "repair the list");
            return findings;
        }
    };
    let mut rows = Vec::new();
    for extension in &extensions {
        findings.checked += 1;
        match add(repo, extension) {
            Ok(AddedSize { files: 1, lines: 1 }) => {}
            Ok(size) => {
                let found = format!("{} adds {size:?}", extension.kind);
                findings.add(LIST, 1, &found, "change the code so that a file and a line suffice");
            }
            Err((file, found)) => {
                let remedy = format!("update the entry `{}` of {LIST}", extension.kind);
                findings.add(&file, 1, &found, &remedy);
            }
        }
        if let Some(found) = missing_test(repo, extension) {
            let path = [DIR, &extension.example].concat();
            findings.add(&path, 1, &found, "include the file by its path in a test of its crate");
        }
        rows.push(table_row(extension));
    }
    for file in repo.files.iter().filter(|file| file.path.starts_with(DIR)) {
        let is_listed = |one: &Extension| file.path[DIR.len()..] == one.example;
        if file.path != LIST && !extensions.iter().any(is_listed) {
            findings.add(&file.path, 1, "is not listed", &format!("list it in {LIST}, or delete"));
        }
    }
    let table = rows.concat();
    if !repo.file(PAGE).is_some_and(|page| page.text.contains(&table)) {
        let found = format!("does not have this table of extensions:\n{table}");
        findings.add(PAGE, 1, &found, "copy it");
    }
    findings
}

/// Adds an extension to a copy of the files and counts what is new. An error names a file.
fn add(repo: &RepoFiles, extension: &Extension) -> Result<AddedSize, (String, String)> {
    let Extension { example, file, row, declaration, .. } = extension;
    let fails = |path: &str, why: &str| Err((path.to_owned(), why.to_owned()));
    let dir = example.split_once('/').map_or("", |(dir, _)| dir);
    let dir = format!("{DIR}{dir}/");
    if repo.has(file) {
        return fails(file, "is not new");
    }
    if repo.file(&[DIR, example].concat()).is_none() {
        return fails(&[DIR, example].concat(), "is missing");
    }
    if !is_declaration(&declaration.line) || is_declaration(&row.line) {
        return fails(LIST, "a declaration is `mod NAME;` or `… => import(…)`, and a row is none");
    }
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for inserted in [row, declaration] {
        let InsertedLine { file: path, line, .. } = inserted;
        if line.contains('\n') || line.chars().count() > WIDTH {
            return fails(path, &format!("`{line}` is not one line of {WIDTH} columns"));
        }
        let Some(old) = repo.file(path) else { return fails(path, "is missing") };
        let text = texts.entry(path).or_insert_with(|| old.text.clone());
        *text = inserted.insert(text).map_err(|why| (path.clone(), why))?;
    }
    let added = |(path, text): (&&str, &String)| {
        let old = repo.file(path).map_or(0, |file| file.text.lines().count());
        text.lines().count() - old
    };
    let lines = texts.iter().map(added).sum::<usize>() - 1;
    let files = repo.files.iter().filter(|file| file.path.starts_with(&dir)).count();
    Ok(AddedSize { files, lines })
}

/// Whether the language requires the line for a new file.
fn is_declaration(line: &str) -> bool {
    let line = line.trim_start_matches("pub(crate) ");
    line.starts_with("mod ") || (line.starts_with("const ") && line.contains(" => import("))
}

/// Why the example is not tested. The page view is: it has no test of its own, and `cargo xtask
/// system extensions` opens it in a browser.
fn missing_test(repo: &RepoFiles, extension: &Extension) -> Option<String> {
    if !extension.example.ends_with(".rs") {
        return None;
    }
    let path = [DIR, &extension.example].concat();
    let text = repo.file(&path).map_or("", |file| file.text.as_str());
    let includes = format!("{path}\"]");
    let is_included = |file: &&crate::repo::RepoFile| {
        file.path.starts_with("crates/") && file.text.contains(&includes)
    };
    match (text.contains("#[test]"), repo.rust_files().find(is_included)) {
        (false, _) => Some("has no test".to_owned()),
        (_, None) => Some("is compiled by no test".to_owned()),
        _ => None,
    }
}

/// The row of the table of [`PAGE`].
fn table_row(extension: &Extension) -> String {
    let Extension { kind, example, file, row, declaration } = extension;
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let link = |path: &str| format!("[{}]({path})", name(path));
    let dir = file.rsplit_once('/').map_or("", |(dir, _)| dir);
    format!(
        "| {kind} | [{}]({DIR}{example}) in `{dir}/` | 1 | {} | {} |\n",
        name(example),
        link(&row.file),
        link(&declaration.file)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::check;

    const ENTRY: &str = "[[extension]]\nkind = 'role'\nexample = 'role/heart.rs'\n\
                         file = 'crates/a/src/heart.rs'\n\
                         row = { file = 'crates/a/src/lib.rs', after = 'x', line = 'y' }\n\
                         declaration = { file = 'crates/a/src/lib.rs', after = 'mod b;', \
                         line = 'mod heart;' }\n";
    const ROW: &str = "| role | [heart.rs](testdata/extensions/role/heart.rs) in `crates/a/src/` \
                       | 1 | [lib.rs](crates/a/src/lib.rs) | [lib.rs](crates/a/src/lib.rs) |\n";
    const TEST: &str = "#[path = \"../../testdata/extensions/role/heart.rs\"]\nmod b;\nx\n";

    #[track_caller]
    fn check_with(changed: &[(&'static str, &str)], expected: &[&str]) {
        let mut files = BTreeMap::from([
            (LIST, ENTRY),
            (PAGE, ROW),
            ("crates/a/src/lib.rs", TEST),
            ("testdata/extensions/role/heart.rs", "#[test]\n"),
        ]);
        files.extend(changed.iter().copied());
        let files: Vec<(&str, &str)> = files.into_iter().collect();
        check(extensions_are_one_file_and_one_line, &files, expected);
    }

    #[test]
    fn one_file_and_one_line_pass() {
        check_with(&[], &[]);
    }

    #[test]
    fn a_missing_anchor_is_found() {
        let text = TEST.replace("\nx\n", "\nz\n");
        let problem = "crates/a/src/lib.rs:1: 0 lines are `x`, expected 1: update the entry \
                       `role` of testdata/extensions/extensions.toml";
        check_with(&[("crates/a/src/lib.rs", &text)], &[problem]);
    }

    #[test]
    fn a_second_file_is_found() {
        let problems = [
            "testdata/extensions/extensions.toml:1: role adds AddedSize { files: 2, lines: 1 }: \
             change the code so that a file and a line suffice",
            "testdata/extensions/role/more.rs:1: is not listed: list it in \
             testdata/extensions/extensions.toml, or delete",
        ];
        check_with(&[("testdata/extensions/role/more.rs", "")], &problems);
    }

    #[test]
    fn a_row_of_two_lines_is_found() {
        let list = ENTRY.replace("line = 'y'", "line = \"y\\nz\"");
        let problem = "crates/a/src/lib.rs:1: `y\nz` is not one line of 100 columns: update the \
                       entry `role` of testdata/extensions/extensions.toml";
        check_with(&[(LIST, &list)], &[problem]);
    }

    #[test]
    fn an_import_as_row_is_found() {
        let list = ENTRY.replace("line = 'y'", "line = 'mod y;'");
        let problem = "testdata/extensions/extensions.toml:1: a declaration is `mod NAME;` or \
                       `… => import(…)`, and a row is none: update the entry `role` of \
                       testdata/extensions/extensions.toml";
        check_with(&[(LIST, &list)], &[problem]);
    }

    #[test]
    fn an_example_without_a_test_is_found() {
        let remedy = "include the file by its path in a test of its crate";
        let problem = format!("testdata/extensions/role/heart.rs:1: has no test: {remedy}");
        check_with(&[("testdata/extensions/role/heart.rs", "")], &[&problem]);
        let problem =
            format!("testdata/extensions/role/heart.rs:1: is compiled by no test: {remedy}");
        check_with(&[("crates/a/src/lib.rs", "mod b;\nx\n")], &[&problem]);
    }

    #[test]
    fn an_outdated_page_is_found() {
        let problem =
            format!("CONTRIBUTING.md:1: does not have this table of extensions:\n{ROW}: copy it");
        check_with(&[(PAGE, "| role |\n")], &[&problem]);
    }
}
