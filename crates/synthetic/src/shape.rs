//! Distribution shapes: mixtures of log-logistic modes.
//!
//! The distribution function of a log-logistic mode needs neither logarithm nor exponential, whose
//! last digit depends on the C library. Shares are therefore identical to the last bit on every
//! machine.

use super::cells::{CELLS, cell_starts_ns};

/// A mode of the distribution. Steepness k gives the logarithm a standard deviation of 1.81 / k.
#[derive(Clone, Copy, Debug)]
pub(super) struct LatencyMode {
    pub(super) weight: f64,
    pub(super) median_ns: f64,
    pub(super) steepness: u32,
}

impl LatencyMode {
    pub(super) fn new(weight: f64, median_ns: f64, steepness: u32) -> LatencyMode {
        LatencyMode { weight, median_ns, steepness }
    }

    /// Share of values below `ns`.
    fn below(&self, ns: f64) -> f64 {
        let ratio = ns / self.median_ns;
        // `powi` may round differently on another platform.
        let power = (1..self.steepness).fold(ratio, |power, _| power * ratio);
        if power > 1e300 { 1.0 } else { power / (1.0 + power) }
    }
}

/// Share of each cell in a mixture. Values outside the cells are ignored; the shares add up to 1.
pub(super) fn shares(modes: &[LatencyMode]) -> [f64; CELLS] {
    let starts = cell_starts_ns();
    let mut shares = [0.0; CELLS];
    for mode in modes {
        let mut before = mode.below(starts[0] as f64);
        for (share, &end) in shares.iter_mut().zip(&starts[1..]) {
            let below = mode.below(end as f64);
            *share += mode.weight * (below - before);
            before = below;
        }
    }
    let all: f64 = shares.iter().sum();
    shares.map(|share| share / all)
}

/// Approximate sine of `turn` full turns, −1 to 1 (Bhaskara I: error at most 0.0017).
pub(super) fn approximate_sine(turn: f64) -> f64 {
    let turn = turn - turn.floor();
    let (sign, half) = if turn < 0.5 { (1.0, turn * 2.0) } else { (-1.0, turn * 2.0 - 1.0) };
    let product = half * (1.0 - half);
    sign * 16.0 * product / (5.0 - 4.0 * product)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_mode_is_below_its_median() {
        let shares = shares(&[LatencyMode::new(3.0, 1e6, 5)]);
        let below: f64 =
            shares.iter().zip(cell_starts_ns()).filter(|s| s.1 < 1_000_000).map(|s| s.0).sum();
        assert!((below - 0.5).abs() < 1e-9, "{below}");
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn approximate_sine_is_close() {
        for i in -20..60 {
            let turn = f64::from(i) / 20.0;
            assert!(
                (approximate_sine(turn) - (turn * std::f64::consts::TAU).sin()).abs() < 0.002,
                "{turn}"
            );
        }
    }
}
