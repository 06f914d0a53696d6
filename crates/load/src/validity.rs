//! Reasons why a run is invalid: signs that the generator or its machine limited it, so that the
//! result says nothing about the target.

use std::fmt;

use crate::calibration_check::{CALIBRATION_RATE_MIN, CalibrationCheck, SAFE_UTILISATION};
use crate::failure::Failure;
use crate::schedule::format_rate;
use crate::tally::Tally;

/// Why a run is invalid.
#[derive(Clone, Debug, PartialEq)]
pub enum InvalidReason {
    /// The generator stalled.
    GeneratorStalled {
        /// Number of stalls.
        times: usize,
        /// Total duration. Nanoseconds.
        total_ns: u64,
        /// Requests scheduled during a stall, which were not sent.
        not_sent: u64,
        /// Responses that arrived during a stall.
        observed_late: u64,
    },
    /// The generator lag is a large part of the response time.
    GeneratorLag {
        /// Generator lag at p99. Nanoseconds.
        generator_lag_p99_ns: u64,
        /// Response time at p99. Nanoseconds.
        response_p99_ns: u64,
    },
    /// The threads of the generator were nearly always busy.
    GeneratorCpuSaturated {
        /// Share of the time of all threads, up to 1.
        share: f64,
    },
    /// This machine ran out of file descriptors, ports, processes or memory.
    ResourcesExhausted {
        /// Requests that failed because of it.
        failed: u64,
    },
    /// The outcome of some requests is unknown: a bug in topdeck.
    CountMismatch {
        /// Scheduled requests.
        scheduled: u64,
        /// Requests with a known outcome.
        accounted: u64,
    },
    /// Calibration: the schedule exceeds the rate that this machine can send on time.
    RateAboveCalibrated {
        /// Highest rate of the schedule, per second.
        scheduled: f64,
        /// Calibrated rate of all threads, per second; 0 if the lowest tested rate was too high.
        calibrated: f64,
    },
    /// Calibration: a statistic of the coordinated-omission test is wrong.
    CalibrationFailed(CalibrationCheck),
    /// Calibration: the machine stalled in each attempt.
    CalibrationUnstable {
        /// Number of attempts.
        attempts: u32,
    },
    /// Calibration: the clock jumped, or its error bound is too large.
    ClockInaccurate {
        /// Number of jumps.
        discontinuities: u64,
        /// Error bound. Nanoseconds.
        error_ns: u64,
    },
}

/// Share of the p99 response time that the generator lag may have.
const MAX_GENERATOR_SHARE: f64 = 0.1;
/// Acceptable generator lag: a timer on a busy machine is this late.
pub(crate) const GENERATOR_LAG_NS: f64 = 100_000.0;
/// CPU use above which a thread cannot be on time.
const CPU_SATURATION: f64 = 0.95;

impl InvalidReason {
    /// Reasons that a tally has, also during a run. Stalls and count mismatches are known only at
    /// the end.
    pub fn interim(tally: &Tally, duration_ns: u64, threads: usize) -> Vec<InvalidReason> {
        let mut reasons = Vec::new();
        let p99 = |of: &hist::Histogram| of.quantile(0.99).map_or(0.0, |found| found.estimate);
        let (lag, response) = (p99(&tally.generator_lag), p99(&tally.response));
        // Without responses there is no time that the lag could distort.
        let has_responses = tally.response.count() > 0;
        if has_responses && lag > GENERATOR_LAG_NS && lag > response * MAX_GENERATOR_SHARE {
            let (generator_lag_p99_ns, response_p99_ns) = (lag as u64, response as u64);
            reasons.push(InvalidReason::GeneratorLag { generator_lag_p99_ns, response_p99_ns });
        }
        let share = tally.cpu_ns as f64 / (duration_ns.max(1) as f64 * threads as f64);
        if share > CPU_SATURATION && lag > GENERATOR_LAG_NS {
            reasons.push(InvalidReason::GeneratorCpuSaturated { share: share.min(1.0) });
        }
        let failed = tally.failed[Failure::Resources as usize];
        if failed > 0 {
            reasons.push(InvalidReason::ResourcesExhausted { failed });
        }
        reasons
    }

    /// Name in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            InvalidReason::GeneratorStalled { .. } => "stalled",
            InvalidReason::GeneratorLag { .. } => "generator_lag",
            InvalidReason::GeneratorCpuSaturated { .. } => "generator_cpu",
            InvalidReason::ResourcesExhausted { .. } => "resources",
            InvalidReason::CountMismatch { .. } => "count_mismatch",
            InvalidReason::RateAboveCalibrated { .. } => "rate",
            InvalidReason::CalibrationFailed(_) => "calibration_failed",
            InvalidReason::CalibrationUnstable { .. } => "calibration_unstable",
            InvalidReason::ClockInaccurate { .. } => "clock",
        }
    }
}

impl fmt::Display for InvalidReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns as f64 * 1e-6;
        match self {
            InvalidReason::GeneratorStalled { times, total_ns, not_sent, observed_late } => {
                let often = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
                write!(
                    f,
                    "the generator stalled {often}, {:.0} ms in total: {not_sent} requests were \
                     not sent and {observed_late} responses were observed late, both excluded \
                     from the times; run it where it gets a CPU",
                    ms(*total_ns)
                )
            }
            InvalidReason::GeneratorLag { generator_lag_p99_ns, response_p99_ns } => write!(
                f,
                "generator lag is {:.3} ms at p99, response time {:.3} ms; lower the rate, or \
                 add threads or CPUs",
                ms(*generator_lag_p99_ns),
                ms(*response_p99_ns)
            ),
            InvalidReason::GeneratorCpuSaturated { share } => write!(
                f,
                "the generator's threads were busy {:.0} % of the time; lower the rate, or add \
                 threads or CPUs",
                share * 100.0
            ),
            InvalidReason::ResourcesExhausted { failed } => write!(
                f,
                "{failed} requests failed because this machine ran out of file descriptors, \
                 ports, processes or memory; raise the limits, or allow fewer connections or \
                 processes"
            ),
            InvalidReason::RateAboveCalibrated { scheduled, calibrated: 0.0 } => write!(
                f,
                "{} are scheduled, and in the calibration this machine did not send {} on time, \
                 the lowest tested rate; run it on an idle machine",
                format_rate(*scheduled),
                format_rate(CALIBRATION_RATE_MIN)
            ),
            InvalidReason::RateAboveCalibrated { scheduled, calibrated } => write!(
                f,
                "{} are scheduled, and this machine is calibrated for {}, of which {:.0} % are \
                 safe; lower the rate, or add threads or CPUs",
                format_rate(*scheduled),
                format_rate(*calibrated),
                SAFE_UTILISATION * 100.0
            ),
            InvalidReason::CalibrationFailed(check) => write!(
                f,
                "the coordinated-omission test measured {} as {:.2} ms, expected {:.2} ms ± \
                 {:.2} ms; run it on an idle machine",
                check.statistic,
                check.measured_ns * 1e-6,
                check.expected_ns * 1e-6,
                check.tolerance_ns * 1e-6
            ),
            InvalidReason::CalibrationUnstable { attempts } => write!(
                f,
                "this machine stalled in each of {attempts} calibrations; run it where it gets \
                 a CPU"
            ),
            InvalidReason::ClockInaccurate { discontinuities, error_ns } => write!(
                f,
                "the clock jumped {discontinuities} times and has an error of up to {:.3} ms; \
                 run topdeck doctor clock",
                ms(*error_ns)
            ),
            InvalidReason::CountMismatch { scheduled, accounted } => write!(
                f,
                "count mismatch: {scheduled} requests scheduled, {accounted} accounted for; \
                 this is a bug in topdeck, please report it"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lag_us: u64, response_us: Option<u64>) -> Tally {
        let of = |us: Option<u64>| {
            let mut recorder = hist::Recorder::new();
            us.iter().for_each(|us| recorder.record(us * 1_000));
            recorder.snapshot()
        };
        Tally { generator_lag: of(Some(lag_us)), response: of(response_us), ..Tally::default() }
    }

    #[test]
    fn generator_lag_is_relative_to_response_time() {
        let kinds = |lag_us, response_us| {
            let tally = tally(lag_us, response_us);
            let reasons = InvalidReason::interim(&tally, 1_000_000_000, 1);
            reasons.iter().map(InvalidReason::kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(500, Some(1_000)), ["generator_lag"]);
        assert_eq!(kinds(500, Some(50_000)), [""; 0]);
        assert_eq!(kinds(50, Some(100)), [""; 0]);
        // All failed.
        assert_eq!(kinds(500, None), [""; 0]);
    }
}
