//! Classic histograms, whose buckets are counters: own rules and SLOs read them by the name of the
//! histogram, as they read a histogram with the same values.

use proptest::prelude::*;
use query::{Settings, StoreSource, promql};
use rules::slo::{EventReader, Quantity, ReportRange, Slo, SloDraft, SloReport};
use rules::{
    AffectedCounts, AffectedRule, AlertState, EvaluatedGroup, RuleHealth, SourceEvaluator,
    unmatched_selectors,
};

use crate::harness::{MINUTE, SECOND, evaluate_over, group, with_rules};
use crate::stored_node::StoredNode;
use crate::stored_series::{ScrapedCounter, StoredSeries};

const BOUNDS: [f64; 4] = [0.05, 0.1, 0.25, 1.0];

/// A program with two histograms, of which one is scraped as buckets, and the other one is sent.
struct Program {
    session: &'static str,
    bounds: Vec<f64>,
    /// Values since its start.
    all: Vec<f64>,
    /// Values since the last scrape; before the first one, nobody knows them.
    new: Vec<f64>,
    is_scraped: bool,
}

impl Program {
    fn new(session: &'static str) -> Program {
        let (all, new) = Default::default();
        Program { session, bounds: BOUNDS.to_vec(), all, new, is_scraped: false }
    }

    fn record(&mut self, value: f64) {
        self.all.push(value);
        self.new.push(value);
    }

    /// The program begins anew, and is scraped before it has values.
    fn restart(&mut self, series: &StoredSeries) {
        self.scrape(series);
        series.pass(SECOND);
        self.all.clear();
        self.scrape(series);
    }

    fn counters(&self) -> Vec<ScrapedCounter> {
        let session = ("session", self.session.to_owned());
        let count = |bound: f64| self.all.iter().filter(|value| **value <= bound).count() as f64;
        let bounds = self.bounds.iter().map(|bound| (bound.to_string(), count(*bound)));
        let total = ("+Inf".to_owned(), self.all.len() as f64);
        let bucket = |(bound, count)| {
            let labels = vec![session.clone(), ("le", bound)];
            ("classic_seconds_bucket".to_owned(), labels, count)
        };
        let mut counters: Vec<_> = bounds.chain([total]).map(bucket).collect();
        let sum = self.all.iter().sum();
        for (name, value) in [("sum", sum), ("count", self.all.len() as f64)] {
            counters.push((format!("classic_seconds_{name}"), vec![session.clone()], value));
        }
        counters
    }

    fn scrape(&mut self, series: &StoredSeries) {
        series.counters(&self.counters());
        let new = std::mem::take(&mut self.new);
        if self.is_scraped {
            let labels = [("session", self.session)];
            series.buckets("native_seconds", &labels, &self.bounds, &new);
        }
        self.is_scraped = true;
    }
}

/// Rules with all criteria of distributions, of the metric METRIC.
const RULES: &str = "
[[rule]]
name = 'Slow'
select = 'METRIC'
window = '30s'
for = '5s'
[[rule.criteria]]
severity = 1
quantile = 0.9
above = '200ms'
[[rule.criteria]]
severity = 2
share_above = '250ms'
above = 0.5
[[rule.criteria]]
severity = 3
count_above = '70ms'
at_least = 2

[[rule]]
name = 'SlowInAll'
select = 'METRIC'
by = []
window = '20s'
min_count = 2
[[rule.criteria]]
severity = 1
users_above = '250ms'
at_least = 2
[[rule.criteria]]
severity = 2
statistic = 'mean'
above = '150ms'
[[rule.criteria]]
severity = 4
statistic = 'count'
above = 5

[[rule]]
name = 'OfA'
select = 'METRIC{session=\"a\"}'
window = '60s'
[[rule.criteria]]
severity = 2
statistic = 'max'
above = '250ms'
[[rule.criteria]]
severity = 3
statistic = 'rate'
above = 0.1

[[rule]]
name = 'Shape'
select = 'METRIC'
by = []
window = '10s'
[[rule.criteria]]
severity = 3
shape_of = '60s'
min_shift = '1%'
";

/// Programs, and groups with the same rules of both of their metrics.
struct BothGroups {
    series: StoredSeries,
    programs: Vec<Program>,
    classic: EvaluatedGroup,
    native: EvaluatedGroup,
    /// Number of evaluations in which an alert fired.
    fired: usize,
}

impl BothGroups {
    fn new() -> BothGroups {
        let of = |metric: &str| group(&RULES.replace("METRIC", metric));
        BothGroups {
            series: StoredSeries::new(),
            programs: ["a", "b"].map(Program::new).into(),
            classic: of("classic_seconds"),
            native: of("native_seconds"),
            fired: 0,
        }
    }

    fn evaluate(&mut self) {
        let view = self.series.store.view().expect("a view");
        let time_ns = self.series.now();
        for group in [&mut self.classic, &mut self.native] {
            evaluate_over(&StoreSource::new(&view), group, time_ns, None);
        }
        let alerts = |group: &EvaluatedGroup| {
            let rules = group.rules().iter().flat_map(|rule| {
                assert_eq!(*rule.health(), RuleHealth::Ok, "{}", rule.rule().name);
                rule.alerts().alerts().map(move |(_, alert)| {
                    let times = (alert.active_at_ns, alert.fired_at_ns, alert.resolved_at_ns);
                    let matched = alert.matched.clone();
                    (rule.rule().name.clone(), alert.series.clone(), alert.state, times, matched)
                })
            });
            let streams: Vec<usize> = group.rules().iter().map(|it| it.stream_count()).collect();
            (rules.collect::<Vec<_>>(), streams)
        };
        let (classic, native) = (alerts(&self.classic), alerts(&self.native));
        assert_eq!(classic, native, "at {time_ns}");
        self.fired += classic.0.iter().filter(|alert| alert.2 == AlertState::Firing).count();
    }
}

/// What happens between two evaluations.
#[derive(Clone, Debug)]
enum ProgramStep {
    Record { program: usize, values: Vec<u8> },
    Scrape { program: usize },
    Restart { program: usize },
    Flush,
    Pass { seconds: i64 },
}

fn steps() -> impl Strategy<Value = Vec<ProgramStep>> {
    let values = proptest::collection::vec(any::<u8>(), 1..6);
    let step = prop_oneof![
        8 => (0..2usize, values)
            .prop_map(|(program, values)| ProgramStep::Record { program, values }),
        8 => (0..2usize).prop_map(|program| ProgramStep::Scrape { program }),
        1 => (0..2usize).prop_map(|program| ProgramStep::Restart { program }),
        1 => Just(ProgramStep::Flush),
        6 => (1..15i64).prop_map(|seconds| ProgramStep::Pass { seconds }),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn own_rules_of_buckets_have_the_alerts_of_histograms_with_the_same_values(steps in steps()) {
        let mut both = BothGroups::new();
        // A stream of the sent histogram begins with its second scrape.
        for program in &mut both.programs {
            (0..2).for_each(|_| {
                program.scrape(&both.series);
                both.series.pass(SECOND);
            });
        }
        for step in steps {
            let series = &both.series;
            match step {
                ProgramStep::Record { program, values } => {
                    // Sums and their differences are exact.
                    let values = values.iter().map(|value| f64::from(*value) / 128.0);
                    values.for_each(|value| both.programs[program].record(value));
                }
                ProgramStep::Scrape { program } => {
                    series.pass(SECOND);
                    both.programs[program].scrape(series);
                }
                ProgramStep::Restart { program } => {
                    series.pass(SECOND);
                    both.programs[program].restart(series);
                }
                ProgramStep::Flush => series.store.flush().expect("a flush"),
                ProgramStep::Pass { seconds } => series.pass(seconds * SECOND),
            }
            both.evaluate();
        }
    }
}

/// A user saw no alert: a rule of `x` matched nothing although `x_bucket` had the values.
#[test]
fn an_own_rule_fires_by_the_buckets_of_a_histogram_and_says_how_many_are_affected() {
    let mut both = BothGroups::new();
    // A stream of the sent histogram begins with its second scrape.
    for program in &mut both.programs {
        program.scrape(&both.series);
    }
    both.series.pass(5 * SECOND);
    for minute in 0..12 {
        for program in &mut both.programs {
            let slow = minute > 6 && program.session == "b";
            (0..10).for_each(|at| program.record(if slow && at > 2 { 0.8125 } else { 0.015625 }));
            program.scrape(&both.series);
        }
        both.series.pass(5 * SECOND);
        both.evaluate();
    }
    assert!(both.fired > 10, "{}", both.fired);
    let rule = &both.classic.rules()[0];
    let (_, alert) = rule.alerts().alerts().next().expect("an alert");
    assert_eq!(alert.series.get("session"), "b");
    let affected = AffectedRule::of(rule.rule()).series(alert).expect("a threshold");
    let view = both.series.store.view().expect("a view");
    let source = StoreSource::new(&view);
    let count = |now_ns| affected.count(&source, now_ns, None).expect("an answer");
    // Five scrapes of the slow time have seven values of 800 ms each; the limit of the criterion
    // lies inside the bucket from 100 to 250 ms, which has none.
    let expected = AffectedCounts { requests: Some(35), users: Some(1) };
    assert_eq!(count(both.series.now()), expected);
}

#[test]
fn values_below_a_threshold_inside_a_bucket_do_not_fire() {
    let rule = "[[rule]]\nname = 'Slow'\nselect = 'classic_seconds'\nwindow = '1min'\n\
                [[rule.criteria]]\nseverity = 1\nquantile = 0.5\nabove = '150ms'\n";
    let firing = |value: f64| {
        let mut node = StoredNode::new(rule);
        let mut program = Program::new("a");
        for _ in 0..3 {
            (0..10).for_each(|_| program.record(value));
            program.scrape(&node.series);
            node.series.pass(10 * SECOND);
        }
        node.evaluate();
        let alerts = node.group.rules()[0].alerts().alerts();
        alerts.filter(|(_, alert)| alert.state == AlertState::Firing).count()
    };
    // The bucket from 100 to 250 ms contains the threshold.
    assert_eq!([0.02, 0.2, 0.6].map(firing), [0, 0, 1]);
}

#[test]
fn a_rule_of_buckets_matches_something_and_a_standard_function_of_the_histogram_does_not() {
    let check = |rule: &str, expected: &[&str]| {
        let node = StoredNode::new(rule);
        let mut program = Program::new("a");
        program.scrape(&node.series);
        node.series.pass(MINUTE);
        let view = node.series.store.view().expect("a view");
        let evaluator = SourceEvaluator {
            source: &StoreSource::new(&view),
            settings: &Settings::default(),
            options: promql::Options { standard_only: false, ..promql::Options::all() },
            context: &|| false,
        };
        let range = node.series.now() - 60 * MINUTE..node.series.now();
        let rule = node.group.rules()[0].rule();
        let found = unmatched_selectors(rule, &evaluator, &range).expect("an answer");
        let found: Vec<String> = found.into_iter().map(|it| it.selector).collect();
        assert_eq!(found, expected, "{}", rule.expression);
    };
    let own = |select: &str| {
        format!(
            "[[rule]]\nname = 'Slow'\nselect = '{select}'\n[[rule.criteria]]\nseverity = 1\n\
             quantile = 0.5\nabove = '150ms'\n"
        )
    };
    check(&own("classic_seconds"), &[]);
    check(&own("classic_seconds{session=\"a\"}"), &[]);
    check(&own("classic_seconds{session=\"x\"}"), &["classic_seconds{session=\"x\"}"]);
    let alert = |expression: &str| with_rules(&format!("  - alert: A\n    expr: '{expression}'\n"));
    check(
        &alert("histogram_count_above(250ms, sum(exact_increase(classic_seconds[1h]))) > 1"),
        &[],
    );
    check(&alert("rate(classic_seconds[1h]) > 1"), &["classic_seconds"]);
    check(&alert("rate(classic_seconds_bucket[1h]) > 1"), &[]);
}

fn slo(selector: &str) -> Slo {
    let text = |text: &str| Some(text.to_owned());
    let draft = SloDraft {
        name: "checkout".to_owned(),
        selector: text(selector),
        threshold: text("250ms"),
        objective: text("99%"),
        period: text("7d"),
        user_label: text("session"),
        ..SloDraft::default()
    };
    draft.check().expect("a valid SLO")
}

fn report(series: &StoredSeries, slo: &Slo) -> SloReport {
    let view = series.store.view().expect("a view");
    let reader = EventReader {
        source: &StoreSource::new(&view),
        settings: &Settings::default(),
        context: &|| false,
    };
    let range = ReportRange { from_ns: series.now() - 1440 * MINUTE, to_ns: series.now() };
    reader.report(slo, range).expect("a report")
}

/// Nine days with restarts and a change of bounds, in rollups: the budget is that of the values.
#[test]
fn budget_of_buckets_is_that_of_the_values_and_another_threshold_recomputes_the_past() {
    let series = StoredSeries::new();
    let mut programs = ["a", "b"].map(Program::new);
    let mut values: Vec<(i64, &str, f64)> = Vec::new();
    let mut draw = 1_u64;
    for step in 0..9 * 48 {
        series.pass(30 * MINUTE);
        for program in &mut programs {
            if step % 100 == 77 {
                program.restart(&series);
            }
            if step == 300 {
                // The values of the first scrape with other bounds are not known.
                program.bounds = vec![0.1, 0.2, 0.25, 0.5, 2.0];
                program.scrape(&series);
                series.pass(SECOND);
            }
            for _ in 0..5 {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let value = (draw >> 40) as f64 / f64::from(1 << 24) * 0.4;
                let is_slow = (200..210).contains(&step) && program.session == "b";
                let value = if is_slow { value + 0.25 } else { value };
                if step > 0 {
                    values.push((series.now(), program.session, value));
                }
                program.record(value);
            }
            program.scrape(&series);
        }
        if step % 48 == 47 {
            series.store.flush().expect("a flush");
            while series.store.maintain().expect("maintenance") {}
        }
    }
    let both = slo("classic_seconds");
    for (slo, session) in [(both.clone(), None), (slo("classic_seconds{session=\"b\"}"), Some("b"))]
    {
        for limit in [0.25, 0.1, 0.3, 0.07, 0.15] {
            let slo = slo.with(Quantity::parse(&format!("{limit}s")), None);
            let report = report(&series, &slo);
            let start = report.summary.period.start;
            let counted = values.iter().filter(|(time, of, _)| {
                *time > start && session.is_none_or(|session| session == *of)
            });
            let all: Vec<f64> = counted.map(|of| of.2).collect();
            let bad = all.iter().filter(|value| **value > limit).count() as f64;
            let events = &report.summary.events;
            assert_eq!(events.total, all.len() as f64, "{limit}");
            assert!(events.bad.contains(bad), "{limit}: {bad} is not in {:?}", events.bad);
            // Both sets of bounds have these two.
            assert_eq!(events.bad.is_exact(), limit == 0.25 || limit == 0.1, "{limit}");
            assert_eq!(report.summary.unit.as_deref(), Some("s"));
        }
    }
    let people = report(&series, &both).people.expect("a label tells users apart");
    assert_eq!(people.total, 2.0);
}

/// A sender that changed to native histograms keeps its budget: no value counts twice.
#[test]
fn series_that_is_a_histogram_and_buckets_counts_once() {
    let series = StoredSeries::new();
    let mut program = Program::new("a");
    let mut values = Vec::new();
    for scrape in 0..60 {
        series.pass(10 * MINUTE);
        for at in 0..4 {
            let value = if scrape % 5 == 0 && at == 0 { 0.7 } else { 0.02 };
            program.record(value);
            if scrape > 0 {
                values.push(value);
            }
        }
        let new = program.new.clone();
        program.scrape(&series);
        // Half-way, histograms come beside the buckets.
        if scrape > 30 {
            series.buckets("classic_seconds", &[("session", "a")], &BOUNDS, &new);
        }
    }
    let events = report(&series, &slo("classic_seconds")).summary.events;
    let bad = values.iter().filter(|value| **value > 0.25).count() as f64;
    assert_eq!((events.total, events.bad.estimate), (values.len() as f64, bad));
}

/// Values above the highest bound are unknown without `+Inf` and `x_count`; the answer says so.
#[test]
fn buckets_without_a_total_have_a_gap() {
    let series = StoredSeries::new();
    let mut program = Program::new("a");
    for _ in 0..10 {
        series.pass(MINUTE);
        [0.02, 0.2, 5.0].into_iter().for_each(|value| program.record(value));
        let mut counters = program.counters();
        counters.retain(|(name, labels, _)| {
            !name.ends_with("_count") && labels.iter().all(|label| label.1 != "+Inf")
        });
        series.counters(&counters);
    }
    let summary = report(&series, &slo("classic_seconds")).summary;
    assert_eq!((summary.events.total, summary.events.bad.estimate), (18.0, 0.0));
    let reasons: Vec<&str> = summary.gaps.iter().map(|gap| gap.reason.as_str()).collect();
    assert!(reasons.iter().any(|it| it.contains("has no bucket +Inf")), "{reasons:?}");
}
