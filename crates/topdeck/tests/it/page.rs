//! `docs/hist.md`, `docs/journal.md`, `docs/store.md` and `docs/query.md` show actual output.
//!
//! In their `console` blocks a line `$ …` is run, and the lines up to the next `$` are compared
//! with its output. `UPDATE_EXPECT=1` updates the page.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::test_dir::{TestDir, mask};
use crate::{root, topdeck};

const PROMPT: &str = "$ ";

#[test]
fn hist_page_examples_match() {
    let run = |line: &str| {
        let arguments = line.strip_prefix("topdeck ").expect("a command of ours");
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let run = topdeck(&arguments, b"");
        run.stdout + &run.stderr
    };
    check("docs/hist.md", run, str::to_owned);
}

/// In their own directory, in order, by the shell.
#[test]
fn journal_page_examples_match() {
    let dir = TestDir::new();
    check("docs/journal.md", |line| shell(dir.path(), line), mask);
}

#[test]
fn store_page_examples_match() {
    let dir = TestDir::new();
    for (name, file) in [("hiccup", "jHiccup-2.0.7S.logV2"), ("tagged", "tagged-Log.logV2")] {
        let from = root().join(format!("testdata/hist/hdr/{file}.hlog"));
        fs::copy(from, dir.path().join(format!("{name}.hlog"))).expect("the log is there");
    }
    check("docs/store.md", |line| shell(dir.path(), line), mask_sizes);
}

#[test]
fn query_page_examples_match() {
    let dir = TestDir::new();
    check("docs/query.md", |line| shell(dir.path(), line), str::to_owned);
}

/// Masks sizes, which change with every improvement of the compression.
fn mask_sizes(text: &str) -> String {
    let is_unit = |word: &str| ["B", "KiB", "MiB"].contains(&word.trim_end_matches([',', ':']));
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !words.iter().any(|word| is_unit(word) || *word == "bytes/row") {
            return line.to_owned();
        }
        let is_size = |at: usize| {
            let is_last = at + 1 == words.len() && words[at].contains('.');
            is_last || words.get(at + 1).is_some_and(|next| is_unit(next))
        };
        let kept = words.iter().enumerate().filter(|(at, word)| !is_size(*at) && !is_unit(word));
        kept.map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn shell(dir: &Path, line: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_topdeck")).parent().expect("it is in a directory");
    let output = Command::new("/bin/sh")
        .args(["-c", &format!("exec 2>&1\n{line}")])
        .current_dir(dir)
        .env_clear()
        .env("LC_ALL", "C.UTF-8")
        .env("PATH", format!("{}:/usr/bin:/bin", binary.display()))
        .output()
        .expect("there is a shell");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{line}: {text}");
    text
}

/// Compares a page with the output of its commands, after `mask`.
#[track_caller]
fn check(page: &str, run: impl Fn(&str) -> String, mask: impl Fn(&str) -> String) {
    let path = root().join(page);
    let text = fs::read_to_string(&path).expect("the page is there");
    let (written, commands) = with_outputs(&text, run);
    assert!(commands > 0, "{page} has no example");
    if mask(&text) == mask(&written) {
        return;
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, written).expect("the page can be written");
    } else {
        panic!(
            "{page} differs from the output of topdeck; UPDATE_EXPECT=1 writes it anew:\n{written}"
        );
    }
}

/// The page with current output, and the number of commands.
fn with_outputs(page: &str, run: impl Fn(&str) -> String) -> (String, usize) {
    let (mut written, mut commands) = (String::new(), 0);
    let (mut in_console, mut in_output) = (false, false);
    for line in page.split_inclusive('\n') {
        if line.starts_with("```") {
            in_console = line.trim_end() == "```console";
            in_output = false;
        } else if let (true, Some(command)) = (in_console, line.strip_prefix(PROMPT)) {
            commands += 1;
            written.push_str(line);
            written.push_str(&run(command.trim_end()));
            in_output = true;
        }
        if !in_output {
            written.push_str(line);
        }
    }
    (written, commands)
}
