//! Exponential grids of other formats: the scheme of each scale, and the fold of unsupported
//! scales.

use std::ops::RangeInclusive;

use hist::{DecodeError, EncodeError, Exp2, Histogram, PartsError, Scheme};

use crate::message::field_error;

/// Value folded to the finest supported grid, with the added error.
#[derive(Clone, Debug, PartialEq)]
pub struct FoldResult<T = Histogram> {
    /// The values, on a grid no finer than [`Exp2::SCALE_MAX`].
    pub value: T,
    /// Maximum increase of the relative error of a value read back from its bucket; 0 if nothing
    /// was folded.
    pub error_added: f64,
}

/// The exponential grid of a scale within `scales`, and the number of bits by which indexes must be
/// shifted: 0 unless `fold` allows unsupported scales.
pub(crate) fn exponential_scheme(
    field: &'static str,
    scale: i32,
    scales: RangeInclusive<i32>,
    fold: bool,
) -> Result<(Exp2, u32), DecodeError> {
    let finest = i32::from(Exp2::SCALE_MAX);
    if !scales.contains(&scale) {
        return Err(field_error(
            field,
            scale,
            format_args!("{}..={}", scales.start(), scales.end()),
        ));
    }
    if scale > finest && !fold {
        let expected =
            format_args!("{}..={finest}; finer ones are folded on request", scales.start());
        return Err(field_error(field, scale, expected));
    }
    let grid = Exp2::new(scale.min(finest))?;
    Ok((grid, u32::try_from(scale.wrapping_sub(finest)).unwrap_or(0)))
}

/// Increase of the relative error by a fold by `shift` bits to `grid`.
pub(crate) fn error_added(grid: Exp2, shift: u32) -> f64 {
    if shift == 0 { 0.0 } else { grid.relative_error() }
}

/// Buckets with indexes shifted right; counts of equal indexes are added.
pub(crate) fn shift_buckets<N: Copy>(
    buckets: Vec<(i32, N)>,
    shift: u32,
    add: impl Fn(N, N) -> Option<N>,
) -> Result<Vec<(i32, N)>, DecodeError> {
    if shift == 0 {
        return Ok(buckets);
    }
    let mut shifted: Vec<(i32, N)> = Vec::new();
    for (index, count) in buckets {
        // A shift by 31 removes all bits of an index.
        let index = index >> shift.min(31);
        match shifted.last_mut() {
            Some((last, last_count)) if *last == index => {
                *last_count = add(*last_count, count).ok_or(PartsError::CountOverflow)?;
            }
            _ => shifted.push((index, count)),
        }
    }
    Ok(shifted)
}

/// The first index beyond the largest double: values in that bucket are overflow.
pub(crate) fn end_index(grid: Exp2) -> i32 {
    match grid.scale() {
        scale @ 0.. => 1024 << scale,
        scale => 1024 >> scale.wrapping_neg(),
    }
}

/// The scheme of an exponential format; other schemes are rejected.
pub(crate) fn exponential_grid(scheme: &Scheme, format: &'static str) -> Result<Exp2, EncodeError> {
    match scheme {
        Scheme::Exp2(grid) => Ok(*grid),
        _ => Err(EncodeError::scheme(format, scheme)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifted_buckets_join() {
        let buckets = vec![(-3, 1u64), (-2, 2), (-1, 4), (0, 8), (1, 16)];
        let shifted = shift_buckets(buckets, 1, u64::checked_add).unwrap();
        assert_eq!(shifted, [(-2, 1), (-1, 6), (0, 24)]);
        let far = shift_buckets(vec![(i32::MIN, 1u64), (5, 1)], 40, u64::checked_add).unwrap();
        assert_eq!(far, [(-1, 1), (0, 1)]);
    }
}
