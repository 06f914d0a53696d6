//! Tables of documents.

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
        "max": null, "latest_ns": TIME, "threshold": {"value": 250.0, "origin": "user"},
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
        threshold=250.0 threshold_origin=user
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
