//! Retention: what expires and what must stay, by resolution, by series, to the boundary.

use hist::Histogram;
use model::{Sample, SampleValue, Selector};
use store::{DAY, HOUR, MINUTE, Resolution, RetentionRule, TimeGrid};

use super::evaluator::ModelSample;
use super::program::{BEGIN, ModelRun};

const LATENCY_A: usize = 0;
const LATENCY_B: usize = 1;
const WAITED: usize = 2;
const REQUESTS: usize = 5;
const BYTES: usize = 6;
const LOAD: usize = 8;

pub(crate) fn retention_rule(
    resolution: Resolution,
    duration: Option<i64>,
    selector: &str,
) -> RetentionRule {
    RetentionRule { resolution, duration, selector: Selector::parse(selector).unwrap() }
}

pub(crate) fn histogram(start: i64, end: i64, values: &[f64]) -> ModelSample {
    let mut histogram = Histogram::default();
    values.iter().for_each(|&value| histogram.record(value));
    let sample = Sample { start, end, value: SampleValue::Histogram(Box::new(histogram)) };
    ModelSample { sample, values: values.to_vec() }
}

pub(crate) fn number(start: i64, end: i64, value: f64) -> ModelSample {
    ModelSample {
        sample: Sample { start, end, value: SampleValue::Number(value) },
        values: Vec::new(),
    }
}

/// From the day of the first sample to now, in columns of `step`.
fn grid(run: &ModelRun, step: i64) -> TimeGrid {
    let extent = run.extent().unwrap();
    let start = extent.start - extent.start.rem_euclid(DAY);
    TimeGrid { start, step, columns: ((run.now - start) as u64).div_ceil(step as u64) }
}

fn samples(run: &ModelRun, series: usize) -> Vec<(i64, i64)> {
    let view = run.store().view().unwrap();
    let found = view.select(&Selector::All);
    let mut times = Vec::new();
    // A series without any rows has been forgotten.
    let Some(found) = found.iter().find(|found| *found.series == run.evaluator.series[series])
    else {
        return times;
    };
    view.samples(found, i64::MIN..i64::MAX, &mut |sample| times.push((sample.start, sample.end)))
        .unwrap();
    times
}

/// Pseudo-random integers.
fn pseudo_random(at: i64) -> f64 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(40) as u32 as f64 % 1e6 + 1.0
}

#[test]
fn year_maximum_equals_the_recorded_value() {
    let mut run = ModelRun::new();
    run.store()
        .set_retention(vec![
            retention_rule(Resolution::Base, Some(3 * DAY), "*"),
            retention_rule(Resolution::Minute, Some(3 * DAY), "*"),
            retention_rule(Resolution::FiveMinutes, Some(10 * DAY), "*"),
            retention_rule(Resolution::Hour, Some(60 * DAY), "*"),
        ])
        .unwrap();
    let mut counted = Histogram::default();
    let (mut bytes, mut late) = (0.0, 0);
    for day in 0..400 {
        let start = BEGIN + day * DAY;
        run.advance(DAY - (run.now - start));
        let mut batch = Vec::new();
        for (at, hour) in [1, 9, 10, 23].into_iter().enumerate() {
            let end = start + hour * HOUR;
            let values = [pseudo_random(4 * day + at as i64) + 0.1, 5.0];
            batch.push((LATENCY_A, histogram(end - MINUTE, end, &values)));
            counted.record(values[0].floor());
            let cumulative = SampleValue::Histogram(Box::new(counted.clone()));
            let sample = Sample { start: BEGIN, end, value: cumulative };
            batch.push((WAITED, ModelSample { sample, values: Vec::new() }));
            bytes += values[0].floor();
            batch.push((BYTES, number(BEGIN, end, bytes)));
            batch.push((LOAD, number(end, end, values[0].floor())));
            batch.push((REQUESTS, number(end - MINUTE, end, 3.0)));
        }
        if day % 7 == 6 {
            // Days whose base expired long ago, and whose hours may have expired too.
            for back in [4, 5, 70] {
                let end = start - back * DAY + 12 * HOUR;
                if end > BEGIN {
                    batch.push((
                        LATENCY_A,
                        histogram(
                            end - MINUTE,
                            end,
                            &[pseudo_random(-day), 2e6 + day as f64 + 0.3],
                        ),
                    ));
                    batch.push((LATENCY_B, histogram(end - MINUTE, end, &[pseudo_random(-day)])));
                    batch.push((REQUESTS, number(end - HOUR, end, 7.0)));
                    late += 1;
                }
            }
        }
        run.send(0, batch);
        run.store().maintain().unwrap();
    }
    assert!(late > 100);
    run.advance(2 * DAY);
    run.store().maintain().unwrap();
    let check = |run: &ModelRun| {
        let year = grid(run, 1).range();
        for step in [DAY, 7 * DAY, year.end - year.start] {
            let grid = grid(run, step);
            run.compare_answers(grid, &[LATENCY_A, LATENCY_B, WAITED]);
            run.compare_answers(grid, &[BYTES]);
            run.compare_answers(grid, &[LOAD]);
        }
        run.compare_sums(grid(run, DAY), &[REQUESTS]);
    };
    check(&run);
    run.reopen();
    check(&run);
    let parts = run.store().stat().unwrap().parts;
    let count = |resolution| parts.iter().filter(|part| part.resolution == resolution).count();
    assert!(count(Resolution::Day) < 20, "put together: {}", count(Resolution::Day));
    assert!(count(Resolution::Base) < 30, "{}", count(Resolution::Base));
    assert!(samples(&run, LATENCY_A).len() < 40);
}

#[test]
fn retained_rows_stay() {
    let mut run = ModelRun::new();
    let rules = vec![
        retention_rule(Resolution::Base, None, "and(host:b)"),
        retention_rule(Resolution::Base, Some(2 * DAY), "latency"),
        retention_rule(Resolution::Base, Some(4 * DAY), "*"),
    ];
    run.store().set_retention(rules).unwrap();
    let mut ends = Vec::new();
    for hour in 0..10 * 24 {
        let end = BEGIN + hour * HOUR;
        run.advance(end - run.now);
        run.send(
            0,
            vec![
                (LATENCY_A, histogram(end - HOUR, end, &[pseudo_random(hour)])),
                (LATENCY_B, histogram(end - HOUR, end, &[pseudo_random(-hour)])),
                (LOAD, number(end, end, pseudo_random(hour))),
            ],
        );
        ends.push(end);
        run.store().maintain().unwrap();
        if hour % 5 > 0 {
            continue;
        }
        for (series, duration) in [(LATENCY_A, 2 * DAY), (LATENCY_B, 1000 * DAY), (LOAD, 4 * DAY)] {
            let found: Vec<i64> = samples(&run, series).iter().map(|time| time.1).collect();
            let must: Vec<i64> =
                ends.iter().copied().filter(|end| end + duration > run.now).collect();
            assert!(must.iter().all(|end| found.contains(end)), "{series}: {found:?} {must:?}");
            // Partitions of six hours expire as a whole, after their end and the late grace.
            let latest = run.now - duration - 6 * HOUR - MINUTE;
            let late = found.iter().filter(|&&end| end < latest).count();
            assert_eq!(late, 0, "{series} at hour {hour}");
        }
        run.compare_answers(grid(&run, HOUR), &[LATENCY_A, LATENCY_B]);
        run.compare_answers(grid(&run, HOUR), &[LOAD]);
        run.compare_answers(grid(&run, DAY), &[LATENCY_A]);
        run.compare_answers(grid(&run, 90 * MINUTE), &[LATENCY_B]);
    }
    run.reopen();
    run.compare_answers(grid(&run, HOUR), &[LATENCY_A, LATENCY_B]);
}

/// A process that counts from long before the retained range.
#[test]
fn dropped_predecessor_does_not_repeat_the_total() {
    let mut run = ModelRun::new();
    run.store().set_retention(vec![retention_rule(Resolution::Base, Some(2 * DAY), "*")]).unwrap();
    let mut bytes = 0.0;
    for hour in 1..=10 * 24 {
        let end = BEGIN + hour * HOUR;
        run.advance(end - run.now);
        bytes += 100.0;
        run.send(0, vec![(BYTES, number(BEGIN - HOUR, end, bytes))]);
        run.store().maintain().unwrap();
    }
    run.compare_answers(grid(&run, DAY), &[BYTES]);
    // Columns not aligned to hours are answered from base rows.
    let view = run.store().view().unwrap();
    let found = view.select(&Selector::parse("bytes").unwrap());
    let grid = TimeGrid { start: BEGIN + 30 * MINUTE + 1, step: HOUR, columns: 10 * 24 };
    for column in view.numbers(&found, grid).unwrap() {
        let column = column.unwrap();
        assert!(column.value.is_none_or(|value| value.sum.value() <= 100.0), "{column:?}");
    }
    // A late row triggers another rollup of the day.
    let oldest = samples(&run, BYTES)[0].1;
    let end = oldest + 10 * MINUTE;
    let value = (end - BEGIN) / HOUR * 100;
    run.send(0, vec![(BYTES, number(BEGIN - HOUR, end, value as f64 + 10.0))]);
    run.store().maintain().unwrap();
    let view = run.store().view().unwrap();
    let days = TimeGrid { start: BEGIN, step: DAY, columns: 10 };
    for column in view.numbers(&found, days).unwrap() {
        let column = column.unwrap();
        assert!(column.value.is_none_or(|value| value.sum.value() <= 2400.0), "{column:?}");
    }
}

#[test]
fn late_rows_add_to_rollups_without_base() {
    let mut run = ModelRun::new();
    run.store().set_retention(vec![retention_rule(Resolution::Base, Some(2 * DAY), "*")]).unwrap();
    for day in 0..8 {
        let end = BEGIN + day * DAY + 7 * MINUTE;
        run.advance(end - run.now);
        run.send(
            0,
            vec![
                (LATENCY_A, histogram(end - MINUTE, end, &[pseudo_random(day)])),
                (REQUESTS, number(end - MINUTE, end, 5.0)),
            ],
        );
        run.store().maintain().unwrap();
    }
    run.advance(HOUR);
    let check = |run: &ModelRun| {
        for step in [MINUTE, 5 * MINUTE, HOUR, 90 * MINUTE, DAY] {
            run.compare_answers(grid(run, step), &[LATENCY_A, LATENCY_B]);
            run.compare_sums(grid(run, step), &[REQUESTS]);
        }
    };
    check(&run);
    for round in 0..3 {
        let mut batch = Vec::new();
        for day in [0, 1, 3, 6] {
            let end = BEGIN + day * DAY + 7 * MINUTE + round * 3 * MINUTE;
            batch.push((LATENCY_A, histogram(end - MINUTE, end, &[pseudo_random(day + 100), 3.0])));
            batch.push((LATENCY_B, histogram(end - MINUTE, end, &[pseudo_random(day + 200)])));
            batch.push((REQUESTS, number(end - MINUTE, end, 11.0)));
        }
        run.send(0, batch);
        check(&run);
        run.store().flush().unwrap();
        check(&run);
        run.store().maintain().unwrap();
        check(&run);
        run.advance(7 * HOUR);
        run.store().maintain().unwrap();
        check(&run);
    }
    assert!(samples(&run, LATENCY_A).iter().all(|time| time.1 + 3 * DAY > run.now));
}

#[test]
fn deletion_reaches_head_base_and_rollups_to_the_nanosecond() {
    let mut run = ModelRun::new();
    run.store().set_retention(vec![retention_rule(Resolution::Base, Some(2 * DAY), "*")]).unwrap();
    for hour in 0..=6 * 24 {
        let end = BEGIN + hour * HOUR;
        run.advance(end - run.now);
        run.send(
            0,
            vec![
                (LATENCY_A, histogram(end - MINUTE, end, &[pseudo_random(hour)])),
                (LATENCY_B, histogram(end - MINUTE, end + 1, &[pseudo_random(hour)])),
                (LOAD, number(end, end, pseudo_random(hour))),
            ],
        );
        if hour % 5 == 0 {
            run.store().maintain().unwrap();
        }
    }
    // Late in a day of which only rollups are left, and in one with some base rows.
    for day in [1, 4] {
        let end = BEGIN + day * DAY + 30 * MINUTE;
        run.send(0, vec![(LATENCY_A, histogram(end - MINUTE, end, &[77.0, pseudo_random(-day)]))]);
    }
    let check = |run: &ModelRun| {
        for step in [HOUR, DAY] {
            run.compare_answers(grid(run, step), &[LATENCY_A]);
            run.compare_answers(grid(run, step), &[LATENCY_B]);
            run.compare_answers(grid(run, step), &[LOAD]);
        }
        let recent = run.now - DAY;
        let grid = TimeGrid { start: recent + 1, step: 17 * MINUTE, columns: 100 };
        run.compare(grid, &[LATENCY_A, LATENCY_B, LOAD]);
    };
    check(&run);
    // Whole days where only rollups are left; base rows to the nanosecond.
    run.delete("latency", BEGIN + DAY..BEGIN + 2 * DAY);
    check(&run);
    run.delete("and(host:a)", run.now - HOUR..run.now);
    check(&run);
    run.delete("*", run.now - 12 * HOUR..run.now - 7 * HOUR + 1);
    check(&run);
    run.delete("latency", BEGIN + 3 * DAY..BEGIN + 5 * DAY);
    check(&run);
    run.advance(DAY);
    run.store().maintain().unwrap();
    run.compare_answers(grid(&run, DAY), &[LATENCY_A, LATENCY_B]);
    run.reopen();
    run.compare_answers(grid(&run, DAY), &[LATENCY_A, LATENCY_B]);
}

#[test]
fn resent_rows_after_deletion_are_counted() {
    let mut run = ModelRun::new();
    let send = |run: &mut ModelRun| {
        let samples = (0..48).map(|hour| {
            let end = BEGIN + hour * HOUR;
            (LATENCY_A, histogram(end - HOUR, end, &[pseudo_random(hour)]))
        });
        run.send(0, samples.collect());
    };
    run.advance(4 * DAY);
    send(&mut run);
    run.store().maintain().unwrap();
    run.delete("latency", BEGIN..BEGIN + DAY);
    run.compare(grid(&run, 90 * MINUTE), &[LATENCY_A]);
    send(&mut run);
    run.compare(grid(&run, 90 * MINUTE), &[LATENCY_A]);
    run.store().maintain().unwrap();
    run.compare(grid(&run, 90 * MINUTE), &[LATENCY_A]);
    run.delete("*", i64::MIN..i64::MAX);
    assert_eq!(run.extent(), None);
    assert_eq!(samples(&run, LATENCY_A), []);
    let deleted = run.store().delete(&Selector::All, 0..i64::MAX).unwrap();
    assert_eq!(deleted, store::DeletionResult::default());
    send(&mut run);
    run.store().maintain().unwrap();
    run.compare(grid(&run, DAY), &[LATENCY_A]);
}
