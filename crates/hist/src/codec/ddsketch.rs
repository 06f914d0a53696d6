//! DDSketch: the binary form of DataDog's Java and Go libraries, and their protobuf form.
//!
//! Both say how values map to bins ([`crate::Log`]) and hold counts of positive, negative and zero values.
//! Counts are doubles there; whole ones up to [`COUNT_MAX`] come in as they are, others are refused unless
//! rounding is asked for by name. The count of zeros takes in small values as far as its writer chose, which
//! no form says: it is read as zeros, and a histogram with a zero threshold is not written.
//!
//! The binary form carries exact count, sum, minimum and maximum when its writer kept them; the sum is
//! rounded to a double. The protobuf form has no place for them and leaves them out.
//!
//! Sources: sketches-java `ddsketch.encoding` and `DDSketch.proto`, sketches-go 1.4.8 `ddsketch/encoding`.

mod binary;
mod protobuf;

pub use binary::{FLAGS, decode, decode_rounded, encode};
pub use protobuf::{decode_protobuf, decode_protobuf_rounded, encode_protobuf};

use crate::codec::bytes::Reader;
use crate::error::{DecodeError, EncodeError};
use crate::histogram::{Histogram, Parts};
use crate::scheme::{Interpolation, Log, Scheme};
use crate::side::{Side, Sum};

const FORMAT: &str = "ddsketch";

/// The largest count that travels: doubles beyond 2^53 − 1 skip whole numbers, and the binary form adds 1
/// to a count before it is written.
pub const COUNT_MAX: u64 = (1 << 53) - 1;

/// What rounding the counts of a sketch to whole numbers changed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rounding {
    /// Counts that were not there: the sum of all that was rounded up.
    pub added: f64,
    /// Counts that are missing: the sum of all that was rounded down.
    pub lost: f64,
}

/// What to do with a count that is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    Whole,
    Rounded,
}

/// One bin as it was read; the same index may come more than once.
#[derive(Clone, Copy, Debug)]
struct Bin {
    index: i32,
    count: f64,
    offset: usize,
}

/// A sketch as it is read, block by block.
#[derive(Debug)]
struct Sketch {
    counts: Counts,
    grid: Option<Log>,
    positive: Vec<Bin>,
    negative: Vec<Bin>,
    zero: f64,
    total: Option<f64>,
    sum: Option<Sum>,
    min: Option<f64>,
    max: Option<f64>,
}

impl Sketch {
    fn new(counts: Counts) -> Sketch {
        Sketch {
            counts,
            grid: None,
            positive: Vec::new(),
            negative: Vec::new(),
            zero: 0.0,
            total: None,
            sum: None,
            min: None,
            max: None,
        }
    }

    /// A count read at `offset`, if it is one that may be held.
    fn checked(&self, count: f64, offset: usize, field: &'static str) -> Result<f64, DecodeError> {
        if !(count >= 0.0 && count.is_finite()) {
            return Err(Reader::invalid(offset, field, count, "a number at or above zero"));
        }
        if count > COUNT_MAX as f64 {
            let (found, limit) = (count as u64, COUNT_MAX);
            return Err(DecodeError::Limit { offset, field, found, limit });
        }
        if self.counts == Counts::Whole && count.fract() != 0.0 {
            return Err(Reader::invalid(offset, field, count, "a whole number, unless rounded"));
        }
        Ok(count)
    }

    fn set_grid(&mut self, grid: Log, offset: usize) -> Result<(), DecodeError> {
        if self.grid.is_some_and(|before| before != grid) {
            let found = format_args!("{}", Scheme::Log(grid));
            return Err(Reader::invalid(offset, "index mapping", found, "the mapping before it"));
        }
        self.grid = Some(grid);
        Ok(())
    }

    /// The whole sketch, of which `end` bytes were read.
    fn finish(mut self, end: usize) -> Result<(Histogram, Rounding), DecodeError> {
        let grid = self.grid.ok_or_else(|| {
            Reader::invalid(end, "index mapping", "absent", "gamma and index offset")
        })?;
        let mut rounding = Rounding::default();
        let positive = self.whole_bins(Store::Positive, &mut rounding)?;
        let negative = self.whole_bins(Store::Negative, &mut rounding)?;
        let zero = rounded(self.checked(self.zero, end, "zero count")?, &mut rounding);
        let (sum, min, max) = self.sides();
        let exact = rounding == Rounding::default();
        let mut parts = Parts { positive, negative, zero, ..Parts::new(Scheme::Log(grid)) };
        if exact {
            self.check_total(&parts, end)?;
            (parts.sum, parts.min, parts.max) = (sum, min, max);
        } else {
            // They were exact for the counts before rounding.
            (parts.sum, parts.min, parts.max) = (sum.doubted(), min.doubted(), max.doubted());
        }
        Ok((Histogram::from_parts(parts)?, rounding))
    }

    /// Side values as the binary form gives them: a sum of zero is left out beside a count.
    fn sides(&self) -> (Side<Sum>, Side<f64>, Side<f64>) {
        let exact = |value: Option<f64>| value.map_or(Side::Absent, Side::Exact);
        let sum = self.sum.or(self.total.map(|_| Sum::default()));
        let sum = sum.map_or(Side::Absent, Side::Exact);
        (sum, exact(self.min), exact(self.max))
    }

    fn check_total(&self, parts: &Parts, end: usize) -> Result<(), DecodeError> {
        let counts = parts.positive.iter().chain(&parts.negative).map(|&(_, count)| count);
        // Below 2^32 bins of at most 2^53: no overflow in 128 bits.
        let held = counts.chain([parts.zero]).map(u128::from).sum::<u128>();
        match self.total {
            Some(total) if total != held as f64 => {
                let found = format_args!("{total} while the bins hold {held}");
                Err(Reader::invalid(end, "count", found, "the sum of all bins"))
            }
            _ => Ok(()),
        }
    }

    /// Ascending bins with one whole count each.
    fn whole_bins(
        &mut self,
        store: Store,
        rounding: &mut Rounding,
    ) -> Result<Vec<(i32, u64)>, DecodeError> {
        let mut bins = std::mem::take(self.store(store));
        bins.sort_by_key(|bin| bin.index);
        let mut whole = Vec::with_capacity(bins.len());
        for same in bins.chunk_by(|a, b| a.index == b.index) {
            // Whole doubles add up exactly as far as the check lets them.
            let mut total = 0.0;
            for bin in same {
                total = self.checked(total + bin.count, bin.offset, "bin count")?;
            }
            whole.push((same[0].index, rounded(total, rounding)));
        }
        Ok(whole)
    }

    fn store(&mut self, store: Store) -> &mut Vec<Bin> {
        match store {
            Store::Positive => &mut self.positive,
            Store::Negative => &mut self.negative,
        }
    }

    /// Notes a bin. Empty ones are passed over.
    fn add(
        &mut self,
        store: Store,
        index: i64,
        count: f64,
        offset: usize,
    ) -> Result<(), DecodeError> {
        let count = self.checked(count, offset, "bin count")?;
        let index = i32::try_from(index)
            .map_err(|_| Reader::invalid(offset, "bin index", index, "an index of 32 bits"))?;
        if count > 0.0 {
            self.store(store).push(Bin { index, count, offset });
        }
        Ok(())
    }
}

/// Which values a bin counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    Positive,
    Negative,
}

/// The nearest whole number, half upwards; what that changes is noted.
fn rounded(count: f64, rounding: &mut Rounding) -> u64 {
    let whole = count.round();
    rounding.added += (whole - count).max(0.0);
    rounding.lost += (count - whole).max(0.0);
    whole as u64
}

/// The mapping of a histogram that a sketch can hold.
fn grid_of(histogram: &Histogram) -> Result<Log, EncodeError> {
    let no_place = |what: String| Err(EncodeError::NoPlace { format: FORMAT, what });
    let Scheme::Log(grid) = histogram.scheme() else {
        return Err(EncodeError::scheme(FORMAT, histogram.scheme()));
    };
    if histogram.nan_count() > 0 {
        return no_place(format!("{} values that are not numbers", histogram.nan_count()));
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

/// The number of a mapping's stand-in for the logarithm, the same in both forms.
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
        4 => Err(Reader::invalid(offset, "interpolation", "4 quartic", known)),
        _ => Err(Reader::invalid(offset, "interpolation", number, known)),
    }
}
