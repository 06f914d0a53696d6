//! Integration tests of the role. `crates/topdeck/tests/it/serve/alerts.rs` tests it in a server.

mod checks;
#[path = "../../../hist/tests/it/fuzz_inputs.rs"]
mod fuzz_inputs;
mod fuzz_regressions;

use alerts::rule_promql_options;
use rules::parse_rule_file;
use rules::slo::parse_openslo;

fn page(name: &str) -> String {
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).expect("a page of docs")
}

/// First block of a language in a page of the user documentation.
fn example(page_name: &str, language: &str) -> String {
    let page = page(page_name);
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("an example");
    rest.split_once("```").expect("the end of the example").0.to_owned()
}

#[test]
fn the_documented_rules_have_no_problems() {
    let rules = example("alerts.md", "yaml");
    let file = parse_rule_file("shop.yaml", &rules, &rule_promql_options());
    assert_eq!(file.problems, []);
    assert_eq!(file.groups.iter().map(|group| group.rules.len()).sum::<usize>(), 2);
}

/// Problems of settings.
fn problems(text: &str) -> String {
    use role::settings::{Document, SettingsCheck};
    use role::{RoleEntry, RoleSettings};
    static ROLES: role::RoleTable = &[&RoleEntry::<alerts::AlertsRole>::ROW];
    let dir = std::path::Path::new("/etc/topdeck");
    let document = Document::parse(text, dir).expect("valid TOML");
    let settings = match RoleSettings::read(ROLES, &document) {
        Ok(settings) => settings,
        Err(problems) => return problems.to_string(),
    };
    let mut check = SettingsCheck::new(&document);
    settings.validate_settings(&mut check);
    check.finish().to_string()
}

#[test]
fn the_documented_settings_are_valid() {
    let page = page("alerts.md");
    let blocks = page.split("```toml\n").skip(1);
    let text: String = blocks.filter_map(|block| block.split("```").next()).collect();
    assert!(text.contains("[[contact]]") && text.contains("[route]"), "{text}");
    assert_eq!(problems(&text), "");
}

#[test]
fn the_documented_slos_are_valid() {
    let text = example("slo.md", "toml");
    assert!(text.contains("[[slo]]") && text.contains("[[slo.correction]]"), "{text}");
    assert_eq!(problems(&text), "");
    let (slos, found) = parse_openslo("slos/search.yaml", &example("slo.md", "yaml"));
    assert_eq!(found, []);
    assert_eq!(slos.iter().map(|slo| slo.name.as_str()).collect::<Vec<_>>(), ["search"]);
}

#[test]
fn problems_of_slos_have_their_line() {
    let valid = "[[slo]]\nname = \"a\"\nselector = \"latency\"\nthreshold = \"1s\"\n\
                 objective = 0.999\n";
    assert_eq!(problems(valid), "");
    let check = |from: &str, to: &str, line: &str, part: &str| {
        let found = problems(&valid.replace(from, to));
        assert!(found.contains(line) && found.contains(part), "{line} {part}: {found}");
    };
    check("0.999", "0.9", "5", "can never fire");
    check("\"1s\"", "true", "4", "a number, or a text");
    check("latency", "rate(latency[5m])", "3", "expected a selector");
    check("threshold", "treshold", "4", "threshold");
    let twice = format!("{valid}{valid}");
    assert!(problems(&twice).contains("duplicate [[slo]] name"), "{}", problems(&twice));
}
