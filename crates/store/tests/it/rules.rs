//! Retention rules of some series: their dropped rows are reported, or read from other resolutions.

use hist::codec::header::Temporality;
use model::{Gap, Selector, Series, SeriesKind};
use store::{DAY, HOUR, MINUTE, Resolution, RetentionRule, SECOND, Store, TimeGrid};

use crate::fixture::{StoreFixture, histogram, ingest, sample};

const BEGIN: i64 = 20_000 * DAY;
const DAYS: i64 = 3;
/// Short enough that days have rollups of minutes.
const STEP: i64 = 30 * SECOND;
/// Hours at the start of each day in which rows are sent.
const HOURS: i64 = 2;
const ROWS: i64 = HOURS * HOUR / STEP;

const KINDS: [(&str, SeriesKind); 5] = [
    ("latency", SeriesKind::Histogram(Temporality::Delta)),
    ("waited", SeriesKind::Histogram(Temporality::Cumulative)),
    ("hits", SeriesKind::Counter(Temporality::Delta)),
    ("requests", SeriesKind::Counter(Temporality::Cumulative)),
    ("load", SeriesKind::Gauge),
];

fn series(at: usize, host: &str) -> Series {
    let (name, kind) = KINDS[at];
    Series::new(name, kind).with_label("host", host).validate().unwrap()
}

struct RetainedRows {
    world: StoreFixture,
    store: Store,
    batches: u64,
}

impl RetainedRows {
    /// Days of rows of each kind for hosts `a` and `b`, rolled up as they pass; then the rules, and
    /// more time.
    fn with_rules(rules: &[(Resolution, &str)]) -> RetainedRows {
        let world = StoreFixture::new();
        world.set_now(BEGIN);
        let store = world.open().unwrap();
        let mut kept = RetainedRows { world, store, batches: 0 };
        for day in 0..DAYS {
            for at in 1..=ROWS {
                kept.send(BEGIN + day * DAY + at * STEP, (day * ROWS + at) as u64, &["a", "b"]);
            }
            kept.world.set_now(BEGIN + (day + 1) * DAY + HOUR);
            kept.settle();
        }
        kept.keep(rules);
        kept
    }

    fn keep(&self, rules: &[(Resolution, &str)]) {
        let rule = |&(resolution, selector): &(Resolution, &str)| RetentionRule {
            resolution,
            duration: Some(DAY),
            selector: Selector::parse(selector).unwrap(),
        };
        self.store.set_retention(rules.iter().map(rule).collect()).unwrap();
        self.world.set_now(BEGIN + (DAYS + 62) * DAY);
        self.settle();
    }

    fn settle(&self) {
        self.store.flush().unwrap();
        while self.store.maintain().unwrap() {}
    }

    /// A row of each series; cumulative values grow by one a row.
    fn send(&mut self, end: i64, grown: u64, hosts: &[&str]) {
        self.batches += 1;
        for host in hosts {
            let total = histogram(&vec![7.0; grown as usize]);
            let rows = [
                (&series(0, host), sample(end - STEP, end, histogram(&[7.0]))),
                (&series(1, host), sample(BEGIN, end, total)),
                (&series(2, host), sample(end - STEP, end, 1.0)),
                (&series(3, host), sample(BEGIN, end, grown as f64)),
                (&series(4, host), sample(end, end, 1.0)),
            ];
            ingest(&self.store, self.batches * 10 + u64::from(*host == "b"), &rows);
        }
    }

    /// Values of all columns of a day, and the gaps.
    fn day(&self, at: usize, host: &str, day: i64, step: i64) -> (u64, Vec<Gap>) {
        let grid = TimeGrid { start: BEGIN + day * DAY, step, columns: (DAY / step) as u64 };
        let view = self.store.view().unwrap();
        let selector = format!("{}{{host=\"{host}\"}}", KINDS[at].0);
        let found = view.select(&Selector::parse(&selector).unwrap());
        assert_eq!(found.len(), 1, "{selector}");
        let (mut count, mut gaps) = (0, Vec::new());
        if matches!(KINDS[at].1, SeriesKind::Histogram(_)) {
            for column in view.histograms(&found, grid).unwrap() {
                let column = column.unwrap();
                count += column.value.count();
                gaps.extend(column.gaps);
            }
        } else {
            for column in view.numbers(&found, grid).unwrap() {
                let column = column.unwrap();
                count += column.value.map_or(0, |value| value.sum.value() as u64);
                gaps.extend(column.gaps);
            }
        }
        gaps.sort();
        gaps.dedup();
        (count, gaps)
    }

    /// Checks that columns have all rows of each day, for each kind.
    #[track_caller]
    fn is_exact(&self, host: &str, step: i64) {
        for (at, (name, _)) in KINDS.iter().enumerate() {
            for day in 0..DAYS {
                let found = self.day(at, host, day, step);
                assert_eq!(found, (ROWS as u64, vec![]), "{name} of {host}, day {day}, {step} ns");
            }
        }
    }

    /// Checks that columns of the day report a gap, for each kind.
    #[track_caller]
    fn is_told(&self, host: &str, day: i64, step: i64) {
        for (at, (name, _)) in KINDS.iter().enumerate() {
            let (count, gaps) = self.day(at, host, day, step);
            let is_reason = |gap: &Gap| gap.reason.contains("were dropped");
            assert!(gaps.iter().any(is_reason), "{name} of {host}, {step} ns: {count} {gaps:?}");
        }
    }
}

#[test]
fn minutes_of_one_series_that_a_rule_dropped_are_a_gap_although_other_series_have_theirs() {
    let kept =
        RetainedRows::with_rules(&[(Resolution::Base, "*"), (Resolution::Minute, "and(host:a)")]);
    for day in 0..DAYS {
        kept.is_told("a", day, MINUTE);
    }
    for step in [5 * MINUTE, HOUR, DAY] {
        kept.is_exact("a", step);
    }
    for step in [MINUTE, 5 * MINUTE, HOUR, DAY] {
        kept.is_exact("b", step);
    }
    // A new process reads the same.
    let RetainedRows { world, store, batches } = kept;
    drop(store);
    let store = world.open().unwrap();
    let kept = RetainedRows { world, store, batches };
    kept.is_told("a", 1, MINUTE);
    kept.is_exact("b", MINUTE);
    // Also after another series is deleted.
    kept.store.delete(&Selector::parse("load").unwrap(), BEGIN..BEGIN + DAY).unwrap();
    let gaps = kept.day(0, "a", 0, MINUTE).1;
    assert!(gaps.iter().any(|gap| gap.reason.contains("were dropped")), "{gaps:?}");
}

#[test]
fn rollups_of_one_series_that_a_rule_dropped_are_read_of_finer_ones() {
    let rules = [
        (Resolution::Base, "*"),
        (Resolution::FiveMinutes, "and(host:a)"),
        (Resolution::Hour, "and(host:a)"),
        (Resolution::Day, "and(host:a)"),
    ];
    let kept = RetainedRows::with_rules(&rules);
    for host in ["a", "b"] {
        for step in [MINUTE, 5 * MINUTE, 90 * MINUTE, HOUR, 6 * HOUR, DAY] {
            kept.is_exact(host, step);
        }
    }
}

#[test]
fn rollups_of_one_series_that_a_rule_dropped_are_read_of_rows_as_they_came() {
    let all: Vec<_> =
        Resolution::ROLLUPS.into_iter().map(|rollup| (rollup, "and(host:a)")).collect();
    for rules in [&all[..1], &all[1..3], &all[..]] {
        let kept = RetainedRows::with_rules(rules);
        for host in ["a", "b"] {
            for step in [MINUTE, 5 * MINUTE, HOUR, DAY] {
                kept.is_exact(host, step);
            }
        }
    }
}

#[test]
fn rows_of_other_series_count_once_where_rules_dropped_base_and_rollups_of_one() {
    for rollup in Resolution::ROLLUPS {
        let rules = [(Resolution::Base, "and(host:a)"), (rollup, "and(host:a)")];
        let kept = RetainedRows::with_rules(&rules);
        for step in [MINUTE, 5 * MINUTE, HOUR, DAY] {
            kept.is_exact("b", step);
        }
    }
}

#[test]
fn a_late_row_does_not_hide_that_a_rule_dropped_those_of_its_day() {
    let rules = [
        (Resolution::Base, "*"),
        (Resolution::Minute, "and(host:a)"),
        (Resolution::Hour, "and(host:a)"),
    ];
    let mut kept = RetainedRows::with_rules(&rules);
    kept.send(BEGIN + DAY + HOUR + STEP / 2, 0, &["a"]);
    for what in ["in memory", "rolled up", "dropped"] {
        for (at, (name, kind)) in KINDS.iter().enumerate() {
            for step in [MINUTE, 90 * SECOND] {
                let (count, gaps) = kept.day(at, "a", 1, step);
                assert_ne!(gaps, [], "{name}, {what}, {step} ns: {count}");
            }
            // Remaining rollups answer for additive values; cumulative increases are unknown.
            let (count, gaps) = kept.day(at, "a", 1, HOUR);
            let is_exact = count == ROWS as u64 + u64::from(!kind.is_cumulative());
            assert!(is_exact || !gaps.is_empty(), "{name}, {what}: {count} {gaps:?}");
        }
        kept.settle();
        if what == "rolled up" {
            kept.keep(&rules);
        }
    }
}

#[test]
fn a_series_whose_finest_rows_a_rule_dropped_is_found_where_coarser_ones_are() {
    let kept =
        RetainedRows::with_rules(&[(Resolution::Base, "*"), (Resolution::Minute, "and(host:a)")]);
    for (at, (name, _)) in KINDS.iter().enumerate() {
        let view = kept.store.view().unwrap();
        let selector = format!("{name}{{host=\"a\"}}");
        let found = view.select(&Selector::parse(&selector).unwrap());
        let stretch = view.complete_range(&found).unwrap().unwrap();
        let all = BEGIN + STEP..BEGIN + (DAYS - 1) * DAY + HOURS * HOUR;
        assert!(stretch.start <= all.start && all.end <= stretch.end, "{at}: {stretch:?}");
    }
}
