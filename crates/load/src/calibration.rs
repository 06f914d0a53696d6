//! Calibration: before a run, in 1 to 5 seconds, what this machine can be trusted with.
//!
//! Three things are looked at. **Clock**: where readings come from, and how far they may be off. **Rate**: how many requests per second
//! one thread sends on time to an echo in another thread; runs of 60 ms at rising rates, until the generator notices at the 99th
//! percentile more than 200 us late when requests are due, thrice. The echo takes its share of the machine, so it is a lower bound.
//! **Freeze test**: a stub stands still for a quarter of 600 ms, and mean, p50, p99 and max must be [`truth`] but for one bucket and for
//! what this machine adds, which is measured by itself: answers to requests at a low rate, how late the generator noticed, how late the
//! stub was. Where that is 10 ms or more, the machine stood still: then it is tried again, three times in all, and told.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hist::Histogram;

use crate::doubt::{Doubt, OWN_LAG_NS};
use crate::request::{Request, Requests, Template};
use crate::run::{Error, Run, Settings, run};
use crate::schedule::{Schedule, Spacing, per_second};
use crate::stub::{Answers, Freezing, Stub};
use crate::tally::bucket_width;
use crate::target::Target;
use crate::truth::{Freeze, truth};
use crate::worker::STALL_NS;

/// What this machine can be trusted with.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Where readings of the clock come from.
    pub clock_mode: clock::Mode,
    /// Why, if it is not the processor's counter.
    pub clock_reason: Option<String>,
    /// How far a reading may be off. Nanoseconds.
    pub clock_error_ns: u64,
    /// How often counter or system jumped.
    pub clock_disruptions: u64,
    /// So many requests per second one thread sends on time, at least; 0 if not even the lowest rate that was tried.
    pub rate_max: f64,
    /// Processors that threads may use.
    pub processors: usize,
    /// The freeze test: what was found, and the truth.
    pub freeze: Vec<Compared>,
    /// How often it was tried.
    pub attempts: u32,
    /// Whether the machine kept going in the last of them.
    pub is_steady: bool,
}

/// A number that was measured and is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Its name: mean, p50, p99 or max.
    pub what: &'static str,
    /// As measured. Nanoseconds.
    pub found_ns: f64,
    /// As it is. Nanoseconds.
    pub truth_ns: f64,
    /// How far they may be apart. Nanoseconds.
    pub allowed_ns: f64,
}

const MS: u64 = 1_000_000;
/// The lowest rate that is tried.
pub(crate) const RATE_FIRST: f64 = 10_000.0;
/// Above 1.28 million, the seventh time that it is doubled, none is: a thread that makes a system call for each request comes no further.
const RATE_LAST: f64 = 1_300_000.0;
/// At the lowest rate that is 600 requests, six of them above the 99th percentile; all eight rates take half a second.
const RATE_LENGTH_NS: u64 = 60 * MS;
/// One run in which another had the processor says nothing of a rate.
const RATE_ATTEMPTS: u32 = 3;
/// A thread that notices later is not on time. Twice of what a run is doubted for: here the echo takes its part of the machine, and of the
/// rate that is found only [`USABLE`] may be asked for.
const LATE_NS: f64 = 2.0 * OWN_LAG_NS;
/// What is sent in the end may use so much of what was sent on time here.
pub(crate) const USABLE: f64 = 0.8;
/// 600 requests, six of them above the 99th percentile, and far less than any machine sends.
const FREEZE_RATE: f64 = 1_000.0;
const FREEZE_LENGTH_NS: u64 = 600 * MS;
/// A quarter of all requests is due in it, so that mean and p99 are far from those of a generator that would stand still with the server,
/// and p50 is not.
const FREEZE: Freeze = Freeze { from_ns: 200 * MS, to_ns: 350 * MS };
/// Well above what a connection within this machine takes, so that p50 is known by arithmetic too.
const SERVICE_NS: u64 = 2 * MS;
/// A machine that stands still in three of three will do so in the run.
const ATTEMPTS: u32 = 3;
/// Readings of a good clock are off by far less.
const CLOCK_ERROR_NS: u64 = MS;

/// Looks what this machine can be trusted with. When `stop` is set, it ends soon, with what it has.
pub fn calibrate(stop: &Arc<AtomicBool>) -> Result<Calibration, Error> {
    let (rate_max, base_ns) = rate_max(stop)?;
    let mut attempts = 0;
    let (freeze, is_steady) = loop {
        attempts += 1;
        let (freeze, is_steady) = freeze_test(base_ns, stop)?;
        if is_steady || attempts == ATTEMPTS {
            break (freeze, is_steady);
        }
    };
    let status = clock::status();
    Ok(Calibration {
        clock_mode: status.mode,
        clock_reason: status.reason,
        clock_error_ns: clock::error_bound_ns(),
        clock_disruptions: status.disruptions,
        rate_max,
        processors: processors(),
        freeze,
        attempts,
        is_steady,
    })
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The highest rate that is sent on time, and what a request takes that nothing is done for.
fn rate_max(stop: &Arc<AtomicBool>) -> Result<(f64, f64), Error> {
    let stub = Stub::start(Answers::Echo, 0)?;
    let mut base_ns = 0.0;
    let mut is_on_time = |rate: f64| -> Result<bool, Error> {
        for _ in 0..RATE_ATTEMPTS {
            let settings = settings(&stub, rate, RATE_LENGTH_NS);
            let found = run(&settings, stop, &mut ())?;
            if rate == RATE_FIRST {
                base_ns = quantile(&found.tally.response, 0.99);
            }
            let is_in_time = found.length_ns <= RATE_LENGTH_NS * 3 / 2;
            let is_on_time = quantile(&found.tally.own_lag, 0.99) <= LATE_NS;
            if is_in_time && is_on_time && found.stalls.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let (mut held, mut next) = (0.0, RATE_FIRST);
    while next < RATE_LAST && is_on_time(next)? {
        (held, next) = (next, next * 2.0);
    }
    if held > 0.0 && next < RATE_LAST {
        let between = held * std::f64::consts::SQRT_2;
        if is_on_time(between)? {
            held = between;
        }
    }
    Ok((held, base_ns))
}

/// What was found, and whether the machine kept going.
fn freeze_test(base_ns: f64, stop: &Arc<AtomicBool>) -> Result<(Vec<Compared>, bool), Error> {
    let stub = Stub::start(Answers::Http1, SERVICE_NS)?;
    let settings = settings(&stub, FREEZE_RATE, FREEZE_LENGTH_NS);
    let found = run(&settings, stop, &mut Freezing(&stub, FREEZE))?;
    let end_ns = FREEZE_LENGTH_NS + settings.drain_ns;
    let truth = truth(settings.schedule.arrivals(), SERVICE_NS, &[FREEZE], end_ns);
    Ok(judged(&found, &truth, base_ns, stub.late_ns()))
}

fn judged(
    found: &Run,
    truth: &Histogram,
    base_ns: f64,
    stub_late_ns: u64,
) -> (Vec<Compared>, bool) {
    let own_ns = found.tally.own_lag.max().map_or(0.0, |max| max.estimate);
    let base_ns = base_ns + own_ns + stub_late_ns as f64;
    let is_steady = found.stalls.is_empty() && base_ns < STALL_NS as f64;
    let mean = |of: &Histogram| of.mean().map_or(0.0, |mean| mean.estimate);
    let compared = [("mean", None), ("p50", Some(0.5)), ("p99", Some(0.99)), ("max", Some(1.0))];
    let compared = compared.map(|(what, q)| {
        let at = |of: &Histogram| q.map_or_else(|| mean(of), |q| quantile(of, q));
        let (found_ns, truth_ns) = (at(&found.tally.response), at(truth));
        Compared { what, found_ns, truth_ns, allowed_ns: truth_ns * bucket_width() + base_ns }
    });
    (compared.to_vec(), is_steady)
}

fn settings(stub: &Stub, rate: f64, length_ns: u64) -> Settings {
    let address = stub.address();
    let protocol = stub.protocol();
    let request = Request {
        method: "GET".to_owned(),
        path: Template::text("/"),
        body: Template::text(""),
        ..Request::default()
    };
    Settings {
        target: Target {
            protocol,
            host: address.ip().to_string(),
            port: address.port(),
            is_tls: false,
            is_verified: true,
        },
        tls: net::tls::ClientTls::default(),
        schedule: Schedule::constant(rate, length_ns, Spacing::Even),
        requests: Requests::one(request),
        seed: 1,
        threads: 1,
        processors: processors(),
        connections: 64,
        connections_max: 1_000,
        timeout_ns: 10_000 * MS,
        drain_ns: 1_000 * MS,
        give_up: Arc::default(),
    }
}

fn quantile(of: &Histogram, q: f64) -> f64 {
    of.quantile(q).map_or(0.0, |found| found.estimate)
}

impl Compared {
    /// Whether they are as near as they may be.
    pub fn is_near(&self) -> bool {
        (self.found_ns - self.truth_ns).abs() <= self.allowed_ns
    }
}

impl Calibration {
    /// Why a run by this schedule, with so many threads, is not to be trusted.
    pub fn doubts(&self, schedule: &Schedule, threads: usize) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        let asked = schedule.rate_max();
        let possible = self.rate_max * threads.clamp(1, self.processors.max(1)) as f64;
        // The freeze test sends at its rate and says itself whether that went well: below it nothing is to be doubted.
        if asked > FREEZE_RATE && asked > possible * USABLE {
            doubts.push(Doubt::Rate { asked, possible });
        }
        if !self.is_steady {
            doubts.push(Doubt::Unsteady { attempts: self.attempts });
        }
        // Where the machine stood still the test says nothing.
        for one in self.freeze.iter().filter(|one| self.is_steady && !one.is_near()) {
            doubts.push(Doubt::Freeze(*one));
        }
        if self.clock_disruptions > 0 || self.clock_error_ns > CLOCK_ERROR_NS {
            let (disruptions, error_ns) = (self.clock_disruptions, self.clock_error_ns);
            doubts.push(Doubt::Clock { disruptions, error_ns });
        }
        doubts
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.clock_reason.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        let (mode, error_ns) = (self.clock_mode.name(), self.clock_error_ns);
        writeln!(f, "clock: {mode}{reason}, off by at most {error_ns} ns")?;
        match self.rate_max {
            0.0 => {
                writeln!(
                    f,
                    "rate: one thread did not send even {} on time",
                    per_second(RATE_FIRST)
                )?;
            }
            rate => writeln!(f, "rate: one thread sends at least {} on time", per_second(rate))?,
        }
        let ms = |ns: f64| ns * 1e-6;
        write!(f, "freeze test:")?;
        for (number, one) in self.freeze.iter().enumerate() {
            let (found, truth) = (ms(one.found_ns), ms(one.truth_ns));
            let comma = if number > 0 { "," } else { "" };
            write!(f, "{comma} {} {found:.2} ms (truth {truth:.2} ms)", one.what)?;
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
    use crate::schedule::Piece;

    fn calm() -> Calibration {
        let near = Compared { what: "p99", found_ns: 101.0, truth_ns: 100.0, allowed_ns: 2.0 };
        Calibration {
            clock_mode: clock::Mode::Counter,
            clock_reason: None,
            clock_error_ns: 100,
            clock_disruptions: 0,
            rate_max: 100_000.0,
            processors: 2,
            freeze: vec![near],
            attempts: 1,
            is_steady: true,
        }
    }

    #[test]
    fn what_is_too_much_for_this_machine_is_doubted() {
        let schedule = |from_rate, to_rate| {
            let piece = Piece { from_rate, to_rate, length_ns: 1_000 * MS };
            Schedule::Rate { pieces: vec![piece], spacing: Spacing::Even }
        };
        let doubts = |rate, threads| calm().doubts(&schedule(0.0, rate), threads);
        assert_eq!(doubts(80_000.0, 1), []);
        assert_eq!(doubts(81_000.0, 1), [Doubt::Rate { asked: 81_000.0, possible: 100_000.0 }]);
        assert_eq!(doubts(160_000.0, 2), []);
        // No more threads than processors.
        assert_eq!(doubts(170_000.0, 64), [Doubt::Rate { asked: 170_000.0, possible: 200_000.0 }]);
        let at_once = Schedule::Replay((0..20_000).map(|n| n * 1_000).collect());
        assert_eq!(
            calm().doubts(&at_once, 1),
            [Doubt::Rate { asked: 200_000.0, possible: 100_000.0 }]
        );
    }

    /// A machine that is not even as fast as was tried has no rate of 0.
    #[test]
    fn no_rate_at_all_is_told_as_such() {
        let slow = Calibration { rate_max: 0.0, ..calm() };
        assert!(slow.to_string().contains("did not send even 10,000/s on time"), "{slow}");
        let doubts = |rate| slow.doubts(&Schedule::constant(rate, 1_000 * MS, Spacing::Even), 1);
        // The freeze test went well at a higher rate.
        assert_eq!(doubts(50.0), []);
        let doubts = doubts(5_000.0);
        assert!(doubts[0].to_string().contains("did not send 10,000/s on time"), "{doubts:?}");
    }

    #[test]
    fn what_is_wrong_with_the_machine_is_told() {
        let schedule = Schedule::constant(1.0, 1_000 * MS, Spacing::Even);
        let far = Compared { what: "p99", found_ns: 90.0, truth_ns: 100.0, allowed_ns: 2.0 };
        let off = Calibration { freeze: vec![far], clock_disruptions: 1, ..calm() };
        let clock = Doubt::Clock { disruptions: 1, error_ns: 100 };
        assert_eq!(off.doubts(&schedule, 1), [Doubt::Freeze(far), clock]);
        // Where the machine stood still, that is all that is known.
        let unsteady = Calibration { freeze: vec![far], is_steady: false, attempts: 3, ..calm() };
        assert_eq!(unsteady.doubts(&schedule, 1), [Doubt::Unsteady { attempts: 3 }]);
        for doubt in off.doubts(&schedule, 1).iter().chain(&unsteady.doubts(&schedule, 1)) {
            assert!(!doubt.to_string().ends_with('.'), "{doubt}");
        }
    }
}
