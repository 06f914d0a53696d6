//! Last state of a process that crashes: operations in flight and metrics, for its notice.

use serde_json::{Value, json};
use shm::AttachedProcess;
use shm::snapshot::{MetricValue, NumericValue};

/// Operations and metrics that are listed.
const LISTED_MAX: usize = 40;
/// Bytes of a text or a name that are kept.
const TEXT_BYTES_MAX: usize = 200;

/// The state, with ages as of a time of the machine's CLOCK_MONOTONIC; `None` if the process had no
/// metrics file.
pub fn read(pid: u32, as_of_ns: u64) -> Option<Value> {
    // The latest first: PIDs are used again.
    let found = shm::list_metrics_files().0.into_iter().find(|file| file.pid() == pid)?;
    let metrics = AttachedProcess::new(found).ok()?.metrics().ok()?;
    let (mut operations, mut in_flight, mut values) = (Vec::new(), 0, Vec::new());
    for metric in &metrics {
        let labels: serde_json::Map<String, Value> =
            metric.labels.iter().map(|(name, value)| (name.clone(), short(value))).collect();
        let value = match &metric.value {
            MetricValue::InFlight(table) => {
                in_flight += table.count();
                operations.extend(table.operations.iter().map(|operation| {
                    let tags =
                        operation.tags.iter().map(|(name, value)| (name.clone(), short(value)));
                    let age_ns = as_of_ns.saturating_sub(operation.start_ns);
                    (
                        age_ns,
                        json!({
                            "metric": metric.name,
                            "age_ns": age_ns,
                            "number": operation.number,
                            "tags": tags.collect::<serde_json::Map<String, Value>>(),
                        }),
                    )
                }));
                continue;
            }
            MetricValue::Counter(number) | MetricValue::Gauge(number) => match *number {
                NumericValue::Unsigned(number) => number.into(),
                NumericValue::Signed(number) => number.into(),
                NumericValue::Float(number) => number.into(),
            },
            MetricValue::Text(text) => short(text),
            MetricValue::Histogram(histogram) => histogram.count().into(),
            _ => continue,
        };
        if values.len() < LISTED_MAX {
            values.push(json!({ "name": metric.name, "labels": labels, "value": value }));
        }
    }
    operations.sort_unstable_by_key(|operation| std::cmp::Reverse(operation.0));
    operations.truncate(LISTED_MAX);
    let operations: Vec<Value> = operations.into_iter().map(|operation| operation.1).collect();
    Some(json!({ "in_flight": in_flight, "operations": operations, "metrics": values }))
}

fn short(text: &str) -> Value {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].into()
}
