//! Order of evaluation: rules after those whose states they read.

use std::collections::HashSet;

use crate::rule_file::{Rule, RuleKind};

/// Rules in an order in which each one follows those whose states it reads, otherwise in that of
/// the file; and rules that cannot be used, with the cause.
pub(super) fn order_rules(rules: Vec<Rule>) -> (Vec<Rule>, Vec<(Rule, String)>) {
    let names: HashSet<String> = rules.iter().map(|rule| rule.name.clone()).collect();
    let missing = |rule: &Rule| {
        let missing = dependencies(rule).into_iter().find(|name| !names.contains(*name));
        missing.map(str::to_owned)
    };
    let (mut ordered, mut unusable, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    for rule in rules {
        match missing(&rule) {
            Some(name) => {
                let cause = format!("{:?} needs rule {name:?}, which the file lacks", rule.name);
                unusable.push((rule, cause));
            }
            None => waiting.push(rule),
        }
    }
    let mut placed: HashSet<String> = HashSet::new();
    // Each pass places the rules that read only those of earlier passes.
    loop {
        let is_ready = |rule: &Rule| dependencies(rule).iter().all(|name| placed.contains(*name));
        let (ready, later): (Vec<Rule>, Vec<Rule>) = waiting.into_iter().partition(is_ready);
        waiting = later;
        if ready.is_empty() {
            break;
        }
        placed.extend(ready.iter().map(|rule| rule.name.clone()));
        ordered.extend(ready);
    }
    for rule in waiting {
        let cause = format!(
            "{:?} depends on itself, or on a rule that cannot be used; remove the reference",
            rule.name
        );
        unusable.push((rule, cause));
    }
    (ordered, unusable)
}

fn dependencies(rule: &Rule) -> Vec<&str> {
    match &rule.kind {
        RuleKind::Alerting(settings) => {
            settings.own.as_ref().map_or_else(Vec::new, |own| own.dependencies())
        }
        RuleKind::Recording => Vec::new(),
    }
}
