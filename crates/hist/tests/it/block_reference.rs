//! Reference decoders of frames and blocks, written only from `docs/formats/frame.md` and
//! `block.md`; slow and simple.
//!
//! They share nothing with the crate except [`Scheme::edges`], so they prove that the pages suffice
//! to write a decoder. They panic on damage: they are for the output of our own encoder.

use hist::{Interpolation, LogLinear2, Logarithmic, Scheme};

use crate::matrix_reference::matrix;

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
    let thresholds: Vec<f64> = (0..at.varint()).map(|_| at.number()).collect();
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
    let above: Vec<Vec<u64>> = thresholds.iter().map(|_| summary_count(&mut bits, rows)).collect();
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
            thresholds: thresholds
                .iter()
                .zip(&above)
                .map(|(&l, column)| (l, column[row]))
                .collect(),
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
            let whole =
                of_bucket.sum(&plains[row]).wrapping_add(from_zigzag(bits.rice(whole_bits)));
            let rest = if unit > 0 { from_zigzag(bits.rice(rest_bits)) } else { 0 };
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

    pub(crate) fn byte(&mut self) -> u8 {
        self.take_bytes(1)[0]
    }

    pub(crate) fn double(&mut self) -> f64 {
        f64::from_le_bytes(self.take_bytes(8).try_into().unwrap())
    }

    pub(crate) fn varint(&mut self) -> u64 {
        let byte = self.byte();
        let low = u64::from(byte % 128);
        if byte < 128 { low } else { low + self.varint() * 128 }
    }

    pub(crate) fn zigzag(&mut self) -> i64 {
        from_zigzag(self.varint())
    }

    pub(crate) fn number(&mut self) -> f64 {
        match self.varint() {
            1 => self.double(),
            coded => {
                assert_eq!(coded % 2, 0);
                from_zigzag(coded / 2) as f64
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
                Scheme::Logarithmic(
                    Logarithmic::new(gamma, offset, by[usize::from(self.byte())]).unwrap(),
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

    pub(crate) fn buckets(&mut self) -> Vec<(i64, u64)> {
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

pub(crate) fn from_zigzag(value: u64) -> i64 {
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
            count = count.wrapping_add(from_zigzag(bits.rice(low_bits)) as u64);
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
            _ => panic!("an exactness of 3"),
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
        matches!(self.scheme, Scheme::Logarithmic(_))
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
