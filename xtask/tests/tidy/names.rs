//! Names: type names are unique nouns, and public items have a user.

use std::collections::{BTreeMap, BTreeSet};

use crate::repo::{RepoFile, RepoFiles, RuleFindings, line_at};
use crate::rust::{code_only, without_tests};

/// Words that do not describe a value: adverbs, question words, verbs, and participles that end
/// neither with `ed` nor with `ing`.
const VAGUE_WORDS: &[&str] = &[
    "Act", "Again", "Apart", "Aside", "Asks", "Away", "Back", "Beside", "Came", "Come", "Doing",
    "Done", "Else", "End", "Found", "Given", "Gone", "Had", "Heard", "Held", "How", "Ill", "Kept",
    "Known", "Last", "Lost", "Made", "Many", "Meant", "More", "Much", "Next", "Now", "Once",
    "Only", "Open", "Put", "Said", "Seen", "Sent", "Shown", "So", "Stuff", "Taken", "Talk", "Then",
    "Thing", "Told", "Twice", "Way", "What", "When", "Where", "Which", "Who", "Whose", "Why",
    "Words", "Written",
];

/// Nouns that end like a participle.
const NOUNS: &[&str] = &[
    "Binding",
    "Building",
    "Encoding",
    "Feed",
    "Grouping",
    "Mapping",
    "Opening",
    "Reading",
    "Ring",
    "Rounding",
    "Sealed",
    "Seed",
    "Smoothing",
    "Speed",
    "String",
    "Thread",
    "Timing",
];

/// A type name is a noun that describes its value.
pub(crate) fn type_names_are_nouns(repo: &RepoFiles) -> RuleFindings {
    let mut findings = RuleFindings::default();
    for file in repo.rust_files() {
        let code = code_only(&file.text);
        for (offset, name) in declared(&code, &["struct", "enum", "trait", "type", "union"]) {
            findings.checked += 1;
            if is_vague(name) {
                let found = format!("the type name `{name}` does not describe its value");
                let remedy = "use a noun, or add one (names.rs lists the rejected words)";
                findings.add(&file.path, line_at(&code, offset), &found, remedy);
            }
        }
    }
    findings
}

/// Two crates do not define types of the same name, because a reader then has to ask which one is
/// meant. `shared` lists names with more than one definition; each entry is needed.
pub(crate) fn type_names_are_unique(repo: &RepoFiles, shared: &[&str]) -> RuleFindings {
    let mut findings = RuleFindings::default();
    let mut definitions: BTreeMap<String, BTreeMap<&str, (&str, usize)>> = BTreeMap::new();
    for file in repo.rust_files() {
        let Some(crate_name) = crate_of_source(&file.path) else { continue };
        let code = code_only(without_tests(&file.text));
        for (offset, name) in declared(&code, &["struct", "enum", "trait", "type", "union"]) {
            if is_associated_type(&code, offset) {
                continue;
            }
            findings.checked += 1;
            let crates = definitions.entry(name.to_owned()).or_default();
            crates.entry(crate_name).or_insert((file.path.as_str(), line_at(&code, offset)));
        }
    }
    for (name, crates) in &definitions {
        if shared.contains(&name.as_str()) {
            continue;
        }
        let mut sources = crates.values();
        if let (Some((first, line)), Some(&(path, other_line))) = (sources.next(), sources.next()) {
            let found = format!("the type name `{name}` is also defined in {first}:{line}");
            findings.add(path, other_line, &found, "use one type, or two names");
        }
    }
    for name in shared {
        if definitions.get(*name).is_none_or(|crates| crates.len() < 2) {
            let found = format!("`{name}` does not have two definitions");
            findings.add("xtask/tests/tidy.rs", 1, &found, "remove it from the list");
        }
    }
    findings
}

/// A public function, constant or trait of a library is used outside the sources of its crate: by
/// another crate, a test, an example, a benchmark or a fuzzer. Types are exempt, because a
/// signature may require them.
pub(crate) fn public_items_have_a_user(repo: &RepoFiles, allowed: &[&str]) -> RuleFindings {
    let mut findings = RuleFindings::default();
    let words: Vec<(&RepoFile, BTreeSet<&str>)> =
        repo.rust_files().map(|file| (file, identifiers(&file.text))).collect();
    let mut users: BTreeMap<&str, usize> = BTreeMap::new();
    for word in words.iter().flat_map(|(_, words)| words) {
        *users.entry(word).or_default() += 1;
    }
    for (file, _) in &words {
        let Some(source_dir) = library_source_dir(repo, &file.path) else { continue };
        let code = code_only(without_tests(&file.text));
        for (offset, name) in declared(&code, &["fn", "const", "static", "trait"]) {
            if !is_public(&code, offset) {
                continue;
            }
            findings.checked += 1;
            let inside = |(other, words): &&(&RepoFile, BTreeSet<&str>)| {
                other.path.starts_with(source_dir) && words.contains(name)
            };
            let is_used = users.get(name) > Some(&words.iter().filter(inside).count());
            if !is_used && !allowed.contains(&name) {
                let found = format!("the public `{name}` has no user outside its crate");
                let remedy = "make it `pub(crate)`, or delete it";
                findings.add(&file.path, line_at(&code, offset), &found, remedy);
            }
        }
    }
    findings
}

fn is_vague(name: &str) -> bool {
    let is_one_word = !name.chars().skip(1).any(char::is_uppercase);
    let is_participle = name.ends_with("ed") || name.ends_with("ing");
    VAGUE_WORDS.contains(&name) || (is_one_word && is_participle && !NOUNS.contains(&name))
}

/// Byte offsets and names of declarations with one of these keywords.
fn declared<'a>(
    code: &'a str,
    keywords: &'a [&str],
) -> impl Iterator<Item = (usize, &'a str)> + use<'a> {
    let tokens = code.match_indices(|c: char| c.is_whitespace());
    tokens.filter_map(move |(space, _)| {
        let word_start = code[..space].rfind(|c: char| !is_word(c)).map_or(0, |at| at + 1);
        if !keywords.contains(&&code[word_start..space]) {
            return None;
        }
        let rest = code[space..].trim_start();
        let name = &rest[..rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())];
        let is_name = name.starts_with(|c: char| c.is_alphabetic()) && !is_keyword(name);
        is_name.then_some((code.len() - rest.len(), name))
    })
}

/// `const fn f` declares a function, not a constant named `fn`.
fn is_keyword(name: &str) -> bool {
    matches!(name, "fn" | "mut" | "unsafe" | "extern" | "async")
}

/// Whether the line that declares the name at `offset` starts with an unrestricted `pub`.
fn is_public(code: &str, offset: usize) -> bool {
    let line_start = code[..offset].rfind('\n').map_or(0, |at| at + 1);
    code[line_start..offset].trim_start().starts_with("pub ")
}

/// Whether the declaration at `offset` is a type of a trait or its implementation. Those of a
/// module start their line, or are public.
fn is_associated_type(code: &str, offset: usize) -> bool {
    let line_start = code[..offset].rfind('\n').map_or(0, |at| at + 1);
    let words = code[line_start..offset].trim_end();
    words.ends_with("type") && words.starts_with(' ') && !words.trim_start().starts_with("pub")
}

/// Name of the crate of a source file that is not a test.
fn crate_of_source(path: &str) -> Option<&str> {
    let (name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let is_test = file.ends_with("tests.rs") || file.contains("tests/");
    (!is_test).then_some(name)
}

/// `crates/hist/src/` for a file below it, if the crate is a library.
fn library_source_dir<'a>(repo: &RepoFiles, path: &'a str) -> Option<&'a str> {
    let name = path.strip_prefix("crates/")?.split('/').next()?;
    let source_dir = path.get(..format!("crates/{name}/src/").len())?;
    let root = format!("{source_dir}lib.rs");
    (source_dir.ends_with("/src/") && repo.file(&root).is_some()).then_some(source_dir)
}

fn identifiers(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !is_word(c)).filter(|word| !word.is_empty()).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::check;

    #[test]
    fn a_vague_type_name_is_found() {
        let text = "//! R.\nstruct Told;\nenum Speed {}\nstruct FoundSeries;\n// struct Held\n\
                    pub(crate) trait Growing {}\n";
        let problem = |line, name| {
            format!(
                "crates/a/src/a.rs:{line}: the type name `{name}` does not describe its value: \
                 use a noun, or add one (names.rs lists the rejected words)"
            )
        };
        let expected = [problem(2, "Told"), problem(6, "Growing")];
        let expected = expected.each_ref().map(String::as_str);
        check(type_names_are_nouns, &[("crates/a/src/a.rs", text)], &expected);
    }

    #[test]
    fn a_type_name_of_two_crates_is_found() {
        let a = "//! A.\npub struct Counter;\nimpl T for Counter {\n    type Output = u8;\n}\n\
                 #[cfg(test)]\nmod tests {\n    struct Model;\n}\n";
        let b = "//! B.\nstruct Other;\npub(crate) enum Counter {}\ntype Output = u8;\n\
                 struct Model;\n";
        let files = [
            ("crates/a/src/lib.rs", a),
            ("crates/b/src/b.rs", b),
            ("crates/b/src/b/tests.rs", "//! T.\nstruct Counter;\n"),
            ("crates/c/tests/it/main.rs", "//! T.\nstruct Counter;\n"),
        ];
        let repeated = "crates/b/src/b.rs:3: the type name `Counter` is also defined in \
                     crates/a/src/lib.rs:2: use one type, or two names";
        check(|repo| type_names_are_unique(repo, &[]), &files, &[repeated]);
        check(|repo| type_names_are_unique(repo, &["Counter"]), &files, &[]);
        let unneeded = "xtask/tests/tidy.rs:1: `Other` does not have two definitions: remove it \
                        from the list";
        check(|repo| type_names_are_unique(repo, &["Counter", "Other"]), &files, &[unneeded]);
    }

    #[test]
    fn a_public_item_without_a_user_is_found() {
        let library = "//! R.\npub const fn used() {}\npub fn unused() { used() }\n\
                       pub(crate) fn inner() {}\npub const LIMIT: u8 = 1;\nfn private() {}\n\
                       #[cfg(test)]\nmod tests {\n    pub fn helper() {}\n}\n";
        let user = "//! R.\nfn main() { a::used(); }\n";
        let files = [("crates/a/src/lib.rs", library), ("crates/b/src/main.rs", user)];
        let problem = |line, name| {
            format!(
                "crates/a/src/lib.rs:{line}: the public `{name}` has no user outside its \
                 crate: make it `pub(crate)`, or delete it"
            )
        };
        let expected = [problem(3, "unused"), problem(5, "LIMIT")];
        let expected = expected.each_ref().map(String::as_str);
        check(|repo| public_items_have_a_user(repo, &[]), &files, &expected);
        let one = &expected[..1];
        check(|repo| public_items_have_a_user(repo, &["LIMIT"]), &files, one);
    }
}
