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
    rows.add_columns(&[("threshold", false), ("threshold_source", false), ("unusual", true)]);
    rows.add_columns(&[("worst_hour", false), ("worst_hour_above", true)]);
    rows.add_columns(&[("worst_hour_count", false)]);
    for row in list(&document["rows"]) {
        rows.start_row();
        let service = row["labels"].as_object().and_then(|labels| labels.values().next());
        rows.set("service", service.map_or(String::new(), plain_text));
        for (column, _) in OVERVIEW_COLUMNS {
            rows.set_value(column, &row[column]);
        }
        rows.set_time("latest", &row["latest_ns"]);
        rows.set("threshold", plain_text(&row["threshold"]["value"]));
        rows.set("threshold_source", plain_text(&row["threshold"]["source"]));
        rows.set_value("unusual", &row["unusual"]["ratio"]);
        rows.set_time("worst_hour", &row["worst_hour"]["start_ns"]);
        rows.set_value("worst_hour_above", &row["worst_hour"]["above"]);
        rows.set_value("worst_hour_count", &row["worst_hour"]["count"]);
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
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    /// 2026-11-09 12:30:00.
    const TIME: i64 = 1_794_227_400_000_000_000;

    #[track_caller]
    fn check(table: CsvTable, document: &Value, expected: Expect) {
        expected.assert_eq(&csv_text(table, document));
    }

    /// Compares the cells of each row that are not empty, with their columns.
    #[track_caller]
    fn check_cells(table: CsvTable, document: &Value, expected: Expect) {
        let text = csv_text(table, document);
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let header = lines.next().unwrap();
        let mut cells = String::new();
        for row in lines {
            assert_eq!(row.len(), header.len());
            let mut width = 0;
            for (column, cell) in header.iter().zip(row).filter(|(_, cell)| !cell.is_empty()) {
                let pair = format!("{column}={cell}");
                if width > 0 {
                    cells.push(if width + pair.len() > 70 { '\n' } else { ' ' });
                }
                width = if width + pair.len() > 70 { pair.len() } else { width + pair.len() + 1 };
                cells.push_str(&pair);
            }
            cells.push('\n');
        }
        expected.assert_eq(&cells);
    }

    #[test]
    fn points_of_a_query_have_labels_and_bounds() {
        let stream = |labels: Value, value: Value| {
            let points = json!([{"time_ns": TIME, "value": value}]);
            json!({"labels": labels, "points": points})
        };
        let bracket = json!({"lower": 1.5, "estimate": 2.0, "upper": 2.5});
        let data = json!([
            stream(json!({"host": "a,\"b\"", "time": "noon"}), bracket),
            stream(json!({"region": "eu"}), json!(7)),
        ]);
        check(
            CsvTable::Query,
            &json!({"unit": "ms", "data": data}),
            expect![[r#"
                time,host,region,label_time,value,value_lower,value_upper,unit
                2026-11-09T12:30:00.000Z,"a,""b""",,noon,2.0,1.5,2.5,ms
                2026-11-09T12:30:00.000Z,,eu,,7,,,ms
            "#]],
        );
    }

    #[test]
    fn scalars_texts_samples_and_distributions_are_rows() {
        let point = json!({"time_ns": TIME, "value": 1});
        check(
            CsvTable::Query,
            &json!({"unit": null, "data": [point]}),
            expect![[r#"
                time,value,unit
                2026-11-09T12:30:00.000Z,1,
            "#]],
        );
        check(
            CsvTable::Query,
            &json!({"data": "a\nb"}),
            expect![[r#"
                text
                "a
                b"
            "#]],
        );
        let sum = json!({"lower": 1, "estimate": 2, "upper": 3});
        let value = json!({"count": 9, "sum": sum, "min": null, "max": null, "buckets": []});
        let sample = json!({"start_ns": TIME - 60_000_000_000, "time_ns": TIME, "value": value});
        check(
            CsvTable::Query,
            &json!({"unit": "s", "data": [{"labels": {}, "samples": [sample]}]}),
            expect![[r#"
                start,time,count,sum,sum_lower,sum_upper,min,max,unit
                2026-11-09T12:29:00.000Z,2026-11-09T12:30:00.000Z,9,2,1,3,,,s
            "#]],
        );
        check(CsvTable::Query, &json!({"data": []}), expect![""]);
    }

    #[test]
    fn heatmap_has_a_row_per_cell() {
        let last = json!({"lower": 2, "upper": null, "count": 1});
        let cells = json!([{"lower": 1, "upper": 2, "count": 3}, last]);
        let column = json!({"start_ns": TIME, "end_ns": TIME + 1_000_000_000, "cells": cells});
        check(
            CsvTable::Heatmap,
            &json!({"unit": "ms", "columns": [column]}),
            expect![[r#"
                start,end,lower,upper,count,unit
                2026-11-09T12:30:00.000Z,2026-11-09T12:30:01.000Z,1,2,3,ms
                2026-11-09T12:30:00.000Z,2026-11-09T12:30:01.000Z,2,,1,ms
            "#]],
        );
    }

    #[test]
    fn comparison_has_a_row_per_statistic() {
        let exact = |value: f64| json!({"lower": value, "estimate": value, "upper": value});
        let side = |count: u64| {
            let (sum, min) = (exact(1.0), exact(1.0));
            json!({"count": count, "sum": sum, "min": min, "max": null, "unit": "ms"})
        };
        let quantile = json!({"q": 0.5, "a": exact(1.0), "b": exact(2.0), "significant": true});
        let document = json!({
            "a": side(1), "b": side(2), "quantiles": [quantile],
            "wasserstein": exact(1.0), "ks_statistic": exact(1.0),
            "probability_of_superiority": exact(0.5), "permutation_test": {"p_value": 0.01}
        });
        check_cells(
            CsvTable::Compare,
            &document,
            expect![[r#"
            statistic=count a=1 b=2 unit=ms
            statistic=sum a=1.0 a_lower=1.0 a_upper=1.0 b=1.0 b_lower=1.0
            b_upper=1.0 unit=ms
            statistic=min a=1.0 a_lower=1.0 a_upper=1.0 b=1.0 b_lower=1.0
            b_upper=1.0 unit=ms
            statistic=max unit=ms
            statistic=q0.5 a=1.0 a_lower=1.0 a_upper=1.0 b=2.0 b_lower=2.0
            b_upper=2.0 significant=true unit=ms
            statistic=wasserstein difference=1.0 difference_lower=1.0
            difference_upper=1.0 unit=ms
            statistic=ks_statistic difference=1.0 difference_lower=1.0
            difference_upper=1.0
            statistic=probability_of_superiority difference=0.5
            difference_lower=0.5 difference_upper=0.5
            statistic=p_value difference=0.01
        "#]],
        );
    }

    #[test]
    fn breakdown_overview_and_targets_are_tables() {
        let count = |n: u64| json!({"lower": n, "estimate": n, "upper": n});
        let value = json!({
            "value": "eu", "inside": count(3), "outside": count(4),
            "share_inside": 0.75, "share_outside": 0.5
        });
        check_cells(
            CsvTable::Breakdown,
            &json!({"labels": [{"label": "region", "divergence": 0.5, "values": [value]}]}),
            expect![[r#"
                label=region divergence=0.5 value=eu inside=3 inside_lower=3
                inside_upper=3 outside=4 outside_lower=4 outside_upper=4
                share_inside=0.75 share_outside=0.5
            "#]],
        );
        let row = json!({
            "name": "latency", "labels": {"service": "cart"}, "unit": "ms", "state": "affected",
            "above_now": count(61), "expected_now": 36.0, "affected_now": 25.0, "count_now": 3600,
            "state_today": "affected", "above_today": count(200), "expected_today": 90.0,
            "count_today": 9000, "rate": 12.0, "p50": null, "p99": null,
            "max": null, "latest_ns": TIME, "threshold": {"value": 250.0, "source": "user"},
            "unusual": null,
            "worst_hour": {"start_ns": TIME, "end_ns": TIME, "above": count(90), "count": 700}
        });
        check_cells(
            CsvTable::Overview,
            &json!({"rows": [row]}),
            expect![[r#"
            service=cart name=latency unit=ms state=affected above_now=61
            above_now_lower=61 above_now_upper=61 expected_now=36.0
            affected_now=25.0 count_now=3600 state_today=affected above_today=200
            above_today_lower=200 above_today_upper=200 expected_today=90.0
            count_today=9000 rate=12.0 latest=2026-11-09T12:30:00.000Z
            threshold=250.0 threshold_source=user
            worst_hour=2026-11-09T12:30:00.000Z worst_hour_above=90
            worst_hour_above_lower=90 worst_hour_above_upper=90
            worst_hour_count=700
        "#]],
        );
        let target = json!({
            "state": "down", "kind": "scrape", "target": "job=node", "success_share": 0.5,
            "longest": "2 s", "latest_failure": "HTTP 500"
        });
        check(
            CsvTable::Targets,
            &json!({"targets": [target]}),
            expect![[r#"
                state,kind,target,success_share,longest,latest_failure
                down,scrape,job=node,0.5,2 s,HTTP 500
            "#]],
        );
    }

    #[test]
    fn cardinality_has_a_row_per_metric_label_and_label_value() {
        let document = json!({
            "series": 3, "metrics": 1, "labels": 1,
            "by_metric": [{"metric": "latency", "series": 3}],
            "by_label": [{"label": "host", "values": 2, "series": 3}],
            "by_pair": [{"label": "host", "value": "a,b", "series": 2}]
        });
        check(
            CsvTable::Cardinality,
            &document,
            expect![[r#"
                metric,label,value,values,series
                latency,,,,3
                ,host,,2,3
                ,host,"a,b",,2
            "#]],
        );
    }
}
