//! Invariants for any input: one check per fuzz target, by its name. `fuzz/` includes this file by
//! path, and `fuzz_regressions` repeats the checks on inputs that once failed.

use std::collections::HashSet;

use shm::snapshot::{MetricValue, ProcessSeries};
use shm::{hsperf, mmv};

/// Panics if an invariant is violated.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each target of `fuzz/` for a shared-memory format.
pub(crate) const CHECKS: [(&str, FuzzCheck); 4] =
    [("mmv", mmv), ("hsperf", hsperf), ("shm", topdeck), ("process_table", process_table)];

/// Words of a file in topdeck's format: an offset of four bytes and a word of eight each,
/// little-endian.
fn topdeck(bytes: &[u8]) {
    let dir = std::env::temp_dir();
    let thread = std::thread::current().id();
    let path = dir.join(format!("topdeck-check-{}-{thread:?}.tdk", std::process::id()));
    // Whole lanes: a file that ends inside a lane would make a read beyond its end look like a bug
    // of the reader.
    sparse(&path, bytes, 2);
    for attach in [shm::MetricsFileReader::attach, shm::MetricsFileReader::attach_copy] {
        let metrics = attach(&path).and_then(|mut reader| {
            reader.process();
            reader.metrics()
        });
        match metrics {
            Ok(metrics) => {
                assert!(metrics.len() <= shm::layout::ENTRIES_MAX);
                check_links_and_identities(&metrics);
            }
            Err(error) => check_one_line(&error.to_string()),
        }
    }
    let _ = std::fs::remove_file(path);
}

/// A file with these words and that many lanes.
pub(crate) fn sparse(path: &std::path::Path, words: &[u8], lanes: usize) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::create(path).expect("a file");
    let bytes = shm::layout::LANES_OFFSET + lanes * shm::layout::LANE_STRIDE;
    file.set_len(bytes as u64).expect("a sparse file");
    for record in words.as_chunks::<12>().0 {
        let offset = u32::from_le_bytes([record[0], record[1], record[2], record[3]]);
        let offset = u64::from(offset) / 8 * 8;
        if offset < bytes as u64 {
            file.write_all_at(&record[4..], offset).expect("room for a word");
        }
    }
}

/// Links refer to existing series.
fn check_links_and_identities(metrics: &[ProcessSeries]) {
    for metric in metrics {
        assert!(metric.related_metric.is_none_or(|link| link < metrics.len()));
        if let MetricValue::InFlight(table) = &metric.value {
            assert!(table.operations.is_sorted_by_key(|one| one.start_ns));
        }
    }
}

/// A table has no more rows than bytes, and each row can be printed.
fn process_table(bytes: &[u8]) {
    let Ok(table) = shm::process_table::ProcessTable::parse(bytes) else { return };
    assert!(table.processes.len() * shm::process_table::ROW_BYTES <= bytes.len());
    assert!(table.collection.ticks_per_second > 0 && table.generation > 0);
    table.processes.iter().for_each(|process| drop(process.name()));
}

/// A file is read or rejected with a reason; its texts are within their limit.
fn mmv(bytes: &[u8]) {
    // The wall clock is not part of the format: it is taken from the last bytes.
    let wall_us = bytes.last_chunk().map_or(0, |last| i64::from_le_bytes(*last));
    let shown = match mmv::parse(bytes, wall_us) {
        Ok(shown) => shown,
        Err(error) => return check_one_line(&error.to_string()),
    };
    assert_eq!(mmv::read_generation(bytes), Ok(shown.generation));
    assert_eq!(shown.rejected == 0, shown.first_error.is_none());
    assert!(shown.metrics.len() as u64 <= mmv::COUNT_MAX);
    assert!(shown.metrics.iter().map(text_bytes).sum::<usize>() <= mmv::TEXT_MAX * 3 + (1 << 20));
    check_identities(&shown.metrics);
}

/// A file is read or rejected with a reason; its texts are no longer than the file except for
/// replacement characters.
fn hsperf(bytes: &[u8]) {
    let shown = match hsperf::parse(bytes) {
        Ok(shown) => shown,
        Err(error) => return check_one_line(&error.to_string()),
    };
    assert_eq!(shown.rejected == 0, shown.first_error.is_none());
    assert!(shown.metrics.iter().map(text_bytes).sum::<usize>() <= 3 * bytes.len());
    check_identities(&shown.metrics);
}

fn check_one_line(message: &str) {
    assert!(!message.contains('\n'), "a message of one line");
}

/// Bytes of texts from the file.
fn text_bytes(metric: &ProcessSeries) -> usize {
    let labels = metric.labels.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    let text = if let MetricValue::Text(text) = &metric.value { text.len() } else { 0 };
    metric.name.len() + labels + metric.help.len() + text
}

/// Names are printable, labels are sorted and have values, and identities are unique.
fn check_identities(metrics: &[ProcessSeries]) {
    let mut seen = HashSet::new();
    for metric in metrics {
        assert!(!metric.name.is_empty() && !metric.name.contains(char::is_control));
        assert!(metric.labels.is_sorted_by(|a, b| a.0 < b.0));
        assert!(metric.labels.iter().all(|(name, value)| !name.is_empty() && !value.is_empty()));
        assert!(seen.insert((&metric.name, &metric.labels)), "{metric:?}");
    }
}
