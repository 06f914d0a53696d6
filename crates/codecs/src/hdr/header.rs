//! HdrHistogram header parameters: range, precision, unit of doubles.
//!
//! There are `2^bits` buckets per octave, where bits is 0, 4, 7, 10, 14, 17 for 0 to 5 digits: half
//! of the smallest power of two at or above 2·10^digits. The lowest buckets are 2^⌊log2 lowest⌋
//! wide. The position of a bucket in HdrHistogram's counts array is therefore its index on the grid
//! `LogLinear2::with_floor(bits, ⌊log2 lowest⌋ + bits)`; for doubles the grid is shifted by log2 of
//! the conversion ratio.

use hist::{EncodeError, Histogram, LogLinear2, Scheme};

use super::FORMAT;

/// log2 of the buckets per octave, by digits.
const SUB_BUCKET_BITS: [u8; 6] = [0, 4, 7, 10, 14, 17];

/// Header parameters of an HdrHistogram, enough for a lossless re-encoding.
///
/// Equality is by value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HdrHeader {
    digits: u8,
    lowest: i64,
    highest: i64,
    /// Conversion ratio: value of one unit of a histogram of doubles.
    ratio: f64,
    index_offset: i32,
    /// Highest to lowest value ratio of a histogram of doubles.
    range: Option<i64>,
}

/// A parameter that HdrHistogram does not allow: the caller, or the source of the bytes, is at
/// fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} is {found}, expected {expected}")]
pub struct HeaderError {
    /// Name of the parameter.
    pub field: &'static str,
    /// Value found.
    pub found: String,
    /// Values allowed.
    pub expected: &'static str,
}

impl HeaderError {
    fn new(field: &'static str, found: impl ToString, expected: &'static str) -> HeaderError {
        HeaderError { field, found: found.to_string(), expected }
    }
}

impl HdrHeader {
    /// Header of a histogram of whole numbers: `digits` 0..=5, `lowest` at least 1, `highest` at
    /// least twice `lowest`.
    pub fn new(digits: u32, lowest: i64, highest: i64) -> Result<HdrHeader, HeaderError> {
        HdrHeader {
            digits: check_digits(digits)?,
            lowest,
            highest,
            ratio: 1.0,
            index_offset: 0,
            range: None,
        }
        .validate()
    }

    /// Header of a histogram of doubles whose values may differ by the factor `range`, with
    /// smallest value `ratio * 2^bits`.
    ///
    /// `ratio`, an exact power of two, is the width of the lowest buckets; HdrHistogram moves it to
    /// the range of the values.
    pub fn double(digits: u32, range: i64, ratio: f64) -> Result<HdrHeader, HeaderError> {
        let bits = SUB_BUCKET_BITS[usize::from(check_digits(digits)?)];
        // Octaves above the linear part: enough for the range at any start, plus one.
        let octaves = u64::BITS.wrapping_sub(range.leading_zeros()).wrapping_add(1);
        let shift = u32::from(bits).wrapping_add(octaves);
        if range < 2 || shift > 62 {
            return Err(HeaderError::new(
                "highest to lowest value ratio",
                range,
                "at least 2, with ratio · 2 · buckets per octave < 2^62",
            ));
        }
        let highest = (1i64 << shift).wrapping_sub(1);
        HdrHeader {
            digits: digits as u8,
            lowest: 1,
            highest,
            ratio,
            index_offset: 0,
            range: Some(range),
        }
        .validate()
    }

    /// The smallest parameters under which HdrHistogram holds the buckets of `histogram`. Rejects
    /// grids that are not HdrHistogram's.
    pub fn for_histogram(histogram: &Histogram) -> Result<HdrHeader, EncodeError> {
        let scheme = || EncodeError::scheme(FORMAT, histogram.scheme());
        let Scheme::LogLinear2(grid) = histogram.scheme() else { return Err(scheme()) };
        let digits =
            SUB_BUCKET_BITS.iter().position(|&bits| bits == grid.bits()).ok_or_else(scheme)? as u8;
        let unit = i32::from(grid.floor()).wrapping_sub(i32::from(grid.bits()));
        let last = histogram.positive().indexes().last().map_or(0, |&index| i64::from(index));
        // The last octave in use ends at 2^(octaves + bits) widths of the lowest bucket.
        let octaves = (last >> grid.bits()).max(1) as u32;
        let header = if unit >= 0 {
            let end = 1i128
                << octaves.wrapping_add(u32::from(grid.bits())).wrapping_add(unit as u32).min(100);
            let lowest = 1i64.checked_shl(unit as u32).filter(|&lowest| lowest > 0).unwrap_or(-1);
            let highest =
                end.wrapping_sub(1).min(i64::MAX.into()).max(i128::from(lowest).wrapping_mul(2))
                    as i64;
            HdrHeader { digits, lowest, highest, ratio: 1.0, index_offset: 0, range: None }
                .validate()
        } else {
            let range = 1i64.checked_shl(octaves.saturating_sub(2).max(1)).unwrap_or(0);
            HdrHeader::double(digits.into(), range, power_of_two(unit.max(-1022)))
        };
        header
            .ok()
            .filter(|h| last < i64::from(h.counts_len()) && h.scheme() == *histogram.scheme())
            .ok_or_else(scheme)
    }

    /// A header of decoded fields, validated.
    pub(super) fn read(
        digits: u32,
        lowest: i64,
        highest: i64,
        ratio: f64,
        index_offset: i32,
        range: Option<i64>,
    ) -> Result<HdrHeader, HeaderError> {
        HdrHeader { digits: check_digits(digits)?, lowest, highest, ratio, index_offset, range }
            .validate()
    }

    fn validate(self) -> Result<HdrHeader, HeaderError> {
        if self.lowest < 1
            || self.unit_magnitude().wrapping_add(u32::from(self.bits())).wrapping_add(1) > 62
        {
            return Err(HeaderError::new(
                "lowest discernible value",
                self.lowest,
                "at least 1, with value · 2 · buckets per octave < 2^63",
            ));
        }
        if self.highest / 2 < self.lowest {
            let expected = "at least twice the lowest discernible value";
            return Err(HeaderError::new("highest trackable value", self.highest, expected));
        }
        if self.index_offset.unsigned_abs() >= self.counts_len() {
            let expected = "smaller in magnitude than the length of the counts array";
            return Err(HeaderError::new("normalizing index offset", self.index_offset, expected));
        }
        self.check_ratio()?;
        Ok(self)
    }

    /// HdrHistogram ignores the ratio of an integer histogram; for doubles it is the grid's unit.
    fn check_ratio(&self) -> Result<(), HeaderError> {
        let error = |expected| Err(HeaderError::new("conversion ratio", self.ratio, expected));
        let Some(range) = self.range else {
            return if self.ratio.is_finite() { Ok(()) } else { error("a finite number") };
        };
        if range < 2 {
            let field = "highest to lowest value ratio";
            return Err(HeaderError::new(field, range, "at least 2"));
        }
        let power_of_two =
            self.ratio.is_normal() && self.ratio == power_of_two(exponent(self.ratio));
        if !power_of_two {
            return error(
                "an exact power of two from 2^-1022 on: other units have no lossless grid",
            );
        }
        if LogLinear2::with_floor(self.bits().into(), self.floor()).is_err() {
            return error("a power of two whose buckets are doubles");
        }
        Ok(())
    }

    /// Significant decimal digits, 0..=5.
    pub fn digits(&self) -> u8 {
        self.digits
    }

    /// Smallest whole number that is distinguished from zero, at least 1.
    pub fn lowest(&self) -> i64 {
        self.lowest
    }

    /// Largest whole number that fits the counts array.
    pub fn highest(&self) -> i64 {
        self.highest
    }

    /// Value of one unit. Stored but unused in a histogram of whole numbers.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// Rotation of the writer's counts array in memory. The encoded counts are not rotated; the
    /// value is kept only for re-encoding.
    pub fn index_offset(&self) -> i32 {
        self.index_offset
    }

    /// For a histogram of doubles, the factor by which its values may differ.
    pub fn range(&self) -> Option<i64> {
        self.range
    }

    /// The grid of the counts array.
    #[expect(clippy::expect_used, reason = "validate checked it")]
    pub fn scheme(&self) -> Scheme {
        LogLinear2::with_floor(self.bits().into(), self.floor())
            .map(Scheme::LogLinear2)
            .expect("BUG: a checked header has a grid")
    }

    /// Maximum number of counts: one row of `2^bits` for each octave up to the highest trackable
    /// value and one below. At most 47 · 2^17.
    pub fn counts_len(&self) -> u32 {
        let highest = self.highest.ilog2().wrapping_add(1);
        let first = u32::from(self.bits()).wrapping_add(1).wrapping_add(self.unit_magnitude());
        highest.saturating_sub(first).wrapping_add(2) << self.bits()
    }

    fn bits(&self) -> u8 {
        SUB_BUCKET_BITS[usize::from(self.digits)]
    }

    fn unit_magnitude(&self) -> u32 {
        self.lowest.ilog2()
    }

    fn floor(&self) -> i32 {
        let shift = if self.range.is_some() { exponent(self.ratio) } else { 0 };
        (self.unit_magnitude() as i32).wrapping_add(i32::from(self.bits())).wrapping_add(shift)
    }
}

fn check_digits(digits: u32) -> Result<u8, HeaderError> {
    u8::try_from(digits)
        .ok()
        .filter(|&digits| usize::from(digits) < SUB_BUCKET_BITS.len())
        .ok_or_else(|| HeaderError::new("digits", digits as i32, "0 to 5"))
}

/// ⌊log2 x⌋ of a normal double.
fn exponent(x: f64) -> i32 {
    (((x.to_bits() >> 52) & 0x7ff) as i32).wrapping_sub(1023)
}

/// 2^`exponent`, for exponents of normal doubles.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits((exponent.wrapping_add(1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: Result<HdrHeader, HeaderError>, bits: u8, floor: i16, counts_len: u32) {
        let header = header.unwrap();
        assert_eq!(
            header.scheme(),
            Scheme::LogLinear2(LogLinear2::with_floor(bits.into(), floor.into()).unwrap())
        );
        assert_eq!(header.counts_len(), counts_len, "{header:?}");
    }

    /// Lengths as allocated by HdrHistogram 2.2.2.
    #[test]
    fn the_counts_array_is_as_long_as_in_java() {
        check(HdrHeader::new(2, 20_000, 3_600_000_000_000), 7, 21, 2816);
        check(HdrHeader::new(3, 1, 2), 10, 10, 2048);
        check(HdrHeader::new(3, 1, 2047), 10, 10, 2048);
        check(HdrHeader::new(3, 1, 2048), 10, 10, 3072);
        check(HdrHeader::new(3, 1, 3_600_000_000_000), 10, 10, 33_792);
        check(HdrHeader::new(5, 1, i64::MAX), 17, 17, 47 << 17);
        check(HdrHeader::new(0, 1, i64::MAX), 0, 0, 64);
        check(HdrHeader::new(1, 1000, 1_000_000), 4, 13, 128);
        check(HdrHeader::double(2, 1000, 1.0), 7, 7, 12 << 7);
    }

    #[track_caller]
    fn check_rejected(header: Result<HdrHeader, HeaderError>, field: &str) {
        assert_eq!(header.unwrap_err().field, field);
    }

    #[test]
    fn impossible_parameters_are_rejected() {
        check_rejected(HdrHeader::new(6, 1, 2), "digits");
        check_rejected(HdrHeader::new(u32::MAX, 1, 2), "digits");
        check_rejected(HdrHeader::new(3, 0, 2), "lowest discernible value");
        check_rejected(HdrHeader::new(3, i64::MIN, 2), "lowest discernible value");
        check_rejected(HdrHeader::new(3, i64::MAX, i64::MAX), "lowest discernible value");
        check_rejected(HdrHeader::new(3, 2, 3), "highest trackable value");
        check_rejected(HdrHeader::new(3, 1, i64::MIN), "highest trackable value");
        check_rejected(HdrHeader::read(3, 1, 2, 1.0, 2048, None), "normalizing index offset");
        check_rejected(HdrHeader::read(3, 1, 2, 1.0, i32::MIN, None), "normalizing index offset");
        check_rejected(HdrHeader::read(3, 1, 2, f64::NAN, 0, None), "conversion ratio");
        check_rejected(HdrHeader::double(3, 2, 3.0), "conversion ratio");
        check_rejected(HdrHeader::double(3, 2, -2.0), "conversion ratio");
        check_rejected(HdrHeader::double(3, 2, 5e-324), "conversion ratio");
        check_rejected(HdrHeader::double(3, 2, f64::MAX), "conversion ratio");
        check_rejected(HdrHeader::double(3, 2, 2f64.powi(1020)), "conversion ratio");
        check_rejected(HdrHeader::double(3, 1, 1.0), "highest to lowest value ratio");
        check_rejected(HdrHeader::double(3, i64::MAX, 1.0), "highest to lowest value ratio");
    }
}
