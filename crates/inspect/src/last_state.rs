//! Last state of a process that crashes: operations in flight and metrics, for its notice.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::{Value, json};
use shm::snapshot::{MetricValue, NumericValue};
use shm::{AttachedProcess, MetricsFormat};

/// Operations and metrics that are listed, and labels or tags of each.
const LISTED_MAX: usize = 40;
const LABELS_MAX: usize = 8;
/// Bytes of a text or a name that are kept.
const TEXT_BYTES_MAX: usize = 200;

/// The state, with ages as of a time of the machine's CLOCK_MONOTONIC; `None` if the process had no
/// metrics file of topdeck's format. The file and its folder belong to the user of the process:
/// others may write what they like in files of their own.
pub fn read(pid: u32, uid: u32, as_of_ns: u64) -> Option<Value> {
    let is_of_user = |path: &Path| fs::symlink_metadata(path).is_ok_and(|it| it.uid() == uid);
    // The latest first: PIDs are used again.
    let found = shm::list_metrics_files().0.into_iter().find(|file| {
        let is_of_user = is_of_user(&file.path) && file.path.parent().is_some_and(is_of_user);
        file.format == MetricsFormat::Topdeck && file.pid() == pid && is_of_user
    })?;
    // A file that becomes shorter while it is mapped ends the reader.
    let metrics = AttachedProcess::open_copied(found).ok()?.metrics().ok()?;
    let (mut operations, mut in_flight, mut values) = (Vec::new(), 0, Vec::new());
    for metric in &metrics {
        let labels = short_labels(&metric.labels);
        let value = match &metric.value {
            MetricValue::InFlight(table) => {
                in_flight += table.count();
                operations.extend(table.operations.iter().map(|operation| {
                    let age_ns = as_of_ns.saturating_sub(operation.start_ns);
                    (
                        age_ns,
                        json!({
                            "metric": short(&metric.name),
                            "age_ns": age_ns,
                            "number": operation.number,
                            "tags": short_labels(&operation.tags),
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
            values.push(json!({ "name": short(&metric.name), "labels": labels, "value": value }));
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

fn short_labels(labels: &[(String, String)]) -> Value {
    let short = labels.iter().take(LABELS_MAX).map(|(name, value)| (name.clone(), short(value)));
    Value::Object(short.collect())
}
