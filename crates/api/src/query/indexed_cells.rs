//! Compact heatmap encoding: cell edges are listed once and referenced by index.
//!
//! A heatmap of 1,000 columns has several hundred thousand cells and several hundred distinct
//! edges.

use std::collections::HashMap;

use hist::{Cell, Mixture};

use crate::json::Json::{self, Integer, List};
use crate::json::number;

/// Cell edges in order of first use.
#[derive(Debug, Default)]
pub(super) struct CellEdges {
    indices: HashMap<(u64, u64), i64>,
    edges: Vec<(f64, f64)>,
}

impl CellEdges {
    /// Pairs of numbers for the cells of a distribution in ascending order: the difference between
    /// the list index of the cell's edges and that of the previous cell (of the list's first, for
    /// the first cell), and the cell's count.
    pub(super) fn cells(&mut self, mixture: &Mixture) -> Json {
        let mut cells: Vec<Cell> =
            mixture.components().iter().flat_map(hist::Histogram::cells).collect();
        let order =
            |a: &Cell, b: &Cell| a.lower.total_cmp(&b.lower).then(a.upper.total_cmp(&b.upper));
        model::sort::by(&mut cells, order);
        let mut before = 0;
        let mut pairs = Vec::with_capacity(2 * cells.len());
        for cell in cells {
            let index = self.index_of(&cell);
            pairs.push(Integer((index - before).into()));
            pairs.push(Integer(cell.count.into()));
            before = index;
        }
        List(pairs)
    }

    fn index_of(&mut self, cell: &Cell) -> i64 {
        let next = self.edges.len() as i64;
        let key = (cell.lower.to_bits(), cell.upper.to_bits());
        let index = *self.indices.entry(key).or_insert(next);
        if index == next {
            self.edges.push((cell.lower, cell.upper));
        }
        index
    }

    /// The list: lower and upper edge of each cell, `null` if unbounded.
    pub(super) fn list(&self) -> Json {
        let pair = |&(lower, upper): &(f64, f64)| List(vec![number(lower), number(upper)]);
        List(self.edges.iter().map(pair).collect())
    }
}

#[cfg(test)]
mod tests {
    use hist::Histogram;

    use super::*;

    /// Decodes pairs as the web UI does.
    fn decode_pairs(pairs: &Json, list: &Json) -> Vec<(f64, f64, u64)> {
        let (List(pairs), List(list)) = (pairs, list) else { panic!("{pairs:?} {list:?}") };
        let mut place = 0;
        let pair = |pair: &[Json]| {
            let (Integer(by), Integer(count)) = (&pair[0], &pair[1]) else { panic!("{pair:?}") };
            place += by;
            let List(ends) = &list[place as usize] else { panic!("{list:?}") };
            let end = |json: &Json| if let Json::Number(end) = json { *end } else { f64::NAN };
            (end(&ends[0]), end(&ends[1]), u64::try_from(*count).unwrap())
        };
        pairs.chunks(2).map(pair).collect()
    }

    #[test]
    fn indexed_cells_round_trip() {
        let mut edges = CellEdges::default();
        let of = |values: &[f64]| {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record(value));
            Mixture::from(histogram)
        };
        let columns = [of(&[0.0, 1.0, 1e9, -5.0]), of(&[]), of(&[1.0, 1.0, 7.0])];
        let pairs: Vec<Json> = columns.iter().map(|column| edges.cells(column)).collect();
        let list = edges.list();
        for (column, pairs) in columns.iter().zip(&pairs) {
            let expected: Vec<_> = column
                .components()
                .iter()
                .flat_map(Histogram::cells)
                .map(|cell| (cell.lower, cell.upper, cell.count))
                .collect();
            assert_eq!(decode_pairs(pairs, &list), expected);
        }
    }
}
