//! Searches against simulated servers with a known capacity.

use std::convert::Infallible;

use super::*;
use crate::schedule::SplitMix64;

const MS: f64 = 1e6;

/// A single server with constant service time, FIFO queue, and Poisson or constant arrivals
/// (Lindley).
struct Server {
    service_ns: f64,
    is_random: bool,
    random: SplitMix64,
    trials_run: usize,
}

impl Server {
    fn new(service_ns: f64, is_random: bool, seed: u64) -> Server {
        Server { service_ns, is_random, random: SplitMix64::new(seed), trials_run: 0 }
    }

    fn measure(&mut self, rate: f64, duration_ns: u64) -> TrialMeasurement {
        self.trials_run += 1;
        let (mut measurement, mut now, mut free) = (TrialMeasurement::default(), 0.0, 0.0_f64);
        let gap = 1e9 / rate;
        loop {
            now += if self.is_random { -self.random.unit_interval().ln() * gap } else { gap };
            if now >= duration_ns as f64 {
                // Once, because these are millions of equal values.
                measurement.service.record_n(self.service_ns, measurement.response.count());
                return measurement;
            }
            free = free.max(now) + self.service_ns;
            measurement.response.record(free - now);
        }
    }
}

fn limit(quantile: f64, limit_ms: f64) -> LatencyLimit {
    let written = format!("p{:.1}<={limit_ms}ms", quantile * 100.0);
    LatencyLimit::try_from(&written.parse::<Requirement>().unwrap()).unwrap()
}

fn search(quantile: f64, limit_ms: f64) -> CapacitySearch {
    CapacitySearch {
        requirements: vec![limit(quantile, limit_ms)],
        first_rate: 20.0,
        tolerance: 0.02,
        tail_requests: 200,
        ..CapacitySearch::default()
    }
}

/// The highest rate that passes in long runs.
fn highest_passing_rate(service_ns: f64, passes: impl Fn(&TrialMeasurement) -> bool) -> f64 {
    let (mut below, mut above) = (1.0, 1e9 / service_ns);
    while above / below > 1.001 {
        let rate = (below + above) / 2.0;
        let duration_ns = (1_000_000.0 / rate * 1e9) as u64;
        let measurement = Server::new(service_ns, true, 77).measure(rate, duration_ns);
        if passes(&measurement) { below = rate } else { above = rate }
    }
    below
}

#[track_caller]
fn near(found: f64, expected: f64, share: f64) {
    assert!((found / expected - 1.0).abs() <= share, "{found} {expected}");
}

fn found(
    search: &CapacitySearch,
    mut measure: impl FnMut(TrialSpec) -> TrialMeasurement,
) -> SearchResult {
    let found: Result<SearchResult, (Infallible, _)> = search.run(&mut |trial| Ok(measure(trial)));
    found.unwrap()
}

#[test]
fn constant_search_finds_the_capacity() {
    for capacity in [37.0, 1_200.0, 96_000.0] {
        let mut server = Server::new(1e9 / capacity, false, 1);
        let search = search(0.99, 1e3 / capacity + 20.0);
        let found = found(&search, |trial| server.measure(trial.rate, trial.duration_ns));
        let sustained = found.sustained.unwrap();
        near(sustained.rate, capacity, 0.03);
        assert_eq!((sustained.passed_runs, sustained.runs), (5, 5));
        let UpperBound::TargetFailed(above) = found.upper_bound else {
            panic!("{:?}", found.upper_bound)
        };
        assert!(above > sustained.rate && above <= sustained.rate * 1.021);
        // Below the capacity there is no queue; above it the queue grows without bound.
        near(found.knee.lower_rate.unwrap(), capacity, 0.06);
        assert!(server.trials_run < 60, "{}", server.trials_run);
    }
}

#[track_caller]
fn check_random_arrivals(quantile: f64, limit_ms: f64, seed: u64) {
    let mut server = Server::new(MS, true, seed);
    // Waiting times of neighbours are correlated: a trial of the usual duration gives its
    // percentile to some percent only.
    let max_duration_ns = 3_600_000_000_000;
    let search =
        CapacitySearch { tail_requests: 1_000, max_duration_ns, ..search(quantile, limit_ms) };
    let found = found(&search, |trial| server.measure(trial.rate, trial.duration_ns));
    near(
        found.sustained.unwrap().rate,
        highest_passing_rate(MS, |one| search.requirements[0].is_met(one)),
        0.03,
    );
    // Twice the service time.
    let knee = highest_passing_rate(MS, |one| p99(&one.response) <= 2.0 * MS);
    near(found.knee.lower_rate.unwrap(), knee, 0.08);
}

// Three tests instead of one, so that they run in parallel: each simulates hours of requests.

#[test]
fn poisson_search_finds_the_capacity_for_p99() {
    check_random_arrivals(0.99, 5.0, 1);
}

#[test]
fn poisson_search_finds_the_capacity_for_a_longer_limit() {
    check_random_arrivals(0.99, 10.0, 2);
}

#[test]
fn poisson_search_finds_the_capacity_for_p999() {
    check_random_arrivals(0.999, 8.0, 3);
}

/// Every tenth trial is distorted by a stall of the machine.
#[test]
fn single_failures_do_not_lower_the_rate() {
    for seed in 0..5 {
        let mut server = Server::new(1e9 / 1_200.0, false, 1);
        let mut accidents = SplitMix64::new(seed);
        let found = found(&search(0.99, 20.0), |trial| {
            let mut measurement = server.measure(trial.rate, trial.duration_ns);
            if accidents.unit_interval() < 0.1 {
                measurement.response.record_n(200.0 * MS, measurement.response.count() / 20);
            }
            measurement
        });
        near(found.sustained.unwrap().rate, 1_200.0, 0.03);
    }
}

#[test]
fn generator_limit_is_reported_as_at_least() {
    let mut server = Server::new(1e9 / 10_000.0, false, 1);
    let found = found(&search(0.99, 20.0), |trial| {
        let mut measurement = server.measure(trial.rate, trial.duration_ns);
        if trial.rate > 3_000.0 {
            measurement.response.record_n(500.0 * MS, measurement.response.count());
            measurement.invalid_reasons.push(InvalidReason::GeneratorCpuSaturated { share: 1.0 });
        }
        measurement
    });
    near(found.sustained.unwrap().rate, 3_000.0, 0.03);
    assert!(
        matches!(found.upper_bound, UpperBound::GeneratorLimited(_)),
        "{:?}",
        found.upper_bound
    );
    let text = found.to_string();
    assert!(text.contains("at least 2") && text.contains("the generator was the limit"), "{text}");
}

/// Failed requests are not answered in time, even if the others are fast.
#[test]
fn failed_requests_fail_a_trial() {
    let mut server = Server::new(1e9 / 10_000.0, false, 1);
    let found = found(&search(0.99, 20.0), |trial| {
        let mut measurement = server.measure(trial.rate, trial.duration_ns);
        measurement.failed_requests = (trial.rate > 500.0).into();
        measurement.failed_requests *= measurement.response.count() / 20;
        measurement
    });
    near(found.sustained.unwrap().rate, 500.0, 0.03);
    near(found.knee.lower_rate.unwrap(), 500.0, 0.06);
}

#[test]
fn no_sustained_rate_is_reported() {
    let mut server = Server::new(30.0 * MS, false, 1);
    let found = found(&search(0.99, 20.0), |trial| server.measure(trial.rate, trial.duration_ns));
    assert!(found.sustained.is_none());
    assert!(
        found.to_string().starts_with("sustained: none; the lowest rate tried was 1.25/s"),
        "{found}"
    );
}

#[test]
fn max_rate_is_not_exceeded() {
    let mut server = Server::new(1e9 / 10_000.0, false, 1);
    let search = CapacitySearch { max_rate: 900.0, ..search(0.99, 20.0) };
    let found = found(&search, |trial| server.measure(trial.rate, trial.duration_ns));
    assert_eq!((found.sustained.unwrap().rate, found.upper_bound), (900.0, UpperBound::Untested));
    assert_eq!(found.knee, Knee { lower_rate: Some(900.0), upper_bound: UpperBound::Untested });
    assert!(found.trials.iter().all(|step| step.rate <= 900.0));
}

/// A trial with a stall is repeated; if every attempt stalls, the result says so.
#[test]
fn stalled_trials_are_repeated() {
    let mut server = Server::new(1e9 / 1_200.0, false, 1);
    let mut trials_run = 0;
    let mut run = |is_always: bool| {
        found(&search(0.99, 20.0), |trial| {
            trials_run += 1;
            let unknown_outcome_share = if is_always || trials_run % 4 == 1 { 0.3 } else { 0.0 };
            TrialMeasurement {
                unknown_outcome_share,
                ..server.measure(trial.rate, trial.duration_ns)
            }
        })
    };
    near(run(false).sustained.unwrap().rate, 1_200.0, 0.03);
    let never = run(true);
    assert!(
        never.sustained.is_none() && matches!(never.upper_bound, UpperBound::GeneratorLimited(_))
    );
}

#[test]
fn knee_without_requirements_and_errors_end_a_search() {
    let mut server = Server::new(MS, true, 9);
    let search = CapacitySearch { first_rate: 20.0, ..CapacitySearch::default() };
    let found = found(&search, |trial| server.measure(trial.rate, trial.duration_ns));
    let knee = highest_passing_rate(MS, |one| p99(&one.response) <= 2.0 * MS);
    near(found.knee.lower_rate.unwrap(), knee, 0.1);
    assert!(found.sustained.is_none() && found.to_string().starts_with("knee: between"), "{found}");
    let mut left = 2;
    let (error, trials) = search
        .run(&mut |trial| {
            left -= 1;
            if left < 0 { Err("stop") } else { Ok(server.measure(trial.rate, trial.duration_ns)) }
        })
        .unwrap_err();
    assert_eq!((error, trials.len()), ("stop", 2));
}

#[test]
fn confidence_interval_matches_tables() {
    let check = |passed_runs, runs, expected: (f64, f64)| {
        let found = SustainedRate { rate: 1.0, passed_runs, runs }.confidence();
        assert!(
            (found.0 - expected.0).abs() < 5e-4 && (found.1 - expected.1).abs() < 5e-4,
            "{found:?}"
        );
    };
    check(5, 5, (0.5655, 1.0));
    check(4, 5, (0.3755, 0.9638));
    check(0, 10, (0.0, 0.2775));
    check(50, 100, (0.4038, 0.5962));
}

#[test]
fn trial_duration_suffices_for_tail_and_queue() {
    let search = search(0.999, 10.0);
    // 200 of 200,000 are above p99.9.
    assert_eq!(search.duration_ns(20_000.0), 10_000_000_000);
    // A queue that grows by 2 % reaches 20 ms after a second.
    assert_eq!(search.duration_ns(10_000_000.0), 1_000_000_000);
    assert_eq!(search.duration_ns(1.0), search.max_duration_ns);
}
