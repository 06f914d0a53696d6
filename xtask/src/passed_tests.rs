//! Cache of passed test programs, in `target/ci/passed.json`.
//!
//! A second `make test` on the same machine runs only what a change can affect. A program is not
//! run again if the following are equal: the test program, the programs that its tests start, and
//! all files of the repository that no compiler reads (path, size, modification time), for the same
//! user, kernel, time zone and locale. Programs with a failed test are not stored. With `CI` or
//! `TOPDECK_TEST_ALL` set, everything runs.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::ci_part::PartOutcome;
use crate::command_line::{CommandLine, cores, root, target};
use crate::part_log::PartLog;
use crate::test_report::TestReport;

/// Environment variables that tests or compilers may read.
const VARIABLES: [&str; 12] = [
    "TZ",
    "LANG",
    "LC_ALL",
    "USER",
    "TMPDIR",
    "PATH",
    "RUSTFLAGS",
    "MIRIFLAGS",
    "LOOM_MAX_BRANCHES",
    "PROPTEST_CASES",
    "TOPDECK_TEST_SEED",
    "TOPDECK_CRASH_TESTS",
];

/// Sources of the parts: a change affects all of them.
const MACHINERY: &str = "xtask/src/";

/// Pages that only the tidy test reads; its key covers all files.
const PROSE: [&str; 4] = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/ci-times.md"];

/// Runs a part unless it passed on the same inputs: files below `prefixes`, `files`, and everything
/// that tests may read.
pub(crate) fn run_unless_unchanged(
    log: &PartLog,
    prefixes: &[&str],
    files: &[&Path],
    run: impl FnOnce() -> Result<PartOutcome>,
) -> Result<PartOutcome> {
    let prefixes: Vec<String> = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
    let key = PassedTests::key_of_sources(&prefixes, files)?;
    if let Some(report) = PassedTests::open()?.find(log.name(), &key) {
        return Ok(PartOutcome::Unchanged(report));
    }
    let outcome = run()?;
    let report = match &outcome {
        PartOutcome::Tests(report) => report,
        PartOutcome::Passed => &TestReport::default(),
        // Must run again.
        PartOutcome::Skipped(_) | PartOutcome::Unchanged(_) => return Ok(outcome),
    };
    PassedTests::update(log, |passed| passed.insert(log.name(), key, report));
    Ok(outcome)
}

/// Passed programs and parts, by name.
pub(crate) struct PassedTests {
    path: PathBuf,
    entries: BTreeMap<String, Value>,
    is_used: bool,
}

impl PassedTests {
    /// Reads the cache of earlier runs; empty if it is missing or invalid.
    pub(crate) fn open() -> Result<PassedTests> {
        let path = target().join("ci/passed.json");
        let bytes = fs::read(&path).unwrap_or_default();
        let entries = serde_json::from_slice(&bytes).unwrap_or_default();
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Ok(PassedTests { path, entries, is_used: !is_set("CI") && !is_set("TOPDECK_TEST_ALL") })
    }

    /// Updates the cache. Parts run concurrently, so the file is read again. A failed write is
    /// logged, and the programs run again the next time.
    pub(crate) fn update(log: &PartLog, change: impl FnOnce(&mut PassedTests)) {
        static LOCK: Mutex<()> = Mutex::new(());
        let _guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let save = |mut passed: PassedTests| {
            change(&mut passed);
            passed.save()
        };
        if let Err(error) = PassedTests::open().and_then(save) {
            log.note(&format!("cannot store passed tests: {error:#}"));
        }
    }

    fn save(&self) -> Result<()> {
        let text = serde_json::to_vec(&self.entries).expect("BUG: cannot serialize passed tests");
        let name = self.path.display();
        fs::create_dir_all(self.path.parent().expect("BUG: it is in a directory"))?;
        let new = self.path.with_extension("new");
        fs::write(&new, text).with_context(|| format!("cannot write {name}"))?;
        fs::rename(&new, &self.path).with_context(|| format!("cannot replace {name}"))
    }

    /// Key of a program: a hash of `files` and of the rest of the repository.
    pub(crate) fn key(files: &[&Path]) -> Result<String> {
        let mut hasher = DefaultHasher::new();
        for file in files {
            hash_file(file, &mut hasher)
                .with_context(|| format!("cannot read {}", file.display()))?;
        }
        environment_hash()?.hash(&mut hasher);
        Ok(format!("{:016x}", hasher.finish()))
    }

    /// Key of a part with its own build: a hash of all files whose path from the root starts with
    /// one of `prefixes`, of `files`, and of the rest of the repository.
    pub(crate) fn key_of_sources(prefixes: &[String], files: &[&Path]) -> Result<String> {
        let mut hasher = DefaultHasher::new();
        PassedTests::key(files)?.hash(&mut hasher);
        let is_meant = |name: &&str| {
            prefixes.iter().any(|prefix| name.starts_with(prefix)) || name.starts_with(MACHINERY)
        };
        for name in files_of_repository()?.split('\0').filter(is_meant) {
            // A listed file that is missing was deleted, which is a change too.
            if hash_file(&root().join(name), &mut hasher).is_err() {
                name.hash(&mut hasher);
            }
        }
        Ok(format!("{:016x}", hasher.finish()))
    }

    /// The report of an earlier run with the same key, with all tests counted as unchanged.
    pub(crate) fn find(&self, name: &str, key: &str) -> Option<TestReport> {
        let entry = self.entries.get(name).filter(|_| self.is_used)?;
        if entry["key"] != key {
            return None;
        }
        let passed = entry["passed"].as_u64()?;
        Some(TestReport { passed, unchanged: passed, ..TestReport::default() })
    }

    /// Stores a report in which every test passed; otherwise removes the program. A skipped test
    /// runs again, because what it lacked may be available the next time.
    pub(crate) fn insert(&mut self, name: &str, key: String, report: &TestReport) {
        if !report.failed.is_empty() || !report.skipped.is_empty() {
            self.entries.remove(name);
            return;
        }
        let seconds: f64 = report.programs.iter().map(|timing| timing.seconds).sum();
        let entry = json!({"key": key, "passed": report.passed, "seconds": seconds});
        self.entries.insert(name.to_owned(), entry);
    }

    /// Duration of the last run in seconds.
    pub(crate) fn seconds(&self, name: &str) -> Option<f64> {
        self.entries.get(name).and_then(|entry| entry["seconds"].as_f64())
    }
}

/// Hash of everything besides the program that tests may observe.
fn environment_hash() -> Result<u64> {
    static CACHED: OnceLock<u64> = OnceLock::new();
    if let Some(known) = CACHED.get() {
        return Ok(*known);
    }
    let mut hasher = DefaultHasher::new();
    for name in files_of_repository()?.split('\0').filter(|name| is_data(name)) {
        // A listed file that is missing was deleted, which is a change too.
        if hash_file(&root().join(name), &mut hasher).is_err() {
            name.hash(&mut hasher);
        }
    }
    fs::read("/proc/version").unwrap_or_default().hash(&mut hasher);
    fs::metadata("/proc/self")?.uid().hash(&mut hasher);
    VARIABLES.map(std::env::var_os).hash(&mut hasher);
    cores().hash(&mut hasher);
    for compiler in ["rustc -vV", "rustc +nightly -vV"] {
        // The part that needs a missing toolchain installs it.
        CommandLine::new(compiler).stdout().unwrap_or_default().hash(&mut hasher);
    }
    Ok(*CACHED.get_or_init(|| hasher.finish()))
}

/// Names of all tracked files and of untracked files that are not ignored, each terminated by NUL.
fn files_of_repository() -> Result<&'static str> {
    static CACHED: OnceLock<String> = OnceLock::new();
    if let Some(known) = CACHED.get() {
        return Ok(known);
    }
    let names =
        CommandLine::new("git ls-files -z --cached --others --exclude-standard").stdout()?;
    Ok(CACHED.get_or_init(|| String::from_utf8_lossy(&names).into_owned()))
}

/// Whether tests may read the file at run time: compiled files are part of the program.
fn is_data(name: &str) -> bool {
    let is_code = name.ends_with(".rs") || name.starts_with("web/");
    !name.is_empty() && !is_code && !PROSE.contains(&name)
}

fn hash_file(path: &Path, hasher: &mut DefaultHasher) -> std::io::Result<()> {
    let metadata = fs::metadata(path)?;
    path.hash(hasher);
    (metadata.len(), metadata.mtime(), metadata.mtime_nsec()).hash(hasher);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_report::TestEnd;

    fn passed() -> PassedTests {
        PassedTests { path: PathBuf::new(), entries: BTreeMap::new(), is_used: true }
    }

    #[test]
    fn only_passes_with_the_same_key_are_found() {
        let mut passed = passed();
        let mut report = TestReport::default();
        report.add_test("a", TestEnd::Passed, 0.1, "");
        passed.insert("hist it", "1".to_owned(), &report);
        assert!(passed.find("hist it", "2").is_none());
        let found = passed.find("hist it", "1").unwrap();
        assert_eq!((found.passed, found.unchanged), (1, 1));
        passed.insert("hist it", "1".to_owned(), &TestReport::from_failure("b", "", String::new()));
        assert!(passed.find("hist it", "1").is_none());
    }

    #[test]
    fn program_with_a_skipped_test_reruns() {
        let mut passed = passed();
        let mut report = TestReport::default();
        report.add_test("a", TestEnd::Passed, 0.1, "");
        report.add_test("b", TestEnd::Passed, 0.1, "skipped: no disk");
        passed.insert("hist it", "1".to_owned(), &report);
        assert!(passed.find("hist it", "1").is_none());
    }

    #[test]
    fn nothing_is_found_when_caching_is_off() {
        let mut passed = PassedTests { is_used: false, ..passed() };
        passed.insert("hist it", "1".to_owned(), &TestReport::default());
        assert!(passed.find("hist it", "1").is_none());
    }

    #[test]
    fn key_of_all_sources_differs_from_a_subset() {
        let of = |prefix: &str| PassedTests::key_of_sources(&[prefix.to_owned()], &[]).unwrap();
        assert_eq!(of("xtask/"), of("xtask/"));
        assert_ne!(of(""), of("xtask/"));
    }

    #[test]
    fn the_key_changes_with_a_file() {
        let path = std::env::temp_dir().join(format!("topdeck-passed-{}", std::process::id()));
        fs::write(&path, "a").unwrap();
        let before = PassedTests::key(&[&path]).unwrap();
        assert_eq!(PassedTests::key(&[&path]).unwrap(), before);
        fs::write(&path, "ab").unwrap();
        assert_ne!(PassedTests::key(&[&path]).unwrap(), before);
        fs::remove_file(&path).unwrap();
    }
}
