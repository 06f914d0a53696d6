//! Doubts: why the generator, or this machine, may be what limited a run, so that the run says nothing of the target.

use std::fmt;

use crate::calibration::{Compared, RATE_FIRST, USABLE};
use crate::failure::Failure;
use crate::run::Run;
use crate::schedule::per_second;
use crate::tally::Tally;

/// Why a run is not to be trusted.
#[derive(Clone, Debug, PartialEq)]
pub enum Doubt {
    /// The generator stood still.
    Stalled {
        /// How often.
        times: usize,
        /// In all, nanoseconds.
        total_ns: u64,
        /// Requests that were not sent because of it.
        missed: u64,
        /// Requests whose answer came meanwhile.
        seen_late: u64,
    },
    /// It noticed too late when requests were due, so that much of what was measured is its own.
    Late {
        /// What it added, at its 99th percentile. Nanoseconds.
        own_lag_p99_ns: u64,
        /// Response time at its 99th percentile. Nanoseconds.
        response_p99_ns: u64,
    },
    /// Its threads were at work nearly all of the time.
    Busy {
        /// Share of the time of all threads, up to 1.
        share: f64,
    },
    /// This machine had no more files, ports, processes or memory.
    Resources {
        /// Requests that failed for that.
        failed: u64,
    },
    /// Requests are lost from the books: a fault of topdeck.
    Books {
        /// Requests that were due.
        intended: u64,
        /// Requests of which is known what became of them.
        accounted: u64,
    },
    /// Before the run: more is asked for than this machine is known to send on time.
    Rate {
        /// The highest rate of the schedule, per second.
        asked: f64,
        /// What all threads sent on time, per second; 0 if nothing was.
        possible: f64,
    },
    /// Before the run: the freeze test found something else than what is true.
    Freeze(Compared),
    /// Before the run: the machine stood still in each calibration.
    Unsteady {
        /// How many there were.
        attempts: u32,
    },
    /// Before the run: the clock jumped, or may be far off.
    Clock {
        /// How often it jumped.
        disruptions: u64,
        /// How far it may be off. Nanoseconds.
        error_ns: u64,
    },
}

/// Of the 99th percentile of response times, this share may be the generator's own.
const OWN_SHARE: f64 = 0.1;
/// Below that, nobody cares: a sleep that ends on a busy machine is that late.
pub(crate) const OWN_LAG_NS: f64 = 100_000.0;
/// A thread that is busier has no time left to be on time.
const BUSY: f64 = 0.95;

pub(crate) fn doubts(run: &Run, threads: usize) -> Vec<Doubt> {
    let tally = &run.tally;
    let mut doubts = Vec::new();
    if !run.stalls.is_empty() {
        doubts.push(Doubt::Stalled {
            times: run.stalls.len(),
            total_ns: run.stalls.iter().map(|(from, to)| to - from).sum(),
            missed: tally.missed,
            seen_late: tally.seen_late,
        });
    }
    doubts.extend(Doubt::so_far(tally, run.length_ns, threads));
    if tally.accounted() != tally.intended {
        let (intended, accounted) = (tally.intended, tally.accounted());
        doubts.push(Doubt::Books { intended, accounted });
    }
    doubts
}

impl Doubt {
    /// What a tally by itself says, also while a run goes on. When the generator stood still, and what is lost from the books, is known at
    /// the end.
    pub fn so_far(tally: &Tally, length_ns: u64, threads: usize) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        let p99 = |of: &hist::Histogram| of.quantile(0.99).map_or(0.0, |found| found.estimate);
        let (own, response) = (p99(&tally.own_lag), p99(&tally.response));
        // Where nothing was answered there is no time that it could have spoilt.
        if tally.response.count() > 0 && own > OWN_LAG_NS && own > response * OWN_SHARE {
            let (own_lag_p99_ns, response_p99_ns) = (own as u64, response as u64);
            doubts.push(Doubt::Late { own_lag_p99_ns, response_p99_ns });
        }
        let share = tally.cpu_ns as f64 / (length_ns.max(1) as f64 * threads as f64);
        if share > BUSY && own > OWN_LAG_NS {
            doubts.push(Doubt::Busy { share: share.min(1.0) });
        }
        let failed = tally.failed[Failure::Resources as usize];
        if failed > 0 {
            doubts.push(Doubt::Resources { failed });
        }
        doubts
    }

    /// One word, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Doubt::Stalled { .. } => "stalled",
            Doubt::Late { .. } => "late",
            Doubt::Busy { .. } => "busy",
            Doubt::Resources { .. } => "resources",
            Doubt::Books { .. } => "books",
            Doubt::Rate { .. } => "rate",
            Doubt::Freeze(_) => "freeze",
            Doubt::Unsteady { .. } => "unsteady",
            Doubt::Clock { .. } => "clock",
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns as f64 * 1e-6;
        match self {
            Doubt::Stalled { times, total_ns, missed, seen_late } => {
                let often = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
                write!(
                    f,
                    "the generator itself stood still {often}, {:.0} ms in all: {missed} requests were not sent, the answers to \
                     {seen_late} came meanwhile, and neither are in the times; run it where it gets a processor",
                    ms(*total_ns)
                )
            }
            Doubt::Late { own_lag_p99_ns, response_p99_ns } => write!(
                f,
                "the generator noticed too late when requests were due: p99 of that is {:.3} ms, of the response time {:.3} ms; \
                 ask for less, or give it more threads or processors",
                ms(*own_lag_p99_ns),
                ms(*response_p99_ns)
            ),
            Doubt::Busy { share } => write!(
                f,
                "the generator's threads were at work {:.0} % of the time; ask for less, or give it more threads or processors",
                share * 100.0
            ),
            Doubt::Resources { failed } => write!(
                f,
                "{failed} requests found no file, port, process or memory on this machine; raise the limits, or ask for fewer connections or \
                 processes"
            ),
            Doubt::Rate { asked, possible: 0.0 } => write!(
                f,
                "{} are asked for, and before the run this machine did not send {} on time, the lowest rate that was tried; run it where \
                 nothing else runs",
                per_second(*asked),
                per_second(RATE_FIRST)
            ),
            Doubt::Rate { asked, possible } => write!(
                f,
                "{} are asked for, and this machine is known to send {} on time, of which {:.0} % are safe; ask for less, or give it more \
                 threads or processors",
                per_second(*asked),
                per_second(*possible),
                USABLE * 100.0
            ),
            Doubt::Freeze(one) => write!(
                f,
                "the freeze test before the run found {} to be {:.2} ms where {:.2} ms is true, and {:.2} ms apart is allowed; \
                 run it where nothing else runs",
                one.what,
                one.found_ns * 1e-6,
                one.truth_ns * 1e-6,
                one.allowed_ns * 1e-6
            ),
            Doubt::Unsteady { attempts } => write!(
                f,
                "this machine stood still in each of {attempts} calibrations before the run; run it where it gets a processor"
            ),
            Doubt::Clock { disruptions, error_ns } => write!(
                f,
                "the clock jumped {disruptions} times and may be off by {:.3} ms; see topdeck doctor",
                ms(*error_ns)
            ),
            Doubt::Books { intended, accounted } => write!(
                f,
                "{intended} requests were due, but what became of them is known of {accounted}: a fault of topdeck, please report it"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(own_us: u64, response_us: Option<u64>) -> Tally {
        let of = |us: Option<u64>| {
            let mut recorder = hist::Recorder::new();
            us.iter().for_each(|us| recorder.record(us * 1_000));
            recorder.snapshot()
        };
        Tally { own_lag: of(Some(own_us)), response: of(response_us), ..Tally::default() }
    }

    #[test]
    fn what_is_late_is_late_for_something() {
        let doubts = |own_us, response_us| {
            let doubts = Doubt::so_far(&tally(own_us, response_us), 1_000_000_000, 1);
            doubts.iter().map(Doubt::kind).collect::<Vec<_>>()
        };
        assert_eq!(doubts(500, Some(1_000)), ["late"]);
        assert_eq!(doubts(500, Some(50_000)), [""; 0]);
        assert_eq!(doubts(50, Some(100)), [""; 0]);
        // All failed.
        assert_eq!(doubts(500, None), [""; 0]);
    }
}
