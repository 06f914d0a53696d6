//! Windows on the specification's fixture, in time zones, and compared with a slow reference
//! implementation.

use proptest::prelude::*;

use super::super::test_kernel::{
    A, B, C, D, MINUTE_NS, T0, constant, format_streams, h, numbers, run_kernel, run_kernel_serial,
    view,
};
use crate::stream::StepGrid;
use crate::value::StepValue;

#[track_caller]
fn check(input: &str, call: &str, expected: &str) {
    let made = numbers(input);
    let streams = run_kernel(call, &[&made], view(10)).unwrap();
    assert_eq!(format_streams(&streams), expected, "{call}");
}

#[test]
fn golden() {
    check(A, "window:sum(5m)", "15 15 15 15 15 40 40 40 40 40");
    check(A, r#"window:sum(5m, align="end")"#, ". . . . . 15 15 15 15 15");
    check(A, "rolling:mean(3m)", "1 1.5 2 3 4 5 6 7 8 9");
    check(B, "rolling:count(3m)", "1 2 2 2 2 3 2 1 1 2");
    check(A, "window:delta(5m)", "4 4 4 4 4 4 4 4 4 4");
    check(C, "window:changes(5m)", "4 4 4 4 4 4 4 4 4 4");
    let root = "1.4142136 ".repeat(10);
    check(A, "window:stddev(5m)", root.trim_end());
    check(D, "window:resets(10m)", "1 1 1 1 1 1 1 1 1 1");
    check(D, "window:increase(10m)", "1290 1290 1290 1290 1290 1290 1290 1290 1290 1290");
    check(D, "window:delta(10m)", "390 390 390 390 390 390 390 390 390 390");
}

#[test]
fn every_number_function() {
    check(A, "window:max(5m)", "5 5 5 5 5 10 10 10 10 10");
    check(A, "window:min(5m)", "1 1 1 1 1 6 6 6 6 6");
    check(A, "window:mean(5m)", "3 3 3 3 3 8 8 8 8 8");
    check(A, "window:popvar(5m)", "2 2 2 2 2 2 2 2 2 2");
    check(A, "window:first(5m)", "1 1 1 1 1 6 6 6 6 6");
    check(A, "window:last(5m)", "5 5 5 5 5 10 10 10 10 10");
    check(A, "window:percentile(5m, 25)", "2 2 2 2 2 7 7 7 7 7");
    check(A, "window:inverse_percentile(5m, 3)", "40 40 40 40 40 0 0 0 0 0");
    check(B, "window:sum(1m)", "10 10 . 10 10 10 . . 10 10");
    check(B, "window:count(1m)", "1 1 0 1 1 1 0 0 1 1");
    check(B, "window:absent(1m)", "0 0 1 0 0 0 1 1 0 0");
    check(B, "window:present(1m)", "1 1 . 1 1 1 . . 1 1");
    check(B, "rolling:percentile(2m, 50)", "10 10 10 10 10 10 10 . 10 10");
    check(A, "rolling:max(3m)", "1 2 3 4 5 6 7 8 9 10");
    check(A, "rolling:min(3m)", "1 1 1 2 3 4 5 6 7 8");
}

#[test]
fn skip_offset_and_align() {
    check(A, "window:sum(2m, skip=5m)", "3 3 3 3 3 13 13 13 13 13");
    check(A, "window:sum(5m, offset=2m)", "3 3 25 25 25 25 25 27 27 27");
    check(A, "window:sum(5m, offset=-3m)", "3 3 25 25 25 25 25 27 27 27");
    check(A, "window:sum(3m, skip=1m)", "6 9 12 15 18 21 24 27 19 10");
    check(A, "rolling:sum(3m, skip=2m)", ". 3 3 9 9 15 15 21 21 27");
    check(A, r#"rolling:sum(3m, align="start")"#, "6 9 12 15 18 21 24 27 19 10");
}

#[test]
fn serial_windows_are_trailing() {
    let made = numbers(A);
    let streams = run_kernel_serial("window:sum(5m)", &[&made], view(10), true).unwrap();
    assert_eq!(format_streams(&streams), ". . . . . 15 15 15 15 15");
}

#[test]
fn windows_shorter_than_a_slot_are_that_slot() {
    let five = |time: i64| Some(StepValue::Number(((time - T0) / MINUTE_NS) as f64));
    let steps = StepGrid { start: T0, step: 5 * MINUTE_NS, count: 4 };
    assert_eq!(
        format_streams(&run_kernel("rolling:sum(1m)", &[&five], steps).unwrap()),
        "0 5 10 15"
    );
    assert_eq!(
        format_streams(&run_kernel("window:sum(1m)", &[&five], steps).unwrap()),
        "0 5 10 15"
    );
    assert_eq!(
        format_streams(&run_kernel("rolling:sum(10m)", &[&five], steps).unwrap()),
        "-5 5 15 25"
    );
}

#[test]
fn distributions() {
    let made = constant(h());
    let merged = |call: &str| format_streams(&run_kernel(call, &[&made], view(5)).unwrap());
    assert_eq!(merged("window:merge(5m)"), "n=500 n=500 n=500 n=500 n=500");
    assert_eq!(merged("rolling:merge(3m)"), "n=100 n=200 n=300 n=300 n=300");
    check(B, "window:histogram(2m)", "n=2 n=2 n=1 n=1 n=2 n=2 n=0 n=0 n=2 n=2");
}

const HOUR_NS: i64 = 60 * MINUTE_NS;

/// Hours of local days around a clock change, in one-hour slots from midnight UTC.
#[track_caller]
fn check_days(zone: &str, start: i64, call: &str, expected: &str) {
    let one = |_: i64| Some(StepValue::Number(1.0));
    let steps = StepGrid { start: start * 1_000_000_000, step: HOUR_NS, count: 72 };
    let call = call.replace("ZONE", &format!("offset={zone:?}"));
    let streams = run_kernel(&call, &[&one], steps).unwrap();
    let mut runs: Vec<(String, usize)> = Vec::new();
    for word in format_streams(&streams).split(' ') {
        match runs.last_mut() {
            Some((last, count)) if last == word => *count += 1,
            _ => runs.push((word.to_owned(), 1)),
        }
    }
    let runs: Vec<String> = runs.iter().map(|(word, count)| format!("{word}x{count}")).collect();
    assert_eq!(runs.join(" "), expected, "{call} {zone}");
}

#[test]
fn local_days_follow_dst() {
    // 2024-03-30, 2024-10-26 and 2024-11-02, 00:00 UTC.
    let (spring, autumn, fall) = (1_711_756_800, 1_729_900_800, 1_730_505_600);
    check_days("Europe/Berlin", spring, "window:count(1d, ZONE)", "24x23 23x23 24x26");
    check_days("Europe/Berlin", autumn, "window:count(1d, ZONE)", "24x22 25x25 24x25");
    check_days("US/Eastern", fall, "window:count(1d, ZONE)", "24x28 25x25 24x19");
    check_days("UTC", spring, "window:count(1d, ZONE)", "24x72");
    check_days("Asia/Kolkata", spring, "window:count(1d, ZONE)", "24x72");
    check_days(
        "Europe/Berlin",
        spring,
        r#"window:count(1d, ZONE, align="end")"#,
        "24x46 23x24 24x2",
    );
    // The last window of the short day has one hour less.
    check_days("Europe/Berlin", spring, "window:count(12h, ZONE)", "12x35 11x11 12x26");
    check_days("Europe/Berlin", autumn, "window:count(12h, ZONE)", "12x46 1x1 12x25");
    check_days("Europe/Berlin", spring, "window:count(2d, skip=1d, ZONE)", "47x46 48x26");
}

#[test]
fn unknown_zone_is_rejected() {
    let made = numbers(A);
    let refused = run_kernel(r#"window:sum(5m, offset="Mars/Base")"#, &[&made], view(10));
    assert!(refused.unwrap_err().to_string().contains("Mars/Base"));
}

#[test]
fn times_at_i64_limits_are_handled() {
    let one = |_: i64| Some(StepValue::Number(1.0));
    for start in [i64::MIN + 1, i64::MAX - 10 * MINUTE_NS] {
        let steps = StepGrid { start, step: MINUTE_NS, count: 3 };
        // Data before the first timestamp is not read.
        for zone in ["\"Europe/Berlin\"", "1m"] {
            let call = format!(r#"window:count(1m, offset={zone})"#);
            let _ = run_kernel(&call, &[&one], steps);
        }
    }
}

/// Reference implementation: whole slots, each window computed separately.
fn slow(numbers: &[Option<f64>], call: &str, of: &str) -> Vec<Option<f64>> {
    let word = |name: &str, otherwise: i64| {
        let at = call.find(name).map(|at| at + name.len());
        at.map_or(otherwise, |at| {
            call[at..].split('m').next().and_then(|number| number.parse().ok()).unwrap()
        })
    };
    let is_rolling = call.starts_with("rolling");
    let length = word("(", 0);
    let skip = word("skip=", if is_rolling { 1 } else { length });
    let offset = word("offset=", 0);
    let is_end = is_rolling || call.contains("end");
    let t0 = T0 / MINUTE_NS;
    let floor = |minute: i64| (minute - offset).div_euclid(skip) * skip + offset;
    let result = |from: i64, to: i64| {
        let held: Vec<f64> = (from..to)
            .filter_map(|minute| *numbers.get(usize::try_from(minute - t0).ok()?)?)
            .collect();
        let pairs = || held.windows(2).map(|pair| (pair[0], pair[1]));
        let mean = held.iter().sum::<f64>() / held.len() as f64;
        match of {
            "count" => return Some(held.len() as f64),
            "absent" => return Some(f64::from(held.is_empty())),
            _ if held.is_empty() => return None,
            _ => {}
        }
        let mut sorted = held.clone();
        sorted.sort_by(f64::total_cmp);
        Some(match of {
            "sum" => held.iter().sum(),
            "mean" => mean,
            "max" => sorted[sorted.len() - 1],
            "min" => sorted[0],
            "popvar" => held.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / held.len() as f64,
            "first" => held[0],
            "last" => held[held.len() - 1],
            "delta" => held[held.len() - 1] - held[0],
            "changes" => pairs().filter(|(a, b)| a != b).count() as f64,
            "resets" => pairs().filter(|(a, b)| b < a).count() as f64,
            "increase" => pairs().map(|(a, b)| if b < a { b } else { b - a }).sum(),
            "percentile" => {
                let rank = 0.3 * (sorted.len() - 1) as f64;
                let (low, high) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
                low + (high - low) * rank.fract()
            }
            "inverse_percentile" => {
                100.0 * held.iter().filter(|x| **x < 3.0).count() as f64 / held.len() as f64
            }
            _ => 1.0,
        })
    };
    let slots = (0..numbers.len() as i64).map(|at| t0 + at);
    slots
        .map(|minute| match is_end {
            true => {
                let end = floor(if is_rolling { minute + 1 } else { minute });
                result(end - length, end)
            }
            false => result(floor(minute), floor(minute) + length),
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn windows_match_the_reference(
        numbers in proptest::collection::vec(proptest::option::of(-5i8..6), 1..60),
        length in 1u32..20, skip in 1u32..20, offset in 0u32..9, way in 0usize..4, function in 0usize..15,
    ) {
        const FUNCTIONS: [&str; 15] = [
            "sum", "mean", "max", "min", "count", "popvar", "first", "last", "delta", "changes",
            "resets", "increase", "absent", "percentile", "inverse_percentile",
        ];
        let of = FUNCTIONS[function];
        let argument = match of {
            "percentile" => ", 30",
            "inverse_percentile" => ", 3",
            _ => "",
        };
        let call = match way {
            0 => format!("rolling:{of}({length}m{argument})"),
            1 => format!("rolling:{of}({length}m{argument}, skip={skip}m, offset={offset}m)"),
            2 => format!("window:{of}({length}m{argument}, skip={skip}m, offset={offset}m)"),
            _ => format!("window:{of}({length}m{argument}, skip={skip}m, align=\"end\")"),
        };
        let numbers: Vec<Option<f64>> =
            numbers.into_iter().map(|number| number.map(f64::from)).collect();
        let held = numbers.clone();
        let made = move |time: i64| {
            let at = usize::try_from((time - T0).div_euclid(MINUTE_NS)).ok()?;
            held.get(at).copied().flatten().map(StepValue::Number)
        };
        let streams = run_kernel(&call, &[&made], view(numbers.len())).unwrap();
        let found: Vec<Option<f64>> =
            streams[0].points.iter().map(|point| point.as_ref().and_then(StepValue::number)).collect();
        for (at, (found, expected)) in found.iter().zip(slow(&numbers, &call, of)).enumerate() {
            let is_near = match (found, expected) {
                (Some(found), Some(expected)) => (found - expected).abs() < 1e-9,
                (None, None) => true,
                _ => false,
            };
            prop_assert!(is_near, "{call}: slot {at} is {found:?}, not {expected:?}");
        }
    }
}
