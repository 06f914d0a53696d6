//! Files that rules check, and findings.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Directories with Rust sources.
const RUST_DIRS: [&str; 6] =
    ["crates/", "xtask/", "fuzz/", "bench/", "loom/", "testdata/extensions/"];

/// All tracked files, and untracked files that are not ignored; sorted by path.
pub(crate) struct RepoFiles {
    pub(crate) files: Vec<RepoFile>,
}

/// A file of the repository.
pub(crate) struct RepoFile {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    /// Contents with invalid UTF-8 replaced: images and golden bytes are files too.
    pub(crate) text: String,
}

/// Findings of a rule.
#[derive(Default)]
pub(crate) struct RuleFindings {
    /// Number of items that the rule checked.
    pub(crate) checked: usize,
    /// One line each: `file:line: finding: remedy`.
    pub(crate) problems: Vec<String>,
}

impl RepoFiles {
    /// The repository that contains this test.
    pub(crate) fn load() -> RepoFiles {
        let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = xtask.parent().expect("xtask/ is a directory of the repository");
        let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let listing = Command::new("git").args(arguments).current_dir(root).output();
        let listing = listing.expect("the tidy test needs git (Debian: apt-get install git)");
        let stderr = String::from_utf8_lossy(&listing.stderr);
        assert!(listing.status.success(), "the tidy test needs a git checkout: {stderr}");
        let paths = String::from_utf8(listing.stdout).expect("paths are UTF-8");
        let mut files: Vec<RepoFile> =
            paths.split_terminator('\0').filter_map(read(root)).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        RepoFiles { files }
    }

    /// A fixture with these paths and texts.
    pub(crate) fn from_files(files: &[(&str, &str)]) -> RepoFiles {
        let file = |(path, text): &(&str, &str)| RepoFile {
            path: path.to_string(),
            text: text.to_string(),
        };
        RepoFiles { files: files.iter().map(file).collect() }
    }

    pub(crate) fn file(&self, path: &str) -> Option<&RepoFile> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(crate) fn rust_files(&self) -> impl Iterator<Item = &RepoFile> {
        self.files.iter().filter(|file| {
            let is_ours = RUST_DIRS.iter().any(|dir| file.path.starts_with(dir));
            is_ours && file.path.ends_with(".rs")
        })
    }

    /// Whether there is a file or directory of this path; the root is "".
    pub(crate) fn has(&self, path: &str) -> bool {
        let below = |file: &RepoFile| {
            let rest = file.path.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        path.is_empty() || self.files.iter().any(below)
    }
}

/// Skips tracked files that were deleted, and dangling links.
fn read(root: &Path) -> impl Fn(&str) -> Option<RepoFile> {
    move |path| {
        let bytes = fs::read(root.join(path)).ok()?;
        Some(RepoFile { path: path.to_owned(), text: String::from_utf8_lossy(&bytes).into_owned() })
    }
}

impl RuleFindings {
    pub(crate) fn add(&mut self, path: &str, line: usize, found: &str, remedy: &str) {
        self.problems.push(format!("{path}:{line}: {found}: {remedy}"));
    }
}

/// Line number of byte `offset` of `text`, from 1.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count()
}

/// Applies a rule to fixture files and compares the problems.
#[track_caller]
pub(crate) fn check(
    rule: impl FnOnce(&RepoFiles) -> RuleFindings,
    files: &[(&str, &str)],
    expected: &[&str],
) {
    let findings = rule(&RepoFiles::from_files(files));
    assert_eq!(findings.problems, expected);
    assert!(findings.checked > 0 || !expected.is_empty(), "the rule checked nothing");
}

#[test]
fn the_real_files_are_found() {
    let repo = RepoFiles::load();
    assert!(repo.file("xtask/tests/tidy/repo.rs").is_some_and(|file| file.text.contains("Repo")));
    assert!(repo.has("xtask/tests") && repo.has("Cargo.toml"));
    assert!(!repo.has("xtask/test") && !repo.has("target"));
}

#[test]
fn lines_count_from_one() {
    assert_eq!([0, 1, 2, 3].map(|offset| line_at("a\nb\n", offset)), [1, 1, 2, 2]);
}
