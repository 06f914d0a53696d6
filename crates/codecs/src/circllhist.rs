//! circllhist (OpenHistogram, Circonus): binary, base64 and text.
//!
//! ```text
//! offset  size  field
//!      0     2  bin_count  number of bins that follow, big-endian
//! and for each bin
//!      0     1  val        first two digits of the values, signed: ±10..=±99; 0 zero;
//!                          -1 not a number
//!      1     1  exp        power of ten of the first digit, signed
//!      2     1  len        bytes of the count minus one, 0..=7
//!      3 len+1  count      number of values, little-endian
//! ```
//!
//! The base64 form is the binary form in the standard alphabet, padded. The text form has one entry
//! per bin: `H[1.2e-01]=2`.
//!
//! Bins are written like in libcircllhist: not-a-number first, then ascending. They are read in any
//! order, and repeated bins are added. All 64 bits of a count are written: libcircllhist 3f40320
//! itself writes counts of 2^32..2^36 in four bytes and of 2^48..2^52 in six. The format has only
//! counts: sum, minimum, maximum and declared thresholds are not written and are absent after
//! decoding.
//!
//! Sources: libcircllhist `src/circllhist.c` (`bv_read`, `bv_write`, `hist_bucket_cmp`,
//! `double_to_hist_bucket`), circonusllhist `DecStrings` for the text, the base64 of both.

use hist::codec::bytes::ByteReader;
use hist::{
    BucketPosition, DecodeError, EncodeError, Histogram, HistogramParts, PartsError, Scheme,
};

use crate::base64;

const FORMAT: &str = "circllhist";

/// Limits of the format by name; `docs/formats/circllhist.md` has the same table.
pub const LIMITS: [(&str, i64); 7] = [
    ("val_min", DIGITS_MIN as i64),
    ("val_max", DIGITS_MAX as i64),
    ("val_zero", 0),
    ("val_nan", VAL_NAN as i64),
    ("exp_min", i8::MIN as i64),
    ("exp_max", i8::MAX as i64),
    ("len_max", LEN_MAX as i64),
];

const DIGITS_MIN: i8 = 10;
const DIGITS_MAX: i8 = 99;
const VAL_NAN: i8 = -1;
const LEN_MAX: u8 = 7;

/// Reads the binary form.
pub fn decode(bytes: &[u8]) -> Result<Histogram, DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let bin_count = reader.u16_be("bin_count")?;
    let mut bins = CircllBins::default();
    for _ in 0..bin_count {
        let (bin, count) = read_bin(&mut reader)?;
        bins.add(bin, count)?;
    }
    reader.finish()?;
    bins.into_histogram()
}

/// Writes the binary form. Rejects values at and beyond ±1e128, for which the format has no bin;
/// [`encode_overflow_as_nan`] handles them like libcircllhist.
pub fn encode(histogram: &Histogram) -> Result<Vec<u8>, EncodeError> {
    check_no_overflow(histogram)?;
    Ok(write_bins(&bins_in_order(histogram)?))
}

/// Writes the binary form with the values at and beyond ±1e128, infinities included, in the
/// not-a-number bin, where libcircllhist counts them. Also returns their number.
pub fn encode_overflow_as_nan(histogram: &Histogram) -> Result<(Vec<u8>, u64), EncodeError> {
    let bytes = write_bins(&bins_in_order(histogram)?);
    Ok((bytes, histogram.overflow().wrapping_add(histogram.underflow())))
}

/// Reads base64 of the binary form, padded or not: libcircllhist and circonusllhist pad,
/// openhistogram-rs does not. Offsets in errors of the binary form refer to the decoded bytes.
pub fn decode_base64(text: &str) -> Result<Histogram, DecodeError> {
    decode(&base64::decode(text.as_bytes())?)
}

/// Writes padded base64 of [`encode`].
pub fn encode_base64(histogram: &Histogram) -> Result<String, EncodeError> {
    Ok(base64::encode(&encode(histogram)?))
}

/// Reads entries `H[value]=count` separated by commas or white space. Any decimal number selects
/// its bin: `H[0.1]=3`, `H[11]=7`, `H[-1.2e-01]=2`; `H[NaN]=1` is not a number.
pub fn decode_text(text: &str) -> Result<Histogram, DecodeError> {
    let mut bins = CircllBins::default();
    let mut offset = 0;
    for entry in text.split(is_separator) {
        if !entry.is_empty() {
            let (bin, count) = read_entry(entry, offset)?;
            bins.add(bin, count)?;
        }
        offset = offset.wrapping_add(entry.len().wrapping_add(1));
    }
    bins.into_histogram()
}

/// Writes one entry `H[1.2e-01]=2` per bin. Rejects what [`encode`] rejects.
pub fn encode_text(histogram: &Histogram) -> Result<Vec<String>, EncodeError> {
    check_no_overflow(histogram)?;
    let entry = |(bin, count): (CircllBin, u64)| format!("H[{bin}]={count}");
    Ok(bins_in_order(histogram)?.into_iter().map(entry).collect())
}

/// Bin class of a circllhist entry.
#[derive(Clone, Copy, Debug)]
enum CircllBin {
    Nan,
    Zero,
    Positive(i32),
    Negative(i32),
}

/// Bins read so far.
#[derive(Default)]
struct CircllBins {
    nan: u64,
    zero: u64,
    positive: Vec<(i32, u64)>,
    negative: Vec<(i32, u64)>,
}

impl CircllBins {
    fn add(&mut self, bin: CircllBin, count: u64) -> Result<(), PartsError> {
        match bin {
            CircllBin::Nan => self.nan = add_checked(self.nan, count)?,
            CircllBin::Zero => self.zero = add_checked(self.zero, count)?,
            CircllBin::Positive(index) => self.positive.push((index, count)),
            CircllBin::Negative(index) => self.negative.push((index, count)),
        }
        Ok(())
    }

    fn into_histogram(self) -> Result<Histogram, DecodeError> {
        Ok(Histogram::from_parts(HistogramParts {
            positive: sort_and_merge(self.positive)?,
            negative: sort_and_merge(self.negative)?,
            zero: self.zero,
            nan: self.nan,
            ..HistogramParts::new(Scheme::LogLinear10)
        })?)
    }
}

/// Sorted by index, one entry per index.
fn sort_and_merge(mut bins: Vec<(i32, u64)>) -> Result<Vec<(i32, u64)>, PartsError> {
    bins.sort_unstable_by_key(|&(index, _)| index);
    let mut merged: Vec<(i32, u64)> = Vec::with_capacity(bins.len());
    for (index, count) in bins {
        match merged.last_mut() {
            Some((last, total)) if *last == index => *total = add_checked(*total, count)?,
            _ => merged.push((index, count)),
        }
    }
    Ok(merged)
}

fn add_checked(total: u64, count: u64) -> Result<u64, PartsError> {
    total.checked_add(count).ok_or(PartsError::CountOverflow)
}

fn read_bin(reader: &mut ByteReader) -> Result<(CircllBin, u64), DecodeError> {
    let start = reader.offset();
    let val = reader.u8("val")? as i8;
    let exp = reader.u8("exp")? as i8;
    let bin = bin_from_val_exp(val, exp).ok_or_else(|| {
        let found = format_args!("{val} with exponent {exp}");
        ByteReader::invalid_error(start, "val", found, "±10..=±99, 0, or -1 with exponent 0")
    })?;
    let start = reader.offset();
    let len = reader.u8("len")?;
    if len > LEN_MAX {
        return Err(ByteReader::invalid_error(start, "len", len, "0..=7"));
    }
    let mut count = [0; 8];
    let bytes = reader.read_bytes(usize::from(len) + 1, "count")?;
    count[..bytes.len()].copy_from_slice(bytes);
    Ok((bin, u64::from_le_bytes(count)))
}

fn bin_from_val_exp(val: i8, exp: i8) -> Option<CircllBin> {
    match (val, exp) {
        (VAL_NAN, 0) => Some(CircllBin::Nan),
        // libcircllhist accepts zero with any exponent as a valid bin of zeros.
        (0, _) => Some(CircllBin::Zero),
        (DIGITS_MIN..=DIGITS_MAX, _) => {
            Some(CircllBin::Positive(Scheme::index_of_digits(val.into(), exp.into())))
        }
        (-99..=-10, _) => Some(CircllBin::Negative(Scheme::index_of_digits(
            i32::from(val).wrapping_neg(),
            exp.into(),
        ))),
        _ => None,
    }
}

/// All bins with values, in the order of libcircllhist, which treats values outside the grid as not
/// a number.
fn bins_in_order(histogram: &Histogram) -> Result<Vec<(CircllBin, u64)>, EncodeError> {
    if *histogram.scheme() != Scheme::LogLinear10 {
        return Err(EncodeError::scheme(FORMAT, histogram.scheme()));
    }
    if histogram.zero_threshold() > 0.0 {
        let what = format!("a zero threshold of {:e}", histogram.zero_threshold());
        return Err(EncodeError::Unrepresentable { format: FORMAT, detail: what });
    }
    let nan = histogram
        .nan_count()
        .wrapping_add(histogram.overflow())
        .wrapping_add(histogram.underflow());
    let negative =
        histogram.negative().iter().rev().map(|(i, count)| (CircllBin::Negative(i), count));
    let positive = histogram.positive().iter().map(|(i, count)| (CircllBin::Positive(i), count));
    Ok([(CircllBin::Nan, nan)]
        .into_iter()
        .chain(negative)
        .chain([(CircllBin::Zero, histogram.zero_count())])
        .chain(positive)
        .filter(|&(_, count)| count > 0)
        .collect())
}

fn check_no_overflow(histogram: &Histogram) -> Result<(), EncodeError> {
    match histogram.overflow().wrapping_add(histogram.underflow()) {
        0 => Ok(()),
        n => Err(EncodeError::Unrepresentable {
            format: FORMAT,
            detail: format!(
                "{n} values at or beyond ±1e128: encode_overflow_as_nan counts them as NaN"
            ),
        }),
    }
}

#[expect(clippy::expect_used, reason = "the grid has fewer than 2^16 bins")]
fn write_bins(bins: &[(CircllBin, u64)]) -> Vec<u8> {
    // There are 2 + 2 * 90 * 256 = 46,082 bins in total.
    let bin_count = u16::try_from(bins.len()).expect("BUG: more bins than the grid has");
    let mut out = bin_count.to_be_bytes().to_vec();
    for &(bin, count) in bins {
        let (val, exp) = bin.val_and_exp();
        let len = 7u32.wrapping_sub(count.leading_zeros() / 8) as u8;
        out.extend([val as u8, exp as u8, len]);
        out.extend(&count.to_le_bytes()[..=usize::from(len)]);
    }
    out
}

impl CircllBin {
    fn val_and_exp(self) -> (i8, i8) {
        let digits = |index| {
            let (digits, exponent) = Scheme::digits_and_exponent(index);
            (digits as i8, exponent as i8)
        };
        match self {
            CircllBin::Nan => (VAL_NAN, 0),
            CircllBin::Zero => (0, 0),
            CircllBin::Positive(index) => digits(index),
            CircllBin::Negative(index) => {
                let (val, exp) = digits(index);
                (val.wrapping_neg(), exp)
            }
        }
    }
}

/// The value that identifies the bin in text: its edge nearer to zero, as printed by C's `%.1e`.
impl std::fmt::Display for CircllBin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let CircllBin::Nan = self {
            return write!(f, "NaN");
        }
        let (val, exp) = self.val_and_exp();
        let (minus, digits) = (if val < 0 { "-" } else { "" }, val.unsigned_abs());
        let (sign, exponent) = (if exp < 0 { '-' } else { '+' }, exp.unsigned_abs());
        write!(f, "{minus}{}.{}e{sign}{exponent:02}", digits / 10, digits % 10)
    }
}

fn is_separator(c: char) -> bool {
    c == ',' || c.is_ascii_whitespace()
}

fn read_entry(entry: &str, offset: usize) -> Result<(CircllBin, u64), DecodeError> {
    let bad =
        |field, found, expected| Err(ByteReader::invalid_error(offset, field, found, expected));
    let Some((value, count)) = entry.strip_prefix("H[").and_then(|rest| rest.split_once("]="))
    else {
        return bad("entry", entry, "H[value]=count");
    };
    let Some(bin) = bin_from_number(value) else {
        return bad("value", value, "a decimal number within ±1e128, or NaN");
    };
    match count.parse() {
        Ok(count) => Ok((bin, count)),
        Err(_) => bad("count", count, "a whole number below 2^64"),
    }
}

fn bin_from_number(text: &str) -> Option<CircllBin> {
    match Scheme::LogLinear10.position(text.parse().ok()?, 0.0) {
        BucketPosition::Nan => Some(CircllBin::Nan),
        BucketPosition::Zero => Some(CircllBin::Zero),
        BucketPosition::Positive(index) => Some(CircllBin::Positive(index)),
        BucketPosition::Negative(index) => Some(CircllBin::Negative(index)),
        // No writer prints these values: it prints NaN for values outside the grid.
        BucketPosition::Overflow | BucketPosition::Underflow => None,
    }
}
