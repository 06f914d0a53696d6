//! Chunk of numbers (XOR): timestamps and values, each as the difference from the previous one.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use super::block_chunk::BlockChunk;
use super::chunk_bits::{ChunkBits, XorNumber};
use super::unzigzag;
use crate::input_error::InputError;

/// Calls `each` with the timestamp in milliseconds and the value of each sample.
pub(super) fn read_numbers(
    chunk: &BlockChunk<'_>,
    each: &mut dyn FnMut(i64, f64),
) -> Result<(), InputError> {
    let mut bits = ChunkBits::new(chunk.data, chunk.offset);
    let samples = bits.bits(16)?;
    let (mut time, mut distance) = (0_i64, 0_i64);
    let mut number = XorNumber::default();
    for sample in 0..samples {
        match sample {
            0 => {
                time = unzigzag(bits.uvarint()?);
                number = XorNumber::new(bits.double()?);
            }
            1 => {
                distance = bits.uvarint()? as i64;
                time = time.wrapping_add(distance);
                bits.xor(&mut number)?;
            }
            _ => {
                distance = distance.wrapping_add(bits.timestamp_delta()?);
                time = time.wrapping_add(distance);
                bits.xor(&mut number)?;
            }
        }
        each(time, number.value);
    }
    Ok(())
}
