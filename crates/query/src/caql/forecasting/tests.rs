//! Values from the specification, and some computed by hand.

use super::super::test_kernel::{A, B, MINUTE_NS, T0, format_streams, numbers, run_kernel, view};
use crate::stream::StepGrid;
use crate::value::StepValue;

#[track_caller]
fn check(input: &str, call: &str, expected: &str) {
    let made = numbers(input);
    assert_eq!(format_streams(&run_kernel(call, &[&made], view(10)).unwrap()), expected, "{call}");
}

#[test]
fn golden() {
    check(A, "forecasting:slope(3m, 1m)", ". 5 6 7 8 9 10 11 12 13");
    let expected = "1 1.5 2.25 3.125 4.0625 5.03125 6.015625 7.0078125 8.0039062 9.0019531";
    check(A, "forecasting:ewma(0.5)", expected);
}

#[test]
fn lines() {
    check(A, "forecasting:regression(3m, 5m)", ". 5 6 7 8 9 10 11 12 13");
    check(A, "forecasting:auto(5m)", ". 7 8 9 10 11 12 13 14 15");
    // Through (0, 10) and (1, 10); then with a gap.
    check(B, "forecasting:regression(3m, 2m)", ". 10 . . 10 10 . . . 10");
    check("1 3 2", "forecasting:regression(1m, 3m)", ". 5 3 0 . . . . . .");
    check(
        "1 2 4 8 16",
        "forecasting:regression(1m, model=\"exp\")",
        ". 4 8 16 32 64 128 256 512 1024",
    );
    check("1 2 4 8 16", "forecasting:slope(2m, 1m, model=\"exp\")", ". 8 16 32 64 . . . . .");
    // Refitted every second minute; T0 is one of those.
    check("0 1 3 6 10 15", "forecasting:slope(1m, 1m, step=2m)", ". . 5 7 14 18 . . . .");
}

#[test]
fn smoothing() {
    check(B, "forecasting:ewma(0.5)", "10 10 10 10 10 10 10 10 10 10");
    check("1 3 . 5", "forecasting:ewma(0.5, fill=2)", "1 3 2 5 3.5 3.5 3.5 3.5 3.5 3.5");
    // Level and trend 1, 0; then 2, 0.5; then 0.5 · 3 + 0.5 · 2.5 = 2.75, 0.625.
    check("1 3 3", "forecasting:dewma(0.5, 0.5)", "1 2 2.75 3.375 4 4.625 5.25 5.875 6.5 7.125");
    check(
        "1 3",
        "forecasting:dewma(0.5, 0.5, forecast_duration=2m)",
        "1 3 3.5 4 4.5 5 5.5 6 6.5 7",
    );
}

#[test]
fn season_repeats() {
    // From an hour before the range: 0 1 2 0 1 2 …
    let wave =
        |time: i64| Some(StepValue::Number((time - T0).div_euclid(MINUTE_NS).rem_euclid(3) as f64));
    let season = |more: &str| {
        let call = format!("forecasting:holt_winters(0.5, 0.1, 0.5, period=3m{more})");
        format_streams(&run_kernel(&call, &[&wave], view(6)).unwrap())
    };
    assert_eq!(season(""), "0 1 2 0 1 2");
    assert_eq!(season(", forecast_duration=1m"), "1 2 0 1 2 0");
    assert_eq!(season(", forecast_duration=4m"), "1 2 0 1 2 0");
    // No forecast before the first season is complete.
    check("4 5 9 4 5", "forecasting:holt_winters(0, 0, 0, period=3m)", ". . 9 4 5 9 4 5 9 4");
}

#[test]
fn numbers_before_the_view_count() {
    let two = |time: i64| Some(StepValue::Number(if time < T0 { 2.0 } else { 4.0 }));
    let steps = StepGrid { start: T0, step: MINUTE_NS, count: 2 };
    assert_eq!(
        format_streams(&run_kernel("forecasting:ewma(0.5)", &[&two], steps).unwrap()),
        "3 3.5"
    );
}
