//! Comparison as JSON.

use query::compare::{Comparison, ComparisonSide, QuantilePair, Selection};

use super::{bracket, gap};
use render::json::Json::{self, Bool, Integer, List, Null, Object, Text};
use render::json::{integer, number};

/// A comparison of two selections.
pub fn to_json(selections: &[Selection; 2], comparison: &Comparison) -> Json {
    let [a, b] = &comparison.sides;
    let chance = comparison.permutation_test.map_or(Null, |chance| {
        Object(vec![
            ("p_value", number(chance.value)),
            ("permutations", integer(u64::from(chance.splits))),
        ])
    });
    Object(vec![
        ("schema", integer(2)),
        ("a", side_json(&selections[0], a)),
        ("b", side_json(&selections[1], b)),
        ("wasserstein", bracket(comparison.distance)),
        ("ks_statistic", bracket(comparison.ks_statistic)),
        ("probability_of_superiority", bracket(comparison.probability_of_superiority)),
        ("permutation_test", chance),
        ("quantiles", List(comparison.quantiles.iter().map(pair_json).collect())),
        ("gaps", List(comparison.gaps.iter().map(gap).collect())),
    ])
}

fn side_json(selection: &Selection, side: &ComparisonSide) -> Json {
    Object(vec![
        ("selector", Text(selection.selector.to_string())),
        ("start_ns", Integer(selection.range.start.into())),
        ("end_ns", Integer(selection.range.end.into())),
        ("series", integer(side.series as u64)),
        ("intervals", integer(side.intervals as u64)),
        ("unit", if side.unit.is_empty() { Null } else { Text(side.unit.clone()) }),
        ("count", integer(side.mixture.count())),
        ("sum", bracket(side.mixture.sum())),
        ("min", side.mixture.min().map_or(Null, bracket)),
        ("max", side.mixture.max().map_or(Null, bracket)),
    ])
}

/// The same quantile of both sides.
pub fn pair_json(pair: &QuantilePair) -> Json {
    let [a, b] = pair.values;
    Object(vec![
        ("q", number(pair.share)),
        ("a", bracket(a)),
        ("b", bracket(b)),
        ("significant", Bool(pair.is_significant())),
    ])
}
