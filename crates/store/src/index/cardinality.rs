//! Cardinality statistics.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cmp::Reverse;

use super::SeriesIndex;
use super::label::LabelValue;

/// Cardinality statistics; lists are in descending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cardinality {
    /// Number of series.
    pub series: u64,
    /// Number of metrics.
    pub metrics: u64,
    /// Number of label names.
    pub labels: u64,
    /// Metrics with the most series.
    pub by_metric: Vec<(String, u64)>,
    /// Labels with the most values.
    pub by_label: Vec<LabelCardinality>,
    /// Label, value and series of the pairs with the most series.
    pub by_pair: Vec<(String, String, u64)>,
}

/// Cardinality of one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelCardinality {
    /// Label name.
    pub name: String,
    /// Number of values.
    pub values: u64,
    /// Number of series that have the label.
    pub series: u64,
}

pub(super) fn cardinality(index: &SeriesIndex, top: usize) -> Cardinality {
    let text = |text| index.keys.text(text);
    let series = |value: &LabelValue| value.postings.len() as u64;
    let metrics = index.names.values.iter().map(|value| (series(value), text(value.text)));
    let labels = index
        .labels
        .iter()
        .map(|label| (label.values.len() as u64, (text(label.name), u64::from(label.series))));
    let pairs = index.labels.iter().flat_map(|label| {
        let name = text(label.name);
        label.values.iter().map(move |value| (series(value), (name, text(value.text))))
    });
    Cardinality {
        series: index.live() as u64,
        metrics: index.names.values.len() as u64,
        labels: index.labels.len() as u64,
        by_metric: top_counts(top, metrics).map(|(n, name)| (name.to_owned(), n)).collect(),
        by_label: top_counts(top, labels)
            .map(|(values, (name, series))| LabelCardinality {
                name: name.to_owned(),
                values,
                series,
            })
            .collect(),
        by_pair: top_counts(top, pairs)
            .map(|(n, (name, value))| (name.to_owned(), value.to_owned(), n))
            .collect(),
    }
}

/// The `top` entries with the highest counts; ties go to the smaller entry.
fn top_counts<T: Ord>(
    top: usize,
    all: impl Iterator<Item = (u64, T)>,
) -> impl Iterator<Item = (u64, T)> {
    let mut top_values: Vec<(Reverse<u64>, T)> = Vec::new();
    for (count, what) in all {
        top_values.push((Reverse(count), what));
        // Sorting after every doubling bounds both memory and comparisons.
        if top_values.len() >= top.saturating_mul(2).max(64) {
            model::sort::by(&mut top_values, Ord::cmp);
            top_values.truncate(top);
        }
    }
    model::sort::by(&mut top_values, Ord::cmp);
    top_values.truncate(top);
    top_values.into_iter().map(|(Reverse(count), what)| (count, what))
}
