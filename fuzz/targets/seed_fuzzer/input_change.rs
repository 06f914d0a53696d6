//! Random changes of an input: bits, bytes, ranges, numbers in binary and in text, and parts of
//! other inputs.
#![allow(clippy::ptr_arg, reason = "all changes have the type of those that change the length")]

use std::ops::Range;

use crate::input_pool::InputPool;
use crate::random_draws::RandomDraws;

/// Numbers at the limits of types and encodings.
const NUMBERS: [u64; 22] = [
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    16_383,
    16_384,
    32_767,
    32_768,
    65_535,
    65_536,
    i32::MAX as u64,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 53,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// Numbers in text.
const NUMBER_TEXTS: [&str; 20] = [
    "0",
    "-0",
    "1",
    "-1",
    "00",
    "0.0001",
    "0.5",
    ".5",
    "1e3",
    "1e308",
    "1e400",
    "4.9e-324",
    "NaN",
    "+Inf",
    "-Inf",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
];

/// Bytes that structure text formats.
const MARKS: &[u8] = b"{}[]()<>\"'`,:;=|#@%+-*/\\!~^$&_.eE \t\r\n\0";

/// Length limit of inserted and repeated ranges, most of the time.
const RANGE_MAX: usize = 64;

/// A change of some bytes; the third argument is another input.
type ByteChange = fn(&mut Vec<u8>, &mut RandomDraws, &[u8]);

const CHANGES: [ByteChange; 17] = [
    flip_bit,
    set_byte,
    set_mark,
    add_to_byte,
    insert_bytes,
    insert_repeated,
    erase_range,
    cut_end,
    repeat_range,
    overwrite_range,
    shuffle_range,
    set_number,
    set_varint,
    set_number_text,
    insert_other,
    overwrite_other,
    continue_with_other,
];

/// Makes inputs from those of a pool.
pub(crate) struct InputChanger {
    length_max: usize,
}

impl InputChanger {
    pub(crate) fn new(length_max: usize) -> InputChanger {
        InputChanger { length_max }
    }

    /// An input with one to eight changes; most have one.
    pub(crate) fn change(&self, pool: &InputPool, draws: &mut RandomDraws) -> Vec<u8> {
        let mut bytes = pool.pick(draws).to_vec();
        for _ in 0..1 << draws.below(8).saturating_sub(4) {
            let other = pool.pick(draws);
            draws.pick(&CHANGES)(&mut bytes, draws, other);
        }
        bytes.truncate(self.length_max);
        bytes
    }
}

fn flip_bit(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    let at = draws.below(bytes.len());
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << draws.below(8);
    }
}

fn set_byte(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    let at = draws.below(bytes.len());
    if let Some(byte) = bytes.get_mut(at) {
        *byte = draws.word() as u8;
    }
}

fn set_mark(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    let (at, mark) = (draws.below(bytes.len()), *draws.pick(MARKS));
    match bytes.get_mut(at) {
        Some(byte) if draws.below(2) == 0 => *byte = mark,
        _ => bytes.insert(at, mark),
    }
}

fn add_to_byte(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    let at = draws.below(bytes.len());
    if let Some(byte) = bytes.get_mut(at) {
        *byte = byte.wrapping_add(draws.below(33) as u8).wrapping_sub(16);
    }
}

fn insert_bytes(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    let at = draws.below(bytes.len() + 1);
    let new: Vec<u8> = (0..1 + draws.below(8)).map(|_| draws.word() as u8).collect();
    bytes.splice(at..at, new);
}

fn insert_repeated(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    let at = draws.below(bytes.len() + 1);
    let byte = bytes.get(at).copied().unwrap_or(draws.word() as u8);
    bytes.splice(at..at, vec![byte; 2 + draws.below(2 * RANGE_MAX)]);
}

fn erase_range(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    let range = range_of(bytes, draws);
    bytes.drain(range);
}

/// The input ends anywhere, as one that was not received whole.
fn cut_end(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    bytes.truncate(draws.below(bytes.len()));
}

fn repeat_range(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    let copy = bytes[range_of(bytes, draws)].to_vec();
    let at = draws.below(bytes.len() + 1);
    bytes.splice(at..at, copy);
}

fn overwrite_range(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    let copy = bytes[range_of(bytes, draws)].to_vec();
    overwrite(bytes, draws, &copy);
}

fn shuffle_range(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    let start = draws.below(bytes.len());
    let length = (bytes.len() - start).min(8);
    for end in (1..length).rev() {
        bytes.swap(start + end, start + draws.below(end + 1));
    }
}

/// A number of 1, 2, 4 or 8 bytes in either order; sometimes the length of what follows.
fn set_number(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    let at = draws.below(bytes.len());
    let number = match draws.below(4) {
        0 => ((bytes.len() - at) as u64).wrapping_add(draws.below(9) as u64).wrapping_sub(4),
        _ => *draws.pick(&NUMBERS),
    };
    let width = 1 << draws.below(4);
    let bytes_of_number = match draws.below(2) {
        0 => number.to_le_bytes()[..width].to_vec(),
        _ => number.to_be_bytes()[8 - width..].to_vec(),
    };
    bytes.iter_mut().skip(at).zip(bytes_of_number).for_each(|(byte, new)| *byte = new);
}

/// A varint of Protocol Buffers replaces one.
fn set_varint(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    let start = draws.below(bytes.len());
    let rest = &bytes[start..];
    let length = rest.iter().take(10).position(|byte| *byte < 128).map_or(0, |last| last + 1);
    let mut number = *draws.pick(&NUMBERS);
    let mut new = Vec::new();
    while number >= 128 {
        new.push(number as u8 | 128);
        number >>= 7;
    }
    new.push(number as u8);
    bytes.splice(start..start + length, new);
}

/// The next number in the text is replaced, or its first digit changes.
fn set_number_text(bytes: &mut Vec<u8>, draws: &mut RandomDraws, _: &[u8]) {
    let from = draws.below(bytes.len());
    let Some(start) = bytes[from..].iter().position(u8::is_ascii_digit).map(|at| from + at) else {
        return;
    };
    if draws.below(4) == 0 {
        bytes[start] = b'0' + draws.below(10) as u8;
        return;
    }
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    bytes.splice(start..start + length, draws.pick(&NUMBER_TEXTS).bytes());
}

fn insert_other(bytes: &mut Vec<u8>, draws: &mut RandomDraws, other: &[u8]) {
    let at = draws.below(bytes.len() + 1);
    let part = other[range_of(other, draws)].iter().copied();
    bytes.splice(at..at, part);
}

fn overwrite_other(bytes: &mut Vec<u8>, draws: &mut RandomDraws, other: &[u8]) {
    let part = &other[range_of(other, draws)];
    overwrite(bytes, draws, part);
}

fn continue_with_other(bytes: &mut Vec<u8>, draws: &mut RandomDraws, other: &[u8]) {
    bytes.truncate(draws.below(bytes.len() + 1));
    bytes.extend(&other[draws.below(other.len())..]);
}

fn overwrite(bytes: &mut [u8], draws: &mut RandomDraws, new: &[u8]) {
    let at = draws.below(bytes.len());
    bytes.iter_mut().skip(at).zip(new).for_each(|(byte, new)| *byte = *new);
}

/// A range of some bytes: short most of the time.
fn range_of(bytes: &[u8], draws: &mut RandomDraws) -> Range<usize> {
    let start = draws.below(bytes.len());
    let rest = bytes.len() - start;
    let length_max = if draws.below(8) == 0 { rest } else { rest.min(RANGE_MAX) };
    start..start + draws.below(length_max + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_accepts_any_input_and_changes_some() {
        let mut draws = RandomDraws::new(1);
        let inputs: [&[u8]; 4] = [b"", b"a", b"a=17,b=\xff\x80\x01", &[7; 300]];
        for (index, change) in CHANGES.iter().enumerate() {
            let mut changed = 0;
            for _ in 0..100 {
                for input in inputs {
                    let mut bytes = input.to_vec();
                    change(&mut bytes, &mut draws, inputs[2]);
                    changed += usize::from(bytes != input);
                }
            }
            assert!(changed > 20, "change {index}: {changed} of 400");
        }
    }

    #[test]
    fn changed_inputs_are_limited_and_differ() {
        let pool = InputPool::new(vec![vec![1; 10], b"x 12345 y".to_vec()]);
        let changer = InputChanger::new(12);
        let mut draws = RandomDraws::new(1);
        let inputs: Vec<Vec<u8>> = (0..1000).map(|_| changer.change(&pool, &mut draws)).collect();
        assert!(inputs.iter().all(|input| input.len() <= 12));
        let distinct: std::collections::HashSet<_> = inputs.iter().collect();
        assert!(distinct.len() > 500, "{}", distinct.len());
    }

    #[test]
    fn numbers_in_text_are_replaced_whole() {
        let mut draws = RandomDraws::new(1);
        let replaced = |draws: &mut RandomDraws| {
            let mut bytes = b"a 12345 b".to_vec();
            set_number_text(&mut bytes, draws, b"");
            bytes
        };
        let texts: Vec<Vec<u8>> = (0..300).map(|_| replaced(&mut draws)).collect();
        assert!(texts.iter().any(|text| text == b"a 1e400 b"));
        assert!(texts.iter().any(|text| text == b"a 18446744073709551616 b"));
    }
}
