//! Random numbers for sample rates: xorshift64* (S. Vigna, …). Not
//! cryptographic.

use std::hash::{BuildHasher, RandomState};

#[derive(Clone, Debug)]
pub(crate) struct SamplingRng(u64);

impl SamplingRng {
    /// Seeds from the process's random hash keys.
    pub(crate) fn new() -> SamplingRng {
        SamplingRng::from_seed(RandomState::new().hash_one(0))
    }

    pub(crate) fn from_seed(seed: u64) -> SamplingRng {
        // The state must not be zero.
        SamplingRng(seed.max(1))
    }

    /// Uniform in [0, 1).
    fn unit_interval(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }

    /// Number of values that one value sent at this rate counts for: an integer with mean 1 /
    /// `rate`.
    pub(crate) fn sample_weight(&mut self, rate: f64) -> u64 {
        if rate == 1.0 {
            return 1;
        }
        let weight = 1.0 / rate;
        let integer = weight.floor();
        integer as u64 + u64::from(self.unit_interval() < weight - integer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rate: f64, among: [u64; 2]) {
        let mut random = SamplingRng::from_seed(17);
        let count = 1_000_000u64;
        let weights: Vec<u64> = (0..count).map(|_| random.sample_weight(rate)).collect();
        assert!(weights.iter().all(|weight| among.contains(weight)));
        // Six standard deviations of a million coin tosses are 3,000.
        let sum: u64 = weights.iter().sum();
        assert!((sum as f64 - count as f64 / rate).abs() <= 3000.0, "{rate}: {sum}");
    }

    #[test]
    fn mean_sample_weight_is_the_inverse_rate() {
        check(1.0, [1, 1]);
        check(0.5, [2, 2]);
        check(0.1, [10, 10]);
        check(0.3, [3, 4]);
        check(0.9, [1, 2]);
        check(0.7, [1, 2]);
        check(0.011, [90, 91]);
    }
}
