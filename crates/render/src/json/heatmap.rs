//! Heatmap column as JSON: cells, quantiles and counts above thresholds.

use crate::json::Json::{self, List, Object, Text};
use crate::json::statistics::{count, statistic};
use crate::json::{integer, number};
use crate::merged_distribution::MergedDistribution;

/// Quantiles of each column.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Column from `start` to `end`, in nanoseconds since the Unix epoch. `thresholds` are given as
/// text and in the unit of the values; `gaps` are the reasons of gaps.
pub fn column(
    [start, end]: [i64; 2],
    values: &MergedDistribution,
    thresholds: impl Iterator<Item = (String, f64)>,
    gaps: Vec<Json>,
) -> Json {
    let quantiles = QUANTILES
        .iter()
        .map(|&q| Object(vec![("q", number(q)), ("value", statistic(values.quantile(q)))]));
    let above = thresholds.map(|(written, limit)| {
        Object(vec![
            ("text", Text(written)),
            ("limit", number(limit)),
            ("count", count(values.count_above(limit))),
        ])
    });
    Object(vec![
        ("start_ns", Json::Integer(start.into())),
        ("end_ns", Json::Integer(end.into())),
        ("count", integer(values.count())),
        ("min", statistic(values.min())),
        ("max", statistic(values.max())),
        ("quantiles", List(quantiles.collect())),
        ("above", List(above.collect())),
        ("gaps", List(gaps)),
        ("cells", Json::Cells(values.cells().collect())),
    ])
}
