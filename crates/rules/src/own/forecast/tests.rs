//! Forecasts of gauges whose future is known.

use decode::Quantity;

use super::*;

/// Hours of the window: a week.
const HOURS: usize = 168;
const HOUR_S: f64 = 3600.0;
const WINDOW_S: f64 = HOURS as f64 * HOUR_S;

/// Maxima of a week by hour; hour 167 ended now.
fn points(value: impl Fn(usize) -> f64) -> Vec<GaugePoint> {
    let point = |hour: usize| GaugePoint {
        time_s: (hour as f64 - (HOURS - 1) as f64) * HOUR_S,
        value: value(hour),
    };
    (0..HOURS).map(point).collect()
}

/// Hours until the bound: p10, p50 and p90, rounded; infinity is never.
#[track_caller]
fn check(value: impl Fn(usize) -> f64, bound: f64, expected: [f64; 3]) {
    let outcomes = outcomes(&points(value), bound, WINDOW_S, SEED).expect("enough points");
    let hours = [0.1, 0.5, 0.9].map(|share| (quantile(&outcomes, share) / HOUR_S).round());
    assert_eq!(hours, expected);
}

const NEVER: [f64; 3] = [f64::INFINITY; 3];

/// Numbers from -1 to 1 that look random.
fn noise(seed: u64, hour: usize) -> f64 {
    let mut random = RandomSequence(seed.wrapping_mul(1_000_003).wrapping_add(hour as u64));
    random.below(2001) as f64 / 1000.0 - 1.0
}

/// A tooth of 24 hours.
fn tooth(hour: usize) -> f64 {
    (hour % 24) as f64
}

#[test]
fn line_reaches_its_bound_when_it_does() {
    check(|hour| hour as f64, 200.0, [33.0; 3]);
    check(|hour| hour as f64, 167.0, [0.0; 3]);
    check(|_| 5.0, 100.0, NEVER);
    check(|hour| -(hour as f64), 100.0, NEVER);
    // Beyond ten windows.
    check(|hour| hour as f64, 5000.0, NEVER);
}

#[test]
fn straight_line_through_a_sawtooth_does_not_fill_the_disk() {
    // The running tooth is at 23 of at most 23, and rises by 1 per hour.
    check(tooth, 25.0, NEVER);
    let values = points(tooth);
    let straight = slope(&values[HOURS - 24], &values[HOURS - 1]) * HOUR_S;
    assert_eq!(((25.0 - values[HOURS - 1].value) / straight).round(), 2.0);
    // The line through all values rises, too, if the window ends with a peak.
    let count = HOURS as f64;
    let mean_time = values.iter().map(|point| point.time_s).sum::<f64>() / count;
    let mean = values.iter().map(|point| point.value).sum::<f64>() / count;
    let product =
        values.iter().map(|point| (point.time_s - mean_time) * (point.value - mean)).sum::<f64>();
    assert!(product > 0.0, "{product}");
    // Teeth of other lengths, and falls that take several hours.
    check(|hour| (hour % 7) as f64, 8.0, NEVER);
    check(|hour| [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 40.0, 20.0][hour % 8], 70.0, NEVER);
}

#[test]
fn peaks_of_a_sawtooth_are_its_trend() {
    // The peaks are 23, 26, … 41: 3 a day. The last one is now.
    check(|hour| tooth(hour) + (hour / 24) as f64 * 3.0, 50.0, [72.0; 3]);
    // A bound within the teeth is reached in hours.
    check(|hour| tooth(hour + 12), 20.0, [9.0; 3]);
}

#[test]
fn tooth_that_does_not_end_is_a_line() {
    // The logs are not rotated any more: 72 hours ago for the last time.
    let value = |hour: usize| if hour < 96 { tooth(hour) } else { (hour - 96) as f64 };
    check(value, 100.0, [29.0; 3]);
}

#[test]
fn isolated_steps_are_no_growth() {
    check(|hour| if hour < 100 { 10.0 } else { 60.0 }, 100.0, NEVER);
    // Growth of 0.1 per hour, before and after somebody deleted a file.
    let value = |hour: usize| hour as f64 * 0.1 - if hour < 100 { 0.0 } else { 8.0 };
    check(value, 20.0, [113.0; 3]);
}

#[test]
fn staircase_is_growth() {
    // 10 each day, now at 60.
    let outcomes = outcomes(&points(|hour| (hour / 24) as f64 * 10.0), 100.0, WINDOW_S, SEED);
    let median = quantile(&outcomes.expect("enough points"), 0.5) / HOUR_S;
    assert!((72.0..120.0).contains(&median), "{median}");
}

#[test]
fn cycles_of_days_cancel() {
    let day = |hour: usize| (hour as f64 / 24.0 * std::f64::consts::TAU).sin() * 20.0;
    check(|hour| 50.0 + day(hour), 100.0, NEVER);
    let outcomes =
        outcomes(&points(|hour| 50.0 + day(hour) + hour as f64 * 0.1), 200.0, WINDOW_S, SEED);
    let median = quantile(&outcomes.expect("enough points"), 0.5) / HOUR_S;
    assert!((1133.0..1533.0).contains(&median), "{median}");
}

#[test]
fn too_few_values_say_nothing() {
    let all = points(|hour| hour as f64);
    assert_eq!(outcomes(&all[HOURS - 60..], 1000.0, WINDOW_S, SEED), None);
    let sparse: Vec<GaugePoint> = all.iter().step_by(10).copied().collect();
    assert_eq!(outcomes(&sparse, 1000.0, WINDOW_S, SEED), None);
    assert_eq!(outcomes(&[], 1000.0, WINDOW_S, SEED), None);
    // Two peaks are no trend.
    assert_eq!(outcomes(&points(|hour| (hour % 70) as f64), 100.0, WINDOW_S, SEED), None);
}

#[test]
fn outcomes_are_the_same_for_the_same_seed() {
    let points = points(|hour| hour as f64 + 30.0 * noise(1, hour));
    let [first, again, other] =
        [SEED, SEED, SEED + 1].map(|seed| outcomes(&points, 400.0, WINDOW_S, seed).expect("some"));
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert!(first.is_sorted() && first.len() == OUTCOME_COUNT);
}

#[test]
fn most_outcomes_surround_the_truth() {
    // The true line reaches 250 after 83 hours.
    let is_within = |seed: &u64| {
        let points = points(|hour| hour as f64 + 20.0 * noise(*seed, hour));
        let outcomes = outcomes(&points, 250.0, WINDOW_S, SEED).expect("enough points");
        let [low, high] = [0.1, 0.9].map(|share| quantile(&outcomes, share) / HOUR_S);
        assert!(low > 40.0 && high < 160.0, "{low} {high}");
        low <= 83.0 && 83.0 <= high
    };
    let count = (0..200).filter(is_within).count();
    assert!(count >= 160, "{count} of 200");
}

#[test]
fn a_fall_is_a_rise_of_the_negative_value() {
    let forecast = |kind, threshold: &str, within_h: i64, chance| ForecastCriterion {
        bound: ThresholdComparison {
            kind,
            threshold: Quantity::parse(threshold).expect("a quantity"),
        },
        within_ns: within_h * 3600 * SECOND_NS,
        chance,
    };
    let window_ns = HOURS as i64 * 3600 * SECOND_NS;
    let free = points(|hour| 1000.0 - hour as f64);
    let holds = |forecast: &ForecastCriterion, unit| {
        let outcome = compare_forecast(forecast, unit, window_ns, &free)?;
        Ok::<bool, String>(matches!(outcome, CriterionOutcome::Holds(_)))
    };
    // 833 now, 800 in 33 hours.
    let at_most = |within_h| forecast(ComparisonKind::AtMost, "800", within_h, 0.5);
    assert_eq!(holds(&at_most(34), "B"), Ok(true));
    assert_eq!(holds(&at_most(32), "B"), Ok(false));
    assert_eq!(holds(&forecast(ComparisonKind::AtLeast, "2000", 34, 0.1), "B"), Ok(false));
    let error = holds(&forecast(ComparisonKind::AtMost, "5ms", 34, 0.5), "B");
    assert_eq!(error, Err("cannot compare with 5 ms: the unit of the stream is B".to_owned()));
}

#[test]
fn intervals_are_hours_and_shorter_for_short_windows() {
    let hours = |hours: i64| interval_ns(hours * 3600 * SECOND_NS) / (60 * SECOND_NS);
    assert_eq!([31 * 24, 168, 48, 24, 12, 6, 4, 1].map(hours), [60, 60, 60, 15, 15, 5, 5, 1]);
}

#[test]
fn of_many_peaks_the_newest_are_compared() {
    // Three times as many as are compared: they rise, and then stand still.
    let value = |at: usize| if at < 2 * PEAKS_MAX { at as f64 } else { 500.0 };
    let peak = |at: usize| GaugePoint { time_s: at as f64 * HOUR_S, value: value(at) };
    let peaks: Vec<GaugePoint> = (0..3 * PEAKS_MAX).map(peak).collect();
    let Trend { slopes, starts } = Trend::of_peaks(&peaks).expect("enough peaks");
    assert_eq!(slopes.len(), PEAKS_MAX * (PEAKS_MAX - 1) / 2);
    assert!(slopes.iter().all(|slope| *slope == 0.0));
    assert_eq!(starts.len(), PEAKS_MAX / 2);
    // One peak more of the rise.
    let rising = Trend::of_peaks(&peaks[..3 * PEAKS_MAX - 1]).expect("enough peaks");
    let steep = rising.slopes.iter().filter(|slope| **slope > 0.0).count();
    assert_eq!((rising.slopes.len(), steep), (slopes.len(), PEAKS_MAX - 1));
    assert!(Trend::of_peaks(&peaks[..PEAKS_MIN - 1]).is_none());
}
