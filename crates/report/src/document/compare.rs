//! Comparison as JSON.

use model::Selector;
use query::compare::{Comparison, ComparisonSide, PermutationTest, QuantilePair, Selection};
use serde_json::Value;

use super::reader::DocumentReader;
use super::{CellEncoding, bracket, encoded_distribution, gap};
use crate::error::{Result, unsuitable};
use render::json::Json::{self, Bool, Integer, List, Null, Object, Text};
use render::json::{integer, number};

/// A comparison of two selections. [`from_json`] reads it back if it has frames.
pub fn to_json(selections: &[Selection; 2], comparison: &Comparison, cells: CellEncoding) -> Json {
    let [a, b] = &comparison.sides;
    let chance = comparison.permutation_test.map_or(Null, |chance| {
        Object(vec![
            ("p_value", number(chance.value)),
            ("permutations", integer(u64::from(chance.splits))),
        ])
    });
    Object(vec![
        ("schema", integer(2)),
        ("a", side_json(&selections[0], a, cells)),
        ("b", side_json(&selections[1], b, cells)),
        ("wasserstein", bracket(comparison.distance)),
        ("ks_statistic", bracket(comparison.ks_statistic)),
        ("probability_of_superiority", bracket(comparison.probability_of_superiority)),
        ("permutation_test", chance),
        ("quantiles", List(comparison.quantiles.iter().map(pair_json).collect())),
        ("gaps", List(comparison.gaps.iter().map(gap).collect())),
    ])
}

fn side_json(selection: &Selection, side: &ComparisonSide, cells: CellEncoding) -> Json {
    let mut fields = vec![
        ("selector", Text(query::selector_text(&selection.selector))),
        ("start_ns", Integer(selection.range.start.into())),
        ("end_ns", Integer(selection.range.end.into())),
        ("series", integer(side.series as u64)),
        ("intervals", integer(side.intervals as u64)),
        ("unit", if side.unit.is_empty() { Null } else { Text(side.unit.clone()) }),
        ("count", integer(side.mixture.count())),
        ("sum", bracket(side.mixture.sum())),
        ("min", side.mixture.min().map_or(Null, bracket)),
        ("max", side.mixture.max().map_or(Null, bracket)),
    ];
    if cells == CellEncoding::Frames {
        fields.extend(encoded_distribution(&side.mixture, cells).pop());
    }
    Object(fields)
}

/// Reads a document with frames.
pub fn from_json(document: &Value) -> Result<([Selection; 2], Comparison)> {
    let document = DocumentReader::new(document);
    let (a, b) = (read_side(document.get("a"))?, read_side(document.get("b"))?);
    let test = document.get("permutation_test");
    let permutation_test = if test.is_null() {
        None
    } else {
        let splits = test.get("permutations").count()?;
        let splits = u32::try_from(splits).unwrap_or(u32::MAX);
        Some(PermutationTest { value: test.get("p_value").number()?, splits })
    };
    let pair = |pair: DocumentReader<'_>| {
        let values = [pair.get("a").bracket()?, pair.get("b").bracket()?];
        Ok(QuantilePair { share: pair.get("q").number()?, values })
    };
    let comparison = Comparison {
        sides: [a.1, b.1],
        distance: document.get("wasserstein").bracket()?,
        ks_statistic: document.get("ks_statistic").bracket()?,
        probability_of_superiority: document.get("probability_of_superiority").bracket()?,
        permutation_test,
        quantiles: document.get("quantiles").list()?.map(pair).collect::<Result<_>>()?,
        gaps: document.get("gaps").gaps()?,
    };
    Ok(([a.0, b.0], comparison))
}

fn read_side(side: DocumentReader<'_>) -> Result<(Selection, ComparisonSide)> {
    let text = side.get("selector").text()?;
    let selector = Selector::parse(text)
        .map_err(|error| unsuitable(format!("cannot read the answer: selector {text}: {error}")))?;
    let range = side.get("start_ns").integer()?..side.get("end_ns").integer()?;
    let of = ComparisonSide {
        series: side.get("series").count()? as usize,
        mixture: side.mixture()?,
        unit: side.get("unit").optional_text()?.unwrap_or("").to_owned(),
        intervals: side.get("intervals").count()? as usize,
    };
    Ok((Selection { selector, range }, of))
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
