//! Fixed Huffman codes of the block format.
//!
//! There are two kinds. A *low* code is for counts around a rate below 8: one code word holds 8, 4,
//! 2 or 1 counts, and there is one code per half octave of the rate. A *high* code holds the
//! distance between a count and the expected count, in 31 steps; there are four, for four widths of
//! the spread. All codes are looked up by the next [`LOOKUP_BITS`] bits. The last symbol of each is
//! an escape.
//!
//! Weights and lengths are whole numbers that follow the rules in `docs/formats/block.md`, so every
//! machine has the same codes.

use std::sync::OnceLock;

/// Maximum length of a code word; `code_words_fit_the_lookup` checks every code.
pub(crate) const LOOKUP_BITS: u32 = 11;
/// Number of entries of a code's lookup table.
pub(crate) const LOOKUP: usize = 1 << LOOKUP_BITS;
/// Number of low codes, for rates from 2^-6 to 8 by half octaves.
pub(crate) const LOW_CODES: usize = 18;
/// Number of high codes, for quarter octaves of the spread.
pub(crate) const HIGH_CODES: usize = 4;
/// Number of steps of a high code; the middle step contains the expected count.
pub(crate) const STEPS: u64 = 31;

/// Lengths of the high codes' words, for the 31 steps and the escape. They are Huffman's lengths
/// for a normal distribution with a spread of 2.6, 3.1, 3.7 and 4.4 steps, of which 4 % has twice
/// the spread.
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

/// Number of counts in a word of a low code, by code number.
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
    /// Indexed by the next bits: symbol in the low byte, word length in the next byte, and the
    /// escape mark.
    pub(crate) lookup: Box<[u16; LOOKUP]>,
    /// Indexed by symbol: word (first bit lowest) and its length; length 0 if the symbol is unused.
    pub(crate) words: Vec<(u16, u8)>,
    /// Word of the escape.
    pub(crate) escape: (u16, u8),
}

/// Mark of the escape in a lookup entry.
pub(crate) const ESCAPE: u16 = 1 << 15;

impl HuffmanCode {
    /// The canonical code with these lengths; the last length belongs to the escape.
    fn new(lengths: &[u8]) -> HuffmanCode {
        let mut symbols: Vec<usize> = (0..lengths.len()).filter(|&s| lengths[s] > 0).collect();
        symbols.sort_by_key(|&symbol| lengths[symbol]);
        let mut lookup = Box::new([0; LOOKUP]);
        let mut words = vec![(0, 0); lengths.len()];
        // Index among all words of LOOKUP_BITS bits, first bit highest.
        let mut code = 0u32;
        for symbol in symbols {
            let length = lengths[symbol];
            let word = (code as u16).reverse_bits() >> (16 - LOOKUP_BITS);
            words[symbol] = (word, length);
            let entry = if symbol.wrapping_add(1) == lengths.len() {
                ESCAPE | u16::from(length) << 8
            } else {
                symbol as u16 | u16::from(length) << 8
            };
            for at in (usize::from(word)..LOOKUP).step_by(1 << length) {
                lookup[at] = entry;
            }
            code = code.wrapping_add(1 << (LOOKUP_BITS.wrapping_sub(u32::from(length))));
        }
        debug_assert_eq!(code, LOOKUP as u32, "lengths make no code");
        let escape = words.pop().unwrap_or_default();
        HuffmanCode { lookup, words, escape }
    }
}

/// All Huffman codes of the format.
pub(crate) struct HuffmanCodes {
    /// Codes with [`low_cells`] counts per word.
    pub(crate) low: Vec<HuffmanCode>,
    /// The same rates with one count per word, for few rows.
    pub(crate) low_single: Vec<HuffmanCode>,
    pub(crate) high: Vec<HuffmanCode>,
}

impl HuffmanCodes {
    /// The codes, built on first use.
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

/// Bits per count in a symbol of `cells` counts: eight bits in total, or four bits for one count.
#[inline(always)]
pub(crate) const fn symbol_bits(cells: usize) -> usize {
    match cells {
        8 => 1,
        4 => 2,
        _ => 4,
    }
}

/// Word lengths of a low code, for the 256 or 16 symbols and the escape.
fn low_lengths(code: usize, cells: usize) -> Vec<u8> {
    // Bits per count in a symbol.
    let bits = symbol_bits(cells);
    let counts = 1usize << bits;
    let single = single_weights(code, counts);
    let symbols = 1usize << bits.wrapping_mul(cells);
    let weight = |symbol: usize| {
        let places = (0..cells)
            .map(|cell| single[symbol >> cell.wrapping_mul(bits) & counts.wrapping_sub(1)]);
        // Shares are in units of 2^-16; the product stays in units of 2^-32.
        places.fold(1u64 << 32, |product, share| product.wrapping_mul(share) >> 16)
    };
    let mut weights: Vec<u64> = (0..symbols)
        .map(|symbol| Some(weight(symbol)).filter(|&weight| weight >= 1 << 22).unwrap_or(0))
        .collect();
    let total: u64 = weights.iter().sum();
    weights.push((1u64 << 32).saturating_sub(total).max(1 << 22));
    code_lengths(&weights)
}

/// Frequency of each count at the middle rate of a code, in units of 2^-16: a negative binomial
/// distribution, which is the Poisson distribution of a rate learned from [`LEARNED_ROWS`] rows.
fn single_weights(code: usize, counts: usize) -> Vec<u64> {
    // 2^16 times the quarter octaves 2^(1/4) and 2^(3/4).
    let rate = ([77936u64, 110218][code % 2] << (code / 2)) >> 6;
    let mut weights = vec![1u64 << 40];
    // Counts beyond the largest symbol contribute to the total.
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

/// Number of rows from which a rate is assumed to be learned.
const LEARNED_ROWS: u64 = 24;

/// Huffman code lengths. The two lightest nodes are joined, the first of equal ones; 0 for no
/// weight.
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
