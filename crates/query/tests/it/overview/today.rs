//! Today: gaps, days of several time zones, incidents.

use super::*;

const NOON: i64 = MIDNIGHT + 9 * DAY + 12 * HOUR;

/// Values of which some are slow.
fn requests(fast: usize, slow: usize) -> Vec<f64> {
    std::iter::repeat_n(100.0, fast).chain(std::iter::repeat_n(900.0, slow)).collect()
}

fn user_threshold(overview: &mut Overview) -> OverviewPage {
    overview.page(ALL, &|_| Some(RowThreshold::of_user(500.0)))
}

/// A row told of a gap for five minutes only.
#[test]
fn gap_of_today_is_told_all_day() {
    let fixture = Fixture::new();
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    fixture.send_gap(gap(NOON - 3 * HOUR));
    fixture.send_gap(gap(NOON - 30 * MINUTE));
    for minute in 0..90 {
        let now = NOON + minute * MINUTE;
        fixture.send("a", now, values(100.0, minute));
        if minute == 20 {
            fixture.send_gap(gap(now - MINUTE));
        }
        let page = fixture.refresh(&mut overview, now);
        let mut expected = vec![gap(NOON - 3 * HOUR), gap(NOON - 30 * MINUTE)];
        expected.extend((minute >= 20).then(|| gap(NOON + 19 * MINUTE)));
        assert_eq!(page.rows[0].gaps, expected, "minute {minute}");
    }
    // On the next day it is told while it is in the last hour.
    let midnight = MIDNIGHT + 10 * DAY;
    fixture.send_gap(gap(midnight - 10 * MINUTE));
    let mut told = |now: i64| fixture.refresh(&mut overview, now).rows[0].gaps.len();
    assert_eq!(told(midnight - MINUTE), 4);
    for minute in [1, 3, 7, 30] {
        assert_eq!(told(midnight + minute * MINUTE), 1, "minute {minute}");
    }
    assert_eq!(told(midnight + 70 * MINUTE), 0);
}

/// Two readers in two time zones reset each other's day.
#[test]
fn readers_in_two_time_zones_have_two_days() {
    let fixture = Fixture::new();
    let now = MIDNIGHT + 9 * DAY + 5 * HOUR;
    for (name, hour) in ["a", "b", "c"].into_iter().flat_map(|name| [(name, 1), (name, 7)]) {
        fixture.send(name, now - hour * HOUR, values(100.0, hour));
        fixture.send(name, now - MINUTE, values(100.0, hour));
    }
    let view = fixture.store.view().unwrap();
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    let budget = Duration::from_secs(1);
    let mut counts = |at: i64, today_start: i64, elapsed: Duration| {
        let times = OverviewTimes { now: at, today_start };
        overview.refresh(&view, times, (budget, &|| elapsed)).unwrap();
        let page = overview.page(ALL, &|_| None);
        let counts: Vec<u64> = page.rows.iter().map(|row| row.count_today).collect();
        (page.incomplete, counts)
    };
    let [utc, east] = [now - 5 * HOUR, now - 8 * HOUR];
    let second = store::SECOND;
    assert_eq!(counts(now, utc, Duration::ZERO), (0, vec![60; 3]));
    assert_eq!(counts(now + second, east, Duration::ZERO), (0, vec![80; 3]));
    // Without time for more than a row.
    assert_eq!(counts(now + 2 * second, utc, budget), (0, vec![60; 3]));
    assert_eq!(counts(now + 3 * second, east, budget), (0, vec![80; 3]));
    // A day that was never asked is not that of another reader.
    let (incomplete, others) = counts(now + 4 * second, now - 2 * HOUR, budget);
    assert_eq!((incomplete, others), (2, vec![0, 0, 60]));
}

/// A day that was a little worse than expected was before an incident.
#[test]
fn incident_of_an_hour_ranks_above_a_day_that_is_a_little_worse_than_expected() {
    let fixture = Fixture::new();
    for minute in 1..=12 * 60 {
        let end = NOON - 12 * HOUR + minute * MINUTE;
        // 12 of 1,000, all day; 25 of 100, for half an hour.
        fixture.send("a_ledger", end, requests(988, 12));
        let slow = if (9 * 60..9 * 60 + 30).contains(&minute) { 25 } else { 0 };
        fixture.send("payment", end, requests(100 - slow, slow));
    }
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    fixture.refresh(&mut overview, NOON + 6 * MINUTE);
    let page = user_threshold(&mut overview);
    let names: Vec<&str> = page.rows.iter().map(|row| &row.key.name[..]).collect();
    assert_eq!(names, ["payment", "a_ledger"]);
    let [payment, ledger] = &page.rows[..] else { panic!("two rows: {names:?}") };
    assert_eq!(ledger.state_today(), RowStatus::Affected);
    let burn_rate = |row: &OverviewRow| row.worst_hour.as_ref().map(|hour| hour.burn_rate);
    let worst = burn_rate(payment).unwrap();
    assert!(worst.lower > 10.0 && (worst.estimate - 12.5).abs() < 0.5, "{worst:?}");
    assert!(burn_rate(ledger).is_none_or(|rate| rate.estimate < 1.5), "{:?}", burn_rate(ledger));
    // An objective that allows as many: nothing happened.
    let page = overview.page(ALL, &|_| Some(RowThreshold::of_slo(500.0, "payments", 0.3)));
    let payment = page.rows.iter().find(|row| row.key.name == "payment").unwrap();
    assert_eq!((payment.state_today(), &payment.worst_hour), (RowStatus::Usual, &None));
}

/// Nobody knew since when a service was slow.
#[test]
fn affected_row_says_since_when() {
    let fixture = Fixture::new();
    for minute in 1..=6 * 60 {
        let end = NOON - 6 * HOUR + minute * MINUTE;
        let of = |first: i64| if minute > 6 * 60 - first { 30 } else { 0 };
        fixture.send("new", end, requests(70, of(20)));
        fixture.send("old", end, requests(70, of(130)));
        fixture.send("usual", end, requests(100, 0));
    }
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    fixture.refresh(&mut overview, NOON);
    let page = user_threshold(&mut overview);
    let since = |name: &str| {
        let row = page.rows.iter().find(|row| row.key.name == name).unwrap();
        row.affected_since.clone()
    };
    assert_eq!(since("new"), Some(NOON - 20 * MINUTE..NOON - 19 * MINUTE));
    // 130 minutes: in the hour from 9:00 on.
    assert_eq!(since("old"), Some(NOON - 3 * HOUR..NOON - 2 * HOUR));
    assert_eq!(since("usual"), None);
}

/// The headline named the worst of the 80 rows that were shown.
#[test]
fn worst_row_is_that_of_all_rows_and_not_only_of_those_that_are_shown() {
    let fixture = Fixture::new();
    for minute in 1..=3 * 60 {
        let end = NOON - 3 * HOUR + minute * MINUTE;
        // Many slow requests of very many; few, but half of all; and an incident that is over.
        fixture.send("busy", end, requests(970, 30));
        fixture.send("half", end, requests(4, 4));
        let slow = if (60..90).contains(&minute) { 25 } else { 0 };
        fixture.send("morning", end, requests(100 - slow, slow));
        fixture.send("usual", end, requests(100, 0));
    }
    let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
    fixture.refresh(&mut overview, NOON + MINUTE);
    let page =
        overview.page(PageRange { offset: 0, limit: 1 }, &|_| Some(RowThreshold::of_user(500.0)));
    let names = |rows: &[OverviewRow]| -> Vec<String> {
        rows.iter().map(|row| row.key.name.clone()).collect()
    };
    assert_eq!(names(&page.rows), ["busy"]);
    let summary = &page.summary;
    assert_eq!(names(&summary.worst_now), ["half", "busy"]);
    assert_eq!(names(&summary.worst_earlier), ["morning"]);
    assert!(summary.worst_now.iter().all(|row| row.heatmap.is_none()));
    assert!(summary.worst_now[0].affected_since.is_some());
    let counts = (summary.affected, summary.usual, summary.uncertain, summary.unknown);
    assert_eq!(counts, (2, 2, 0, 0));
    assert_eq!((summary.affected_earlier, summary.usual_again), (1, 1));
}
