//! The search for the highest rate at which a target meets what is required of it, and for the knee, from which on its response time
//! parts from its service time.
//!
//! Here is only what to measure next and what follows from it; whoever searches does the measuring. Rates rise by a factor until one is
//! not held, then the space between is halved, on a scale of factors, until it is as narrow as asked for. One bad run may be an accident
//! of the machine: a rate is not held when two runs of at most three say so. At the end the rate that was found is measured again, so
//! and so often, and lowered if fewer than four of five meet the requirements.
//!
//! A requirement is judged as that of any run: all of the bracket must be on the right side, and what failed is above every limit. What was
//! still under way counts with its age, so a run must wait for answers at least as long as the longest limit.
//!
//! **Knee**: the rate from which on the 99th percentile of the response time is above twice that of the service time *at the lowest rate
//! that was measured*. Of the service time at the same rate one cannot say it: where connections are many, the queue is in the target
//! and the service time holds it. Of an M/D/1 queue it lies where p99 of the waiting time is one service time.

use std::fmt;

use hist::Histogram;

use crate::doubt::Doubt;
use crate::require::Requirement;
use crate::run::Run;
use crate::schedule::per_second;

/// So much of the requests must be answered so soon: a requirement that can be searched for.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    pub(crate) requirement: Requirement,
    /// The share, 0.999 of p99.9; 1 means each.
    pub quantile: f64,
    /// The longest that holds it. Nanoseconds.
    pub limit_ns: u64,
}

/// How a search goes.
#[derive(Clone, Debug)]
pub struct Search {
    /// All must be met. Without any, the knee alone is looked for.
    pub requirements: Vec<Limit>,
    /// Where it begins; a rate that the target surely holds. Per second.
    pub first_rate: f64,
    /// Where it ends at the latest. Per second.
    pub rate_max: f64,
    /// How near the rate that is found is to the next that is not held, as a share of it.
    pub precision: f64,
    /// So many requests are above the strictest percentile in each run, if it may be long enough. With 100, random arrivals and a queue,
    /// a search comes within some 5 % of the truth; with 1,000 within 3 %.
    pub tail: u64,
    /// No run is shorter. Nanoseconds.
    pub length_min_ns: u64,
    /// No run is longer. Nanoseconds.
    pub length_max_ns: u64,
    /// So often the rate that was found is measured at the end.
    pub repeats: u32,
}

/// One run that is to be measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask {
    /// Per second.
    pub rate: f64,
    /// Nanoseconds.
    pub length_ns: u64,
    /// How many were asked for before.
    pub number: usize,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Nanoseconds, of those that were answered and those that were not yet.
    pub response: Histogram,
    /// Nanoseconds.
    pub service: Histogram,
    /// Requests that failed.
    pub failed: u64,
    /// Share of the requests of which the generator knows nothing, because it stood still.
    pub unknown: f64,
    /// What the generator says against itself.
    pub doubts: Vec<Doubt>,
}

impl From<&Run> for Measured {
    fn from(run: &Run) -> Measured {
        let tally = &run.tally;
        Measured {
            response: tally.response.clone(),
            service: tally.service.clone(),
            failed: tally.failures(),
            unknown: (tally.missed + tally.seen_late) as f64 / tally.intended.max(1) as f64,
            doubts: run.doubts.clone(),
        }
    }
}

/// A run as the report shows it.
#[derive(Clone, Debug)]
pub struct Step {
    /// Per second.
    pub rate: f64,
    /// What it was for.
    pub aim: Aim,
    /// Nanoseconds.
    pub length_ns: u64,
    /// Whether it met all requirements; of what was measured for the knee, whether response time was with service time.
    pub is_held: bool,
    /// Whether the generator was what limited it.
    pub is_generators: bool,
    /// What it came to.
    pub measured: Measured,
}

/// What a run was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// To find the rate that is held.
    Requirements,
    /// To be sure of it.
    Repeat,
    /// To find the knee.
    Knee,
}

/// A rate that is held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// Per second.
    pub rate: f64,
    /// Of the runs at the end, those that met the requirements.
    pub met: u32,
    /// The runs at the end.
    pub of: u32,
}

/// What stands above a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Above {
    /// This rate, which is not held.
    Broken(f64),
    /// This rate, at which the generator was the limit: the target may hold more.
    Generator(f64),
    /// Nothing more was asked for.
    Nothing,
}

/// Between which rates response time parts from service time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knee {
    /// Still together, if any rate was.
    pub below: Option<f64>,
    /// Parted.
    pub above: Above,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The highest rate that is held; none if not even the lowest is, or nothing was required.
    pub held: Option<Held>,
    /// What stands above it.
    pub above: Above,
    /// Where response time parts from service time.
    pub knee: Knee,
    /// All that was measured, in order.
    pub steps: Vec<Step>,
}

/// From one rate to the next, while it rises or falls.
const FACTOR: f64 = 2.0;
/// So often it falls before it gives up.
const FALLS: u32 = 4;
/// Of the runs at the end, so many must meet the requirements.
const SURE: f64 = 0.8;
/// So often the rate is lowered at the end.
const LOWERED_MAX: u32 = 8;
/// A run of which the generator knows less is measured again.
const UNKNOWN_MAX: f64 = 0.05;
const ATTEMPTS: u32 = 3;
/// Response time has parted from service time when it is so much longer.
const PARTED: f64 = 2.0;
/// The knee is not looked for more closely: it is no edge.
const KNEE_PRECISION: f64 = 0.05;
/// A percentile that is stricter would need runs without end.
const QUANTILE_MAX: f64 = 0.9999;

impl Default for Search {
    fn default() -> Search {
        Search {
            requirements: Vec::new(),
            first_rate: 100.0,
            // More than one machine sends: the generator is the limit before.
            rate_max: 10_000_000.0,
            // With 100 requests above the percentile, less would be read out of chance.
            precision: 0.03,
            tail: 100,
            length_min_ns: 1_000_000_000,
            length_max_ns: 60_000_000_000,
            repeats: 5,
        }
    }
}

impl Limit {
    /// Whether a run met it.
    pub fn is_met(&self, measured: &Measured) -> bool {
        self.requirement.is_met_by(&measured.response, measured.failed)
    }
}

impl Search {
    /// How long a run at this rate is: until enough requests are above the strictest percentile, and until a queue that grows by the
    /// precision asked for is twice as long as the longest limit.
    pub fn length_ns(&self, rate: f64) -> u64 {
        let strictest = self.requirements.iter().map(|one| one.quantile).fold(0.99, f64::max);
        let for_tail = self.tail as f64 / (1.0 - strictest.min(QUANTILE_MAX)) / rate * 1e9;
        let limit_ns = self.requirements.iter().map(|one| one.limit_ns).max().unwrap_or(0);
        let for_queue = 2.0 * limit_ns as f64 / self.precision;
        let length = for_tail.max(for_queue).min(self.length_max_ns as f64);
        (length.round() as u64).max(self.length_min_ns)
    }

    /// Searches. An error of `measure` ends it, and comes with what was measured until then.
    pub fn run<E>(
        &self,
        measure: &mut dyn FnMut(Ask) -> Result<Measured, E>,
    ) -> Result<Found, (E, Vec<Step>)> {
        let mut looking = Looking { search: self, measure, steps: Vec::new() };
        match looking.all() {
            Ok((held, above, knee)) => Ok(Found { held, above, knee, steps: looking.steps }),
            Err(error) => Err((error, looking.steps)),
        }
    }
}

/// The highest rate that is held, and what stands above it.
#[derive(Clone, Copy)]
struct Bounds {
    below: Option<f64>,
    above: Above,
}

struct Looking<'a, E> {
    search: &'a Search,
    measure: &'a mut dyn FnMut(Ask) -> Result<Measured, E>,
    steps: Vec<Step>,
}

/// What measuring a rate came to.
#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Held,
    Broken,
    Generator,
}

type Holds<'a> = &'a dyn Fn(&Measured) -> bool;

impl<E> Looking<'_, E> {
    /// The highest rate that is held, what stands above it, and the knee.
    fn all(&mut self) -> Result<(Option<Held>, Above, Knee), E> {
        let search = self.search;
        let (mut held, mut above) = (None, Above::Nothing);
        if !search.requirements.is_empty() {
            let meets = |one: &Measured| search.requirements.iter().all(|each| each.is_met(one));
            let first = Bounds { below: None, above: Above::Nothing };
            let found = self.bounds(Aim::Requirements, first, search.precision, &meets)?;
            above = found.above;
            if let Some(rate) = found.below {
                (held, above) = self.sure(rate, above, &meets)?;
            }
        }
        Ok((held, above, self.knee()?))
    }

    /// One run, again if the generator stood still in it.
    fn step(&mut self, rate: f64, aim: Aim, holds: Holds<'_>) -> Result<Verdict, E> {
        let length_ns = self.search.length_ns(rate);
        for attempt in 1.. {
            let measured = (self.measure)(Ask { rate, length_ns, number: self.steps.len() })?;
            let is_clear = measured.unknown <= UNKNOWN_MAX;
            let is_generators = measured.doubts.iter().any(is_generators) || !is_clear;
            let is_held = holds(&measured) && is_clear;
            self.steps.push(Step { rate, aim, length_ns, is_held, is_generators, measured });
            if is_clear || attempt == ATTEMPTS {
                return Ok(match (is_held, is_generators) {
                    // What the generator adds is in the response time: without it the target would hold the rate all the more.
                    (true, _) => Verdict::Held,
                    (false, true) => Verdict::Generator,
                    (false, false) => Verdict::Broken,
                });
            }
        }
        unreachable!("BUG: the last attempt returns")
    }

    /// What two runs of at most three say.
    fn judge(&mut self, rate: f64, aim: Aim, holds: Holds<'_>) -> Result<Verdict, E> {
        let first = self.step(rate, aim, holds)?;
        if first == Verdict::Held {
            return Ok(first);
        }
        let second = self.step(rate, aim, holds)?;
        if second != Verdict::Held {
            let both = [first, second];
            let is_generators = both.contains(&Verdict::Generator);
            return Ok(if is_generators { Verdict::Generator } else { Verdict::Broken });
        }
        match self.step(rate, aim, holds)? {
            Verdict::Held => Ok(Verdict::Held),
            _ => Ok(first),
        }
    }

    /// Narrows bounds until they are as near as asked for.
    fn bounds(
        &mut self,
        aim: Aim,
        mut bounds: Bounds,
        precision: f64,
        holds: Holds<'_>,
    ) -> Result<Bounds, E> {
        let (most, mut falls) = (self.search.rate_max, 0);
        let mut next = self.search.first_rate.min(most);
        loop {
            let over = match bounds.above {
                Above::Broken(rate) | Above::Generator(rate) => Some(rate),
                Above::Nothing => None,
            };
            let rate = match (bounds.below, over) {
                (None, None) => next,
                (Some(below), None) if below >= most => return Ok(bounds),
                (Some(below), None) => (below * FACTOR).min(most),
                (None, Some(_)) if falls == FALLS => return Ok(bounds),
                (None, Some(over)) => {
                    falls += 1;
                    next = over / FACTOR;
                    next
                }
                (Some(below), Some(over)) if over <= below * (1.0 + precision) => {
                    return Ok(bounds);
                }
                (Some(below), Some(over)) => (below * over).sqrt(),
            };
            match self.judge(rate, aim, holds)? {
                Verdict::Held => bounds.below = Some(rate),
                Verdict::Broken => bounds.above = Above::Broken(rate),
                Verdict::Generator => bounds.above = Above::Generator(rate),
            }
        }
    }

    /// Measures a rate again and again, and lowers it until it is sure.
    fn sure(
        &mut self,
        mut rate: f64,
        mut above: Above,
        holds: Holds<'_>,
    ) -> Result<(Option<Held>, Above), E> {
        let of = self.search.repeats;
        for lowered in 0.. {
            let (mut met, mut is_generators) = (0, false);
            for _ in 0..of {
                let verdict = self.step(rate, Aim::Repeat, holds)?;
                met += u32::from(verdict == Verdict::Held);
                is_generators |= verdict == Verdict::Generator;
            }
            if f64::from(met) >= SURE * f64::from(of) {
                return Ok((Some(Held { rate, met, of }), above));
            }
            above = if is_generators { Above::Generator(rate) } else { Above::Broken(rate) };
            if lowered == LOWERED_MAX {
                break;
            }
            rate /= 1.0 + self.search.precision;
        }
        Ok((None, above))
    }

    fn knee(&mut self) -> Result<Knee, E> {
        if self.steps.is_empty() {
            let first = self.search.first_rate.min(self.search.rate_max);
            self.step(first, Aim::Knee, &|_| true)?;
        }
        let lowest = self.steps.iter().min_by(|a, b| a.rate.total_cmp(&b.rate));
        let base = lowest.map_or(0.0, |step| p99(&step.measured.service));
        let together = move |one: &Measured| {
            let all = one.response.count() + one.failed;
            p99(&one.response) <= PARTED * base && one.failed as f64 <= 0.01 * all as f64
        };
        // What was measured already is not measured again: of each rate, what half of the runs or more say.
        let mut known: Vec<(f64, i32, bool)> = Vec::new();
        for step in self.steps.iter().filter(|step| step.measured.unknown <= UNKNOWN_MAX) {
            let vote = if together(&step.measured) { 1 } else { -1 };
            match known.iter_mut().find(|one| one.0 == step.rate) {
                Some(one) => (one.1, one.2) = (one.1 + vote, one.2 | step.is_generators),
                None => known.push((step.rate, vote, step.is_generators)),
            }
        }
        known.sort_by(|a, b| a.0.total_cmp(&b.0));
        let parted = known.iter().find(|one| one.1 < 0);
        let above = match parted {
            Some((rate, _, true)) => Above::Generator(*rate),
            Some((rate, _, false)) => Above::Broken(*rate),
            None => Above::Nothing,
        };
        let until = parted.map_or(f64::INFINITY, |one| one.0);
        let below = known.iter().rev().find(|one| one.1 >= 0 && one.0 < until).map(|one| one.0);
        let precision = self.search.precision.max(KNEE_PRECISION);
        let found = self.bounds(Aim::Knee, Bounds { below, above }, precision, &together)?;
        Ok(Knee { below: found.below, above: found.above })
    }
}

fn is_generators(doubt: &Doubt) -> bool {
    match doubt {
        Doubt::Late { .. } | Doubt::Busy { .. } | Doubt::Resources { .. } | Doubt::Books { .. } => {
            true
        }
        // That it stood still blurs nothing: what it does not know is counted.
        _ => false,
    }
}

fn p99(of: &Histogram) -> f64 {
    of.quantile(0.99).map_or(0.0, |found| found.estimate)
}

impl Held {
    /// Between which shares of all runs those that meet the requirements are, with a confidence of 95 % (the score interval; Wilson,
    /// "Probable inference, the law of succession, and statistical inference", 1927).
    pub fn confidence(&self) -> (f64, f64) {
        const Z: f64 = 1.959_964;
        if self.of == 0 {
            return (0.0, 1.0);
        }
        let n = f64::from(self.of);
        let share = f64::from(self.met) / n;
        let middle = share + Z * Z / (2.0 * n);
        let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.held {
            Some(held) => {
                let least = match self.above {
                    Above::Broken(_) => "",
                    Above::Generator(_) | Above::Nothing => "at least ",
                };
                let (from, to) = held.confidence();
                write!(
                    f,
                    "held: {least}{} ({} of {} runs at it met what is required: {:.0} to {:.0} % of all would)",
                    per_second(held.rate),
                    held.met,
                    held.of,
                    from * 100.0,
                    to * 100.0
                )?;
            }
            None if self.steps.iter().any(|step| step.aim == Aim::Requirements) => {
                let least = self.steps.iter().map(|step| step.rate).fold(f64::INFINITY, f64::min);
                write!(f, "held: no rate; the lowest tried was {}", per_second(least))?;
            }
            None => {}
        }
        match (self.held, self.above) {
            (Some(_), Above::Broken(rate)) => writeln!(f, "; {} is not held", per_second(rate))?,
            (Some(_), Above::Generator(rate)) => writeln!(
                f,
                "; at {} the generator was the limit, not the target: give it more threads or another machine",
                per_second(rate)
            )?,
            (Some(_), Above::Nothing) => writeln!(f, "; no higher rate was asked for")?,
            (None, Above::Nothing) => {}
            (None, _) => writeln!(f)?,
        }
        match (self.knee.below, self.knee.above) {
            (Some(below), Above::Broken(above)) => write!(
                f,
                "knee: between {} and {} p99 of the response time passes twice that of an idle target's service time",
                per_second(below),
                per_second(above)
            ),
            (Some(below), Above::Generator(_)) => write!(
                f,
                "knee: above {}, where the generator is the limit; up to there response time is with service time",
                per_second(below)
            ),
            (Some(below), Above::Nothing) => write!(
                f,
                "knee: none up to {}; response time is with service time",
                per_second(below)
            ),
            (None, _) => {
                write!(f, "knee: response time is above service time at each rate that was tried")
            }
        }
    }
}

#[cfg(test)]
mod tests;
