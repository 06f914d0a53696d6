//! Value cells: buckets of `LogLinear10` from 1 us to 100 s, in whole nanoseconds.
//!
//! Each bucket is one cell. The exception is the bucket of 12 ms, which is split into two cells so
//! that values at or below 12.3 ms can be counted.

use super::THRESHOLD_NS;

const PER_DECADE: i32 = 90;
/// Index of the bucket that starts at 1 us.
pub(super) const FIRST_BUCKET: i32 = 3 * PER_DECADE;
/// Index of the first bucket above 100 s.
pub(super) const END_BUCKET: i32 = 11 * PER_DECADE;
/// Number of buckets.
pub(super) const BUCKETS: usize = (END_BUCKET - FIRST_BUCKET) as usize;
/// Number of cells.
pub(super) const CELLS: usize = BUCKETS + 1;
/// The cell whose upper end is the threshold. The next cell is the rest of the same bucket.
pub(super) const THRESHOLD_CELL: usize = (7 * PER_DECADE + 2 - FIRST_BUCKET) as usize;

/// Smallest value of bucket `index`, which must start at or above 100 ns.
pub(super) fn bucket_start_ns(index: i32) -> u64 {
    let digits = (index.rem_euclid(PER_DECADE) + 10) as u64;
    digits * 10u64.pow((index.div_euclid(PER_DECADE) - 1) as u32)
}

/// Index of the bucket that contains a cell.
#[inline]
pub(super) fn cell_bucket(cell: usize) -> i32 {
    FIRST_BUCKET + cell as i32 - i32::from(cell > THRESHOLD_CELL)
}

/// Smallest value of each cell, then the first value above the last cell.
pub(super) fn cell_starts_ns() -> [u64; CELLS + 1] {
    std::array::from_fn(|cell| match cell {
        _ if cell == THRESHOLD_CELL + 1 => THRESHOLD_NS + 1,
        _ => bucket_start_ns(cell_bucket(cell)),
    })
}

#[cfg(test)]
mod tests {
    use hist::Scheme;

    use super::*;

    #[test]
    fn cells_are_scheme_buckets_with_one_split() {
        let starts = cell_starts_ns();
        assert!(starts.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!((starts[0], starts[CELLS]), (1_000, 100_000_000_000));
        for cell in (0..CELLS).filter(|&cell| cell != THRESHOLD_CELL + 1) {
            let (lower, upper) = Scheme::LogLinear10.edges(cell_bucket(cell)).unwrap();
            assert_eq!(starts[cell] as f64, lower);
            let end = if cell == THRESHOLD_CELL { cell + 2 } else { cell + 1 };
            assert_eq!(starts[end] as f64, upper);
        }
        assert_eq!(
            starts[THRESHOLD_CELL..THRESHOLD_CELL + 3],
            [12_000_000, 12_300_001, 13_000_000]
        );
        assert_eq!(cell_bucket(THRESHOLD_CELL), cell_bucket(THRESHOLD_CELL + 1));
    }
}
