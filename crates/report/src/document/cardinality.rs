//! Cardinality as JSON.

use store::Cardinality;

use render::json::Json::{self, List, Object, Text};
use render::json::integer;

/// Number of series, metrics and labels, and the largest of them.
pub fn to_json(cardinality: &Cardinality) -> Json {
    let metrics = cardinality
        .by_metric
        .iter()
        .map(|(name, n)| Object(vec![("metric", Text(name.clone())), ("series", integer(*n))]));
    let labels = cardinality.by_label.iter().map(|label| {
        Object(vec![
            ("label", Text(label.name.clone())),
            ("values", integer(label.values)),
            ("series", integer(label.series)),
        ])
    });
    let pairs = cardinality.by_pair.iter().map(|(name, value, n)| {
        Object(vec![
            ("label", Text(name.clone())),
            ("value", Text(value.clone())),
            ("series", integer(*n)),
        ])
    });
    Object(vec![
        ("schema", integer(1)),
        ("series", integer(cardinality.series)),
        ("metrics", integer(cardinality.metrics)),
        ("labels", integer(cardinality.labels)),
        ("by_metric", List(metrics.collect())),
        ("by_label", List(labels.collect())),
        ("by_pair", List(pairs.collect())),
    ])
}
