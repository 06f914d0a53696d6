//! The example of `docs/contacts.md` is valid and has every kind.

use notify::{contact_kinds, failover_chain};

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
