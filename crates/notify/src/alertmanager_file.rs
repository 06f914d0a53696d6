//! Alertmanager's configuration file: routes, inhibition and time intervals.
//!
//! Receivers keep their names; each one is a contact, rotation or escalation of topdeck, because
//! their own settings are not read. What is not used is listed. The file is converted to TOML
//! values whose positions are lines and columns, so that both formats have one reader.

mod yaml_values;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::nearest_name::unknown_name;
use crate::notify_problem::{NotifyProblem, read_table, table_array};
use crate::routing::{AlertMatcher, InhibitTable, RoutingTables, RoutingTree, TimeIntervalTable};
use yaml_values::{position_text, read_yaml};

/// Larger files are not read.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Keys of the file.
const KEYS: [&str; 8] = [
    "global",
    "inhibit_rules",
    "mute_time_intervals",
    "receivers",
    "route",
    "templates",
    "time_intervals",
    "tracing",
];
/// Keys that are not used, and what topdeck has instead.
const UNUSED: [(&str, &str); 3] = [
    ("global", "URLs and secrets are keys of each [[contact]]"),
    ("templates", "texts have a fixed form"),
    ("tracing", "topdeck sends no traces"),
];
/// Old keys of routes and inhibition: matchers with `=` and `=~`.
const OLD_MATCHERS: [(&str, &str, &str); 6] = [
    ("match", "matchers", "="),
    ("match_re", "matchers", "=~"),
    ("source_match", "source_matchers", "="),
    ("source_match_re", "source_matchers", "=~"),
    ("target_match", "target_matchers", "="),
    ("target_match_re", "target_matchers", "=~"),
];

/// Reads a file. Returns the tree and what of the file is not used; or all problems.
pub(crate) fn read_alertmanager_file(
    path: &Path,
    receivers: &BTreeSet<&str>,
) -> Result<(RoutingTree, Vec<String>), Vec<String>> {
    let shown = path.display();
    let failed = |error: &dyn std::fmt::Display| vec![format!("cannot read {shown}: {error}")];
    let length = std::fs::metadata(path).map_err(|error| failed(&error))?.len();
    if length > FILE_BYTES_MAX {
        return Err(failed(&format!("size limit ({} MiB) exceeded", FILE_BYTES_MAX >> 20)));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let located = |found: Vec<NotifyProblem>| -> Vec<String> {
        let text = |problem: NotifyProblem| {
            format!("{shown}:{}: {}", position_text(problem.position), problem.what)
        };
        found.into_iter().map(text).collect()
    };
    read_text(&text, receivers).map(|(tree, unused)| (tree, located(unused))).map_err(located)
}

type NotifyProblems = Vec<NotifyProblem>;

fn read_text(
    text: &str,
    receivers: &BTreeSet<&str>,
) -> Result<(RoutingTree, NotifyProblems), NotifyProblems> {
    let root = read_yaml(text).map_err(|problem| vec![problem])?;
    let (start, mut value) = (root.span().start, root.into_inner());
    let DeValue::Table(root) = &mut value else {
        let what = "expected a mapping with `route` and `receivers`".to_owned();
        return Err(vec![NotifyProblem { position: start, what }]);
    };
    let (mut problems, mut unused) = (Vec::new(), Vec::new());
    for key in root.keys() {
        let (byte, name) = (key.span().start, &**key.get_ref());
        if !KEYS.contains(&name) {
            problems.push(NotifyProblem { position: byte, what: unknown_name("key", name, KEYS) });
        }
        if let Some((_, instead)) = UNUSED.iter().find(|(unused, _)| *unused == name) {
            unused.push(NotifyProblem {
                position: byte,
                what: format!("{name} is not used: {instead}"),
            });
        }
    }
    list_receivers(root, receivers, &mut problems, &mut unused);
    root.iter_mut().for_each(|(_, value)| replace_old_matchers(value, &mut problems));
    let mut parts = RoutingTables {
        inhibit: Vec::<InhibitTable>::new(),
        time_intervals: Vec::<TimeIntervalTable>::new(),
        route: None,
    };
    match root.iter().find(|(key, _)| key.get_ref() == "route") {
        Some((key, value)) => {
            let route = read_table("route", value, &mut problems);
            parts.route = route.map(|route| (key.span().start, route));
        }
        None => {
            problems.push(NotifyProblem { position: start, what: "`route` is missing".to_owned() })
        }
    }
    for value in table_array(root, "inhibit_rules", &mut problems) {
        parts.inhibit.extend(read_table::<InhibitTable>("inhibit_rules", value, &mut problems));
    }
    for key in ["mute_time_intervals", "time_intervals"] {
        for value in table_array(root, key, &mut problems) {
            parts.time_intervals.extend(read_table::<TimeIntervalTable>(key, value, &mut problems));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let tree = parts.build(receivers)?;
    Ok((tree, unused))
}

/// Lists the settings of receivers, which are not read. A receiver that topdeck does not know is a
/// problem: its alerts would be lost.
fn list_receivers(
    root: &DeTable<'_>,
    receivers: &BTreeSet<&str>,
    problems: &mut NotifyProblems,
    unused: &mut NotifyProblems,
) {
    for value in table_array(root, "receivers", problems) {
        let Some(table) = value.get_ref().as_table() else { continue };
        let entry = |(key, _): &(&Spanned<Cow<'_, str>>, _)| key.get_ref() == "name";
        let name = table.iter().find(entry).and_then(|(_, value)| value.get_ref().as_str());
        let Some(name) = name else { continue };
        let kinds = table.keys().filter(|key| key.get_ref() != "name");
        let kinds: Vec<&str> = kinds.map(|key| &**key.get_ref()).collect();
        let byte = value.span().start;
        if !receivers.contains(name) {
            let has = match kinds.is_empty() {
                true => String::new(),
                false => format!(" (it has {})", kinds.join(", ")),
            };
            let what = format!(
                "receiver {name:?}{has} is not configured; add a [[contact]], [[rotation]] or \
                 [[escalation]] of this name"
            );
            problems.push(NotifyProblem { position: byte, what });
        } else if !kinds.is_empty() {
            let what = format!(
                "{} of receiver {name:?} is not used: topdeck has its own {name:?}",
                kinds.join(", ")
            );
            unused.push(NotifyProblem { position: byte, what });
        }
    }
}

/// Replaces `match` and the like by matchers, everywhere below a value.
fn replace_old_matchers(value: &mut Spanned<DeValue<'_>>, problems: &mut NotifyProblems) {
    match value.get_mut() {
        DeValue::Array(items) => {
            items.iter_mut().for_each(|item| replace_old_matchers(item, problems));
        }
        DeValue::Table(table) => {
            table.iter_mut().for_each(|(_, value)| replace_old_matchers(value, problems));
            replace_in_table(table, problems);
        }
        _ => {}
    }
}

fn replace_in_table(table: &mut DeTable<'_>, problems: &mut NotifyProblems) {
    let is_old = |key: &str| OLD_MATCHERS.iter().find(|(old, ..)| *old == key);
    if table.keys().all(|key| is_old(key.get_ref()).is_none()) {
        return;
    }
    let mut kept: DeTable<'_> = DeTable::new();
    let mut matchers: Vec<(&str, Spanned<DeValue<'_>>)> = Vec::new();
    for (key, value) in std::mem::take(table) {
        let Some((old, new, operator)) = is_old(key.get_ref()) else {
            kept.insert(key, value);
            continue;
        };
        let Some(labels) = value.get_ref().as_table() else {
            let what = format!("{old} is not a mapping of labels");
            problems.push(NotifyProblem { position: value.span().start, what });
            continue;
        };
        for (label, value) in labels {
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Boolean(flag) => flag.to_string(),
                _ => {
                    let what = format!("the value of label {:?} is not a text", label.get_ref());
                    problems.push(NotifyProblem { position: value.span().start, what });
                    continue;
                }
            };
            let text = AlertMatcher::text_of(label.get_ref(), operator, &text);
            matchers.push((new, Spanned::new(label.span(), DeValue::String(text.into()))));
        }
    }
    for (new, matcher) in matchers {
        let span = matcher.span();
        let found = kept.iter_mut().find(|(key, _)| key.get_ref() == new);
        match found.map(|(_, value)| value.get_mut()) {
            Some(DeValue::Array(list)) => list.push(matcher),
            Some(_) => {}
            None => {
                let list = DeValue::Array([matcher].into_iter().collect());
                kept.insert(Spanned::new(span.clone(), new.into()), Spanned::new(span, list));
            }
        }
    }
    *table = kept;
}
