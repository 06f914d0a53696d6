//! What a client knows of its load, to be compared with what the observer reports.

use std::ops::RangeInclusive;

use anyhow::Result;
use serde_json::Value;

use super::capture_process::{ServiceReport, number};

/// Count and times of a load, by its client and, where it tells, by its server.
pub(super) struct LoadTruth {
    /// Completed operations. A client that stops under load leaves up to one per connection behind,
    /// whose response it does not read.
    pub(super) operations: RangeInclusive<u64>,
    pub(super) selector: OperationSelector,
    /// Time of each operation at the client, from before it sends to after it has read. None of the
    /// packets' times is longer. Nanoseconds; empty if unknown.
    pub(super) client_ns: Vec<u64>,
    /// Time of each operation at the server, from after it has read to before it sends. None of the
    /// packets' times is shorter. Nanoseconds; empty if unknown.
    pub(super) server_ns: Vec<u64>,
    /// How far quantiles may be from the server's, in nanoseconds or as wide as a bucket; `None` if
    /// they are not compared, because the server does not run at once when a request arrives.
    pub(super) target_ns: Option<u64>,
    pub(super) check: Option<ReportCheck>,
}

/// Checks something else of the service.
pub(super) type ReportCheck = Box<dyn FnOnce(ServiceReport<'_>) -> Result<()> + Send>;

/// The operations of a load, among those of its service.
#[derive(Clone, Debug, Default)]
pub(super) struct OperationSelector {
    pub(super) verb: &'static str,
    /// Part of the statement.
    pub(super) statement: String,
    /// Class of the error; `None` counts all operations.
    pub(super) error: Option<&'static str>,
    /// Whether they wait by design.
    pub(super) is_wait: bool,
}

impl OperationSelector {
    pub(super) fn new(verb: &'static str, statement: &str) -> OperationSelector {
        OperationSelector { verb, statement: statement.to_owned(), error: None, is_wait: false }
    }

    pub(super) fn selects(&self, statement: &Value) -> bool {
        let text = statement["statement"].as_str().unwrap_or_default();
        statement["verb"] == self.verb && text.contains(&self.statement)
    }

    /// Number of the operations of a statement.
    pub(super) fn count(&self, statement: &Value) -> u64 {
        match self.error {
            _ if self.is_wait => number(&statement["waits"]["last_byte_ns"]["count"]),
            Some(class) => number(&statement["failed"][class]["last_byte_ns"]["count"]),
            None => number(&statement["operations"]),
        }
    }
}

impl LoadTruth {
    /// A load whose client has read all responses.
    pub(super) fn exact(operations: u64, selector: OperationSelector) -> LoadTruth {
        LoadTruth::between(operations..=operations, selector)
    }

    /// A load whose client has sent requests whose responses it did not read.
    pub(super) fn between(
        operations: RangeInclusive<u64>,
        selector: OperationSelector,
    ) -> LoadTruth {
        let (client_ns, server_ns) = (Vec::new(), Vec::new());
        LoadTruth { operations, selector, client_ns, server_ns, target_ns: None, check: None }
    }

    /// Bounds of a quantile by the client's and the server's times, and the observer's.
    ///
    /// Each time of the packets is between the server's and the client's time of the same
    /// operation. So each order statistic is, however the operations are ordered.
    pub(super) fn quantile_mismatch(
        &self,
        service: ServiceReport<'_>,
        name: &str,
        quantile: f64,
    ) -> Option<String> {
        let found = service.latency(&self.selector, name)?;
        let client = order_statistic(&self.client_ns, quantile, RankRounding::Up);
        let server = order_statistic(&self.server_ns, quantile, RankRounding::Down);
        if let Some(client) = client.filter(|client| found.lower > *client as f64) {
            return Some(format!("{name} is {found:?} ns, longer than {client} ns at the client"));
        }
        let server = server.filter(|server| found.upper < *server as f64)?;
        Some(format!("{name} is {found:?} ns, shorter than {server} ns at the server"))
    }

    /// How far a quantile is from the server's, and whether that is too far.
    pub(super) fn target_text(
        &self,
        service: ServiceReport<'_>,
        name: &str,
        quantile: f64,
    ) -> Option<(String, bool)> {
        let target_ns = self.target_ns? as f64;
        let found = service.latency(&self.selector, name)?;
        let server = order_statistic(&self.server_ns, quantile, RankRounding::Up)? as f64;
        let (error_ns, most) = (found.estimate - server, target_ns.max(found.upper - found.lower));
        let text = format!("{name} {:+.1} us of {:.1}", error_ns / 1e3, most / 1e3);
        Some((text, error_ns.abs() > most))
    }

    /// Quantile in microseconds: server's, observer's, client's; `-` if unknown.
    pub(super) fn quantile_text(
        &self,
        service: ServiceReport<'_>,
        name: &str,
        quantile: f64,
    ) -> String {
        let us =
            |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.0}", ns / 1e3));
        let of = |all: &[u64]| order_statistic(all, quantile, RankRounding::Up).map(|ns| ns as f64);
        let found = service.latency(&self.selector, name).map(|found| found.estimate);
        [of(&self.server_ns), found, of(&self.client_ns)].map(us).join("/")
    }
}

/// Which of two ranks next to a quantile is meant.
enum RankRounding {
    Up,
    Down,
}

/// The value at a quantile of sorted or unsorted values, one rank towards the rounding, because
/// definitions of quantiles differ by a rank.
fn order_statistic(values: &[u64], quantile: f64, rounding: RankRounding) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = quantile * sorted.len() as f64;
    let index = match rounding {
        RankRounding::Up => (rank.ceil() as usize).min(sorted.len().saturating_sub(1)),
        RankRounding::Down => (rank.floor() as usize).saturating_sub(2),
    };
    sorted.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_statistics_leave_room_for_a_rank() {
        let values: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(order_statistic(&values, 0.5, RankRounding::Up), Some(51));
        assert_eq!(order_statistic(&values, 0.5, RankRounding::Down), Some(49));
        assert_eq!(order_statistic(&values, 1.0, RankRounding::Up), Some(100));
        assert_eq!(order_statistic(&[7], 0.5, RankRounding::Down), Some(7));
        assert_eq!(order_statistic(&[], 0.5, RankRounding::Up), None);
    }
}
