//! Exponential grids of other formats: the scheme of each scale. A scale above [`Exp2::SCALE_MAX`]
//! is downscaled to it, which adds at most 0.135 % to the error of a value.

use std::ops::RangeInclusive;

use hist::{DecodeError, EncodeError, Exp2, PartsError, Scheme};

use crate::message::field_error;

/// The exponential grid of a scale within `scales`, and the number of bits by which indexes must be
/// shifted: 0 up to [`Exp2::SCALE_MAX`].
pub(crate) fn exponential_scheme(
    field: &'static str,
    scale: i32,
    scales: RangeInclusive<i32>,
) -> Result<(Exp2, u32), DecodeError> {
    let finest = i32::from(Exp2::SCALE_MAX);
    if !scales.contains(&scale) {
        return Err(field_error(
            field,
            scale,
            format_args!("{}..={}", scales.start(), scales.end()),
        ));
    }
    let grid = Exp2::new(scale.min(finest))?;
    Ok((grid, u32::try_from(scale.wrapping_sub(finest)).unwrap_or(0)))
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
