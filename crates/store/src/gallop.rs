//! Search in sorted numbers whose position is mostly near.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

/// Number of entries below `number`, by galloping search: the position is usually near.
pub(crate) fn count_before<N: Copy + Ord>(numbers: &[N], number: N) -> usize {
    let mut step = 1;
    while step < numbers.len() && numbers[step.wrapping_sub(1)] < number {
        step = step.saturating_mul(2);
    }
    let from = step / 2;
    let to = step.min(numbers.len());
    // Within the slice.
    from.wrapping_add(numbers[from..to].partition_point(|&n| n < number))
}
