//! Encoder of columns of one number, and decoder of the columns that pco writes of few numbers: one
//! bin without a mode, and consecutive deltas or none. pco allocates a dozen buffers for each
//! column, which takes a microsecond to read and several to write.
//!
//! ```text
//! magic b"pco!", version 3, type of all numbers or 0, number of numbers as length in bits (6) and
//! bits, up to a byte; format version 4.x; type; number of numbers minus one, 24 bits
//! mode 4 bits: 0; deltas 4 bits: 0, or 1 with the order (3) and a bit without a meaning here
//! length of an entropy state 4 bits: 0; bins 15 bits: 0 or 1, with the lower bound (64) and the
//! length of an offset (7), up to a byte
//! the order's first numbers and deltas, 64 bits each; offsets, up to a byte; 0
//! ```
//! Bits are read from the lowest one of each byte on. Anything else is left to pco.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::sync::OnceLock;

use super::ColumnNumber;

const MAGIC: &[u8] = b"pco!";
const STANDALONE_VERSION: u64 = 3;
const FORMAT_MAJOR: u64 = 4;
const FORMAT_MINOR_MAX: u64 = 1;
/// pco decodes batches of this many numbers.
const NUMBERS_MAX: usize = 256;
/// Columns of up to so many bytes are read from a copy with zeros behind them, which makes the word
/// at each bit whole.
const PADDED_BYTES_MAX: usize = PADDED_BYTES - 16;
const PADDED_BYTES: usize = 128;
/// Half of the range of a number: deltas are stored from there.
const CENTER: u64 = 1 << 63;

/// Where the lower bound of the only bin begins in the column of one number, in bits from
/// `ONE_LOWER_FROM_END` bytes before the end: after mode, deltas, entropy state and bins.
const ONE_LOWER_AT: u32 = 4 + 4 + 4 + 15;
const ONE_LOWER_FROM_END: usize = 14;

/// Encodes a column of one number as pco does: its bin begins with the number. `compress` encodes a
/// zero, of which the column differs in this bound.
pub(super) fn put_one<T: ColumnNumber>(number: T, compress: impl Fn(T) -> Vec<u8>) -> Vec<u8> {
    static OF_ZERO: [OnceLock<Vec<u8>>; 3] = [const { OnceLock::new() }; 3];
    let zero = || compress(T::from_latent(0));
    let mut column = match OF_ZERO.get(T::KIND as usize) {
        Some(known) => known.get_or_init(zero).clone(),
        None => zero(),
    };
    let bound = u128::from(number.to_latent()) << (ONE_LOWER_AT % 8);
    let start = column.len().saturating_sub(ONE_LOWER_FROM_END);
    let place = column.iter_mut().skip(start.saturating_add(ONE_LOWER_AT as usize / 8));
    place.zip(bound.to_le_bytes()).for_each(|(byte, bits)| *byte |= bits);
    column
}

/// Decodes a column of as many numbers as there is room for; `None` if pco must decode it, or
/// reject it. The numbers are then undefined.
pub(super) fn read<T: ColumnNumber>(bytes: &[u8], numbers: &mut [T]) -> Option<()> {
    let count = numbers.len();
    if count > NUMBERS_MAX || !bytes.starts_with(MAGIC) {
        return None;
    }
    let mut padded = [0; PADDED_BYTES];
    let (len, at) = (bytes.len(), MAGIC.len().wrapping_mul(8));
    let mut bits = match padded.get_mut(..len).filter(|_| len <= PADDED_BYTES_MAX) {
        Some(start) => {
            start.copy_from_slice(bytes);
            ColumnBits { bytes: &padded, len, at }
        }
        None => ColumnBits { bytes, len, at },
    };
    bits.expect(8, |version| version == STANDALONE_VERSION)?;
    let kind = u64::from(T::PCO_TYPE);
    bits.expect(8, |uniform| uniform == 0 || uniform == kind)?;
    let length = bits.read(6)?.wrapping_add(1);
    bits.read(length)?;
    bits.skip_to_byte()?;
    bits.expect(8, |major| major == FORMAT_MAJOR)?;
    bits.expect(8, |minor| minor <= FORMAT_MINOR_MAX)?;
    bits.expect(8, |found| found == kind)?;
    bits.expect(24, |found| found.checked_add(1) == Some(count as u64))?;
    bits.expect(4, |mode| mode == 0)?;
    let order = match bits.read(4)? {
        0 => 0,
        1 => {
            let order = bits.read(3)?;
            bits.read(1)?;
            // pco rejects an order of 0.
            (order > 0).then_some(order as usize)?
        }
        _ => return None,
    };
    bits.expect(4, |state_bits| state_bits == 0)?;
    let stored = count.saturating_sub(order);
    let (lower, offset_bits) = match bits.read(15)? {
        0 if stored == 0 => (0, 0),
        1 => (bits.read(64)?, bits.read(7)?),
        _ => return None,
    };
    if offset_bits > 64 {
        return None;
    }
    bits.skip_to_byte()?;
    let mut moments = [0; 8];
    for moment in moments.iter_mut().take(order) {
        *moment = bits.read(64)?;
    }
    let center = if order > 0 { CENTER } else { 0 };
    for number in numbers.iter_mut().take(stored) {
        *number = T::from_latent(lower.wrapping_add(bits.read(offset_bits)?) ^ center);
    }
    bits.skip_to_byte()?;
    bits.expect(8, |end| end == 0)?;
    for mut moment in moments.iter().take(order).rev().copied() {
        // What is behind the stored numbers is added to none.
        for number in numbers.iter_mut() {
            let delta = std::mem::replace(number, T::from_latent(moment)).to_latent();
            moment = moment.wrapping_add(delta);
        }
    }
    Some(())
}

struct ColumnBits<'a> {
    /// The column, and perhaps zeros.
    bytes: &'a [u8],
    /// Bytes of the column.
    len: usize,
    /// Bits that were read.
    at: usize,
}

impl ColumnBits<'_> {
    /// The next bits, at most 64, as a number.
    fn read(&mut self, bits: u64) -> Option<u64> {
        let rest = self.bytes.get(self.at / 8..)?;
        let end = self.at.saturating_add(bits as usize);
        if end > self.len.saturating_mul(8) {
            return None;
        }
        let word = match rest.first_chunk() {
            Some(word) => *word,
            None => {
                let mut word = [0; 16];
                word.iter_mut().zip(rest).for_each(|(byte, read)| *byte = *read);
                word
            }
        };
        let value = (u128::from_le_bytes(word) >> (self.at % 8)) as u64;
        self.at = end;
        Some(match bits {
            64 => value,
            bits => value & (1u64.wrapping_shl(bits as u32)).wrapping_sub(1),
        })
    }

    /// Reads bits; `None` unless they are as expected.
    fn expect(&mut self, bits: u64, is_expected: impl Fn(u64) -> bool) -> Option<()> {
        is_expected(self.read(bits)?).then_some(())
    }

    /// Skips the rest of a byte, which is 0.
    fn skip_to_byte(&mut self) -> Option<()> {
        match self.at % 8 {
            0 => Some(()),
            used => self.expect(8usize.wrapping_sub(used) as u64, |rest| rest == 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use pco::standalone;
    use proptest::prelude::*;

    use super::*;
    use crate::column;

    fn by_pco<T: ColumnNumber>(bytes: &[u8], count: usize) -> Option<Vec<u64>> {
        let mut numbers = vec![T::default(); count];
        let progress = standalone::simple_decompress_into(bytes, &mut numbers).ok()?;
        let is_whole = progress.finished && progress.n_processed == count;
        is_whole.then(|| numbers.iter().map(|number| number.bits()).collect())
    }

    fn here<T: ColumnNumber>(bytes: &[u8], count: usize) -> Option<Vec<u64>> {
        let mut numbers = vec![T::default(); count];
        read(bytes, &mut numbers)?;
        Some(numbers.iter().map(|number| number.bits()).collect())
    }

    /// What is decoded here is what pco decodes. Returns whether it was.
    #[track_caller]
    fn check<T: ColumnNumber>(bytes: &[u8], count: usize) -> bool {
        let found = here::<T>(bytes, count);
        let is_found = found.is_some();
        if is_found {
            assert_eq!(found, by_pco::<T>(bytes, count), "{bytes:?}");
        }
        is_found
    }

    /// A sequence with constant, growing or arbitrary numbers.
    fn sequence(kind: u8, start: u64, steps: &[u64]) -> Vec<u64> {
        let mut number = start;
        let next = |step: &u64| {
            number = match kind % 4 {
                0 => number,
                1 => number.wrapping_add(start % 1000),
                2 => number.wrapping_add(step % 300),
                _ => *step,
            };
            number
        };
        steps.iter().map(next).collect()
    }

    proptest! {
        #[test]
        fn columns_are_decoded_as_by_pco(
            kind in any::<u8>(),
            start in any::<u64>(),
            steps in prop::collection::vec(any::<u64>(), 0..300),
            changed in (any::<prop::sample::Index>(), any::<u8>()),
        ) {
            let numbers = sequence(kind, start, &steps);
            let count = numbers.len();
            let doubles: Vec<f64> = match kind & 16 {
                0 => numbers.iter().map(|&number| (number >> 20) as f64).collect(),
                _ => numbers.iter().map(|&number| f64::from_bits(number)).collect(),
            };
            let signed: Vec<i64> = numbers.iter().map(|&number| number as i64).collect();
            let mut columns = [column::put(&numbers), column::put(&signed), column::put(&doubles)];
            for _ in 0..2 {
                check::<u64>(&columns[0], count);
                check::<i64>(&columns[1], count);
                check::<f64>(&columns[2], count);
                // Other types, lengths and bytes.
                check::<u64>(&columns[1], count);
                check::<i64>(&columns[1], count + 1);
                check::<i64>(&columns[1][..columns[1].len() - 1], count);
                for column in &mut columns {
                    let at = changed.0.index(column.len());
                    column[at] ^= changed.1;
                }
            }
        }
    }

    #[test]
    fn columns_of_one_number_are_those_of_pco() {
        #[track_caller]
        fn check_one<T: ColumnNumber>(number: T) {
            assert_eq!(T::from_latent(number.to_latent()).bits(), number.bits());
            let config = pco::ChunkConfig::default().with_compression_level(column::LEVEL);
            let expected = standalone::simple_compress(&[number], &config).unwrap();
            assert_eq!(column::put(&[number]), expected, "{number:?}");
            assert!(check::<T>(&expected, 1), "{number:?}");
        }
        let mut seed = 5u64;
        let ends = [0, 1, 1 << 63, u64::MAX, f64::NAN.to_bits(), (-0.5f64).to_bits()];
        let random = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed ^ seed >> 31
        });
        for bits in ends.into_iter().chain(random.take(2_000)) {
            check_one(bits);
            check_one(bits as i64);
            check_one(f64::from_bits(bits));
            check_one((bits >> 40) as f64);
        }
    }

    /// The decoder is used: counters, times and constants of the usual lengths are no case of pco.
    #[test]
    fn short_columns_need_no_pco() {
        let mut seed = 7u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 33
        };
        let (mut few, mut decoded) = (0, 0);
        for _ in 0..400 {
            let count = random() as usize % 24 + 1;
            let (mut sum, most) = ((random() % 1_000_000) as f64, random() % 4_000 + 1);
            let counter: Vec<f64> = std::iter::repeat_with(|| {
                sum += (random() % most) as f64;
                sum
            })
            .take(count)
            .collect();
            few += 1;
            decoded += u32::from(check::<f64>(&column::put(&counter), count));
            let constant = vec![sum; count];
            assert!(check::<f64>(&column::put(&constant), count), "{constant:?}");
        }
        // Of counters that grow by other amounts, pco stores differences, which it decodes itself.
        assert!(decoded * 5 > few, "{decoded} of {few}");
    }
}
