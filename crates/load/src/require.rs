//! Requirements: `p99.9<20ms`, and whether a run met them.
//!
//! A statistic out of buckets is a bracket; a requirement is met only if all of the bracket is on the right side. A request that failed
//! counts as one that was never answered: it is above every limit, so that a server cannot meet `p99` by refusing the slow ones. Of service
//! times the same holds of what was not answered until the end. A mean of what never came has no value: `mean` is of what was answered.

use std::str::FromStr;

use hist::{Bracket, Histogram};

use crate::run::Run;
use crate::search::Limit;
use crate::units::UNITS;

/// Something that a run must meet.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    /// As it was written.
    pub written: String,
    /// Of what.
    pub what: What,
    is_above: bool,
    is_equal_enough: bool,
    limit: f64,
}

/// What a requirement is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// A statistic of a time, in nanoseconds.
    Time(Time, Statistic),
    /// The share of requests that failed or were not answered until the end, from 0 to 1.
    Failed,
    /// Answers that count, per second of the run.
    Rate,
}

/// Which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// From when a request was due.
    Response,
    /// From when it was sent.
    Service,
}

/// Which statistic of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// From 0 to 1.
    Quantile(f64),
    /// The greatest.
    Max,
    /// Of what was answered.
    Mean,
}

/// Whether a requirement was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// For sure.
    Met,
    /// For sure not.
    Missed,
    /// The limit lies inside the bracket. That counts as not met.
    Unclear,
}

/// A requirement that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RequirementError(String);

impl Requirement {
    /// What the run has of it, and whether that is enough. Infinite is what was never answered; `None`, if there is nothing to tell by,
    /// is not enough.
    pub fn judge(&self, run: &Run) -> (Option<Bracket>, Verdict) {
        let found = self.found(run);
        let verdict = found.map_or(Verdict::Missed, |found| self.verdict(found));
        (found, verdict)
    }

    /// Whether response times, with so many more requests that failed, are enough; of what a search takes, which is of nothing else.
    pub(crate) fn is_met_by(&self, response: &Histogram, failed: u64) -> bool {
        let What::Time(Time::Response, statistic) = self.what else { return false };
        statistic.of(response, failed).is_some_and(|found| self.verdict(found) == Verdict::Met)
    }

    fn verdict(&self, found: Bracket) -> Verdict {
        let is_met = |value: f64| match (self.is_above, self.is_equal_enough) {
            (false, false) => value < self.limit,
            (false, true) => value <= self.limit,
            (true, false) => value > self.limit,
            (true, true) => value >= self.limit,
        };
        match (is_met(found.lower), is_met(found.upper)) {
            (true, true) => Verdict::Met,
            (false, false) => Verdict::Missed,
            _ => Verdict::Unclear,
        }
    }

    fn found(&self, run: &Run) -> Option<Bracket> {
        let tally = &run.tally;
        match self.what {
            What::Time(time, statistic) => {
                let (of, never) = match time {
                    Time::Response => (&tally.response, tally.failures()),
                    Time::Service => (&tally.service, tally.failures() + tally.unfinished),
                };
                statistic.of(of, never)
            }
            What::Failed => {
                // What the generator itself kept from being sent or seen in time says nothing of the target.
                let known = tally.completed + tally.failures() + tally.unfinished;
                let failed = tally.failures() + tally.unfinished;
                (known > 0).then(|| Bracket::exact(failed as f64 / known as f64))
            }
            What::Rate => {
                let seconds = run.length_ns as f64 * 1e-9;
                (seconds > 0.0).then(|| Bracket::exact(tally.completed as f64 / seconds))
            }
        }
    }
}

impl Statistic {
    /// Of a time, where `never` more were not answered at all.
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

impl TryFrom<&Requirement> for Limit {
    type Error = RequirementError;

    fn try_from(of: &Requirement) -> Result<Limit, RequirementError> {
        let quantile = match of.what {
            What::Time(Time::Response, Statistic::Quantile(q)) => q,
            What::Time(Time::Response, Statistic::Max) => 1.0,
            _ => {
                return Err(RequirementError(format!(
                    "{} cannot be searched for: a search takes percentiles and max of response time, as in p99.9<20ms or max<1s; what \
                     failed counts in them as never answered",
                    of.written
                )));
            }
        };
        // A limit holds what is equal to it.
        let limit = if of.is_equal_enough { of.limit.floor() } else { of.limit.ceil() - 1.0 };
        Ok(Limit { requirement: of.clone(), quantile, limit_ns: limit.max(0.0) as u64 })
    }
}

const EXPECTED: &str = "expected p50, p99.9, max or mean (of service time: service.p99) below a time, failed below a share, or rate above a \
                        number per second, as in p99.9<20ms, failed<0.1% or rate>990";

impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(written: &str) -> Result<Requirement, RequirementError> {
        let wrong = |why: &str| RequirementError(format!("{why}: {EXPECTED}"));
        let at = written.find(['<', '>']).ok_or_else(|| wrong("there is no < or > in it"))?;
        let (name, rest) = written.split_at(at);
        let (name, is_above) = (name.trim(), rest.starts_with('>'));
        let limit = rest[1..].strip_prefix('=');
        let (is_equal_enough, limit) = (limit.is_some(), limit.unwrap_or(&rest[1..]).trim());
        let (time, statistic) = match name.split_once('.') {
            Some(("service", statistic)) => (Time::Service, statistic),
            Some(("response", statistic)) => (Time::Response, statistic),
            _ => (Time::Response, name),
        };
        let percent = |text: &str| text.parse::<f64>().ok().filter(|q| (0.0..=100.0).contains(q));
        let what = match statistic {
            "max" => What::Time(time, Statistic::Max),
            "mean" => What::Time(time, Statistic::Mean),
            "failed" if statistic == name => What::Failed,
            "rate" if statistic == name => What::Rate,
            other => {
                let number = other.strip_prefix('p').filter(|text| percent(text).is_some());
                let number = number.ok_or_else(|| wrong(&format!("{name:?} is not known")))?;
                // Through the decimal, so that p99.9 is 0.999 and not its neighbour.
                let q = format!("{number}e-2").parse();
                let q = q.map_err(|_| wrong(&format!("{name:?} is not known")))?;
                What::Time(time, Statistic::Quantile(q))
            }
        };
        if is_above != (what == What::Rate) {
            let other = if is_above { "<" } else { ">" };
            return Err(wrong(&format!("{name} needs a {other}")));
        }
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let read = match what {
            What::Time(..) => UNITS.iter().find_map(|(unit, ns)| {
                number(limit.strip_suffix(unit)?).map(|number| number * *ns as f64)
            }),
            What::Failed => match limit.strip_suffix('%') {
                Some(percent) => number(percent).map(|percent| percent / 100.0),
                None => number(limit),
            },
            What::Rate => number(limit.strip_suffix("/s").unwrap_or(limit)),
        };
        let limit = read.filter(|limit| limit.is_finite() && *limit >= 0.0);
        let limit = limit.ok_or_else(|| wrong(&format!("{:?} is no limit", rest[1..].trim())))?;
        Ok(Requirement { written: written.to_owned(), what, is_above, is_equal_enough, limit })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::failure::Failure;
    use crate::tally::Tally;

    fn run(times_ms: impl Iterator<Item = u64>, failed: u64) -> Run {
        let mut recorder = hist::Recorder::new();
        times_ms.for_each(|ms| recorder.record(ms * 1_000_000));
        let response = recorder.snapshot();
        let mut tally = Tally { completed: response.count(), ..Tally::default() };
        (tally.service, tally.response) = (response.clone(), response);
        tally.failed[Failure::Reset as usize] = failed;
        tally.intended = tally.completed + failed;
        Run {
            tally,
            by_second: BTreeMap::new(),
            by_request: Vec::new(),
            began_unix_ns: 0,
            length_ns: 2_000_000_000,
            is_interrupted: false,
            stalls: Vec::new(),
            words: Default::default(),
            files: Default::default(),
            doubts: Vec::new(),
        }
    }

    #[track_caller]
    fn check(written: &str, run: &Run, expected: Verdict) {
        let requirement: Requirement = written.parse().unwrap();
        assert_eq!(requirement.judge(run).1, expected, "{written}");
    }

    #[test]
    fn times_are_held_to_their_bounds() {
        let run = run(1..=1000, 0);
        check("p99<1.1s", &run, Verdict::Met);
        check("p99<1m", &run, Verdict::Met);
        check("p99 < 900 ms", &run, Verdict::Missed);
        check("service.p50<=600ms", &run, Verdict::Met);
        // The bucket that holds the quantile holds the limit too.
        check("p99<990ms", &run, Verdict::Unclear);
        // The maximum is exact.
        check("max<=1000ms", &run, Verdict::Met);
        check("max<1s", &run, Verdict::Missed);
        check("response.mean<0.6s", &run, Verdict::Met);
        check("rate>499/s", &run, Verdict::Met);
        check("rate>=500", &run, Verdict::Met);
        check("rate>500", &run, Verdict::Missed);
        check("failed<0.1%", &run, Verdict::Met);
    }

    /// Whoever refuses the slow ones does not meet it.
    #[test]
    fn what_failed_is_above_every_limit() {
        let run = run(1..=900, 100);
        check("p50<600ms", &run, Verdict::Met);
        check("p89<1s", &run, Verdict::Met);
        check("p91<1h", &run, Verdict::Missed);
        check("max<1h", &run, Verdict::Missed);
        check("failed<=10%", &run, Verdict::Met);
        check("failed<0.1", &run, Verdict::Missed);
        let none = self::run(std::iter::empty(), 0);
        check("p50<1h", &none, Verdict::Missed);
        check("failed<50%", &none, Verdict::Missed);
        check("p50<1h", &self::run(std::iter::empty(), 5), Verdict::Missed);
    }

    #[test]
    fn a_search_takes_percentiles_of_response_time() {
        let limit = |written: &str| Limit::try_from(&written.parse::<Requirement>().unwrap());
        let found = |written: &str| limit(written).map(|one| (one.quantile, one.limit_ns));
        assert_eq!(found("p99.9<20ms"), Ok((0.999, 19_999_999)));
        assert_eq!(found("p99.9<=20ms"), Ok((0.999, 20_000_000)));
        assert_eq!(found("response.max<=1s"), Ok((1.0, 1_000_000_000)));
        assert_eq!(found("p50<0ms"), Ok((0.5, 0)));
        for written in ["mean<1s", "failed<1%", "rate>10", "service.p99<1s", "service.max<1s"] {
            let error = limit(written).unwrap_err().to_string();
            assert!(error.contains("percentiles and max of response"), "{written}: {error}");
        }
    }

    /// A step of a search cannot be told to be held and unclear at once.
    #[test]
    fn a_search_judges_as_a_run_is_judged() {
        for failed in [0, 5, 20] {
            let run = run(1..=1000, failed);
            let measured = crate::search::Measured::from(&run);
            for ms in (960..=1020).step_by(2) {
                for written in
                    [format!("p99<{ms}ms"), format!("p98<={ms}ms"), format!("max<{ms}ms")]
                {
                    let requirement: Requirement = written.parse().unwrap();
                    let limit = Limit::try_from(&requirement).unwrap();
                    let is_met = requirement.judge(&run).1 == Verdict::Met;
                    assert_eq!(limit.is_met(&measured), is_met, "{written} with {failed} failed");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_told() {
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
