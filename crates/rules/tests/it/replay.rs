//! Replays: the same states as a node that evaluated the rules when the data arrived.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use proptest::prelude::*;
use query::{
    LabelSet, QueryContext, SeriesHandle, SeriesPoint, Settings, Source, SourceRead, promql,
};
use rules::{
    AlertState, AlertTemplates, EvaluatedGroup, GroupDefaults, ReplayInputs, ReplayState,
    RuleReplay, RuleReplayError, replay_groups,
};

use crate::harness::{MINUTE, SECOND, SimulatedNode, group, parse, with_rules};
use crate::shape_changes::{self, Random, group_with, push, row, saved, saved_rule};

/// A change of state: time, rule, alert, state, whether it is unknown.
type Change = (i64, usize, LabelSet, AlertState, bool);

/// Series in memory, borrowed for a query.
struct BorrowedSeries<'a>(&'a dyn Source);

impl Source for BorrowedSeries<'_> {
    fn select(&self, selector: &model::Selector) -> query::Result<Vec<SeriesHandle>> {
        self.0.select(selector)
    }

    fn samples(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> query::Result<SourceRead<SeriesPoint>> {
        self.0.samples(series, range)
    }

    fn time_range(
        &self,
        series: &[SeriesHandle],
        range: Range<i64>,
    ) -> query::Result<Option<Range<i64>>> {
        self.0.time_range(series, range)
    }

    fn histograms(
        &self,
        series: &[&SeriesHandle],
        grid: store::TimeGrid,
    ) -> query::Result<SourceRead<hist::Mixture>> {
        self.0.histograms(series, grid)
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: store::TimeGrid,
    ) -> query::Result<SourceRead<Option<store::NumberAggregate>>> {
        self.0.numbers(series, grid)
    }
}

fn replay_with(
    source: &dyn Source,
    groups: Vec<EvaluatedGroup>,
    range: Range<i64>,
    context: &dyn QueryContext,
    evaluations_max: u64,
) -> Result<RuleReplay, RuleReplayError> {
    let inputs = ReplayInputs {
        open_source: &|| Box::new(BorrowedSeries(source)),
        settings: &Settings::default(),
        options: promql::Options::default(),
        context,
        templates: &AlertTemplates::default(),
        evaluations_max,
        progress: &|_, _| {},
    };
    replay_groups(groups, &range, &inputs)
}

#[track_caller]
fn replay(source: &dyn Source, text: &str, range: Range<i64>) -> RuleReplay {
    replay_with(source, vec![group(text)], range, &|| false, u64::MAX).expect("a replay")
}

/// Changes of a replay, in the order of time.
fn replayed_changes(replay: &RuleReplay) -> Vec<Change> {
    let mut changes = Vec::new();
    for (index, rule) in replay.rules.iter().enumerate() {
        for alert in &rule.alerts {
            assert_eq!(alert.omitted_transitions, 0);
            changes.extend(alert.transitions.iter().map(|change| {
                let ReplayState { state, is_unknown } = change.to;
                (change.time_ns, index, alert.labels.clone(), state, is_unknown)
            }));
        }
    }
    changes.sort();
    changes
}

/// A node that records the changes of state.
struct LiveNode {
    node: SimulatedNode,
    states: Vec<(usize, LabelSet, AlertState, bool)>,
    changes: Vec<Change>,
}

impl LiveNode {
    fn new(text: &str) -> LiveNode {
        let mut node = SimulatedNode::new(text);
        node.time_ns = node.group.scheduled_time_before(node.time_ns);
        LiveNode { node, states: Vec::new(), changes: Vec::new() }
    }

    fn step(&mut self) {
        let time_ns = self.node.time_ns;
        self.node.step();
        let mut states = Vec::new();
        for (index, rule) in self.node.group.rules().iter().enumerate() {
            let active = rule.alerts().alerts().filter(|it| it.1.state != AlertState::Inactive);
            states.extend(
                active.map(|(labels, alert)| {
                    (index, labels.clone(), alert.state, alert.is_unknown())
                }),
            );
        }
        for state in &states {
            if !self.states.contains(state) {
                let (rule, labels, state, is_unknown) = state.clone();
                self.changes.push((time_ns, rule, labels, state, is_unknown));
            }
        }
        for (rule, labels, ..) in &self.states {
            if !states.iter().any(|(other, of, ..)| other == rule && of == labels) {
                let change = (time_ns, *rule, labels.clone(), AlertState::Inactive, false);
                self.changes.push(change);
            }
        }
        self.states = states;
        self.changes.sort();
    }
}

/// Recorded series, alerts on them, alerts on alerts, missing data that holds.
const RULES: &str = "
  - record: load:twice
    expr: 2 * load
  - alert: Busy
    expr: load:twice > 10
    for: 1m
    keep_firing_for: 1m
  - alert: BusyOnAverage
    expr: avg_over_time(load:twice[2m]) > 10
  - alert: Held
    expr: load > 5
    annotations: {topdeck_missing_data: hold}
  - alert: ManyBusy
    expr: count(ALERTS{alertname=\"Busy\", alertstate=\"firing\"}) > 1
  - alert: LongBusy
    expr: min_over_time(ALERTS{alertname=\"Busy\", alertstate=\"firing\"}[2m]) == 1
    for: 30s
";

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_has_the_changes_of_the_node_that_was_running(
        loads in proptest::collection::vec(proptest::option::weighted(0.9, 0u8..10), 3 * 40)
    ) {
        let text = with_rules(RULES);
        let mut live = LiveNode::new(&text);
        let start_ns = live.node.time_ns;
        for step in loads.chunks(3) {
            for (instance, load) in ["a", "b", "c"].into_iter().zip(step) {
                let series = format!("load{{instance=\"{instance}\"}}");
                match load {
                    Some(load) => live.node.set(&series, f64::from(*load)),
                    None => live.node.end(&series),
                }
            }
            live.step();
        }
        let range = start_ns..live.node.time_ns - SECOND;
        // The stored samples include those that the node recorded.
        let replayed = replay(&live.node.series, &text, range);
        prop_assert_eq!(replayed_changes(&replayed), live.changes);
    }
}

/// Load of one instance in steps of 30 s.
fn node_with_load(text: &str, loads: &[f64]) -> LiveNode {
    let mut live = LiveNode::new(text);
    for load in loads {
        live.node.set("load{instance=\"a\"}", *load);
        live.step();
    }
    live
}

const BUSY: &str = "  - {alert: Busy, expr: load > 5, for: 1m}\n";

#[test]
fn a_condition_that_held_before_the_range_is_not_a_new_one() {
    let text = with_rules(BUSY);
    let loads = [[0.0; 10], [9.0; 10], [0.0; 10]].concat();
    let live = node_with_load(&text, &loads);
    let start_ns = live.node.time_ns - 30 * 30 * SECOND;
    let middle_ns = start_ns + 15 * 30 * SECOND;
    let replayed = replay(&live.node.series, &text, middle_ns..live.node.time_ns);
    let later = live.changes.iter().filter(|change| change.0 >= middle_ns).cloned();
    assert_eq!(replayed_changes(&replayed), later.collect::<Vec<_>>());
    let rule = &replayed.rules[0];
    let alert = &rule.alerts[0];
    assert_eq!(alert.state_at_start.state, AlertState::Firing);
    assert_eq!((rule.fired(), rule.firing_ns()), (0, 5 * 30 * SECOND));
}

#[test]
fn another_threshold_shows_what_would_have_been() {
    // Fires from 5 to 12 with 5, and from 8 to 12 with 8.
    let loads = [vec![0.0; 4], vec![6.0; 4], vec![9.0; 4], vec![0.0; 4]].concat();
    let text =
        with_rules("  - {alert: Busy, expr: load > 5}\n  - {alert: Copy, expr: ALERTS > 0}\n");
    let live = node_with_load(&text, &loads);
    let range = live.node.time_ns - 16 * 30 * SECOND..live.node.time_ns;
    let fired = |text: &str| {
        let rule = &replay(&live.node.series, text, range.clone()).rules[0];
        (rule.fired(), rule.firing_ns() / SECOND)
    };
    assert_eq!(fired(&text), (1, 240));
    assert_eq!(fired(&text.replace("load > 5", "load > 8")), (1, 120));
    assert_eq!(fired(&text.replace("load > 5", "load > 9")), (0, 0));
    // The stored series of the alert do not count for the rules that read it.
    let none = text.replace("load > 5", "load > 9");
    let copy = &replay(&live.node.series, &none, range.clone()).rules[1];
    let own = |name: &str| copy.alerts.iter().any(|alert| alert.series.get("alertname") == name);
    assert!(!own("Busy"), "{:?}", copy.alerts);
}

/// Own rules: severities, `for`, missing data, absence, a criterion of texts, a parent, a formula.
const OWN_RULES: &str = "
interval = '30s'
[[rule]]
name = 'Slow'
select = 'latency'
window = '1min'
for = '30s'
keep_firing_for = '30s'
[[rule.criteria]]
severity = 1
quantile = 0.9
above = 200
[[rule.criteria]]
severity = 3
count_above = 100
at_least = 2

[[rule]]
name = 'Deep'
select = 'queue'
window = '1min'
parent = 'Slow'
[[rule.criteria]]
severity = 2
above = 10

[[rule]]
name = 'Both'
formula = 'Slow and Deep'
";

#[test]
fn own_rules_have_the_states_of_a_node() {
    let mut live = LiveNode::new(OWN_RULES);
    let mut begins_ns = 0;
    // Value of both streams for a number of steps; of none if there are no rows.
    let phases = [
        (30, Some((10.0, 1.0))),
        (4, Some((150.0, 1.0))),
        (6, Some((150.0, 20.0))),
        (4, Some((500.0, 2.0))),
        (20, None),
        (5, Some((10.0, 20.0))),
        (1, None),
        (9, Some((10.0, 1.0))),
    ];
    for (steps, values) in phases {
        for _ in 0..steps {
            if let Some((latency, depth)) = values {
                live.node.record("latency{instance=\"a\"}", [latency; 4]);
                live.node.set("queue{instance=\"a\",shard=\"1\"}", depth);
            }
            live.step();
        }
        if begins_ns == 0 {
            begins_ns = live.node.time_ns;
        }
    }
    let range = begins_ns..live.node.time_ns - live.node.group.interval_ns();
    let expected: Vec<Change> =
        live.changes.iter().filter(|change| range.contains(&change.0)).cloned().collect();
    let replayed = replay(&live.node.series, OWN_RULES, range);
    assert_eq!(replayed_changes(&replayed), expected);
    // Pending, firing, unknown and resolved alerts, and an absence.
    assert_eq!(expected.len(), 13, "{expected:?}");
    let of = |name: &str| {
        let rule = replayed.rules.iter().find(|replayed| replayed.rule.name == name);
        rule.expect("the rule")
    };
    assert_eq!(["Slow", "Deep", "Both"].map(|name| of(name).fired()), [1, 1, 1]);
    // The parent of `Deep` fires meanwhile at severity 1.
    let absences = ["Slow", "Deep", "Both"].map(|name| of(name).absence().is_some());
    assert_eq!(absences, [true, false, false]);
    let above = of("Slow").above.as_ref().expect("a threshold");
    assert_eq!(above.threshold, "200");
    // The four rows of 500: the alert fired in all of them.
    assert_eq!(above.values, hist::Bracket::exact(16.0));
    assert_eq!(of("Deep").above, None);
}

#[test]
fn rules_with_a_saved_baseline_have_the_states_of_a_node() {
    let mut random = Random(5);
    let day = (0..24).map(|_| row(&mut random, 15_000, 0.0));
    let baseline = saved(&[], None, day);
    let mut live = LiveNode::new(shape_changes::RULE);
    live.node.group = group_with(&saved_rule(), &baseline);
    live.node.time_ns = live.node.group.scheduled_time_before(live.node.time_ns);
    let start_ns = live.node.time_ns;
    for second_mode in [[0.0; 40], [0.02; 40], [0.0; 40]].concat() {
        let now_ns = live.node.time_ns;
        push(&mut live.node, now_ns, row(&mut random, 500, second_mode));
        live.step();
    }
    let range = start_ns..live.node.time_ns - SECOND;
    let groups = vec![group_with(&saved_rule(), &baseline)];
    let replayed = replay_with(&live.node.series, groups, range, &|| false, u64::MAX);
    assert_eq!(replayed_changes(&replayed.expect("a replay")), live.changes);
    let states: Vec<AlertState> = live.changes.iter().map(|change| change.3).collect();
    assert_eq!(states.first(), Some(&AlertState::Firing), "{:?}", live.changes);
    assert_eq!(states.last(), Some(&AlertState::Inactive), "{:?}", live.changes);
}

#[test]
fn own_rules_without_data_say_so() {
    let text = "[[rule]]\nname = 'A'\nselect = 'laod'\n[[rule.criteria]]\nseverity = 1\nabove = 1\n\
                [[rule]]\nname = 'B'\nselect = 'load'\n[[rule.criteria]]\nseverity = 1\nabove = 1\n\
                [[rule]]\nname = 'C'\nformula = 'A or B'\n";
    let live = node_with_load(&with_rules(BUSY), &[9.0; 10]);
    let range = live.node.time_ns - 2 * MINUTE..live.node.time_ns;
    let replayed = replay(&live.node.series, text, range);
    let without: Vec<&[String]> =
        replayed.rules.iter().map(|rule| &rule.without_data[..]).collect();
    assert_eq!(without, [&["laod".to_owned()][..], &[], &[]]);
}

#[test]
fn groups_see_what_the_groups_before_them_recorded() {
    let text = with_rules("  - {record: twice, expr: 2 * load}\n");
    let second = "groups:\n- name: h\n  interval: 30s\n  rules:\n  \
                  - {alert: Busy, expr: 'max_over_time(twice[5m]) > 10'}\n";
    let mut live = LiveNode::new(&with_rules(BUSY));
    for load in [[0.0; 10], [9.0; 10]].concat() {
        live.node.set("load{instance=\"a\"}", load);
        live.step();
    }
    let range = live.node.time_ns - 20 * 30 * SECOND..live.node.time_ns;
    let groups = vec![group(&text), group(second)];
    let replayed = replay_with(&live.node.series, groups, range, &|| false, u64::MAX);
    let replayed = replayed.expect("a replay");
    assert_eq!(replayed.rules[1].fired(), 1, "{replayed:?}");
    assert!(replayed.rules[1].without_data.is_empty());
}

#[test]
fn a_rule_without_data_says_so() {
    let text = with_rules(
        "  - {alert: A, expr: 'laod > 5'}\n  - {alert: B, expr: 'load > 5 or other{x=\"1\"} > 2'}\n\
         \x20 - {alert: C, expr: 'latency_count > 0 and on() latency_bucket{le=\"+Inf\"} > 0'}\n",
    );
    let mut live = node_with_load(&text, &[9.0; 10]);
    live.node.record("latency{host=\"db1\"}", [0.1]);
    let range = live.node.time_ns - 2 * MINUTE..live.node.time_ns;
    let replayed = replay(&live.node.series, &text, range);
    assert_eq!(replayed.rules[0].without_data, ["laod"]);
    assert_eq!(replayed.rules[1].without_data, ["other{x=\"1\"}"]);
    // A user saw "no data" for series that are computed from a histogram, and that the rule fired.
    assert_eq!(replayed.rules[2].without_data, [""; 0]);
    assert_eq!(replayed.rules[1].fired(), 0);
    assert_eq!(replayed.rules[1].alerts[0].state_at_start.state, AlertState::Firing);
}

#[test]
fn a_rule_that_fails_says_so() {
    let mut live = LiveNode::new(&with_rules(BUSY));
    for _ in 0..8 {
        live.node.set("load{instance=\"a\"}", 9.0);
        live.node.set("load{instance=\"b\"}", 9.0);
        live.step();
    }
    let same = "label_replace(load, \"instance\", \"x\", \"instance\", \".*\")";
    let text = with_rules(&format!("  - {{alert: A, expr: '{same} > 0'}}\n"));
    let range = live.node.time_ns - 2 * MINUTE..live.node.time_ns;
    let rule = &replay(&live.node.series, &text, range.clone()).rules[0];
    assert!(rule.failures > 0 && rule.failures == rule.evaluations, "{rule:?}");
    let (time_ns, cause) = rule.first_failure.as_ref().expect("a failure");
    assert!(range.contains(time_ns) && !cause.is_empty(), "{rule:?}");
}

#[test]
fn a_replay_is_bounded_and_can_be_cancelled() {
    let text = with_rules(BUSY);
    let live = node_with_load(&text, &[9.0; 20]);
    let range = live.node.time_ns - 10 * MINUTE..live.node.time_ns;
    let run = |context: &dyn QueryContext, max| {
        replay_with(&live.node.series, vec![group(&text)], range.clone(), context, max)
    };
    let error = run(&|| false, 10).expect_err("too many evaluations");
    assert!(matches!(error, RuleReplayError::Evaluations { limit: 10, found } if found > 20));
    let message = error.to_string();
    assert!(message.starts_with("limit of 10 evaluations exceeded (2"), "{message}");
    assert_eq!(run(&|| true, u64::MAX), Err(RuleReplayError::Cancelled));
    // More than any counter holds.
    let file = parse(&text.replace("  interval: 30s\n", ""));
    let defaults = GroupDefaults { interval_ns: 1, ..GroupDefaults::default() };
    let groups = (0..3).map(|_| EvaluatedGroup::new(file.groups[0].clone(), &defaults)).collect();
    let always = i64::MIN..i64::MAX;
    let error = replay_with(&live.node.series, groups, always, &|| false, 1_000_000);
    assert!(
        matches!(error, Err(RuleReplayError::Evaluations { found: u64::MAX, .. })),
        "{error:?}"
    );
}

/// Memory that runs out.
struct LimitedMemory(std::sync::Mutex<i64>);

impl QueryContext for LimitedMemory {
    fn is_cancelled(&self) -> bool {
        false
    }

    fn reserve_memory(&self, bytes: u64) -> query::Result<()> {
        let mut left = self.0.lock().expect("no panic");
        *left -= bytes as i64;
        let message = "no memory left".to_owned();
        match *left < 0 {
            true => Err(query::Error::Memory { is_transient: false, message }),
            false => Ok(()),
        }
    }

    fn release_memory(&self, bytes: u64) {
        *self.0.lock().expect("no panic") += bytes as i64;
    }
}

#[test]
fn recorded_samples_count_as_memory_and_are_released() {
    let text = with_rules("  - {record: twice, expr: 2 * load}\n  - {alert: A, expr: twice > 1}\n");
    let live = node_with_load(&text, &[9.0; 40]);
    let range = live.node.time_ns - 20 * MINUTE..live.node.time_ns;
    let run = |bytes| {
        let memory = LimitedMemory(std::sync::Mutex::new(bytes));
        let replayed =
            replay_with(&live.node.series, vec![group(&text)], range.clone(), &memory, u64::MAX);
        let left = *memory.0.lock().expect("no panic");
        (replayed.map(|replay| replay.rules[1].failures), left)
    };
    let plenty = 1 << 30;
    assert_eq!(run(plenty), (Ok(0), plenty));
    // Either a query or the replay itself runs out of it.
    assert_ne!(run(4_000).0, Ok(0));
}

#[test]
fn progress_reaches_the_total() {
    let text = with_rules(BUSY);
    let live = node_with_load(&text, &[9.0; 20]);
    let (last, calls) = (Cell::new((0, 0)), RefCell::new(0));
    let source = &live.node.series;
    let inputs = ReplayInputs {
        open_source: &|| Box::new(BorrowedSeries(source)),
        settings: &Settings::default(),
        options: promql::Options::default(),
        context: &|| false,
        templates: &AlertTemplates::default(),
        evaluations_max: u64::MAX,
        progress: &|done, total| {
            last.set((done, total));
            *calls.borrow_mut() += 1;
        },
    };
    let range = live.node.time_ns - 10 * MINUTE..live.node.time_ns;
    let replayed = replay_groups(vec![group(&text)], &range, &inputs).expect("a replay");
    let (done, total) = last.get();
    assert_eq!((done, done), (total, replayed.evaluations));
    assert_eq!(*calls.borrow(), replayed.evaluations);
}
