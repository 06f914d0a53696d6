//! Cardinality as JSON.

use serde_json::Value;
use store::{Cardinality, LabelCardinality};

use super::reader::DocumentReader;
use crate::error::Result;

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

/// Reads the document.
pub fn from_json(document: &Value) -> Result<Cardinality> {
    let document = DocumentReader::new(document);
    let metric = |of: DocumentReader<'_>| {
        Ok((of.get("metric").text()?.to_owned(), of.get("series").count()?))
    };
    let label = |of: DocumentReader<'_>| {
        Ok(LabelCardinality {
            name: of.get("label").text()?.to_owned(),
            values: of.get("values").count()?,
            series: of.get("series").count()?,
        })
    };
    let pair = |of: DocumentReader<'_>| {
        let text = |name| Ok::<_, crate::DrawError>(of.get(name).text()?.to_owned());
        Ok((text("label")?, text("value")?, of.get("series").count()?))
    };
    Ok(Cardinality {
        series: document.get("series").count()?,
        metrics: document.get("metrics").count()?,
        labels: document.get("labels").count()?,
        by_metric: document.get("by_metric").list()?.map(metric).collect::<Result<_>>()?,
        by_label: document.get("by_label").list()?.map(label).collect::<Result<_>>()?,
        by_pair: document.get("by_pair").list()?.map(pair).collect::<Result<_>>()?,
    })
}
