//! Comparison of a load with the observer's report: a row of the table.

use super::capture_process::ObserverReport;
use super::load_truth::LoadTruth;
use super::{has_targets, load_average};

/// A row of the table, and what is wrong.
pub(super) struct LoadResult {
    pub(super) row: String,
    pub(super) failures: Vec<String>,
}

pub(super) const HEADER: &str = "load                                       client       ours  not \
                                 measured  us/op  MiB | p50, p99 in us: server/ours/client";

impl LoadResult {
    /// `all_operations`: those that the observer has measured, of all services, for its CPU time.
    pub(super) fn new(
        name: &str,
        port: u16,
        truth: LoadTruth,
        report: &ObserverReport,
        all_operations: u64,
    ) -> LoadResult {
        let service = report.service(port);
        let found = service.count(&truth.selector);
        let not_measured = service.not_measured();
        let missing_total: u64 = not_measured.iter().map(|(_, requests)| requests).sum();
        let mut failures = Vec::new();
        let (least, most) = (*truth.operations.start(), *truth.operations.end());
        if found > most {
            failures.push(format!("{found} operations, but the client had {most}"));
        }
        // Only packets that the kernel dropped are an excuse, and then the requests are counted, or
        // gaps say that some were not seen.
        let missing = least.saturating_sub(found);
        let is_counted = missing <= missing_total + service.in_flight() || service.gaps() > 0;
        if missing > 0 && !(report.lost() > 0 && is_counted) {
            failures.push(format!("{missing} of {least} operations are missing"));
        }
        let (mut times, mut errors, mut is_missed) = (Vec::new(), Vec::new(), false);
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            if let Some((text, is_too_far)) = truth.target_text(service, name, quantile) {
                errors.push(text);
                is_missed |= is_too_far;
            }
            if missing == 0 && found == most {
                failures.extend(truth.quantile_mismatch(service, name, quantile));
            }
            times.push(truth.quantile_text(service, name, quantile));
        }
        let reasons: Vec<String> =
            not_measured.iter().map(|(reason, requests)| format!("{requests} {reason}")).collect();
        let cpu = report.cpu_ns.filter(|_| all_operations > 0).map_or_else(
            || "-".to_owned(),
            |cpu_ns| format!("{:.2}", cpu_ns as f64 / 1e3 / all_operations as f64),
        );
        let mut target = String::new();
        if !errors.is_empty() {
            let verdict = if is_missed { "target missed" } else { "target met" };
            let errors = errors.join(", ");
            target = format!("; from the server's: {errors}: {verdict}; {}", load_average());
        }
        if is_missed && has_targets() {
            failures.push(format!("quantiles are too far{target}"));
        }
        if let Some(check) = truth.check
            && let Err(error) = check(service)
        {
            failures.push(format!("{error:#}"));
        }
        let verdict = match (failures.first(), report.lost()) {
            (Some(failure), _) => format!("FAILED: {failure}"),
            (None, 0) => "ok".to_owned(),
            (None, lost) => format!("ok, {lost} packets lost"),
        };
        let client = if least == most { least.to_string() } else { format!("{least}+") };
        let row = format!(
            "{name:40} {client:>8} {found:>10}  {:>12}  {cpu:>5}  {:>3} | {}  {verdict}{target}",
            if reasons.is_empty() { "0".to_owned() } else { reasons.join(", ") },
            report.memory_bytes >> 20,
            times.join(" "),
        );
        LoadResult { row, failures }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::capture_process::tests::report;
    use crate::wire::load_truth::OperationSelector;

    #[track_caller]
    fn check(operations: std::ops::RangeInclusive<u64>, lost: u64, failure: Option<&str>) {
        let statement = r#"{"verb": "Query", "statement": "select $1", "operations": 5}"#;
        let truth = LoadTruth::between(operations, OperationSelector::new("Query", ""));
        let result = LoadResult::new("load", 1, truth, &report(statement, lost), 5);
        assert_eq!(result.failures.first().map(String::as_str), failure);
        let is_ok = failure.is_none();
        assert!(
            result.row.contains("FAILED") != is_ok && result.row.contains("1.80"),
            "{}",
            result.row
        );
    }

    #[test]
    fn missing_operations_fail_unless_packets_were_dropped() {
        check(5..=5, 0, None);
        check(4..=6, 0, None);
        check(2..=4, 0, Some("5 operations, but the client had 4"));
        check(6..=6, 0, Some("1 of 6 operations are missing"));
        check(6..=6, 3, None);
        check(9..=9, 3, Some("4 of 9 operations are missing"));
    }
}
