//! Rows of a heatmap: a logarithmic axis, and end rows for values that the axis cannot show.
//!
//! The counts of a column are distributed over its rows without loss: the count of a bucket is
//! split in proportion to its overlap with each row, measured on the axis, and rounded by its
//! running sum. So the rows of a column add up to its count exactly, and a bucket narrower than a
//! row is either inside one row or split at one edge.

use hist::{Bracket, Cell};

use crate::chart::axis::{Axis, begins_at_zero};
use crate::merged_distribution::MergedDistribution;
use crate::value_formatter::ValueFormatter;

/// Row of a heatmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeatmapRow {
    /// Buckets without an upper bound.
    Overflow,
    /// Row of the axis, counted from the low end.
    OnAxis(usize),
    /// Zero, and buckets that end at zero or include it.
    Zero,
    Negative,
}

impl HeatmapRow {
    pub(crate) fn is_on_axis(self) -> bool {
        matches!(self, HeatmapRow::OnAxis(_))
    }
}

/// Rows of a heatmap and their bounds.
#[derive(Clone, Debug)]
pub(crate) struct HeatmapRows {
    /// Axis over all values above zero that have bounds, in the chart unit; `None` if there are
    /// none.
    pub(crate) axis: Option<Axis>,
    /// Number of rows on the axis.
    on_axis: usize,
    negative: bool,
    /// Largest upper bound of a bucket that includes zero.
    zero: Option<f64>,
    /// Smallest lower bound of a bucket without an upper bound.
    overflow: Option<f64>,
}

/// Value counts per row, top to bottom as in [`HeatmapRows::all`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowCounts {
    overflow: u64,
    on_axis: Vec<u64>,
    zero: u64,
    negative: u64,
}

/// An upper bound of the zero bucket below this fraction of all other values is labelled 0.
const NEAR_ZERO_RATIO: f64 = 1e-3;

enum CellPosition {
    Overflow,
    /// Lower and upper bound, in the chart unit.
    OnAxis(f64, f64),
    Zero(f64),
    Negative,
}

fn cell_position(cell: &Cell, formatter: &ValueFormatter) -> CellPosition {
    if cell.upper.is_infinite() && cell.upper > 0.0 {
        CellPosition::Overflow
    } else if cell.upper < 0.0 || cell.upper == 0.0 && cell.lower == f64::NEG_INFINITY {
        CellPosition::Negative
    } else if begins_at_zero(cell.lower, cell.upper) {
        CellPosition::Zero(formatter.scale(cell.upper))
    } else {
        CellPosition::OnAxis(formatter.scale(cell.lower), formatter.scale(cell.upper))
    }
}

impl HeatmapRows {
    /// Rows for all values of the columns, with `on_axis` rows on the axis.
    pub(crate) fn covering<'a>(
        columns: impl Iterator<Item = &'a MergedDistribution>,
        formatter: &ValueFormatter,
        on_axis: usize,
    ) -> HeatmapRows {
        let (mut low, mut high) = (f64::INFINITY, 0f64);
        let mut rows =
            HeatmapRows { axis: None, on_axis, negative: false, zero: None, overflow: None };
        for cell in columns.flat_map(MergedDistribution::cells) {
            match cell_position(&cell, formatter) {
                CellPosition::Overflow => {
                    let from = formatter.scale(cell.lower);
                    rows.overflow = Some(rows.overflow.map_or(from, |least| least.min(from)));
                }
                CellPosition::OnAxis(from, to) => (low, high) = (low.min(from), high.max(to)),
                CellPosition::Zero(to) => {
                    rows.zero = Some(rows.zero.map_or(to, |greatest| greatest.max(to)));
                }
                CellPosition::Negative => rows.negative = true,
            }
        }
        if low <= high {
            rows.axis = Some(Axis::covering(low, high));
        } else {
            rows.on_axis = 0;
        }
        rows
    }

    /// Widens the axis so that it shows these values too, in the chart unit; those that are not
    /// above zero are left out.
    pub(crate) fn widen(&mut self, values: impl Iterator<Item = f64>) {
        let Some(axis) = &mut self.axis else { return };
        for value in values.filter(|value| *value > 0.0 && value.is_finite()) {
            if value < axis.low || value > axis.high {
                *axis = Axis::covering(axis.low.min(value), axis.high.max(value));
            }
        }
    }

    /// All rows, top to bottom.
    pub(crate) fn all(&self) -> Vec<HeatmapRow> {
        let beyond = self.overflow.map(|_| HeatmapRow::Overflow);
        let on_axis = (0..self.on_axis).rev().map(HeatmapRow::OnAxis);
        let zero = self.zero.map(|_| HeatmapRow::Zero);
        let negative = self.negative.then_some(HeatmapRow::Negative);
        beyond.into_iter().chain(on_axis).chain(zero).chain(negative).collect()
    }

    /// Label of an end row.
    pub(crate) fn row_label(
        &self,
        row: HeatmapRow,
        formatter: &ValueFormatter,
        ascii: bool,
    ) -> String {
        let tick = |base: f64| formatter.tick(base);
        match row {
            HeatmapRow::Overflow => match self.overflow {
                Some(from) if from.is_finite() => format!("> {}", tick(from)),
                Some(f64::INFINITY) => "infinite".into(),
                _ => "any".into(),
            },
            HeatmapRow::OnAxis(_) => String::new(),
            HeatmapRow::Zero => match (self.zero.unwrap_or(0.0), &self.axis) {
                (0.0, _) => "0".into(),
                (to, Some(axis)) if to < axis.low * NEAR_ZERO_RATIO => "0".into(),
                (to, _) => format!("{}{}", if ascii { "<=" } else { "≤ " }, tick(to)),
            },
            HeatmapRow::Negative => "< 0".into(),
        }
    }

    /// Distributes the counts of a column over the rows.
    pub(crate) fn counts(
        &self,
        distribution: &MergedDistribution,
        formatter: &ValueFormatter,
    ) -> RowCounts {
        let mut counts =
            RowCounts { overflow: 0, on_axis: vec![0; self.on_axis], zero: 0, negative: 0 };
        for cell in distribution.cells() {
            match (cell_position(&cell, formatter), &self.axis) {
                (CellPosition::Overflow, _) => counts.overflow += cell.count,
                (CellPosition::OnAxis(from, to), Some(axis)) => {
                    spread(axis, (from, to), cell.count, &mut counts.on_axis);
                }
                (CellPosition::OnAxis(..), None) => {
                    unreachable!("BUG: rows are made for other columns")
                }
                (CellPosition::Zero(_), _) => counts.zero += cell.count,
                (CellPosition::Negative, _) => counts.negative += cell.count,
            }
        }
        counts
    }

    /// Row of a value.
    pub(crate) fn find_row(
        &self,
        value: Bracket,
        formatter: &ValueFormatter,
    ) -> Option<HeatmapRow> {
        let base = formatter.scale(value.estimate);
        if base.is_nan() {
            return None;
        }
        match &self.axis {
            _ if self.overflow.is_some() && value.upper == f64::INFINITY => {
                Some(HeatmapRow::Overflow)
            }
            Some(axis) if base >= axis.low => {
                let at = (axis.position(base) * self.on_axis as f64) as usize;
                Some(HeatmapRow::OnAxis(at.min(self.on_axis - 1)))
            }
            _ if base < 0.0 && self.negative => Some(HeatmapRow::Negative),
            _ if self.zero.is_some() => Some(HeatmapRow::Zero),
            _ => None,
        }
    }
}

impl RowCounts {
    pub(crate) fn get(&self, row: HeatmapRow) -> u64 {
        match row {
            HeatmapRow::Overflow => self.overflow,
            HeatmapRow::OnAxis(at) => self.on_axis[at],
            HeatmapRow::Zero => self.zero,
            HeatmapRow::Negative => self.negative,
        }
    }

    /// Largest count of a row.
    pub(crate) fn max(&self) -> u64 {
        let ends = [self.overflow, self.zero, self.negative];
        self.on_axis.iter().copied().chain(ends).max().unwrap_or(0)
    }
}

/// Distributes `count` evenly over the rows of the axis that a bucket covers.
fn spread(axis: &Axis, (from, to): (f64, f64), count: u64, rows: &mut [u64]) {
    let last = rows.len() - 1;
    let (from, to) =
        (axis.position(from) * rows.len() as f64, axis.position(to) * rows.len() as f64);
    let (first, end) = ((from as usize).min(last), (to as usize).min(last));
    let mut before = 0;
    for (at, row) in rows.iter_mut().enumerate().take(end + 1).skip(first) {
        // Values below the upper edge of this row; all of them in the last row.
        let below = if at == end {
            count
        } else {
            let share = (at as f64 + 1.0 - from) / (to - from);
            ((count as f64 * share).round() as u64).clamp(before, count)
        };
        *row += below - before;
        before = below;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hist::{Histogram, Scheme};

    /// Splitmix64 (Vigna).
    fn next_random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[track_caller]
    fn check(columns: &[MergedDistribution], on_axis: usize) {
        let formatter = ValueFormatter::new(None);
        let rows = HeatmapRows::covering(columns.iter(), &formatter, on_axis);
        for column in columns {
            let counts = rows.counts(column, &formatter);
            let sum: u64 = rows.all().into_iter().map(|row| counts.get(row)).sum();
            assert_eq!(sum, column.count(), "{on_axis} rows");
            // Values are drawn in the rows in which they were recorded.
            let marks = [0.0, 0.5, 0.99, 1.0].map(|q| column.quantile(q));
            for row in marks.into_iter().flatten().map(|mark| rows.find_row(mark, &formatter)) {
                assert!(row.is_some_and(|row| rows.all().contains(&row)), "{row:?}");
            }
        }
    }

    #[test]
    fn row_counts_add_up() {
        let mut state = 42;
        for round in 0..200 {
            let schemes = [
                Scheme::exp2(5).unwrap(),
                Scheme::exp2(-2).unwrap(),
                Scheme::LogLinear10,
                Scheme::log(0.02).unwrap(),
                Scheme::explicit(&[-5.0, 0.005, 0.1, 1.0, 2.5]).unwrap(),
            ];
            let columns: Vec<MergedDistribution> = (0..4)
                .map(|_| {
                    let mut whole = MergedDistribution::default();
                    for _ in 0..next_random(&mut state) % 3 {
                        let scheme = &schemes[next_random(&mut state) as usize % schemes.len()];
                        let mut histogram = Histogram::new(scheme.clone());
                        for _ in 0..next_random(&mut state) % 50 {
                            let power = (next_random(&mut state) % 2400) as f64 / 100.0 - 12.0;
                            let value = match next_random(&mut state) % 20 {
                                0 => 0.0,
                                1 => -10f64.powf(power),
                                2 => f64::INFINITY,
                                3 => f64::NEG_INFINITY,
                                _ => 10f64.powf(power),
                            };
                            // From 1 to more than 2^53, the integer range of a double.
                            let n =
                                1 + (next_random(&mut state) >> (8 + next_random(&mut state) % 56));
                            histogram.record_n(value, n);
                        }
                        whole.add(&histogram).unwrap();
                    }
                    whole
                })
                .collect();
            check(&columns, [1, 2, 7, 40, 112, 1000][round % 6]);
        }
    }

    #[test]
    fn a_bucket_is_divided_by_the_length_of_its_parts() {
        let axis = Axis { low: 1.0, high: 1e4 };
        let mut rows = [0; 4];
        spread(&axis, (1.0, 1e4), 10, &mut rows);
        assert_eq!(rows, [3, 2, 3, 2]);
        let mut rows = [0; 4];
        spread(&axis, (10f64.powf(0.5), 10f64.powf(1.5)), 1_000_001, &mut rows);
        assert_eq!(rows, [500_001, 500_000, 0, 0]);
        let mut rows = [0; 4];
        spread(&axis, (1.0, 1e4), 1, &mut rows);
        assert_eq!(rows.iter().sum::<u64>(), 1);
        let mut rows = [0; 4];
        spread(&axis, (1e4, 1e4), u64::MAX, &mut rows);
        assert_eq!(rows, [0, 0, 0, u64::MAX]);
    }

    #[test]
    fn overflow_rows_exist_only_when_needed() {
        let whole = |values: &[f64]| {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record(value));
            let mut whole = MergedDistribution::default();
            whole.add(&histogram).unwrap();
            whole
        };
        let formatter = ValueFormatter::new(None);
        let rows =
            |values: &[f64]| HeatmapRows::covering([whole(values)].iter(), &formatter, 2).all();
        assert_eq!(rows(&[]), []);
        assert_eq!(rows(&[5.0]), [HeatmapRow::OnAxis(1), HeatmapRow::OnAxis(0)]);
        assert_eq!(rows(&[0.0]), [HeatmapRow::Zero]);
        assert_eq!(rows(&[-1.0, 0.0]), [HeatmapRow::Zero, HeatmapRow::Negative]);
        assert_eq!(
            rows(&[f64::INFINITY, -1.0, 5.0]),
            [
                HeatmapRow::Overflow,
                HeatmapRow::OnAxis(1),
                HeatmapRow::OnAxis(0),
                HeatmapRow::Negative
            ]
        );
    }
}
