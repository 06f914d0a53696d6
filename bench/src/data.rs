//! Recorded values: samples of known distributions with fixed seeds, equal on all machines.
//!
//! Values are integer nanoseconds. The generator is SplitMix64 (Steele, Lea, Flood 2014); normal
//! variates use the Box–Muller transform. Both are short and sufficient for 10^7 samples.

use std::f64::consts::TAU;

const MICROSECOND: f64 = 1e3;
const MILLISECOND: f64 = 1e6;
const SECOND: f64 = 1e9;
const HOUR: f64 = 3600.0 * SECOND;

/// SplitMix64 with the distributions of the benchmarks.
pub(crate) struct BenchRng {
    state: u64,
    /// Box–Muller yields two variates at a time: the unused one.
    spare: Option<f64>,
}

impl BenchRng {
    pub(crate) fn new(seed: u64) -> BenchRng {
        BenchRng { state: seed, spare: None }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1]: never 0, so its logarithm is finite.
    pub(crate) fn unit_interval(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (-2.0 * self.unit_interval().ln()).sqrt();
        let (sin, cos) = (TAU * self.unit_interval()).sin_cos();
        self.spare = Some(radius * sin);
        radius * cos
    }

    pub(crate) fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }
}

/// Distributions of values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueDistribution {
    Lognormal,
    Bimodal,
    Pareto,
    Uniform,
    Exponential,
    Outliers,
}

impl ValueDistribution {
    /// Distributions for cost measurements.
    pub(crate) const TIMED: [ValueDistribution; 3] =
        [ValueDistribution::Lognormal, ValueDistribution::Bimodal, ValueDistribution::Pareto];
    pub(crate) const ALL: [ValueDistribution; 6] = [
        ValueDistribution::Lognormal,
        ValueDistribution::Bimodal,
        ValueDistribution::Pareto,
        ValueDistribution::Uniform,
        ValueDistribution::Exponential,
        ValueDistribution::Outliers,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            ValueDistribution::Lognormal => "lognormal",
            ValueDistribution::Bimodal => "bimodal",
            ValueDistribution::Pareto => "pareto",
            ValueDistribution::Uniform => "uniform",
            ValueDistribution::Exponential => "exponential",
            ValueDistribution::Outliers => "constant + outliers",
        }
    }

    /// Parameters that reproduce the values.
    pub(crate) fn description(self) -> &'static str {
        match self {
            ValueDistribution::Lognormal => "median 10 ms, σ = 1.5, clamped to 10 µs … 10 s",
            ValueDistribution::Bimodal => {
                "90 % lognormal (200 µs, σ = 0.3), 10 % lognormal (50 ms, σ = 0.5)"
            }
            ValueDistribution::Pareto => "scale 100 µs, α = 1.1, capped at 1 h",
            ValueDistribution::Uniform => "1 ms … 100 ms",
            ValueDistribution::Exponential => "mean 20 ms",
            ValueDistribution::Outliers => {
                "999 of 1000 values are 1 ms, the rest uniform in 1 s … 10 s"
            }
        }
    }

    pub(crate) fn values(self, count: usize, seed: u64) -> Vec<u64> {
        let mut random = BenchRng::new(seed);
        (0..count).map(|_| self.draw(&mut random).round().max(1.0) as u64).collect()
    }

    fn draw(self, random: &mut BenchRng) -> f64 {
        match self {
            ValueDistribution::Lognormal => {
                random.lognormal(10.0 * MILLISECOND, 1.5).clamp(10.0 * MICROSECOND, 10.0 * SECOND)
            }
            ValueDistribution::Bimodal if random.unit_interval() <= 0.9 => {
                random.lognormal(200.0 * MICROSECOND, 0.3)
            }
            ValueDistribution::Bimodal => random.lognormal(50.0 * MILLISECOND, 0.5),
            ValueDistribution::Pareto => {
                (100.0 * MICROSECOND * random.unit_interval().powf(-1.0 / 1.1)).min(HOUR)
            }
            ValueDistribution::Uniform => MILLISECOND * (1.0 + 99.0 * random.unit_interval()),
            ValueDistribution::Exponential => -20.0 * MILLISECOND * random.unit_interval().ln(),
            ValueDistribution::Outliers if random.unit_interval() > 0.001 => MILLISECOND,
            ValueDistribution::Outliers => SECOND * (1.0 + 9.0 * random.unit_interval()),
        }
    }
}

/// The same values in the input type of each library, so that no contender pays for a conversion.
pub(crate) struct Values {
    pub(crate) nanoseconds: Vec<u64>,
    /// Nanoseconds as doubles.
    pub(crate) reals: Vec<f64>,
    pub(crate) seconds: Vec<f64>,
}

impl Values {
    pub(crate) fn new(nanoseconds: Vec<u64>) -> Values {
        Values {
            reals: nanoseconds.iter().map(|&ns| ns as f64).collect(),
            seconds: nanoseconds.iter().map(|&ns| ns as f64 / SECOND).collect(),
            nanoseconds,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nanoseconds.len()
    }
}

/// Latencies of one host over an hour, as a collector sees them: one frame every ten seconds.
///
/// The logarithm of a frame's median is that of the host (5 ms · e^N(0, 0.5)) plus a random walk
/// with steps N(0, 0.01) plus one slow wave with amplitude 0.1. Values are lognormal around it with
/// σ = 0.85.
pub(crate) struct LatencySeries {
    pub(crate) medians: Vec<f64>,
    pub(crate) frames: Vec<Vec<u64>>,
}

impl LatencySeries {
    pub(crate) const FRAMES: usize = 360;
    pub(crate) const SIGMA: f64 = 0.85;

    pub(crate) fn new(host: u64, values_per_frame: usize) -> LatencySeries {
        // Streams of different sizes must not repeat each other.
        let mut random = BenchRng::new(0x5eed_0000 + host * 1_000_003 + values_per_frame as u64);
        let of_host = (5.0 * MILLISECOND).ln() + 0.5 * random.normal();
        let mut walk = 0.0;
        let mut series = LatencySeries { medians: Vec::new(), frames: Vec::new() };
        for frame in 0..LatencySeries::FRAMES {
            walk += 0.01 * random.normal();
            let wave = 0.1 * (TAU * frame as f64 / LatencySeries::FRAMES as f64).sin();
            let median = (of_host + walk + wave).exp();
            let draw = |_| random.lognormal(median, LatencySeries::SIGMA).round().max(1.0) as u64;
            series.frames.push((0..values_per_frame).map(draw).collect());
            series.medians.push(median);
        }
        series
    }
}
