//! What must hold for any input at all: one check per fuzz target, by its name. `fuzz/` includes this file by
//! path, and `fuzzed` repeats the checks on inputs that once broke something.

use std::collections::HashSet;

use shm::show::{Metric, Value};
use shm::{hsperf, mmv};

/// Panics where something broke.
pub(crate) type Check = fn(&[u8]);

/// Name and check of each target of `fuzz/` for a format in shared memory.
pub(crate) const CHECKS: [(&str, Check); 2] = [("mmv", mmv), ("hsperf", hsperf)];

/// A file is read or refused with a reason, its texts within their limit.
fn mmv(bytes: &[u8]) {
    // The time of day is of no format: the last bytes say it.
    let wall_us = bytes.last_chunk().map_or(0, |last| i64::from_le_bytes(*last));
    let shown = match mmv::parse(bytes, wall_us) {
        Ok(shown) => shown,
        Err(error) => return one_line(&error.to_string()),
    };
    assert_eq!(mmv::generation(bytes), Ok(shown.generation));
    assert_eq!(shown.refused == 0, shown.trouble.is_none());
    assert!(shown.metrics.len() as u64 <= mmv::COUNT_MAX);
    assert!(shown.metrics.iter().map(text_bytes).sum::<usize>() <= mmv::TEXT_MAX * 3 + (1 << 20));
    tells_apart(&shown.metrics);
}

/// A file is read or refused with a reason, its texts no longer than itself but for lossy characters.
fn hsperf(bytes: &[u8]) {
    let shown = match hsperf::parse(bytes) {
        Ok(shown) => shown,
        Err(error) => return one_line(&error.to_string()),
    };
    assert_eq!(shown.refused == 0, shown.trouble.is_none());
    assert!(shown.metrics.iter().map(text_bytes).sum::<usize>() <= 3 * bytes.len());
    tells_apart(&shown.metrics);
}

fn one_line(message: &str) {
    assert!(!message.contains('\n'), "a message of one line");
}

/// Bytes that come from the file.
fn text_bytes(metric: &Metric) -> usize {
    let labels = metric.labels.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    let text = if let Value::Text(text) = &metric.value { text.len() } else { 0 };
    metric.name.len() + labels + metric.help.len() + text
}

/// Names can be shown, labels are sorted and have values, and no two metrics are one.
fn tells_apart(metrics: &[Metric]) {
    let mut seen = HashSet::new();
    for metric in metrics {
        assert!(!metric.name.is_empty() && !metric.name.contains(char::is_control));
        assert!(metric.labels.is_sorted_by(|a, b| a.0 < b.0));
        assert!(metric.labels.iter().all(|(name, value)| !name.is_empty() && !value.is_empty()));
        assert!(seen.insert((&metric.name, &metric.labels)), "{metric:?}");
    }
}
