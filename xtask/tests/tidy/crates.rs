//! Crates and their layers: the table in ARCHITECTURE.md lists each crate with its layer and the
//! crates that it uses, and dependencies point to lower layers. A crate whose doc tests are
//! disabled contains no examples.
//!
//! The layer is `package.metadata.topdeck.layer` of the crate's Cargo.toml. The workspace names
//! crates by the key of `workspace.dependencies`, which is the name of their directory.

use toml::{Table, Value};

use crate::repo::{RepoFile, RepoFiles, RuleFindings};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// Layer of the crates that implement roles; the binary combines them.
const ROLE_LAYER: i64 = 5;

/// The crate table of ARCHITECTURE.md lists exactly the directories of crates/, with their layers
/// and the crates that they use.
pub(crate) fn crate_table_is_correct(repo: &RepoFiles) -> RuleFindings {
    let mut findings = RuleFindings::default();
    let crates = crates(repo, &mut findings);
    let Some(map) = repo.file(ARCHITECTURE) else {
        findings.add(
            ARCHITECTURE,
            1,
            "is missing",
            "write it, with a table `| layer | crate | uses | job |`",
        );
        return findings;
    };
    let rows = rows(&map.text);
    for row in &rows {
        findings.checked += 1;
        check_row(row, &rows, &crates, &mut findings);
    }
    for package in &crates {
        if !rows.iter().any(|row| row.name == package.name) {
            let found =
                format!("crate `{}` has no row in the table of {ARCHITECTURE}", package.name);
            let uses = uses(package, &crates).join("`, `");
            let row =
                format!("add `| {} | `{}` | `{uses}` | its job |`", package.layer, package.name);
            findings.add(&package.file.path, 1, &found, &row);
        }
    }
    findings
}

fn check_row(
    row: &CrateRow,
    rows: &[CrateRow],
    crates: &[CrateManifest],
    findings: &mut RuleFindings,
) {
    let name = row.name;
    let mut problem =
        |found: String, remedy: &str| findings.add(ARCHITECTURE, row.line, &found, remedy);
    if rows.iter().any(|other| other.name == name && other.line < row.line) {
        problem(format!("crate `{name}` has two rows"), "remove one");
    }
    match crates.iter().find(|package| package.name == name) {
        None => problem(
            format!("crates/ contains no crate `{name}`"),
            "remove the row; a crate is listed when it exists",
        ),
        Some(package) if package.layer != row.layer => problem(
            format!("`{name}` is in layer {}", row.layer),
            &format!("{} has {}; make them equal", package.file.path, package.layer),
        ),
        Some(package) if uses(package, crates) != row.uses => problem(
            format!("`{name}` is listed with the uses {:?}", row.uses),
            &format!("{} has {:?}; make them equal", package.file.path, uses(package, crates)),
        ),
        Some(_) => {}
    }
}

/// Direct dependencies of a crate, sorted, without those that another dependency implies: the
/// arrows of the diagram.
fn uses<'a>(package: &CrateManifest, crates: &'a [CrateManifest]) -> Vec<&'a str> {
    let direct: Vec<&CrateManifest> =
        crates.iter().filter(|other| package.dependencies.contains(&other.name)).collect();
    let is_brought =
        |name: &str| direct.iter().any(|other| other.name != name && reaches(other, name, crates));
    let mut uses: Vec<&str> = direct.iter().map(|other| other.name.as_str()).collect();
    uses.retain(|name| !is_brought(name));
    uses.sort_unstable();
    uses
}

/// Whether a crate depends on the named one, directly or indirectly. Cargo rejects cycles.
fn reaches(package: &CrateManifest, name: &str, crates: &[CrateManifest]) -> bool {
    package.dependencies.iter().any(|key| {
        let next = crates.iter().find(|other| other.name == *key);
        next.is_some_and(|next| next.name == name || reaches(next, name, crates))
    })
}

/// A crate depends only on crates of lower layers.
pub(crate) fn dependencies_point_down(repo: &RepoFiles) -> RuleFindings {
    let mut findings = RuleFindings::default();
    let crates = crates(repo, &mut findings);
    let dirs = internal_dependencies(repo, &mut findings);
    for package in &crates {
        for dependency in package.dependencies.iter().filter(|key| dirs.contains(key)) {
            findings.checked += 1;
            if let Some(below) = crates.iter().find(|other| other.name == *dependency) {
                check_edge(package, below, &mut findings);
            }
        }
    }
    findings
}

fn check_edge(from: &CrateManifest, to: &CrateManifest, findings: &mut RuleFindings) {
    if to.layer < from.layer {
        return;
    }
    let arrow =
        format!("`{}` (layer {}) → `{}` (layer {})", from.name, from.layer, to.name, to.layer);
    let remedy = match from.layer == ROLE_LAYER && to.layer == ROLE_LAYER {
        true => "roles may not depend on each other; connect them in `topdeck`",
        false => "depend on lower layers only; move shared code down",
    };
    findings.add(&from.file.path, line_of_key(from.file, &to.name), &arrow, remedy);
}

/// A crate with `doctest = false`, which saves building and starting rustdoc, has no example in its
/// docs that rustdoc would run.
pub(crate) fn examples_are_tested(repo: &RepoFiles) -> RuleFindings {
    let mut findings = RuleFindings::default();
    for file in &repo.files {
        let Some(dir) = file.path.strip_suffix("/Cargo.toml") else { continue };
        let Ok(manifest) = file.text.parse::<Table>() else { continue };
        findings.checked += 1;
        if lookup(&manifest, &["lib", "doctest"]) != Some(&Value::Boolean(false)) {
            continue;
        }
        let source = format!("{dir}/src/");
        let is_source = |path: &str| path.starts_with(&source) && path.ends_with(".rs");
        for source in repo.files.iter().filter(|file| is_source(&file.path)) {
            for line in examples(&source.text) {
                let remedy = format!("remove `doctest = false` from {}", file.path);
                findings.add(&source.path, line, "this example is not tested", &remedy);
            }
        }
    }
    findings
}

/// Lines that start an example that rustdoc would compile: a code fence in a doc comment without
/// another language, indented text, or an included page.
fn examples(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    // The open fence, and whether text indented by four spaces would be code.
    let (mut fence, mut is_code_if_set_in) = (None, true);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.contains("cfg(doctest)")
            || line.starts_with("#[doc =")
            || line.starts_with("#![doc =")
        {
            found.push(index + 1);
        }
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(doc) = doc else {
            (fence, is_code_if_set_in) = (None, true);
            continue;
        };
        let inner = doc.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| inner.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => {
                fence = Some(mark);
                if is_rust(inner.trim_start_matches(['`', '~'])) {
                    found.push(index + 1);
                }
            }
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            // After a paragraph or in a list, an indented line continues the text above it.
            (None, None) if inner.is_empty() => {}
            (None, None) => {
                let is_set_in = doc.starts_with("     ");
                if is_set_in && is_code_if_set_in {
                    found.push(index + 1);
                }
                is_code_if_set_in = false;
            }
        }
        if fence.is_none() && inner.is_empty() {
            is_code_if_set_in = true;
        }
    }
    found
}

/// Whether rustdoc compiles a block with this info string.
fn is_rust(words: &str) -> bool {
    const ATTRIBUTES: [&str; 5] =
        ["rust", "no_run", "should_panic", "compile_fail", "test_harness"];
    let mut words = words.split([',', ' ']).filter(|word| !word.is_empty());
    words.all(|word| ATTRIBUTES.contains(&word) || word.starts_with("edition"))
}

struct CrateManifest<'a> {
    name: String,
    layer: i64,
    /// Keys of normal dependencies of all targets.
    dependencies: Vec<String>,
    file: &'a RepoFile,
}

/// The crates of crates/; an invalid manifest is a finding.
fn crates<'a>(repo: &'a RepoFiles, findings: &mut RuleFindings) -> Vec<CrateManifest<'a>> {
    let mut crates = Vec::new();
    for file in &repo.files {
        let dir = file.path.strip_prefix("crates/").and_then(|p| p.strip_suffix("/Cargo.toml"));
        let Some(name) = dir.filter(|name| !name.contains('/')) else { continue };
        match parse_crate(name, file) {
            Ok(package) => crates.push(package),
            Err(found) => findings.add(&file.path, 1, &found, "write `layer = n` as others do"),
        }
    }
    crates
}

fn parse_crate<'a>(name: &str, file: &'a RepoFile) -> Result<CrateManifest<'a>, String> {
    let manifest: Table = file.text.parse().map_err(|error| format!("not TOML: {error}"))?;
    let layer = lookup(&manifest, &["package", "metadata", "topdeck", "layer"]);
    let layer = layer.and_then(Value::as_integer);
    let layer = layer.ok_or("no number at package.metadata.topdeck.layer")?;
    let dependencies = dependencies(&manifest);
    Ok(CrateManifest { name: name.to_owned(), layer, dependencies, file })
}

fn dependencies(manifest: &Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(|targets| targets.values());
    let tables = tables.filter_map(Value::as_table).chain([manifest]);
    let tables = tables.filter_map(|table| table.get("dependencies")?.as_table());
    tables.flat_map(|dependencies| dependencies.keys().cloned()).collect()
}

/// Keys of `workspace.dependencies` that are crates of this workspace; each must equal the name of
/// the directory.
fn internal_dependencies(repo: &RepoFiles, findings: &mut RuleFindings) -> Vec<String> {
    let manifest = repo.file("Cargo.toml").expect("the workspace has a Cargo.toml");
    let table: Table = manifest.text.parse().expect("cargo has read Cargo.toml before us");
    let entries = lookup(&table, &["workspace", "dependencies"]).and_then(Value::as_table);
    let mut keys = Vec::new();
    for (key, entry) in entries.into_iter().flatten() {
        let Some(path) = entry.get("path").and_then(Value::as_str) else { continue };
        if path != format!("crates/{key}") {
            let found = format!("`{key}` is the crate in `{path}`");
            let line = line_of_key(manifest, key);
            findings.add("Cargo.toml", line, &found, "name the key like the directory in crates/");
        }
        keys.push(key.clone());
    }
    keys
}

fn lookup<'a>(table: &'a Table, keys: &[&str]) -> Option<&'a Value> {
    let (last, path) = keys.split_last()?;
    let step = |table: &'a Table, key: &&str| table.get(*key)?.as_table();
    path.iter().try_fold(table, step)?.get(*last)
}

/// Line on which a manifest sets `key`; 1 if no line starts with it.
fn line_of_key(file: &RepoFile, key: &str) -> usize {
    let sets = |line: &str| {
        let rest = line.strip_prefix(key);
        rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    };
    file.text.lines().position(sets).map_or(1, |index| index + 1)
}

#[derive(Debug, PartialEq)]
struct CrateRow<'a> {
    line: usize,
    layer: i64,
    name: &'a str,
    uses: Vec<&'a str>,
}

/// Rows of the crate table; rows of other tables do not start with a number and one name in
/// backquotes.
fn rows(text: &str) -> Vec<CrateRow<'_>> {
    let lines = text.lines().enumerate();
    lines.filter_map(|(index, line)| parse_row(index + 1, line)).collect()
}

fn parse_row(line: usize, text: &str) -> Option<CrateRow<'_>> {
    let mut cells = text.trim().strip_prefix('|')?.split('|').map(str::trim);
    let layer = cells.next()?.parse().ok()?;
    let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
    let uses = cells.next()?.split(',').map(|name| name.trim().trim_matches('`'));
    let uses = uses.filter(|name| !name.is_empty()).collect();
    Some(CrateRow { line, layer, name, uses })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::check;

    const WORKSPACE: &str = "[workspace.dependencies]\n\
        hist = { path = 'crates/hist' }\ncollect = { path = 'crates/collect' }\nanyhow = '1'\n";
    const HIST: &str = "[package.metadata.topdeck]\nlayer = 0\n[dependencies]\nanyhow = '1'\n";
    const COLLECT: &str =
        "[package.metadata.topdeck]\nlayer = 5\n[dependencies]\nhist.workspace = true\n";
    const TABLE: &str = "| layer | crate | uses | job |\n|---|---|---|---|\n| 0 | `hist` | | x |\n\
         | 5 | `collect` | `hist` | y |\n";

    #[track_caller]
    fn check_table(table: &str, expected: &[&str]) {
        let hist = ("crates/hist/Cargo.toml", HIST);
        let collect = ("crates/collect/Cargo.toml", COLLECT);
        check(crate_table_is_correct, &[("ARCHITECTURE.md", table), hist, collect], expected);
    }

    #[track_caller]
    fn check_edges(hist: &str, collect: &str, expected: &[&str]) {
        let hist = ("crates/hist/Cargo.toml", hist);
        let collect = ("crates/collect/Cargo.toml", collect);
        check(dependencies_point_down, &[("Cargo.toml", WORKSPACE), hist, collect], expected);
    }

    #[test]
    fn correct_table_passes() {
        check_table(TABLE, &[]);
    }

    #[test]
    fn a_crate_without_row_is_found() {
        let problem = "crates/collect/Cargo.toml:1: crate `collect` has no row in the table of \
                       ARCHITECTURE.md: add `| 5 | `collect` | `hist` | its job |`";
        check_table("| 0 | `hist` | | x |\n", &[problem]);
    }

    #[test]
    fn a_row_without_crate_is_found() {
        let problem = "ARCHITECTURE.md:5: crates/ contains no crate `shm`: remove the row; a \
                       crate is listed when it exists";
        check_table(&format!("{TABLE}| 1 | `shm` | | z |\n"), &[problem]);
    }

    #[test]
    fn a_row_with_another_layer_is_found() {
        let problem = "ARCHITECTURE.md:4: `collect` is in layer 2: crates/collect/Cargo.toml has \
                       5; make them equal";
        check_table(&TABLE.replace("| 5", "| 2"), &[problem]);
    }

    #[test]
    fn a_row_with_other_arrows_is_found() {
        let problem = "ARCHITECTURE.md:4: `collect` is listed with the uses []: \
                       crates/collect/Cargo.toml has [\"hist\"]; make them equal";
        check_table(&TABLE.replace("`hist` | y", "| y"), &[problem]);
    }

    #[test]
    fn an_arrow_that_another_brings_is_not_drawn() {
        let load = "[package.metadata.topdeck]\nlayer = 6\n[dependencies]\n\
                    hist.workspace = true\ncollect.workspace = true\n";
        let table = format!("{TABLE}| 6 | `load` | `collect` | z |\n");
        let files = [
            ("ARCHITECTURE.md", table.as_str()),
            ("crates/hist/Cargo.toml", HIST),
            ("crates/collect/Cargo.toml", COLLECT),
            ("crates/load/Cargo.toml", load),
        ];
        check(crate_table_is_correct, &files, &[]);
    }

    #[test]
    fn a_second_row_is_found() {
        let problem = "ARCHITECTURE.md:5: crate `hist` has two rows: remove one";
        check_table(&format!("{TABLE}| 0 | `hist` | | x |\n"), &[problem]);
    }

    #[test]
    fn missing_architecture_page_is_found() {
        let problem = "ARCHITECTURE.md:1: is missing: write it, with a table `| layer | crate | \
                       uses | job |`";
        check(crate_table_is_correct, &[("crates/hist/Cargo.toml", HIST)], &[problem]);
    }

    #[test]
    fn a_crate_without_layer_is_found() {
        let problem = "crates/hist/Cargo.toml:1: no number at package.metadata.topdeck.layer: \
                       write `layer = n` as others do";
        check_edges("[package]\n", COLLECT, &[problem]);
    }

    #[test]
    fn an_arrow_down_passes() {
        check_edges(HIST, COLLECT, &[]);
    }

    #[test]
    fn an_arrow_up_is_found() {
        let hist = HIST.replace("anyhow = '1'", "collect = { workspace = true }");
        let problem = "crates/hist/Cargo.toml:4: `hist` (layer 0) → `collect` (layer 5): depend \
                       on lower layers only; move shared code down";
        check_edges(&hist, COLLECT, &[problem]);
    }

    #[test]
    fn an_arrow_between_roles_is_found() {
        let hist = HIST.replace("layer = 0", "layer = 5");
        let problem = "crates/collect/Cargo.toml:4: `collect` (layer 5) → `hist` (layer 5): roles \
                       may not depend on each other; connect them in `topdeck`";
        check_edges(&hist, COLLECT, &[problem]);
    }

    #[test]
    fn an_arrow_for_one_target_counts() {
        let hist = HIST.replace(
            "[dependencies]\nanyhow = '1'",
            "[target.'cfg(unix)'.dependencies]\ncollect = {}",
        );
        let problem = "crates/hist/Cargo.toml:4: `hist` (layer 0) → `collect` (layer 5): depend \
                       on lower layers only; move shared code down";
        check_edges(&hist, COLLECT, &[problem]);
    }

    #[test]
    fn a_development_arrow_does_not_count() {
        let hist = HIST.replace("[dependencies]", "[dev-dependencies]\ncollect = {}");
        check_edges(&hist, COLLECT, &[]);
    }

    #[track_caller]
    fn check_examples(manifest: &str, source: &str, expected: &[&str]) {
        let files = [("crates/a/Cargo.toml", manifest), ("crates/a/src/b.rs", source)];
        check(examples_are_tested, &files, expected);
    }

    const NEVER: &str =
        "this example is not tested: remove `doctest = false` from crates/a/Cargo.toml";

    #[test]
    fn an_example_that_is_not_tested_is_found() {
        let off = "[lib]\ndoctest = false\n";
        let at = |line: usize| format!("crates/a/src/b.rs:{line}: {NEVER}");
        for fence in ["```", "```rust", "```no_run", "~~~", "```should_panic, edition2021"] {
            let end = &fence[..3];
            let source =
                format!("//! Role.\n\n/// Adds.\n/// {fence}\n/// a();\n/// {end}\nfn a() {{}}\n");
            check_examples(off, &source, &[&at(4)]);
            check_examples("[lib]\nname = 'a'\n", &source, &[]);
        }
        check_examples(off, "//! Role.\n//!\n//!     a();\nfn a() {}\n", &[&at(3)]);
        check_examples(off, "//! Role.\n#[cfg(doctest)]\nmod page {}\n", &[&at(2)]);
    }

    #[test]
    fn non_examples_pass() {
        let off = "[lib]\ndoctest = false\n";
        let text = "//! ```text\n//! a picture\n//! ```\n//! End.\n// ```\n";
        check_examples(off, text, &[]);
        check_examples(off, "//! ```ignore\n//! a();\n//! ```\n", &[]);
        check_examples(off, "//! A sentence\n//!      that goes on.\n", &[]);
    }

    #[test]
    fn key_that_differs_from_its_directory_is_found() {
        let workspace = "[workspace.dependencies]\nhistogram = { path = 'crates/hist' }\n";
        let problem = "Cargo.toml:2: `histogram` is the crate in `crates/hist`: name the key like \
                       the directory in crates/";
        check(dependencies_point_down, &[("Cargo.toml", workspace)], &[problem]);
    }
}
