//! Comparison of docs/postgres.md with the code.

use crate::collectors::COLLECTORS;
use crate::metric::{PostgresKind, PostgresMetric, VERSIONS};
use crate::{activity, blocking, server_task, statements};

const PAGE: &str = include_str!("../../../docs/postgres.md");

/// Metrics that are no column of a collector.
const METRICS: [PostgresMetric; 15] = [
    activity::WAIT_SESSIONS,
    activity::ACTIVE_SESSIONS,
    activity::TRANSACTION_AGE,
    activity::SAMPLES,
    blocking::BLOCKED_SESSIONS,
    blocking::LOCK_WAIT_AGE,
    blocking::BLOCKING_TREE,
    statements::CALLS,
    statements::SECONDS,
    statements::ROWS,
    statements::QUERY,
    server_task::UP,
    server_task::COLLECTOR_SUCCESS,
    server_task::COLLECTOR_DURATION,
    server_task::COLLECTOR_ERROR,
];

fn line(metric: &PostgresMetric) -> String {
    let kind = match metric.kind {
        PostgresKind::Counter => "counter",
        PostgresKind::Gauge => "gauge",
        PostgresKind::Distribution => "histogram",
        PostgresKind::Text => "text",
    };
    let sql = match metric.sql {
        "" => String::new(),
        sql => format!("`{sql}`"),
    };
    let versions = match (metric.since, metric.until) {
        (since, u32::MAX) if since == *VERSIONS.start() => "all".to_owned(),
        (since, u32::MAX) => format!("{since}+"),
        (since, until) => format!("{since}–{until}"),
    };
    let PostgresMetric { name, unit, help, .. } = metric;
    format!("| `{name}` | {kind} | {unit} | {help} | {sql} | {versions} |")
}

#[test]
fn the_page_lists_all_metrics_and_no_others() {
    let columns = COLLECTORS.iter().flat_map(|collector| collector.metrics);
    let lines: Vec<String> = METRICS.iter().chain(columns).map(line).collect();
    let missing: Vec<&String> =
        lines.iter().filter(|line| !PAGE.lines().any(|found| found == *line)).collect();
    assert!(missing.is_empty(), "docs/postgres.md lacks:\n{missing:#?}");
    let rows = PAGE.lines().filter(|line| line.starts_with("| `pg_"));
    assert_eq!(rows.count(), lines.len(), "docs/postgres.md lists metrics that are not");
}
