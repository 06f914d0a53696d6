//! Groups of rules for unit tests, which are evaluated over no data.

use query::{Settings, promql};
use rules::{
    AlertTemplates, EvaluatedGroup, GroupDefaults, IterationInputs, MemorySeries, SourceEvaluator,
    parse_rule_file,
};

/// The first group of a rule file of Prometheus.
#[track_caller]
pub(crate) fn test_group(file: &str, text: &str) -> EvaluatedGroup {
    let parsed = parse_rule_file(file, text, &promql::Options::default());
    assert_eq!(parsed.problems, []);
    let group = parsed.groups.into_iter().next().expect("a group");
    EvaluatedGroup::new(group, &GroupDefaults::default())
}

/// Evaluates all rules of a group.
pub(crate) fn evaluate(group: &mut EvaluatedGroup, time_ns: i64) {
    let inputs = IterationInputs {
        evaluator: &SourceEvaluator {
            source: &MemorySeries::default(),
            settings: &Settings::default(),
            options: promql::Options::default(),
            context: &|| false,
        },
        templates: &AlertTemplates::default(),
        resend_delay_ns: 60_000_000_000,
    };
    group.evaluate(time_ns, &inputs);
}
