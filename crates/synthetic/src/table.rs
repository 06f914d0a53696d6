//! Sampling of cell counts from a shape.
//!
//! A cell with many expected values gets its count as a rounded normal deviate, under the condition
//! that all counts add up. The values of the other cells are drawn one by one (A. J. Walker's alias
//! method with M. D. Vose's table). A histogram of 1,000 values takes 2 us; one of 100,000 values
//! takes less than ten times as long.

use super::cells::CELLS;
use super::keyed_rng::KeyedRng;

/// Expected number of values from which a count is approximately normal.
const DIRECT_COUNT_MIN: f64 = 10.0;

/// Sampling tables of one shape.
#[derive(Clone, Debug)]
pub(super) struct AliasTable {
    /// Cells with many values, each with its share of all values.
    frequent: Vec<(u16, f64)>,
    /// Sum of the shares in `frequent`.
    frequent_share: f64,
    /// Index in `frequent` of the largest share.
    greatest: usize,
    /// Alias table of the other cells. The number of columns is a power of two, or 0.
    columns: Vec<AliasColumn>,
    /// Range of the cells in use: `first..end`.
    pub(super) first: usize,
    pub(super) end: usize,
}

#[derive(Clone, Copy, Debug)]
struct AliasColumn {
    /// Probability of this column's own cell, in units of 2^-22.
    split: u32,
    index: u16,
    alias: u16,
}

/// Low bits of a random number, which decide within a column; the ten bits above choose the column.
const PART_BITS: u32 = 22;
const COLUMNS_MAX: usize = 1 << (u32::BITS - PART_BITS);
const _: () = assert!(CELLS <= COLUMNS_MAX);

/// Cells with a smaller share are never drawn.
const SHARE_MIN: f64 = 1e-9;

impl AliasTable {
    /// Tables for samples of about `expected` values.
    pub(super) fn new(shares: &[f64; CELLS], expected: f64) -> AliasTable {
        let used = |&cell: &usize| shares[cell] >= SHARE_MIN;
        let is_frequent = |cell: usize| shares[cell] * expected >= DIRECT_COUNT_MIN;
        let (first, end) = (
            (0..CELLS).find(used).expect("a shape has a share somewhere"),
            (0..CELLS).rfind(used).map_or(0, |last| last + 1),
        );
        let frequent: Vec<(u16, f64)> = (first..end)
            .filter(|&cell| is_frequent(cell))
            .map(|cell| (cell as u16, shares[cell]))
            .collect();
        let few: Vec<(u16, f64)> = (first..end)
            .filter(|cell| used(cell) && !is_frequent(*cell))
            .map(|cell| (cell as u16, shares[cell]))
            .collect();
        let frequent_share: f64 = frequent.iter().map(|cell| cell.1).sum();
        let greatest = (0..frequent.len()).max_by(|&a, &b| frequent[a].1.total_cmp(&frequent[b].1));
        AliasTable {
            frequent_share: if few.is_empty() { 1.0 } else { frequent_share },
            greatest: greatest.unwrap_or(0),
            frequent,
            columns: alias(&few),
            first,
            end,
        }
    }

    /// Adds `n` values to `counts`, which must be zero.
    #[inline]
    pub(super) fn draw(&self, n: u64, random: &mut KeyedRng, counts: &mut [u32; CELLS]) {
        let few = if self.frequent.is_empty() { n } else { self.draw_frequent(n, random, counts) };
        let shift = u32::BITS - self.columns.len().max(1).trailing_zeros();
        let mut draw = |bits: u32| {
            let column = self.columns[(u64::from(bits) >> shift) as usize];
            let is_own_cell = bits & ((1 << PART_BITS) - 1) < column.split;
            counts[usize::from(if is_own_cell { column.index } else { column.alias })] += 1;
        };
        for _ in 0..few / 2 {
            let bits = random.next_u64();
            draw(bits as u32);
            draw((bits >> 32) as u32);
        }
        if few % 2 == 1 {
            draw(random.next_u64() as u32);
        }
    }

    /// Draws the counts of the frequent cells. Returns how many of `n` values remain for the other
    /// cells.
    fn draw_frequent(&self, n: u64, random: &mut KeyedRng, counts: &mut [u32; CELLS]) -> u64 {
        let all = n as f64;
        let mut drawn = 0.0;
        for &(cell, share) in &self.frequent {
            let mean = all * share;
            let count = (mean + random.normal() * mean.sqrt() + 0.5).max(0.0);
            counts[usize::from(cell)] = count as u32;
            drawn += f64::from(count as u32);
        }
        let few_mean = all * (1.0 - self.frequent_share);
        let few = match self.columns.is_empty() {
            true => 0.0,
            false => (few_mean + random.normal() * few_mean.sqrt() + 0.5).clamp(0.0, all).floor(),
        };
        // The difference between the drawn and the required total is distributed over all cells, as
        // for a given sum. The rounding error of each cell is carried to the next: equal cells
        // would otherwise round in the same direction.
        let off = (all - few - drawn) / self.frequent_share;
        let (mut left, mut carried) = ((all - few) as i64, 0.5);
        for &(cell, share) in &self.frequent {
            let count = &mut counts[usize::from(cell)];
            carried += off * share;
            let more = carried.floor();
            carried -= more;
            *count = (f64::from(*count) + more).max(0.0) as u32;
            left -= i64::from(*count);
        }
        // The rest of the rounding error. If a cell has too few values for it, the next cell takes
        // the remainder.
        let mut at = self.greatest;
        while left != 0 {
            let count = &mut counts[usize::from(self.frequent[at].0)];
            let paid = left.max(-i64::from(*count));
            *count = (i64::from(*count) + paid) as u32;
            left -= paid;
            at = (at + 1) % self.frequent.len();
        }
        few as u64
    }
}

/// Builds Vose's alias table.
fn alias(cells: &[(u16, f64)]) -> Vec<AliasColumn> {
    if cells.is_empty() {
        return Vec::new();
    }
    let columns = cells.len().next_power_of_two();
    let all: f64 = cells.iter().map(|cell| cell.1).sum();
    let scale = f64::from(1u32 << PART_BITS);
    let mut parts: Vec<f64> = (0..columns)
        .map(|at| cells.get(at).map_or(0.0, |cell| cell.1 / all * columns as f64))
        .collect();
    let lower_value = |at: usize| cells.get(at).map_or(cells[0].0, |cell| cell.0);
    let mut table: Vec<AliasColumn> = (0..columns)
        .map(|at| AliasColumn {
            split: 1 << PART_BITS,
            index: lower_value(at),
            alias: lower_value(at),
        })
        .collect();
    let (mut less, mut more): (Vec<usize>, Vec<usize>) =
        (0..columns).partition(|&at| parts[at] < 1.0);
    while let (Some(&small), Some(&large)) = (less.last(), more.last()) {
        less.pop();
        table[small].split = (parts[small] * scale) as u32;
        table[small].alias = table[large].index;
        parts[large] -= 1.0 - parts[small];
        if parts[large] < 1.0 {
            more.pop();
            less.push(large);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{LatencyMode, shares};

    /// Draws many samples and compares mean and variance of each cell with those of a multinomial
    /// distribution.
    #[track_caller]
    fn check(n: u64, rounds: u32) {
        let shares = shares(&[LatencyMode::new(0.7, 4e6, 5), LatencyMode::new(0.3, 90e6, 7)]);
        let table = AliasTable::new(&shares, n as f64);
        let mut random = KeyedRng::new([1, 2, n]);
        let (mut sums, mut squares) = (vec![0.0; CELLS], vec![0.0; CELLS]);
        for _ in 0..rounds {
            let mut counts = [0; CELLS];
            table.draw(n, &mut random, &mut counts);
            assert_eq!(counts.iter().map(|&count| u64::from(count)).sum::<u64>(), n);
            for (cell, &count) in counts.iter().enumerate() {
                sums[cell] += f64::from(count);
                squares[cell] += f64::from(count) * f64::from(count);
            }
        }
        let rounds = f64::from(rounds);
        for cell in 0..CELLS {
            let (mean, expected) = (sums[cell] / rounds, n as f64 * shares[cell]);
            let variance = expected * (1.0 - shares[cell]);
            let tolerance = 6.0 * (variance / rounds).sqrt() + 0.02;
            assert!(
                (mean - expected).abs() < tolerance,
                "cell {cell}: {mean} instead of {expected}"
            );
            let found = squares[cell] / rounds - mean * mean;
            if expected > 1.0 {
                assert!((found / variance - 1.0).abs() < 0.25, "cell {cell}: {found} {variance}");
            }
        }
    }

    #[test]
    fn few_and_many_values_have_the_same_distribution() {
        check(30, 4000);
        check(1000, 2000);
        check(100_000, 2000);
    }
}
