//! Reference decoders of frames and blocks, written only from `docs/formats/frame.md` and
//! `block.md`; slow and simple.
//!
//! They share nothing with the crate except [`Scheme::edges`], so they prove that the pages suffice
//! to write a decoder. They panic on damage: they are for the output of our own encoder.

use hist::{Interpolation, LogLinear2, LogarithmicScheme, Scheme};

/// A histogram as specified by the pages. A sum is (is exact, value), an extreme
/// (exactness: 1 estimate, 2 exact, 3 bound; value).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlainHistogram {
    pub(crate) zero_threshold: f64,
    pub(crate) positive: Vec<(i64, u64)>,
    pub(crate) negative: Vec<(i64, u64)>,
    pub(crate) zero: u64,
    pub(crate) overflow: u64,
    pub(crate) underflow: u64,
    pub(crate) nan: u64,
    /// High and low word.
    pub(crate) sum: Option<(bool, f64, f64)>,
    pub(crate) min: Option<(u64, f64)>,
    pub(crate) max: Option<(u64, f64)>,
    /// Limit, values above it.
    pub(crate) thresholds: Vec<(f64, u64)>,
}

/// What frames and blocks begin with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReferenceHeader {
    pub(crate) cumulative: bool,
    pub(crate) unit: u8,
    pub(crate) scheme: Scheme,
}

/// Where a block's bytes go: name of the section, bytes.
pub(crate) type Sizes = Vec<(&'static str, usize)>;

pub(crate) fn frame(bytes: &[u8]) -> (ReferenceHeader, PlainHistogram) {
    let mut at = PageBytes { bytes, at: 0 };
    let head = at.head(0xd1, 1);
    let flags = at.varint();
    assert!(flags < 1 << 14);
    let flag = |bit: u32| flags >> bit & 1 == 1;
    let mut plain = PlainHistogram {
        zero_threshold: 0.0,
        positive: vec![],
        negative: vec![],
        zero: 0,
        overflow: 0,
        underflow: 0,
        nan: 0,
        sum: None,
        min: None,
        max: None,
        thresholds: vec![],
    };
    if flag(0) {
        plain.zero = at.varint();
    }
    if flag(1) {
        plain.zero_threshold = at.number();
    }
    if flag(2) {
        plain.overflow = at.varint();
    }
    if flag(3) {
        plain.underflow = at.varint();
    }
    if flag(4) {
        plain.nan = at.varint();
    }
    if flag(5) {
        plain.sum = Some((flag(6), at.number(), 0.0));
    }
    if flag(7) {
        plain.sum.as_mut().unwrap().2 = at.number();
    }
    if flag(8) {
        plain.min = Some((1 + u64::from(flag(9)), at.number()));
    }
    if flag(10) {
        plain.max = Some((1 + u64::from(flag(11)), at.number()));
    }
    if flag(12) {
        for _ in 0..at.varint() {
            plain.thresholds.push((at.number(), at.varint()));
        }
    }
    plain.positive = at.buckets();
    if flag(13) {
        plain.negative = at.buckets();
    }
    assert_eq!(at.at, bytes.len());
    (head, plain)
}

pub(crate) fn block(bytes: &[u8]) -> (ReferenceHeader, Vec<PlainHistogram>, Sizes) {
    let (body, checksum) = bytes.split_at(bytes.len() - 4);
    assert_eq!(crc(body).to_le_bytes(), checksum);
    let mut at = PageBytes { bytes: body, at: 0 };
    let mut sizes = Vec::new();
    let version = bytes[1];
    assert!((2..=3).contains(&version));
    let head = at.head(0xd2, version);
    let rows = at.varint() as usize;
    let zero_threshold = at.number();
    let limits: Vec<f64> = (0..at.varint()).map(|_| at.number()).collect();
    sizes.push(("head", at.at));
    let positive = matrix(&mut at, rows, &mut sizes);
    let negative = matrix(&mut at, rows, &mut sizes);
    let len = at.varint() as usize;
    let mut bits = Bits::new(at.take_bytes(len));
    assert_eq!(at.at, body.len());

    let zero = summary_count(&mut bits, rows);
    let overflow = summary_count(&mut bits, rows);
    let underflow = summary_count(&mut bits, rows);
    let nan = summary_count(&mut bits, rows);
    let above: Vec<Vec<u64>> = limits.iter().map(|_| summary_count(&mut bits, rows)).collect();
    sizes.push(("side counts", bits.at / 8));

    let mut plains = Vec::new();
    for row in 0..rows {
        plains.push(PlainHistogram {
            zero_threshold,
            positive: positive.row(row),
            negative: negative.row(row),
            zero: zero[row],
            overflow: overflow[row],
            underflow: underflow[row],
            nan: nan[row],
            sum: None,
            min: None,
            max: None,
            thresholds: limits.iter().zip(&above).map(|(&l, column)| (l, column[row])).collect(),
        });
    }
    let exponent = bits.get(4) as i32;
    let power = format!("1e{exponent}").parse().unwrap();
    let of_bucket = RowPrediction { scheme: &head.scheme, zero_threshold, power };
    let held: Vec<usize> = (0..rows).filter(|&row| plains[row].has_values()).collect();

    for lowest in [true, false] {
        let exact = exactness(&mut bits, held.len(), version == 3);
        let form = bits.get(2);
        for (&row, exact) in held.iter().zip(exact) {
            let Some(exact) = exact else { continue };
            let value = if form == 1 || form == 2 && bits.get(1) == 1 {
                let (first, last) = of_bucket.outermost(&plains[row], lowest).unwrap();
                (first + bits.get(bit_length((last - first) as u64)) as i64) as f64 / power
            } else {
                f64::from_bits(bits.get(64))
            };
            *if lowest { &mut plains[row].min } else { &mut plains[row].max } =
                Some((exact, value));
        }
        sizes.push((if lowest { "min" } else { "max" }, bits.at / 8));
    }

    let exact = exactness(&mut bits, held.len(), false);
    let form = bits.get(2);
    let (mut unit, mut whole_bits, mut rest_bits) = (0, 0, 0);
    if form == 1 || form == 2 {
        unit = bits.get(7) as i32;
        whole_bits = bits.get(6) as u32;
        rest_bits = if unit > 0 { bits.get(6) as u32 } else { 0 };
    }
    for (&row, exact) in held.iter().zip(exact) {
        let Some(exact) = exact.map(|exactness| exactness == 2) else { continue };
        let (high, low) = if form == 1 || form == 2 && bits.get(1) == 1 {
            let whole = of_bucket.sum(&plains[row]).wrapping_add(unfold(bits.rice(whole_bits)));
            let rest = if unit > 0 { unfold(bits.rice(rest_bits)) } else { 0 };
            let (high, low) = if exponent == 0 {
                (whole as f64, (i128::from(whole) - whole as f64 as i128) as f64)
            } else {
                (whole as f64 / power, 0.0)
            };
            // Without error, for the rest is small beside the low word: Knuth's addition.
            let more = low + rest as f64 / 2f64.powi(unit);
            let sum = high + more;
            let seen = sum - high;
            (sum, (high - (sum - seen)) + (more - seen))
        } else {
            let high = f64::from_bits(bits.get(64));
            (high, if form == 3 { 0.0 } else { f64::from_bits(bits.get(64)) })
        };
        // A low word of −0 is as good as 0.
        plains[row].sum = Some((exact, high, low + 0.0));
    }
    bits.finish();
    sizes.push(("sum", bits.at.div_ceil(8)));
    (head, plains, sizes)
}

impl PlainHistogram {
    pub(crate) fn has_values(&self) -> bool {
        let buckets = self.positive.len() + self.negative.len();
        buckets > 0 || self.zero > 0 || self.overflow > 0 || self.underflow > 0
    }
}

pub(crate) struct PageBytes<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> PageBytes<'a> {
    pub(crate) fn take_bytes(&mut self, len: usize) -> &'a [u8] {
        self.at += len;
        &self.bytes[self.at - len..self.at]
    }

    fn byte(&mut self) -> u8 {
        self.take_bytes(1)[0]
    }

    fn double(&mut self) -> f64 {
        f64::from_le_bytes(self.take_bytes(8).try_into().unwrap())
    }

    pub(crate) fn varint(&mut self) -> u64 {
        let byte = self.byte();
        let low = u64::from(byte % 128);
        if byte < 128 { low } else { low + self.varint() * 128 }
    }

    pub(crate) fn zigzag(&mut self) -> i64 {
        unfold(self.varint())
    }

    pub(crate) fn number(&mut self) -> f64 {
        match self.varint() {
            1 => self.double(),
            coded => {
                assert_eq!(coded % 2, 0);
                unfold(coded / 2) as f64
            }
        }
    }

    pub(crate) fn head(&mut self, magic: u8, version: u8) -> ReferenceHeader {
        assert_eq!((self.byte(), self.byte()), (magic, version));
        let kind = self.byte();
        let unit = self.byte();
        let scheme = match kind % 16 {
            0 => Scheme::exp2((self.byte() as i8).into()).unwrap(),
            1 => {
                let bits = self.byte().into();
                Scheme::LogLinear2(LogLinear2::with_floor(bits, self.zigzag() as i32).unwrap())
            }
            2 => Scheme::LogLinear10,
            3 => {
                let (gamma, offset) = (self.double(), self.double());
                let by = [
                    Interpolation::None,
                    Interpolation::Linear,
                    Interpolation::Quadratic,
                    Interpolation::Cubic,
                ];
                Scheme::Log(
                    LogarithmicScheme::new(gamma, offset, by[usize::from(self.byte())]).unwrap(),
                )
            }
            4 => {
                let bounds: Vec<f64> = (0..self.varint()).map(|_| self.double()).collect();
                Scheme::explicit(&bounds).unwrap()
            }
            tag => panic!("scheme {tag}"),
        };
        assert!(kind < 32 && unit < 6);
        ReferenceHeader { cumulative: kind >= 16, unit, scheme }
    }

    fn buckets(&mut self) -> Vec<(i64, u64)> {
        let buckets = self.varint();
        let mut found = Vec::new();
        if buckets == 0 {
            return found;
        }
        let mut next = self.zigzag();
        for _ in 0..buckets {
            let byte = self.byte();
            let (mut gap, mut less_one) = (u64::from(byte / 16), u64::from(byte % 16));
            if gap == 15 {
                gap += self.varint();
            }
            if less_one == 15 {
                less_one += self.varint();
            }
            let index = next + gap as i64;
            found.push((index, less_one + 1));
            next = index + 1;
        }
        found
    }
}

/// Bits, the lowest of each byte first.
pub(crate) struct Bits<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Bits<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Bits<'a> {
        Bits { bytes, at: 0 }
    }

    pub(crate) fn get(&mut self, bits: u32) -> u64 {
        let mut value = 0;
        for place in 0..bits {
            let bit = self.bytes[self.at / 8] >> (self.at % 8) & 1;
            value |= u64::from(bit) << place;
            self.at += 1;
        }
        value
    }

    pub(crate) fn rice(&mut self, low_bits: u32) -> u64 {
        let mut ones = 0;
        while ones < 24 && self.get(1) == 1 {
            ones += 1;
        }
        if ones == 24 { self.get(64) } else { (ones << low_bits) + self.get(low_bits) }
    }

    /// All bytes are used, and the unused bits of the last are zero.
    pub(crate) fn finish(&self) {
        assert_eq!(self.at.div_ceil(8), self.bytes.len());
        assert!(self.at.is_multiple_of(8) || self.bytes[self.at / 8] >> (self.at % 8) == 0);
    }
}

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

fn matrix(at: &mut PageBytes<'_>, rows: usize, sizes: &mut Sizes) -> Matrix {
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
            scale += unfold(difference);
            *held = scale as u128;
        }
    }
    let mut level = 0;
    let mut rates: Vec<u128> = Vec::new();
    for difference in rice_column(&mut head, columns) {
        level += unfold(difference);
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
                        None => expected.wrapping_add(unfold(golomb(stream, step + 3)) as u64),
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

pub(crate) fn unfold(value: u64) -> i64 {
    if value.is_multiple_of(2) { (value / 2) as i64 } else { -((value / 2) as i64) - 1 }
}

pub(crate) fn bit_length(value: u64) -> u32 {
    (0..64).filter(|&bit| value >> bit != 0).count() as u32
}

pub(crate) fn summary_count(bits: &mut Bits<'_>, rows: usize) -> Vec<u64> {
    if bits.get(1) == 0 {
        return vec![0; rows];
    }
    let low_bits = bits.get(6) as u32;
    let mut count = 0u64;
    (0..rows)
        .map(|_| {
            count = count.wrapping_add(unfold(bits.rice(low_bits)) as u64);
            count
        })
        .collect()
}

/// The exactness of each; `None` where it is absent.
pub(crate) fn exactness(bits: &mut Bits<'_>, held: usize, bounds: bool) -> Vec<Option<u64>> {
    let common = bits.get(2);
    (0..held)
        .map(|_| match if common == 3 { bits.get(2) } else { common } {
            0 => None,
            exactness @ 1..=2 => Some(exactness),
            3 if bounds => Some(3),
            _ => panic!("a standing of 3"),
        })
        .collect()
}

struct RowPrediction<'a> {
    scheme: &'a Scheme,
    zero_threshold: f64,
    /// 10^E
    power: f64,
}

impl RowPrediction<'_> {
    /// The smallest and largest double of a positive bucket.
    fn span(&self, index: i64) -> (f64, f64) {
        let (lower, upper) = self.scheme.edges(index as i32).unwrap();
        match self.scheme {
            Scheme::Exp2(_) => (lower.next_up(), upper),
            Scheme::Explicit(_) if lower == f64::NEG_INFINITY => (lower, upper),
            Scheme::Explicit(_) => (lower.next_up(), upper),
            _ => (lower, upper.next_down()),
        }
    }

    fn is_log(&self) -> bool {
        matches!(self.scheme, Scheme::Log(_))
    }

    /// The whole numbers that the outermost bucket holds.
    fn outermost(&self, plain: &PlainHistogram, lowest: bool) -> Option<(i64, i64)> {
        let beyond = if lowest { plain.underflow } else { plain.overflow };
        if beyond > 0 || self.is_log() {
            return None;
        }
        let mirrored = |&(index, _): &(i64, u64)| {
            let (lower, upper) = self.span(index);
            (-upper, -lower)
        };
        let straight = |&(index, _): &(i64, u64)| self.span(index);
        let least = if self.scheme == &Scheme::LogLinear10 { 1e-128f64.next_down() } else { 0.0 };
        let zero_end = self.zero_threshold.max(least);
        let zero = (plain.zero > 0).then_some((-zero_end, zero_end));
        let (lower, upper) = if lowest {
            plain.negative.last().map(mirrored).or(zero).or(plain.positive.first().map(straight))
        } else {
            plain.positive.last().map(straight).or(zero).or(plain.negative.first().map(mirrored))
        }?;
        let (first, last) = ((lower * self.power).ceil(), (upper * self.power).floor());
        let most = 2f64.powi(53);
        let fits = first <= last && first.abs() < most && last.abs() < most;
        fits.then_some((first as i64, last as i64))
    }

    fn sum(&self, plain: &PlainHistogram) -> i64 {
        let middle = |index: i64, is_negative: bool| {
            let (mut lower, mut upper) = self.span(index);
            if is_negative {
                (lower, upper) = (-upper, -lower);
            }
            let middle = (lower * 0.5 + upper * 0.5) * self.power;
            if middle.is_finite() && !self.is_log() { middle } else { 0.0 }
        };
        let mut sum = 0.0;
        for &(index, count) in &plain.positive {
            sum += count as f64 * middle(index, false);
        }
        for &(index, count) in &plain.negative {
            sum += count as f64 * middle(index, true);
        }
        let most = 2f64.powi(62);
        sum.round().clamp(-most, most) as i64
    }
}

/// CRC-32C, a bit at a time.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc % 2 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}
