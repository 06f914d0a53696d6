//! CSV: the documents of answers as tables for spreadsheets and scripts.
//!
//! A table follows RFC 4180 with line feeds: a header, then a row per point, cell or line of the
//! document. Except that of a query, which depends on its labels and values, the header is always
//! the same. A statistic with bounds has three columns: `x`, `x_lower`, `x_upper`; an unknown value
//! is empty. The column `unit` has the unit of the row's values and thresholds; counts have none,
//! rates are per second, and shares, probabilities and divergences are from 0 to 1. Times are UTC
//! with milliseconds. A label has a column of its name, `label_NAME` if the table has a column of
//! that name itself. Distributions of a query have their count, sum, minimum and maximum; their
//! buckets are in the JSON document, and in the table of a heatmap.

mod rows;
mod slo;

use std::collections::BTreeSet;

use render::json::Json;
use serde_json::Value;

use rows::{CsvRows, FieldColumn, plain_text};

/// Table of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsvTable {
    /// A row per point of a query.
    Query,
    /// A row per cell of a heatmap.
    Heatmap,
    /// A row per statistic of a comparison.
    Compare,
    /// A row per label value of a breakdown.
    Breakdown,
    /// A row per row of an overview.
    Overview,
    /// A row per target.
    Targets,
    /// A row per metric, label and label value.
    Cardinality,
    /// A row per SLO.
    Slos,
    /// A row per point of the history of an SLO.
    SloHistory,
}

/// The table of a document that has not been written.
pub fn document_csv(table: CsvTable, document: &Json) -> String {
    let document = serde_json::from_str(&format!("{document:#}"));
    csv_text(table, &document.expect("BUG: a document is JSON"))
}

/// The table of a document.
pub fn csv_text(table: CsvTable, document: &Value) -> String {
    let mut rows = CsvRows::default();
    match table {
        CsvTable::Query => add_query(document, &mut rows),
        CsvTable::Heatmap => add_heatmap(document, &mut rows),
        CsvTable::Compare => add_comparison(document, &mut rows),
        CsvTable::Breakdown => add_breakdown(document, &mut rows),
        CsvTable::Overview => add_overview(document, &mut rows),
        CsvTable::Targets => add_targets(document, &mut rows),
        CsvTable::Cardinality => add_cardinality(document, &mut rows),
        CsvTable::Slos => slo::add_slos(document, &mut rows),
        CsvTable::SloHistory => slo::add_history(document, &mut rows),
    }
    rows.text()
}

const OVERVIEW_COLUMNS: [FieldColumn; 16] = [
    ("name", false),
    ("unit", false),
    ("state", false),
    ("above_now", true),
    ("expected_now", false),
    ("affected_now", false),
    ("count_now", false),
    ("state_today", false),
    ("above_today", true),
    ("expected_today", false),
    ("count_today", false),
    ("rate", false),
    ("p50", true),
    ("p99", true),
    ("max", true),
    ("latest", false),
];
const TARGET_COLUMNS: [FieldColumn; 6] = [
    ("state", false),
    ("kind", false),
    ("target", false),
    ("success_share", false),
    ("longest", false),
    ("latest_failure", false),
];
/// A row of a metric has no label, that of a label no value.
const CARDINALITY_COLUMNS: [FieldColumn; 5] =
    [("metric", false), ("label", false), ("value", false), ("values", false), ("series", false)];
const COMPARISON_COLUMNS: [FieldColumn; 6] = [
    ("statistic", false),
    ("a", true),
    ("b", true),
    ("significant", false),
    ("difference", true),
    ("unit", false),
];
const BREAKDOWN_COLUMNS: [FieldColumn; 7] = [
    ("label", false),
    ("divergence", false),
    ("value", false),
    ("inside", true),
    ("outside", true),
    ("share_inside", false),
    ("share_outside", false),
];
const HEATMAP_COLUMNS: [FieldColumn; 6] = [
    ("start", false),
    ("end", false),
    ("lower", false),
    ("upper", false),
    ("count", false),
    ("unit", false),
];

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Sets the labels of a row. All `names` have a column, also those that this row lacks.
fn set_labels(labels: &Value, names: &BTreeSet<&str>, own: &[&str], rows: &mut CsvRows) {
    for name in names {
        let text = plain_text(&labels[*name]);
        match own.contains(name) {
            true => rows.set(&format!("label_{name}"), text),
            false => rows.set(name, text),
        }
    }
}

fn label_names<'a>(of: impl Iterator<Item = &'a Value>) -> BTreeSet<&'a str> {
    of.filter_map(Value::as_object).flat_map(|labels| labels.keys().map(String::as_str)).collect()
}

/// Columns of a query besides labels.
const QUERY_COLUMNS: [&str; 19] = [
    "start",
    "time",
    "value",
    "value_lower",
    "value_upper",
    "count",
    "count_lower",
    "count_upper",
    "sum",
    "sum_lower",
    "sum_upper",
    "min",
    "min_lower",
    "min_upper",
    "max",
    "max_lower",
    "max_upper",
    "unit",
    "text",
];

fn add_query(document: &Value, rows: &mut CsvRows) {
    let data = &document["data"];
    if let Some(text) = data.as_str() {
        rows.start_row();
        return rows.set("text", text.to_owned());
    }
    let names = label_names(list(data).iter().map(|stream| &stream["labels"]));
    let mut add_point = |labels: &Value, point: &Value| {
        rows.start_row();
        if !point["start_ns"].is_null() {
            rows.set_time("start", &point["start_ns"]);
        }
        rows.set_time("time", &point["time_ns"]);
        set_labels(labels, &names, &QUERY_COLUMNS, rows);
        let value = &point["value"];
        match value.get("count") {
            None => rows.set_value("value", value),
            Some(_) => {
                for statistic in ["count", "sum", "min", "max"] {
                    rows.set_value(statistic, &value[statistic]);
                }
            }
        }
        rows.set("unit", plain_text(&document["unit"]));
    };
    for stream in list(data) {
        // The points of a scalar have no stream around them.
        if !stream["time_ns"].is_null() {
            add_point(&Value::Null, stream);
        }
        for point in list(&stream["points"]).iter().chain(list(&stream["samples"])) {
            add_point(&stream["labels"], point);
        }
    }
}

fn add_heatmap(document: &Value, rows: &mut CsvRows) {
    rows.add_columns(&HEATMAP_COLUMNS);
    for column in list(&document["columns"]) {
        for cell in list(&column["cells"]) {
            rows.start_row();
            rows.set_time("start", &column["start_ns"]);
            rows.set_time("end", &column["end_ns"]);
            for field in ["lower", "upper", "count"] {
                rows.set(field, plain_text(&cell[field]));
            }
            rows.set("unit", plain_text(&document["unit"]));
        }
    }
}

fn add_comparison(document: &Value, rows: &mut CsvRows) {
    rows.add_columns(&COMPARISON_COLUMNS);
    let mut add_pair = |statistic: String, a: &Value, b: &Value, significant: &Value| {
        rows.start_row();
        rows.set("statistic", statistic);
        rows.set_value("a", a);
        rows.set_value("b", b);
        rows.set("significant", plain_text(significant));
        rows.set("unit", plain_text(&document["a"]["unit"]));
    };
    for statistic in ["count", "sum", "min", "max"] {
        let [a, b] = ["a", "b"].map(|side| &document[side][statistic]);
        add_pair(statistic.to_owned(), a, b, &Value::Null);
    }
    for pair in list(&document["quantiles"]) {
        let quantile = format!("q{}", pair["q"]);
        add_pair(quantile, &pair["a"], &pair["b"], &pair["significant"]);
    }
    let p_value = &document["permutation_test"]["p_value"];
    let both = ["wasserstein", "ks_statistic", "probability_of_superiority"];
    let both = both.map(|name| (name, &document[name]));
    for (name, value) in both.into_iter().chain([("p_value", p_value)]) {
        rows.start_row();
        rows.set("statistic", name.to_owned());
        rows.set_value("difference", value);
        // The others are probabilities.
        if name == "wasserstein" {
            rows.set("unit", plain_text(&document["a"]["unit"]));
        }
    }
}

fn add_breakdown(document: &Value, rows: &mut CsvRows) {
    rows.add_columns(&BREAKDOWN_COLUMNS);
    for label in list(&document["labels"]) {
        for value in list(&label["values"]) {
            rows.start_row();
            for field in ["label", "divergence"] {
                rows.set(field, plain_text(&label[field]));
            }
            for field in ["value", "inside", "outside", "share_inside", "share_outside"] {
                rows.set_value(field, &value[field]);
            }
        }
    }
}

fn add_overview(document: &Value, rows: &mut CsvRows) {
    rows.add_columns(&[("service", false)]);
    rows.add_columns(&OVERVIEW_COLUMNS);
    rows.add_columns(&[("threshold", false), ("threshold_origin", false), ("unusual", true)]);
    rows.add_columns(&[("worst_hour", false), ("worst_hour_above", true)]);
    rows.add_columns(&[("worst_hour_count", false)]);
    rows.add_columns(&[("users_now", true), ("users_today", true)]);
    for row in list(&document["rows"]) {
        rows.start_row();
        let service = row["labels"].as_object().and_then(|labels| labels.values().next());
        rows.set("service", service.map_or(String::new(), plain_text));
        for (column, _) in OVERVIEW_COLUMNS {
            rows.set_value(column, &row[column]);
        }
        rows.set_time("latest", &row["latest_ns"]);
        rows.set("threshold", plain_text(&row["threshold"]["value"]));
        rows.set("threshold_origin", plain_text(&row["threshold"]["origin"]));
        rows.set_value("unusual", &row["unusual"]["ratio"]);
        rows.set_time("worst_hour", &row["worst_hour"]["start_ns"]);
        rows.set_value("worst_hour_above", &row["worst_hour"]["above"]);
        rows.set_value("worst_hour_count", &row["worst_hour"]["count"]);
        rows.set_value("users_now", &row["users"]["now"]);
        rows.set_value("users_today", &row["users"]["today"]);
    }
}

fn add_targets(document: &Value, rows: &mut CsvRows) {
    rows.add_columns(&TARGET_COLUMNS);
    for row in list(&document["targets"]) {
        rows.start_row();
        for (column, _) in TARGET_COLUMNS {
            rows.set_value(column, &row[column]);
        }
    }
}

fn add_cardinality(document: &Value, rows: &mut CsvRows) {
    rows.add_columns(&CARDINALITY_COLUMNS);
    for entries in ["by_metric", "by_label", "by_pair"] {
        for row in list(&document[entries]) {
            rows.start_row();
            for (column, _) in CARDINALITY_COLUMNS {
                rows.set(column, plain_text(&row[column]));
            }
        }
    }
}

#[cfg(test)]
mod tests;
