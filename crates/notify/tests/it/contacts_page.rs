//! The examples of `docs/contacts.md` are valid and have every kind.

use std::time::Duration;

use notify::{AnyContact, LengthUnit, NotifySettings, contact_kinds, failover_chain};
use toml::de::DeTable;

use crate::alerts::{client, contacts, huge_notification};
use crate::contact_faults::{HTTP_KINDS, mail_contact, send};
use crate::mail_receiver::MailReceiver;

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

/// A number with commas.
fn with_commas(number: usize) -> String {
    match (number / 1000, number % 1000) {
        (0, rest) => rest.to_string(),
        (thousands, rest) => format!("{thousands},{rest:03}"),
    }
}

/// The limits at which the texts of a message are cut, as the page has them.
async fn limits(contact: &AnyContact) -> Vec<String> {
    let client = client(Duration::from_secs(60));
    let receipt = send(contact, &huge_notification(), &client).await.unwrap();
    let limits = receipt.cuts.iter().map(|cut| cut.limit).filter(|limit| limit.length_max > 0);
    let text = |limit: notify::TextLimit| {
        let unit = match limit.unit {
            LengthUnit::Characters => "characters",
            LengthUnit::Utf16Units => "UTF-16 units",
            LengthUnit::Bytes => "bytes",
        };
        format!("{} {} {unit}", limit.field, with_commas(limit.length_max))
    };
    limits.map(text).collect()
}

#[tokio::test]
async fn the_page_has_the_limits_of_each_kind() {
    let section =
        PAGE.split("\n## Formats and limits\n").nth(1).and_then(|it| it.split("\n## ").next());
    let rows: Vec<&str> = section.expect("a section").lines().collect();
    let row = |kind: &str| {
        let mark = format!("| `{kind}` |");
        *rows
            .iter()
            .find(|row| row.starts_with(&mark))
            .unwrap_or_else(|| panic!("{kind} has no row"))
    };
    assert!(contact_kinds().all(|kind| row(kind).len() > kind.len() + 20));
    let mail = MailReceiver::start(None).await;
    let mut found = limits(&mail_contact(&mail, "security = 'none'")).await;
    found.iter().for_each(|limit| assert!(row("email").contains(limit), "email: {limit}"));
    for kind in HTTP_KINDS {
        let (_receiver, contact) = kind.start().await;
        let limits = limits(&contact).await;
        limits
            .iter()
            .for_each(|limit| assert!(row(kind.kind).contains(limit), "{}: {limit}", kind.kind));
        found.extend(limits);
    }
    assert!(found.len() > 10, "{found:?}");
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
