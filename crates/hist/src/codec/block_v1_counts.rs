//! Decoder for the count matrix of block version 1.
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

use crate::codec::bits::BitReader;
use crate::codec::bytes::ByteReader;
use crate::error::DecodeError;

/// Cells of one matrix at the most. A row of zeros costs next to nothing, so what a decoder allocates has
/// to be bounded by name: 2^21 counts are 16 MiB.
pub(crate) const CELLS_MAX: u64 = 1 << 21;

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

/// Decoded count matrix of version 1.
pub(crate) struct CountMatrixV1 {
    /// The columns' indexes, ascending.
    pub(crate) indexes: Vec<i32>,
    /// Row by row.
    counts: Vec<u64>,
}

impl CountMatrixV1 {
    /// Takes a matrix of `rows` rows out of `reader`.
    pub(crate) fn read(
        reader: &mut ByteReader<'_>,
        rows: usize,
    ) -> Result<CountMatrixV1, DecodeError> {
        let mut decoder = CountsDecoder::new(reader, rows)?;
        let indexes = std::mem::take(&mut decoder.indexes);
        let mut counts = vec![0; rows.wrapping_mul(indexes.len())];
        if !indexes.is_empty() {
            counts.chunks_exact_mut(indexes.len()).try_for_each(|row| decoder.row(row))?;
        }
        decoder.finish()?;
        Ok(CountMatrixV1 { indexes, counts })
    }

    /// The counts of a row, one for each column.
    pub(crate) fn row(&self, row: usize) -> &[u64] {
        &self.counts[row.wrapping_mul(self.indexes.len())..][..self.indexes.len()]
    }
}

/// Predicted count rate per column.
struct ColumnRates {
    rates: Vec<u32>,
    rows: u32,
}

impl ColumnRates {
    fn new(columns: usize) -> ColumnRates {
        ColumnRates { rates: vec![0; columns.wrapping_add(2)], rows: 0 }
    }

    /// The level of each column's predicted rate.
    #[inline]
    fn levels(&self, levels: &mut [u8]) {
        for (near, level) in self.rates.windows(3).zip(levels) {
            *level = level_of(near[0].wrapping_add(near[1].wrapping_mul(2)).wrapping_add(near[2]));
        }
    }

    /// Moves the averages towards a row of counts; fast at first.
    #[inline]
    fn learn(&mut self, counts: &[u64]) {
        let shift = SPEED.min(self.rows.wrapping_add(1).ilog2());
        for (rate, &count) in self.rates[1..].iter_mut().zip(counts) {
            let target = (count.min(COUNT_PREDICTED_MAX) << RATE_BITS) as i32;
            *rate = (*rate as i32).wrapping_add(target.wrapping_sub(*rate as i32) >> shift) as u32;
        }
        self.rows = self.rows.wrapping_add(1);
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
    (octave as u8).wrapping_mul(8).wrapping_add(eighth)
}

/// Bits of a count that its token does not tell.
#[inline]
fn extra_bits(token: usize) -> u32 {
    if token < LITERALS as usize {
        0
    } else {
        (((token as u32).wrapping_sub(LITERALS as u32)) / 4).wrapping_add(2)
    }
}

/// The least count of a token.
#[inline]
fn token_min(token: usize) -> u64 {
    if token < LITERALS as usize {
        return token as u64;
    }
    (token as u64 & 3).wrapping_add(4) << extra_bits(token)
}

/// Decoder of a version 1 count matrix.
struct CountsDecoder<'a> {
    indexes: Vec<i32>,
    rates: ColumnRates,
    levels: Vec<u8>,
    /// Where a level's table begins in `slots`.
    table_of: Box<[u32; LEVELS]>,
    slots: Vec<RansSlot>,
    states: [u32; 2],
    words: &'a [[u8; 2]],
    extra_bits: BitReader<'a>,
    offset: usize,
}

/// rANS slot: token, frequency, and offset among the token's slots.
#[derive(Clone, Copy, Default)]
struct RansSlot(u32);

impl RansSlot {
    fn new(token: usize, frequency: u32, place: u32) -> RansSlot {
        RansSlot((token as u32) << (2 * SLOT_BITS) | frequency.wrapping_sub(1) << SLOT_BITS | place)
    }

    #[inline]
    fn token(self) -> usize {
        (self.0 >> (2 * SLOT_BITS)) as usize
    }

    #[inline]
    fn next_state(self, state: u32) -> u32 {
        let frequency = ((self.0 >> SLOT_BITS) & (SLOTS - 1)).wrapping_add(1);
        frequency.wrapping_mul(state >> SLOT_BITS).wrapping_add(self.0 & (SLOTS - 1))
    }
}

impl<'a> CountsDecoder<'a> {
    /// Reads everything but the cells. `rows` has been checked by the caller.
    fn new(reader: &mut ByteReader<'a>, rows: usize) -> Result<CountsDecoder<'a>, DecodeError> {
        let indexes = read_indexes(reader, rows)?;
        let mut decoder = CountsDecoder {
            rates: ColumnRates::new(indexes.len()),
            levels: vec![0; indexes.len()],
            table_of: Box::new([0; LEVELS]),
            slots: Vec::new(),
            states: [STATE_MIN; 2],
            words: &[],
            extra_bits: BitReader::new(&[], reader.offset()),
            offset: reader.offset(),
            indexes,
        };
        if !decoder.indexes.is_empty() {
            decoder.tables(reader)?;
            decoder.streams(reader)?;
        }
        Ok(decoder)
    }

    fn tables(&mut self, reader: &mut ByteReader<'a>) -> Result<(), DecodeError> {
        let at = reader.offset();
        let groups = reader.varint("table count")?;
        if groups == 0 || groups > LEVELS as u64 {
            return Err(ByteReader::invalid_error(at, "table count", groups, "1 to 256"));
        }
        let mut level = 0;
        for _ in 0..groups {
            let at = reader.offset();
            let span = reader.varint("levels of a table")?;
            let last = span.checked_add(level).filter(|&last| last < LEVELS as u64);
            let Some(last) = last else {
                return Err(ByteReader::invalid_error(
                    at,
                    "levels of a table",
                    span,
                    "256 levels in all",
                ));
            };
            self.table_of[level as usize..=last as usize].fill(self.slots.len() as u32);
            level = last.wrapping_add(1);
            self.table(reader)?;
        }
        if level != LEVELS as u64 {
            return Err(ByteReader::invalid_error(at, "levels", level, "256 levels in all"));
        }
        Ok(())
    }

    fn table(&mut self, reader: &mut ByteReader<'a>) -> Result<(), DecodeError> {
        let at = reader.offset();
        let (first, more) = (reader.varint("first token")?, reader.varint("tokens")?);
        let last = first.saturating_add(more);
        if last >= TOKENS as u64 {
            return Err(ByteReader::invalid_error(at, "last token", last, "at most 255"));
        }
        let end = self.slots.len().wrapping_add(SLOTS as usize);
        for token in first..=last {
            let frequency = reader.varint("frequency")?;
            if frequency > end.wrapping_sub(self.slots.len()) as u64 {
                return Err(ByteReader::invalid_error(at, "frequency", frequency, "1024 in all"));
            }
            let places = 0..frequency as u32;
            self.slots
                .extend(places.map(|place| RansSlot::new(token as usize, frequency as u32, place)));
        }
        if self.slots.len() != end {
            return Err(ByteReader::invalid_error(at, "frequencies", "too few", "1024 in all"));
        }
        Ok(())
    }

    fn streams(&mut self, reader: &mut ByteReader<'a>) -> Result<(), DecodeError> {
        for state in &mut self.states {
            let at = reader.offset();
            *state = reader.u32_le("state")?;
            if *state < STATE_MIN {
                return Err(ByteReader::invalid_error(at, "state", *state, "at least 65536"));
            }
        }
        self.offset = reader.offset();
        let words = reader.varint("word count")?;
        let bytes = usize::try_from(words).ok().and_then(|words| words.checked_mul(2));
        self.words = reader.read_bytes(bytes.unwrap_or(usize::MAX), "words")?.as_chunks().0;
        let rest = reader.varint("bit bytes")?;
        let offset = reader.offset();
        let rest = reader.read_bytes(usize::try_from(rest).unwrap_or(usize::MAX), "bits")?;
        self.extra_bits = BitReader::new(rest, offset);
        Ok(())
    }

    /// The next row, one count per column.
    fn row(&mut self, counts: &mut [u64]) -> Result<(), DecodeError> {
        self.rates.levels(&mut self.levels);
        // The states take turns over the whole matrix, so a row of odd length swaps them for the next.
        let [mut state, mut other] = self.states;
        let mut at = 0usize;
        for (count, &level) in counts.iter_mut().zip(&self.levels) {
            let place = self.table_of[usize::from(level)].wrapping_add(state & (SLOTS - 1));
            let slot = self.slots[place as usize];
            state = slot.next_state(state);
            // Whether a state wants a word is a matter of chance: a choice costs less than a branch. Past
            // the last word there are zeros, and that they were wanted is found at the end of the row.
            let word = self.words.get(at).map_or(0, |&word| u32::from(u16::from_le_bytes(word)));
            let wants = state < STATE_MIN;
            state = if wants { state << 16 | word } else { state };
            at = at.wrapping_add(usize::from(wants));
            (state, other) = (other, state);
            let token = slot.token();
            *count = token as u64;
            if token >= LITERALS as usize {
                *count = token_min(token)
                    .wrapping_add(self.extra_bits.get(extra_bits(token), "bits of a count")?);
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
            return self.extra_bits.finish();
        }
        Err(ByteReader::invalid_error(
            self.offset,
            "words",
            "a remainder",
            "an end where the last row ends",
        ))
    }
}

fn read_indexes(reader: &mut ByteReader<'_>, rows: usize) -> Result<Vec<i32>, DecodeError> {
    let at = reader.offset();
    let columns = reader.varint("column count")?;
    // A column takes a byte at least.
    let limit =
        CELLS_MAX.checked_div(rows as u64).unwrap_or(CELLS_MAX).min(reader.remaining() as u64);
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
        indexes.push(
            index.map_err(|_| {
                ByteReader::invalid_error(at, "index", "too large", "a 32-bit number")
            })?,
        );
    }
    Ok(indexes)
}
