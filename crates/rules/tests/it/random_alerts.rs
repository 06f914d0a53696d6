//! Random evaluations, errors and restarts, compared with a slow model.
//!
//! The model is a function of the whole history: it has no states that change. Its clock stands
//! still while the node is down, so that `for` and `keep_firing_for` are plain differences of
//! times.

use std::cell::RefCell;

use proptest::prelude::*;
use query::{LabelSet, StepValue, promql};
use rules::{
    AlertState, AlertTemplates, EvaluatedGroup, GroupDefaults, IterationInputs, OverlayEvaluator,
    RESOLVED_RETENTION_NS, RuleQueryError, RuleSample, SampleOverlay, SourceEvaluator,
    decode_snapshots, encode_snapshots, parse_rule_file,
};

use crate::harness::{MINUTE, SECOND, START};

const INTERVAL: i64 = 30 * SECOND;
const SERIES: usize = 2;

/// What a series has at an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SeriesData {
    Matching,
    NotMatching,
    Absent,
}

/// An evaluation.
#[derive(Clone, Debug)]
struct HistoryStep {
    /// Intervals since the evaluation before.
    intervals: i64,
    /// Whether the node was down between them, rather than busy.
    has_restarted: bool,
    /// `None` if the query fails.
    data: Option<[SeriesData; SERIES]>,
}

#[derive(Clone, Copy, Debug)]
struct RandomRule {
    for_ns: i64,
    keep_firing_for_ns: i64,
    holds: bool,
}

/// Answers `x` with the series that have data, and `x == 1` with those that meet the condition.
#[derive(Default)]
struct ScriptedEvaluator(RefCell<Option<[SeriesData; SERIES]>>);

impl OverlayEvaluator for ScriptedEvaluator {
    fn instant_over(
        &self,
        _: &SampleOverlay,
        expression: &str,
        _: i64,
    ) -> Result<Vec<RuleSample>, RuleQueryError> {
        let data = self.0.borrow().ok_or_else(|| RuleQueryError("no answer".to_owned()))?;
        let is_in_result = |data: SeriesData| match expression {
            "x" => data != SeriesData::Absent,
            _ => data == SeriesData::Matching,
        };
        let found = (0..SERIES).filter(|&index| is_in_result(data[index]));
        let sample = |index: usize| RuleSample {
            labels: LabelSet::new([("__name__", "x".to_owned()), ("i", index.to_string())]),
            value: StepValue::Number(1.0),
        };
        Ok(found.map(sample).collect())
    }

    fn with_source(
        &self,
        _: &str,
        _: &mut dyn FnMut(&SourceEvaluator<'_>) -> Result<(), RuleQueryError>,
    ) -> Result<(), RuleQueryError> {
        Err(RuleQueryError("the script has no source".to_owned()))
    }
}

fn load(rule: RandomRule) -> EvaluatedGroup {
    let annotations = match rule.holds {
        true => "    annotations: {topdeck_missing_data: hold}\n",
        false => "",
    };
    let (for_s, keep_s) = (rule.for_ns / SECOND, rule.keep_firing_for_ns / SECOND);
    let text = format!(
        "groups:\n- name: g\n  interval: 30s\n  rules:\n  - alert: A\n    expr: x == 1\n    \
         for: {for_s}s\n    keep_firing_for: {keep_s}s\n{annotations}"
    );
    let mut file = parse_rule_file("f", &text, &promql::Options::default());
    assert_eq!(file.problems, []);
    EvaluatedGroup::new(file.groups.remove(0), &GroupDefaults::default())
}

/// State after each step: of each series its state and whether it is unknown.
type StepStates = [Option<(AlertState, bool)>; SERIES];

fn run(rule: RandomRule, history: &[HistoryStep]) -> Vec<StepStates> {
    let evaluator = ScriptedEvaluator::default();
    let templates = AlertTemplates::default();
    let inputs =
        IterationInputs { evaluator: &evaluator, templates: &templates, resend_delay_ns: MINUTE };
    let mut group = load(rule);
    let mut time_ns = START;
    let mut found = Vec::new();
    for step in history {
        time_ns += step.intervals * INTERVAL;
        if step.has_restarted {
            let text = encode_snapshots(&[group.snapshot()]);
            group = load(rule);
            group.restore(decode_snapshots(&text).expect("as written").remove(0));
        }
        *evaluator.0.borrow_mut() = step.data;
        group.evaluate(time_ns, &inputs);
        let alerts = group.rules()[0].alerts();
        found.push(std::array::from_fn(|index| {
            let labels = LabelSet::new([("alertname", "A".to_owned()), ("i", index.to_string())]);
            let mut all = alerts.alerts();
            let (_, alert) = all.find(|(held, _)| **held == labels)?;
            Some((alert.state, alert.is_unknown()))
        }));
    }
    found
}

/// Observation of a series: time, time without outages, data.
#[derive(Clone, Copy, Debug)]
struct Observation {
    time_ns: i64,
    running_ns: i64,
    data: SeriesData,
}

/// Model of one series.
struct SeriesModel {
    rule: RandomRule,
    /// Evaluations that said something about the condition.
    known: Vec<Observation>,
    /// All evaluations whose query succeeded.
    succeeded: Vec<Observation>,
    /// Whether the last evaluation said nothing about the condition.
    is_last_unknown: bool,
}

impl SeriesModel {
    fn new(rule: RandomRule, history: &[HistoryStep], series: usize) -> SeriesModel {
        let (mut time_ns, mut running_ns) = (START, START);
        let mut model =
            SeriesModel { rule, known: Vec::new(), succeeded: Vec::new(), is_last_unknown: false };
        for step in history {
            time_ns += step.intervals * INTERVAL;
            running_ns += if step.has_restarted { INTERVAL } else { step.intervals * INTERVAL };
            // Without a hold, the absence of data is the absence of the element, and an error is
            // no observation at all.
            let data = match (step.data.map(|data| data[series]), rule.holds) {
                (Some(SeriesData::Absent), false) => Some(SeriesData::NotMatching),
                (data, _) => data,
            };
            let is_known = matches!(data, Some(SeriesData::Matching | SeriesData::NotMatching));
            let observation =
                Observation { time_ns, running_ns, data: data.unwrap_or(SeriesData::Absent) };
            if data.is_some() {
                model.succeeded.push(observation);
            }
            if is_known {
                model.known.push(observation);
            }
            if is_known || rule.holds {
                model.is_last_unknown = !is_known;
            }
        }
        model
    }

    /// Index of the first matching step of the alert that is active at a matching one.
    fn start(&self, matching: usize) -> usize {
        let Some(before) =
            (0..matching).rev().find(|&at| self.known[at].data == SeriesData::Matching)
        else {
            return matching;
        };
        let is_bridged = before + 1 == matching
            || (self.is_firing(before) && self.is_kept(before + 1, matching - 1));
        if is_bridged { self.start(before) } else { matching }
    }

    /// Whether the alert fires at a matching step.
    fn is_firing(&self, matching: usize) -> bool {
        let age_ns = self.known[matching].running_ns - self.known[self.start(matching)].running_ns;
        age_ns >= self.rule.for_ns
    }

    /// Whether a firing alert still fires at a step that does not match, given the first one.
    fn is_kept(&self, first_other: usize, other: usize) -> bool {
        let missing_ns = self.known[other].running_ns - self.known[first_other].running_ns;
        missing_ns < self.rule.keep_firing_for_ns
    }

    /// State after the last evaluation.
    fn state(&self) -> Option<(AlertState, bool)> {
        let matching = self.known.iter().rposition(|seen| seen.data == SeriesData::Matching)?;
        let others = matching + 1..self.known.len();
        if !self.is_firing(matching) {
            return others.is_empty().then_some((AlertState::Pending, self.is_last_unknown));
        }
        let Some(end) = others.clone().find(|&other| !self.is_kept(matching + 1, other)) else {
            return Some((AlertState::Firing, self.is_last_unknown));
        };
        let resolved_ns = self.known[end].time_ns;
        let is_over = |seen: &Observation| seen.time_ns - resolved_ns > RESOLVED_RETENTION_NS;
        (!self.succeeded.iter().any(is_over)).then_some((AlertState::Inactive, false))
    }
}

fn series_data() -> impl Strategy<Value = SeriesData> {
    prop_oneof![
        5 => Just(SeriesData::Matching),
        3 => Just(SeriesData::NotMatching),
        1 => Just(SeriesData::Absent),
    ]
}

fn history_step() -> impl Strategy<Value = HistoryStep> {
    let intervals = prop_oneof![12 => Just(1i64), 2 => 2i64..4, 1 => 20i64..40];
    let data = prop_oneof![
        8 => [series_data(), series_data()].prop_map(Some),
        1 => Just(None),
    ];
    (intervals, prop::bool::weighted(0.15), data)
        .prop_map(|(intervals, has_restarted, data)| HistoryStep { intervals, has_restarted, data })
}

fn random_rule() -> impl Strategy<Value = RandomRule> {
    let durations =
        |values: &'static [i64]| prop::sample::select(values).prop_map(|seconds| seconds * SECOND);
    let (for_ns, keep_ns) = (durations(&[0, 10, 30, 60, 90]), durations(&[0, 0, 20, 30, 75]));
    (for_ns, keep_ns, any::<bool>()).prop_map(|(for_ns, keep_firing_for_ns, holds)| RandomRule {
        for_ns,
        keep_firing_for_ns,
        holds,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn states_are_those_of_the_model(
        rule in random_rule(),
        history in prop::collection::vec(history_step(), 1..40),
    ) {
        let found = run(rule, &history);
        for (at, found) in found.iter().enumerate() {
            for (series, found) in found.iter().enumerate() {
                let expected = SeriesModel::new(rule, &history[..=at], series).state();
                prop_assert_eq!(*found, expected, "series {} after step {}", series, at);
            }
        }
    }
}
