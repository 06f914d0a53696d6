//! Import cycles: files of a crate that import each other in a circle can only be understood
//! together, so the size of a cycle is limited.
//!
//! A file imports another file by a path in a `use` or in its code that starts with `crate`,
//! `super`, `self` or the name of a child module. A `mod` declaration is not an import. A re-export
//! (`pub use`) is not an import either: a file that imports through it imports the file behind it.
//! Imports of a file from its parent module do not count, because a module and its parts are one
//! unit, and a table of parts grows by one file per part. Unit tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::repo::{RepoFile, RepoFiles, RuleFindings};

/// Maximum number of files in a cycle. A module with its parts fits; a whole crate does not.
const CYCLE_FILES_MAX: usize = 8;

/// Module names from the crate root, whose path is empty.
type ModulePath = Vec<String>;

/// No import cycle in `src` of a crate has more than [`CYCLE_FILES_MAX`] files, or the number of
/// files listed for the crate. A listed number must equal the size of the largest cycle.
pub(crate) fn import_cycles_are_small(repo: &RepoFiles, listed: &[(&str, usize)]) -> RuleFindings {
    let mut findings = RuleFindings::default();
    let crates: BTreeSet<&str> =
        repo.files.iter().filter_map(|file| crate_of(&file.path)).collect();
    for name in crates {
        findings.checked += 1;
        let imports = Imports::of_crate(repo, name);
        let cycle = imports.cycles().into_iter().max_by_key(Vec::len).unwrap_or_default();
        let allowed = listed.iter().find(|entry| entry.0 == name).map(|entry| entry.1);
        let path = format!("crates/{name}/src/{}", cycle.first().map_or("lib.rs", |file| file));
        let mut problem = |found: String, remedy: &str| findings.add(&path, 1, &found, remedy);
        match allowed {
            Some(allowed) if cycle.len() < allowed => problem(
                format!("the largest import cycle has {} files, {allowed} are listed", cycle.len()),
                "lower the number in IMPORT_CYCLES of xtask/tests/tidy.rs; cycles of up to 8 \
                 files need no entry",
            ),
            _ if cycle.len() > allowed.unwrap_or(0).max(CYCLE_FILES_MAX) => problem(
                format!("an import cycle has {} files: {}", cycle.len(), cycle.join(", ")),
                "move shared items into a file that imports neither",
            ),
            _ => {}
        }
    }
    findings
}

fn crate_of(path: &str) -> Option<&str> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    file.ends_with(".rs").then_some(name)
}

/// Import graph of the files of a crate.
struct Imports {
    /// Files by module, relative to `src`.
    files: BTreeMap<ModulePath, String>,
    edges: BTreeMap<ModulePath, BTreeSet<ModulePath>>,
}

impl Imports {
    fn of_crate(repo: &RepoFiles, name: &str) -> Imports {
        let mut sources = BTreeMap::new();
        for RepoFile { path, text } in &repo.files {
            let source = path.strip_prefix("crates/").and_then(|rest| rest.strip_prefix(name));
            let Some(file) = source.and_then(|rest| rest.strip_prefix("/src/")) else { continue };
            let Some(module) = file.strip_suffix(".rs").map(module_path) else { continue };
            sources.insert(module, (file.to_owned(), ModuleText::parse(text)));
        }
        let is_test = |module: &ModulePath| {
            (1..=module.len()).any(|length| {
                let (parent, name) = (&module[..length - 1], &module[length - 1]);
                let declared = sources.get(parent).map(|(_, text)| &text.test_modules);
                declared.is_some_and(|all| all.contains(name))
            })
        };
        let tests: Vec<ModulePath> = sources.keys().filter(|one| is_test(one)).cloned().collect();
        tests.iter().for_each(|module| drop(sources.remove(module)));
        let resolver = Resolver { modules: &sources };
        let edges = |module: &ModulePath, text: &ModuleText| {
            let found = text.imports.iter().filter_map(|path| resolver.resolve(module, path, 0));
            found.filter(|target| !module.starts_with(target)).collect::<BTreeSet<_>>()
        };
        let edges = sources.iter().map(|(module, (_, text))| (module.clone(), edges(module, text)));
        let edges = edges.collect();
        let files = sources.iter().map(|(module, (file, _))| (module.clone(), file.clone()));
        Imports { files: files.collect(), edges }
    }

    /// Strongly connected groups of more than one file.
    fn cycles(&self) -> Vec<Vec<String>> {
        // Kosaraju's algorithm: depth-first finishing order, then searches in the reversed graph.
        let mut reversed: BTreeMap<ModulePath, BTreeSet<ModulePath>> = BTreeMap::new();
        for (from, targets) in &self.edges {
            for to in targets {
                reversed.entry(to.clone()).or_default().insert(from.clone());
            }
        }
        let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
        for module in self.edges.keys() {
            walk(&self.edges, module, &mut seen, &mut order);
        }
        let (mut seen, mut cycles) = (BTreeSet::new(), Vec::new());
        for module in order.iter().rev() {
            let mut group = Vec::new();
            walk(&reversed, module, &mut seen, &mut group);
            if group.len() > 1 {
                let mut files: Vec<String> =
                    group.iter().map(|module| self.files[module].clone()).collect();
                files.sort();
                cycles.push(files);
            }
        }
        cycles
    }
}

/// Appends all unseen modules that are reachable from a module, in finishing order.
fn walk(
    edges: &BTreeMap<ModulePath, BTreeSet<ModulePath>>,
    from: &ModulePath,
    seen: &mut BTreeSet<ModulePath>,
    order: &mut Vec<ModulePath>,
) {
    if seen.insert(from.clone()) {
        edges.get(from).into_iter().flatten().for_each(|to| walk(edges, to, seen, order));
        order.push(from.clone());
    }
}

fn module_path(file: &str) -> ModulePath {
    let mut names: ModulePath = file.split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        names.pop();
    }
    names
}

struct Resolver<'a> {
    modules: &'a BTreeMap<ModulePath, (String, ModuleText)>,
}

/// Maximum number of re-exports through which a path is followed.
const REEXPORTS_MAX: usize = 8;

impl Resolver<'_> {
    /// Module to which a path in `module` refers; `None` outside the crate.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<ModulePath> {
        let mut names = path.iter().peekable();
        let mut found: ModulePath = match names.peek()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => module.to_vec(),
            child if self.is_child(module, child) => module.to_vec(),
            _ => return None,
        };
        while let Some(name) =
            names.next_if(|name| ["crate", "self", "super"].contains(&name.as_str()))
        {
            if name == "super" {
                found.pop();
            }
        }
        while let Some(name) = names.next_if(|name| self.is_child(&found, name)) {
            found.push(name.clone());
        }
        let Some(name) = names.next() else { return Some(found) };
        let reexport = self.modules.get(&found).and_then(|(_, text)| text.reexports.get(name));
        match reexport.filter(|_| depth < REEXPORTS_MAX) {
            Some(path) => self.resolve(&found, path, depth + 1).or(Some(found)),
            None => Some(found),
        }
    }

    fn is_child(&self, module: &[String], name: &str) -> bool {
        let child = [module, &[name.to_owned()]].concat();
        self.modules.contains_key(&child)
    }
}

/// Module declarations and paths of a file.
#[derive(Default)]
struct ModuleText {
    /// Paths in `use` and in code.
    imports: Vec<ModulePath>,
    /// Names that `pub use` exports, and their paths.
    reexports: BTreeMap<String, ModulePath>,
    /// Child modules that contain tests.
    test_modules: BTreeSet<String>,
}

impl ModuleText {
    fn parse(text: &str) -> ModuleText {
        let text = without_comments_and_strings(text);
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let mut parsed = ModuleText::default();
        for declared in text.split("#[cfg(test)]").skip(1) {
            let item = declared.split(';').next().unwrap_or_default();
            let name = item.trim().rsplit_once("mod ").map(|(_, name)| name.to_owned());
            parsed.test_modules.extend(name.filter(|name| name.bytes().all(is_name_byte)));
        }
        let mut rest = text;
        while let Some((before, statement, is_reexport, after)) = next_use(rest) {
            parsed.imports.extend(paths_in(before));
            for path in tree_paths(statement) {
                let name = path.last().cloned().unwrap_or_default();
                match is_reexport {
                    true => drop(parsed.reexports.insert(name, path)),
                    false => parsed.imports.push(path),
                }
            }
            rest = after;
        }
        parsed.imports.extend(paths_in(rest));
        parsed
    }
}

/// The next `use` statement: the text before it, its tree, whether it is a re-export, and the text
/// after it.
fn next_use(text: &str) -> Option<(&str, &str, bool, &str)> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find("use ")?;
        let line = text[..at].rsplit('\n').next().unwrap_or_default().trim();
        let is_reexport = line.starts_with("pub") && !line.contains(' ');
        if is_reexport || line.is_empty() {
            let (statement, after) = text[at + 4..].split_once(';')?;
            let before = &text[..at];
            let is_test = before.trim_end().ends_with("#[cfg(test)]");
            return Some((before, if is_test { "" } else { statement }, is_reexport, after));
        }
        from = at + 4;
    }
}

/// Paths of the tree of a `use`: `a::{b, c::d}` is `a::b` and `a::c::d`. Aliases are dropped.
fn tree_paths(tree: &str) -> Vec<ModulePath> {
    let tree = tree.trim();
    let Some((stem, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![path.split("::").map(|name| name.trim().to_owned()).collect()];
    };
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let stem: ModulePath = stem
        .split("::")
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    let (mut depth, mut start, mut parts) = (0usize, 0, Vec::new());
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty()).flat_map(tree_paths);
    parts.map(|path| [stem.clone(), path].concat()).collect()
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Paths of at least two names in code.
fn paths_in(code: &str) -> Vec<ModulePath> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let runs = code.split(|c| !is_path(c)).filter(|run| run.contains("::"));
    let names =
        |run: &str| run.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    runs.filter(|run| !run.starts_with("::")).map(names).collect()
}

/// The text without comments and without the contents of strings.
fn without_comments_and_strings(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if first == '"' {
            let mut bytes = rest.bytes().enumerate().skip(1);
            let mut end = rest.len();
            while let Some((at, byte)) = bytes.next() {
                match byte {
                    b'\\' => drop(bytes.next()),
                    b'"' => {
                        end = at + 1;
                        break;
                    }
                    _ => {}
                }
            }
            out.push_str("\"\"");
            rest = &rest[end..];
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
            rest = &rest[rest[1..].find("'").map_or(rest.len(), |end| end + 2)..];
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::check;

    /// Files of a crate `a` with their texts.
    fn files<'a>(sources: &'a [(&str, &'a str)]) -> Vec<(String, &'a str)> {
        let path = |file: &str| format!("crates/a/src/{file}.rs");
        sources.iter().map(|(file, text)| (path(file), *text)).collect()
    }

    /// Checks the only cycle of these files.
    #[track_caller]
    fn check_cycle(sources: &[(&str, &str)], expected: &str) {
        let files = files(sources);
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let imports = Imports::of_crate(&RepoFiles::from_files(&files), "a");
        assert_eq!(imports.cycles().concat().join(" "), expected);
    }

    #[test]
    fn imports_are_found() {
        let b = ("b", "use crate::a::A;\n");
        check_cycle(&[("a", "use crate::b::B;\n"), b], "a.rs b.rs");
        check_cycle(&[("a", "use crate::{b::{self, B}, c};\n"), b], "a.rs b.rs");
        check_cycle(&[("a", "fn f(b: &crate::b::B) {}\n"), b], "a.rs b.rs");
        check_cycle(&[("a", "use super::b;\n"), b], "a.rs b.rs");
        let a = ("a", "mod c;\nfn f() { c::f() }\n");
        check_cycle(&[a, ("a/c", "use crate::b::B;\n"), b], "a.rs a/c.rs b.rs");
        // The file behind a re-export.
        let lib = ("lib", "mod a;\nmod b;\npub use b::B;\npub(crate) use a::{A as Other};\n");
        check_cycle(&[lib, ("a", "use crate::B;\n"), b], "a.rs b.rs");
    }

    #[test]
    fn what_is_no_import_is_not_found() {
        let b = ("b", "use crate::a::A;\n");
        check_cycle(&[("a", "// use crate::b::B;\nconst A: &str = \"crate::b::B\";\n"), b], "");
        check_cycle(&[("a", "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n"), b], "");
        check_cycle(&[("a", "use std::b::B;\nuse other::crate_b;\n"), b], "");
        check_cycle(&[("lib", "mod a;\n"), ("a", "use crate::A;\n")], "");
        let part = ("a/c", "use super::A;\n");
        check_cycle(&[("a", "mod c;\npub use c::C;\n"), part], "");
        check_cycle(&[("a", "mod c;\nfn f() { c::f() }\n"), part], "");
        let test = ("t", "use crate::a::A;\n");
        check_cycle(&[("lib", "#[cfg(test)]\nmod t;\n"), ("a", "use crate::t::T;\n"), test], "");
    }

    /// Checks a ring of this many files against the listed sizes.
    #[track_caller]
    fn check_ring(size: usize, listed: &[(&str, usize)], expected: &[&str]) {
        let file = |n: usize| format!("crates/a/src/f{n}.rs");
        let text = |n: usize| format!("use crate::f{}::F;\n", (n + 1) % size);
        let ring: Vec<_> = (0..size).map(|n| (file(n), text(n))).collect();
        let ring: Vec<_> = ring.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
        check(|repo| import_cycles_are_small(repo, listed), &ring, expected);
    }

    #[test]
    fn a_large_cycle_is_found() {
        check_ring(8, &[], &[]);
        let all = "f0.rs, f1.rs, f2.rs, f3.rs, f4.rs, f5.rs, f6.rs, f7.rs, f8.rs";
        let remedy = "move shared items into a file that imports neither";
        let problem = format!("crates/a/src/f0.rs:1: an import cycle has 9 files: {all}: {remedy}");
        check_ring(9, &[], &[&problem]);
        check_ring(9, &[("b", 20)], &[&problem]);
    }

    #[test]
    fn a_listed_cycle_may_only_shrink() {
        check_ring(9, &[("a", 9)], &[]);
        let remedy = "lower the number in IMPORT_CYCLES of xtask/tests/tidy.rs; cycles of up to 8 \
                      files need no entry";
        let found = "crates/a/src/f0.rs:1: the largest import cycle has 9 files, 10 are listed";
        check_ring(9, &[("a", 10)], &[&format!("{found}: {remedy}")]);
        let files: BTreeSet<String> = (0..11).map(|n| format!("f{n}.rs")).collect();
        let all = files.into_iter().collect::<Vec<_>>().join(", ");
        let problem = format!(
            "crates/a/src/f0.rs:1: an import cycle has 11 files: {all}: move shared items into a \
             file that imports neither"
        );
        check_ring(11, &[("a", 10)], &[&problem]);
    }
}
