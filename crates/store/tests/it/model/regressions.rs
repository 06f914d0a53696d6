//! Failures found by random programs.

use hist::{Histogram, Scheme};
use model::{Sample, SampleValue};
use store::{DAY, HOUR, MINUTE, Resolution, TimeGrid};

use super::evaluator::ModelSample;
use super::program::{BEGIN, ModelRun, WITHOUT_EXTREMES, without_extremes};
use super::retention::{histogram, number, retention_rule};

const LATENCY: usize = 0;
const EXPLICIT: usize = 3;
const BYTES: usize = 6;
const OTHER_BYTES: usize = 7;
const LOAD: usize = 8;

fn of_scheme(end: i64, scheme: Scheme, values: &[f64], thresholds: &[f64]) -> ModelSample {
    let mut histogram = Histogram::new(scheme).with_thresholds(thresholds).unwrap();
    values.iter().for_each(|&value| histogram.record(value));
    let value = SampleValue::Histogram(Box::new(histogram));
    ModelSample { sample: Sample { start: end - MINUTE, end, value }, values: values.to_vec() }
}

/// Compares everything in the head, in parts, and rolled up.
fn check_everywhere(mut run: ModelRun, series: usize) {
    let begin = BEGIN - 4 * DAY;
    let compare = |run: &ModelRun| {
        for (step, columns) in [(8 * DAY, 1), (DAY, 8), (HOUR, 8 * 24), (DAY + 1, 8)] {
            run.compare(TimeGrid { start: begin, step, columns }, &[series]);
        }
    };
    compare(&run);
    run.store().flush().unwrap();
    compare(&run);
    run.advance(3 * DAY);
    run.store().maintain().unwrap();
    compare(&run);
    run.reopen();
    compare(&run);
}

#[test]
fn an_empty_histogram_of_a_coarser_grid_leaves_no_trace() {
    for ends in [[0, 0], [0, MINUTE], [MINUTE, 0]] {
        let mut run = ModelRun::new();
        let [full, empty] = ends.map(|end| BEGIN - DAY + end);
        run.send(0, vec![(LATENCY, of_scheme(full, Scheme::default(), &[1.0], &[]))]);
        run.send(0, vec![(LATENCY, of_scheme(empty, Scheme::exp2(3).unwrap(), &[], &[]))]);
        check_everywhere(run, LATENCY);
    }
}

#[test]
fn samples_of_one_window_add_up_whatever_came_between() {
    let mut run = ModelRun::new();
    for scheme in [Scheme::default(), Scheme::LogLinear10, Scheme::default(), Scheme::LogLinear10] {
        run.send(0, vec![(LATENCY, of_scheme(BEGIN, scheme, &[7.0], &[]))]);
    }
    let view = run.store().view().unwrap();
    let found = view.select(&model::Selector::All);
    let mut samples = 0;
    view.samples(&found[0], 0..i64::MAX, &mut |_| samples += 1).unwrap();
    assert_eq!(samples, 2);
    drop(view);
    check_everywhere(run, LATENCY);
}

#[test]
fn unnoticed_restart_loses_no_chunk() {
    // The second sample has at least as much in every bucket, and values above a threshold that the
    // first lacks.
    let mut run = ModelRun::new();
    let scheme = Scheme::explicit(&[0.0, 1.0, 10.0, 100.0, 1000.0]).unwrap();
    for (hour, values) in
        [&[101.0][..], &[501.0, 502.0], &[501.0, 502.0, 3.0]].into_iter().enumerate()
    {
        let end = BEGIN - DAY + hour as i64 * HOUR;
        let mut taken = of_scheme(end, scheme.clone(), values, &[10.0, 500.0]);
        (taken.sample.start, taken.values) = (BEGIN - 2 * DAY, Vec::new());
        run.send(0, vec![(EXPLICIT, taken)]);
    }
    check_everywhere(run, EXPLICIT);
}

#[test]
fn thresholds_of_a_series_that_begins_empty_stay_exact() {
    let mut run = ModelRun::new();
    for (hour, values) in [&[][..], &[20.0], &[20.0, 600.0]].into_iter().enumerate() {
        let end = BEGIN - DAY + hour as i64 * HOUR;
        let thresholds: &[f64] = if values.is_empty() { &[] } else { &[10.0, 500.0] };
        let mut taken = of_scheme(end, Scheme::default(), values, thresholds);
        let SampleValue::Histogram(value) = &taken.sample.value else { panic!("no histogram") };
        let value = without_extremes(Histogram::clone(value));
        taken.sample = Sample { start: end, end, value: SampleValue::Histogram(Box::new(value)) };
        taken.values = Vec::new();
        run.send(0, vec![(WITHOUT_EXTREMES, taken)]);
    }
    check_everywhere(run, WITHOUT_EXTREMES);
}

#[test]
fn rollup_keeps_extremes_after_unnoticed_restart() {
    let mut run = ModelRun::new();
    let scheme = Scheme::explicit(&[0.0, 1.0, 10.0, 100.0, 1000.0]).unwrap();
    for (hour, values) in [&[1e6, 1.0][..], &[1001.0], &[1e6, 1.0]].into_iter().enumerate() {
        let end = BEGIN - DAY + hour as i64 * HOUR;
        let mut taken = of_scheme(end, scheme.clone(), values, &[]);
        (taken.sample.start, taken.values) = (end, Vec::new());
        run.send(0, vec![(EXPLICIT, taken)]);
    }
    check_everywhere(run, EXPLICIT);
}

#[test]
fn deleting_a_reading_changes_the_step_of_the_next_day() {
    let mut run = ModelRun::new();
    for (day, value) in [(-3, 10.0), (-2, 15.0), (-1, 100.0)] {
        let end = BEGIN + day * DAY + HOUR;
        run.send(0, vec![(BYTES, number(BEGIN - 9 * DAY, end, value))]);
    }
    run.advance(2 * DAY);
    run.store().maintain().unwrap();
    run.delete("bytes", BEGIN - 2 * DAY..BEGIN - DAY);
    check_everywhere(run, BYTES);
}

#[test]
fn deletion_rolls_up_late_rows_of_other_series() {
    let mut run = ModelRun::new();
    run.send(
        0,
        vec![
            (OTHER_BYTES, number(BEGIN - 9 * DAY, BEGIN, 100.0)),
            (LATENCY, histogram(BEGIN - 2 * DAY, BEGIN - 30 * HOUR, &[1.0])),
        ],
    );
    run.advance(HOUR);
    run.store().maintain().unwrap();
    run.send(0, vec![(OTHER_BYTES, number(BEGIN - 9 * DAY, BEGIN - 28 * HOUR, 40.0))]);
    run.delete("latency", BEGIN - 2 * DAY..BEGIN - DAY);
    check_everywhere(run, OTHER_BYTES);
}

#[test]
fn late_readings_change_the_next_days_increase() {
    let mut run = ModelRun::new();
    for (hours, value) in [(-80, 10.0), (1, 100.0)] {
        run.send(0, vec![(BYTES, number(BEGIN - 9 * DAY, BEGIN + hours * HOUR, value))]);
    }
    run.advance(30 * HOUR);
    run.store().maintain().unwrap();
    for (hours, value) in [(-30, 30.0), (-3, 60.0)] {
        run.send(0, vec![(BYTES, number(BEGIN - 9 * DAY, BEGIN + hours * HOUR, value))]);
    }
    run.store().maintain().unwrap();
    check_everywhere(run, BYTES);
}

#[test]
fn point_sample_is_deleted_by_its_preceding_nanosecond() {
    for (from, to) in [(-1, 0), (0, 1), (-2, -1)] {
        let mut run = ModelRun::new();
        run.send(0, vec![(LOAD, number(BEGIN, BEGIN, 3.0))]);
        run.send(0, vec![(BYTES, number(BEGIN, BEGIN, 3.0))]);
        run.delete("*", BEGIN + from..BEGIN + to);
        check_everywhere(run, LOAD);
    }
}

#[test]
fn retention_with_shorter_minute_rollups_terminates() {
    for selector in ["*", "and(host:b)"] {
        let mut run = ModelRun::new();
        let rules = vec![
            retention_rule(Resolution::Base, Some(38 * HOUR), selector),
            retention_rule(Resolution::Minute, Some(HOUR), "*"),
            retention_rule(Resolution::FiveMinutes, Some(21 * HOUR), "*"),
        ];
        run.store().set_retention(rules).unwrap();
        for hours in [-30, -7, 0] {
            let end = BEGIN + hours * HOUR;
            run.send(0, vec![(LATENCY, histogram(end - MINUTE, end, &[1.0]))]);
        }
        for _ in 0..4 {
            run.advance(20 * HOUR);
            let rounds = (0..6).take_while(|_| run.store().maintain().unwrap()).count();
            assert!(rounds < 5, "{selector}: there is always something to do");
            let grid = TimeGrid { start: BEGIN - 2 * DAY, step: HOUR, columns: 48 };
            run.compare_answers(grid, &[LATENCY]);
        }
    }
}

#[test]
fn one_column_equals_thousands_of_columns() {
    let mut run = ModelRun::new();
    for minute in (0..2 * 24 * 60).step_by(7) {
        let end = BEGIN - 2 * DAY + minute * MINUTE;
        run.send(0, vec![(LATENCY, histogram(end - MINUTE, end, &[1.0 + minute as f64, 0.1]))]);
        run.send(0, vec![(BYTES, number(BEGIN - 2 * DAY - HOUR, end, minute as f64))]);
    }
    let totals = |run: &ModelRun, columns: u64| {
        let start = BEGIN - 2 * DAY - HOUR;
        let step = (50 * HOUR as u64).div_ceil(columns) as i64;
        let view = run.store().view().unwrap();
        let found = |name: &str| view.select(&model::Selector::parse(name).unwrap());
        let grid = TimeGrid { start, step, columns };
        let mut total = hist::Mixture::default();
        for column in view.histograms(&found("latency"), grid).unwrap() {
            for part in column.unwrap().value.components() {
                total.add(part).unwrap();
            }
        }
        let numbers = view.numbers(&found("bytes"), grid).unwrap();
        let numbers: Vec<f64> =
            numbers.filter_map(|column| column.unwrap().value).map(|n| n.sum.value()).collect();
        (total, numbers.iter().sum::<f64>())
    };
    for _ in 0..2 {
        let one = totals(&run, 1);
        assert_eq!(one.0.count(), 2 * (2 * 24 * 60_u64).div_ceil(7));
        for columns in [2, 1000, 1024, 1025, 3001] {
            assert_eq!(totals(&run, columns), one, "{columns} columns");
        }
        run.advance(2 * DAY);
        run.store().maintain().unwrap();
    }
}
