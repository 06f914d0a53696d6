//! The binary form: blocks in any order, each a flag byte and its content.
//!
//! The low two bits of a flag are its kind, the upper six its subtype ([`FLAGS`]). Blocks of one
//! store are added, as are repeated counts and sums, so encodings with one mapping may be
//! concatenated.
//!
//! Numbers: doubles little-endian; whole numbers LEB128-64b9B, signed ones in zigzag; counts as
//! [`var_bits`]. Stores are written as sketches-java writes a dense store: contiguous counts or
//! index deltas, whichever is shorter.
//!
//! Source: sketches-java `Flag`, `BinEncodingMode`, `IndexMappingLayout`, `VarEncodingHelper`,
//! `DDSketchWithExactSummaryStatistics.encode`; sketches-go `DenseStore.Encode` for the choice of
//! store.

use hist::codec::bytes::{ByteReader, unzigzag, zigzag};
use hist::{Buckets, DecodeError, DoubleDouble, EncodeError, Histogram, Logarithmic};

use crate::leb9::{LEB9_BYTES_MAX, leb9, put_leb9};

use super::{Sketch, SketchStore, grid_of, interpolation_number, interpolation_of};

/// All flags by name; `docs/formats/ddsketch.md` has the same table.
pub const FLAGS: [(&str, u8); 15] = [
    ("zero count", ZERO_COUNT),
    ("count", COUNT),
    ("sum", SUM),
    ("min", MIN),
    ("max", MAX),
    ("mapping, logarithm", flag(MAPPING, 0)),
    ("mapping, linear", flag(MAPPING, 1)),
    ("mapping, quadratic", flag(MAPPING, 2)),
    ("mapping, cubic", flag(MAPPING, 3)),
    ("positive, index deltas and counts", flag(POSITIVE, DELTAS_AND_COUNTS)),
    ("positive, index deltas", flag(POSITIVE, DELTAS)),
    ("positive, contiguous counts", flag(POSITIVE, CONTIGUOUS)),
    ("negative, index deltas and counts", flag(NEGATIVE, DELTAS_AND_COUNTS)),
    ("negative, index deltas", flag(NEGATIVE, DELTAS)),
    ("negative, contiguous counts", flag(NEGATIVE, CONTIGUOUS)),
];

const FEATURE: u8 = 0;
const POSITIVE: u8 = 1;
const MAPPING: u8 = 2;
const NEGATIVE: u8 = 3;

const ZERO_COUNT: u8 = flag(FEATURE, 0x01);
const SUM: u8 = flag(FEATURE, 0x21);
const MIN: u8 = flag(FEATURE, 0x22);
const MAX: u8 = flag(FEATURE, 0x23);
const COUNT: u8 = flag(FEATURE, 0x28);

const DELTAS_AND_COUNTS: u8 = 1;
const DELTAS: u8 = 2;
const CONTIGUOUS: u8 = 3;

/// Rotation of a count's bits: whole numbers up to 2^53 have six leading zeros.
const VAR_DOUBLE_ROTATION: u32 = 6;

const fn flag(kind: u8, sub: u8) -> u8 {
    sub << 2 | kind
}

/// Reads the binary form. Rejects counts that are not whole.
pub fn decode(bytes: &[u8]) -> Result<Histogram, DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let mut sketch = Sketch::default();
    while !reader.is_empty() {
        read_block(&mut reader, &mut sketch)?;
    }
    sketch.finish(bytes.len())
}

/// Writes the binary form, with sum, minimum and maximum if all three are exact: readers of
/// sketches with exact statistics expect all three together.
pub fn encode(histogram: &Histogram) -> Result<Vec<u8>, EncodeError> {
    let grid = grid_of(histogram)?;
    let mut out = Vec::new();
    put_summary(&mut out, histogram);
    put_grid(&mut out, grid);
    if histogram.zero_count() > 0 {
        out.push(ZERO_COUNT);
        put_var_double(&mut out, histogram.zero_count() as f64);
    }
    put_store(&mut out, POSITIVE, histogram.positive());
    put_store(&mut out, NEGATIVE, histogram.negative());
    Ok(out)
}

fn read_block(reader: &mut ByteReader, sketch: &mut Sketch) -> Result<(), DecodeError> {
    let start = reader.offset();
    let found = reader.u8("flag")?;
    match found & 3 {
        MAPPING => read_grid(reader, sketch, found >> 2, start),
        POSITIVE => read_store(reader, sketch, SketchStore::Positive, found >> 2, start),
        NEGATIVE => read_store(reader, sketch, SketchStore::Negative, found >> 2, start),
        _ => read_feature(reader, sketch, found, start),
    }
}

fn read_feature(
    reader: &mut ByteReader,
    sketch: &mut Sketch,
    found: u8,
    start: usize,
) -> Result<(), DecodeError> {
    match found {
        ZERO_COUNT => {
            let count = read_count(reader, "zero count")?;
            sketch.zero = Sketch::check_count(sketch.zero + count, start, "zero count")?;
        }
        COUNT => {
            let count = read_count(reader, "count")?;
            let total = sketch.total.unwrap_or(0.0) + count;
            sketch.total = Some(Sketch::check_count(total, start, "count")?);
        }
        SUM => {
            let sum = DoubleDouble::new(reader.f64_le("sum")?);
            sketch.sum = Some(sketch.sum.unwrap_or_default().plus(sum));
        }
        MIN => {
            let min = reader.f64_le("min")?;
            sketch.min = Some(sketch.min.map_or(min, |before| before.min(min)));
        }
        MAX => {
            let max = reader.f64_le("max")?;
            sketch.max = Some(sketch.max.map_or(max, |before| before.max(max)));
        }
        _ => return Err(unknown_flag(found, start)),
    }
    Ok(())
}

fn unknown_flag(found: u8, start: usize) -> DecodeError {
    ByteReader::invalid_error(start, "flag", format_args!("{found:#04x}"), "a flag of the format")
}

fn read_grid(
    reader: &mut ByteReader,
    sketch: &mut Sketch,
    sub: u8,
    start: usize,
) -> Result<(), DecodeError> {
    let interpolation = interpolation_of(sub.into(), start)?;
    let gamma = reader.f64_le("gamma")?;
    let offset = reader.f64_le("index offset")?;
    sketch.set_grid(Logarithmic::new(gamma, offset, interpolation)?, start)
}

fn read_store(
    reader: &mut ByteReader,
    sketch: &mut Sketch,
    store: SketchStore,
    sub: u8,
    start: usize,
) -> Result<(), DecodeError> {
    if !(DELTAS_AND_COUNTS..=CONTIGUOUS).contains(&sub) {
        let kind = if store == SketchStore::Positive { POSITIVE } else { NEGATIVE };
        return Err(unknown_flag(flag(kind, sub), start));
    }
    // The number is not trusted: every bin takes at least a byte, so the bytes end first.
    let bin_count = read_varint(reader, "bin count")?;
    let (mut index, step) = match sub {
        CONTIGUOUS => (read_zigzag(reader, "bin index")?, read_zigzag(reader, "index step")?),
        _ => (0, 0),
    };
    for at in 0..bin_count {
        let offset = reader.offset();
        let delta = match sub {
            CONTIGUOUS if at == 0 => 0,
            CONTIGUOUS => step,
            _ => read_zigzag(reader, "index delta")?,
        };
        index = index.checked_add(delta).ok_or_else(|| {
            ByteReader::invalid_error(offset, "bin index", "beyond 64 bits", "an index of 32 bits")
        })?;
        let count = if sub == DELTAS { 1.0 } else { read_var_double(reader, "bin count")? };
        sketch.add(store, index, count, offset)?;
    }
    Ok(())
}

fn read_count(reader: &mut ByteReader, field: &'static str) -> Result<f64, DecodeError> {
    let offset = reader.offset();
    let count = read_var_double(reader, field)?;
    Sketch::check_count(count, offset, field)
}

fn read_varint(reader: &mut ByteReader, field: &'static str) -> Result<u64, DecodeError> {
    leb9(|| reader.u8(field))
}

fn read_zigzag(reader: &mut ByteReader, field: &'static str) -> Result<i64, DecodeError> {
    read_varint(reader, field).map(unzigzag)
}

fn read_var_double(reader: &mut ByteReader, field: &'static str) -> Result<f64, DecodeError> {
    let mut bits = 0;
    for shift in (8..=57).rev().step_by(7) {
        let byte = reader.u8(field)?;
        bits |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(from_var_bits(bits));
        }
    }
    Ok(from_var_bits(bits | u64::from(reader.u8(field)?)))
}

fn put_summary(out: &mut Vec<u8>, histogram: &Histogram) {
    let sides = (
        histogram.tracked_sum().exact().map(DoubleDouble::value),
        histogram.tracked_min().exact(),
        histogram.tracked_max().exact(),
    );
    let (Some(sum), Some(min), Some(max)) = sides else { return };
    out.push(COUNT);
    put_var_double(out, histogram.count() as f64);
    put_double(out, MIN, min);
    put_double(out, MAX, max);
    if sum != 0.0 {
        put_double(out, SUM, sum);
    }
}

fn put_double(out: &mut Vec<u8>, flag: u8, value: f64) {
    out.push(flag);
    out.extend(value.to_le_bytes());
}

fn put_grid(out: &mut Vec<u8>, grid: Logarithmic) {
    put_double(out, flag(MAPPING, interpolation_number(grid.interpolation())), grid.gamma());
    out.extend(grid.offset().to_le_bytes());
}

fn put_store(out: &mut Vec<u8>, kind: u8, buckets: &Buckets) {
    let (Some(&first), Some(&last)) = (buckets.indexes().first(), buckets.indexes().last()) else {
        return;
    };
    let span = ((i64::from(last).wrapping_sub(i64::from(first))) as u64).wrapping_add(1);
    let counts_len: u64 = buckets.counts().iter().map(|&count| var_double_len(count as f64)).sum();
    let gaps =
        buckets.indexes().windows(2).map(|two| i64::from(two[1]).wrapping_sub(i64::from(two[0])));
    // The libraries count one byte for the first index here, whatever its size.
    let deltas_len = varint_len(buckets.len() as u64)
        .wrapping_add(1)
        .wrapping_add(gaps.map(zigzag_len).sum::<u64>())
        .wrapping_add(counts_len);
    // An empty bin takes one byte.
    let empty_len = span.wrapping_sub(buckets.len() as u64);
    let contiguous_len = varint_len(span)
        .wrapping_add(zigzag_len(first.into()))
        .wrapping_add(zigzag_len(1))
        .wrapping_add(empty_len)
        .wrapping_add(counts_len);
    if contiguous_len <= deltas_len {
        put_contiguous(out, kind, buckets, span);
    } else {
        put_deltas(out, kind, buckets);
    }
}

fn put_contiguous(out: &mut Vec<u8>, kind: u8, buckets: &Buckets, span: u64) {
    let mut next = buckets.indexes()[0];
    out.push(flag(kind, CONTIGUOUS));
    put_leb9(out, span);
    put_zigzag(out, next.into());
    put_zigzag(out, 1);
    for (index, count) in buckets.iter() {
        out.resize(out.len().wrapping_add(index.wrapping_sub(next) as usize), 0);
        put_var_double(out, count as f64);
        next = index.saturating_add(1);
    }
}

fn put_deltas(out: &mut Vec<u8>, kind: u8, buckets: &Buckets) {
    out.push(flag(kind, DELTAS_AND_COUNTS));
    put_leb9(out, buckets.len() as u64);
    let mut previous = 0;
    for (index, count) in buckets.iter() {
        put_zigzag(out, i64::from(index).wrapping_sub(previous));
        put_var_double(out, count as f64);
        previous = index.into();
    }
}

fn varint_len(value: u64) -> u64 {
    u64::from(
        u64::BITS.wrapping_sub((value | 1).leading_zeros()).div_ceil(7).min(LEB9_BYTES_MAX as u32),
    )
}

fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_leb9(out, zigzag(value));
}

fn zigzag_len(value: i64) -> u64 {
    varint_len(zigzag(value))
}

/// Appends a count: seven bits at a time from the top until only zeros remain.
fn put_var_double(out: &mut Vec<u8>, value: f64) {
    let mut bits = var_bits(value);
    for _ in 0..8 {
        let next = (bits >> 57) as u8;
        bits <<= 7;
        if bits == 0 {
            out.push(next);
            return;
        }
        out.push(next | 0x80);
    }
    out.push((bits >> 56) as u8);
}

fn var_double_len(value: f64) -> u64 {
    let used = u64::BITS.wrapping_sub(var_bits(value).trailing_zeros());
    u64::from(used.div_ceil(7).clamp(1, 9))
}

/// The bits of `value + 1` minus those of 1, rotated so that a small whole number has its zeros at
/// the end.
fn var_bits(value: f64) -> u64 {
    (value + 1.0).to_bits().wrapping_sub(1f64.to_bits()).rotate_left(VAR_DOUBLE_ROTATION)
}

fn from_var_bits(bits: u64) -> f64 {
    f64::from_bits(bits.rotate_right(VAR_DOUBLE_ROTATION).wrapping_add(1f64.to_bits())) - 1.0
}
