//! A reader of blocks of version 1 written from `docs/formats/block-1.md` alone, slow and plain. It panics at
//! damage: it is for what our own encoder wrote.

use hist::Scheme;

use crate::block_reference::{
    Bits, Matrix, PageBytes, PlainHistogram, ReferenceHeader, Sizes, bit_length, crc, exactness,
    summary_count, unfold,
};

pub(crate) fn block(bytes: &[u8]) -> (ReferenceHeader, Vec<PlainHistogram>, Sizes) {
    let (body, checksum) = bytes.split_at(bytes.len() - 4);
    assert_eq!(crc(body).to_le_bytes(), checksum);
    let mut at = PageBytes { bytes: body, at: 0 };
    let mut sizes = Vec::new();
    let head = at.head(0xd2, 1);
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
    let of_bucket = RowPredictionV1 { scheme: &head.scheme, zero_threshold };
    let held: Vec<usize> = (0..rows).filter(|&row| plains[row].has_values()).collect();

    for lowest in [true, false] {
        let exact = exactness(&mut bits, held.len());
        let places = bits.get(1) == 1;
        for (&row, exact) in held.iter().zip(exact) {
            let Some(exact) = exact else { continue };
            let value = if places {
                let (first, last) = of_bucket.outermost(&plains[row], lowest).unwrap();
                (first + bits.get(bit_length((last - first) as u64)) as i64) as f64
            } else {
                f64::from_bits(bits.get(64))
            };
            *if lowest { &mut plains[row].min } else { &mut plains[row].max } =
                Some((exact, value));
        }
        sizes.push((if lowest { "min" } else { "max" }, bits.at / 8));
    }

    let exact = exactness(&mut bits, held.len());
    let whole = bits.get(1) == 1;
    let low_bits = if whole { bits.get(6) as u32 } else { 0 };
    for (&row, exact) in held.iter().zip(exact) {
        let Some(exact) = exact else { continue };
        let (high, low) = if whole {
            let difference = unfold(bits.rice(low_bits));
            let sum = of_bucket.sum(&plains[row]).wrapping_add(difference);
            (sum as f64, (i128::from(sum) - sum as f64 as i128) as f64)
        } else {
            (f64::from_bits(bits.get(64)), f64::from_bits(bits.get(64)))
        };
        // A low word of −0 is as good as 0.
        plains[row].sum = Some((exact, high, low + 0.0));
    }
    bits.finish();
    sizes.push(("sum", bits.at.div_ceil(8)));
    (head, plains, sizes)
}

struct TokenTable {
    /// (token, frequency, slot at which it starts)
    tokens: Vec<(u32, u32, u32)>,
}

fn matrix(at: &mut PageBytes<'_>, rows: usize, sizes: &mut Sizes) -> Matrix {
    let start = at.at;
    let columns = at.varint() as usize;
    if columns == 0 {
        return Matrix { indexes: vec![], cells: vec![] };
    }
    let mut indexes = vec![at.zigzag()];
    for column in 1..columns {
        indexes.push(indexes[column - 1] + at.varint() as i64 + 1);
    }
    sizes.push(("indexes", at.at - start));

    let start = at.at;
    let mut table_of_level = Vec::new();
    for _ in 0..at.varint() {
        let levels = at.varint() + 1;
        let first = at.varint() as u32;
        let tokens = at.varint() as u32 + 1;
        let mut table = TokenTable { tokens: vec![] };
        let mut slot = 0;
        for token in first..first + tokens {
            let frequency = at.varint() as u32;
            table.tokens.push((token, frequency, slot));
            slot += frequency;
        }
        assert_eq!(slot, 1024);
        let table = std::rc::Rc::new(table);
        (0..levels).for_each(|_| table_of_level.push(table.clone()));
    }
    assert_eq!(table_of_level.len(), 256);
    sizes.push(("tables", at.at - start));

    let mut states: [u32; 2] =
        std::array::from_fn(|_| u32::from_le_bytes(at.take_bytes(4).try_into().unwrap()));
    let words = at.varint() as usize;
    sizes.push(("words", 8 + 2 * words));
    let mut words = PageBytes { bytes: at.take_bytes(2 * words), at: 0 };
    let rest = at.varint() as usize;
    sizes.push(("bits of counts", rest));
    let mut rest = Bits::new(at.take_bytes(rest));

    let mut rates = vec![0i64; columns];
    let mut cells: Vec<u64> = Vec::new();
    for row in 0..rows {
        let rate = |column: Option<usize>| column.and_then(|c| rates.get(c)).copied().unwrap_or(0);
        for column in 0..columns {
            let smoothed = rate(column.checked_sub(1)) + 2 * rates[column] + rate(Some(column + 1));
            let table = &table_of_level[level(smoothed as u64)];
            let state = &mut states[(row * columns + column) % 2];
            let slot = *state % 1024;
            let &(token, frequency, start) = table
                .tokens
                .iter()
                .find(|&&(_, frequency, start)| start <= slot && slot < start + frequency)
                .unwrap();
            *state = frequency * (*state / 1024) + slot - start;
            if *state < 1 << 16 {
                let word = words.take_bytes(2);
                *state = (*state << 16) + u32::from(word[0]) + 256 * u32::from(word[1]);
            }
            let count = if token < 16 {
                u64::from(token)
            } else {
                let extra = (token - 16) / 4 + 2;
                (u64::from(4 + (token - 16) % 4) << extra) + rest.get(extra)
            };
            cells.push(count);
        }
        let shift = (row + 1).ilog2().min(4);
        for column in 0..columns {
            let target = (cells[row * columns + column].min(1 << 17) as i64) << 12;
            rates[column] += (target - rates[column]).div_euclid(1 << shift);
        }
    }
    assert_eq!(states, [1 << 16; 2]);
    assert_eq!(words.at, words.bytes.len());
    rest.finish();
    Matrix { indexes, cells }
}

fn level(rate: u64) -> usize {
    let octave = rate.max(1).ilog2();
    // Below the leading one, three bits.
    let eighth = ((8 * rate) >> octave) % 8;
    let eighth = match octave {
        20.. => eighth,
        16..=19 => eighth - eighth % 2,
        _ => eighth - eighth % 4,
    };
    (8 * u64::from(octave) + eighth) as usize
}

struct RowPredictionV1<'a> {
    scheme: &'a Scheme,
    zero_threshold: f64,
}

impl RowPredictionV1<'_> {
    /// The least and greatest double of a positive bucket.
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
        let (first, last) = (lower.ceil(), upper.floor());
        let most = 2f64.powi(53);
        let fits = first <= last && first.abs() < most && last.abs() < most;
        fits.then_some((first as i64, last as i64))
    }

    fn sum(&self, plain: &PlainHistogram) -> i64 {
        let middle = |index: i64| {
            let (lower, upper) = self.span(index);
            let middle = lower * 0.5 + upper * 0.5;
            if middle.is_finite() && !self.is_log() { middle.round() as i64 } else { 0 }
        };
        let mut sum = 0i64;
        for &(index, count) in &plain.positive {
            sum = sum.wrapping_add(middle(index).wrapping_mul(count as i64));
        }
        for &(index, count) in &plain.negative {
            sum = sum.wrapping_sub(middle(index).wrapping_mul(count as i64));
        }
        sum
    }
}
