//! DDSketch: the binary form of DataDog's Java and Go libraries, and their protobuf form.
//!
//! Both contain the mapping from values to bins ([`Logarithmic`]) and the counts of positive,
//! negative and zero values. Counts are doubles. Whole counts up to [`COUNT_MAX`] are read
//! unchanged; other counts are rejected. The zero count
//! includes small values up to a threshold that neither form contains: they are read as zeros, and
//! a histogram with a zero threshold cannot be written.
//!
//! The binary form contains exact count, sum, minimum and maximum if its writer tracked them; the
//! sum is rounded to a double. The protobuf form has no fields for them and omits them.
//!
//! Sources: sketches-java `ddsketch.encoding` and `DDSketch.proto`, sketches-go 1.4.8
//! `ddsketch/encoding`.

mod binary;
mod protobuf;

use hist::codec::bytes::ByteReader;
use hist::{
    DecodeError, DoubleDouble, EncodeError, Histogram, HistogramParts, Interpolation, Logarithmic,
    Scheme, TrackedValue,
};

pub use binary::{FLAGS, decode, encode};
pub use protobuf::{decode_protobuf, encode_protobuf};

use crate::base64;

const FORMAT: &str = "ddsketch";

/// Reads either form. Rejects counts that are not whole.
pub fn decode_any(bytes: &[u8]) -> Result<Histogram, DecodeError> {
    // A protobuf message starts with the mapping, as its writers do, or with a field that is not a
    // valid flag. The other form is tried too, because a mapping of the binary form has the same
    // first byte.
    let (likely, other): (Decode, Decode) = match bytes {
        [0x0a | 0x1a | 0x21, ..] => (decode_protobuf, decode),
        _ => (decode, decode_protobuf),
    };
    likely(bytes).or_else(|error| other(bytes).map_err(|_| error))
}

type Decode = fn(&[u8]) -> Result<Histogram, DecodeError>;

/// Reads either form in base64, padded or not. Offsets in errors of the sketch refer to the decoded
/// bytes.
pub fn decode_base64(text: &[u8]) -> Result<Histogram, DecodeError> {
    decode_any(&base64::decode(text)?)
}

/// Largest count that can be encoded: doubles skip whole numbers beyond 2^53 − 1, and the binary
/// form adds 1 to a count before it is written.
pub const COUNT_MAX: u64 = (1 << 53) - 1;

/// Bin of a sketch; indexes may repeat.
#[derive(Clone, Copy, Debug)]
struct SketchBin {
    index: i32,
    count: f64,
    offset: usize,
}

/// Sketch being decoded.
#[derive(Debug, Default)]
struct Sketch {
    grid: Option<Logarithmic>,
    positive: Vec<SketchBin>,
    negative: Vec<SketchBin>,
    zero: f64,
    total: Option<f64>,
    sum: Option<DoubleDouble>,
    min: Option<f64>,
    max: Option<f64>,
}

impl Sketch {
    /// A count read at `offset`, if it is valid.
    fn check_count(count: f64, offset: usize, field: &'static str) -> Result<f64, DecodeError> {
        if !(count >= 0.0 && count.is_finite()) {
            return Err(ByteReader::invalid_error(
                offset,
                field,
                count,
                "a number at or above zero",
            ));
        }
        if count > COUNT_MAX as f64 {
            let (found, limit) = (count as u64, COUNT_MAX);
            return Err(DecodeError::Limit { offset, field, found, limit });
        }
        if count.fract() != 0.0 {
            return Err(ByteReader::invalid_error(offset, field, count, "a whole number"));
        }
        Ok(count)
    }

    fn set_grid(&mut self, grid: Logarithmic, offset: usize) -> Result<(), DecodeError> {
        if self.grid.is_some_and(|before| before != grid) {
            let found = format_args!("{}", Scheme::Logarithmic(grid));
            return Err(ByteReader::invalid_error(
                offset,
                "index mapping",
                found,
                "the mapping before it",
            ));
        }
        self.grid = Some(grid);
        Ok(())
    }

    /// The complete sketch, of which `end` bytes were read.
    fn finish(mut self, end: usize) -> Result<Histogram, DecodeError> {
        let grid = self.grid.ok_or_else(|| {
            ByteReader::invalid_error(end, "index mapping", "absent", "gamma and index offset")
        })?;
        let (sum, min, max) = self.summary_values();
        let parts = HistogramParts {
            positive: self.integer_bins(SketchStore::Positive)?,
            negative: self.integer_bins(SketchStore::Negative)?,
            zero: Sketch::check_count(self.zero, end, "zero count")? as u64,
            sum,
            min,
            max,
            ..HistogramParts::new(Scheme::Logarithmic(grid))
        };
        self.check_total(&parts, end)?;
        Ok(Histogram::from_parts(parts)?)
    }

    /// Summary statistics as in the binary form, which omits a sum of zero beside a count.
    fn summary_values(&self) -> (TrackedValue<DoubleDouble>, TrackedValue<f64>, TrackedValue<f64>) {
        let exact = |value: Option<f64>| value.map_or(TrackedValue::Absent, TrackedValue::Exact);
        let sum = self.sum.or(self.total.map(|_| DoubleDouble::default()));
        let sum = sum.map_or(TrackedValue::Absent, TrackedValue::Exact);
        (sum, exact(self.min), exact(self.max))
    }

    fn check_total(&self, parts: &HistogramParts, end: usize) -> Result<(), DecodeError> {
        let counts = parts.positive.iter().chain(&parts.negative).map(|&(_, count)| count);
        // Below 2^32 bins of at most 2^53: no overflow in 128 bits.
        let bucket_total = counts.chain([parts.zero]).map(u128::from).sum::<u128>();
        match self.total {
            Some(total) if total != bucket_total as f64 => {
                let found = format_args!("{total} while the bins hold {bucket_total}");
                Err(ByteReader::invalid_error(end, "count", found, "the sum of all bins"))
            }
            _ => Ok(()),
        }
    }

    /// Ascending bins with one whole count per index.
    fn integer_bins(&mut self, store: SketchStore) -> Result<Vec<(i32, u64)>, DecodeError> {
        let mut bins = std::mem::take(self.store(store));
        bins.sort_by_key(|bin| bin.index);
        let mut integers = Vec::with_capacity(bins.len());
        for same in bins.chunk_by(|a, b| a.index == b.index) {
            // The sum of whole doubles is exact up to the checked limit.
            let mut total = 0.0;
            for bin in same {
                total = Sketch::check_count(total + bin.count, bin.offset, "bin count")?;
            }
            integers.push((same[0].index, total as u64));
        }
        Ok(integers)
    }

    fn store(&mut self, store: SketchStore) -> &mut Vec<SketchBin> {
        match store {
            SketchStore::Positive => &mut self.positive,
            SketchStore::Negative => &mut self.negative,
        }
    }

    /// Adds a bin. Empty bins are ignored.
    fn add(
        &mut self,
        store: SketchStore,
        index: i64,
        count: f64,
        offset: usize,
    ) -> Result<(), DecodeError> {
        let count = Sketch::check_count(count, offset, "bin count")?;
        let index = i32::try_from(index).map_err(|_| {
            ByteReader::invalid_error(offset, "bin index", index, "an index of 32 bits")
        })?;
        if count > 0.0 {
            self.store(store).push(SketchBin { index, count, offset });
        }
        Ok(())
    }
}

/// Store of a sketch: positive or negative values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SketchStore {
    Positive,
    Negative,
}

/// The mapping of a histogram that a sketch can hold.
fn grid_of(histogram: &Histogram) -> Result<Logarithmic, EncodeError> {
    let no_place =
        |what: String| Err(EncodeError::Unrepresentable { format: FORMAT, detail: what });
    let Scheme::Logarithmic(grid) = histogram.scheme() else {
        return Err(EncodeError::scheme(FORMAT, histogram.scheme()));
    };
    if histogram.nan_count() > 0 {
        return no_place(format!("{} NaN values", histogram.nan_count()));
    }
    match histogram.overflow().saturating_add(histogram.underflow()) {
        0 => {}
        n => return no_place(format!("{n} infinite values")),
    }
    if histogram.zero_threshold() > 0.0 {
        return no_place(format!("a zero threshold of {:e}", histogram.zero_threshold()));
    }
    if histogram.count() > COUNT_MAX {
        return no_place(format!("{} values: counts end at 2^53 - 1", histogram.count()));
    }
    Ok(*grid)
}

/// Number of the approximation of the logarithm, the same in both forms.
fn interpolation_number(interpolation: Interpolation) -> u8 {
    match interpolation {
        Interpolation::None => 0,
        Interpolation::Linear => 1,
        Interpolation::Quadratic => 2,
        Interpolation::Cubic => 3,
    }
}

fn interpolation_of(number: i64, offset: usize) -> Result<Interpolation, DecodeError> {
    let known = "0 none, 1 linear, 2 quadratic or 3 cubic";
    match number {
        0 => Ok(Interpolation::None),
        1 => Ok(Interpolation::Linear),
        2 => Ok(Interpolation::Quadratic),
        3 => Ok(Interpolation::Cubic),
        4 => Err(ByteReader::invalid_error(offset, "interpolation", "4 quartic", known)),
        _ => Err(ByteReader::invalid_error(offset, "interpolation", number, known)),
    }
}
