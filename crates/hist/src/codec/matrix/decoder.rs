//! Count matrix decoder.

use crate::codec::bits::BitReader;
use crate::codec::bytes::{ByteReader, unzigzag};
use crate::codec::huffman::{ESCAPE, HuffmanCodes, LOOKUP, symbol_bits};
use crate::error::DecodeError;

use super::count_table::{CountCells, CountTable};
use super::count_word::{CountBuffer, CountWord, total};
use super::rate_model::{ColumnCoding, ROOT_MAX, RateModel, rate_of_level};
use super::{
    CELLS_MAX, ROWS_PER_STREAM, SCALE_BITS_MAX, STREAMS, STRIPE_ROWS, Stripe, height, low_code,
    reach, row_bits,
};

/// Observer of decoded stripes.
pub(crate) trait StripeObserver {
    fn observe<T: CountWord>(&mut self, stripe: &Stripe<'_, T>);
}

/// Decoded column of a stripe.
enum ColumnCounts<T> {
    /// Sum and bitwise OR of the counts.
    Final(u64, T),
    /// Steps of a high column, to which the expected counts of its rows are to be added, and the
    /// number of bits of a step.
    Steps(u32),
}

/// Bit reader that returns zeros past the end; checked after each stripe.
struct PaddedBitReader<'a> {
    bytes: &'a [u8],
    at_bit: usize,
    end_bit: usize,
}

impl PaddedBitReader<'_> {
    /// At least the next 57 bits.
    #[inline(always)]
    fn load(&self) -> u64 {
        let word = match self.bytes.get(self.at_bit / 8..).and_then(|rest| rest.first_chunk::<8>())
        {
            Some(word) => u64::from_le_bytes(*word),
            None => self.load_at_end(),
        };
        word >> (self.at_bit % 8)
    }

    #[cold]
    fn load_at_end(&self) -> u64 {
        let mut word = [0; 8];
        let rest = self.bytes.get(self.at_bit / 8..).unwrap_or(&[]);
        word[..rest.len()].copy_from_slice(rest);
        u64::from_le_bytes(word)
    }

    fn get(&mut self, bits: u32) -> u64 {
        if bits > 32 {
            return self.get(32) | self.get(bits.wrapping_sub(32)) << 32;
        }
        let word = self.load();
        self.at_bit = self.at_bit.wrapping_add(bits as usize);
        word & (1u64 << bits).wrapping_sub(1)
    }

    /// Reads a number of [`put_exp_golomb`]. The zeros past the end terminate it.
    fn get_exp_golomb(&mut self, low_bits: u32) -> u64 {
        let word = self.load();
        let bits = word.trailing_ones();
        let length = bits.wrapping_mul(2).wrapping_add(1).wrapping_add(low_bits);
        // Usually one load contains the whole number.
        if length < 57 {
            self.at_bit = self.at_bit.wrapping_add(length as usize);
            let high = (1u64 << bits)
                .wrapping_sub(1)
                .wrapping_add(word >> (bits.wrapping_add(1)) & (1u64 << bits).wrapping_sub(1));
            let low =
                word >> bits.wrapping_mul(2).wrapping_add(1) & (1u64 << low_bits).wrapping_sub(1);
            return high << low_bits | low;
        }
        let mut bits = bits.min(48);
        self.at_bit = self.at_bit.wrapping_add(bits as usize);
        while bits < 64 && self.get(1) == 1 {
            bits = bits.wrapping_add(1);
        }
        // Skips the zero after 64 ones.
        self.at_bit = self.at_bit.wrapping_add(usize::from(bits == 64));
        let high = (1u64.checked_shl(bits).unwrap_or(0) | self.get(bits)).wrapping_sub(1);
        high.checked_shl(low_bits).unwrap_or(0) | self.get(low_bits)
    }

    /// Decodes a nearly empty column. Returns the sum and the bitwise OR of its counts.
    fn get_rare<T: CountWord>(&mut self, rows: usize, out: &mut [T]) -> (u64, T) {
        out.fill(T::default());
        let mut has_counts = false;
        for _ in 0..rows {
            if self.get(1) == 0 {
                break;
            }
            let row = self.get(row_bits(rows)) as usize;
            let count = T::low(self.get_count::<T>().saturating_add(1));
            if let Some(cell) = out[..rows].get_mut(row) {
                *cell = count;
                has_counts = true;
            }
        }
        // Most have none. A row may be repeated, so counts are not added as they are read.
        if has_counts { total(out) } else { (0, T::default()) }
    }

    #[cold]
    #[inline(never)]
    fn get_low_scalar<T: CountWord>(&mut self, code: &[u16; LOOKUP], cells: usize, out: &mut [T]) {
        let bits = symbol_bits(cells);
        for out in out.chunks_mut(cells) {
            let entry = code[self.load() as usize % LOOKUP];
            self.at_bit = self.at_bit.wrapping_add(usize::from(entry >> 8 & 15));
            for at in 0..cells {
                let count = match entry & ESCAPE {
                    0 => u64::from(entry >> at.wrapping_mul(bits)) & (1u64 << bits).wrapping_sub(1),
                    _ => self.get_count::<T>(),
                };
                if let Some(cell) = out.get_mut(at) {
                    *cell = T::low(count);
                }
            }
        }
    }

    /// Reads a count. A count that exceeds its width stays recognisably too large.
    fn get_count<T: CountWord>(&mut self) -> u64 {
        let count = self.get_exp_golomb(0);
        if T::BITS < 64 { count.min(1 << T::BITS) } else { count }
    }

    #[cold]
    #[inline(never)]
    fn get_high_scalar<T: CountWord>(&mut self, code: &[u16; LOOKUP], bits: u32, out: &mut [T]) {
        for cell in out {
            let word = self.load();
            let entry = code[word as usize % LOOKUP];
            let length = u32::from(entry >> 8 & 15);
            self.at_bit = self.at_bit.wrapping_add(length as usize);
            let from_least = if entry & ESCAPE == 0 {
                self.at_bit = self.at_bit.wrapping_add(bits as usize);
                u64::from(entry & 255) << bits | word >> length & (1u64 << bits).wrapping_sub(1)
            } else {
                (unzigzag(self.get_exp_golomb(bits.wrapping_add(3))) as u64)
                    .wrapping_add(reach(bits))
            };
            *cell = T::low(from_least);
        }
    }
}

/// Count matrix decoder.
pub(crate) struct MatrixDecoder<'a> {
    /// Indexes of the columns, ascending.
    pub(crate) indexes: Vec<i32>,
    /// Whether counts may have more than [`NARROW_BITS`] bits.
    pub(crate) wide: bool,
    rows: usize,
    model: RateModel,
    streams: [PaddedBitReader<'a>; STREAMS],
    codes: &'static HuffmanCodes,
    offset: usize,
}

impl<'a> MatrixDecoder<'a> {
    /// Reads everything except the cells. The caller has checked `rows`.
    pub(crate) fn read(
        reader: &mut ByteReader<'a>,
        rows: usize,
    ) -> Result<MatrixDecoder<'a>, DecodeError> {
        let at = reader.offset();
        let columns = reader.varint("column count")?;
        // A column takes at least one bit.
        let most = CELLS_MAX
            .checked_div(rows.next_multiple_of(ROWS_PER_STREAM).max(ROWS_PER_STREAM) as u64)
            .unwrap_or(0);
        let limit = most.min((reader.remaining() as u64).wrapping_mul(8));
        if columns > limit {
            let field = "column count";
            return Err(DecodeError::Limit { offset: at, field, found: columns, limit });
        }
        let columns = columns as usize;
        let mut matrix = MatrixDecoder {
            indexes: Vec::new(),
            wide: false,
            rows,
            model: RateModel::new(0),
            streams: [(); STREAMS].map(|()| PaddedBitReader { bytes: &[], at_bit: 0, end_bit: 0 }),
            codes: HuffmanCodes::get(),
            offset: at,
        };
        if columns > 0 {
            matrix.head(reader, columns)?;
            let mut lengths = [0; STREAMS];
            for length in &mut lengths {
                *length = usize::try_from(reader.varint("stream length")?).unwrap_or(usize::MAX);
            }
            for (stream, length) in matrix.streams.iter_mut().zip(lengths) {
                // The bytes after the stream may be loaded, but are treated as its end.
                let bytes = reader.peek();
                reader.read_bytes(length, "stream")?;
                *stream = PaddedBitReader { bytes, at_bit: 0, end_bit: length.wrapping_mul(8) };
            }
        }
        Ok(matrix)
    }

    fn head(&mut self, reader: &mut ByteReader<'a>, columns: usize) -> Result<(), DecodeError> {
        let first = reader.zigzag("first index")?;
        let length = usize::try_from(reader.varint("head length")?).unwrap_or(usize::MAX);
        let at = reader.offset();
        let mut head = BitReader::new(reader.read_bytes(length, "head")?, at);
        self.wide = head.get(1, "width")? == 1;
        self.model.spread = head.get(4, "spread")? as u32;
        self.model.scale_bits = head.get(4, "scale bits")? as u32;
        self.model.group_bits = head.get(2, "group bits")? as u32;
        let coarse = head.get(3, "level bits")? as u32;
        if self.model.scale_bits > SCALE_BITS_MAX {
            return Err(ByteReader::invalid_error(
                at,
                "scale bits",
                self.model.scale_bits,
                "at most 10",
            ));
        }
        let index = |index: i64| {
            i32::try_from(index)
                .map_err(|_| ByteReader::invalid_error(at, "index", index, "a 32-bit number"))
        };
        let mut last = first;
        self.indexes.push(index(first)?);
        let low_bits = head.get_rice_parameter()?;
        for _ in 1..columns {
            let gap = head.get_rice(low_bits, "index gap")?;
            last = last.saturating_add_unsigned(gap).saturating_add(1);
            self.indexes.push(index(last)?);
        }
        if self.model.scale_bits > 0 {
            let low_bits = head.get_rice_parameter()?;
            let mut scale = 1i64 << self.model.scale_bits;
            for _ in 0..self.rows {
                scale = scale.wrapping_add(unzigzag(head.get_rice(low_bits, "scale")?));
                if !(1..=32 << self.model.scale_bits).contains(&scale) {
                    return Err(ByteReader::invalid_error(
                        at,
                        "scale",
                        scale,
                        "above 0 and at most 32",
                    ));
                }
                self.model.scales.push(scale as u32);
            }
        }
        let low_bits = head.get_rice_parameter()?;
        let mut level = 0i64;
        for _ in 0..columns {
            level = level.wrapping_add(unzigzag(head.get_rice(low_bits, "level")?));
            if !(0..=(ROOT_MAX >> coarse) as i64).contains(&level) {
                return Err(ByteReader::invalid_error(
                    at,
                    "level",
                    level,
                    "the square root of a rate, at most 2^26",
                ));
            }
            self.model.rates.push(rate_of_level(level as u64, coarse));
        }
        head.finish()
    }

    /// Decodes all stripes. The observations of `observer` are valid only if this succeeds.
    pub(crate) fn table(
        mut self,
        observer: &mut impl StripeObserver,
    ) -> Result<CountTable, DecodeError> {
        let (mut buffer, mut sums) = (CountBuffer::default(), Vec::new());
        self.decode_into(self.rows, &mut buffer, &mut sums, observer)?;
        let cells = match self.wide {
            true => CountCells::Wide(buffer.wide),
            false => CountCells::Narrow(buffer.narrow),
        };
        Ok(CountTable { indexes: self.indexes, rows: self.rows, cells, sums })
    }

    /// Decodes the stripes of at least the first `rows` rows, and the sums of their columns, in
    /// place of what the buffers hold. The observations of `observer` are valid only if this
    /// succeeds.
    pub(crate) fn decode_into(
        &mut self,
        rows: usize,
        buffer: &mut CountBuffer,
        sums: &mut Vec<u64>,
        observer: &mut impl StripeObserver,
    ) -> Result<(), DecodeError> {
        let rows = rows.min(self.rows);
        sums.clear();
        sums.resize(rows.div_ceil(STRIPE_ROWS).wrapping_mul(self.indexes.len()), 0);
        match self.wide {
            true => self.stripes::<u64>(rows, buffer, sums, observer),
            false => self.stripes::<u32>(rows, buffer, sums, observer),
        }
    }

    fn stripes<T: CountWord>(
        &mut self,
        decoded: usize,
        buffer: &mut CountBuffer,
        sums: &mut [u64],
        observer: &mut impl StripeObserver,
    ) -> Result<(), DecodeError> {
        let (height, columns) = (height(self.rows), self.indexes.len());
        if sums.is_empty() {
            return self.check_end();
        }
        let stripe_cells = columns.wrapping_mul(height);
        let all_cells = T::buffer(buffer);
        // A longer buffer keeps its length: new cells are cleared, old ones are overwritten.
        let length = sums.len().wrapping_mul(height);
        if all_cells.is_empty() {
            *all_cells = vec![T::default(); length];
        } else if all_cells.len() < length {
            all_cells.resize(length, T::default());
        }
        let mut high = Vec::with_capacity(columns);
        let mut union = T::default();
        let firsts = (0..decoded).step_by(STRIPE_ROWS);
        let stripes = all_cells.chunks_exact_mut(stripe_cells).zip(sums.chunks_exact_mut(columns));
        for (first, (cells, sums)) in firsts.zip(stripes) {
            let rows = STRIPE_ROWS.min(self.rows.wrapping_sub(first));
            self.model.stripe(first, rows);
            high.clear();
            for (column, out) in cells.chunks_exact_mut(height).enumerate() {
                let counts = match <&mut [T; STRIPE_ROWS]>::try_from(&mut *out) {
                    Ok(out) if rows == STRIPE_ROWS => self.column(column, STRIPE_ROWS, out),
                    _ => self.column(column, rows, out),
                };
                match counts {
                    ColumnCounts::Steps(bits) => high.push((column, bits)),
                    ColumnCounts::Final(sum, all) => {
                        (sums[column], union) = (sum, union.or(all));
                        self.model.learn::<T>(column, sum);
                    }
                }
            }
            self.model.expect_all(&high, first, rows, cells);
            for &(column, _) in &high {
                let (sum, all) = total(&cells[column.wrapping_mul(height)..][..height]);
                (sums[column], union) = (sum, union.or(all));
            }
            observer.observe(&Stripe { first, rows, height, cells });
        }
        if T::BITS < 64 && union.wide() >> T::BITS != 0 {
            return Err(ByteReader::invalid_error(
                self.offset,
                "count",
                union.wide(),
                "less than 2^26",
            ));
        }
        if decoded < self.rows { Ok(()) } else { self.check_end() }
    }

    /// Whether all streams end after the last row.
    fn check_end(&self) -> Result<(), DecodeError> {
        for stream in &self.streams {
            if stream.at_bit > stream.end_bit {
                return Err(DecodeError::Truncated { offset: self.offset, field: "counts" });
            }
            if stream.at_bit.div_ceil(8).wrapping_mul(8) != stream.end_bit {
                return Err(ByteReader::invalid_error(
                    self.offset,
                    "counts",
                    "a remainder",
                    "an end after the last row",
                ));
            }
        }
        Ok(())
    }

    /// Decodes a column of a stripe.
    #[inline(always)]
    fn column<T: CountWord>(
        &mut self,
        column: usize,
        rows: usize,
        out: &mut [T],
    ) -> ColumnCounts<T> {
        let codes = self.codes;
        let streams = &mut self.streams;
        let code = match self.model.kind(self.model.rates[column]) {
            ColumnCoding::Rare => {
                let (sum, all) = streams[0].get_rare(rows, out);
                return ColumnCounts::Final(sum, all);
            }
            ColumnCoding::Low(code) => code,
            ColumnCoding::High(code, bits) => {
                let code = &codes.high[code].lookup;
                // With a constant number of bits, a count takes a fifth fewer instructions.
                match bits {
                    0 => get_high_column::<T, 4>(streams, code, 0, rows, out),
                    1 => get_high_column::<T, 4>(streams, code, 1, rows, out),
                    2 => get_high_column::<T, 4>(streams, code, 2, rows, out),
                    3 => get_high_column::<T, 4>(streams, code, 3, rows, out),
                    4 => get_high_column::<T, 3>(streams, code, 4, rows, out),
                    5 => get_high_column::<T, 3>(streams, code, 5, rows, out),
                    6 => get_high_column::<T, 3>(streams, code, 6, rows, out),
                    7 => get_high_column::<T, 3>(streams, code, 7, rows, out),
                    _ => get_high_column::<T, 2>(streams, code, bits, rows, out),
                }
                return ColumnCounts::Steps(bits);
            }
        };
        let (code, cells) = low_code(codes, code, rows);
        let code = &code.lookup;
        let rest = |stream: &mut PaddedBitReader<'_>, lane: &mut [T]| {
            stream.get_low_scalar(code, cells, lane)
        };
        match cells {
            8 => for_each_lane(
                streams,
                rows,
                out,
                |streams, lanes| get_low_round::<T, 8>(streams, code, lanes),
                rest,
            ),
            4 => for_each_lane(
                streams,
                rows,
                out,
                |streams, lanes| get_low_round::<T, 4>(streams, code, lanes),
                rest,
            ),
            2 => for_each_lane(
                streams,
                rows,
                out,
                |streams, lanes| get_low_round::<T, 2>(streams, code, lanes),
                rest,
            ),
            _ => for_each_lane(
                streams,
                rows,
                out,
                |streams, lanes| get_low_round::<T, 1>(streams, code, lanes),
                rest,
            ),
        }
        let (sum, all) = total(out);
        ColumnCounts::Final(sum, all)
    }
}

/// Decodes eight rows of each stream, in turns of as many code words as one load holds.
#[inline(always)]
fn get_low_round<T: CountWord, const CELLS: usize>(
    streams: &mut [PaddedBitReader<'_>; STREAMS],
    code: &[u16; LOOKUP],
    out: &mut [[T; ROWS_PER_STREAM]; STREAMS],
) {
    let bits = symbol_bits(CELLS);
    let words = ROWS_PER_STREAM.checked_div(CELLS).unwrap_or(ROWS_PER_STREAM).min(4);
    for first in (0..ROWS_PER_STREAM).step_by(words.wrapping_mul(CELLS)) {
        let [a, b, c, d] = &*streams;
        let mut loaded = [a.load(), b.load(), c.load(), d.load()];
        let (mut used, mut marks) = ([0u32; STREAMS], [0; STREAMS]);
        for at in 0..words {
            for stream in 0..STREAMS {
                let entry = code[loaded[stream] as usize % LOOKUP];
                let length = u32::from(entry >> 8);
                loaded[stream] = loaded[stream].wrapping_shr(length);
                used[stream] = used[stream].wrapping_add(length);
                marks[stream] |= entry;
                for cell in 0..CELLS {
                    let count = u64::from(entry >> cell.wrapping_mul(bits))
                        & (1u64 << bits).wrapping_sub(1);
                    out[stream][first.wrapping_add(at.wrapping_mul(CELLS)).wrapping_add(cell)] =
                        T::low(count);
                }
            }
        }
        let escaped = marks.iter().fold(0, |all, mark| all | mark) & ESCAPE != 0;
        if !escaped {
            streams.iter_mut().zip(used).for_each(|(stream, used)| {
                stream.at_bit = stream.at_bit.wrapping_add(used as usize)
            });
            continue;
        }
        for stream in 0..STREAMS {
            if marks[stream] & ESCAPE == 0 {
                streams[stream].at_bit = streams[stream].at_bit.wrapping_add(used[stream] as usize);
            } else {
                streams[stream].get_low_scalar(
                    code,
                    CELLS,
                    &mut out[stream][first..first.wrapping_add(words.wrapping_mul(CELLS))],
                );
            }
        }
    }
}

/// Decodes a column of a high code; a load holds `WORDS` words.
#[inline(always)]
fn get_high_column<T: CountWord, const WORDS: usize>(
    streams: &mut [PaddedBitReader<'_>; STREAMS],
    code: &[u16; LOOKUP],
    bits: u32,
    rows: usize,
    out: &mut [T],
) {
    for_each_lane(
        streams,
        rows,
        out,
        #[inline(always)]
        |streams, lanes| get_high_round::<T, WORDS>(streams, code, bits, lanes),
        |stream, lane| stream.get_high_scalar(code, bits, lane),
    );
}

/// As [`get_low_round`], for a high code.
#[inline(always)]
fn get_high_round<T: CountWord, const WORDS: usize>(
    streams: &mut [PaddedBitReader<'_>; STREAMS],
    code: &[u16; LOOKUP],
    bits: u32,
    out: &mut [[T; ROWS_PER_STREAM]; STREAMS],
) {
    let mask = (1u64 << bits).wrapping_sub(1);
    let mut first = 0;
    while first < ROWS_PER_STREAM {
        let words = WORDS.min(ROWS_PER_STREAM.wrapping_sub(first));
        let [a, b, c, d] = &*streams;
        let mut loaded = [a.load(), b.load(), c.load(), d.load()];
        // Sums of the entries: five-bit symbols in the low byte, lengths, escapes.
        let mut used = [0u32; STREAMS];
        for at in 0..words {
            for stream in 0..STREAMS {
                let entry = code[loaded[stream] as usize % LOOKUP];
                let word = loaded[stream].wrapping_shr(u32::from(entry >> 8));
                out[stream][first.wrapping_add(at)] =
                    T::low(u64::from(entry & 255) << bits | word & mask);
                loaded[stream] = word >> bits;
                used[stream] = used[stream].wrapping_add(u32::from(entry));
            }
        }
        let escaped = used.iter().fold(0, |all, used| all | used) >= ESCAPE.into();
        for (stream, used) in streams.iter_mut().zip(used) {
            if !escaped || used < ESCAPE.into() {
                stream.at_bit = stream.at_bit.wrapping_add(
                    ((used >> 8) as usize).wrapping_add(words.wrapping_mul(bits as usize)),
                );
            }
        }
        if escaped {
            for stream in (0..STREAMS).filter(|&stream| used[stream] >= ESCAPE.into()) {
                streams[stream].get_high_scalar(
                    code,
                    bits,
                    &mut out[stream][first..first.wrapping_add(words)],
                );
            }
        }
        first = first.wrapping_add(words);
    }
}

/// Decodes the rows of a stripe in turns of all streams, then the rest by eights.
#[inline(always)]
fn for_each_lane<'a, T: CountWord>(
    streams: &mut [PaddedBitReader<'a>; STREAMS],
    rows: usize,
    out: &mut [T],
    turn: impl Fn(&mut [PaddedBitReader<'a>; STREAMS], &mut [[T; ROWS_PER_STREAM]; STREAMS]),
    rest: impl Fn(&mut PaddedBitReader<'a>, &mut [T]),
) {
    let (out, after) = out.split_at_mut(rows);
    after.fill(T::default());
    let (turns, rest_of) = out.as_chunks_mut::<{ ROWS_PER_STREAM * STREAMS }>();
    for lanes in turns {
        let (lanes, _) = lanes.as_chunks_mut::<ROWS_PER_STREAM>();
        // A turn has one lane per stream.
        if let Ok(lanes) = lanes.try_into() {
            turn(streams, lanes);
        }
    }
    for (stream, lane) in streams.iter_mut().zip(rest_of.chunks_mut(ROWS_PER_STREAM)) {
        rest(stream, lane);
    }
}
