//! Capacity search: finds the highest rate that meets all requirements, and the knee of the
//! response time.
//!
//! The module decides what to measure next; the caller measures. The rate is doubled until it
//! fails, then the interval is bisected on a logarithmic scale until it is as narrow as the
//! tolerance. A single failure may be an accident of the machine: a rate fails only if two of at
//! most three trials fail. Finally the result is measured several more times, and lowered while
//! fewer than four of five trials pass.
//!
//! Requirements are evaluated as in any run: the whole bracket must pass, and failed requests
//! exceed every limit. Unfinished requests count with their age, so the grace period must be at
//! least the longest limit.
//!
//! **Knee**: the rate above which p99 of the response time exceeds twice p99 of the service time
//! *at the lowest measured rate*. The service time at the same rate cannot serve as the base: with
//! many connections the queue is in the target and part of the service time. For an M/D/1 queue the
//! knee is where p99 of the waiting time equals the service time.

use std::fmt;

use hist::Histogram;

use crate::requirement::Requirement;
use crate::run_result::RunResult;
use crate::schedule::format_rate;
use crate::validity::InvalidReason;

/// A requirement that a search supports: a share of the requests must be answered within a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyLimit {
    pub(crate) requirement: Requirement,
    /// Share of requests, 0.999 for p99.9; 1 means all.
    pub quantile: f64,
    /// Longest time that passes. Nanoseconds.
    pub limit_ns: u64,
}

/// Settings of a search.
#[derive(Clone, Debug)]
pub struct CapacitySearch {
    /// All must pass. If empty, only the knee is searched.
    pub requirements: Vec<LatencyLimit>,
    /// First rate; the target should sustain it. Per second.
    pub first_rate: f64,
    /// Highest rate to try. Per second.
    pub max_rate: f64,
    /// Relative distance between the result and the next failing rate.
    pub tolerance: f64,
    /// Requests above the strictest percentile in each trial, if the duration allows. With random
    /// arrivals and a queue, 100 give the result to 5 %, 1,000 to 3 %.
    pub tail_requests: u64,
    /// Minimum duration of a trial. Nanoseconds.
    pub min_duration_ns: u64,
    /// Maximum duration of a trial. Nanoseconds.
    pub max_duration_ns: u64,
    /// Trials that confirm the result.
    pub confirmations: u32,
}

/// Parameters of the next trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialSpec {
    /// Per second.
    pub rate: f64,
    /// Nanoseconds.
    pub duration_ns: u64,
    /// Number of earlier trials.
    pub number: usize,
}

/// Measured values of a trial.
#[derive(Clone, Debug, Default)]
pub struct TrialMeasurement {
    /// Response times, including the age of unfinished requests. Nanoseconds.
    pub response: Histogram,
    /// Service times. Nanoseconds.
    pub service: Histogram,
    /// Failed requests.
    pub failed_requests: u64,
    /// Share of requests without a known outcome because the generator stalled.
    pub unknown_outcome_share: f64,
    /// Why the run is invalid; empty if it is valid.
    pub invalid_reasons: Vec<InvalidReason>,
}

impl From<&RunResult> for TrialMeasurement {
    fn from(run: &RunResult) -> TrialMeasurement {
        let tally = &run.tally;
        TrialMeasurement {
            response: tally.response.clone(),
            service: tally.service.clone(),
            failed_requests: tally.failures(),
            unknown_outcome_share: (tally.not_sent + tally.observed_late) as f64
                / tally.scheduled.max(1) as f64,
            invalid_reasons: run.invalid_reasons.clone(),
        }
    }
}

/// A finished trial.
#[derive(Clone, Debug)]
pub struct SearchTrial {
    /// Per second.
    pub rate: f64,
    /// What it was for.
    pub purpose: TrialPurpose,
    /// Nanoseconds.
    pub duration_ns: u64,
    /// Whether it met all requirements; for the knee, whether response time was close to service
    /// time.
    pub is_passed: bool,
    /// Whether the generator limited it.
    pub is_generator_limited: bool,
    /// Measured values.
    pub measurement: TrialMeasurement,
}

/// Purpose of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialPurpose {
    /// Find the highest passing rate.
    Search,
    /// Confirm it.
    Confirmation,
    /// Find the knee.
    Knee,
}

/// The highest rate that meets the requirements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SustainedRate {
    /// Per second.
    pub rate: f64,
    /// Confirmation trials that passed.
    pub passed_runs: u32,
    /// Confirmation trials.
    pub runs: u32,
}

/// What limits a rate from above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpperBound {
    /// The target failed at this rate.
    TargetFailed(f64),
    /// The generator was the limit at this rate: the target may sustain more.
    GeneratorLimited(f64),
    /// No higher rate was tried.
    Untested,
}

/// Rates between which response time departs from service time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knee {
    /// Highest rate below the knee, if any.
    pub lower_rate: Option<f64>,
    /// Lowest rate above the knee.
    pub upper_bound: UpperBound,
}

/// Result of a search.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// The highest passing rate; none if even the lowest fails, or nothing was required.
    pub sustained: Option<SustainedRate>,
    /// What limits it from above.
    pub upper_bound: UpperBound,
    /// The knee of the response time.
    pub knee: Knee,
    /// All trials in order.
    pub trials: Vec<SearchTrial>,
}

/// Step factor while the rate rises or falls.
const FACTOR: f64 = 2.0;
/// Halvings before the search gives up.
const HALVINGS_MAX: u32 = 4;
/// Share of confirmation trials that must pass.
const PASS_SHARE_MIN: f64 = 0.8;
/// Reductions of the rate during confirmation.
const REDUCTIONS_MAX: u32 = 8;
/// Trials with a larger unknown share are repeated.
const UNKNOWN_SHARE_MAX: f64 = 0.05;
const ATTEMPTS: u32 = 3;
/// Ratio of response time to base service time at the knee.
const KNEE_FACTOR: f64 = 2.0;
/// The knee is a gradual transition: a finer search has no meaning.
const KNEE_TOLERANCE: f64 = 0.05;
/// Stricter percentiles would need endless trials.
const QUANTILE_MAX: f64 = 0.9999;

impl Default for CapacitySearch {
    fn default() -> CapacitySearch {
        CapacitySearch {
            requirements: Vec::new(),
            first_rate: 100.0,
            // Beyond a single generator: the generator is the limit first.
            max_rate: 10_000_000.0,
            // With 100 requests above the percentile, finer steps would measure chance.
            tolerance: 0.03,
            tail_requests: 100,
            min_duration_ns: 1_000_000_000,
            max_duration_ns: 60_000_000_000,
            confirmations: 5,
        }
    }
}

impl LatencyLimit {
    /// Whether a trial passes.
    pub fn is_met(&self, measurement: &TrialMeasurement) -> bool {
        self.requirement.is_met_by(&measurement.response, measurement.failed_requests)
    }
}

impl CapacitySearch {
    /// Duration of a trial: until enough requests exceed the strictest percentile, and until a
    /// queue that grows by the tolerance is twice the longest limit.
    pub fn duration_ns(&self, rate: f64) -> u64 {
        let strictest = self.requirements.iter().map(|one| one.quantile).fold(0.99, f64::max);
        let for_tail = self.tail_requests as f64 / (1.0 - strictest.min(QUANTILE_MAX)) / rate * 1e9;
        let limit_ns = self.requirements.iter().map(|one| one.limit_ns).max().unwrap_or(0);
        let for_queue = 2.0 * limit_ns as f64 / self.tolerance;
        let length = for_tail.max(for_queue).min(self.max_duration_ns as f64);
        (length.round() as u64).max(self.min_duration_ns)
    }

    /// Runs the search. An error of `measure` ends it and is returned with the trials so far.
    pub fn run<E>(
        &self,
        measure: &mut dyn FnMut(TrialSpec) -> Result<TrialMeasurement, E>,
    ) -> Result<SearchResult, (E, Vec<SearchTrial>)> {
        let mut state = SearchState { search: self, measure, trials: Vec::new() };
        match state.run() {
            Ok((sustained, upper_bound, knee)) => {
                Ok(SearchResult { sustained, upper_bound, knee, trials: state.trials })
            }
            Err(error) => Err((error, state.trials)),
        }
    }
}

/// Current interval of the search.
#[derive(Clone, Copy)]
struct RateRange {
    lower_rate: Option<f64>,
    upper_bound: UpperBound,
}

struct SearchState<'a, E> {
    search: &'a CapacitySearch,
    measure: &'a mut dyn FnMut(TrialSpec) -> Result<TrialMeasurement, E>,
    trials: Vec<SearchTrial>,
}

/// Outcome of a trial.
#[derive(Clone, Copy, PartialEq)]
enum TrialOutcome {
    Passed,
    Failed,
    GeneratorLimited,
}

type PassPredicate<'a> = &'a dyn Fn(&TrialMeasurement) -> bool;

impl<E> SearchState<'_, E> {
    /// Finds the sustained rate, its upper bound, and the knee.
    fn run(&mut self) -> Result<(Option<SustainedRate>, UpperBound, Knee), E> {
        let search = self.search;
        let (mut sustained, mut upper_bound) = (None, UpperBound::Untested);
        if !search.requirements.is_empty() {
            let meets =
                |one: &TrialMeasurement| search.requirements.iter().all(|each| each.is_met(one));
            let first = RateRange { lower_rate: None, upper_bound: UpperBound::Untested };
            let found = self.range(TrialPurpose::Search, first, search.tolerance, &meets)?;
            upper_bound = found.upper_bound;
            if let Some(rate) = found.lower_rate {
                (sustained, upper_bound) = self.confirm(rate, upper_bound, &meets)?;
            }
        }
        Ok((sustained, upper_bound, self.knee()?))
    }

    /// Measures one trial; repeats it if the generator stalled.
    fn run_trial(
        &mut self,
        rate: f64,
        purpose: TrialPurpose,
        passes: PassPredicate<'_>,
    ) -> Result<TrialOutcome, E> {
        let duration_ns = self.search.duration_ns(rate);
        for attempt in 1.. {
            let measurement =
                (self.measure)(TrialSpec { rate, duration_ns, number: self.trials.len() })?;
            let is_clear = measurement.unknown_outcome_share <= UNKNOWN_SHARE_MAX;
            let is_generator_limited =
                measurement.invalid_reasons.iter().any(is_generator_limited) || !is_clear;
            let is_passed = passes(&measurement) && is_clear;
            self.trials.push(SearchTrial {
                rate,
                purpose,
                duration_ns,
                is_passed,
                is_generator_limited,
                measurement,
            });
            if is_clear || attempt == ATTEMPTS {
                return Ok(match (is_passed, is_generator_limited) {
                    // The generator only adds to the response time: without it the target would
                    // pass all the more.
                    (true, _) => TrialOutcome::Passed,
                    (false, true) => TrialOutcome::GeneratorLimited,
                    (false, false) => TrialOutcome::Failed,
                });
            }
        }
        unreachable!("BUG: the last attempt returns")
    }

    /// Majority of at most three trials.
    fn decide(
        &mut self,
        rate: f64,
        purpose: TrialPurpose,
        passes: PassPredicate<'_>,
    ) -> Result<TrialOutcome, E> {
        let first = self.run_trial(rate, purpose, passes)?;
        if first == TrialOutcome::Passed {
            return Ok(first);
        }
        let second = self.run_trial(rate, purpose, passes)?;
        if second != TrialOutcome::Passed {
            let both = [first, second];
            let is_generator_limited = both.contains(&TrialOutcome::GeneratorLimited);
            return Ok(if is_generator_limited {
                TrialOutcome::GeneratorLimited
            } else {
                TrialOutcome::Failed
            });
        }
        match self.run_trial(rate, purpose, passes)? {
            TrialOutcome::Passed => Ok(TrialOutcome::Passed),
            _ => Ok(first),
        }
    }

    /// Narrows the interval to the tolerance.
    fn range(
        &mut self,
        purpose: TrialPurpose,
        mut range: RateRange,
        tolerance: f64,
        passes: PassPredicate<'_>,
    ) -> Result<RateRange, E> {
        let (most, mut halvings) = (self.search.max_rate, 0);
        let mut next = self.search.first_rate.min(most);
        loop {
            let over = match range.upper_bound {
                UpperBound::TargetFailed(rate) | UpperBound::GeneratorLimited(rate) => Some(rate),
                UpperBound::Untested => None,
            };
            let rate = match (range.lower_rate, over) {
                (None, None) => next,
                (Some(lower_rate), None) if lower_rate >= most => return Ok(range),
                (Some(lower_rate), None) => (lower_rate * FACTOR).min(most),
                (None, Some(_)) if halvings == HALVINGS_MAX => return Ok(range),
                (None, Some(over)) => {
                    halvings += 1;
                    next = over / FACTOR;
                    next
                }
                (Some(lower_rate), Some(over)) if over <= lower_rate * (1.0 + tolerance) => {
                    return Ok(range);
                }
                (Some(lower_rate), Some(over)) => (lower_rate * over).sqrt(),
            };
            match self.decide(rate, purpose, passes)? {
                TrialOutcome::Passed => range.lower_rate = Some(rate),
                TrialOutcome::Failed => range.upper_bound = UpperBound::TargetFailed(rate),
                TrialOutcome::GeneratorLimited => {
                    range.upper_bound = UpperBound::GeneratorLimited(rate)
                }
            }
        }
    }

    /// Confirms a rate with several trials; lowers it until enough of them pass.
    fn confirm(
        &mut self,
        mut rate: f64,
        mut upper_bound: UpperBound,
        passes: PassPredicate<'_>,
    ) -> Result<(Option<SustainedRate>, UpperBound), E> {
        let runs = self.search.confirmations;
        for lowered in 0.. {
            let (mut passed_runs, mut is_generator_limited) = (0, false);
            for _ in 0..runs {
                let outcome = self.run_trial(rate, TrialPurpose::Confirmation, passes)?;
                passed_runs += u32::from(outcome == TrialOutcome::Passed);
                is_generator_limited |= outcome == TrialOutcome::GeneratorLimited;
            }
            if f64::from(passed_runs) >= PASS_SHARE_MIN * f64::from(runs) {
                return Ok((Some(SustainedRate { rate, passed_runs, runs }), upper_bound));
            }
            upper_bound = if is_generator_limited {
                UpperBound::GeneratorLimited(rate)
            } else {
                UpperBound::TargetFailed(rate)
            };
            if lowered == REDUCTIONS_MAX {
                break;
            }
            rate /= 1.0 + self.search.tolerance;
        }
        Ok((None, upper_bound))
    }

    fn knee(&mut self) -> Result<Knee, E> {
        if self.trials.is_empty() {
            let first = self.search.first_rate.min(self.search.max_rate);
            self.run_trial(first, TrialPurpose::Knee, &|_| true)?;
        }
        let lowest = self.trials.iter().min_by(|a, b| a.rate.total_cmp(&b.rate));
        let base = lowest.map_or(0.0, |step| p99(&step.measurement.service));
        let together = move |one: &TrialMeasurement| {
            let all = one.response.count() + one.failed_requests;
            p99(&one.response) <= KNEE_FACTOR * base
                && one.failed_requests as f64 <= 0.01 * all as f64
        };
        // Earlier trials are reused: the majority decides for each rate.
        let mut known: Vec<(f64, i32, bool)> = Vec::new();
        for step in self
            .trials
            .iter()
            .filter(|step| step.measurement.unknown_outcome_share <= UNKNOWN_SHARE_MAX)
        {
            let vote = if together(&step.measurement) { 1 } else { -1 };
            match known.iter_mut().find(|one| one.0 == step.rate) {
                Some(one) => (one.1, one.2) = (one.1 + vote, one.2 | step.is_generator_limited),
                None => known.push((step.rate, vote, step.is_generator_limited)),
            }
        }
        model::sort::by(&mut known, |a, b| a.0.total_cmp(&b.0));
        let parted = known.iter().find(|one| one.1 < 0);
        let upper_bound = match parted {
            Some((rate, _, true)) => UpperBound::GeneratorLimited(*rate),
            Some((rate, _, false)) => UpperBound::TargetFailed(*rate),
            None => UpperBound::Untested,
        };
        let until = parted.map_or(f64::INFINITY, |one| one.0);
        let lower_rate =
            known.iter().rev().find(|one| one.1 >= 0 && one.0 < until).map(|one| one.0);
        let tolerance = self.search.tolerance.max(KNEE_TOLERANCE);
        let found = self.range(
            TrialPurpose::Knee,
            RateRange { lower_rate, upper_bound },
            tolerance,
            &together,
        )?;
        Ok(Knee { lower_rate: found.lower_rate, upper_bound: found.upper_bound })
    }
}

fn is_generator_limited(reason: &InvalidReason) -> bool {
    match reason {
        InvalidReason::GeneratorLag { .. }
        | InvalidReason::GeneratorCpuSaturated { .. }
        | InvalidReason::ResourcesExhausted { .. }
        | InvalidReason::CountMismatch { .. } => true,
        // A stall distorts nothing: its unknown share is counted.
        _ => false,
    }
}

fn p99(of: &Histogram) -> f64 {
    of.quantile(0.99).map_or(0.0, |found| found.estimate)
}

impl SustainedRate {
    /// Wilson score interval of the share of all runs that would pass, 95 % confidence ("Probable
    /// inference, the law of succession, and statistical inference", 1927).
    pub(crate) fn confidence(&self) -> (f64, f64) {
        const Z: f64 = 1.959_964;
        if self.runs == 0 {
            return (0.0, 1.0);
        }
        let n = f64::from(self.runs);
        let share = f64::from(self.passed_runs) / n;
        let middle = share + Z * Z / (2.0 * n);
        let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0))
    }
}

impl fmt::Display for SearchResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sustained {
            Some(sustained) => {
                let least = match self.upper_bound {
                    UpperBound::TargetFailed(_) => "",
                    UpperBound::GeneratorLimited(_) | UpperBound::Untested => "at least ",
                };
                let (from, to) = sustained.confidence();
                write!(
                    f,
                    "sustained: {least}{} ({} of {} confirmation runs passed, 95 % confidence: \
                     {:.0} to {:.0} % of all runs)",
                    format_rate(sustained.rate),
                    sustained.passed_runs,
                    sustained.runs,
                    from * 100.0,
                    to * 100.0
                )?;
            }
            None if self.trials.iter().any(|step| step.purpose == TrialPurpose::Search) => {
                let least = self.trials.iter().map(|step| step.rate).fold(f64::INFINITY, f64::min);
                write!(f, "sustained: none; the lowest rate tried was {}", format_rate(least))?;
            }
            None => {}
        }
        match (self.sustained, self.upper_bound) {
            (Some(_), UpperBound::TargetFailed(rate)) => {
                writeln!(f, "; {} is not sustained", format_rate(rate))?
            }
            (Some(_), UpperBound::GeneratorLimited(rate)) => writeln!(
                f,
                "; at {} the generator was the limit, not the target; add threads, or use another \
                 machine",
                format_rate(rate)
            )?,
            (Some(_), UpperBound::Untested) => {
                writeln!(f, "; no higher rate was tried (--max-rate)")?
            }
            (None, UpperBound::Untested) => {}
            (None, _) => writeln!(f)?,
        }
        match (self.knee.lower_rate, self.knee.upper_bound) {
            (Some(lower_rate), UpperBound::TargetFailed(upper_bound)) => write!(
                f,
                "knee: between {} and {}, where p99 of the response time exceeds twice p99 of the \
                 service time of an idle target",
                format_rate(lower_rate),
                format_rate(upper_bound)
            ),
            (Some(lower_rate), UpperBound::GeneratorLimited(_)) => write!(
                f,
                "knee: above {}, where the generator is the limit; below, response time is close \
                 to service time",
                format_rate(lower_rate)
            ),
            (Some(lower_rate), UpperBound::Untested) => write!(
                f,
                "knee: none up to {}; response time is close to service time",
                format_rate(lower_rate)
            ),
            (None, _) => {
                write!(f, "knee: below the lowest rate tried")
            }
        }
    }
}

#[cfg(test)]
mod tests;
