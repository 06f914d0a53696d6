//! Searches against servers that are formulas: what they hold is known.

use std::convert::Infallible;

use super::*;
use crate::schedule::Random;

const MS: f64 = 1e6;

/// Requests come at random or evenly, each is served in the same time by one server, in the order in which they came (Lindley).
struct Server {
    service_ns: f64,
    is_random: bool,
    random: Random,
    asked: usize,
}

impl Server {
    fn new(service_ns: f64, is_random: bool, seed: u64) -> Server {
        Server { service_ns, is_random, random: Random::new(seed), asked: 0 }
    }

    fn measure(&mut self, rate: f64, length_ns: u64) -> Measured {
        self.asked += 1;
        let (mut measured, mut now, mut free) = (Measured::default(), 0.0, 0.0_f64);
        let gap = 1e9 / rate;
        loop {
            now += if self.is_random { -self.random.share().ln() * gap } else { gap };
            if now >= length_ns as f64 {
                return measured;
            }
            free = free.max(now) + self.service_ns;
            measured.response.record(free - now);
            measured.service.record(self.service_ns);
        }
    }
}

fn limit(quantile: f64, limit_ms: f64) -> Limit {
    let written = format!("p{:.1}<={limit_ms}ms", quantile * 100.0);
    Limit::try_from(&written.parse::<Requirement>().unwrap()).unwrap()
}

fn search(quantile: f64, limit_ms: f64) -> Search {
    Search {
        requirements: vec![limit(quantile, limit_ms)],
        first_rate: 20.0,
        precision: 0.02,
        tail: 200,
        ..Search::default()
    }
}

/// The rate up to which this holds, by long runs.
fn truth(service_ns: f64, holds: impl Fn(&Measured) -> bool) -> f64 {
    let (mut below, mut above) = (1.0, 1e9 / service_ns);
    while above / below > 1.001 {
        let rate = (below + above) / 2.0;
        let length_ns = (1_000_000.0 / rate * 1e9) as u64;
        let measured = Server::new(service_ns, true, 77).measure(rate, length_ns);
        if holds(&measured) { below = rate } else { above = rate }
    }
    below
}

#[track_caller]
fn near(found: f64, expected: f64, share: f64) {
    assert!((found / expected - 1.0).abs() <= share, "{found} {expected}");
}

fn found(search: &Search, mut measure: impl FnMut(Ask) -> Measured) -> Found {
    let found: Result<Found, (Infallible, _)> = search.run(&mut |ask| Ok(measure(ask)));
    found.unwrap()
}

#[test]
fn an_even_schedule_is_held_up_to_the_capacity() {
    for capacity in [37.0, 1_200.0, 96_000.0] {
        let mut server = Server::new(1e9 / capacity, false, 1);
        let search = search(0.99, 1e3 / capacity + 20.0);
        let found = found(&search, |ask| server.measure(ask.rate, ask.length_ns));
        let held = found.held.unwrap();
        near(held.rate, capacity, 0.03);
        assert_eq!((held.met, held.of), (5, 5));
        let Above::Broken(above) = found.above else { panic!("{:?}", found.above) };
        assert!(above > held.rate && above <= held.rate * 1.021);
        // Up to the capacity there is no queue at all, beyond it one without end.
        near(found.knee.below.unwrap(), capacity, 0.06);
        assert!(server.asked < 60, "{}", server.asked);
    }
}

#[track_caller]
fn check_random_arrivals(quantile: f64, limit_ms: f64, seed: u64) {
    let mut server = Server::new(MS, true, seed);
    // Waits of neighbours are alike: with the usual length, a run tells its percentile to some
    // percent only.
    let length_max_ns = 3_600_000_000_000;
    let search = Search { tail: 1_000, length_max_ns, ..search(quantile, limit_ms) };
    let found = found(&search, |ask| server.measure(ask.rate, ask.length_ns));
    near(found.held.unwrap().rate, truth(MS, |one| search.requirements[0].is_met(one)), 0.03);
    // Twice the service time.
    let knee = truth(MS, |one| p99(&one.response) <= 2.0 * MS);
    near(found.knee.below.unwrap(), knee, 0.08);
}

// Three tests and not one, so that they run at once: each simulates hours of requests.

#[test]
fn random_arrivals_are_held_as_far_as_the_queue_allows() {
    check_random_arrivals(0.99, 5.0, 1);
}

#[test]
fn random_arrivals_are_held_as_far_as_a_longer_queue_allows() {
    check_random_arrivals(0.99, 10.0, 2);
}

#[test]
fn random_arrivals_are_held_as_far_as_the_last_thousandth_allows() {
    check_random_arrivals(0.999, 8.0, 3);
}

/// Each tenth run is spoilt by a stall of the machine.
#[test]
fn accidents_do_not_lower_the_rate() {
    for seed in 0..5 {
        let mut server = Server::new(1e9 / 1_200.0, false, 1);
        let mut accidents = Random::new(seed);
        let found = found(&search(0.99, 20.0), |ask| {
            let mut measured = server.measure(ask.rate, ask.length_ns);
            if accidents.share() < 0.1 {
                measured.response.record_n(200.0 * MS, measured.response.count() / 20);
            }
            measured
        });
        near(found.held.unwrap().rate, 1_200.0, 0.03);
    }
}

#[test]
fn a_generator_at_its_limit_says_at_least() {
    let mut server = Server::new(1e9 / 10_000.0, false, 1);
    let found = found(&search(0.99, 20.0), |ask| {
        let mut measured = server.measure(ask.rate, ask.length_ns);
        if ask.rate > 3_000.0 {
            measured.response.record_n(500.0 * MS, measured.response.count());
            measured.doubts.push(Doubt::Busy { share: 1.0 });
        }
        measured
    });
    near(found.held.unwrap().rate, 3_000.0, 0.03);
    assert!(matches!(found.above, Above::Generator(_)), "{:?}", found.above);
    let text = found.to_string();
    assert!(text.contains("at least 2") && text.contains("the generator was the limit"), "{text}");
}

/// What failed was not answered in time, also if the others were fast.
#[test]
fn failures_are_not_fast_answers() {
    let mut server = Server::new(1e9 / 10_000.0, false, 1);
    let found = found(&search(0.99, 20.0), |ask| {
        let mut measured = server.measure(ask.rate, ask.length_ns);
        measured.failed = (ask.rate > 500.0).into();
        measured.failed *= measured.response.count() / 20;
        measured
    });
    near(found.held.unwrap().rate, 500.0, 0.03);
    near(found.knee.below.unwrap(), 500.0, 0.06);
}

#[test]
fn what_is_never_held_is_said() {
    let mut server = Server::new(30.0 * MS, false, 1);
    let found = found(&search(0.99, 20.0), |ask| server.measure(ask.rate, ask.length_ns));
    assert!(found.held.is_none());
    assert!(found.to_string().starts_with("held: no rate; the lowest tried was 1.25/s"), "{found}");
}

#[test]
fn no_higher_rate_than_asked_for() {
    let mut server = Server::new(1e9 / 10_000.0, false, 1);
    let search = Search { rate_max: 900.0, ..search(0.99, 20.0) };
    let found = found(&search, |ask| server.measure(ask.rate, ask.length_ns));
    assert_eq!((found.held.unwrap().rate, found.above), (900.0, Above::Nothing));
    assert_eq!(found.knee, Knee { below: Some(900.0), above: Above::Nothing });
    assert!(found.steps.iter().all(|step| step.rate <= 900.0));
}

/// Where the generator stood still it is measured again; where it always does, that is said.
#[test]
fn what_the_generator_does_not_know_is_measured_again() {
    let mut server = Server::new(1e9 / 1_200.0, false, 1);
    let mut asked = 0;
    let mut run = |is_always: bool| {
        found(&search(0.99, 20.0), |ask| {
            asked += 1;
            let unknown = if is_always || asked % 4 == 1 { 0.3 } else { 0.0 };
            Measured { unknown, ..server.measure(ask.rate, ask.length_ns) }
        })
    };
    near(run(false).held.unwrap().rate, 1_200.0, 0.03);
    let never = run(true);
    assert!(never.held.is_none() && matches!(never.above, Above::Generator(_)));
}

#[test]
fn without_requirements_the_knee_is_found_and_an_error_ends_it() {
    let mut server = Server::new(MS, true, 9);
    let search = Search { first_rate: 20.0, ..Search::default() };
    let found = found(&search, |ask| server.measure(ask.rate, ask.length_ns));
    let knee = truth(MS, |one| p99(&one.response) <= 2.0 * MS);
    near(found.knee.below.unwrap(), knee, 0.1);
    assert!(found.held.is_none() && found.to_string().starts_with("knee: between"), "{found}");
    let mut left = 2;
    let (error, steps) = search
        .run(&mut |ask| {
            left -= 1;
            if left < 0 { Err("stop") } else { Ok(server.measure(ask.rate, ask.length_ns)) }
        })
        .unwrap_err();
    assert_eq!((error, steps.len()), ("stop", 2));
}

#[test]
fn confidence_is_what_tables_say() {
    let check = |met, of, expected: (f64, f64)| {
        let found = Held { rate: 1.0, met, of }.confidence();
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
fn runs_are_long_enough_for_what_they_say() {
    let search = search(0.999, 10.0);
    // 200 of 200,000 are above p99.9.
    assert_eq!(search.length_ns(20_000.0), 10_000_000_000);
    // A queue that grows by 2 % reaches 20 ms after a second.
    assert_eq!(search.length_ns(10_000_000.0), 1_000_000_000);
    assert_eq!(search.length_ns(1.0), search.length_max_ns);
}
