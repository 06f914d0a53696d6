//! Order of evaluation: rules after those whose states they read.

use std::collections::{HashMap, HashSet};

use crate::rule_file::{Rule, RuleKind};

/// Rules in an order in which each one follows those whose states it reads, otherwise in that of
/// the file; and rules that cannot be used, with the cause.
pub(super) fn order_rules(rules: Vec<Rule>) -> (Vec<Rule>, Vec<(Rule, String)>) {
    let names: HashSet<String> = rules.iter().map(|rule| rule.name.clone()).collect();
    let missing = |rule: &Rule| {
        let missing = dependencies(rule).into_iter().find(|name| !names.contains(*name));
        missing.map(str::to_owned)
    };
    let (mut ordered, mut unusable, mut waiting) = (Vec::new(), Vec::new(), Vec::<Rule>::new());
    for rule in rules {
        match missing(&rule) {
            Some(name) => {
                let cause = format!("{:?} needs rule {name:?}, which the file lacks", rule.name);
                unusable.push((rule, cause));
            }
            None => waiting.push(rule),
        }
    }
    let levels = levels(&waiting);
    let mut waiting: Vec<Option<Rule>> = waiting.into_iter().map(Some).collect();
    ordered.extend(levels.into_iter().filter_map(|at| waiting[at].take()));
    for rule in waiting.into_iter().flatten() {
        let cause = format!(
            "{:?} depends on itself, or on a rule that cannot be used; remove the reference",
            rule.name
        );
        unusable.push((rule, cause));
    }
    (ordered, unusable)
}

/// Positions of the rules whose dependencies are among them: first those that read no others, then
/// those that read only these, and so on.
fn levels(rules: &[Rule]) -> Vec<usize> {
    let positions: HashMap<&str, usize> =
        rules.iter().enumerate().map(|(at, rule)| (rule.name.as_str(), at)).collect();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); rules.len()];
    let mut open: Vec<usize> = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let names = dependencies(rule);
        for read in names.iter().filter_map(|name| positions.get(name)) {
            readers[*read].push(at);
        }
        open.push(names.len());
    }
    let (mut placed, mut level) = (Vec::new(), Vec::new());
    level.extend((0..rules.len()).filter(|at| open[*at] == 0));
    while !level.is_empty() {
        let mut next = Vec::new();
        for reader in level.iter().flat_map(|at| &readers[*at]) {
            open[*reader] -= 1;
            if open[*reader] == 0 {
                next.push(*reader);
            }
        }
        model::sort::by(&mut next, Ord::cmp);
        placed.append(&mut level);
        level = next;
    }
    placed
}

fn dependencies(rule: &Rule) -> Vec<&str> {
    match &rule.kind {
        RuleKind::Alerting(settings) => {
            settings.condition.as_ref().map_or_else(Vec::new, |own| own.dependencies())
        }
        RuleKind::Recording => Vec::new(),
    }
}
