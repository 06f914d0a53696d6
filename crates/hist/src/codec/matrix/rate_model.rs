//! Rate model of a matrix, shared by encoder and decoder: the expected count of each column,
//! learned from the preceding rows.

use crate::codec::huffman::LOW_CODES;

use super::count_word::CountWord;
use super::{STEP_BITS_MAX, STRIPE_ROWS, reach};

/// Fractional bits of rates.
pub(super) const RATE_BITS: u32 = 12;
/// Maximum rate: 2^40 per row. Higher rates are capped.
pub(super) const RATE_MAX: u64 = 1 << (40 + RATE_BITS);
/// Rate below which a column is coded by the positions of its counts: fewer than half a count
/// expected per stripe.
pub(super) const RARE_RATE_MAX: u64 = 1 << (RATE_BITS - 1);
/// Smallest rate of the low codes: [`RARE_RATE_MAX`] spread over a whole stripe.
pub(super) const LOW_RATE_MIN: u64 = RARE_RATE_MAX / STRIPE_ROWS as u64;
/// Rate from which a column is coded by its distance from the expected count: 8 per row.
pub(super) const HIGH_RATE_MIN: u64 = 8 << RATE_BITS;
/// Number of high columns that are processed in turns.
const INTERLEAVED_COLUMNS: usize = 4;
/// 2^63.5, rounded up: start of the upper half of an octave.
const UPPER_HALF: u64 = 0xb504_f333_f9de_6485;

/// Coding of a column within a stripe.
#[derive(Clone, Copy)]
pub(super) enum ColumnCoding {
    /// Positions and counts of the cells that are not zero.
    Rare,
    Low(usize),
    /// Code number and bits of a step.
    High(usize, u32),
}

/// Rate model shared by encoder and decoder.
pub(super) struct RateModel {
    pub(super) rates: Vec<u64>,
    /// Spread of counts beyond that of a Poisson distribution: the standard deviation is
    /// 2^(-spread/2) of the rate.
    pub(super) spread: u32,
    /// Logarithm of the number of rows after which high columns learn: up to 8 rows.
    pub(super) group_bits: u32,
    pub(super) scale_bits: u32,
    /// One scale per row, or empty.
    pub(super) scales: Vec<u32>,
    /// Of the stripe: sum of the row scales; 2^(32 + RATE_BITS + scale_bits) divided by that sum.
    pub(super) scale_sum: u64,
    /// Mean row scale of the stripe.
    pub(super) scale_mean: u64,
    pub(super) inverse: u64,
    /// Inverse scale sum of each group of rows.
    pub(super) inverses: [u64; STRIPE_ROWS],
    pub(super) rows: u64,
    pub(super) is_first: bool,
}

impl RateModel {
    pub(super) fn new(columns: usize) -> RateModel {
        RateModel {
            rates: vec![0; columns],
            spread: 0,
            group_bits: 3,
            scale_bits: 0,
            scales: Vec::new(),
            scale_sum: 0,
            scale_mean: 0,
            inverse: 0,
            inverses: [0; STRIPE_ROWS],
            rows: 0,
            is_first: false,
        }
    }

    pub(super) fn stripe(&mut self, first: usize, rows: usize) {
        self.is_first = first == 0;
        self.rows = rows as u64;
        let one = 1u64 << (32 + RATE_BITS).wrapping_add(self.scale_bits);
        let group = 1 << self.group_bits;
        if self.scale_bits == 0 {
            self.scale_sum = self.rows;
            self.inverses = [one >> self.group_bits; STRIPE_ROWS];
        } else {
            let scales = &self.scales[first..first.wrapping_add(rows)];
            self.scale_sum = 0;
            for (inverse, scales) in self.inverses.iter_mut().zip(scales.chunks(group)) {
                let sum: u64 = scales.iter().map(|&s| u64::from(s)).sum();
                self.scale_sum = self.scale_sum.wrapping_add(sum);
                *inverse = one.checked_div(sum).unwrap_or(one);
            }
        }
        self.inverse = one.checked_div(self.scale_sum).unwrap_or(one);
        self.scale_mean = self.scale_sum.checked_div(self.rows).unwrap_or(0);
    }

    /// Rate of a column in this stripe, scaled by the load of its rows.
    #[inline]
    fn stripe_rate(&self, rate: u64) -> u64 {
        if self.scale_bits == 0 {
            return rate;
        }
        // A scale has 15 bits.
        if rate >> 48 == 0 {
            return rate.wrapping_mul(self.scale_mean) >> self.scale_bits;
        }
        (u128::from(rate).wrapping_mul(u128::from(self.scale_mean)) >> self.scale_bits) as u64
    }

    /// Coding of a column with a given rate.
    #[inline]
    pub(super) fn kind(&self, rate: u64) -> ColumnCoding {
        let rate = self.stripe_rate(rate);
        if rate < HIGH_RATE_MIN && rate.wrapping_mul(self.rows) < RARE_RATE_MAX {
            return ColumnCoding::Rare;
        }
        if rate < HIGH_RATE_MIN {
            // In half octaves.
            let code =
                rate.wrapping_mul(rate).ilog2().wrapping_sub(LOW_RATE_MIN.ilog2().wrapping_mul(2));
            return ColumnCoding::Low((code as usize).min(LOW_CODES - 1));
        }
        let shift = RATE_BITS.wrapping_add(self.spread);
        let variance = if rate >> 32 == 0 {
            rate.wrapping_add(rate.wrapping_mul(rate) >> shift) >> RATE_BITS
        } else {
            let variance = u128::from(rate)
                .wrapping_add(u128::from(rate).wrapping_mul(u128::from(rate)) >> shift);
            (variance >> RATE_BITS).min(1 << 62) as u64
        };
        // The spread is 2.4 to 4.8 steps, so the variance is 2^2.5 to 2^4.5. In half octaves:
        let is_upper_half = variance << variance.leading_zeros() >= UPPER_HALF;
        let halves =
            variance.ilog2().wrapping_mul(2).wrapping_add(u32::from(is_upper_half)).wrapping_sub(5);
        ColumnCoding::High(halves as usize % 4, (halves / 4).min(STEP_BITS_MAX))
    }

    /// Moves the rate of a column that is not high towards the counts of the stripe.
    #[inline]
    pub(super) fn learn<T: CountWord>(&mut self, column: usize, sum: u64) {
        let mean = mean::<T>(sum, self.inverse);
        let rate = &mut self.rates[column];
        *rate = if self.is_first || is_rate_jump(*rate, mean, STRIPE_ROWS.ilog2()) {
            mean
        } else if *rate < 1 << RATE_BITS {
            (*rate).wrapping_mul(3).wrapping_add(mean) >> 2
        } else {
            (*rate).wrapping_add(mean) >> 1
        };
    }

    /// Rate of a high column after a group of 2^bits rows.
    #[inline(always)]
    fn updated_rate<T: CountWord>(&self, rate: u64, group: usize, bits: u32, cells: &[T]) -> u64 {
        let mean = mean::<T>(T::sum(cells), self.inverses[group % STRIPE_ROWS]);
        let near = if bits < 2 {
            rate.wrapping_mul(3).wrapping_add(mean) >> 2
        } else {
            rate.wrapping_add(mean) >> 1
        };
        let jumps = if (rate | mean) >> 31 == 0 {
            // The same, where intermediate results cannot overflow.
            let off = rate.wrapping_sub(mean);
            off.wrapping_mul(off)
                > rate.wrapping_add(1 << RATE_BITS) << (RATE_BITS + 4).wrapping_sub(bits)
        } else {
            is_rate_jump(rate, mean, bits)
        };
        if jumps { mean } else { near }
    }

    pub(super) fn scale(&self, row: usize) -> u32 {
        if self.scale_bits == 0 { 1 } else { self.scales[row] }
    }
}

/// Expected count of a row of scale 1, as a rate in units of 1/64.
#[inline(always)]
fn rate_in_64ths(rate: u64) -> u32 {
    (rate >> (RATE_BITS - 6)).min(u32::MAX.into()) as u32
}

/// Mean of cells with the sum `sum`.
#[inline(always)]
pub(super) fn mean<T: CountWord>(sum: u64, inverse: u64) -> u64 {
    let mean = u128::from(sum).wrapping_mul(u128::from(inverse)) >> 32;
    // Narrow counts reach at most 2^48.
    if T::BITS < 64 { mean as u64 } else { mean.min(RATE_MAX.into()) as u64 }
}

/// Whether the mean of 2^bits rows is more than four standard deviations from a rate: an incident.
#[inline(always)]
fn is_rate_jump(rate: u64, mean: u64, bits: u32) -> bool {
    let off = rate.abs_diff(mean).min(1 << 31);
    off.wrapping_mul(off)
        > rate.wrapping_add(1 << RATE_BITS).min(1 << 47) << (RATE_BITS + 4).wrapping_sub(bits)
}

/// First rates are coded by their square roots: the standard deviation of a rate learned from a
/// number of rows is proportional to its square root.
pub(super) fn rate_of_level(level: u64, coarse: u32) -> u64 {
    let root = level << coarse;
    root.wrapping_mul(root)
}

/// The level nearest to a rate.
pub(super) fn level_of_rate(rate: u64, coarse: u32) -> u64 {
    let root = rate.isqrt();
    root.wrapping_add(1 << coarse >> 1) >> coarse
}

/// Square root of the maximum rate.
pub(super) const ROOT_MAX: u64 = 1 << (20 + RATE_BITS / 2);

impl RateModel {
    /// Iterates over the rows of a high column. Passes each row with its distance from the smallest
    /// count of the first step, and returns the rate after the rows.
    #[inline(always)]
    pub(super) fn for_each_high<T: CountWord>(
        &self,
        mut rate: u64,
        bits: u32,
        first: usize,
        cells: &[T],
        mut each: impl FnMut(usize, u64),
    ) -> u64 {
        let shift = self.scale_bits.wrapping_add(6);
        let group = 1 << self.group_bits;
        for (number, cells) in cells.chunks(group).enumerate() {
            let expected = rate_in_64ths(rate);
            for (at, &count) in cells.iter().enumerate() {
                let row = number.wrapping_mul(group).wrapping_add(at);
                let expected =
                    u64::predicted_count(expected, self.scale(first.wrapping_add(row)), shift);
                each(row, count.wide().wrapping_sub(expected).wrapping_add(reach(bits)));
            }
            if cells.len() == group {
                rate = self.updated_rate(rate, number, self.group_bits, cells);
            }
        }
        rate
    }
}

impl RateModel {
    /// Adds the expected counts to the high columns of a stripe, and updates their rates.
    pub(super) fn expect_all<T: CountWord>(
        &mut self,
        high: &[(usize, u32)],
        first: usize,
        rows: usize,
        cells: &mut [T],
    ) {
        let mut scales = [1u32; STRIPE_ROWS];
        if self.scale_bits > 0 {
            scales[..rows].copy_from_slice(&self.scales[first..first.wrapping_add(rows)]);
        }
        let scales = &scales[..rows];
        match self.group_bits {
            3 => self.expect_by::<T, 8>(high, scales, cells),
            2 => self.expect_by::<T, 4>(high, scales, cells),
            1 => self.expect_by::<T, 2>(high, scales, cells),
            _ => self.expect_by::<T, 1>(high, scales, cells),
        }
    }

    /// The rate of a column depends on the preceding rows: several columns take turns, so that
    /// their dependency chains overlap.
    fn expect_by<T: CountWord, const GROUP: usize>(
        &mut self,
        high: &[(usize, u32)],
        scales: &[u32],
        cells: &mut [T],
    ) {
        let (together, rest) = high.as_chunks::<INTERLEAVED_COLUMNS>();
        if self.scale_bits == 0 {
            together.iter().for_each(|four| self.expect::<T, GROUP, _, false>(four, scales, cells));
            rest.iter().for_each(|&one| self.expect::<T, GROUP, _, false>(&[one], scales, cells));
        } else {
            together.iter().for_each(|four| self.expect::<T, GROUP, _, true>(four, scales, cells));
            rest.iter().for_each(|&one| self.expect::<T, GROUP, _, true>(&[one], scales, cells));
        }
    }

    #[inline(always)]
    #[expect(
        clippy::expect_used,
        reason = "columns are of one stripe, and no two of them the same"
    )]
    fn expect<T: CountWord, const GROUP: usize, const COLUMNS: usize, const IS_SCALED: bool>(
        &mut self,
        columns: &[(usize, u32); COLUMNS],
        scales: &[u32],
        cells: &mut [T],
    ) {
        let height = cells.len().checked_div(self.rates.len()).unwrap_or(0);
        let shift = self.scale_bits.wrapping_add(6);
        let ranges = columns.map(|(column, _)| {
            column.wrapping_mul(height)..column.wrapping_mul(height).wrapping_add(scales.len())
        });
        let column_cells = cells.get_disjoint_mut(ranges).expect("BUG: columns lie apart");
        let (group_scales, rest_scales) = scales.as_chunks::<GROUP>();
        let column_cells = column_cells.map(|cells| {
            let (groups, rest) = cells.as_chunks_mut::<GROUP>();
            (&mut groups[..group_scales.len()], rest)
        });
        let least = columns.map(|(_, bits)| T::low(reach(bits).wrapping_neg()));
        let mut rates = columns.map(|(column, _)| self.rates[column]);
        for (number, scales) in group_scales.iter().enumerate() {
            for at in 0..COLUMNS {
                let cells = &mut column_cells[at].0[number];
                let expected = rate_in_64ths(rates[at]);
                for (cell, &scale) in cells.iter_mut().zip(scales) {
                    let expected = match IS_SCALED {
                        true => T::predicted_count(expected, scale, shift),
                        false => T::predicted_count(expected, 1, 6),
                    };
                    *cell = cell.plus(expected.plus(least[at]));
                }
                rates[at] = self.updated_rate::<T>(rates[at], number, GROUP.ilog2(), cells);
            }
        }
        for at in 0..COLUMNS {
            let expected = rate_in_64ths(rates[at]);
            for (cell, &scale) in column_cells[at].1.iter_mut().zip(rest_scales) {
                *cell = cell.plus(T::predicted_count(expected, scale, shift)).plus(least[at]);
            }
            self.rates[columns[at].0] = rates[at];
        }
    }
}
