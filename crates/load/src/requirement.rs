//! Requirements such as `p99.9<20ms`, and their evaluation.
//!
//! A statistic of a histogram is a bracket; a requirement passes only if the whole bracket
//! satisfies it. A failed request counts as never answered and exceeds every limit, so that a
//! server cannot meet `p99` by rejecting slow requests. For service times, unfinished requests
//! count as never answered too. `mean` covers answered requests only.

use std::str::FromStr;

use hist::{Bracket, Histogram};

use crate::run_result::RunResult;
use crate::search::LatencyLimit;
use crate::units::UNITS;

/// A condition that a run must meet.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    /// Source text.
    pub expression: String,
    /// The metric it limits.
    pub metric: RequirementMetric,
    is_lower_limit: bool,
    is_inclusive: bool,
    limit: f64,
}

/// Metric of a requirement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequirementMetric {
    /// A statistic of a latency, in nanoseconds.
    Latency(LatencyKind, Statistic),
    /// Share of requests that failed or were unfinished, 0 to 1.
    FailedShare,
    /// Completed requests per second of the run.
    CompletedRate,
}

/// Response or service time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyKind {
    /// From the scheduled time.
    Response,
    /// From the time it was sent.
    Service,
}

/// Statistic of a latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// 0 to 1.
    Quantile(f64),
    /// Maximum.
    Max,
    /// Mean of answered requests.
    Mean,
}

/// Result of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequirementOutcome {
    /// The whole bracket satisfies it.
    Pass,
    /// No part of the bracket satisfies it.
    Fail,
    /// The limit lies inside the bracket. Counts as not met.
    Inconclusive,
}

/// Invalid requirement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RequirementError(String);

impl Requirement {
    /// Returns the measured value and the outcome. A quantile that falls on failed requests is
    /// infinite; `None`, without any measurement, fails.
    pub fn evaluate(&self, run: &RunResult) -> (Option<Bracket>, RequirementOutcome) {
        let measured = self.measure(run);
        let outcome = measured.map_or(RequirementOutcome::Fail, |measured| self.outcome(measured));
        (measured, outcome)
    }

    /// Whether response times plus this many failed requests pass. For a search, which supports
    /// response times only.
    pub(crate) fn is_met_by(&self, response: &Histogram, failed: u64) -> bool {
        let RequirementMetric::Latency(LatencyKind::Response, statistic) = self.metric else {
            return false;
        };
        statistic
            .of(response, failed)
            .is_some_and(|measured| self.outcome(measured) == RequirementOutcome::Pass)
    }

    fn outcome(&self, measured: Bracket) -> RequirementOutcome {
        let is_met = |value: f64| match (self.is_lower_limit, self.is_inclusive) {
            (false, false) => value < self.limit,
            (false, true) => value <= self.limit,
            (true, false) => value > self.limit,
            (true, true) => value >= self.limit,
        };
        match (is_met(measured.lower), is_met(measured.upper)) {
            (true, true) => RequirementOutcome::Pass,
            (false, false) => RequirementOutcome::Fail,
            _ => RequirementOutcome::Inconclusive,
        }
    }

    fn measure(&self, run: &RunResult) -> Option<Bracket> {
        let tally = &run.tally;
        match self.metric {
            RequirementMetric::Latency(time, statistic) => {
                let (of, never) = match time {
                    LatencyKind::Response => (&tally.response, tally.failures()),
                    LatencyKind::Service => (&tally.service, tally.failures() + tally.unfinished),
                };
                statistic.of(of, never)
            }
            RequirementMetric::FailedShare => {
                // Requests affected by the generator itself say nothing about the target.
                let known = tally.completed + tally.failures() + tally.unfinished;
                let failed = tally.failures() + tally.unfinished;
                (known > 0).then(|| Bracket::exact(failed as f64 / known as f64))
            }
            RequirementMetric::CompletedRate => {
                let seconds = run.duration_ns as f64 * 1e-9;
                (seconds > 0.0).then(|| Bracket::exact(tally.completed as f64 / seconds))
            }
        }
    }
}

impl Statistic {
    /// Value of the statistic if `never` further requests were not answered.
    fn of(self, times: &Histogram, never: u64) -> Option<Bracket> {
        let infinite = Some(Bracket::exact(f64::INFINITY));
        match self {
            Statistic::Mean => times.mean(),
            Statistic::Max if never > 0 => infinite,
            Statistic::Max => times.max(),
            Statistic::Quantile(q) if never == 0 => times.quantile(q),
            Statistic::Quantile(q) => {
                let count = times.count() as f64;
                let among = q * (count + never as f64) / count;
                if among <= 1.0 { times.quantile(among) } else { infinite }
            }
        }
    }
}

impl TryFrom<&Requirement> for LatencyLimit {
    type Error = RequirementError;

    fn try_from(of: &Requirement) -> Result<LatencyLimit, RequirementError> {
        let quantile = match of.metric {
            RequirementMetric::Latency(LatencyKind::Response, Statistic::Quantile(q)) => q,
            RequirementMetric::Latency(LatencyKind::Response, Statistic::Max) => 1.0,
            _ => {
                return Err(RequirementError(format!(
                    "{} is not supported by --search: it takes percentiles and max of response \
                     time, as in p99.9<20ms or max<1s; failed requests exceed every limit",
                    of.expression
                )));
            }
        };
        // The condition includes its limit.
        let limit = if of.is_inclusive { of.limit.floor() } else { of.limit.ceil() - 1.0 };
        Ok(LatencyLimit { requirement: of.clone(), quantile, limit_ns: limit.max(0.0) as u64 })
    }
}

const EXPECTED: &str = "expected p50, p99.9, max or mean (service.p99 for service time) below a \
                        time, failed below a share, or rate above a number per second, as in \
                        p99.9<20ms, failed<0.1% or rate>990";

impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(expression: &str) -> Result<Requirement, RequirementError> {
        let wrong = |cause: &str| RequirementError(format!("{cause}: {EXPECTED}"));
        let at = expression.find(['<', '>']).ok_or_else(|| wrong("no < or >"))?;
        let (name, rest) = expression.split_at(at);
        let (name, is_lower_limit) = (name.trim(), rest.starts_with('>'));
        let limit = rest[1..].strip_prefix('=');
        let (is_inclusive, limit) = (limit.is_some(), limit.unwrap_or(&rest[1..]).trim());
        let (time, statistic) = match name.split_once('.') {
            Some(("service", statistic)) => (LatencyKind::Service, statistic),
            Some(("response", statistic)) => (LatencyKind::Response, statistic),
            _ => (LatencyKind::Response, name),
        };
        let percent = |text: &str| text.parse::<f64>().ok().filter(|q| (0.0..=100.0).contains(q));
        let metric = match statistic {
            "max" => RequirementMetric::Latency(time, Statistic::Max),
            "mean" => RequirementMetric::Latency(time, Statistic::Mean),
            "failed" if statistic == name => RequirementMetric::FailedShare,
            "rate" if statistic == name => RequirementMetric::CompletedRate,
            other => {
                let number = other.strip_prefix('p').filter(|text| percent(text).is_some());
                let number = number.ok_or_else(|| wrong(&format!("unknown metric {name:?}")))?;
                // Decimal arithmetic: p99.9 must be 0.999, not its neighbour.
                let q = format!("{number}e-2").parse();
                let q = q.map_err(|_| wrong(&format!("unknown metric {name:?}")))?;
                RequirementMetric::Latency(time, Statistic::Quantile(q))
            }
        };
        if is_lower_limit != (metric == RequirementMetric::CompletedRate) {
            let other = if is_lower_limit { "<" } else { ">" };
            return Err(wrong(&format!("{name} needs a {other}")));
        }
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let read = match metric {
            RequirementMetric::Latency(..) => UNITS.iter().find_map(|(unit, ns)| {
                number(limit.strip_suffix(unit)?).map(|number| number * *ns as f64)
            }),
            RequirementMetric::FailedShare => match limit.strip_suffix('%') {
                Some(percent) => number(percent).map(|percent| percent / 100.0),
                None => number(limit),
            },
            RequirementMetric::CompletedRate => number(limit.strip_suffix("/s").unwrap_or(limit)),
        };
        let limit = read.filter(|limit| limit.is_finite() && *limit >= 0.0);
        let limit = limit.ok_or_else(|| wrong(&format!("invalid limit {:?}", rest[1..].trim())))?;
        Ok(Requirement {
            expression: expression.to_owned(),
            metric,
            is_lower_limit,
            is_inclusive,
            limit,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::failure::Failure;
    use crate::tally::Tally;

    fn run(times_ms: impl Iterator<Item = u64>, failed: u64) -> RunResult {
        let mut recorder = hist::Recorder::new();
        times_ms.for_each(|ms| recorder.record(ms * 1_000_000));
        let response = recorder.snapshot();
        let mut tally = Tally { completed: response.count(), ..Tally::default() };
        (tally.service, tally.response) = (response.clone(), response);
        tally.failed[Failure::Reset as usize] = failed;
        tally.scheduled = tally.completed + failed;
        RunResult {
            tally,
            per_second: BTreeMap::new(),
            per_request: Vec::new(),
            start_unix_ns: 0,
            duration_ns: 2_000_000_000,
            is_interrupted: false,
            stalls: Vec::new(),
            first_errors: Default::default(),
            files: Default::default(),
            invalid_reasons: Vec::new(),
        }
    }

    #[track_caller]
    fn check(expression: &str, run: &RunResult, expected: RequirementOutcome) {
        let requirement: Requirement = expression.parse().unwrap();
        assert_eq!(requirement.evaluate(run).1, expected, "{expression}");
    }

    #[test]
    fn latency_requirements_use_bounds() {
        let run = run(1..=1000, 0);
        check("p99<1.1s", &run, RequirementOutcome::Pass);
        check("p99<1m", &run, RequirementOutcome::Pass);
        check("p99 < 900 ms", &run, RequirementOutcome::Fail);
        check("service.p50<=600ms", &run, RequirementOutcome::Pass);
        // The bucket of the quantile contains the limit.
        check("p99<990ms", &run, RequirementOutcome::Inconclusive);
        // The maximum is exact.
        check("max<=1000ms", &run, RequirementOutcome::Pass);
        check("max<1s", &run, RequirementOutcome::Fail);
        check("response.mean<0.6s", &run, RequirementOutcome::Pass);
        check("rate>499/s", &run, RequirementOutcome::Pass);
        check("rate>=500", &run, RequirementOutcome::Pass);
        check("rate>500", &run, RequirementOutcome::Fail);
        check("failed<0.1%", &run, RequirementOutcome::Pass);
    }

    /// A server cannot pass by rejecting slow requests.
    #[test]
    fn failed_requests_exceed_every_limit() {
        let run = run(1..=900, 100);
        check("p50<600ms", &run, RequirementOutcome::Pass);
        check("p89<1s", &run, RequirementOutcome::Pass);
        check("p91<1h", &run, RequirementOutcome::Fail);
        check("max<1h", &run, RequirementOutcome::Fail);
        check("failed<=10%", &run, RequirementOutcome::Pass);
        check("failed<0.1", &run, RequirementOutcome::Fail);
        let none = self::run(std::iter::empty(), 0);
        check("p50<1h", &none, RequirementOutcome::Fail);
        check("failed<50%", &none, RequirementOutcome::Fail);
        check("p50<1h", &self::run(std::iter::empty(), 5), RequirementOutcome::Fail);
    }

    #[test]
    fn search_accepts_percentiles_of_response_time() {
        let limit =
            |expression: &str| LatencyLimit::try_from(&expression.parse::<Requirement>().unwrap());
        let measured = |expression: &str| limit(expression).map(|one| (one.quantile, one.limit_ns));
        assert_eq!(measured("p99.9<20ms"), Ok((0.999, 19_999_999)));
        assert_eq!(measured("p99.9<=20ms"), Ok((0.999, 20_000_000)));
        assert_eq!(measured("response.max<=1s"), Ok((1.0, 1_000_000_000)));
        assert_eq!(measured("p50<0ms"), Ok((0.5, 0)));
        for expression in ["mean<1s", "failed<1%", "rate>10", "service.p99<1s", "service.max<1s"] {
            let error = limit(expression).unwrap_err().to_string();
            assert!(error.contains("percentiles and max of response"), "{expression}: {error}");
        }
    }

    /// A trial must not be passed and inconclusive at once.
    #[test]
    fn search_and_run_evaluate_requirements_alike() {
        for failed in [0, 5, 20] {
            let run = run(1..=1000, failed);
            let measured = crate::search::TrialMeasurement::from(&run);
            for ms in (960..=1020).step_by(2) {
                for expression in
                    [format!("p99<{ms}ms"), format!("p98<={ms}ms"), format!("max<{ms}ms")]
                {
                    let requirement: Requirement = expression.parse().unwrap();
                    let limit = LatencyLimit::try_from(&requirement).unwrap();
                    let is_met = requirement.evaluate(&run).1 == RequirementOutcome::Pass;
                    assert_eq!(
                        limit.is_met(&measured),
                        is_met,
                        "{expression} with {failed} failed"
                    );
                }
            }
        }
    }

    #[test]
    fn invalid_requirements_are_rejected() {
        for text in [
            "",
            "p99",
            "p99<",
            "p99<20",
            "p99>20ms",
            "p101<1s",
            "px<1s",
            "rate<5",
            "failed>1%",
            "failed<x",
            "max<-1s",
            "service.rate>5",
            "p99<infs",
            "p1e1<1s<",
            "p99=20ms",
            "<",
            "µ<1s",
        ] {
            let error = text.parse::<Requirement>().unwrap_err().to_string();
            assert!(error.contains("p99.9<20ms"), "{text}: {error}");
        }
    }
}
