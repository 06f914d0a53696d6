//! Overviews over a store: an overview that is refreshed equals one that is read anew.

mod intervals;
mod today;
mod users;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hist::Histogram;
use hist::codec::header::Temporality;
use model::{BatchWriter, Gap, Sample, SampleValue, Series, SeriesKind};
use query::overview::deviation::Deviation;
use query::overview::row_threshold::{RowThreshold, ThresholdOrigin};
use query::overview::{
    MEMORY_BYTES_MAX, Overview, OverviewPage, OverviewRow, OverviewTimes, PageRange, RowGroup,
    RowStatus,
};
use store::{DAY, HOUR, MINUTE, Store};

/// A midnight.
const MIDNIGHT: i64 = 1_600_041_600 * store::SECOND;
const ALL: PageRange = PageRange { offset: 0, limit: 100 };

struct Fixture {
    store: Store,
}

impl Fixture {
    fn new() -> Fixture {
        let clock: journal::WallClock = Arc::new(|| MIDNIGHT + 20 * DAY);
        let settings = journal::Settings {
            buffer_bytes: 1 << 20,
            segment_bytes: 4 << 20,
            ..Default::default()
        };
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
        Fixture { store: Store::open(disk, Path::new("/store"), &options).unwrap() }
    }

    /// Twelve minutes of `count` metrics `m000`, `m001`, …, each with about 200 buckets.
    fn send_metrics(&self, count: usize, now: i64) {
        for (metric, minute) in (0..count).flat_map(|metric| (0..12).map(move |at| (metric, at))) {
            let spread = (0..40).map(|n| 1.05f64.powi((n * 7 + minute * 3) % 200));
            self.send(&format!("m{metric:03}"), now - i64::from(minute) * MINUTE, spread);
        }
    }

    /// One row of a metric that ends at `end` and took a minute.
    fn send(&self, name: &str, end: i64, values: impl IntoIterator<Item = f64>) {
        self.send_labelled((name, &[]), end, values);
    }

    /// The same with labels.
    fn send_labelled(
        &self,
        (name, labels): (&str, &[(&str, &str)]),
        end: i64,
        values: impl IntoIterator<Item = f64>,
    ) {
        let mut histogram = Histogram::default();
        values.into_iter().for_each(|value| histogram.record(value));
        let kind = SeriesKind::Histogram(Temporality::Delta);
        let series = Series::new(name, kind).with_unit("ms");
        let series = series.with_labels(labels.iter().copied()).validate().unwrap();
        let value = SampleValue::Histogram(Box::new(histogram));
        self.send_samples(&series, [Sample { start: end - MINUTE, end, value }]);
    }

    fn send_samples(&self, series: &Series, samples: impl IntoIterator<Item = Sample>) {
        let mut batch = BatchWriter::default();
        batch.series(series);
        samples.into_iter().for_each(|sample| batch.sample(&sample).unwrap());
        let _ack = self.store.ingest(None, &batch.finish(), journal::Level::Disk).unwrap();
    }

    fn send_gap(&self, gap: Gap) {
        let mut batch = BatchWriter::default();
        batch.gap(gap);
        let _ack = self.store.ingest(None, &batch.finish(), journal::Level::Disk).unwrap();
    }

    fn refresh(&self, overview: &mut Overview, now: i64) -> OverviewPage {
        let times = OverviewTimes { now, today_start: now - now.rem_euclid(DAY) };
        let view = self.store.view().unwrap();
        overview.refresh(&view, times, (Duration::MAX, &|| Duration::ZERO)).unwrap();
        overview.page(ALL, &|_| None)
    }

    fn read(&self, now: i64) -> OverviewPage {
        self.refresh(&mut Overview::new(RowGroup::Services, MEMORY_BYTES_MAX), now)
    }
}

/// What a row shows, without its rank.
fn shown(row: &OverviewRow) -> String {
    format!(
        "{} {} {} {:?} {:?} {:?} {:?} {:?} {:?}",
        row.key.name,
        row.recent.count(),
        row.count_today,
        row.above,
        row.worst_hour,
        row.threshold,
        row.heatmap,
        row.latest_end,
        row.gaps
    )
}

fn values(centre: f64, seed: i64) -> impl Iterator<Item = f64> + Clone {
    (0..20).map(move |n| centre + ((n * 7 + seed * 3) % 11) as f64)
}

#[test]
fn refreshed_overview_equals_one_that_is_read_anew() {
    let fixture = Fixture::new();
    let mut kept = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    let start = MIDNIGHT + 9 * DAY + 22 * HOUR;
    // Past midnight, with a pause, and values that are four minutes late.
    for minute in 0..200 {
        let now = start + minute * MINUTE;
        if !(70..90).contains(&minute) {
            fixture.send("a", now, values(100.0, minute));
        }
        fixture.send("b", now - 4 * MINUTE, values(5.0, minute));
        if minute % 7 == 3 {
            let now = now + 17 * store::SECOND;
            let (refreshed, anew) = (fixture.refresh(&mut kept, now), fixture.read(now));
            let texts = |page: &OverviewPage| {
                let mut texts: Vec<String> = page.rows.iter().map(shown).collect();
                texts.sort();
                texts
            };
            assert_eq!(texts(&refreshed), texts(&anew), "minute {minute}");
        }
    }
}

#[test]
fn values_that_are_an_hour_late_appear_within_half_an_hour() {
    let fixture = Fixture::new();
    let mut kept = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    let now = MIDNIGHT + 9 * DAY + 12 * HOUR;
    fixture.send("a", now, values(100.0, 0));
    fixture.refresh(&mut kept, now);
    fixture.send("a", now - HOUR, values(100.0, 1));
    let soon = fixture.refresh(&mut kept, now + MINUTE);
    assert_eq!(soon.rows[0].count_today, 20);
    let later = fixture.refresh(&mut kept, now + 31 * MINUTE);
    assert_eq!(later.rows[0].count_today, 40);
}

#[test]
fn threshold_is_last_weeks_p99_and_a_slow_hour_is_affected_and_unusual() {
    let fixture = Fixture::new();
    let now = MIDNIGHT + 9 * DAY + 12 * HOUR + 40 * MINUTE;
    for day in 1..=7 {
        for minute in 0..60 {
            let end = now - day * DAY - 40 * MINUTE + (minute + 1) * MINUTE;
            fixture.send("slow", end, values(100.0 + day as f64, minute));
            fixture.send("usual", end, values(100.0 + day as f64, minute));
        }
    }
    for minute in 0..60 {
        let slower = if minute < 10 { 300.0 } else { 0.0 };
        fixture.send("slow", now - minute * MINUTE, values(100.0 + slower, minute));
        fixture.send("usual", now - minute * MINUTE, values(103.0, minute));
    }
    let page = fixture.read(now);
    let [slow, usual] = &page.rows[..] else { panic!("two rows: {page:?}") };
    assert_eq!((&slow.key.name[..], slow.state()), ("slow", RowStatus::Affected));
    assert_eq!((&usual.key.name[..], usual.state()), ("usual", RowStatus::Usual));
    let threshold = slow.threshold.as_ref().unwrap();
    let day = now - now.rem_euclid(DAY);
    assert_eq!(threshold.origin, ThresholdOrigin::Learned(day - 7 * DAY..day));
    // 107 to 117 ms on the slowest day; the values now begin at 400 ms.
    assert!((110.0..120.0).contains(&threshold.value), "{threshold:?}");
    assert_eq!(slow.above.0.unwrap().estimate, 100);
    assert_eq!(slow.affected_now(), Some(99.0));
    let ratio = |row: &OverviewRow| match &row.deviation {
        Some(Deviation::Ratio { ratio, days: 7, .. }) => ratio.unwrap().estimate,
        other => panic!("{other:?}"),
    };
    assert!(ratio(slow) > 10.0 && ratio(usual) < 2.0, "{} {}", ratio(slow), ratio(usual));
}

/// The overview was all green three hours after an incident.
#[test]
fn an_incident_of_this_morning_is_seen_with_its_hour_when_the_service_is_usual_again() {
    let fixture = Fixture::new();
    let midnight = MIDNIGHT + 9 * DAY;
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    let refresh = |overview: &mut Overview, now: i64| {
        fixture.refresh(overview, now);
        overview.page(ALL, &|_| Some(RowThreshold::of_user(500.0)))
    };
    let incident = midnight + 8 * HOUR..midnight + 9 * HOUR;
    for minute in 1..=12 * 60 {
        let end = midnight + minute * MINUTE;
        let slow = if (incident.start + 1..=incident.end).contains(&end) { 30 } else { 0 };
        let values = std::iter::repeat_n(100.0, 50).chain(std::iter::repeat_n(900.0, slow));
        fixture.send("payment", end, values);
        if minute == 3 * 60 {
            let page = refresh(&mut overview, end);
            assert_eq!(
                (page.rows[0].state_today(), &page.rows[0].worst_hour),
                (RowStatus::Usual, &None)
            );
        }
    }
    let now = midnight + 12 * HOUR;
    let page = refresh(&mut overview, now);
    let row = &page.rows[0];
    assert_eq!((row.state(), row.state_today()), (RowStatus::Usual, RowStatus::Affected));
    assert_eq!(row.above.1.unwrap().estimate, 1_800);
    assert_eq!(row.expected_today(), 378.0);
    let worst = row.worst_hour.as_ref().unwrap();
    assert_eq!((&worst.range, worst.above.estimate, worst.count), (&incident, 1_800, 4_800));
    // The threshold of another user: no hour stands out.
    let page = overview.page(ALL, &|_| Some(RowThreshold::of_user(950.0)));
    assert_eq!((page.rows[0].state_today(), &page.rows[0].worst_hour), (RowStatus::Usual, &None));
}

/// An incident on the first day of a server raised the threshold that should have shown it.
#[test]
fn a_threshold_is_not_learned_from_the_incident_that_it_should_show() {
    let fixture = Fixture::new();
    let midnight = MIDNIGHT + 9 * DAY;
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    // An hour of requests on the day before, then an incident of 45 minutes from 2:00 on.
    for minute in -59..=240 {
        let end = midnight + minute * MINUTE;
        let slow = if (121..=165).contains(&minute) { 30 } else { 0 };
        let values = std::iter::repeat_n(100.0, 50).chain(std::iter::repeat_n(900.0, slow));
        fixture.send("old", end, values.clone());
        if minute > 0 {
            fixture.send("new", end, values);
        }
        if minute == 165 || minute == 240 {
            let page = fixture.refresh(&mut overview, end);
            for row in &page.rows {
                let threshold = row.threshold.as_ref().unwrap();
                let range = match &row.key.name[..] {
                    "old" => midnight - DAY..midnight,
                    _ => midnight..end - 5 * MINUTE,
                };
                assert_eq!(threshold.origin, ThresholdOrigin::LearnedByHour(range), "{minute}");
                assert!((100.0..105.0).contains(&threshold.value), "{threshold:?}");
                assert_eq!(row.state_today(), RowStatus::Affected, "{minute}: {}", row.key.name);
                let is_now = minute == 165;
                assert_eq!(row.state() == RowStatus::Affected, is_now, "{minute}");
            }
        }
    }
}

/// "p99 of 14 h" stood beside data that were eleven minutes old.
#[test]
fn learned_threshold_says_since_when_there_were_values() {
    let fixture = Fixture::new();
    let now = MIDNIGHT + 9 * DAY + 14 * HOUR + 38 * MINUTE;
    for minute in 0..11 {
        fixture.send("young", now - minute * MINUTE, values(100.0, minute).cycle().take(200));
    }
    let page = fixture.read(now);
    let threshold = page.rows[0].threshold.clone().unwrap();
    let range = now - 11 * MINUTE..now - 5 * MINUTE;
    assert_eq!(threshold.origin, ThresholdOrigin::Learned(range));
}

#[test]
fn few_more_slow_requests_than_expected_are_usual_and_rank_below_an_affected_row() {
    let fixture = Fixture::new();
    let now = MIDNIGHT + 9 * DAY + 12 * HOUR;
    let of = |fast: usize, slow: usize| {
        let values = std::iter::repeat_n(100.0, fast).chain(std::iter::repeat_n(900.0, slow));
        values.collect::<Vec<f64>>()
    };
    // 36 of 3,600 are expected; 9 of 900.
    fixture.send("a_large", now, of(3562, 38));
    fixture.send("b_small", now, of(870, 30));
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    fixture.refresh(&mut overview, now);
    let page = overview.page(ALL, &|_| Some(RowThreshold::of_user(500.0)));
    let found = page.rows.iter().map(|row| (&row.key.name[..], row.state(), row.affected_now()));
    let expected =
        [("b_small", RowStatus::Affected, Some(21.0)), ("a_large", RowStatus::Usual, Some(0.0))];
    assert_eq!(found.collect::<Vec<_>>(), expected);
    assert_eq!(page.rows[1].above.0.unwrap().estimate, 38);
}

#[test]
fn row_without_recent_data_is_unknown_and_never_usual() {
    let fixture = Fixture::new();
    let now = MIDNIGHT + 9 * DAY + 12 * HOUR;
    for minute in 0..60 {
        fixture.send("stopped", now - HOUR - minute * MINUTE, values(100.0, minute));
    }
    fixture.send("new", now, values(1.0, 0));
    let page = fixture.read(now);
    let row = |name: &str| page.rows.iter().find(|row| row.key.name == name).unwrap();
    let stopped = row("stopped");
    assert_eq!(stopped.state(), RowStatus::Unknown);
    assert_eq!(stopped.latest_end, Some(now - HOUR));
    assert_eq!(stopped.deviation, Some(Deviation::NoValues));
    assert_eq!(stopped.heatmap, None);
    // Data, but too little of it for a threshold.
    let new = row("new");
    assert_eq!((new.state(), &new.threshold), (RowStatus::Unknown, &None));
    assert_eq!(new.deviation, Some(Deviation::HistoryTooShort { days: 0 }));
}

#[test]
fn what_was_not_read_in_time_is_unknown_until_the_next_refresh() {
    let fixture = Fixture::new();
    let now = MIDNIGHT + 9 * DAY + 12 * HOUR;
    for (minute, name) in (0..60).flat_map(|minute| [(minute, "a"), (minute, "b")]) {
        fixture.send(name, now - minute * MINUTE, values(100.0, minute));
    }
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    let times = OverviewTimes { now, today_start: now - now.rem_euclid(DAY) };
    let view = fixture.store.view().unwrap();
    let budget = Duration::from_secs(1);
    overview.refresh(&view, times, (budget, &|| budget)).unwrap();
    let page = overview.page(ALL, &|_| Some(RowThreshold::of_user(105.0)));
    let states = |page: &OverviewPage| {
        let state = |row: &OverviewRow| (row.key.name.clone(), row.state());
        page.rows.iter().map(state).collect::<Vec<_>>()
    };
    let expected = [("a".to_owned(), RowStatus::Affected), ("b".to_owned(), RowStatus::Unknown)];
    assert_eq!((page.incomplete, states(&page)), (1, expected.to_vec()));
    assert_eq!(page.rows[1].read_at, None);
    overview.refresh(&view, times, (budget, &|| Duration::ZERO)).unwrap();
    let page = overview.page(ALL, &|_| Some(RowThreshold::of_user(105.0)));
    assert_eq!((page.incomplete, page.rows[1].state()), (0, RowStatus::Affected));
    assert_eq!(page.rows[1].threshold.as_ref().unwrap().origin, ThresholdOrigin::User);
}

/// With very many counters all the time was over when the rows had been found.
#[test]
fn refreshes_that_are_out_of_time_when_the_rows_are_found_reach_every_row() {
    let fixture = Fixture::new();
    let now = MIDNIGHT + 9 * DAY + 12 * HOUR;
    fixture.send_metrics(3, now);
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    let view = fixture.store.view().unwrap();
    let budget = Duration::from_secs(1);
    for refresh in 1..=6 {
        let now = now + refresh * 10 * store::SECOND;
        let times = OverviewTimes { now, today_start: now - now.rem_euclid(DAY) };
        overview.refresh(&view, times, (budget, &|| 2 * budget)).unwrap();
        let page = overview.page(ALL, &|_| None);
        let read = page.rows.iter().filter(|row| row.read_at.is_some()).count();
        let expected = usize::try_from(refresh).unwrap().min(3);
        assert_eq!((read, page.incomplete), (expected, 3 - expected), "refresh {refresh}");
        // The oldest read is repeated.
        let newest = page.rows.iter().filter(|row| row.read_at == Some(now)).count();
        assert_eq!(newest, 1, "refresh {refresh}");
    }
}

/// A gap of a minute.
fn gap(start: i64) -> Gap {
    let reason = "a cable was cut".to_owned();
    Gap { start, end: start + MINUTE, producer: None, lost: Some(3), reason }
}

#[test]
fn gap_of_today_is_told_with_the_row() {
    let fixture = Fixture::new();
    let now = MIDNIGHT + 9 * DAY + 12 * HOUR;
    fixture.send("a", now, values(100.0, 0));
    fixture.send_gap(gap(now - 3 * HOUR));
    fixture.send_gap(gap(now - 3 * DAY));
    let page = fixture.read(now);
    assert_eq!(page.rows[0].gaps, [gap(now - 3 * HOUR)]);
}

#[test]
fn services_of_a_metric_are_rows_and_host_metrics_another_group() {
    let fixture = Fixture::new();
    let end = MIDNIGHT + 9 * DAY + 12 * HOUR;
    let kind = SeriesKind::Histogram(Temporality::Delta);
    let of = |name: &str, label: &str, value: &str| {
        let series = Series::new(name, kind).with_label(label, value).with_label("path", "/");
        series.validate().unwrap()
    };
    for series in [
        of("took", "service.name", "cart"),
        of("took", "service.name", "pay"),
        of("took", "host", "web-1"),
        of("host_block_io", "device", "vda"),
        of("topdeck_query_duration", "kind", "query"),
    ] {
        let mut batch = BatchWriter::default();
        batch.series(&series);
        let value = SampleValue::Histogram(Box::default());
        batch.sample(&Sample { start: end - MINUTE, end, value }).unwrap();
        let _ack = fixture.store.ingest(None, &batch.finish(), journal::Level::Disk).unwrap();
    }
    let names = |group: RowGroup| {
        let page = fixture.refresh(&mut Overview::new(group, MEMORY_BYTES_MAX), end);
        let name = |row: &OverviewRow| {
            let service = row.key.service.as_ref().map_or("", |(_, value)| value);
            format!("{} {service}", row.key.name)
        };
        page.rows.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(RowGroup::Services), ["took ", "took cart", "took pay"]);
    assert_eq!(names(RowGroup::Host), ["host_block_io "]);
    assert_eq!(names(RowGroup::Topdeck), ["topdeck_query_duration "]);
}

/// A load test that had ended was a service in state unknown.
#[test]
fn load_run_that_ended_has_no_row_and_the_page_says_where_it_is() {
    let fixture = Fixture::new();
    let now = MIDNIGHT + 9 * DAY + 12 * HOUR;
    for (name, run) in [
        ("load_response_time", "before"),
        ("load_response_time", "after"),
        ("load_service_time", "after"),
    ] {
        fixture.send_labelled((name, &[("run", run)]), now - HOUR, values(100.0, 0));
    }
    // Of another program, which happens to have the same name.
    fixture.send("load_response_time", now, values(100.0, 0));
    let page = fixture.read(now);
    let rows = page.rows.iter().map(|row| (&row.key.name[..], row.series));
    assert_eq!(rows.collect::<Vec<_>>(), [("load_response_time", 1)]);
    let why = "2 load runs, which end and do not fall silent: see Load runs";
    let expected = ("load_response_time, load_service_time".to_owned(), why.to_owned());
    assert_eq!(page.unranked, [expected]);
}

/// A job of one minute looked as if it had run all the time, or as a service without requests.
#[test]
fn job_that_runs_a_minute_has_data_where_it_ran_only() {
    let fixture = Fixture::new();
    let now = MIDNIGHT + 9 * DAY + 12 * HOUR + 30 * store::SECOND;
    let minute = |at: i64| now - 30 * store::SECOND - (58 - at) * MINUTE;
    fixture.send("hourly", minute(20), values(100.0, 0));
    for at in [5, 15, 25, 35, 45, 55] {
        fixture.send("often", minute(at), values(100.0, 0));
    }
    fixture.send("served", minute(20), values(100.0, 0));
    (0..59).filter(|at| *at != 20).for_each(|at| fixture.send("served", minute(at), []));
    let page = fixture.read(now);
    let drawn = |name: &str| {
        let row = page.rows.iter().find(|row| row.key.name == name).unwrap();
        let heatmap = row.heatmap.as_ref().unwrap();
        let columns = heatmap.levels.chunks(24).enumerate();
        let filled = columns.filter(|(_, column)| column.iter().any(|level| *level > 0));
        (filled.map(|(at, _)| at).collect::<Vec<_>>(), heatmap.no_data.len())
    };
    // The running minute is not over, so it lacks nothing.
    assert_eq!(drawn("hourly"), (vec![20], 58));
    assert_eq!(drawn("often"), (vec![5, 15, 25, 35, 45, 55], 53));
    assert_eq!(drawn("served"), (vec![20], 0));
}

#[test]
fn page_copies_and_sums_only_the_rows_that_it_shows() {
    let fixture = Fixture::new();
    let now = MIDNIGHT + 9 * DAY + 12 * HOUR;
    fixture.send_metrics(200, now);
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    fixture.refresh(&mut overview, now);
    let bytes_of_page = |limit: usize, user: Option<f64>| {
        let range = PageRange { offset: 0, limit };
        let mut rows = 0;
        let measured = allocation_counter::measure(|| {
            rows = overview.page(range, &|_| user.map(RowThreshold::of_user)).rows.len()
        });
        assert_eq!(rows, limit);
        measured.bytes_total
    };
    // A row has several kilobytes; the rank of a row that is not shown takes a few hundred bytes.
    for user in [None, Some(20.0)] {
        // The first page after a read counts the hours of each row, for its rank.
        bytes_of_page(2, user);
        let (few, all) = (bytes_of_page(2, user), bytes_of_page(200, user));
        assert!(few * 10 < all, "2 rows of 200: {few} bytes, all: {all} bytes");
    }
}

#[test]
fn rows_beyond_the_memory_limit_are_named_and_the_others_stay() {
    let fixture = Fixture::new();
    let now = MIDNIGHT + 9 * DAY + 12 * HOUR;
    fixture.send_metrics(40, now);
    let mut overview = Overview::new(RowGroup::Services, 400_000);
    let names = |page: &OverviewPage| {
        page.rows.iter().map(|row| row.key.name.clone()).collect::<Vec<String>>()
    };
    let first = fixture.refresh(&mut overview, now);
    assert!((1..40).contains(&first.total), "{} rows fit", first.total);
    assert_eq!((first.total + first.unranked.len(), first.incomplete), (40, 0));
    let reason = "memory limit (400000 bytes) exceeded: 1 of its rows left out";
    assert!(first.unranked.iter().all(|(_, why)| why == reason), "{:?}", first.unranked);
    // The same rows: none is dropped in favour of one that would not fit either.
    for refresh in 1..4 {
        let later = fixture.refresh(&mut overview, now + refresh * 6 * MINUTE / 4);
        assert_eq!((names(&later), later.incomplete), (names(&first), 0));
    }
    let roomy = fixture.read(now);
    assert_eq!((roomy.total, roomy.unranked.len()), (40, 0));
}

/// A sender chooses the bounds of its buckets, so their number must not decide about the memory.
#[test]
fn rows_whose_buckets_are_beyond_the_memory_limit_are_named_and_the_others_stay() {
    let fixture = Fixture::new();
    let now = MIDNIGHT + HOUR;
    let names = ["a_bucket", "b_bucket"];
    let mut batch = BatchWriter::default();
    for (name, bound) in names.into_iter().flat_map(|name| (1..40).map(move |at| (name, at))) {
        let kind = SeriesKind::Counter(Temporality::Cumulative);
        let series = Series::new(name, kind).with_label("le", bound.to_string());
        batch.series(&series.validate().unwrap());
        for (end, value) in [(now - 2 * MINUTE, 0.0), (now - MINUTE, f64::from(bound))] {
            batch.sample(&Sample { start: end, end, value: SampleValue::Number(value) }).unwrap();
        }
    }
    let _ack = fixture.store.ingest(None, &batch.finish(), journal::Level::Disk).unwrap();
    let page = |bytes: usize| {
        let mut overview = Overview::new(RowGroup::Services, bytes);
        fixture.refresh(&mut overview, now)
    };
    let shown =
        |page: &OverviewPage| page.rows.iter().map(|row| row.key.name.clone()).collect::<Vec<_>>();
    assert_eq!(shown(&page(MEMORY_BYTES_MAX)), ["a", "b"]);
    let limited = page(64 << 10);
    assert_eq!(shown(&limited), ["a"]);
    let expected = "memory limit (64 buckets) exceeded: 39 counters b_bucket are left out; send \
                    native histograms";
    assert_eq!(limited.unranked, [("b".to_owned(), expected.to_owned())]);
}
