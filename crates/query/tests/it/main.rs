//! Query tests: scripts with expected results, conformance tests and oracles.

mod bucket_reads;
mod canary;
mod caql;
mod checks;
mod classic;
mod compare;
mod compliance;
mod depth;
mod documented_functions;
#[expect(dead_code, reason = "no seeds")]
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;
mod increments;
mod memory;
#[path = "../../../store/tests/it/memory_storage.rs"]
mod memory_storage;
mod oracle;
mod overview;
mod plan_imports;
mod read_ahead;
mod run;
mod script;
mod staleness;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Scripts of a directory, by name.
fn scripts(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{dir:?}: {error}"));
    let paths = entries.map(|entry| entry.expect("a directory can be listed").path());
    let is_script = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "test");
    let mut paths: Vec<PathBuf> = paths.filter(is_script).collect();
    paths.sort();
    paths
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/query").join(name)
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or("")
}

#[test]
fn our_scripts() {
    let mut wrong = String::new();
    for path in scripts(&data("")) {
        let report = run::run(&fs::read_to_string(&path).expect("a script can be read"));
        assert!(report.passed + report.failures.len() > 0, "{path:?} asks nothing");
        for failure in report.failures {
            let _ = writeln!(wrong, "{}:{}: {}\n", name(&path), failure.line, failure.message);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Prometheus' own scripts, which are not part of this repository. Known failures and their reasons
/// are in `prometheus-scripts.txt`.
#[test]
#[ignore = "needs TOPDECK_PROMQLTEST, a directory of Prometheus' scripts"]
fn prometheus_scripts() {
    let dir = std::env::var("TOPDECK_PROMQLTEST").expect("TOPDECK_PROMQLTEST names a directory");
    let known = fs::read_to_string(data("prometheus-scripts.txt")).unwrap_or_default();
    let known = expected_failures(&known);
    let mut wrong = String::new();
    let mut table = String::new();
    let (mut passed, mut failed) = (0, 0);
    for path in scripts(Path::new(&dir)) {
        let report = run::run(&fs::read_to_string(&path).expect("a script can be read"));
        let count = report.failures.len();
        let _ = writeln!(table, "{:<28}{:>6} passed {count:>5} failed", name(&path), report.passed);
        (passed, failed) = (passed + report.passed, failed + count);
        for failure in report.failures {
            println!("{}:{}: {}\n", name(&path), failure.line, failure.message);
        }
        let of_this = known.iter().filter(|(file, _)| file == name(&path));
        let expected: usize = of_this.map(|(_, count)| count).sum();
        if count != expected {
            let _ = writeln!(wrong, "{}: {count} failed, not {expected}", name(&path));
        }
    }
    println!("{table}{:<28}{passed:>6} passed {failed:>5} failed", "all");
    assert!(wrong.is_empty(), "\n{wrong}");
    at_least("scripts", passed);
}

/// Checks that no fewer pass than the record in `conformance.txt` says (lines `name count`).
fn at_least(what: &str, passed: usize) {
    let record = fs::read_to_string(data("conformance.txt")).expect("the record can be read");
    let mut lines = record.lines().filter_map(|line| line.split_once(' '));
    let count =
        lines.find(|(name, _)| *name == what).and_then(|(_, count)| count.trim().parse().ok());
    let count: usize = count.unwrap_or_else(|| panic!("the record has no line `{what} count`"));
    assert!(passed >= count, "{what}: {passed} pass, {count} did before");
}

/// Lines `file.test count reason`; a line with `#` is a comment.
fn expected_failures(text: &str) -> Vec<(String, usize)> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let (file, count) = (words.next()?, words.next()?.parse().ok()?);
        words.next().map(|_| (file.to_owned(), count))
    };
    lines
        .map(|line| read(line).unwrap_or_else(|| panic!("{line:?} is not: file count why")))
        .collect()
}
