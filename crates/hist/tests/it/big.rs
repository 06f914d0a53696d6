//! Integers of unlimited size: sums and powers of doubles are exact and rounded once.
//!
//! Every finite double is an integer multiple of 2^-1074, so a sum of k-th powers is a multiple of
//! 2^-1074k.

use std::cmp::Ordering;

/// The exponent of the unit in which [`Big::of`] counts.
pub(crate) const UNIT: i32 = -1074;

/// Sign and magnitude, least word first, no zero word on top.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BigInteger {
    negative: bool,
    words: Vec<u64>,
}

impl BigInteger {
    /// A finite double in units of 2^-1074.
    pub(crate) fn from_f64(value: f64) -> BigInteger {
        assert!(value.is_finite());
        let bits = value.to_bits();
        let exponent = (bits >> 52) & 0x7ff;
        let mantissa = bits & ((1 << 52) - 1);
        let (mantissa, shift) =
            if exponent == 0 { (mantissa, 0) } else { (mantissa | 1 << 52, exponent as usize - 1) };
        let mut words = vec![0; shift / 64];
        let wide = u128::from(mantissa) << (shift % 64);
        words.extend([wide as u64, (wide >> 64) as u64]);
        BigInteger { negative: value < 0.0, words }.trim()
    }

    pub(crate) fn from_u64(value: u64) -> BigInteger {
        BigInteger { negative: false, words: vec![value] }.trim()
    }

    pub(crate) fn plus(&self, other: &BigInteger) -> BigInteger {
        if self.negative == other.negative {
            let mut words = Vec::new();
            let mut carry = 0u128;
            for i in 0..self.words.len().max(other.words.len()) + 1 {
                let word = |big: &BigInteger| u128::from(big.words.get(i).copied().unwrap_or(0));
                let total = word(self) + word(other) + carry;
                words.push(total as u64);
                carry = total >> 64;
            }
            return BigInteger { negative: self.negative, words }.trim();
        }
        let (large, small) = match compare(&self.words, &other.words) {
            Ordering::Less => (other, self),
            _ => (self, other),
        };
        let mut words = Vec::new();
        let mut borrow = false;
        for (i, &word) in large.words.iter().enumerate() {
            let taken = small.words.get(i).copied().unwrap_or(0);
            let (rest, under) = word.overflowing_sub(taken);
            let (rest, under_again) = rest.overflowing_sub(borrow.into());
            words.push(rest);
            borrow = under || under_again;
        }
        BigInteger { negative: large.negative, words }.trim()
    }

    pub(crate) fn minus(&self, other: &BigInteger) -> BigInteger {
        self.plus(&BigInteger { negative: !other.negative, words: other.words.clone() })
    }

    pub(crate) fn times(&self, other: &BigInteger) -> BigInteger {
        let mut words = vec![0u64; self.words.len() + other.words.len()];
        for (i, &a) in self.words.iter().enumerate() {
            let mut carry = 0u128;
            for (j, &b) in other.words.iter().enumerate() {
                let total = u128::from(a) * u128::from(b) + u128::from(words[i + j]) + carry;
                words[i + j] = total as u64;
                carry = total >> 64;
            }
            words[i + other.words.len()] = carry as u64;
        }
        BigInteger { negative: self.negative != other.negative, words }.trim()
    }

    pub(crate) fn power(&self, k: u32) -> BigInteger {
        (0..k).fold(BigInteger::from_u64(1), |product, _| product.times(self))
    }

    pub(crate) fn sum(values: impl Iterator<Item = BigInteger>) -> BigInteger {
        values.fold(BigInteger::default(), |total, value| total.plus(&value))
    }

    /// Number of bits of the magnitude.
    pub(crate) fn bits(&self) -> i32 {
        self.words.last().map_or(0, |top| self.words.len() as i32 * 64 - top.leading_zeros() as i32)
    }

    /// The double nearest to `self / divisor * 2^exponent`, ties to even.
    pub(crate) fn to_f64(&self, divisor: u64, exponent: i32) -> f64 {
        // Two words below the point leave more than 64 bits of quotient; the rest only says "not
        // zero".
        let mut rest = 0u128;
        let mut quotient: Vec<u64> = Vec::new();
        for &word in self.words.iter().rev().chain(&[0, 0]) {
            let dividend = rest << 64 | u128::from(word);
            quotient.push((dividend / u128::from(divisor)) as u64);
            rest = dividend % u128::from(divisor);
        }
        quotient.reverse();
        let quotient = BigInteger { negative: false, words: quotient }.trim();
        let exponent = exponent - 128;
        let top = quotient.bits() + exponent;
        if quotient.words.is_empty() {
            return 0.0;
        }
        let unit = (top - 53).max(UNIT);
        let shift = unit - exponent;
        let (mut mantissa, half, below) = quotient.split(shift);
        if half && (below || rest > 0 || mantissa % 2 == 1) {
            mantissa += 1;
        }
        let magnitude = scaled(mantissa as f64, unit);
        if self.negative { -magnitude } else { magnitude }
    }

    /// The words above bit `shift` (fewer than 64 bits), the bit below it, and whether any bit is
    /// set further down.
    fn split(&self, shift: i32) -> (u64, bool, bool) {
        let bit = |at: i32| {
            at >= 0
                && self.words.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
        };
        let mantissa =
            (0..64).filter(|&i| bit(shift + i)).fold(0u64, |mantissa, i| mantissa | 1 << i);
        (mantissa, bit(shift - 1), (0..shift - 1).any(bit))
    }

    fn trim(mut self) -> BigInteger {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
        self
    }
}

fn compare(a: &[u64], b: &[u64]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.iter().rev().cmp(b.iter().rev()))
}

/// `value * 2^exponent` in steps that round nowhere but at the end.
pub(crate) fn scaled(mut value: f64, mut exponent: i32) -> f64 {
    while exponent != 0 {
        let step = exponent.clamp(-500, 500);
        value *= 2f64.powi(step);
        exponent -= step;
    }
    value
}

#[test]
fn doubles_survive() {
    for value in [0.0, 1.0, -2.5, 0.1, 5e-324, f64::MAX, -1e-310, f64::MIN_POSITIVE] {
        assert_eq!(BigInteger::from_f64(value).to_f64(1, UNIT), value);
        assert_eq!(
            BigInteger::from_f64(value).plus(&BigInteger::from_f64(value)).to_f64(2, UNIT),
            value
        );
        assert_eq!(
            BigInteger::from_f64(value)
                .power(3)
                .times(&BigInteger::from_u64(7))
                .to_f64(7, 3 * UNIT),
            {
                let cube = value * value * value;
                if value == 0.1 { 0.001_000_000_000_000_000_2 } else { cube }
            }
        );
    }
    assert_eq!(
        BigInteger::from_f64(1e300)
            .plus(&BigInteger::from_f64(1.0))
            .minus(&BigInteger::from_f64(1e300))
            .to_f64(1, UNIT),
        1.0
    );
    assert_eq!(BigInteger::from_u64(1).to_f64(3, 0), 1.0 / 3.0);
}
