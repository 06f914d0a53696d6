//! Facts stated in two places, and words that no file may contain.

use toml::{Table, Value};

use crate::markdown::headings;
use crate::repo::{RepoFiles, RuleFindings};

/// Hosts of package registries. The tools of the reader decide where packages come from. The names
/// are joined from parts so that this file does not contain them.
const REGISTRIES: [&str; 7] = [
    concat!("crates", ".io"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("repo.maven.apache", ".org"),
];

/// Name of the default registry in lock files of cargo, whatever mirror served it.
const LOCKED_SOURCE: &str =
    concat!("source = \"registry+https://github.com/rust-lang/crates", ".io-index\"");

/// A directory of the development machine.
const BUILD_MACHINE_DIR: &str = concat!("/wo", "rk/");

/// No file names a directory of the development machine or a package registry.
pub(crate) fn no_machine_paths(repo: &RepoFiles) -> RuleFindings {
    let mut findings = RuleFindings::default();
    for file in &repo.files {
        findings.checked += 1;
        let locked = file.path.rsplit('/').next() == Some("Cargo.lock");
        for (index, line) in file.text.lines().enumerate() {
            if locked && line == LOCKED_SOURCE {
                continue;
            }
            if let Some((found, remedy)) = machine_path(line, locked) {
                findings.add(&file.path, index + 1, &found, remedy);
            }
        }
    }
    findings
}

/// The forbidden part of a line, and the remedy.
fn machine_path(line: &str, locked: bool) -> Option<(String, &'static str)> {
    if locked && line.starts_with("source = ") {
        let found = format!("package of a registry other than the default one, {line}");
        return Some((found, "depend on a published version"));
    }
    if names_dir(line, BUILD_MACHINE_DIR) {
        let found = format!("names the directory {BUILD_MACHINE_DIR} of one machine");
        return Some((found, "write the path from the repository's root"));
    }
    let host = REGISTRIES.iter().find(|host| line.contains(**host))?;
    Some((format!("names the package registry {host}"), "name the package only"))
}

/// Whether an absolute path in the line starts with `dir`; `a/b/` does not start with `/b/`.
fn names_dir(line: &str, dir: &str) -> bool {
    line.match_indices(dir).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.~".contains(c))
    })
}

/// The fuzzer includes the checks of every crate that has some.
pub(crate) fn fuzzer_has_all_checks(repo: &RepoFiles) -> RuleFindings {
    const FUZZER: &str = "fuzz/src/lib.rs";
    let mut findings = RuleFindings::default();
    let fuzzer = repo.file(FUZZER).map_or("", |file| file.text.as_str());
    for file in &repo.files {
        let Some(dir) = file.path.strip_suffix("/fuzz_regressions.rs") else { continue };
        findings.checked += 1;
        if !fuzzer.contains(&format!("#[path = \"../../{dir}/checks")) {
            let remedy = format!("add its checks to {FUZZER}");
            findings.add(&file.path, 1, "its checks are never fuzzed", &remedy);
        }
    }
    findings
}

/// CHANGELOG.md has a heading for unreleased changes or for the version of the workspace.
pub(crate) fn changelog_has_version(repo: &RepoFiles) -> RuleFindings {
    const CHANGELOG: &str = "CHANGELOG.md";
    let mut findings = RuleFindings::default();
    let version = workspace_package(repo, "version");
    let Some(file) = repo.file(CHANGELOG) else {
        findings.add(CHANGELOG, 1, "is missing", "write it, newest first, from `## Unreleased`");
        return findings;
    };
    findings.checked += 1;
    let current = |text: &str| text.contains("Unreleased") || has_number(text, &version);
    if !headings(&file.text).iter().any(|heading| current(&heading.text)) {
        let found = format!("has no heading for version {version}, which Cargo.toml has");
        findings.add(CHANGELOG, 1, &found, "add it, or `## Unreleased`");
    }
    findings
}

/// README.md states the minimum Rust version of the workspace, and no other version.
pub(crate) fn readme_has_rust_version(repo: &RepoFiles) -> RuleFindings {
    const README: &str = "README.md";
    let mut findings = RuleFindings::default();
    let version = workspace_package(repo, "rust-version");
    let Some(file) = repo.file(README) else {
        findings.add(README, 1, "is missing", &format!("write it, with `Rust {version}`"));
        return findings;
    };
    for (index, line) in file.text.lines().enumerate() {
        for named in rust_versions(line) {
            findings.checked += 1;
            if !has_number(named, &version) {
                let found = format!("names Rust {named}");
                let remedy = format!("Cargo.toml has rust-version {version}; make them equal");
                findings.add(README, index + 1, &found, &remedy);
            }
        }
    }
    if findings.checked == 0 {
        let found = "does not state the minimum Rust version";
        findings.add(README, 1, found, &format!("write `Rust {version}`, as in Cargo.toml"));
    }
    findings
}

/// Numbers after the word Rust, such as `1.95` in `Rust 1.95 or newer`.
fn rust_versions(line: &str) -> impl Iterator<Item = &str> {
    let number = |(at, word): (usize, &str)| {
        let rest = &line[at + word.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number = rest[..end].trim_end_matches('.');
        number.contains('.').then_some(number)
    };
    line.match_indices("Rust ").filter_map(number)
}

/// Whether the text contains `number` and not only as part of a longer number; `1.9` is not in
/// `1.95`. A patch level may follow.
fn has_number(text: &str, number: &str) -> bool {
    text.match_indices(number).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + number.len()..].chars().next();
        !before.is_some_and(|c| c.is_ascii_digit() || c == '.')
            && !after.is_some_and(|c| c.is_ascii_digit())
    })
}

fn workspace_package(repo: &RepoFiles, key: &str) -> String {
    let manifest = repo.file("Cargo.toml").expect("the workspace has a Cargo.toml");
    let table: Table = manifest.text.parse().expect("cargo has read Cargo.toml before us");
    let value = table.get("workspace").and_then(|workspace| workspace.get("package")?.get(key));
    let value = value.and_then(Value::as_str);
    value.unwrap_or_else(|| panic!("Cargo.toml has no workspace.package.{key}")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::check;

    const MANIFEST: &str = "[workspace.package]\nversion = '0.1.0'\nrust-version = '1.95'\n";

    #[track_caller]
    fn check_line(line: &str, expected: Option<&str>) {
        let found = machine_path(line, false).map(|(found, _)| found);
        assert_eq!(found.as_deref(), expected);
    }

    #[track_caller]
    fn check_readme(readme: &str, expected: &[&str]) {
        let files = [("Cargo.toml", MANIFEST), ("README.md", readme)];
        check(readme_has_rust_version, &files, expected);
    }

    #[track_caller]
    fn check_changelog(changelog: &str, expected: &[&str]) {
        let files = [("Cargo.toml", MANIFEST), ("CHANGELOG.md", changelog)];
        check(changelog_has_version, &files, expected);
    }

    #[test]
    fn a_directory_of_one_machine_is_found() {
        let found = format!("names the directory {BUILD_MACHINE_DIR} of one machine");
        check_line(&format!("cd {BUILD_MACHINE_DIR}main"), Some(&found));
        check_line(&format!("\"file://{BUILD_MACHINE_DIR}x\""), Some(&found));
        check_line(&format!("docs{BUILD_MACHINE_DIR}x ..{BUILD_MACHINE_DIR}y"), None);
    }

    #[test]
    fn every_registry_is_found() {
        for host in REGISTRIES {
            let found = format!("names the package registry {host}");
            check_line(&format!("see https://www.{host}/x"), Some(&found));
        }
        check_line("see https://example.org", None);
    }

    #[test]
    fn a_lock_file_may_name_the_default_registry_only() {
        let other = "source = \"git+https://example.org/x\"";
        let text = format!("{LOCKED_SOURCE}\n{other}\n");
        let problem = format!(
            "fuzz/Cargo.lock:2: package of a registry other than the default one, {other}: \
             depend on a published version"
        );
        check(no_machine_paths, &[("fuzz/Cargo.lock", &text)], &[&problem]);
    }

    #[test]
    fn checks_that_are_never_fuzzed_are_found() {
        let fuzzer = "#[path = \"../../crates/a/tests/it/checks.rs\"]\nmod checks;\n";
        let [a, b] =
            ["crates/a/tests/it/fuzz_regressions.rs", "crates/b/tests/it/fuzz_regressions.rs"];
        let problem =
            format!("{b}:1: its checks are never fuzzed: add its checks to fuzz/src/lib.rs");
        check(fuzzer_has_all_checks, &[("fuzz/src/lib.rs", fuzzer), (a, "")], &[]);
        check(fuzzer_has_all_checks, &[("fuzz/src/lib.rs", fuzzer), (b, "")], &[&problem]);
    }

    #[test]
    fn a_changelog_for_this_version_passes() {
        check_changelog("# Changes\n\n## Unreleased\n", &[]);
        check_changelog("# Changes\n\n## [0.1.0] 2026-11-20\n", &[]);
    }

    #[test]
    fn a_changelog_that_is_behind_is_found() {
        let problem = "CHANGELOG.md:1: has no heading for version 0.1.0, which Cargo.toml has: \
                       add it, or `## Unreleased`";
        check_changelog("# Changes\n\n## 0.1.01\n\nUnreleased\n", &[problem]);
        check_changelog("# Changes\n\n## 10.1.0\n", &[problem]);
    }

    #[test]
    fn a_readme_with_the_rust_version_passes() {
        check_readme("Needs Rust 1.95 or newer.\n", &[]);
        check_readme("Needs Rust 1.95.0. Written in Rust for people.\n", &[]);
    }

    #[test]
    fn a_readme_with_another_rust_version_is_found() {
        let problem =
            "README.md:2: names Rust 1.9: Cargo.toml has rust-version 1.95; make them equal";
        check_readme("Needs Rust 1.95.\nNeeds Rust 1.9.\n", &[problem]);
    }

    #[test]
    fn a_readme_without_rust_version_is_found() {
        let problem = "README.md:1: does not state the minimum Rust version: write `Rust \
                       1.95`, as in Cargo.toml";
        check_readme("Needs Rust.\n", &[problem]);
    }
}
