//! Bounds of the minimum, maximum and sum of each row of a block, predicted from its buckets.
//!
//! Predictions are computed in doubles by additions, multiplications and divisions, rounded once
//! each, so every machine decodes the same.

use crate::codec::matrix::{CountWord, STRIPE_ROWS, Stripe};
use crate::error::DecodeError;
use crate::histogram::PartsError;
use crate::scheme::Scheme;

/// Maximum number of decimals.
pub(super) const EXPONENT_MAX: u32 = 15;
/// Whole numbers below this are exact as doubles.
pub(super) const INTEGER_MAX: f64 = (1u64 << 53) as f64;
/// Powers of ten that are exact as doubles.
pub(super) const POWERS: [f64; EXPONENT_MAX as usize + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Grid of decimal numbers: multiples of 10^-exponent.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecimalGrid {
    pub(super) first: i64,
    last: i64,
}

impl DecimalGrid {
    /// The empty grid.
    const NONE: DecimalGrid = DecimalGrid { first: 0, last: -1 };

    fn between((lower, upper): (f64, f64), power: f64) -> DecimalGrid {
        let (first, last) = ((lower * power).ceil(), (upper * power).floor());
        if first <= last && first.abs() < INTEGER_MAX && last.abs() < INTEGER_MAX {
            DecimalGrid { first: first as i64, last: last as i64 }
        } else {
            DecimalGrid::NONE
        }
    }

    pub(super) fn bits(self) -> u32 {
        u64::BITS.wrapping_sub((self.last.wrapping_sub(self.first) as u64).leading_zeros())
    }

    /// Index of a value on the grid, if the value is on it.
    pub(super) fn index_of(self, value: f64, power: f64) -> Option<u64> {
        let scaled = (value * power).round();
        let integer = scaled as i64;
        let is_one = self.first <= integer
            && integer <= self.last
            && (integer as f64 / power).to_bits() == value.to_bits();
        is_one.then(|| integer.wrapping_sub(self.first) as u64)
    }
}

/// Bounds of a row's minimum, maximum and sum, from its buckets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowBounds {
    /// First and last column of each sign, positive and negative.
    column_range: [Option<(u32, u32)>; 2],
    /// Grid of the outermost bucket, once the counts of zero and outside the grid are known.
    lowest: Option<DecimalGrid>,
    highest: Option<DecimalGrid>,
    /// Sum of the bucket middles.
    sum: f64,
}

impl RowBounds {
    pub(crate) fn is_empty(&self) -> bool {
        self.lowest.is_none()
    }

    pub(super) fn lowest(&self) -> DecimalGrid {
        self.lowest.unwrap_or(DecimalGrid::NONE)
    }

    pub(super) fn highest(&self) -> DecimalGrid {
        self.highest.unwrap_or(DecimalGrid::NONE)
    }

    /// The predicted sum, in whole units.
    pub(super) fn predicted_sum(&self) -> i64 {
        // Casts of doubles saturate, and NaN becomes 0.
        (self.sum.round() as i64).clamp(-(1 << 62), 1 << 62)
    }
}

/// Predicts value ranges of buckets.
pub(crate) struct ColumnPredictor<'a> {
    scheme: &'a Scheme,
    /// The edges of a logarithmic grid come from a logarithm whose rounding differs between
    /// machines, so nothing is predicted from them.
    has_exact_edges: bool,
    pub(super) power: f64,
    zero: DecimalGrid,
}

impl<'a> ColumnPredictor<'a> {
    pub(crate) fn new(
        scheme: &'a Scheme,
        zero_threshold: f64,
        exponent: u32,
    ) -> ColumnPredictor<'a> {
        let predicts = !matches!(scheme, Scheme::Logarithmic(_));
        let power = POWERS[exponent as usize];
        let zero_end = scheme.zero_end(zero_threshold);
        let zero = if predicts {
            DecimalGrid::between((-zero_end, zero_end), power)
        } else {
            DecimalGrid::NONE
        };
        ColumnPredictor { scheme, has_exact_edges: predicts, power, zero }
    }

    /// Value ranges of the buckets with these indexes.
    pub(crate) fn columns(
        &self,
        indexes: &[i32],
        is_negative: bool,
    ) -> Result<MatrixColumns, DecodeError> {
        let mut columns = Vec::with_capacity(indexes.len());
        for &index in indexes {
            let Some((lower, upper)) = self.scheme.span(index) else {
                let scheme = Box::new(self.scheme.clone());
                return Err(PartsError::OutsideGrid { found: index, scheme }.into());
            };
            let (lower, upper) = if is_negative { (-upper, -lower) } else { (lower, upper) };
            let middle = (lower * 0.5 + upper * 0.5) * self.power;
            let middle = if middle.is_finite() && self.has_exact_edges { middle } else { 0.0 };
            columns.push(MatrixColumn { span: (lower, upper), middle });
        }
        Ok(MatrixColumns {
            columns,
            is_negative,
            power: self.has_exact_edges.then_some(self.power),
        })
    }

    /// Finds the outermost buckets, with the counts beside the buckets: zero, overflow, underflow.
    pub(crate) fn finish_row(
        &self,
        bounds: &mut RowBounds,
        columns: &[MatrixColumns; 2],
        [zero, overflow, underflow]: [u64; 3],
    ) {
        let places = |sign: usize| {
            let (first, last) = bounds.column_range[sign]?;
            Some((columns[sign].value_grid(first), columns[sign].value_grid(last)))
        };
        let (positive, negative) = (places(0), places(1));
        let zero = (zero > 0).then_some(self.zero);
        let beyond = |count: u64| (count > 0).then_some(DecimalGrid::NONE);
        bounds.lowest = beyond(underflow)
            .or(negative.map(|(_, last)| last))
            .or(zero)
            .or(positive.map(|(first, _)| first))
            .or(beyond(overflow));
        bounds.highest = beyond(overflow)
            .or(positive.map(|(_, last)| last))
            .or(zero)
            .or(negative.map(|(first, _)| first))
            .or(beyond(underflow));
    }
}

/// Value range and middle of each matrix column.
pub(crate) struct MatrixColumns {
    columns: Vec<MatrixColumn>,
    is_negative: bool,
    /// 10^exponent, if anything is predicted.
    power: Option<f64>,
}

struct MatrixColumn {
    span: (f64, f64),
    middle: f64,
}

impl MatrixColumns {
    /// Adds the cells of a stripe to the bounds of its rows.
    pub(crate) fn observe_stripe<T: CountWord>(
        &self,
        rows: &mut [RowBounds],
        stripe: &Stripe<'_, T>,
    ) {
        let &Stripe { height, cells, .. } = stripe;
        let rows = &mut rows[stripe.first..stripe.first.wrapping_add(stripe.rows)];
        let mut sums = [0.0; STRIPE_ROWS];
        sums.iter_mut().zip(rows.iter()).for_each(|(sum, row)| *sum = row.sum);
        let (sixteens, rest) = sums[..height].as_chunks_mut::<16>();
        let eights = rest.as_chunks_mut::<8>().0;
        for (part, sums) in sixteens.iter_mut().enumerate() {
            self.add_middles(cells, height, part.wrapping_mul(16), sums);
        }
        for sums in eights {
            self.add_middles(cells, height, height.wrapping_sub(8), sums);
        }
        rows.iter_mut().zip(sums).for_each(|(row, sum)| row.sum = sum);
        let columns = || (0..self.columns.len() as u32).zip(cells.chunks_exact(height));
        let first = first_columns(rows.len(), columns());
        let last = first_columns(rows.len(), columns().rev());
        for ((row, first), last) in rows.iter_mut().zip(first).zip(last) {
            row.column_range[usize::from(self.is_negative)] =
                (first != NO_COLUMN).then_some((first, last));
        }
    }

    /// Adds the bucket middles of some rows to their sums: few enough rows for the sums to stay in
    /// registers.
    #[inline(always)]
    fn add_middles<T: CountWord, const ROWS: usize>(
        &self,
        cells: &[T],
        height: usize,
        first: usize,
        sums: &mut [f64; ROWS],
    ) {
        let mut held = *sums;
        for (known, column) in self.columns.iter().zip(cells.chunks_exact(height)) {
            let Some(counts) = column[first..].first_chunk::<ROWS>() else { break };
            for (sum, count) in held.iter_mut().zip(counts) {
                *sum += count.double() * known.middle;
            }
        }
        *sums = held;
    }

    fn value_grid(&self, column: u32) -> DecimalGrid {
        match self.power {
            Some(power) => DecimalGrid::between(self.columns[column as usize].span, power),
            None => DecimalGrid::NONE,
        }
    }

    /// Whether minimum and maximum of a row lie in its outermost buckets, or in the zero bucket at
    /// that end. True only if no value is negative or outside the grid.
    pub(crate) fn contains_extremes(
        &self,
        row: &RowBounds,
        zero_end: Option<f64>,
        min: f64,
        max: f64,
    ) -> bool {
        let span = |column: u32| self.columns[column as usize].span;
        let zero = zero_end.map(|end| (-end, end));
        let ends = row.column_range[usize::from(self.is_negative)];
        let lowest = zero.or(ends.map(|(first, _)| span(first)));
        let highest = ends.map(|(_, last)| span(last)).or(zero);
        let within = |span: Option<(f64, f64)>, value: f64| {
            span.is_some_and(|(lower, upper)| lower <= value && value <= upper)
        };
        within(lowest, min) && within(highest, max) && min <= max
    }
}

/// Marks a row without counts.
const NO_COLUMN: u32 = u32::MAX;

/// First column with a count in each row.
fn first_columns<'a, T: CountWord + 'a>(
    rows: usize,
    columns: impl Iterator<Item = (u32, &'a [T])>,
) -> [u32; STRIPE_ROWS] {
    let mut found = [NO_COLUMN; STRIPE_ROWS];
    let mut missing = u64::MAX >> u64::BITS.wrapping_sub(rows as u32);
    for (number, column) in columns {
        if column.iter().fold(T::default(), |all, &count| all.or(count)) == T::default() {
            continue;
        }
        let row_mask = column
            .iter()
            .enumerate()
            .fold(0, |row_mask, (row, &count)| row_mask | u64::from(count != T::default()) << row);
        let mut new = row_mask & missing;
        missing &= !row_mask;
        while new > 0 {
            found[new.trailing_zeros() as usize] = number;
            new &= new.wrapping_sub(1);
        }
        if missing == 0 {
            break;
        }
    }
    found
}
