//! Schedules: when requests are due. A schedule is fixed before the run; nothing that happens in
//! the run moves it.
//!
//! Rates are requests per second, times nanoseconds from the start of the run. Request n of a
//! constant schedule is due when the integral of the rate reaches n, so no rounding errors
//! accumulate. Of a Poisson schedule it is due when the integral reaches the sum of n exponential
//! variates of mean 1 (time change of a non-homogeneous Poisson process; Çınlar, Introduction to
//! Stochastic Processes, 1975, chapter 4). So every rate profile supports both arrival processes.

/// A part of a schedule with a constant or linearly changing rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleSegment {
    /// Rate at its start.
    pub from_rate: f64,
    /// Rate at its end.
    pub to_rate: f64,
    /// Duration.
    pub duration_ns: u64,
}

/// Distribution of arrivals at a given rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalProcess {
    /// Evenly spaced.
    Constant,
    /// Random, as from independent users. The same seed gives the same times.
    Poisson {
        /// Random seed.
        seed: u64,
    },
}

/// When requests are due.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// From a rate profile.
    Rate {
        /// Parts in order.
        segments: Vec<ScheduleSegment>,
        /// Arrival process of all segments.
        arrival_process: ArrivalProcess,
    },
    /// Recorded: nanoseconds from the start, ascending.
    Replay(std::sync::Arc<[u64]>),
}

impl Schedule {
    /// A constant rate.
    pub fn constant(rate: f64, duration_ns: u64, arrival_process: ArrivalProcess) -> Schedule {
        let segment = ScheduleSegment { from_rate: rate, to_rate: rate, duration_ns };
        Schedule::Rate { segments: vec![segment], arrival_process }
    }

    /// Duration. Of a recorded schedule: until just after the last request.
    pub fn duration_ns(&self) -> u64 {
        match self {
            Schedule::Rate { segments, .. } => {
                segments.iter().map(|segment| segment.duration_ns).sum()
            }
            Schedule::Replay(times) => times.last().map_or(0, |last| last + 1),
        }
    }

    /// Highest rate, per second. Of a recorded schedule: over any 100 ms.
    pub fn max_rate(&self) -> f64 {
        const WINDOW_NS: u64 = 100_000_000;
        match self {
            Schedule::Rate { segments, .. } => segments
                .iter()
                .map(|segment| segment.from_rate.max(segment.to_rate))
                .fold(0.0, f64::max),
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

    /// Scheduled times, ascending.
    pub fn arrivals(&self) -> Arrivals {
        let random = match self {
            Schedule::Rate { arrival_process: ArrivalProcess::Poisson { seed }, .. } => {
                Some(SplitMix64::new(*seed))
            }
            _ => None,
        };
        Arrivals {
            schedule: self.clone(),
            random,
            expected_count: 0.0,
            number: 0,
            segment: 0,
            start_ns: 0,
            before: 0.0,
        }
    }
}

/// Iterator over scheduled times.
#[derive(Clone, Debug)]
pub struct Arrivals {
    schedule: Schedule,
    random: Option<SplitMix64>,
    /// Integral of the rate at the last request of a Poisson process: expected number of requests.
    expected_count: f64,
    number: u64,
    /// Current segment, its start, and the integral of the rate before it.
    segment: usize,
    start_ns: u64,
    before: f64,
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let segments = match &self.schedule {
            Schedule::Replay(times) => {
                let due_ns = times.get(self.number as usize).copied();
                self.number += 1;
                return due_ns;
            }
            Schedule::Rate { segments, .. } => segments,
        };
        let position = match &mut self.random {
            // The first request has the same distance from the start as others from their
            // predecessor.
            Some(random) => {
                self.expected_count += random.exponential();
                self.expected_count
            }
            None => self.number as f64,
        };
        loop {
            let segment = segments.get(self.segment)?;
            let count = segment.requests();
            let within = position - self.before;
            if within < count {
                let due_ns = self.start_ns + segment.time_at(within);
                self.number += 1;
                return Some(due_ns);
            }
            self.before += count;
            self.start_ns += segment.duration_ns;
            self.segment += 1;
        }
    }
}

/// Formats a rate for reports: `1,000/s`, with significant decimals only.
pub fn format_rate(rate: f64) -> String {
    let rounded = rate.round();
    let text = match rate {
        rate if rate != rounded && rate < 1.0 => return format!("{rate:.3}/s"),
        rate if rate != rounded && rate < 100.0 => return format!("{rate:.2}/s"),
        _ => format!("{rounded:.0}"),
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

impl ScheduleSegment {
    /// Duration in seconds, rounded once: of half a second at 60/s there are exactly 30 requests.
    fn length_s(&self) -> f64 {
        self.duration_ns as f64 / 1e9
    }

    /// Number of requests in this segment.
    fn requests(&self) -> f64 {
        (self.from_rate + self.to_rate) / 2.0 * self.length_s()
    }

    /// Time at which the integral of the rate from the start of the segment reaches a number: the
    /// root of a quadratic equation, in a form that stays accurate for small slopes. Always below
    /// the duration.
    fn time_at(&self, requests: f64) -> u64 {
        let length_s = self.length_s();
        let slope = (self.to_rate - self.from_rate) / length_s;
        let root = (self.from_rate * self.from_rate + 2.0 * slope * requests).max(0.0).sqrt();
        let divisor = self.from_rate + root;
        let at_s = if divisor > 0.0 { 2.0 * requests / divisor } else { 0.0 };
        ((at_s * 1e9) as u64).min(self.duration_ns.saturating_sub(1))
    }
}

/// Pseudorandom numbers (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
/// 2014).
#[derive(Clone, Debug)]
pub(crate) struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    pub(crate) fn new(seed: u64) -> SplitMix64 {
        SplitMix64 { state: seed }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    pub(crate) fn unit_interval(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponential variate of mean 1.
    fn exponential(&mut self) -> f64 {
        -self.unit_interval().ln()
    }
}

#[cfg(test)]
mod tests;
