//! Settings of contacts: the `[[contact]]` tables of a settings file.
//!
//! A table has common keys (`name`, `kind`, times, `failover`) and the keys of its kind. All
//! problems are collected, each with its byte of the file; any of them rejects the settings.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::contact::AnyContact;
use crate::contacts::CONTACTS;
use crate::delivery_policy::DeliveryPolicy;
use crate::message_template::{ContactTemplates, TemplateSource};
use crate::nearest_name::unknown_name;
use crate::notify_problem::{NotifyProblem, table_array};
use crate::setting_values::{DurationText, KeyProblems};

/// Keys of every kind.
const COMMON_KEYS: [&str; 8] = [
    "name",
    "kind",
    "failover",
    "failover_after",
    "give_up_after",
    "max_retry_interval",
    "title",
    "text",
];
/// Limits of the longest delay between two attempts.
const RETRY_INTERVAL_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3600);
/// Maximum number of contacts.
const CONTACTS_MAX: usize = 200;
/// Maximum length of a name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A contact with its name and its times.
#[derive(Clone, Debug)]
pub struct ConfiguredContact {
    /// Unique name.
    pub name: String,
    /// The contact.
    pub contact: AnyContact,
    /// Times of retries, and the failover contact.
    pub policy: DeliveryPolicy,
    /// Templates of its messages.
    pub templates: ContactTemplates,
}

#[derive(Deserialize)]
struct CommonSettings {
    name: String,
    kind: String,
    failover: Option<String>,
    failover_after: Option<DurationText>,
    give_up_after: Option<DurationText>,
    max_retry_interval: Option<DurationText>,
    title: Option<String>,
    text: Option<String>,
}

/// Reads all `[[contact]]` tables of a file. Contacts beside problems are only for checks of names
/// in other tables.
pub fn read_contacts(root: &DeTable<'_>) -> (Vec<ConfiguredContact>, Vec<NotifyProblem>) {
    let (mut contacts, mut problems) = (Vec::new(), Vec::new());
    let mut positions: BTreeMap<String, usize> = BTreeMap::new();
    let tables = table_array(root, "contact", &mut problems);
    if let Some(first) = tables.get(CONTACTS_MAX) {
        let what = format!("contacts limit ({CONTACTS_MAX}) reached");
        problems.push(NotifyProblem { position: first.span().start, what });
    }
    for table in tables.iter().take(CONTACTS_MAX) {
        match read_contact(table) {
            Ok(contact) if positions.contains_key(&contact.name) => {
                let what = format!("duplicate [[contact]] name {:?}", contact.name);
                problems.push(NotifyProblem { position: key_position(table, "name"), what });
            }
            Ok(contact) => {
                positions.insert(contact.name.clone(), key_position(table, "failover"));
                contacts.push(contact);
            }
            Err(found) => problems.extend(found),
        }
    }
    problems.extend(failover_problems(&contacts, &positions));
    model::sort::by_key(&mut problems, |problem| problem.position);
    (contacts, problems)
}

/// Name of a contact, followed by its failover contact, that one's failover contact, and so on.
pub fn failover_chain<'a>(contacts: &'a [ConfiguredContact], name: &'a str) -> Vec<&'a str> {
    let failover_of = |name: &&str| {
        let contact = contacts.iter().find(|contact| contact.name == **name)?;
        contact.policy.failover.as_deref()
    };
    // The settings have no cycle; contacts built otherwise may have one.
    std::iter::successors(Some(name), failover_of).take(contacts.len().max(1)).collect()
}

/// Failover contacts that do not exist, receive no alerts, or form a cycle.
fn failover_problems(
    contacts: &[ConfiguredContact],
    positions: &BTreeMap<String, usize>,
) -> Vec<NotifyProblem> {
    let mut problems = Vec::new();
    for contact in contacts {
        let Some(failover) = contact.policy.failover.as_deref() else { continue };
        let target = contacts.iter().find(|contact| contact.name == failover);
        let what = match target {
            None => format!("failover {failover:?} is not the name of a contact"),
            Some(target) if target.contact.heartbeat_interval().is_some() => {
                format!("failover {failover:?} is a heartbeat, which receives no alerts")
            }
            Some(_) => {
                if !failover_chain(contacts, failover).contains(&&*contact.name) {
                    continue;
                }
                format!("failover {failover:?} leads back to {:?}", contact.name)
            }
        };
        problems.push(NotifyProblem { position: positions[&contact.name], what });
    }
    problems
}

fn read_contact(value: &Spanned<DeValue<'_>>) -> Result<ConfiguredContact, Vec<NotifyProblem>> {
    let start = value.span().start;
    let at = |byte: usize, what: String| vec![NotifyProblem { position: byte, what }];
    let of_toml =
        |error: toml::de::Error| vec![NotifyProblem::of_toml(start, &error, &COMMON_KEYS)];
    let Some(table) = value.get_ref().as_table() else {
        return Err(at(start, "contact is not a table; write [[contact]]".to_owned()));
    };
    let part = |is_common: bool| -> Spanned<DeTable<'_>> {
        let entries =
            table.iter().filter(|(key, _)| COMMON_KEYS.contains(&&**key.get_ref()) == is_common);
        let entries = entries.map(|(key, value)| (key.clone(), value.clone())).collect();
        Spanned::new(start..start, entries)
    };
    let common = CommonSettings::deserialize(toml::de::Deserializer::from(part(true)));
    let common = common.map_err(of_toml)?;
    let Some(row) = CONTACTS.iter().find(|row| row.kind == common.kind) else {
        let what = unknown_name("kind", &common.kind, CONTACTS.iter().map(|row| row.kind));
        return Err(at(key_position(value, "kind"), what));
    };
    let contact = (row.read)(part(false)).map_err(of_toml)?;
    let mut keys = KeyProblems::default();
    let name = &common.name;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        keys.add("name", "invalid name; expected 1 to 64 bytes without control characters");
    }
    let max_retry_interval = common.max_retry_interval.map(|text| text.0);
    if max_retry_interval.is_some_and(|interval| !RETRY_INTERVAL_RANGE.contains(&interval)) {
        keys.add("max_retry_interval", "max_retry_interval: out of range; expected 100ms to 1h");
    }
    if contact.heartbeat_interval().is_some() {
        let given = [("title", &common.title), ("text", &common.text)];
        for (key, _) in given.into_iter().filter(|(_, template)| template.is_some()) {
            keys.add(key, format!("a heartbeat has no `{key}`"));
        }
    }
    contact.check(&mut keys);
    if !keys.is_empty() {
        let problem = |(key, what)| NotifyProblem { position: key_position(value, key), what };
        return Err(keys.into_problems().map(problem).collect());
    }
    let default = DeliveryPolicy::default();
    let or = |text: Option<DurationText>, default| text.map_or(default, |text| text.0);
    let policy = DeliveryPolicy {
        failover_after: or(common.failover_after, default.failover_after),
        give_up_after: or(common.give_up_after, default.give_up_after),
        max_retry_interval: max_retry_interval.unwrap_or(default.max_retry_interval),
        failover: common.failover,
    };
    let source = |key: &str, text: Option<String>| {
        text.map(|text| TemplateSource { text, byte: key_position(value, key) })
    };
    let templates = ContactTemplates {
        title: source("title", common.title),
        text: source("text", common.text),
    };
    Ok(ConfiguredContact { name: common.name, contact, policy, templates })
}

/// Position of a key; if it is absent, of its table.
fn key_position(value: &Spanned<DeValue<'_>>, key: &str) -> usize {
    let table = value.get_ref().as_table();
    let found = table.and_then(|table| table.keys().find(|found| found.get_ref() == key));
    found.map_or(value.span().start, |found| found.span().start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let root = DeTable::parse(text).unwrap().into_inner();
        let line = |byte: usize| text[..byte].matches('\n').count() + 1;
        let (_, problems) = read_contacts(&root);
        let found: Vec<String> =
            problems.iter().map(|p| format!("{}: {}", line(p.position), p.what)).collect();
        assert_eq!(found, expected);
    }

    const PAGER: &str = "[[contact]]\nname = 'p'\nkind = 'pagerduty'\nrouting_key = 'r'\n";

    #[test]
    fn each_problem_has_its_line_and_the_other_contacts_are_read() {
        let text = "\
[[contact]]
name = 'hook'
kind = 'webhook'
url = 'ftp://host/'

[[contact]]
name = 'pager'
kind = 'pagerduty'
routing_kee = 'r'

[[contact]]
name = 'x'
kind = 'fax'

[[contact]]
name = 'ok'
kind = 'ntfy'
topic = 'alerts'
give_up_after = '3h'
";
        let root = DeTable::parse(text).unwrap().into_inner();
        let (contacts, problems) = read_contacts(&root);
        assert_eq!(contacts.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["ok"]);
        assert_eq!(contacts[0].policy.give_up_after, Duration::from_secs(3 * 3600));
        let line = |byte: usize| text[..byte].matches('\n').count() + 1;
        let lines: Vec<usize> = problems.iter().map(|problem| line(problem.position)).collect();
        assert_eq!(lines, [4, 9, 13]);
        assert!(problems[0].what.starts_with("url: scheme is neither http nor https"));
        assert!(
            problems[1]
                .what
                .starts_with("unknown key \"routing_kee\"; did you mean \"routing_key\"?"),
            "{problems:?}"
        );
        assert!(problems[2].what.starts_with("unknown kind \"fax\"; known: discord, "));
    }

    #[test]
    fn failover_contacts_exist_and_do_not_form_a_cycle() {
        check(PAGER, &[]);
        let to = |name: &str| format!("{PAGER}failover = '{name}'\n");
        check(&to("nobody"), &["5: failover \"nobody\" is not the name of a contact"]);
        check(&to("p"), &["5: failover \"p\" leads back to \"p\""]);
        let beat = "[[contact]]\nname = 'h'\nkind = 'heartbeat'\nurl = 'http://a'\n";
        let expected = "5: failover \"h\" is a heartbeat, which receives no alerts";
        check(&format!("{}{beat}", to("h")), &[expected]);
    }

    #[test]
    fn the_longest_delay_between_attempts_has_limits() {
        let with = |text: &str| format!("{PAGER}max_retry_interval = '{text}'\n");
        check(&with("1min"), &[]);
        let expected = "5: max_retry_interval: out of range; expected 100ms to 1h";
        check(&with("10ms"), &[expected]);
        check(&with("2h"), &[expected]);
    }

    #[test]
    fn names_are_unique() {
        check(&format!("{PAGER}{PAGER}"), &["6: duplicate [[contact]] name \"p\""]);
    }

    #[test]
    fn a_duration_has_a_unit() {
        let text = format!("{PAGER}failover_after = '5'\n");
        let root = DeTable::parse(&text).unwrap().into_inner();
        let (_, problems) = read_contacts(&root);
        assert!(text[problems[0].position..].starts_with("'5'"), "{problems:?}");
    }

    #[test]
    fn a_secret_is_not_printed() {
        let root = DeTable::parse(PAGER).unwrap().into_inner();
        let (contacts, _) = read_contacts(&root);
        assert!(
            !format!("{contacts:?}").contains("'r'") && !format!("{contacts:?}").contains("\"r\"")
        );
    }

    #[test]
    fn templates_have_the_position_of_their_key_and_a_heartbeat_has_none() {
        let text = format!("{PAGER}text = '''\nmore\n'''\n");
        let root = DeTable::parse(&text).unwrap().into_inner();
        let (contacts, problems) = read_contacts(&root);
        assert_eq!(problems.len(), 0);
        let source = contacts[0].templates.text.as_ref().unwrap();
        assert_eq!((source.text.as_str(), text.find("text =")), ("more\n", Some(source.byte)));
        let beat = "[[contact]]\nname = 'h'\nkind = 'heartbeat'\nurl = 'http://a'\ntitle = 'x'\n";
        check(beat, &["5: a heartbeat has no `title`"]);
    }
}
