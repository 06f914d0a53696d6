//! Integration tests of the role. `crates/topdeck/tests/it/serve/alerts.rs` tests it in a server.

use alerts::rule_promql_options;
use rules::parse_rule_file;

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/alerts.md");
    std::fs::read_to_string(path).expect("docs/alerts.md")
}

/// First block of a language in the user documentation.
fn example(language: &str) -> String {
    let page = page();
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("an example");
    rest.split_once("```").expect("the end of the example").0.to_owned()
}

#[test]
fn the_documented_rules_have_no_problems() {
    let rules = example("yaml");
    let file = parse_rule_file("shop.yaml", &rules, &rule_promql_options());
    assert_eq!(file.problems, []);
    assert_eq!(file.groups.iter().map(|group| group.rules.len()).sum::<usize>(), 2);
}

#[test]
fn the_documented_settings_are_valid() {
    use role::settings::{Document, SettingsCheck};
    use role::{Role as _, RoleEntry, RoleSettings};
    static ROLES: role::RoleTable = &[&RoleEntry::<alerts::AlertsRole>::ROW];
    let page = page();
    let blocks = page.split("```toml\n").skip(1);
    let text: String = blocks.filter_map(|block| block.split("```").next()).collect();
    assert!(text.contains("[[contact]]") && text.contains("[route]"), "{text}");
    let folder = std::path::Path::new("/etc/topdeck");
    let document = Document::parse(&text, folder).expect("valid TOML");
    let settings = RoleSettings::read(ROLES, &document).expect("known keys");
    let mut check = SettingsCheck::new(&document);
    settings.validate_settings(&mut check);
    assert!(check.finish().is_empty());
    assert_eq!(alerts::AlertsRole::NAME, "alerts");
}
