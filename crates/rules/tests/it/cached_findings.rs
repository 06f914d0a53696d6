//! Findings that are kept while the window of a stream has the same rows: a group that keeps them
//! has the states of one that reads each window anew.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};

use hist::Mixture;
use model::Selector;
use proptest::prelude::*;
use query::{SeriesHandle, SeriesPoint, Source, SourceRead, StoreSource, WindowSource};
use rules::{AlertState, EvaluatedGroup, encode_snapshots};
use store::{NumberAggregate, TimeGrid, WindowRows};

use crate::harness::{SECOND, evaluate_over, group};
use crate::stored_series::StoredSeries;

/// All kinds of streams, windows that several rules share, merged streams, a formula, an absence.
const RULES: &str = "
[[rule]]
name = 'Slow'
select = 'latency'
window = '30s'
[[rule.criteria]]
severity = 1
quantile = 0.9
above = 200
[[rule.criteria]]
severity = 3
count_above = 100
at_least = 2

[[rule]]
name = 'AlsoSlow'
select = 'latency'
window = '30s'
min_count = 2
for = '5s'
keep_firing_for = '5s'
[[rule.criteria]]
severity = 2
statistic = 'max'
above = 150

[[rule]]
name = 'SlowInAll'
select = 'latency'
by = []
window = '20s'
[[rule.criteria]]
severity = 2
share_above = 100
above = 0.5

[[rule]]
name = 'Errors'
select = 'errors'
window = '30s'
[[rule.criteria]]
severity = 2
statistic = 'count'
above = 100

[[rule]]
name = 'Queue'
select = 'queue'
window = '30s'
[[rule.criteria]]
severity = 2
statistic = 'min'
above = 100

[[rule]]
name = 'Version'
select = 'version'
window = '30s'
[[rule.criteria]]
severity = 4
text_changes = true

[[rule]]
name = 'Stopped'
select = 'queue'
window = '10s'
[[rule.criteria]]
severity = 4
absent = true
[[rule.criteria]]
severity = 5
above = 200

[[rule]]
name = 'Two'
formula = 'at least 2 of Slow, Errors, Queue'
severity = 1
";

/// A store, and two groups that evaluate the same rules over it.
struct TwoGroups {
    series: StoredSeries,
    /// One of them keeps findings.
    keeping: EvaluatedGroup,
    reading: EvaluatedGroup,
    /// Windows that the first one read in the last evaluation.
    reads: usize,
}

/// Source that counts the windows that are read.
struct CountedReads<'a> {
    source: &'a StoreSource<'a>,
    is_keeping: bool,
    reads: AtomicI64,
}

struct CountedWindows<'a> {
    windows: Box<dyn WindowSource + 'a>,
    is_keeping: bool,
    reads: &'a AtomicI64,
}

impl WindowSource for CountedWindows<'_> {
    fn histogram(&self, series: &[&SeriesHandle]) -> query::Result<(Mixture, Option<WindowRows>)> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.windows.histogram(series)
    }

    fn rows(&self, series: &[&SeriesHandle]) -> Option<WindowRows> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.windows.rows(series)
    }

    fn is_same(&self, before: &WindowRows, series: &[&SeriesHandle]) -> bool {
        self.is_keeping && self.windows.is_same(before, series)
    }
}

impl Source for CountedReads<'_> {
    fn select(&self, selector: &Selector) -> query::Result<Vec<SeriesHandle>> {
        self.source.select(selector)
    }

    fn time_range(
        &self,
        series: &[SeriesHandle],
        range: Range<i64>,
    ) -> query::Result<Option<Range<i64>>> {
        self.source.time_range(series, range)
    }

    fn samples(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> query::Result<SourceRead<SeriesPoint>> {
        self.source.samples(series, range)
    }

    fn texts(&self, series: &SeriesHandle, range: Range<i64>) -> query::Result<Vec<(i64, String)>> {
        self.source.texts(series, range)
    }

    fn windows(&self, range: Range<i64>) -> Option<Box<dyn WindowSource + '_>> {
        let (windows, is_keeping) = (self.source.windows(range)?, self.is_keeping);
        Some(Box::new(CountedWindows { windows, is_keeping, reads: &self.reads }))
    }

    fn histograms(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Mixture>> {
        self.source.histograms(series, grid)
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Option<NumberAggregate>>> {
        self.source.numbers(series, grid)
    }
}

impl TwoGroups {
    fn new(rules: &str) -> TwoGroups {
        let (keeping, reading) = (group(rules), group(rules));
        TwoGroups { series: StoredSeries::new(), keeping, reading, reads: 0 }
    }

    /// Evaluates both groups, or some of their rules, and compares their states.
    fn evaluate(&mut self, arrived: Option<&[usize]>) {
        let view = self.series.store.view().expect("a view");
        let source = StoreSource::new(&view);
        let time_ns = self.series.now();
        let reads = Cell::new(0);
        let evaluate = |group: &mut EvaluatedGroup, is_keeping: bool| {
            let source = CountedReads { source: &source, is_keeping, reads: AtomicI64::new(0) };
            evaluate_over(&source, group, time_ns, arrived);
            reads.set(source.reads.into_inner());
        };
        evaluate(&mut self.reading, false);
        evaluate(&mut self.keeping, true);
        self.reads = reads.get() as usize;
        let states = |group: &EvaluatedGroup| encode_snapshots(&[group.snapshot()]);
        assert_eq!(states(&self.keeping), states(&self.reading), "at {time_ns}");
        for (kept, read) in self.keeping.rules().iter().zip(self.reading.rules()) {
            assert_eq!(kept.health(), read.health(), "{}", kept.rule().name);
            assert_eq!(kept.stream_count(), read.stream_count(), "{}", kept.rule().name);
        }
    }

    /// Windows that an evaluation reads.
    fn reads(&mut self) -> usize {
        self.evaluate(None);
        self.reads
    }

    fn firing(&self) -> usize {
        let alerts = self.keeping.rules().iter().flat_map(|rule| rule.alerts().alerts());
        alerts.filter(|(_, alert)| alert.state == AlertState::Firing).count()
    }
}

/// What happens between two evaluations.
#[derive(Clone, Debug)]
enum EvaluationStep {
    Row { metric: usize, instance: u8, age_ms: i64, value: u8 },
    Retire { metric: usize, instance: u8 },
    Delete { metric: usize, instance: u8 },
    Flush,
    Maintain,
    Pass { milliseconds: i64 },
    Arrived { rule: usize },
}

const METRICS: [&str; 4] = ["latency", "errors", "queue", "version"];

fn steps() -> impl Strategy<Value = Vec<EvaluationStep>> {
    let ages = prop_oneof![8 => 0..3000i64, 1 => -40_000..0i64, 2 => 3000..60_000i64];
    let row =
        (0..4usize, 0..3u8, ages, any::<u8>()).prop_map(|(metric, instance, age_ms, value)| {
            EvaluationStep::Row { metric, instance, age_ms, value }
        });
    let of = |step: fn(usize, u8) -> EvaluationStep| {
        (0..4usize, 0..3u8).prop_map(move |(metric, instance)| step(metric, instance))
    };
    let step = prop_oneof![
        20 => row,
        1 => of(|metric, instance| EvaluationStep::Retire { metric, instance }),
        1 => of(|metric, instance| EvaluationStep::Delete { metric, instance }),
        3 => Just(EvaluationStep::Flush),
        1 => Just(EvaluationStep::Maintain),
        12 => (1..15_000i64).prop_map(|milliseconds| EvaluationStep::Pass { milliseconds }),
        5 => (0..7usize).prop_map(|rule| EvaluationStep::Arrived { rule }),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn kept_findings_are_those_of_a_read(steps in steps()) {
        let mut groups = TwoGroups::new(RULES);
        for step in steps {
            match step {
                EvaluationStep::Row { metric, instance, age_ms, value } => {
                    groups.series.row(METRICS[metric], instance, age_ms * 1_000_000, value);
                }
                EvaluationStep::Retire { metric, instance } => {
                    groups.series.retire(METRICS[metric], instance);
                }
                EvaluationStep::Delete { metric, instance } => {
                    let text = format!("{}{{instance=\"{instance}\"}}", METRICS[metric]);
                    let selector = Selector::parse(&text).expect("a selector");
                    groups.series.store.delete(&selector, i64::MIN..i64::MAX).expect("a deletion");
                }
                EvaluationStep::Flush => groups.series.store.flush().expect("a flush"),
                EvaluationStep::Maintain => drop(groups.series.store.maintain().expect("maintenance")),
                EvaluationStep::Pass { milliseconds } => groups.series.pass(milliseconds * 1_000_000),
                EvaluationStep::Arrived { rule } => {
                    groups.evaluate(Some(&[rule]));
                    continue;
                }
            }
            groups.evaluate(None);
        }
    }
}

const SLOW: &str = "
[[rule]]
name = 'Slow'
select = 'latency'
window = '30s'
[[rule.criteria]]
severity = 1
quantile = 0.9
above = 200
";

#[test]
fn windows_with_the_same_rows_are_read_once() {
    let mut groups = TwoGroups::new(SLOW);
    (0..3).for_each(|instance| groups.series.row("latency", instance, SECOND, 250));
    assert_eq!((groups.reads(), groups.firing()), (3, 3));
    // The alerts are new: now it matters whether somebody retired their streams.
    assert_eq!(groups.reads(), 3);
    groups.series.pass(10 * SECOND);
    assert_eq!(groups.reads(), 0);
    groups.series.store.flush().expect("a flush");
    assert_eq!(groups.reads(), 0);
    groups.series.row("latency", 1, SECOND, 1);
    assert_eq!(groups.reads(), 1);
    assert_eq!(groups.firing(), 3);
    // The first rows leave the windows.
    groups.series.pass(19 * SECOND);
    assert_eq!((groups.reads(), groups.firing()), (3, 2));
}

#[test]
fn another_rule_of_the_same_name_has_no_findings_yet() {
    let mut groups = TwoGroups::new(SLOW);
    groups.series.row("latency", 0, SECOND, 150);
    assert_eq!((groups.reads(), groups.firing()), (1, 0));
    assert_eq!(groups.reads(), 0);
    for each in [&mut groups.keeping, &mut groups.reading] {
        let mut loaded = group(&SLOW.replace("200", "100"));
        loaded.reload(each);
        *each = loaded;
    }
    assert_eq!((groups.reads(), groups.firing()), (1, 1));
}

/// Until then, it is retired in each evaluation, whether its window was read or not.
#[test]
fn a_retired_stream_stays_so_until_a_later_row_ends() {
    let mut groups =
        TwoGroups::new(&SLOW.replace("window = '30s'", "window = '30s'\nmin_count = 2"));
    groups.series.row("latency", 0, 0, 250);
    groups.series.row("latency", 0, 0, 250);
    groups.evaluate(None);
    groups.evaluate(None);
    assert_eq!(groups.firing(), 1);
    groups.series.pass(5 * SECOND);
    // It begins before the retirement and ends 3 s after it.
    groups.series.row("latency", 0, -3 * SECOND, 250);
    groups.series.retire("latency", 0);
    for _ in 0..2 {
        groups.evaluate(None);
        assert_eq!(groups.firing(), 0, "retired");
        groups.series.pass(SECOND);
    }
    groups.series.pass(SECOND);
    groups.evaluate(None);
    assert_eq!(groups.firing(), 1, "a row follows");
}
