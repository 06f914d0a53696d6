//! Reference decoder of the matrix of a block, written only from `docs/formats/block.md`; slow and
//! simple.

use crate::block_reference::{Bits, PageBytes, Sizes, bit_length, from_zigzag};

pub(crate) struct Matrix {
    pub(crate) indexes: Vec<i64>,
    /// Row by row.
    pub(crate) cells: Vec<u64>,
}

impl Matrix {
    pub(crate) fn row(&self, row: usize) -> Vec<(i64, u64)> {
        let columns = self.indexes.len();
        (0..columns)
            .map(|column| (self.indexes[column], self.cells[row * columns + column]))
            .filter(|&(_, count)| count > 0)
            .collect()
    }
}

/// The words of a code: (bits, length) by symbol, the escape last; the first bit is the highest.
fn words(lengths: &[u32]) -> Vec<(u32, u32)> {
    let mut words = vec![(0, 0); lengths.len()];
    let (mut next, mut length_before) = (0u32, 0);
    for length in 1..32 {
        for (symbol, _) in lengths.iter().enumerate().filter(|&(_, &l)| l == length) {
            next <<= length - length_before;
            words[symbol] = (next, length);
            next += 1;
            length_before = length;
        }
    }
    words
}

/// The lengths of the high codes, from the page.
fn high_lengths(code: usize) -> Vec<u32> {
    let page = crate::golden::page("block.md");
    let row = crate::page::rows(&page, "### The codes", "|").swap_remove(code);
    assert_eq!(row[0], code.to_string());
    row[1].split(' ').map(|length| length.parse().unwrap()).collect()
}

fn low_lengths(code: usize, rows: u32) -> Vec<u32> {
    let rate = ((if code.is_multiple_of(2) { 77936 } else { 110218 }) << (code / 2)) / 64;
    let mut w = vec![1u128 << 40];
    for k in 0..=62u128 {
        w.push(w[k as usize] * (k * 65536 + 24 * rate) / ((k + 1) * 25 * 65536));
    }
    let sum: u128 = w.iter().sum();
    let width = if rows == 1 { 4 } else { 8 / rows };
    let mut weights: Vec<u128> = (0..1 << (width * rows))
        .map(|symbol: u32| {
            let counts = (0..rows).map(|row| (symbol >> (row * width)) % (1 << width));
            let weight = counts.fold(1 << 32, |all, k| all * (w[k as usize] * 65536 / sum) / 65536);
            if weight < 1 << 22 { 0 } else { weight }
        })
        .collect();
    weights.push(((1i128 << 32) - weights.iter().sum::<u128>() as i128).max(1 << 22) as u128);

    let mut lengths = vec![0; weights.len()];
    // What is joined: weight, and the symbols in it.
    let mut trees: Vec<(u128, Vec<usize>)> =
        (0..weights.len()).filter(|&s| weights[s] > 0).map(|s| (weights[s], vec![s])).collect();
    while trees.len() > 1 {
        let mut lightest = || {
            let at = (0..trees.len()).min_by_key(|&at| trees[at].0).unwrap();
            trees.remove(at)
        };
        let (a, b) = (lightest(), lightest());
        let symbols = [a.1, b.1].concat();
        symbols.iter().for_each(|&symbol| lengths[symbol] += 1);
        trees.push((a.0 + b.0, symbols));
    }
    lengths
}

struct Code {
    words: Vec<(u32, u32)>,
}

impl Code {
    /// The next symbol; `None` for the escape.
    fn read(&self, bits: &mut Bits<'_>) -> Option<usize> {
        let (mut word, mut length) = (0, 0);
        loop {
            word = 2 * word + bits.get(1) as u32;
            length += 1;
            if let Some(symbol) = self.words.iter().position(|&w| w == (word, length)) {
                return Some(symbol).filter(|&symbol| symbol + 1 < self.words.len());
            }
        }
    }
}

/// Codes made so far: (is high, number, rows a word).
type Codes = std::collections::HashMap<(bool, usize, u32), Code>;

fn rice_column(bits: &mut Bits<'_>, numbers: usize) -> Vec<u64> {
    let low_bits = bits.get(6) as u32;
    (0..numbers).map(|_| bits.rice(low_bits)).collect()
}

fn golomb(bits: &mut Bits<'_>, low_bits: u32) -> u64 {
    let mut n = 0;
    while bits.get(1) == 1 {
        n += 1;
    }
    let high = (1u128 << n) + u128::from(bits.get(n)) - 1;
    ((high << low_bits) as u64) + bits.get(low_bits)
}

/// Twice the logarithm to base 2, rounded down.
fn log2_twice(value: u128) -> u32 {
    (value * value).ilog2()
}

pub(crate) fn matrix(at: &mut PageBytes<'_>, rows: usize, sizes: &mut Sizes) -> Matrix {
    let start = at.at;
    let columns = at.varint() as usize;
    if columns == 0 {
        return Matrix { indexes: vec![], cells: vec![] };
    }
    let mut indexes = vec![at.zigzag()];
    let len = at.varint() as usize;
    let mut head = Bits::new(at.take_bytes(len));
    let is_wide = head.get(1) == 1;
    let spread = head.get(4) as u32;
    let scale_bits = head.get(4) as u32;
    let group_bits = head.get(2) as u32;
    let coarseness = head.get(3) as u32;
    for gap in rice_column(&mut head, columns - 1) {
        indexes.push(indexes.last().unwrap() + gap as i64 + 1);
    }
    let mut scales = vec![1u128; rows];
    if scale_bits > 0 {
        let mut scale = 1 << scale_bits;
        for (held, difference) in scales.iter_mut().zip(rice_column(&mut head, rows)) {
            scale += from_zigzag(difference);
            *held = scale as u128;
        }
    }
    let mut level = 0;
    let mut rates: Vec<u128> = Vec::new();
    for difference in rice_column(&mut head, columns) {
        level += from_zigzag(difference);
        rates.push((level as u128 * (1 << coarseness)).pow(2));
    }
    head.finish();
    sizes.push(("head", at.at - start));
    let lengths: Vec<usize> = (0..4).map(|_| at.varint() as usize).collect();
    let mut streams: Vec<Bits<'_>> =
        lengths.into_iter().map(|len| Bits::new(at.take_bytes(len))).collect();
    sizes.push(("streams", at.at - start));

    let mut codes = Codes::new();
    let mut cells = vec![0u64; rows * columns];
    for first in (0..rows).step_by(32) {
        let n = (rows - first).min(32);
        let scales = &scales[first..first + n];
        let scale_sum: u128 = scales.iter().sum();
        for column in 0..columns {
            let mut counts = vec![0u64; n];
            let mut rate = rates[column];
            let learnt = |rate: u128, counts: &[u64], scales: &[u128], m: u32| {
                let sum: u128 = counts.iter().map(|&count| u128::from(count)).sum();
                let inverse = (1u128 << (44 + scale_bits)) / scales.iter().sum::<u128>();
                let mean = ((sum.min(u64::MAX.into()) * inverse) >> 32).min(1 << 52);
                let off = mean.abs_diff(rate).min(1 << 31);
                let jump = off * off > (rate + 4096).min(1 << 47) << (16 - m);
                (mean, jump)
            };
            let mut is_high = false;
            let here = (rate * (scale_sum / n as u128)) >> scale_bits;
            if here < 32768 && here * (n as u128) < 2048 {
                rare(&mut streams[0], &mut counts);
            } else if here < 32768 {
                let code = (log2_twice(here) - 12).min(17) as usize;
                low(&mut streams, &mut codes, code, &mut counts);
            } else {
                let variance = ((here + ((here * here) >> (12 + spread))) / 4096).min(1 << 62);
                let v = log2_twice(variance) - 5;
                let step = (v / 4).min(17);
                let lengths = || Code { words: words(&high_lengths(v as usize % 4)) };
                let code = codes.entry((true, v as usize % 4, 1)).or_insert_with(lengths);
                is_high = true;
                let group = 1 << group_bits;
                for row in 0..n {
                    if row > 0 && row % group == 0 {
                        let rows = row - group..row;
                        let (mean, jump) =
                            learnt(rate, &counts[rows.clone()], &scales[rows], group_bits);
                        rate = match group_bits {
                            _ if jump => mean,
                            0 | 1 => (3 * rate + mean) / 4,
                            _ => (rate + mean) / 2,
                        };
                    }
                    let stream = &mut streams[row / 8];
                    let expected =
                        ((rate / 64).min((1 << 32) - 1) * scales[row]) >> (6 + scale_bits);
                    let expected = expected as u64;
                    let count = match code.read(stream) {
                        Some(k) => expected
                            .wrapping_sub((31 << step) / 2)
                            .wrapping_add((k as u64) << step)
                            .wrapping_add(stream.get(step)),
                        None => expected.wrapping_add(from_zigzag(golomb(stream, step + 3)) as u64),
                    };
                    counts[row] = if is_wide { count } else { count % (1 << 32) };
                }
                if n.is_multiple_of(group) {
                    let rows = n - group..n;
                    let (mean, jump) =
                        learnt(rate, &counts[rows.clone()], &scales[rows], group_bits);
                    rate = match group_bits {
                        _ if jump => mean,
                        0 | 1 => (3 * rate + mean) / 4,
                        _ => (rate + mean) / 2,
                    };
                }
            }
            if !is_high {
                let (mean, jump) = learnt(rate, &counts, scales, 5);
                rate = match rate {
                    _ if first == 0 || jump => mean,
                    0..4096 => (3 * rate + mean) / 4,
                    _ => (rate + mean) / 2,
                };
            }
            rates[column] = rate;
            for (row, count) in counts.into_iter().enumerate() {
                assert!(is_wide || count < 1 << 26);
                cells[(first + row) * columns + column] = count;
            }
        }
    }
    streams.iter().for_each(Bits::finish);
    Matrix { indexes, cells }
}

fn rare(stream: &mut Bits<'_>, counts: &mut [u64]) {
    for _ in 0..counts.len() {
        if stream.get(1) == 0 {
            break;
        }
        let row = stream.get(bit_length(counts.len() as u64 - 1)) as usize;
        counts[row] = golomb(stream, 0) + 1;
    }
}

fn low(streams: &mut [Bits<'_>], codes: &mut Codes, code: usize, counts: &mut [u64]) {
    let rows = match code {
        _ if counts.len() <= 4 => 1,
        0..=3 => 8,
        4..=9 => 4,
        10..=13 => 2,
        _ => 1,
    };
    let lengths = || Code { words: words(&low_lengths(code, rows)) };
    let code = codes.entry((false, code, rows)).or_insert_with(lengths);
    let width = if rows == 1 { 4 } else { 8 / rows };
    for (stream, counts) in streams.iter_mut().zip(counts.chunks_mut(8)) {
        for counts in counts.chunks_mut(rows as usize) {
            let symbol = code.read(stream);
            for row in 0..rows {
                let count = match symbol {
                    Some(symbol) => (symbol >> (row * width)) as u64 % (1 << width),
                    None => golomb(stream, 0),
                };
                if let Some(held) = counts.get_mut(row as usize) {
                    *held = count;
                }
            }
        }
    }
}
