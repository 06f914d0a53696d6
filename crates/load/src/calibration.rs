//! Calibration: measures in 1 to 5 seconds before a run what this machine can generate.
//!
//! * **Clock**: its source and its error bound.
//! * **Rate**: requests per second that one thread sends on time to an echo server in another
//!   thread. Runs of 60 ms at rising rates end when the generator lag exceeds 200 us at p99 three
//!   times. The echo server uses the same machine, so the result is a lower bound.
//! * **Coordinated-omission test**: a stub server stalls for a quarter of 600 ms. Mean, p50, p99
//!   and max must match [`expected_response_times`] within one bucket plus the measured overhead of
//!   the machine: response time at a low rate, generator lag, lateness of the stub. If the overhead
//!   is 10 ms or more the machine itself stalled; the test is repeated up to three times.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hist::Histogram;

use crate::calibration_check::{CALIBRATION_RATE_MIN, CalibrationCheck, SAFE_UTILISATION};
use crate::error::Error;
use crate::oracle::{ServerStall, expected_response_times};
use crate::request::{RequestTemplate, Requests};
use crate::run::run;
use crate::run_result::RunResult;
use crate::schedule::{ArrivalProcess, Schedule, format_rate};
use crate::settings::Settings;
use crate::stub_server::{StallOnRunStart, StubProtocol, StubServer};
use crate::tally::bucket_width;
use crate::template::Template;
use crate::validity::{GENERATOR_LAG_NS, InvalidReason};
use crate::worker::STALL_NS;

/// Result of a calibration.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Source of clock readings.
    pub clock_mode: clock::ClockMode,
    /// Reason if the source is not the CPU counter.
    pub clock_reason: Option<String>,
    /// Maximum error of a reading. Nanoseconds.
    pub clock_error_ns: u64,
    /// Jumps of the counter or of the system clock.
    pub clock_discontinuities: u64,
    /// Requests per second that one thread sends on time (lower bound); 0 if it missed even the
    /// lowest rate.
    pub max_rate: f64,
    /// CPUs available to threads.
    pub processors: usize,
    /// Measured and expected statistics of the coordinated-omission test.
    pub checks: Vec<CalibrationCheck>,
    /// Runs of the coordinated-omission test.
    pub attempts: u32,
    /// Whether the machine did not stall in the last run.
    pub is_stable: bool,
}

const MS: u64 = 1_000_000;
/// Upper end of the rate test, above 1.28 million/s (seven doublings): a thread that needs a system
/// call per request cannot exceed that.
const CALIBRATION_RATE_LIMIT: f64 = 1_300_000.0;
/// 600 requests at the lowest rate, six of them above p99; all eight rates take half a second.
const RATE_TEST_DURATION_NS: u64 = 60 * MS;
/// A single run may fail because another thread had the CPU.
const RATE_ATTEMPTS: u32 = 3;
/// Maximum generator lag at p99. Twice the limit of a run: the echo server shares the machine, and
/// a run may use only [`SAFE_UTILISATION`] of the result.
const MAX_LAG_NS: f64 = 2.0 * GENERATOR_LAG_NS;
/// 600 requests, six of them above p99, at a rate that any machine can send.
const STALL_TEST_RATE: f64 = 1_000.0;
const STALL_TEST_DURATION_NS: u64 = 600 * MS;
/// A quarter of the requests fall into the stall. Mean and p99 then differ widely from those of a
/// generator with coordinated omission; p50 does not.
const STALL_TEST_STALL: ServerStall = ServerStall { from_ns: 200 * MS, to_ns: 350 * MS };
/// Well above a round trip on loopback, so that p50 is predictable too.
const SERVICE_NS: u64 = 2 * MS;
/// A machine that stalls in three of three runs will stall in the measured run.
const ATTEMPTS: u32 = 3;
/// A good clock has a far smaller error.
const CLOCK_ERROR_MAX_NS: u64 = MS;

/// Measures clock, rate and coordinated omission. Returns early, with partial results, when `stop`
/// is set.
pub fn calibrate(stop: &Arc<AtomicBool>) -> Result<Calibration, Error> {
    let (max_rate, base_ns) = max_rate(stop)?;
    let mut attempts = 0;
    let (checks, is_stable) = loop {
        attempts += 1;
        let (checks, is_stable) = coordinated_omission_test(base_ns, stop)?;
        if is_stable || attempts == ATTEMPTS {
            break (checks, is_stable);
        }
    };
    let status = clock::status();
    Ok(Calibration {
        clock_mode: status.mode,
        clock_reason: status.reason,
        clock_error_ns: clock::error_bound_ns(),
        clock_discontinuities: status.discontinuities,
        max_rate,
        processors: processors(),
        checks,
        attempts,
        is_stable,
    })
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the highest rate sent on time, and p99 of the response time of an echo at the lowest
/// rate.
fn max_rate(stop: &Arc<AtomicBool>) -> Result<(f64, f64), Error> {
    let stub = StubServer::start(StubProtocol::Echo, 0)?;
    let mut base_ns = 0.0;
    let mut is_on_time = |rate: f64| -> Result<bool, Error> {
        for _ in 0..RATE_ATTEMPTS {
            let settings = settings(&stub, rate, RATE_TEST_DURATION_NS);
            let result = run(&settings, stop, &mut ())?;
            if rate == CALIBRATION_RATE_MIN {
                base_ns = quantile(&result.tally.response, 0.99);
            }
            let is_in_time = result.duration_ns <= RATE_TEST_DURATION_NS * 3 / 2;
            let is_on_time = quantile(&result.tally.generator_lag, 0.99) <= MAX_LAG_NS;
            if is_in_time && is_on_time && result.stalls.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let (mut on_time, mut next) = (0.0, CALIBRATION_RATE_MIN);
    while next < CALIBRATION_RATE_LIMIT && is_on_time(next)? {
        (on_time, next) = (next, next * 2.0);
    }
    if on_time > 0.0 && next < CALIBRATION_RATE_LIMIT {
        let between = on_time * std::f64::consts::SQRT_2;
        if is_on_time(between)? {
            on_time = between;
        }
    }
    Ok((on_time, base_ns))
}

/// Returns the checks, and whether the machine did not stall.
fn coordinated_omission_test(
    base_ns: f64,
    stop: &Arc<AtomicBool>,
) -> Result<(Vec<CalibrationCheck>, bool), Error> {
    let stub = StubServer::start(StubProtocol::Http1, SERVICE_NS)?;
    let settings = settings(&stub, STALL_TEST_RATE, STALL_TEST_DURATION_NS);
    let result = run(&settings, stop, &mut StallOnRunStart(&stub, STALL_TEST_STALL))?;
    let end_ns = STALL_TEST_DURATION_NS + settings.grace_period_ns;
    let expected = expected_response_times(
        settings.schedule.arrivals(),
        SERVICE_NS,
        &[STALL_TEST_STALL],
        end_ns,
    );
    Ok(check(&result, &expected, base_ns, stub.max_lateness_ns()))
}

fn check(
    result: &RunResult,
    expected: &Histogram,
    base_ns: f64,
    stub_late_ns: u64,
) -> (Vec<CalibrationCheck>, bool) {
    let lag_ns = result.tally.generator_lag.max().map_or(0.0, |max| max.estimate);
    let base_ns = base_ns + lag_ns + stub_late_ns as f64;
    let is_stable = result.stalls.is_empty() && base_ns < STALL_NS as f64;
    let mean = |of: &Histogram| of.mean().map_or(0.0, |mean| mean.estimate);
    let statistics = [("mean", None), ("p50", Some(0.5)), ("p99", Some(0.99)), ("max", Some(1.0))];
    let checks = statistics.map(|(statistic, q)| {
        let at = |of: &Histogram| q.map_or_else(|| mean(of), |q| quantile(of, q));
        let (measured_ns, expected_ns) = (at(&result.tally.response), at(expected));
        CalibrationCheck {
            statistic,
            measured_ns,
            expected_ns,
            tolerance_ns: expected_ns * bucket_width() + base_ns,
        }
    });
    (checks.to_vec(), is_stable)
}

fn settings(stub: &StubServer, rate: f64, duration_ns: u64) -> Settings {
    let request = RequestTemplate {
        method: "GET".to_owned(),
        path: Template::text("/"),
        body: Template::text(""),
        ..RequestTemplate::default()
    };
    Settings {
        target: Some(stub.target()),
        tls: net::tls::ClientTls::default(),
        schedule: Schedule::constant(rate, duration_ns, ArrivalProcess::Constant),
        requests: Requests::single(request),
        seed: 1,
        threads: 1,
        processors: processors(),
        connections: 64,
        max_connections: 1_000,
        timeout_ns: 10_000 * MS,
        grace_period_ns: 1_000 * MS,
        abort: Arc::default(),
    }
}

fn quantile(of: &Histogram, q: f64) -> f64 {
    of.quantile(q).map_or(0.0, |value| value.estimate)
}

impl Calibration {
    /// Why a run is invalid with this schedule and number of threads.
    pub fn invalid_reasons(&self, schedule: &Schedule, threads: usize) -> Vec<InvalidReason> {
        let mut reasons = Vec::new();
        let scheduled = schedule.max_rate();
        let calibrated = self.max_rate * threads.clamp(1, self.processors.max(1)) as f64;
        // The coordinated-omission test sends at its own rate and checks itself; lower rates need
        // no reason.
        if scheduled > STALL_TEST_RATE && scheduled > calibrated * SAFE_UTILISATION {
            reasons.push(InvalidReason::RateAboveCalibrated { scheduled, calibrated });
        }
        if !self.is_stable {
            reasons.push(InvalidReason::CalibrationUnstable { attempts: self.attempts });
        }
        // The test is meaningless if the machine stalled.
        for one in self.checks.iter().filter(|one| self.is_stable && !one.is_within_tolerance()) {
            reasons.push(InvalidReason::CalibrationFailed(*one));
        }
        if self.clock_discontinuities > 0 || self.clock_error_ns > CLOCK_ERROR_MAX_NS {
            let (discontinuities, error_ns) = (self.clock_discontinuities, self.clock_error_ns);
            reasons.push(InvalidReason::ClockInaccurate { discontinuities, error_ns });
        }
        reasons
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason =
            self.clock_reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
        let (mode, error_ns) = (self.clock_mode.name(), self.clock_error_ns);
        writeln!(f, "clock: {mode}{reason}, error at most {error_ns} ns")?;
        match self.max_rate {
            0.0 => {
                writeln!(
                    f,
                    "rate: one thread did not send even {} on time",
                    format_rate(CALIBRATION_RATE_MIN)
                )?;
            }
            rate => writeln!(f, "rate: one thread sends at least {} on time", format_rate(rate))?,
        }
        let ms = |ns: f64| ns * 1e-6;
        write!(f, "coordinated-omission test:")?;
        for (number, one) in self.checks.iter().enumerate() {
            let (measured, expected) = (ms(one.measured_ns), ms(one.expected_ns));
            let comma = if number > 0 { "," } else { "" };
            write!(f, "{comma} {} {measured:.2} ms (expected {expected:.2} ms)", one.statistic)?;
        }
        if self.attempts > 1 {
            write!(f, ", {} attempts", self.attempts)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::ScheduleSegment;

    fn stable() -> Calibration {
        let near = CalibrationCheck {
            statistic: "p99",
            measured_ns: 101.0,
            expected_ns: 100.0,
            tolerance_ns: 2.0,
        };
        Calibration {
            clock_mode: clock::ClockMode::Counter,
            clock_reason: None,
            clock_error_ns: 100,
            clock_discontinuities: 0,
            max_rate: 100_000.0,
            processors: 2,
            checks: vec![near],
            attempts: 1,
            is_stable: true,
        }
    }

    #[test]
    fn rates_above_the_calibrated_rate_are_invalid() {
        let schedule = |from_rate, to_rate| {
            let segment = ScheduleSegment { from_rate, to_rate, duration_ns: 1_000 * MS };
            Schedule::Rate { segments: vec![segment], arrival_process: ArrivalProcess::Constant }
        };
        let reasons = |rate, threads| stable().invalid_reasons(&schedule(0.0, rate), threads);
        assert_eq!(reasons(80_000.0, 1), []);
        assert_eq!(
            reasons(81_000.0, 1),
            [InvalidReason::RateAboveCalibrated { scheduled: 81_000.0, calibrated: 100_000.0 }]
        );
        assert_eq!(reasons(160_000.0, 2), []);
        // More threads than CPUs add nothing.
        assert_eq!(
            reasons(170_000.0, 64),
            [InvalidReason::RateAboveCalibrated { scheduled: 170_000.0, calibrated: 200_000.0 }]
        );
        let at_once = Schedule::Replay((0..20_000).map(|n| n * 1_000).collect());
        assert_eq!(
            stable().invalid_reasons(&at_once, 1),
            [InvalidReason::RateAboveCalibrated { scheduled: 200_000.0, calibrated: 100_000.0 }]
        );
    }

    /// A rate below the lowest tested one is unknown, not 0.
    #[test]
    fn missed_lowest_rate_is_reported() {
        let slow = Calibration { max_rate: 0.0, ..stable() };
        assert!(slow.to_string().contains("did not send even 10,000/s on time"), "{slow}");
        let reasons = |rate| {
            slow.invalid_reasons(&Schedule::constant(rate, 1_000 * MS, ArrivalProcess::Constant), 1)
        };
        // The coordinated-omission test passed at a higher rate.
        assert_eq!(reasons(50.0), []);
        let found = reasons(5_000.0);
        assert!(found[0].to_string().contains("did not send 10,000/s on time"), "{found:?}");
    }

    #[test]
    fn machine_problems_are_reported() {
        let schedule = Schedule::constant(1.0, 1_000 * MS, ArrivalProcess::Constant);
        let far = CalibrationCheck {
            statistic: "p99",
            measured_ns: 90.0,
            expected_ns: 100.0,
            tolerance_ns: 2.0,
        };
        let off = Calibration { checks: vec![far], clock_discontinuities: 1, ..stable() };
        let clock = InvalidReason::ClockInaccurate { discontinuities: 1, error_ns: 100 };
        assert_eq!(
            off.invalid_reasons(&schedule, 1),
            [InvalidReason::CalibrationFailed(far), clock]
        );
        // After a stall, no other reason is reported.
        let unstable = Calibration { checks: vec![far], is_stable: false, attempts: 3, ..stable() };
        assert_eq!(
            unstable.invalid_reasons(&schedule, 1),
            [InvalidReason::CalibrationUnstable { attempts: 3 }]
        );
        for reason in
            off.invalid_reasons(&schedule, 1).iter().chain(&unstable.invalid_reasons(&schedule, 1))
        {
            assert!(!reason.to_string().ends_with('.'), "{reason}");
        }
    }
}
