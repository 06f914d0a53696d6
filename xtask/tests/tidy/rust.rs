//! Rust sources: header comments, and the places of `unsafe` and of threads.

use std::collections::BTreeSet;

use crate::repo::{RepoFiles, RuleFindings, line_at};

const FORBID: &str = "#![forbid(unsafe_code)]";

/// Every Rust file starts with `//!`; a shebang may precede it.
pub(crate) fn files_begin_with_a_header_comment(repo: &RepoFiles) -> RuleFindings {
    let mut findings = RuleFindings::default();
    for (path, text) in sources(repo) {
        findings.checked += 1;
        // `#![…]` is an attribute, not a shebang.
        let shebang = text.starts_with("#!") && !text.starts_with("#![");
        let (line, first) = match shebang {
            true => (2, text.lines().nth(1)),
            false => (1, text.lines().next()),
        };
        if !first.is_some_and(|first| first.starts_with("//!")) {
            let remedy = "start with `//!` and one sentence about the file";
            findings.add(path, line, "does not start with `//!`", remedy);
        }
    }
    findings
}

/// A test declared as slow states a reason: `// slow: REASON` above its function.
pub(crate) fn slow_tests_give_a_reason(repo: &RepoFiles) -> RuleFindings {
    let mut findings = RuleFindings::default();
    for (path, text) in sources(repo) {
        findings.checked += 1;
        for (index, line) in text.lines().enumerate() {
            let Some(rest) = line.trim_start().strip_prefix("// slow") else { continue };
            let is_declared = rest.is_empty() || rest.starts_with(':');
            // A reason has at least three words.
            if is_declared && rest.split_whitespace().count() < 4 {
                let remedy = "write `// slow: REASON` above the test, with at least three words";
                findings.add(path, index + 1, "a slow test states no reason", remedy);
            }
        }
    }
    findings
}

/// The keyword `unsafe` occurs only in the allowed files, and in each of them.
pub(crate) fn unsafe_only_in(repo: &RepoFiles, allowed: &[&str]) -> RuleFindings {
    let mut findings = RuleFindings::default();
    for (path, text) in sources(repo) {
        findings.checked += 1;
        if !allowed.contains(&path) {
            for line in unsafe_lines(text) {
                let remedy = "remove it, or add the file to UNSAFE_FILES in xtask/tests/tidy.rs";
                findings.add(path, line, "`unsafe` in a file that may not contain it", remedy);
            }
        }
    }
    for path in allowed {
        if repo.file(path).is_none_or(|file| unsafe_lines(&file.text).is_empty()) {
            let remedy = "remove it from UNSAFE_FILES in xtask/tests/tidy.rs";
            findings.add(path, 1, "is listed for `unsafe` but does not contain it", remedy);
        }
    }
    findings
}

/// Product code starts threads and tasks only in the listed files, as many as are listed. Each
/// entry states how a panic is reported.
pub(crate) fn threads_only_in(repo: &RepoFiles, allowed: &[(&str, usize, &str)]) -> RuleFindings {
    let mut findings = RuleFindings::default();
    for (path, text) in sources(repo) {
        let is_product = path.starts_with("crates/") && path.contains("/src/");
        if !is_product || path.contains("/tests") || path.ends_with("_tests.rs") {
            continue;
        }
        findings.checked += 1;
        let lines = spawn_lines(text);
        let listed = allowed.iter().find(|entry| entry.0 == path).map_or(0, |entry| entry.1);
        if lines.len() != listed {
            let found = format!("starts threads or tasks at lines {lines:?}, {listed} are listed");
            let remedy = "supervise or join each, and describe how in THREADS of \
                          xtask/tests/tidy.rs";
            findings.add(path, lines.first().copied().unwrap_or(1), &found, remedy);
        }
    }
    for (path, ..) in allowed.iter().filter(|(path, ..)| repo.file(path).is_none()) {
        findings.add(path, 1, "is listed but does not exist", "remove it from THREADS");
    }
    findings
}

/// Lines that start a thread or a task, before the tests at the end of a file. Processes are
/// started by `spawn()` without an argument.
fn spawn_lines(text: &str) -> Vec<usize> {
    let code = code_only(without_tests(text));
    let is_start = |(offset, word): &(usize, &str)| {
        let rest = &code[offset + word.len()..];
        let is_declared = code[..*offset].ends_with("fn ");
        let is_glued = code[..*offset].chars().next_back().is_some_and(is_word);
        !rest.starts_with(')') && !is_declared && !is_glued
    };
    let words = ["spawn(", "spawn_blocking("];
    let starts = words.iter().flat_map(|word| code.match_indices(word).filter(is_start));
    let mut lines: Vec<usize> = starts.map(|(offset, _)| line_at(&code, offset)).collect();
    lines.sort_unstable();
    lines
}

/// The text before the tests at the end of a file.
pub(crate) fn without_tests(text: &str) -> &str {
    let starts = [
        "#[cfg(test)]\nmod tests {",
        "#[cfg(all(test, not(loom)))]\nmod tests {",
        "#[cfg(all(test, loom))]\nmod loom_tests {",
    ];
    starts.iter().fold(text, |text, start| text.split(start).next().unwrap_or_default())
}

/// Line numbers, from 1, of raw literals and of literals with their own line breaks, which cannot
/// be wrapped.
pub(crate) fn literal_lines(text: &str) -> BTreeSet<usize> {
    let mut lines = BTreeSet::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let is_glued = text[..at].chars().next_back().is_some_and(is_word);
        let length = skip(rest, is_glued);
        let literal = &rest[..length];
        let is_comment = literal.starts_with("//") || literal.starts_with("/*");
        let is_raw = literal.trim_start_matches(['b', 'c']).starts_with('r');
        let breaks = literal.matches('\n').count() - literal.matches("\\\n").count();
        if !is_comment && (is_raw || breaks > 0) {
            lines.extend(line_at(text, at)..=line_at(text, at + length));
        }
        at += length.max(rest.chars().next().map_or(1, char::len_utf8));
    }
    lines
}

/// Every crate root forbids unsafe code, unless a file of that crate may contain it.
pub(crate) fn crates_forbid_unsafe(repo: &RepoFiles, allowed: &[&str]) -> RuleFindings {
    let mut findings = RuleFindings::default();
    for (path, text) in sources(repo) {
        let Some(dir) = root_crate_prefix(path) else { continue };
        findings.checked += 1;
        let exempt = allowed.iter().any(|file| file.starts_with(dir));
        if !exempt && !code_only(text).contains(FORBID) {
            let remedy = &format!("add `{FORBID}` below the opening comment");
            findings.add(path, 1, "does not forbid unsafe code", remedy);
        }
    }
    findings
}

/// `crates/hist/src/` for `crates/hist/src/lib.rs`; `None` for a file that is not a crate root.
/// Files of fuzz/, bench/ and loom/ are exempt: the macro of the fuzzer's entry point expands to
/// unsafe code.
fn root_crate_prefix(path: &str) -> Option<&str> {
    let dir = path.strip_suffix("lib.rs").or_else(|| path.strip_suffix("main.rs"))?;
    let ours = dir.starts_with("crates/") || dir.starts_with("xtask/");
    (ours && dir.ends_with("/src/")).then_some(dir)
}

fn sources(repo: &RepoFiles) -> impl Iterator<Item = (&str, &str)> {
    repo.rust_files().map(|file| (file.path.as_str(), file.text.as_str()))
}

/// Lines with the keyword in code. `unsafe_code` and other lints are different words.
fn unsafe_lines(text: &str) -> Vec<usize> {
    let code = code_only(text);
    let keyword = |(offset, _): &(usize, &str)| {
        let before = code[..*offset].chars().next_back();
        let after = code[offset + "unsafe".len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    };
    code.match_indices("unsafe").filter(keyword).map(|(offset, _)| line_at(&code, offset)).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The text without comments and without the contents of literals; line breaks stay, so that line
/// numbers are equal.
pub(crate) fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        // Most characters start neither a comment nor a literal.
        let starts = |byte: u8| matches!(byte, b'/' | b'"' | b'\'' | b'r' | b'b' | b'c');
        let plain = rest.bytes().position(starts).unwrap_or(rest.len());
        code.push_str(&rest[..plain]);
        rest = &rest[plain..];
        let Some(first) = rest.chars().next() else { break };
        let glued = code.chars().next_back().is_some_and(is_word);
        let length = skip(rest, glued);
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        code.extend(rest[..length].chars().map(|c| if c == '\n' { c } else { ' ' }));
        rest = &rest[length..];
    }
    code
}

/// Length of the comment or literal at the start of `rest`, 0 for code. `glued`: a letter precedes
/// it, so that an `r` does not start a raw string.
fn skip(rest: &str, glued: bool) -> usize {
    let prefix = if glued { 0 } else { rest.len() - rest.trim_start_matches(['b', 'c']).len() };
    let after_prefix = &rest[prefix..];
    if rest.starts_with("//") {
        rest.find('\n').unwrap_or(rest.len())
    } else if rest.starts_with("/*") {
        skip_block_comment(rest)
    } else if prefix > 1 {
        0
    } else if after_prefix.starts_with('"') {
        prefix + skip_quoted(after_prefix, '"')
    } else if after_prefix.starts_with('r') && !glued {
        let length = skip_raw(after_prefix);
        if length == 0 { 0 } else { prefix + length }
    } else if after_prefix.starts_with('\'') {
        let length = skip_char(after_prefix);
        if length == 0 { 0 } else { prefix + length }
    } else {
        0
    }
}

/// Block comments nest.
fn skip_block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let here = &rest[at..];
        if here.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// A literal from its opening to its closing quote; a backslash escapes the next character.
fn skip_quoted(rest: &str, quote: char) -> usize {
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, …; 0 for a word such as `r#type` or `return`.
fn skip_raw(rest: &str) -> usize {
    let after_r = &rest[1..];
    let hash_count = after_r.len() - after_r.trim_start_matches('#').len();
    let Some(inside) = after_r[hash_count..].strip_prefix('"') else { return 0 };
    let close = format!("\"{}", "#".repeat(hash_count));
    let open_length = rest.len() - inside.len();
    inside.find(&close).map_or(rest.len(), |at| open_length + at + close.len())
}

/// `'x'` or `'\n'`; 0 for a lifetime.
fn skip_char(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) => skip_quoted(rest, '\''),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::check;

    #[test]
    fn a_slow_test_with_a_reason_passes() {
        let file = |text| ("crates/a/src/a.rs", text);
        let reason = "// slow: it waits for the kernel's minute\nfn a() {}\n// slowly grown\n";
        check(slow_tests_give_a_reason, &[file(reason)], &[]);
        let problem = "crates/a/src/a.rs:1: a slow test states no reason: write `// slow: REASON` \
                       above the test, with at least three words";
        check(slow_tests_give_a_reason, &[file("    // slow:\nfn a() {}\n")], &[problem]);
        check(slow_tests_give_a_reason, &[file("// slow\nfn a() {}\n")], &[problem]);
    }

    /// Checks the lines of `text` on which the keyword is code.
    #[track_caller]
    fn check_unsafe(text: &str, expected: &[usize]) {
        assert_eq!(unsafe_lines(text), expected, "{}", code_only(text));
    }

    #[test]
    fn unsafe_keyword_is_found_in_code() {
        check_unsafe("unsafe { f() }", &[1]);
        check_unsafe("//! Role.\nfn f() {\n    unsafe{g()}\n}\nunsafe impl S for T {}", &[3, 5]);
        check_unsafe("#[unsafe(no_mangle)]", &[1]);
        check_unsafe("let s = \"a\\\"b\"; unsafe {}", &[1]);
        check_unsafe("let c = '\"'; unsafe {}", &[1]);
        check_unsafe("let c = '\\''; unsafe {}", &[1]);
        check_unsafe("let c = b'\"'; unsafe {}", &[1]);
        check_unsafe("fn f<'a>(x: &'a str) { unsafe { g(x) } }", &[1]);
        check_unsafe("let s = r\"\\\"; unsafe {}", &[1]);
        check_unsafe("let s = br##\"\"#\"##; unsafe {}", &[1]);
        check_unsafe("let r#type = 1; /* a */ unsafe {}", &[1]);
        check_unsafe("/* /* */ */ unsafe {}", &[1]);
        check_unsafe("let s = \"two\nlines\";\nunsafe {}", &[3]);
    }

    #[test]
    fn identifiers_containing_unsafe_are_ignored() {
        check_unsafe("#![forbid(unsafe_code)]\n#![deny(unsafe_op_in_unsafe_fn)]", &[]);
        check_unsafe("// unsafe\n/// unsafe\n/* unsafe /* */ unsafe */ let x = 1;", &[]);
        check_unsafe("let s = \"unsafe\"; let t = r#\"\" unsafe\"#; let u = b\"unsafe\";", &[]);
        check_unsafe("let s = \"two\nunsafe\nlines\";", &[]);
        check_unsafe("let not_unsafe = 1; let unsafe2 = 2;", &[]);
    }

    #[track_caller]
    fn check_spawns(text: &str, expected: &[usize]) {
        assert_eq!(spawn_lines(text), expected);
    }

    #[test]
    fn a_thread_is_seen_and_a_process_is_not() {
        check_spawns("let a = thread::spawn(move || 1);\nscope.spawn(work);", &[1, 2]);
        check_spawns("spawn_blocking(f);\nlet _ = tokio::task::spawn_blocking(f);", &[1, 2]);
        check_spawns("fn spawn(work: W) {}\nCommand::new(\"ps\").spawn()?;\nrespawn(1);", &[]);
        check_spawns("// thread::spawn(f)\n#[cfg(test)]\nmod tests {\n    thread::spawn(f);", &[]);
    }

    #[test]
    fn a_thread_that_nobody_watches_is_found() {
        let files = [("crates/a/src/a.rs", "//! R.\nthread::spawn(f);\n")];
        let problem = "crates/a/src/a.rs:2: starts threads or tasks at lines [2], 0 are listed: \
                       supervise or join each, and describe how in THREADS of xtask/tests/tidy.rs";
        check(|repo| threads_only_in(repo, &[]), &files, &[problem]);
        check(|repo| threads_only_in(repo, &[("crates/a/src/a.rs", 1, "joined")]), &files, &[]);
    }

    #[test]
    fn a_file_without_role_is_found() {
        let good = ("crates/a/src/lib.rs", "//! Role.\n");
        let script = ("xtask/x.rs", "#!/usr/bin/env run\n//! Role.\n");
        let attribute = ("fuzz/x.rs", "#![no_main]\n//! Role.\n");
        let empty = ("bench/x.rs", "");
        let elsewhere = ("docs/x.rs", "fn main() {}");
        let remedy = "does not start with `//!`: start with `//!` and one sentence about the file";
        let [first, second] = ["fuzz/x.rs", "bench/x.rs"].map(|path| format!("{path}:1: {remedy}"));
        let files = [good, script, attribute, empty, elsewhere];
        check(files_begin_with_a_header_comment, &files, &[&first, &second]);
    }

    #[test]
    fn a_file_that_may_not_be_unsafe_is_found() {
        let files = [("crates/a/src/lib.rs", "//! R.\n\nunsafe {}\n")];
        let problem = "crates/a/src/lib.rs:3: `unsafe` in a file that may not contain it: remove \
                       it, or add the file to UNSAFE_FILES in xtask/tests/tidy.rs";
        check(|repo| unsafe_only_in(repo, &[]), &files, &[problem]);
        check(|repo| unsafe_only_in(repo, &["crates/a/src/lib.rs"]), &files, &[]);
    }

    #[test]
    fn unused_unsafe_permission_is_found() {
        let files = [("crates/a/src/lib.rs", "//! No unsafe here.\n")];
        let problem = "crates/a/src/lib.rs:1: is listed for `unsafe` but does not contain it: \
                       remove it from UNSAFE_FILES in xtask/tests/tidy.rs";
        check(|repo| unsafe_only_in(repo, &["crates/a/src/lib.rs"]), &files, &[problem]);
    }

    #[test]
    fn a_crate_that_does_not_forbid_unsafe_is_found() {
        let library = ("crates/a/src/lib.rs", "//! R.\n// #![forbid(unsafe_code)]\n");
        let program = ("xtask/src/main.rs", "//! R.\n#![forbid(unsafe_code)]\n");
        let module = ("crates/a/src/map.rs", "//! R.\n");
        let problem = "crates/a/src/lib.rs:1: does not forbid unsafe code: add \
                       `#![forbid(unsafe_code)]` below the opening comment";
        let files = [library, program, module];
        check(|repo| crates_forbid_unsafe(repo, &[]), &files, &[problem]);
        check(|repo| crates_forbid_unsafe(repo, &["crates/a/src/map.rs"]), &files, &[]);
    }
}
