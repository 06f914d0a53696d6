//! The files a rule looks at, and what it finds.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Folders that have Rust sources.
const RUST_FOLDERS: [&str; 5] = ["crates/", "xtask/", "fuzz/", "bench/", "loom/"];

/// All files that are, or would be, committed; sorted by path.
pub(crate) struct RepoFiles {
    pub(crate) files: Vec<RepoFile>,
}

/// A file of the repository.
pub(crate) struct RepoFile {
    /// From the root, with `/`.
    pub(crate) path: String,
    /// Bytes that are not UTF-8 are replaced: pictures and golden bytes are files too.
    pub(crate) text: String,
}

/// What a rule saw and what it found wrong.
#[derive(Default)]
pub(crate) struct RuleFindings {
    /// How many things the rule is about were there to look at.
    pub(crate) checked: usize,
    /// One line each: `file:line: what was found: what to do`.
    pub(crate) problems: Vec<String>,
}

impl RepoFiles {
    /// The repository this test was compiled in.
    pub(crate) fn load() -> RepoFiles {
        let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = xtask.parent().expect("xtask/ is a folder of the repository");
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

    /// A made-up repository of these paths and texts.
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
            let is_ours = RUST_FOLDERS.iter().any(|folder| file.path.starts_with(folder));
            is_ours && file.path.ends_with(".rs")
        })
    }

    /// Whether a file, or a file below a folder of this name, is there; the root is "".
    pub(crate) fn has(&self, path: &str) -> bool {
        let below = |file: &RepoFile| {
            let rest = file.path.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        path.is_empty() || self.files.iter().any(below)
    }
}

/// A file that is tracked and deleted, or a link to nowhere, is not there to be read.
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

/// Line, counted from 1, in which byte `offset` of `text` stands.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count()
}

/// Tests of rules speak through this: made-up files in, problems out.
#[track_caller]
pub(crate) fn check(
    rule: impl FnOnce(&RepoFiles) -> RuleFindings,
    files: &[(&str, &str)],
    expected: &[&str],
) {
    let findings = rule(&RepoFiles::from_files(files));
    assert_eq!(findings.problems, expected);
    assert!(findings.checked > 0 || !expected.is_empty(), "the rule looked at nothing");
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
