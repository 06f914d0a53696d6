//! Values read from metrics of every kind.

use query::{QueryWarningKind, StepValue};
use store::{MINUTE, SECOND};

use super::fixture::START;
use super::{answer, answer_of, check, expand_names, question, rows, rows_of};

#[test]
fn kinds_of_numbers() {
    check(r#"find:count("req", "and(host:b)")"#, "1 1 · 1 1 1 · · 1 1");
    check(r#"find:sum("req", "and(host:b)")"#, "10 10 · 10 10 10 · · 10 10");
    check(r#"find:stddev("req", "and(host:a)")"#, "0*");
    check(r#"find:counter("total")"#, "· 1 2 3 4 5 · 1 2 3");
    check(r#"find:derivative("total")"#, "· 1 2 3 4 5 -14.5 1 2 3");
    check(r#"find:counter("served")"#, "10*");
    check(r#"find:counter("asked")"#, "10*");
    check(r#"find:count("asked")"#, "2*");
    check(r#"find:average("asked")"#, "300*");
    // Samples are at the ends of the minutes; increases belong to the minutes.
    check(r#"find("served")"#, "· 600 1200 1800 2400 3000 3600 4200 4800 5400");
}

#[test]
fn point_distribution_is_in_the_slot_it_begins() {
    check(r#"find:histogram("sizes") | histogram:count()"#, "1 2 3 4 5 6 7 8 9 10");
    check(
        r#"find:histogram("sizes") | histogram:merge() | histogram:count()"#,
        "1 2 3 4 5 6 7 8 9 10",
    );
}

#[test]
fn another_kind_is_missing() {
    check(r#"find("lat", "and(host:a)")"#, "·*");
    check(r#"find:histogram("req", "and(host:a)")"#, "·*");
    let notes = answer(r#"find("lat")"#).unwrap().warnings;
    assert_eq!(notes.of_kind(QueryWarningKind::Info).count(), 2);
}

#[test]
fn earlier_and_elsewhere() {
    check(r#"find("req", "and(host:a)", start_time_offset=2m)"#, "· · 1 2 3 4 5 6 7 8");
    check(r#"find("req", "and(host:a)", start_time_override=1600002120)"#, "3 4 5 6 7 8 9 10 · ·");
}

#[test]
fn one_metric_of_a_check() {
    check(r#"metric("1b4e28ba-2fa1-11d2-883f-0016d3cca427", "req|ST[host:a]")"#, "·*");
}

#[test]
fn limit_is_reported() {
    let answer = answer(r#"find("req", limit=2)"#).unwrap();
    assert_eq!(answer.warnings.of_kind(QueryWarningKind::Warning).count(), 1);
    assert_eq!(rows_of(answer).len(), 2);
}

#[test]
fn longer_slots() {
    let ask = |text: &str| {
        let text = expand_names(text);
        let asked = query::QueryRequest { step: 5 * MINUTE, ..question(&text) };
        let rows = rows_of(answer_of(&asked).unwrap());
        rows[0].1.iter().map(|point| point.as_ref().and_then(StepValue::number)).collect::<Vec<_>>()
    };
    assert_eq!(ask("A"), [Some(3.0), Some(8.0)]);
    assert_eq!(ask("find:count(\"req\", \"and(host:b)\")"), [Some(4.0), Some(3.0)]);
    assert_eq!(ask("H | histogram:count()"), [Some(500.0), Some(500.0)]);
    assert_eq!(ask("A | aggregate:max()"), [Some(5.0), Some(10.0)]);
    assert_eq!(ask("A | aggregate:sum()"), [Some(15.0), Some(40.0)]);
    assert_eq!(ask("A | window:max(5m, period=1m)"), [Some(5.0), Some(10.0)]);
    assert_eq!(ask("A | rolling:sum(2m, period=1m)"), [Some(9.0), Some(19.0)]);
    assert_eq!(ask("VIEW_PERIOD_SECONDS"), [Some(300.0); 2]);
}

#[test]
fn directives() {
    let text = expand_names("#min_period=300\nA");
    let answer = answer_of(&question(&text)).unwrap();
    assert_eq!((answer.steps.step, answer.steps.count), (5 * MINUTE, 2));
    let asked = query::QueryRequest { step: 10 * SECOND, ..question("1") };
    assert_eq!(answer_of(&asked).unwrap().steps.step, MINUTE);
    let asked = query::QueryRequest { step: 10 * SECOND, ..question("#min_period=10\n1") };
    assert_eq!(answer_of(&asked).unwrap().steps.count, 60);
    let asked = query::QueryRequest { step: 0, end: START, ..question("1") };
    assert_eq!(answer_of(&asked).unwrap().steps.count, 1);
}

#[test]
fn units() {
    let unit = |text: &str| answer(text).unwrap().unit;
    assert_eq!(unit("H | histogram:percentile(99)").as_deref(), Some("ms"));
    assert_eq!(unit("H | histogram:merge() | window:merge(5m)").as_deref(), Some("ms"));
    assert_eq!(unit("H | histogram:count()").as_deref(), Some("values"));
    assert_eq!(unit("find:counter(\"served\")").as_deref(), Some("requests/s"));
    assert_eq!(unit("find(\"served\") | stats:sum()").as_deref(), Some("requests"));
    assert_eq!(unit("1"), None);
    assert_eq!(rows("1").len(), 1);
}
