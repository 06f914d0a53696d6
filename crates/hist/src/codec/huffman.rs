//! Fixed Huffman codes of the block format.
//!
//! Two kinds. A *low* code is for counts around a rate below 8: one code word tells 8, 4, 2 or 1
//! counts at once, and there is one for each half octave of the rate. A *high* code tells how far a
//! count lies from the expected one, in 31 steps; there are four, for four widths of the spread.
//! All are looked up by the next [`LOOKUP_BITS`] bits. The last symbol of each is an escape.
//!
//! Weights and lengths are whole numbers by rules that `docs/formats/block.md` gives, so every
//! machine has the same codes.

use std::sync::OnceLock;

/// No code word is longer; `code_words_fit_the_lookup` holds every code to it.
pub(crate) const LOOKUP_BITS: u32 = 11;
/// Entries of a code's lookup.
pub(crate) const LOOKUP: usize = 1 << LOOKUP_BITS;
/// Low codes, for rates from 2^-6 to 8 by half octaves.
pub(crate) const LOW_CODES: usize = 18;
/// High codes, for quarter octaves of the spread.
pub(crate) const HIGH_CODES: usize = 4;
/// Steps that a high code tells apart; the middle one is around the expected count.
pub(crate) const STEPS: u64 = 31;

/// Lengths of the high codes' words, of the 31 steps and of the escape. They are Huffman's for a
/// normal distribution of 2.6, 3.1, 3.7 and 4.4 steps' spread, of which 4 % has twice the spread.
pub(crate) const HIGH_LENGTHS: [[u8; 32]; HIGH_CODES] = [
    [
        11, 11, 11, 11, 11, 10, 10, 8, 7, 6, 5, 4, 4, 3, 3, 3, 3, 3, 4, 4, 5, 6, 7, 9, 9, 11, 11,
        11, 11, 11, 11, 11,
    ],
    [
        11, 11, 11, 11, 11, 11, 9, 9, 7, 6, 5, 4, 4, 3, 3, 3, 3, 3, 4, 4, 5, 6, 7, 8, 10, 10, 11,
        11, 11, 11, 11, 11,
    ],
    [
        11, 11, 11, 10, 9, 9, 7, 6, 6, 5, 4, 4, 4, 4, 3, 3, 3, 4, 4, 4, 5, 5, 6, 6, 7, 8, 9, 10,
        11, 11, 11, 10,
    ],
    [
        10, 10, 9, 9, 8, 7, 7, 6, 5, 5, 5, 4, 4, 4, 4, 3, 3, 4, 4, 4, 4, 5, 5, 6, 6, 7, 8, 9, 9,
        10, 10, 8,
    ],
];

/// How many counts a word of a low code tells, by the code's number.
pub(crate) fn low_cells(code: usize) -> usize {
    match code {
        0..=3 => 8,
        4..=9 => 4,
        10..=13 => 2,
        _ => 1,
    }
}

/// Huffman code: lookup table and code words.
pub(crate) struct HuffmanCode {
    /// By the next bits: symbol in the low byte, length of the word in the next, the escape marked.
    pub(crate) lookup: Box<[u16; LOOKUP]>,
    /// By symbol: word, the first bit lowest, and its length; of length 0 where there is none.
    pub(crate) words: Vec<(u16, u8)>,
    /// The word of the escape.
    pub(crate) escape: (u16, u8),
}

/// Marks the escape in a lookup.
pub(crate) const ESCAPE: u16 = 1 << 15;

impl HuffmanCode {
    /// The canonical code of these lengths; the last is the escape's.
    fn new(lengths: &[u8]) -> HuffmanCode {
        let mut symbols: Vec<usize> = (0..lengths.len()).filter(|&s| lengths[s] > 0).collect();
        symbols.sort_by_key(|&symbol| lengths[symbol]);
        let mut lookup = Box::new([0; LOOKUP]);
        let mut words = vec![(0, 0); lengths.len()];
        // The place among all words of LOOKUP_BITS bits, the first bit highest.
        let mut place = 0u32;
        for symbol in symbols {
            let length = lengths[symbol];
            let word = (place as u16).reverse_bits() >> (16 - LOOKUP_BITS);
            words[symbol] = (word, length);
            let entry = if symbol.wrapping_add(1) == lengths.len() {
                ESCAPE | u16::from(length) << 8
            } else {
                symbol as u16 | u16::from(length) << 8
            };
            for at in (usize::from(word)..LOOKUP).step_by(1 << length) {
                lookup[at] = entry;
            }
            place = place.wrapping_add(1 << (LOOKUP_BITS.wrapping_sub(u32::from(length))));
        }
        debug_assert_eq!(place, LOOKUP as u32, "lengths make no code");
        let escape = words.pop().unwrap_or_default();
        HuffmanCode { lookup, words, escape }
    }
}

/// All Huffman codes of the format.
pub(crate) struct HuffmanCodes {
    /// As many counts a word as [`low_cells`] says.
    pub(crate) low: Vec<HuffmanCode>,
    /// The same rates, one count a word: for few rows.
    pub(crate) low_single: Vec<HuffmanCode>,
    pub(crate) high: Vec<HuffmanCode>,
}

impl HuffmanCodes {
    /// Made once.
    pub(crate) fn get() -> &'static HuffmanCodes {
        static CODES: OnceLock<HuffmanCodes> = OnceLock::new();
        CODES.get_or_init(|| HuffmanCodes {
            low: (0..LOW_CODES)
                .map(|code| HuffmanCode::new(&low_lengths(code, low_cells(code))))
                .collect(),
            low_single: (0..LOW_CODES)
                .map(|code| HuffmanCode::new(&low_lengths(code, 1)))
                .collect(),
            high: HIGH_LENGTHS.iter().map(|lengths| HuffmanCode::new(lengths)).collect(),
        })
    }
}

/// Bits of each count in a symbol of so many counts: eight in all, or four of one.
#[inline(always)]
pub(crate) const fn symbol_bits(cells: usize) -> usize {
    match cells {
        8 => 1,
        4 => 2,
        _ => 4,
    }
}

/// Lengths of a low code's words: of the 256, or 16, symbols and of the escape.
fn low_lengths(code: usize, cells: usize) -> Vec<u8> {
    // Bits of each count in a symbol.
    let bits = symbol_bits(cells);
    let counts = 1usize << bits;
    let single = single_weights(code, counts);
    let symbols = 1usize << bits.wrapping_mul(cells);
    let weight = |symbol: usize| {
        let places = (0..cells)
            .map(|cell| single[symbol >> cell.wrapping_mul(bits) & counts.wrapping_sub(1)]);
        // Of a share of 2^16 each, the product is kept at 2^32.
        places.fold(1u64 << 32, |product, share| product.wrapping_mul(share) >> 16)
    };
    let mut weights: Vec<u64> = (0..symbols)
        .map(|symbol| Some(weight(symbol)).filter(|&weight| weight >= 1 << 22).unwrap_or(0))
        .collect();
    let held: u64 = weights.iter().sum();
    weights.push((1u64 << 32).saturating_sub(held).max(1 << 22));
    code_lengths(&weights)
}

/// How often each count is met at the middle rate of a code, in 2^16ths of all: a negative binomial
/// distribution, the Poisson distribution of a rate that was learnt from [`LEARNT`] rows.
fn single_weights(code: usize, counts: usize) -> Vec<u64> {
    // 2^16 times the quarter octaves 2^(1/4) and 2^(3/4).
    let rate = ([77936u64, 110218][code % 2] << (code / 2)) >> 6;
    let mut weights = vec![1u64 << 40];
    // Further than a symbol goes, for the total.
    for count in 0..63u64 {
        let last = weights[count as usize];
        let numerator = (count << 16).wrapping_add(LEARNED_ROWS.wrapping_mul(rate));
        let denominator = count.wrapping_add(1).wrapping_mul(LEARNED_ROWS + 1) << 16;
        let next = u128::from(last).wrapping_mul(numerator.into()).checked_div(denominator.into());
        weights.push(next.unwrap_or(0) as u64);
    }
    let total: u64 = weights.iter().sum();
    weights[..counts]
        .iter()
        .map(|&weight| (u128::from(weight) << 16).div_euclid(u128::from(total)) as u64)
        .collect()
}

/// Rows that a rate is taken to be learnt from.
const LEARNED_ROWS: u64 = 24;

/// Huffman's code lengths: the two lightest are joined, of equal ones the first; 0 for no weight.
fn code_lengths(weights: &[u64]) -> Vec<u8> {
    let mut nodes: std::collections::BinaryHeap<std::cmp::Reverse<(u64, usize)>> = weights
        .iter()
        .enumerate()
        .filter(|&(_, &weight)| weight > 0)
        .map(|(symbol, &weight)| std::cmp::Reverse((weight, symbol)))
        .collect();
    let mut parents = vec![0; weights.len()];
    while let (Some(least), Some(next)) = (nodes.pop(), nodes.pop()) {
        let (std::cmp::Reverse(least), std::cmp::Reverse(next)) = (least, next);
        parents[least.1] = parents.len();
        parents[next.1] = parents.len();
        nodes.push(std::cmp::Reverse((least.0.wrapping_add(next.0), parents.len())));
        parents.push(0);
    }
    let root = parents.len().wrapping_sub(1);
    let mut depths = vec![0u8; parents.len()];
    for node in (0..root).rev() {
        if parents[node] > 0 {
            depths[node] = depths[parents[node]].wrapping_add(1);
        }
    }
    depths.truncate(weights.len());
    depths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_words_fit_the_lookup() {
        let all = (0..LOW_CODES)
            .flat_map(|code| [low_lengths(code, low_cells(code)), low_lengths(code, 1)]);
        for lengths in all.chain(HIGH_LENGTHS.map(Vec::from)) {
            println!("{} {:?}", lengths.iter().max().unwrap(), lengths.last());
            assert!(lengths.iter().all(|&length| u32::from(length) <= LOOKUP_BITS));
            let used: u32 = lengths
                .iter()
                .filter(|&&l| l > 0)
                .map(|&l| 1u32 << (LOOKUP_BITS - u32::from(l)))
                .sum();
            assert_eq!(used, LOOKUP as u32);
        }
    }
}
