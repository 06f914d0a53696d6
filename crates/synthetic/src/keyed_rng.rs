//! Random numbers that are reproducible on every machine: splitmix64 (Steele, Lea and Flood, "Fast
//! splittable pseudorandom number generators"), with integer arithmetic and with floating-point
//! operations that IEEE 754 rounds in exactly one way.

/// Stream of random numbers.
#[derive(Clone, Debug)]
pub(super) struct KeyedRng(u64);

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl KeyedRng {
    /// The stream with these numbers as its key. Different keys give different streams.
    pub(super) fn new(parts: [u64; 3]) -> KeyedRng {
        KeyedRng(parts.iter().fold(0, |state, &part| mix((state ^ part).wrapping_add(GOLDEN))))
    }

    #[inline]
    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Random whole number below `end`.
    #[inline]
    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Approximately normal with mean 0 and standard deviation 1: the sum of four uniform numbers
    /// (Irwin-Hall), so within ±3.47.
    #[inline]
    pub(super) fn normal(&mut self) -> f64 {
        const MEAN: f64 = 2.0 * 65_535.0;
        // 65,536 times the square root of 4/12.
        const DEVIATION: f64 = 37_837.227_233_8;
        let bits = self.next_u64();
        let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        (sum as f64 - MEAN) * (1.0 / DEVIATION)
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_draws_have_mean_0_and_deviation_1() {
        let mut random = KeyedRng::new([1, 2, 3]);
        let n = 100_000;
        let all: Vec<f64> = (0..n).map(|_| random.normal()).collect();
        let mean = all.iter().sum::<f64>() / f64::from(n);
        let square = all.iter().map(|z| z * z).sum::<f64>() / f64::from(n);
        assert!(mean.abs() < 0.01 && (square - 1.0).abs() < 0.01, "{mean} {square}");
    }

    #[test]
    fn integers_stay_below_the_bound() {
        let mut random = KeyedRng::new([7, 0, 0]);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[random.below(5) as usize] += 1);
        assert!(seen.iter().all(|&n| n > 150), "{seen:?}");
    }
}
