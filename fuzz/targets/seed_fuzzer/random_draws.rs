//! Pseudorandom numbers: SplitMix64.

/// A sequence of pseudorandom numbers.
pub(crate) struct RandomDraws(u64);

impl RandomDraws {
    pub(crate) fn new(seed: u64) -> RandomDraws {
        RandomDraws(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.word()) * end as u128) >> 64) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_below_the_end_are_drawn() {
        let mut draws = RandomDraws::new(1);
        let mut counts = [0; 5];
        (0..1000).for_each(|_| counts[draws.below(5)] += 1);
        assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
        assert_eq!(draws.below(0), 0);
    }
}
