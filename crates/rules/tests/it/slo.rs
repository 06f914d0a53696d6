//! Budgets of SLOs over a store, compared with the raw values.

use std::path::Path;
use std::sync::Arc;

use hist::codec::header::Temporality;
use hist::{Histogram, Scheme};
use model::{BatchWriter, Gap, Sample, SampleValue, Series, SeriesKind};
use query::{Settings, StoreSource};
use rules::slo::{EventReader, EventTotals, Quantity, ReportRange, Slo, SloDraft, SloReport};
use rules::{
    AlertTemplates, EvaluatedGroup, GroupDefaults, IterationInputs, OverlayEvaluator as _,
    SampleOverlay, SourceEvaluator,
};
use store::{DAY, HOUR, MINUTE, SECOND, Store};

/// 2026-09-01 00:00:00 UTC.
const START: i64 = 1_788_220_800 * SECOND;
const DAYS: i64 = 100;
const ROUTES: [&str; 2] = ["/cart", "/pay"];
/// Time between rows: most of them end inside an hour.
const ROW: i64 = 7 * HOUR + 40 * MINUTE;

/// Draws of a fixed seed (splitmix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Latency in ms over four decades.
    fn latency(&mut self) -> f64 {
        (10f64.powf(self.share() * 4.0) * 1e6).round() / 1e6
    }
}

/// Row with its raw values.
struct RawRow {
    route: &'static str,
    end: i64,
    values: Vec<f64>,
}

/// Store with the raw values of its histograms.
struct RawStore {
    store: Store,
    rows: Vec<RawRow>,
}

fn empty_store(now: i64) -> Store {
    let clock: journal::WallClock = Arc::new(move || now);
    let settings =
        journal::Settings { buffer_bytes: 1 << 20, segment_bytes: 4 << 20, ..Default::default() };
    let journal = journal::Options {
        is_exclusive: true,
        has_background_thread: false,
        clock: Arc::clone(&clock),
        ..Default::default()
    };
    let options =
        store::Options { has_background_thread: false, journal, clock, ..Default::default() };
    let disk: Arc<dyn disk::Disk> = Arc::new(sim::SimDisk::new(1).process());
    Store::create(&disk, Path::new("/store"), &settings).unwrap();
    Store::open(disk, Path::new("/store"), &options).unwrap()
}

fn latency_series(route: &str) -> Series {
    Series::new("latency", SeriesKind::Histogram(Temporality::Delta))
        .with_unit("ms")
        .with_label("route", route)
        .with_label("session", route.len().to_string())
}

impl RawStore {
    fn new(scheme: &Scheme, seed: u64) -> RawStore {
        let store = empty_store(START + DAYS * DAY);
        let mut draws = Draws(seed);
        let mut rows = Vec::new();
        for route in ROUTES {
            let series = latency_series(route).validate().unwrap();
            let mut end = START + ROW;
            while end <= START + DAYS * DAY {
                let mut histogram = Histogram::new(scheme.clone());
                let values: Vec<f64> = (0..1 + draws.below(12)).map(|_| draws.latency()).collect();
                values.iter().for_each(|value| histogram.record(*value));
                let mut batch = BatchWriter::default();
                batch.series(&series);
                let value = SampleValue::Histogram(Box::new(histogram));
                batch.sample(&Sample { start: end - 30 * MINUTE, end, value }).unwrap();
                let _ = store.ingest(None, &batch.finish(), journal::Level::Disk).unwrap();
                rows.push(RawRow { route, end, values });
                end += ROW;
            }
            store.flush().unwrap();
        }
        while store.maintain().unwrap() {}
        RawStore { store, rows }
    }

    fn report(&self, slo: &Slo, range: ReportRange) -> SloReport {
        let view = self.store.view().unwrap();
        let source = StoreSource::new(&view);
        let settings = Settings::default();
        EventReader { source: &source, settings: &settings, context: &|| false }
            .report(slo, range)
            .unwrap()
    }

    /// Raw values of a route at the times that are in, ascending.
    fn values(&self, route: Option<&str>, is_in: impl Fn(i64) -> bool) -> Vec<f64> {
        let rows = self.rows.iter();
        let rows =
            rows.filter(|row| route.is_none_or(|route| row.route == route) && is_in(row.end));
        let mut values: Vec<f64> = rows.flat_map(|row| row.values.iter().copied()).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    }

    /// Bad and all of them.
    fn truth(&self, route: Option<&str>, limit: f64, is_in: impl Fn(i64) -> bool) -> (f64, f64) {
        bad_and_all(&self.values(route, is_in), limit)
    }
}

/// Number of ascending values above a limit, and of all.
fn bad_and_all(values: &[f64], limit: f64) -> (f64, f64) {
    let bad = values.len() - values.partition_point(|value| *value <= limit);
    (bad as f64, values.len() as f64)
}

fn slo(change: impl FnOnce(&mut SloDraft)) -> Slo {
    let text = |text: &str| Some(text.to_owned());
    let mut draft = SloDraft {
        name: "checkout".to_owned(),
        selector: text("latency"),
        threshold: text("250ms"),
        objective: text("99%"),
        ..SloDraft::default()
    };
    change(&mut draft);
    draft.check().unwrap()
}

#[track_caller]
fn check(events: &EventTotals, truth: (f64, f64), what: &str) {
    let (bad, total) = truth;
    assert_eq!(events.total, total, "{what}");
    assert!(events.bad.contains(bad), "{what}: {bad} is not in {:?}", events.bad);
}

/// 1,000 draws of SLO, time, correction and a threshold that is changed afterwards.
// slow: 2,000 reports over stores of 100 days
#[test]
fn bracket_contains_the_number_of_the_raw_values() {
    let bounds: Vec<f64> = vec![2.5, 10.0, 100.0, 500.0, 2_500.0];
    let schemes = [
        Scheme::default(),
        Scheme::exp2(1).unwrap(),
        Scheme::exp2(5).unwrap(),
        Scheme::explicit(&bounds).unwrap(),
        Scheme::log_linear2(3).unwrap(),
    ];
    let mut draws = Draws(26);
    let mut wide = 0;
    for (seed, scheme) in schemes.iter().enumerate() {
        let raw = RawStore::new(scheme, seed as u64);
        for draw in 0..200 {
            let days = 7 + draws.below(40) as i64;
            let route = [None, Some(ROUTES[0]), Some(ROUTES[1])][draws.below(3) as usize];
            // Whole milliseconds, as a clock of queries has.
            let now = START + (48 + draws.below(52) as i64) * DAY
                - draws.below(86_400_000) as i64 * 1_000_000;
            let before = slo(|draft| {
                draft.period = Some(format!("{days}d"));
                if let Some(route) = route {
                    draft.selector = Some(format!("latency{{route=\"{route}\"}}"));
                }
                draft.alert_windows = Some(Vec::new());
            });
            let start = now - days * DAY;
            let cut = start + draws.below((days * DAY) as u64) as i64 / 1_000_000 * 1_000_000;
            let cut = cut..cut + draws.below(3 * 86_400) as i64 * SECOND;
            let mut before = before;
            if draw % 2 == 0 && !cut.is_empty() {
                let reason = "a planned move".into();
                before.corrections.push(rules::slo::Correction {
                    start_ns: cut.start,
                    end_ns: cut.end,
                    reason,
                });
            }
            for limit in [250.0, draws.latency()] {
                let changed = before.with(Quantity::parse(&format!("{limit}ms")), None);
                let range = ReportRange { from_ns: now - 2 * DAY, to_ns: now };
                let report = raw.report(&changed, range);
                let what = format!("seed {seed}, draw {draw}, threshold {limit}");
                let in_period = |end: i64| start < end && end <= now;
                let is_cut = |end: i64| {
                    changed.corrections.iter().any(|it| it.start_ns < end && end <= it.end_ns)
                };
                let kept_values = raw.values(route, |end| in_period(end) && !is_cut(end));
                let kept = bad_and_all(&kept_values, limit);
                check(&report.summary.events, kept, &what);
                let all = raw.truth(route, limit, in_period);
                check(&report.summary.uncorrected, all, &what);
                let cut_values = raw.truth(route, limit, |end| in_period(end) && is_cut(end));
                check(&report.summary.corrected, cut_values, &what);
                let cuts = changed
                    .corrections
                    .iter()
                    .map(|it| (it.end_ns.min(now) - it.start_ns.max(start)).max(0));
                assert_eq!(report.summary.corrected_ns, cuts.sum::<i64>(), "{what}");
                wide += usize::from(!report.summary.events.bad.is_exact());
                let (bad, total) = kept;
                if total > 0.0 {
                    let remaining = report.summary.remaining.unwrap();
                    let truth = 1.0 - bad / (total * 0.01);
                    let slack = 1e-9 * (1.0 + truth.abs());
                    assert!(
                        remaining.lower <= truth + slack && truth <= remaining.upper + slack,
                        "{what}: {truth} is not in {remaining:?}"
                    );
                }
                for day in &report.days {
                    let inside = |end: i64| day.start_ns < end && end <= day.end_ns;
                    // A slot is read whole: rows of its end after now count, too.
                    let truth = raw.truth(route, limit, |end| inside(end) && !is_cut(end));
                    if day.start_ns >= range.from_ns && day.end_ns <= now {
                        check(&day.events, truth, &what);
                    }
                }
                for point in &report.curve.points {
                    let (above, total) = bad_and_all(&kept_values, point.threshold);
                    let truth = 1.0 - above / total;
                    let slack = 1e-9;
                    assert!(
                        point.attained.lower <= truth + slack
                            && truth <= point.attained.upper + slack,
                        "{what}: {truth} is not in {point:?}"
                    );
                }
            }
        }
    }
    assert!(wide > 500, "{wide} of 2,000 thresholds are inside a bucket");
}

/// Store with a minute of rows: the values of a minute are its number of good and bad ones.
struct MinuteStore(Store);

impl MinuteStore {
    fn new(now: i64) -> MinuteStore {
        MinuteStore(empty_store(now))
    }

    fn add(&self, route: &str, end: i64, good: u64, bad: u64) {
        let mut histogram = Histogram::default();
        histogram.record_n(100.0, good);
        histogram.record_n(900.0, bad);
        let mut batch = BatchWriter::default();
        batch.series(&latency_series(route).validate().unwrap());
        let value = SampleValue::Histogram(Box::new(histogram));
        batch.sample(&Sample { start: end - MINUTE, end, value }).unwrap();
        let _ = self.0.ingest(None, &batch.finish(), journal::Level::Disk).unwrap();
    }

    fn add_counters(&self, end: i64, bad: f64, total: f64) {
        let mut batch = BatchWriter::default();
        let kind = SeriesKind::Counter(Temporality::Delta);
        for (name, number) in [("errors_total", bad), ("requests_total", total)] {
            batch.series(&Series::new(name, kind).validate().unwrap());
            let value = SampleValue::Number(number);
            batch.sample(&Sample { start: end - MINUTE, end, value }).unwrap();
        }
        let _ = self.0.ingest(None, &batch.finish(), journal::Level::Disk).unwrap();
    }

    /// Summary and description of the alerts of an SLO that fire.
    fn alert_texts(&self, slo: &Slo, now: i64) -> Vec<[String; 2]> {
        let view = self.0.view().unwrap();
        let source = StoreSource::new(&view);
        let settings = Settings::default();
        let options =
            query::promql::Options { standard_only: false, ..query::promql::Options::all() };
        let evaluator =
            SourceEvaluator { source: &source, settings: &settings, options, context: &|| false };
        let templates = AlertTemplates::default();
        let resend_delay_ns = i64::MAX;
        let inputs =
            IterationInputs { evaluator: &evaluator, templates: &templates, resend_delay_ns };
        let mut group = EvaluatedGroup::new(slo.rule_group(), &GroupDefaults::default());
        let result = group.evaluate(now, &inputs);
        assert_eq!(result.warnings, [""; 0]);
        let alerts = group.rules().iter().flat_map(|rule| rule.alerts().alerts());
        let text = |alert: &rules::Alert, name: &str| alert.annotations[name].clone();
        alerts.map(|(_, alert)| ["summary", "description"].map(|it| text(alert, it))).collect()
    }

    fn report(&self, slo: &Slo, now: i64) -> SloReport {
        let view = self.0.view().unwrap();
        let source = StoreSource::new(&view);
        let settings = Settings::default();
        EventReader { source: &source, settings: &settings, context: &|| false }
            .report(slo, ReportRange { from_ns: now - 7 * DAY, to_ns: now })
            .unwrap()
    }

    /// Values of the rules of an SLO, by window, without their comparison.
    fn rule_values(&self, slo: &Slo, now: i64) -> Vec<Option<f64>> {
        let view = self.0.view().unwrap();
        let source = StoreSource::new(&view);
        let settings = Settings::default();
        let options =
            query::promql::Options { standard_only: false, ..query::promql::Options::all() };
        let evaluator =
            SourceEvaluator { source: &source, settings: &settings, options, context: &|| false };
        let of = |rule: &rules::Rule| {
            let rules::MissingData::Hold { presence } =
                &rule.alert_settings().unwrap().missing_data
            else {
                panic!("missing data resolves")
            };
            let found = evaluator.instant_over(&SampleOverlay::default(), presence, now).unwrap();
            found.first().map(rules::RuleSample::number)
        };
        slo.rule_group().rules.iter().map(of).collect()
    }
}

#[test]
fn rules_have_the_burn_rates_of_the_report() {
    let now = START + 40 * DAY;
    let store = MinuteStore::new(now);
    for minute in 0..120 {
        let end = now - minute * MINUTE;
        store.add("/pay", end, 950, 50);
        store.add_counters(end, 30.0, 1000.0);
    }
    let latency = slo(|draft| draft.objective = Some("99.9%".to_owned()));
    let errors = slo(|draft| {
        (draft.selector, draft.threshold) = (None, None);
        draft.bad = Some("errors_total".to_owned());
        draft.total = Some("requests_total".to_owned());
        draft.objective = Some("99.9%".to_owned());
        draft.affected_max = Some(10);
    });
    for (slo, burn) in [(latency, 50.0), (errors, 30.0)] {
        let report = store.report(&slo, now);
        let values = store.rule_values(&slo, now);
        for (state, value) in report.burn.iter().zip(&values) {
            let value = value.unwrap();
            assert!((value - burn).abs() < 1e-6, "{state:?} {value}");
            assert!((state.long.unwrap().estimate - burn).abs() < 1e-6, "{state:?}");
            assert_eq!(state.is_burning, Some(value > state.factor));
        }
        if slo.affected_max.is_some() {
            assert_eq!(values[4], Some(3600.0));
        }
    }
}

/// A user whose budget was 14 times overspent read "burns at more than 3.36 times …: at this rate
/// it is gone in 2.1 days".
#[test]
fn text_of_a_burn_has_the_measured_rate_and_what_is_left_of_the_budget() {
    let now = START + 40 * DAY;
    let store = MinuteStore::new(now);
    for minute in 0..60 {
        store.add("/pay", now - minute * MINUTE, 50, 50);
    }
    // A name that could be taken for a template or end a text.
    let name = "check \"out\" {{ TOTAL }} `BAD`";
    let slo = slo(|draft| {
        draft.name = name.to_owned();
        draft.affected_max = Some(10);
    });
    let texts = || store.alert_texts(&slo, now);
    let budget = "The error budget of check \"out\" {\u{200b}{ TOTAL }} `BAD` burns at 50 times \
                  the sustainable rate (limit 14.4)";
    let [summary, description] = &texts()[0];
    assert_eq!(summary, &format!("{budget}: at this rate a whole one is spent in 14h 24m 0s"));
    let counts = "3000 of 6000 events of the last 1 h are bad. Limit: 14.4 % of the events of the \
                  last 1 h and of the last 5 min. Bad: values of latency above 250 ms. ";
    assert!(description.starts_with(counts), "{description}");
    let affected = texts().pop().unwrap();
    assert!(affected[0].starts_with("3000 bad events of check"), "{affected:?}");
    let cases = [
        (0.25, "25% of it is left, at this rate for 3h 36m 0s"),
        (0.0, "it is spent, with bad events for 1.0 budgets"),
        // It was "1.148e+04% over".
        (-114.8, "it is spent, with bad events for 115.8 budgets"),
    ];
    let report = |minute: i64, metric: &str, value: f64| {
        let series = Series::new(metric, SeriesKind::Gauge).with_label("slo", name);
        let mut batch = BatchWriter::default();
        batch.series(&series.validate().unwrap());
        let end = now + minute * MINUTE;
        batch.sample(&Sample { start: end, end, value: SampleValue::Number(value) }).unwrap();
        let _ = store.0.ingest(None, &batch.finish(), journal::Level::Disk).unwrap();
    };
    // A budget from before the burn, of which all was left: it contradicted the SLO itself.
    report(-4, "topdeck_slo_budget_remaining_ratio", 1.0);
    report(-4, "topdeck_slo_bad_events", 0.0);
    let whole = format!("{budget}: at this rate a whole one is spent in 14h 24m 0s");
    assert_eq!(texts()[0][0], whole);
    for (minute, (left, expected)) in (-3..).zip(cases) {
        report(minute, "topdeck_slo_budget_remaining_ratio", left);
        report(minute, "topdeck_slo_bad_events", 2_950.0);
        assert_eq!(texts()[0][0], format!("{budget}: {expected}"));
    }
}

#[test]
fn window_without_data_has_no_burn_rate_and_the_budget_is_unknown() {
    let now = START + 40 * DAY;
    let store = MinuteStore::new(now);
    // Everything was bad until two hours ago.
    for minute in 120..130 {
        store.add("/pay", now - minute * MINUTE, 0, 50);
    }
    let slo = slo(|draft| draft.period = Some("30d".to_owned()));
    let report = store.report(&slo, now);
    assert_eq!(report.burn[0].is_burning, None);
    assert_eq!(store.rule_values(&slo, now)[0], None);
    assert_eq!(report.summary.state.text(), "spent");
    // The same with good values: nobody knows what happened since.
    let store = MinuteStore::new(now);
    store.add("/pay", now - 2 * HOUR, 50, 0);
    let report = store.report(&slo, now);
    assert_eq!(report.summary.state.text(), "unknown");
    assert_eq!(report.summary.remaining.unwrap().estimate, 1.0);
    let empty = MinuteStore::new(now).report(&slo, now);
    assert_eq!((empty.summary.remaining, empty.summary.state.text()), (None, "unknown"));
    assert!(empty.points.iter().all(|point| point.remaining.is_none()));
}

#[test]
fn gap_is_missing_time_and_no_good_time() {
    let now = START + 40 * DAY;
    let store = MinuteStore::new(now);
    store.add("/pay", now - 30 * MINUTE, 100, 0);
    let mut batch = BatchWriter::default();
    let (start, end) = (now - 3 * HOUR, now - HOUR);
    let gap = Gap { start, end, producer: None, lost: Some(7), reason: "a cut cable".to_owned() };
    batch.gap(gap);
    let _ = store.0.ingest(None, &batch.finish(), journal::Level::Disk).unwrap();
    let report = store.report(&slo(|_| ()), now);
    assert_eq!(report.summary.missing_ns, 2 * HOUR);
    assert_eq!(report.summary.gaps[0].lost, Some(7));
    assert_eq!(report.summary.events.total, 100.0);
    assert_eq!(report.points.iter().filter(|point| point.has_gap).count(), 2);
    let day = report.days.iter().find(|day| day.missing_ns > 0).unwrap();
    assert_eq!((day.missing_ns, day.events.total), (2 * HOUR, 100.0));
}

#[test]
fn users_are_counted_by_their_label_or_derived_from_their_number() {
    let now = START + 40 * DAY;
    let store = MinuteStore::new(now);
    store.add("/pay", now - 10 * MINUTE, 98, 2);
    store.add("/cart", now - 10 * MINUTE, 100, 0);
    let by_label = slo(|draft| draft.user_label = Some("session".to_owned()));
    let people = store.report(&by_label, now).people.unwrap();
    assert_eq!((people.affected.estimate, people.total, people.is_counted), (1.0, 2.0, true));
    let of_number = slo(|draft| draft.users = Some(5000.0));
    let people = store.report(&of_number, now).people.unwrap();
    assert!((people.affected.estimate - 50.0).abs() < 1e-6 && !people.is_counted, "{people:?}");
    assert_eq!(store.report(&slo(|_| ()), now).people, None);
}

#[test]
fn last_point_of_the_history_is_the_budget_of_now() {
    let now = START + 40 * DAY;
    let store = MinuteStore::new(now);
    for hour in 0..200 {
        store.add("/pay", now - hour * HOUR, 990, 2);
    }
    let slo = slo(|draft| draft.period = Some("7d".to_owned()));
    let report = store.report(&slo, now);
    let last = report.points.last().unwrap();
    assert_eq!(last.time_ns, now);
    assert_eq!(last.remaining, report.summary.remaining);
    assert_eq!(report.points.len(), 7 * 24);
    assert_eq!(report.days.len(), 7);
    assert!(report.days.iter().all(|day| day.events.total == 24.0 * 992.0), "{:?}", report.days);
}
