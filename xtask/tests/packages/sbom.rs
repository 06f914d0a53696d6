//! The bill of materials: required fields of CycloneDX 1.5, and components of the program.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::package_fixture::{PackageFixture, VERSION};

fn bill(machine: &str) -> Value {
    let name = format!("topdeck-{VERSION}-{machine}.cdx.json");
    let text = fs::read_to_string(PackageFixture::shared().package(&name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no text {key} in {value}"))
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| b"0123456789abcdef".contains(&byte))
}

/// Fields that the schema requires of a component, and the forms of those that are there.
#[track_caller]
fn check_component(component: &Value) {
    assert!(["application", "library"].contains(&text(component, "type")), "{component}");
    assert!(!text(component, "name").is_empty() && !text(component, "version").is_empty());
    for license in component["licenses"].as_array().into_iter().flatten() {
        let expression = text(license, "expression");
        assert!(!expression.contains('/') && !expression.is_empty(), "{component}");
    }
    for hash in component["hashes"].as_array().into_iter().flatten() {
        let digits = if text(hash, "alg") == "SHA-512" { 128 } else { 64 };
        assert!(is_hex(text(hash, "content"), digits), "{component}");
    }
}

#[test]
fn bill_has_the_required_fields() {
    for machine in ["x86_64", "aarch64"] {
        let bill = bill(machine);
        assert_eq!((text(&bill, "bomFormat"), text(&bill, "specVersion")), ("CycloneDX", "1.5"));
        assert_eq!(bill["version"], 1);
        let uuid = text(&bill, "serialNumber").strip_prefix("urn:uuid:").unwrap();
        let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(text(&bill["metadata"], "timestamp"), "2026-01-02T03:04:05Z");
        check_component(&bill["metadata"]["component"]);
        let components = bill["components"].as_array().unwrap();
        components.iter().for_each(|component| check_component(component));
        // References are unique, and dependencies name known ones, all of which are needed.
        let mut known: BTreeSet<&str> = components.iter().map(|it| text(it, "bom-ref")).collect();
        assert_eq!(known.len(), components.len());
        let program = text(&bill["metadata"]["component"], "bom-ref");
        let mut needed = BTreeSet::from([program]);
        known.insert(program);
        for dependency in bill["dependencies"].as_array().unwrap() {
            assert!(known.contains(text(dependency, "ref")), "{dependency}");
            for on in dependency["dependsOn"].as_array().unwrap() {
                needed.insert(on.as_str().unwrap());
            }
        }
        assert_eq!(known, needed);
    }
}

#[test]
fn bill_lists_what_is_linked_and_bundled() {
    let bill = bill("x86_64");
    let find = |name: &str| {
        bill["components"].as_array().unwrap().iter().find(|it| text(it, "name") == name)
    };
    let rustls = find("rustls").expect("rustls is linked");
    let purl = format!("pkg:cargo/rustls@{}", text(rustls, "version"));
    assert_eq!(text(rustls, "purl"), purl);
    assert_eq!(text(&rustls["hashes"][0], "alg"), "SHA-256");
    let svelte = find("svelte").expect("svelte is bundled");
    assert_eq!(text(svelte, "purl"), format!("pkg:npm/svelte@{}", text(svelte, "version")));
    let ours = find("topdeck-hist").expect("topdeck-hist is linked");
    assert!(ours["purl"].is_null() && ours["hashes"].is_null(), "{ours}");
    // Macros, and what only tests and builds need.
    for name in ["serde_derive", "proptest", "cc", "vite"] {
        assert!(find(name).is_none(), "{name} is not a part of the program");
    }
    let licenses = bill["components"].as_array().unwrap().iter();
    let without: Vec<&str> =
        licenses.filter(|it| it["licenses"].is_null()).map(|it| text(it, "name")).collect();
    assert!(without.is_empty(), "without a license: {without:?}");
}
