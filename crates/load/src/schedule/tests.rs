//! Scheduled times against arithmetic by hand.

use super::*;

#[test]
fn rates_are_formatted_with_unit() {
    for (rate, expected) in [
        (1000.0, "1,000/s"),
        (0.25, "0.250/s"),
        (99.5, "99.50/s"),
        (1234.5, "1,235/s"),
        (999.6, "1,000/s"),
        (1e8, "100,000,000/s"),
        (0.0, "0/s"),
    ] {
        assert_eq!(format_rate(rate), expected);
    }
}

const SECOND: u64 = 1_000_000_000;

fn of(segments: &[(f64, f64, u64)]) -> Vec<u64> {
    let segment = |&(from_rate, to_rate, seconds)| ScheduleSegment {
        from_rate,
        to_rate,
        duration_ns: seconds * SECOND,
    };
    let segments = segments.iter().map(segment).collect();
    Schedule::Rate { segments, arrival_process: ArrivalProcess::Constant }.arrivals().collect()
}

#[test]
fn constant_rate_does_not_drift() {
    let all = of(&[(3.0, 3.0, 1_000_000)]);
    assert_eq!(all.len(), 3_000_000);
    assert_eq!(all[0], 0);
    for (n, due) in all.iter().enumerate() {
        let expected = n as f64 / 3.0 * 1e9;
        assert!((*due as f64 - expected).abs() <= 1.0, "{n}: {due}");
    }
}

#[test]
fn ramp_has_its_integral_and_both_end_rates() {
    let all = of(&[(0.0, 1_000.0, 10)]);
    assert_eq!(all.len(), 5_000);
    let last: Vec<u64> = all.iter().rev().take(101).copied().collect();
    let rate = 100.0 / ((last[0] - last[100]) as f64 * 1e-9);
    assert!((rate - 1_000.0).abs() < 15.0, "{rate}");
    assert!(all.windows(2).all(|two| two[0] <= two[1]));
    // From 0, request n is due at the root of n / 50.
    assert!((all[50] as f64 - 1e9).abs() < 10.0, "{}", all[50]);
    let down = of(&[(1_000.0, 0.0, 10)]);
    assert_eq!(down.len(), 5_000);
    assert!(down.last().is_some_and(|last| *last < 10 * SECOND));
}

#[test]
fn segments_are_in_order_even_without_requests() {
    let all = of(&[(10.0, 10.0, 2), (0.0, 0.0, 3), (100.0, 100.0, 1)]);
    assert_eq!(all.len(), 120);
    assert!(all[19] < 2 * SECOND && all[20] == 5 * SECOND, "{} {}", all[19], all[20]);
    assert!(
        of(&[]).is_empty() && of(&[(0.0, 0.0, 5)]).is_empty() && of(&[(5.0, 5.0, 0)]).is_empty()
    );
}

#[test]
fn poisson_arrivals_have_mean_variance_and_seed() {
    let all = |seed| -> Vec<u64> {
        Schedule::constant(1_000.0, 100 * SECOND, ArrivalProcess::Poisson { seed })
            .arrivals()
            .collect()
    };
    let one = all(1);
    assert_eq!(one, all(1));
    assert_ne!(one, all(2));
    // Four standard deviations.
    assert!((one.len() as f64 - 100_000.0).abs() < 4.0 * 316.3, "{}", one.len());
    let gaps: Vec<f64> = one.windows(2).map(|two| (two[1] - two[0]) as f64 * 1e-6).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{}", variance.sqrt() / mean);
}

#[test]
fn recorded_schedule_is_replayed_exactly() {
    let times = [0, 5, 5, 1_000];
    let schedule = Schedule::Replay(times.into());
    assert_eq!(schedule.arrivals().collect::<Vec<_>>(), times);
    assert_eq!(schedule.duration_ns(), 1_001);
}

/// Rounding adds no request in the last nanosecond.
#[test]
fn whole_request_counts_are_exact() {
    for rate in [1u64, 3, 20, 60, 70, 100, 333, 1_000, 4_999] {
        for length_ms in [100u64, 300, 500, 700, 1_000, 1_500, 3_000] {
            let schedule =
                Schedule::constant(rate as f64, length_ms * 1_000_000, ArrivalProcess::Constant);
            let expected = (rate * length_ms).div_ceil(1_000);
            assert_eq!(schedule.arrivals().count() as u64, expected, "{rate}/s, {length_ms} ms");
        }
    }
}
