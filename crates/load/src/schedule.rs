//! A schedule: when requests are due. It is decided before the run, and nothing that happens in the run moves it.
//!
//! Rates are requests per second, times nanoseconds from the start of the run. The n-th request of an even schedule is due when the
//! integral of the rate reaches n: there is no sum of rounded steps that could drift. Of a Poisson schedule it is due when the integral
//! reaches the sum of n exponential variates of mean 1 (the time change of a non-homogeneous Poisson process; Çınlar, Introduction to
//! Stochastic Processes, 1975, chapter 4), so every rate, also one that changes, can have either spacing.

/// A piece of time in which the rate is constant or changes evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// At its start.
    pub from_rate: f64,
    /// At its end.
    pub to_rate: f64,
    /// How long it is.
    pub length_ns: u64,
}

/// How requests are spaced at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Each as far from the one before as from the next.
    Even,
    /// As independent users come: any moment is as likely as any other. The same seed gives the same moments.
    Poisson {
        /// What the moments are drawn from.
        seed: u64,
    },
}

/// When requests are due.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// By a rate.
    Rate {
        /// One after the other.
        pieces: Vec<Piece>,
        /// In each of them.
        spacing: Spacing,
    },
    /// As recorded: nanoseconds from the start, ascending.
    Replay(std::sync::Arc<[u64]>),
}

impl Schedule {
    /// The same rate for all of the time.
    pub fn constant(rate: f64, length_ns: u64, spacing: Spacing) -> Schedule {
        let piece = Piece { from_rate: rate, to_rate: rate, length_ns };
        Schedule::Rate { pieces: vec![piece], spacing }
    }

    /// How long it is. Of a recording, until just after the last request.
    pub fn length_ns(&self) -> u64 {
        match self {
            Schedule::Rate { pieces, .. } => pieces.iter().map(|piece| piece.length_ns).sum(),
            Schedule::Replay(times) => times.last().map_or(0, |last| last + 1),
        }
    }

    /// The highest rate in it, per second. Of a recording: in any tenth of a second.
    pub fn rate_max(&self) -> f64 {
        const WINDOW_NS: u64 = 100_000_000;
        match self {
            Schedule::Rate { pieces, .. } => {
                pieces.iter().map(|piece| piece.from_rate.max(piece.to_rate)).fold(0.0, f64::max)
            }
            Schedule::Replay(times) => {
                let (mut first, mut most) = (0, 0);
                for (number, time) in times.iter().enumerate() {
                    while times[first] + WINDOW_NS <= *time {
                        first += 1;
                    }
                    most = most.max(number + 1 - first);
                }
                most as f64 * 1e9 / WINDOW_NS as f64
            }
        }
    }

    /// When requests are due, ascending.
    pub fn arrivals(&self) -> Arrivals {
        let random = match self {
            Schedule::Rate { spacing: Spacing::Poisson { seed }, .. } => Some(Random::new(*seed)),
            _ => None,
        };
        Arrivals {
            schedule: self.clone(),
            random,
            position: 0.0,
            number: 0,
            piece: 0,
            start_ns: 0,
            before: 0.0,
        }
    }
}

/// When requests are due, one after the other.
#[derive(Clone, Debug)]
pub struct Arrivals {
    schedule: Schedule,
    random: Option<Random>,
    /// The integral of the rate at which the next one is due.
    position: f64,
    number: u64,
    /// Which piece it is looked for in, when that starts, and the integral of the rate until then.
    piece: usize,
    start_ns: u64,
    before: f64,
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let pieces = match &self.schedule {
            Schedule::Replay(times) => {
                let due = times.get(self.number as usize).copied();
                self.number += 1;
                return due;
            }
            Schedule::Rate { pieces, .. } => pieces,
        };
        let position = match &mut self.random {
            // The first is as far from the start as any other from the one before.
            Some(random) => {
                self.position += random.exponential();
                self.position
            }
            None => self.number as f64,
        };
        loop {
            let piece = pieces.get(self.piece)?;
            let holds = piece.requests();
            let within = position - self.before;
            if within < holds {
                let due = self.start_ns + piece.reaches(within);
                self.number += 1;
                return Some(due);
            }
            self.before += holds;
            self.start_ns += piece.length_ns;
            self.piece += 1;
        }
    }
}

/// A rate as reports write it: `1,000/s`, with as many decimals as say something.
pub fn per_second(rate: f64) -> String {
    let whole = rate.round();
    let text = match rate {
        rate if rate != whole && rate < 1.0 => return format!("{rate:.3}/s"),
        rate if rate != whole && rate < 100.0 => return format!("{rate:.2}/s"),
        _ => format!("{whole:.0}"),
    };
    let mut grouped = String::new();
    for (at, digit) in text.chars().enumerate() {
        if at > 0 && (text.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + "/s"
}

impl Piece {
    /// Divided, which rounds once: half a second is half a second, and 60/s for so long are 30 requests and not one more.
    fn length_s(&self) -> f64 {
        self.length_ns as f64 / 1e9
    }

    /// How many requests fall into it.
    fn requests(&self) -> f64 {
        (self.from_rate + self.to_rate) / 2.0 * self.length_s()
    }

    /// When the integral of the rate from its start reaches a number: the root of a quadratic equation, in the form that loses no digits
    /// where the rate hardly changes. It is below the length.
    fn reaches(&self, requests: f64) -> u64 {
        let length_s = self.length_s();
        let slope = (self.to_rate - self.from_rate) / length_s;
        let root = (self.from_rate * self.from_rate + 2.0 * slope * requests).max(0.0).sqrt();
        let divisor = self.from_rate + root;
        let at_s = if divisor > 0.0 { 2.0 * requests / divisor } else { 0.0 };
        ((at_s * 1e9) as u64).min(self.length_ns.saturating_sub(1))
    }
}

/// Numbers that look random: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Above 0, at most 1.
    pub(crate) fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Of mean 1.
    fn exponential(&mut self) -> f64 {
        -self.share().ln()
    }
}

#[cfg(test)]
mod tests;
