//! A comparison as JSON.

use query::compare::{Comparison, QuantilePair, Selection, Side};

use super::{bracket, gap};
use crate::json::Json::{self, Bool, Integer, List, Null, Object, Text};
use crate::json::{integer, number};

/// A comparison of two selections.
pub fn of(selections: &[Selection; 2], comparison: &Comparison) -> Json {
    let [a, b] = &comparison.sides;
    let chance = comparison.chance.map_or(Null, |chance| {
        Object(vec![("value", number(chance.value)), ("splits", integer(u64::from(chance.splits)))])
    });
    Object(vec![
        ("schema", integer(1)),
        ("a", side(&selections[0], a)),
        ("b", side(&selections[1], b)),
        ("distance", bracket(comparison.distance)),
        ("separation", bracket(comparison.separation)),
        ("superiority", bracket(comparison.superiority)),
        ("chance", chance),
        ("quantiles", List(comparison.quantiles.iter().map(pair).collect())),
        ("gaps", List(comparison.gaps.iter().map(gap).collect())),
    ])
}

fn side(selection: &Selection, side: &Side) -> Json {
    Object(vec![
        ("selector", Text(selection.selector.to_string())),
        ("start_ns", Integer(selection.range.start.into())),
        ("end_ns", Integer(selection.range.end.into())),
        ("series", integer(side.series as u64)),
        ("intervals", integer(side.intervals as u64)),
        ("unit", if side.unit.is_empty() { Null } else { Text(side.unit.clone()) }),
        ("count", integer(side.whole.count())),
        ("sum", bracket(side.whole.sum())),
        ("min", side.whole.min().map_or(Null, bracket)),
        ("max", side.whole.max().map_or(Null, bracket)),
    ])
}

/// The same share of both sides.
pub fn pair(pair: &QuantilePair) -> Json {
    let [a, b] = pair.values;
    Object(vec![
        ("share", number(pair.share)),
        ("a", bracket(a)),
        ("b", bracket(b)),
        ("differ", Bool(pair.differ())),
    ])
}
