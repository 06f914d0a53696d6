//! Bucket counts of many histograms of one series, near their entropy.
//!
//! Counts form a matrix, a row per histogram, a column per bucket index that any of them uses. From the
//! rows before, each cell is predicted a rate: a moving average of its column, smoothed with its two
//! neighbours. The rate picks one of a few frequency tables, which the block carries, and the cell is coded
//! with it by an asymmetric numeral system in its range form (J. Duda, arXiv 1311.2540): as many bits as
//! the table says the count is surprising. Counts of 16 and more are a token for the leading three bits and
//! the other bits as they are.
//!
//! All prediction is in whole numbers, so every machine decodes the same. Two coder states take turns, so
//! that one step need not wait for the other.

use crate::buckets::Buckets;
use crate::codec::bits::{BitReader, BitWriter};
use crate::codec::bytes::{Reader, put_varint, put_zigzag};
use crate::error::DecodeError;

/// Cells of one matrix at the most. A row of zeros costs next to nothing, so what a decoder allocates has
/// to be bounded by name: 2^21 counts are 16 MiB.
pub const CELLS_MAX: u64 = 1 << 21;

/// Table frequencies add up to this.
const SLOTS: u32 = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 10;
/// Coder states lie in STATE_MIN..2^32 and are refilled 16 bits at a time.
const STATE_MIN: u32 = 1 << 16;

/// Rates have 12 bits below the point.
const RATE_BITS: u32 = 12;
/// Larger counts are predicted as this: four rates then add up within 32 bits.
const COUNT_PREDICTED_MAX: u64 = 1 << 17;
/// A row weighs 2^-4 in the moving average. Measured on log-normal series of 50 to 10,000 values a row:
/// 2^-3 and 2^-5 give blocks within 1 % of this one, sometimes larger, sometimes smaller.
const SPEED: u32 = 4;

/// Rates are told apart by these levels: octaves in eighths, of which only some are used.
const LEVELS: usize = 256;
const TOKENS: usize = 256;
const LITERALS: u64 = 16;

/// A row of counts for each histogram, a column for each bucket index that any of them uses.
pub(crate) struct Matrix {
    /// The columns' indexes, ascending.
    pub(crate) indexes: Vec<i32>,
    /// Row by row.
    counts: Vec<u64>,
}

impl Matrix {
    /// The columns that these rows need together.
    pub(crate) fn indexes<'a>(rows: impl Iterator<Item = &'a Buckets>) -> Vec<i32> {
        let mut all: Vec<i32> = Vec::new();
        for row in rows {
            // Rows of one series are much alike, so most bring nothing new.
            let mut known = all.iter();
            if !row.indexes().iter().all(|index| known.any(|known| known == index)) {
                all.extend(row.indexes());
                all.sort_unstable();
                all.dedup();
            }
        }
        all
    }

    /// The counts of `rows` in the columns of `indexes`, which has them all.
    pub(crate) fn new<'a>(
        indexes: Vec<i32>,
        rows: impl ExactSizeIterator<Item = &'a Buckets>,
    ) -> Matrix {
        let mut counts = vec![0; rows.len() * indexes.len()];
        if !indexes.is_empty() {
            for (row, counts) in rows.zip(counts.chunks_exact_mut(indexes.len())) {
                let mut columns = indexes.iter().zip(counts);
                for (index, count) in row.iter() {
                    let (_, held) =
                        columns.find(|&(&i, _)| i == index).expect("BUG: it has them all");
                    *held = count;
                }
            }
        }
        Matrix { indexes, counts }
    }

    /// Takes a matrix of `rows` rows out of `reader`.
    pub(crate) fn read(reader: &mut Reader<'_>, rows: usize) -> Result<Matrix, DecodeError> {
        let mut decoder = CountsDecoder::new(reader, rows)?;
        let indexes = std::mem::take(&mut decoder.indexes);
        let mut counts = vec![0; rows * indexes.len()];
        if !indexes.is_empty() {
            counts.chunks_exact_mut(indexes.len()).try_for_each(|row| decoder.row(row))?;
        }
        decoder.finish()?;
        Ok(Matrix { indexes, counts })
    }

    /// Appends the matrix.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.indexes.len() as u64);
        let Some(&first) = self.indexes.first() else { return };
        put_zigzag(out, first.into());
        for pair in self.indexes.windows(2) {
            put_varint(out, (i64::from(pair[1]) - i64::from(pair[0]) - 1) as u64);
        }
        Model::new(&self.counts, self.indexes.len()).put(out, &self.counts);
    }

    /// The counts of a row, one for each column.
    pub(crate) fn row(&self, row: usize) -> &[u64] {
        &self.counts[row * self.indexes.len()..][..self.indexes.len()]
    }
}

/// What the encoder finds out about a matrix before it writes.
struct Model {
    /// Level of each cell.
    levels: Vec<u8>,
    groups: Vec<Group>,
}

/// Neighbouring levels that share a frequency table.
struct Group {
    level_last: usize,
    seen: Box<[u32; TOKENS]>,
    bits: f64,
}

impl Model {
    fn new(matrix: &[u64], columns: usize) -> Model {
        let mut rates = Rates::new(columns);
        let mut levels = vec![0; matrix.len()];
        let mut seen: Vec<Option<Box<[u32; TOKENS]>>> = vec![None; LEVELS];
        for (counts, levels) in matrix.chunks_exact(columns).zip(levels.chunks_exact_mut(columns)) {
            rates.levels(levels);
            for (&count, &level) in counts.iter().zip(levels.iter()) {
                let seen = seen[usize::from(level)].get_or_insert_with(|| Box::new([0; TOKENS]));
                seen[token(count)] += 1;
            }
            rates.learn(counts);
        }
        Model { levels, groups: grouped(seen) }
    }

    fn put(&self, out: &mut Vec<u8>, matrix: &[u64]) {
        put_varint(out, self.groups.len() as u64);
        let mut group_of = [0; LEVELS];
        let mut tables = Vec::with_capacity(self.groups.len());
        let mut level = 0;
        for (number, group) in self.groups.iter().enumerate() {
            put_varint(out, (group.level_last - level) as u64);
            group_of[level..=group.level_last].fill(number);
            level = group.level_last + 1;
            tables.push(EncodingTable::new(&group.seen, out));
        }

        let mut words = Vec::new();
        let mut states = [STATE_MIN; 2];
        for (cell, (&count, &level)) in matrix.iter().zip(&self.levels).enumerate().rev() {
            let table = &tables[group_of[usize::from(level)]];
            states[cell & 1] = table.push(states[cell & 1], token(count), &mut words);
        }
        states.iter().for_each(|state| out.extend(state.to_le_bytes()));
        put_varint(out, words.len() as u64);
        words.iter().rev().for_each(|word: &u16| out.extend(word.to_le_bytes()));

        let mut rest = BitWriter::default();
        for &count in matrix.iter().filter(|&&count| count >= LITERALS) {
            let bits = rest_bits(token(count));
            rest.put(count & ((1 << bits) - 1), bits);
        }
        let rest = rest.finish();
        put_varint(out, rest.len() as u64);
        out.extend(rest);
    }
}

/// Levels in groups such that a table of its own pays for itself.
fn grouped(seen: Vec<Option<Box<[u32; TOKENS]>>>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (level_last, seen) in seen.into_iter().enumerate() {
        let Some(seen) = seen else { continue };
        let bits = bits_of(&seen);
        groups.push(Group { level_last, seen, bits });
        // The new group may join the one before, and that in turn the one before it.
        while let [.., before, last] = groups.as_slice() {
            let both: Box<[u32; TOKENS]> =
                Box::new(std::array::from_fn(|token| before.seen[token] + last.seen[token]));
            let bits = bits_of(&both);
            if bits > before.bits + last.bits {
                break;
            }
            let level_last = last.level_last;
            groups.truncate(groups.len() - 2);
            groups.push(Group { level_last, seen: both, bits });
        }
    }
    if let Some(last) = groups.last_mut() {
        last.level_last = LEVELS - 1;
    }
    groups
}

/// Size of these tokens coded with a table of their own, and of the table.
fn bits_of(seen: &[u32; TOKENS]) -> f64 {
    let total: u32 = seen.iter().sum();
    let (mut bits, mut last) = (0.0, 0);
    for (token, &n) in seen.iter().enumerate().filter(|&(_, &n)| n > 0) {
        bits += f64::from(n) * (f64::from(total) / f64::from(n)).log2();
        last = token;
    }
    bits + 24.0 + 10.0 * (last + 1) as f64
}

/// Predicted rates of the columns, with a column of zeros at either end.
struct Rates {
    rates: Vec<u32>,
    rows: u32,
}

impl Rates {
    fn new(columns: usize) -> Rates {
        Rates { rates: vec![0; columns + 2], rows: 0 }
    }

    /// The level of each column's predicted rate.
    #[inline]
    fn levels(&self, levels: &mut [u8]) {
        for (near, level) in self.rates.windows(3).zip(levels) {
            *level = level_of(near[0] + 2 * near[1] + near[2]);
        }
    }

    /// Moves the averages towards a row of counts; fast at first.
    #[inline]
    fn learn(&mut self, counts: &[u64]) {
        let shift = SPEED.min((self.rows + 1).ilog2());
        for (rate, &count) in self.rates[1..].iter_mut().zip(counts) {
            let target = (count.min(COUNT_PREDICTED_MAX) << RATE_BITS) as i32;
            *rate = (*rate as i32 + ((target - *rate as i32) >> shift)) as u32;
        }
        self.rows += 1;
    }
}

/// Octave and, the higher the rate, up to three bits of the place in it: a Poisson count of mean m
/// spreads by √m, so the more there are the finer they are worth telling apart.
#[inline]
fn level_of(rate: u32) -> u8 {
    const MASKS: [u8; 32] = {
        let mut masks = [0b100; 32];
        let mut octave = 0;
        while octave < 32 {
            // Four rates of 12 bits: 2^14 is one value per row.
            if octave >= 20 {
                masks[octave] = 0b111;
            } else if octave >= 16 {
                masks[octave] = 0b110;
            }
            octave += 1;
        }
        masks
    };
    let octave = (rate | 1).ilog2();
    let eighth = ((u64::from(rate) << 3) >> octave) as u8 & MASKS[octave as usize];
    octave as u8 * 8 + eighth
}

/// What a count is coded as: itself below 16, above that its octave and the two bits below the leading one.
#[inline]
fn token(count: u64) -> usize {
    if count < LITERALS {
        return count as usize;
    }
    let octave = count.ilog2();
    (LITERALS as u32 + (octave - 4) * 4 + (count >> (octave - 2)) as u32 % 4) as usize
}

/// Bits of a count that its token does not tell.
#[inline]
fn rest_bits(token: usize) -> u32 {
    if token < LITERALS as usize { 0 } else { (token as u32 - LITERALS as u32) / 4 + 2 }
}

/// The least count of a token.
#[inline]
fn count_of(token: usize) -> u64 {
    if token < LITERALS as usize {
        return token as u64;
    }
    (4 + (token as u64 & 3)) << rest_bits(token)
}

/// Start and frequency of each token among the slots.
struct EncodingTable {
    slots: Vec<(u32, u32)>,
}

impl EncodingTable {
    /// Scales what was seen to frequencies that add up to [`SLOTS`], and appends them.
    fn new(seen: &[u32; TOKENS], out: &mut Vec<u8>) -> EncodingTable {
        let frequencies = frequencies(seen);
        let first = frequencies.iter().position(|&f| f > 0).expect("BUG: a group has tokens");
        let last = frequencies.iter().rposition(|&f| f > 0).expect("BUG: a group has tokens");
        put_varint(out, first as u64);
        put_varint(out, (last - first) as u64);
        let mut start = 0;
        let slots = frequencies
            .iter()
            .map(|&frequency| {
                start += frequency;
                (start - frequency, frequency)
            })
            .collect();
        frequencies[first..=last].iter().for_each(|&frequency| put_varint(out, frequency.into()));
        EncodingTable { slots }
    }

    #[inline]
    fn push(&self, mut state: u32, token: usize, words: &mut Vec<u16>) -> u32 {
        let (start, frequency) = self.slots[token];
        if u64::from(state) >= u64::from(frequency) << (32 - SLOT_BITS) {
            words.push(state as u16);
            state >>= 16;
        }
        ((state / frequency) << SLOT_BITS) + state % frequency + start
    }
}

fn frequencies(seen: &[u32; TOKENS]) -> Vec<u32> {
    let total: u64 = seen.iter().map(|&n| u64::from(n)).sum();
    let scaled = |&n: &u32| match n {
        0 => 0,
        _ => ((u64::from(n) * u64::from(SLOTS) + total / 2) / total).max(1) as u32,
    };
    let mut frequencies: Vec<u32> = seen.iter().map(scaled).collect();
    // Rounding leaves a few slots too many or too few: the most frequent tokens notice least.
    let mut sum: u32 = frequencies.iter().sum();
    while sum != SLOTS {
        let largest = frequencies.iter_mut().max().expect("BUG: there are tokens");
        let change = if sum > SLOTS { (sum - SLOTS).min(*largest / 2) } else { 0 };
        *largest = *largest - change + SLOTS.saturating_sub(sum);
        sum = sum - change + SLOTS.saturating_sub(sum);
    }
    frequencies
}

/// Takes a matrix out again, row by row.
struct CountsDecoder<'a> {
    indexes: Vec<i32>,
    rates: Rates,
    levels: Vec<u8>,
    /// Where a level's table begins in `slots`.
    table_of: Box<[u32; LEVELS]>,
    slots: Vec<Slot>,
    states: [u32; 2],
    words: &'a [[u8; 2]],
    rest: BitReader<'a>,
    offset: usize,
}

/// Token, its frequency less one, and the slot's place among the token's slots.
#[derive(Clone, Copy, Default)]
struct Slot(u32);

impl Slot {
    fn new(token: usize, frequency: u32, place: u32) -> Slot {
        Slot((token as u32) << (2 * SLOT_BITS) | (frequency - 1) << SLOT_BITS | place)
    }

    #[inline]
    fn token(self) -> usize {
        (self.0 >> (2 * SLOT_BITS)) as usize
    }

    #[inline]
    fn next_state(self, state: u32) -> u32 {
        let frequency = ((self.0 >> SLOT_BITS) & (SLOTS - 1)) + 1;
        frequency * (state >> SLOT_BITS) + (self.0 & (SLOTS - 1))
    }
}

impl<'a> CountsDecoder<'a> {
    /// Reads everything but the cells. `rows` has been checked by the caller.
    fn new(reader: &mut Reader<'a>, rows: usize) -> Result<CountsDecoder<'a>, DecodeError> {
        let indexes = indexes(reader, rows)?;
        let mut decoder = CountsDecoder {
            rates: Rates::new(indexes.len()),
            levels: vec![0; indexes.len()],
            table_of: Box::new([0; LEVELS]),
            slots: Vec::new(),
            states: [STATE_MIN; 2],
            words: &[],
            rest: BitReader::new(&[], reader.offset()),
            offset: reader.offset(),
            indexes,
        };
        if !decoder.indexes.is_empty() {
            decoder.tables(reader)?;
            decoder.streams(reader)?;
        }
        Ok(decoder)
    }

    fn tables(&mut self, reader: &mut Reader<'a>) -> Result<(), DecodeError> {
        let at = reader.offset();
        let groups = reader.varint("table count")?;
        if groups == 0 || groups > LEVELS as u64 {
            return Err(Reader::invalid(at, "table count", groups, "1 to 256"));
        }
        let mut level = 0;
        for _ in 0..groups {
            let at = reader.offset();
            let span = reader.varint("levels of a table")?;
            let last = span.checked_add(level).filter(|&last| last < LEVELS as u64);
            let Some(last) = last else {
                return Err(Reader::invalid(at, "levels of a table", span, "256 levels in all"));
            };
            self.table_of[level as usize..=last as usize].fill(self.slots.len() as u32);
            level = last + 1;
            self.table(reader)?;
        }
        if level != LEVELS as u64 {
            return Err(Reader::invalid(at, "levels", level, "256 levels in all"));
        }
        Ok(())
    }

    fn table(&mut self, reader: &mut Reader<'a>) -> Result<(), DecodeError> {
        let at = reader.offset();
        let (first, more) = (reader.varint("first token")?, reader.varint("tokens")?);
        let last = first.saturating_add(more);
        if last >= TOKENS as u64 {
            return Err(Reader::invalid(at, "last token", last, "at most 255"));
        }
        let end = self.slots.len() + SLOTS as usize;
        for token in first..=last {
            let frequency = reader.varint("frequency")?;
            if frequency > (end - self.slots.len()) as u64 {
                return Err(Reader::invalid(at, "frequency", frequency, "1024 in all"));
            }
            let places = 0..frequency as u32;
            self.slots
                .extend(places.map(|place| Slot::new(token as usize, frequency as u32, place)));
        }
        if self.slots.len() != end {
            return Err(Reader::invalid(at, "frequencies", "too few", "1024 in all"));
        }
        Ok(())
    }

    fn streams(&mut self, reader: &mut Reader<'a>) -> Result<(), DecodeError> {
        for state in &mut self.states {
            let at = reader.offset();
            *state = reader.u32_le("state")?;
            if *state < STATE_MIN {
                return Err(Reader::invalid(at, "state", *state, "at least 65536"));
            }
        }
        self.offset = reader.offset();
        let words = reader.varint("word count")?;
        let bytes = usize::try_from(words).ok().and_then(|words| words.checked_mul(2));
        self.words = reader.take(bytes.unwrap_or(usize::MAX), "words")?.as_chunks().0;
        let rest = reader.varint("bit bytes")?;
        let offset = reader.offset();
        let rest = reader.take(usize::try_from(rest).unwrap_or(usize::MAX), "bits")?;
        self.rest = BitReader::new(rest, offset);
        Ok(())
    }

    /// The next row, one count per column.
    fn row(&mut self, counts: &mut [u64]) -> Result<(), DecodeError> {
        self.rates.levels(&mut self.levels);
        // The states take turns over the whole matrix, so a row of odd length swaps them for the next.
        let [mut state, mut other] = self.states;
        let mut at = 0;
        for (count, &level) in counts.iter_mut().zip(&self.levels) {
            let place = self.table_of[usize::from(level)] + (state & (SLOTS - 1));
            let slot = self.slots[place as usize];
            state = slot.next_state(state);
            // Whether a state wants a word is a matter of chance: a choice costs less than a branch. Past
            // the last word there are zeros, and that they were wanted is found at the end of the row.
            let word = self.words.get(at).map_or(0, |&word| u32::from(u16::from_le_bytes(word)));
            let wants = state < STATE_MIN;
            state = if wants { state << 16 | word } else { state };
            at += usize::from(wants);
            (state, other) = (other, state);
            let token = slot.token();
            *count = token as u64;
            if token >= LITERALS as usize {
                *count = count_of(token) + self.rest.get(rest_bits(token), "bits of a count")?;
            }
        }
        self.words = self
            .words
            .get(at..)
            .ok_or(DecodeError::Truncated { offset: self.offset, field: "words" })?;
        self.states = [state, other];
        self.rates.learn(counts);
        Ok(())
    }

    /// After the last row: nothing may be left over.
    fn finish(&self) -> Result<(), DecodeError> {
        if self.words.is_empty() && self.states == [STATE_MIN; 2] {
            return self.rest.finish();
        }
        Err(Reader::invalid(self.offset, "words", "a remainder", "an end where the last row ends"))
    }
}

fn indexes(reader: &mut Reader<'_>, rows: usize) -> Result<Vec<i32>, DecodeError> {
    let at = reader.offset();
    let columns = reader.varint("column count")?;
    // A column takes a byte at least.
    let limit = (CELLS_MAX / rows.max(1) as u64).min(reader.remaining() as u64);
    if columns > limit {
        return Err(DecodeError::Limit {
            offset: at,
            field: "column count",
            found: columns,
            limit,
        });
    }
    let mut indexes = Vec::with_capacity(columns as usize);
    let mut previous: Option<i64> = None;
    for _ in 0..columns {
        let at = reader.offset();
        let index = match previous {
            None => reader.zigzag("first index")?,
            Some(previous) => {
                previous.saturating_add_unsigned(reader.varint("index gap")?).saturating_add(1)
            }
        };
        previous = Some(index);
        let index = i32::try_from(index);
        indexes
            .push(index.map_err(|_| Reader::invalid(at, "index", "too large", "a 32-bit number"))?);
    }
    Ok(indexes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rows: &[Vec<(i32, u64)>]) -> usize {
        let buckets: Vec<Buckets> = rows
            .iter()
            .map(|row| {
                let mut buckets = Buckets::default();
                row.iter().for_each(|&(index, count)| buckets.push(index, count));
                buckets
            })
            .collect();
        let mut out = Vec::new();
        Matrix::new(Matrix::indexes(buckets.iter()), buckets.iter()).put(&mut out);
        let mut reader = Reader::new(&out);
        let matrix = Matrix::read(&mut reader, rows.len()).unwrap();
        for (number, row) in rows.iter().enumerate() {
            let counts = matrix.row(number).iter().copied();
            let found: Vec<(i32, u64)> =
                matrix.indexes.iter().copied().zip(counts).filter(|&(_, n)| n > 0).collect();
            assert_eq!(&found, row);
        }
        reader.finish().unwrap();
        out.len()
    }

    #[test]
    fn matrices_come_back() {
        check(&[]);
        check(&[vec![]]);
        check(&[vec![(5, 1)]]);
        check(&[vec![(i32::MIN, 1), (i32::MAX, u64::MAX)], vec![], vec![(0, 1 << 40)]]);
        check(&vec![vec![(1, 3), (2, 5), (3, 1)]; 7]);
        let mut rows = Vec::new();
        let mut seed = 1u64;
        for row in 0..200 {
            rows.push(
                (0..97)
                    .filter_map(|column| {
                        seed = seed
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        let count = (seed >> 33) % (1 + column * row / 40);
                        (count > 0).then_some((column as i32 * 3, count))
                    })
                    .collect(),
            );
        }
        check(&rows);
    }

    #[test]
    fn equal_rows_cost_almost_nothing() {
        assert!(check(&vec![vec![(1, 3), (2, 12), (3, 1)]; 1000]) < 200);
    }

    #[test]
    fn every_count_has_a_token() {
        for shift in 0..64 {
            for count in [(1u64 << shift) - 1, 1 << shift, (1 << shift) | 1, !0 >> shift] {
                let token = token(count);
                let rest = count - count_of(token);
                assert!(
                    rest_bits(token) == 0 && rest == 0 || rest >> rest_bits(token) == 0,
                    "{count}"
                );
            }
        }
        assert_eq!(token(u64::MAX), TOKENS - 1);
    }
}
