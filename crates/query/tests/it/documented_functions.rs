//! `docs/query.md` compared with the function tables of both languages.

use query::caql::Signature;
use query::caql::signature::Stability;
use query::promql;

const PAGE: &str = include_str!("../../../../docs/query.md");

/// Section of the page with this heading.
fn section(heading: &str) -> &'static str {
    let start = PAGE.find(&format!("\n## {heading}\n")).expect("the page has the section");
    let rest = &PAGE[start + 1..];
    rest.find("\n## ").map_or(rest, |end| &rest[..end])
}

/// Calls in the first column of tables: name and number of arguments.
fn table_calls(section: &str) -> Vec<(&str, usize)> {
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let codes = cells.flat_map(|cell| cell.split('`'));
    codes.filter_map(split_call).collect()
}

/// Name and number of arguments of `name(a, b)`.
fn split_call(code: &str) -> Option<(&str, usize)> {
    let (name, rest) = code.split_once('(')?;
    let args = rest.strip_suffix(')')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let is_call = !name.is_empty() && name.chars().all(is_name);
    let count = if args.is_empty() { 0 } else { args.split(", ").count() };
    is_call.then_some((name, count))
}

#[test]
fn the_functions_that_topdeck_adds_to_promql_are_documented() {
    let documented = table_calls(section("PromQL"));
    for function in promql::functions().filter(|function| function.is_topdeck_only) {
        let found = documented.iter().find(|(name, _)| *name == function.name);
        let (_, count) = found.unwrap_or_else(|| panic!("{function} is not in docs/query.md"));
        assert_eq!(*count, function.args.len(), "{function}");
    }
    for (name, _) in documented {
        assert!(promql::function(name).is_some_and(|one| one.is_topdeck_only), "{name}");
    }
}

#[test]
fn functions_of_caql_that_are_documented_exist() {
    let documented = table_calls(section("CAQL"));
    let names: Vec<&str> = documented.iter().map(|(name, _)| *name).collect();
    assert!(names.contains(&"histogram:merge") && names.contains(&"find:histogram"), "{names:?}");
    for name in names.into_iter().filter(|name| *name != "f") {
        let function = Signature::find(name).unwrap_or_else(|| panic!("{name} is no function"));
        assert_eq!(function.stability, Stability::Current, "{name}");
    }
}

#[test]
fn packages_of_caql_are_documented() {
    let text = section("CAQL");
    for function in Signature::all().filter(|one| one.stability == Stability::Current) {
        let Some((package, _)) = function.name.split_once(':') else { continue };
        let is_named = text.contains(&format!("`{package}"));
        assert!(is_named, "{package}: is not in docs/query.md");
    }
}
