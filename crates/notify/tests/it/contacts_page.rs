//! The examples of `docs/contacts.md` are valid and have every kind.

use notify::{NotifySettings, contact_kinds, failover_chain};
use toml::de::DeTable;

use crate::alerts::contacts;

const PAGE: &str = include_str!("../../../../docs/contacts.md");

#[test]
fn the_page_has_a_valid_example_of_each_kind() {
    let example = PAGE.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let contacts = contacts(example.unwrap());
    for kind in contact_kinds() {
        assert!(contacts.iter().any(|contact| contact.contact.kind() == kind), "{kind}");
        assert!(PAGE.contains(&format!("| `{kind}` |")), "{kind} has no row");
    }
    assert_eq!(failover_chain(&contacts, "pager"), ["pager", "sms"]);
}

#[test]
fn the_examples_of_the_page_are_one_valid_settings_file() {
    let blocks = PAGE.split("```toml\n").skip(1);
    let text: String = blocks.filter_map(|block| block.split("```").next()).collect();
    let root = DeTable::parse(&text).unwrap().into_inner();
    let calendar = PAGE.split("```ics\n").nth(1).and_then(|rest| rest.split("```").next());
    let dir = std::env::temp_dir().join(format!("topdeck-contacts-page-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("on-call.ics"), calendar.unwrap()).unwrap();
    let settings = NotifySettings::read(&root, &dir);
    std::fs::remove_dir_all(&dir).unwrap();
    let settings = settings.unwrap();
    // 2026-01-06 and 2026-01-13, 12:00 UTC.
    let on_call = |at_s: i64| settings.rotations[1].shift_at(at_s * 1_000_000_000).member;
    assert_eq!(on_call(1_767_700_800).as_deref(), Some("phone"));
    assert_eq!(on_call(1_768_305_600).as_deref(), Some("sms"));
    let labels = [("severity".to_owned(), "1".to_owned())].into();
    assert_eq!(settings.routing.receivers(&labels), ["shop"]);
    for key in NotifySettings::KEYS {
        assert!(PAGE.contains(&format!("{key}]")) || PAGE.contains(&format!("{key} =")), "{key}");
    }
}
