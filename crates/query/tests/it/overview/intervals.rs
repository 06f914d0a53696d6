//! Rows that are longer than a minute, and buckets of which each has scrapes of its own.

use super::*;

const NOON: i64 = MIDNIGHT + 9 * DAY + 12 * HOUR;

/// Samples of the counter of a bucket, of one more value each.
fn bucket(fixture: &Fixture, (name, bound): (&str, &str), ends: &[i64]) {
    let kind = SeriesKind::Counter(Temporality::Cumulative);
    let series = Series::new(format!("{name}_bucket"), kind).with_label("le", bound);
    let sample = |(at, end): (usize, &i64)| Sample {
        start: *end,
        end: *end,
        value: SampleValue::Number((at * 7) as f64),
    };
    fixture.send_samples(&series.validate().unwrap(), ends.iter().enumerate().map(sample));
}

fn row<'a>(page: &'a OverviewPage, name: &str) -> &'a OverviewRow {
    page.rows.iter().find(|row| row.key.name == name).unwrap()
}

/// The minutes between the rows were grey, as if there were no data.
#[test]
fn rows_of_a_quarter_of_an_hour_cover_their_minutes() {
    let fixture = Fixture::new();
    let quarters = |count: i64| (0..count).rev().map(|at| NOON - 4 * MINUTE - at * 15 * MINUTE);
    let kind = SeriesKind::Histogram(Temporality::Delta);
    let delta = Series::new("delta", kind).with_unit("s").validate().unwrap();
    let mut histogram = Histogram::default();
    histogram.record_n(0.2, 40);
    let value = SampleValue::Histogram(Box::new(histogram));
    let rows =
        quarters(8).map(|end| Sample { start: end - 15 * MINUTE, end, value: value.clone() });
    fixture.send_samples(&delta, rows);
    let ends: Vec<i64> = quarters(12).collect();
    ["0.5", "+Inf"].into_iter().for_each(|bound| bucket(&fixture, ("scraped", bound), &ends));
    let page = fixture.read(NOON);
    for name in ["delta", "scraped"] {
        let heatmap = row(&page, name).heatmap.as_ref().unwrap();
        assert_eq!(heatmap.no_data, [0; 0], "{name}");
        let columns = heatmap.levels.chunks(24);
        let filled = columns.filter(|column| column.iter().any(|level| *level > 0)).count();
        // The row of the last minutes is yet to come.
        assert_eq!(filled, 55, "{name}");
    }
}

/// A row of buckets that were never of the same scrapes took seconds, whatever the time for reads.
#[test]
fn buckets_of_other_scrapes_are_cut_so_often_only_and_a_gap_tells_of_the_others() {
    let fixture = Fixture::new();
    let ends = |offset: i64| -> Vec<i64> {
        let at = |step: i64| NOON - HOUR + step * 10 * store::SECOND + offset * store::SECOND;
        (0..360).map(at).collect()
    };
    bucket(&fixture, ("apart", "0.5"), &ends(1));
    bucket(&fixture, ("apart", "+Inf"), &ends(4));
    let page = fixture.read(NOON);
    let why = "its buckets differ in their scrapes so often that to read them takes too long here";
    let gaps = &row(&page, "apart").gaps;
    assert!(gaps.iter().any(|gap| gap.reason.contains(why)), "{gaps:?}");
    // Those of the same scrapes are not cut.
    bucket(&fixture, ("together", "0.5"), &ends(1));
    bucket(&fixture, ("together", "+Inf"), &ends(1));
    let page = fixture.read(NOON);
    assert_eq!(row(&page, "together").gaps, []);
}

/// Minutes of 100 requests of some series, of which the last ones before NOON are slow, but none
/// between 40 and 39 minutes ago; and, if there is an odd one, a row of it that took an hour.
fn service(with_odd: bool, last_slow: i64, end: i64) -> Fixture {
    let fixture = Fixture::new();
    let odd = [("service", "shop"), ("instance", "odd")];
    if with_odd {
        let kind = SeriesKind::Histogram(Temporality::Delta);
        let series = Series::new("latency", kind).with_unit("ms").with_labels(odd);
        let mut histogram = Histogram::default();
        histogram.record_n(10.0, 5);
        let value = SampleValue::Histogram(Box::new(histogram));
        let sample = Sample { start: end - HOUR, end, value };
        fixture.send_samples(&series.validate().unwrap(), [sample]);
    }
    for instance in ["a", "b", "c"] {
        for minute in (0..120).filter(|minute| *minute != 40) {
            let at = NOON - minute * MINUTE;
            let is_slow = minute < last_slow;
            let values = (0..100).map(|n| if is_slow && n < 30 { 900.0 } else { 10.0 });
            let labels = [("service", "shop"), ("instance", instance)];
            if at <= end {
                fixture.send_labelled(("latency", &labels), at, values);
            }
        }
    }
    fixture
}

/// One series with a row of an hour decided for all: nothing of a silent service was grey.
#[test]
fn series_with_longer_rows_than_the_others_does_not_hide_that_the_service_is_silent() {
    let no_data = |with_odd: bool| {
        let page = service(with_odd, 0, NOON - 20 * MINUTE).read(NOON);
        row(&page, "latency").heatmap.as_ref().unwrap().no_data.clone()
    };
    let expected = no_data(false);
    assert!(expected.len() >= 15, "{expected:?}");
    assert_eq!(no_data(true), expected);
}

/// The same: it was slow since some minute of the last hours.
#[test]
fn series_with_longer_rows_than_the_others_does_not_blur_since_when_the_service_is_slow() {
    for with_odd in [false, true] {
        let fixture = service(with_odd, 20, NOON);
        let mut overview = Overview::new(RowGroup::Services, MEMORY_BYTES_MAX);
        fixture.refresh(&mut overview, NOON);
        let page = overview.page(ALL, &|_| Some(RowThreshold::of_user(500.0)));
        let since = page.rows[0].affected_since.clone();
        assert_eq!(since, Some(NOON - 20 * MINUTE..NOON - 19 * MINUTE), "{with_odd}");
    }
}

/// The first series were asked, which were silent; the minutes between the rows of the others were
/// grey.
#[test]
fn silent_series_do_not_hide_how_long_the_rows_of_the_others_are() {
    let fixture = Fixture::new();
    let kind = SeriesKind::Histogram(Temporality::Delta);
    let mut histogram = Histogram::default();
    histogram.record_n(0.2, 40);
    let value = SampleValue::Histogram(Box::new(histogram));
    let send = |instance: &str, ends: &[i64]| {
        let series = Series::new("latency", kind).with_unit("s").with_label("instance", instance);
        let row = |end: &i64| Sample { start: end - 15 * MINUTE, end: *end, value: value.clone() };
        fixture.send_samples(&series.validate().unwrap(), ends.iter().map(row));
    };
    (0..12).for_each(|old| send(&format!("a{old}"), &[NOON - 6 * HOUR]));
    let ends: Vec<i64> = (0..8).rev().map(|at| NOON - 4 * MINUTE - at * 15 * MINUTE).collect();
    send("b", &ends);
    let page = fixture.read(NOON);
    assert_eq!(row(&page, "latency").heatmap.as_ref().unwrap().no_data, [0; 0]);
}
