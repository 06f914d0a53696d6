//! The base-10 log-linear grid of circllhist (OpenHistogram): two significant decimal digits.
//!
//! Bucket `90 * exponent + (digits - 10)` holds
//! `[digits/10 * 10^exponent, (digits + 1)/10 * 10^exponent)`, digits 10..=99, exponent −128..=127.
//! A value read back at the bucket's harmonic middle is off by at most 4.76 %. Values below 1e-128
//! are zero; values at and above 1e128 are overflow. Edges are the doubles nearest to the decimals,
//! and values are compared with them exactly; libcircllhist itself has a tolerance of 1e-14 of the
//! value around an edge.

const DIGITS_MIN: i32 = 10;
const PER_DECADE: i32 = 90;
const EXPONENT_MIN: i32 = -128;
const EXPONENT_MAX: i32 = 127;
/// Powers of ten that are exact as doubles, so that one multiplication or division rounds once.
const POWERS_OF_TEN_EXACT: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

pub(crate) const INDEX_MIN: i32 = EXPONENT_MIN * PER_DECADE;
pub(crate) const INDEX_MAX: i32 = EXPONENT_MAX * PER_DECADE + PER_DECADE - 1;
/// Maximum relative error of a bucket's harmonic middle: 0.1 / 2.1.
pub(crate) const RELATIVE_ERROR: f64 = 0.1 / 2.1;
/// Smaller values are counted as zero.
pub(crate) const MIN_MAGNITUDE: f64 = 1e-128;
/// First value above the grid.
pub(crate) const END: f64 = 1e128;

/// Index of the bucket with these two digits and exponent, as circllhist stores them.
pub(crate) fn index_of(digits: i32, exponent: i32) -> i32 {
    exponent.wrapping_mul(PER_DECADE).wrapping_add(digits).wrapping_sub(DIGITS_MIN)
}

/// Digits (10..=99) and exponent of a bucket.
pub(crate) fn digits_and_exponent(index: i32) -> (i32, i32) {
    (index.rem_euclid(PER_DECADE).wrapping_add(DIGITS_MIN), index.div_euclid(PER_DECADE))
}

/// Index of a value in `MIN_MAGNITUDE..END`.
pub(crate) fn index(value: f64) -> i32 {
    debug_assert!((MIN_MAGNITUDE..END).contains(&value));
    let exponent = (value.log10().floor() as i32).clamp(EXPONENT_MIN, EXPONENT_MAX);
    let digits = (value / edge(index_of(DIGITS_MIN, exponent)) * 10.0).floor() as i32;
    let mut index = index_of(digits, exponent).clamp(INDEX_MIN, INDEX_MAX);
    // The logarithm and the quotient are rounded: the index may be off by one, never by more.
    while value < edge(index) {
        index = index.wrapping_sub(1);
    }
    while value >= edge(index.wrapping_add(1)) {
        index = index.wrapping_add(1);
    }
    index
}

/// Lower edge of bucket `index`: the double nearest to the decimal.
pub(crate) fn edge(index: i32) -> f64 {
    let (digits, exponent) = digits_and_exponent(index);
    let (digits_f, power) = (f64::from(digits), exponent.wrapping_sub(1));
    match power {
        0..=22 => digits_f * POWERS_OF_TEN_EXACT[power as usize],
        -22..=-1 => digits_f / POWERS_OF_TEN_EXACT[power.unsigned_abs() as usize],
        // Digits and exponent are always a number.
        _ => format!("{digits}e{power}").parse().unwrap_or(f64::NAN),
    }
}

/// The edges of bucket `index`, which holds `[lower, upper)`; `None` outside the grid.
pub(crate) fn edges(index: i32) -> Option<(f64, f64)> {
    (INDEX_MIN..=INDEX_MAX).contains(&index).then(|| (edge(index), edge(index.wrapping_add(1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: f64, digits: i32, exponent: i32) {
        let index = index(value);
        assert_eq!(digits_and_exponent(index), (digits, exponent), "value {value:e}");
        let (lower, upper) = edges(index).unwrap();
        assert!(lower <= value && value < upper, "{value:e} is not in [{lower:e}, {upper:e})");
    }

    #[test]
    fn two_digits_name_the_bucket() {
        check(1.0, 10, 0);
        check(1.09999999999999, 10, 0);
        check(1.1, 11, 0);
        check(0.12, 12, -1);
        check(9.99, 99, 0);
        check(999.0, 99, 2);
        check(1e-128, 10, -128);
        check(9.999e127, 99, 127);
        check(END.next_down(), 99, 127);
        check(0.0435, 43, -2);
    }

    #[test]
    fn every_decimal_edge_opens_its_own_bucket() {
        for exponent in EXPONENT_MIN..=EXPONENT_MAX {
            for digits in 10..=99 {
                let decimal: f64 = format!("{digits}e{}", exponent - 1).parse().unwrap();
                check(decimal, digits, exponent);
                if decimal > MIN_MAGNITUDE {
                    assert_eq!(index(decimal.next_down()), index_of(digits, exponent) - 1);
                }
            }
        }
    }

    #[test]
    fn outside_the_grid_there_is_nothing() {
        assert_eq!(edges(INDEX_MIN - 1), None);
        assert_eq!(edges(INDEX_MAX + 1), None);
        assert_eq!(edge(INDEX_MAX + 1), END);
    }
}
