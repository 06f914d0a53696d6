//! Disk metrics of `/proc/diskstats`: totals. Distributions are measured by BPF, see
//! [`crate::block_io`].
//!
//! A sector has 512 bytes here whatever the sector size of the disk; times are in milliseconds.
//! Source: kernel, Documentation/admin-guide/iostats.rst.

use crate::metric::{MetricDefinition, MetricSink, counter, gauge};

const SECTOR: f64 = 512.0;

const COMPLETED: MetricDefinition = counter(
    "host_disk_completed_total",
    "",
    "I/O requests completed, by `device` and `operation`: read, write, discard, flush",
);
const MERGES: MetricDefinition =
    counter("host_disk_merges_total", "", "I/O requests merged, by `device` and `operation`");
const BYTES: MetricDefinition = counter(
    "host_disk_bytes_total",
    "B",
    "bytes read, written or discarded, by `device` and `operation`",
);
const TIME: MetricDefinition = counter(
    "host_disk_time_seconds_total",
    "s",
    "total time of I/O requests, by `device` and `operation`; divided by \
     `host_disk_completed_total` it is the mean latency",
);
const IN_FLIGHT: MetricDefinition =
    gauge("host_disk_in_flight", "", "I/O requests in flight, by `device`");
const IO_TIME: MetricDefinition = counter(
    "host_disk_io_time_seconds_total",
    "s",
    "time with at least one request in flight (`io_ticks`), by `device`",
);
const WEIGHTED_IO_TIME: MetricDefinition = counter(
    "host_disk_weighted_io_time_seconds_total",
    "s",
    "weighted I/O time (`time_in_queue`), by `device`; its rate is the mean queue length",
);

#[cfg(test)]
pub(super) const METRICS: &[MetricDefinition] =
    &[COMPLETED, MERGES, BYTES, TIME, IN_FLIGHT, IO_TIME, WEIGHTED_IO_TIME];

/// `/proc/diskstats` of devices accepted by `is_disk`; partitions would count all I/O twice.
pub(super) fn diskstats(
    text: &str,
    is_disk: &mut dyn FnMut(&str) -> bool,
    sink: &mut dyn MetricSink,
) {
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(2);
        let Some(device) = words.next() else { continue };
        let mut fields = [None; 17];
        for (to, from) in fields.iter_mut().zip(words) {
            *to = from.parse::<u64>().ok().map(|n| n as f64);
        }
        if fields[10].is_some() && is_disk(device) {
            disk(device, &fields, sink);
        }
    }
}

fn disk(device: &str, fields: &[Option<f64>; 17], sink: &mut dyn MetricSink) {
    for (operation, at) in [("read", 0), ("write", 4), ("discard", 11)] {
        let metrics = [(&COMPLETED, 1.0), (&MERGES, 1.0), (&BYTES, SECTOR), (&TIME, 1e-3)];
        for ((metric, scale), value) in metrics.into_iter().zip(&fields[at..at + 4]) {
            if let Some(value) = value {
                sink.record(metric, &[("device", device), ("operation", operation)], value * scale);
            }
        }
    }
    if let [Some(done), Some(time)] = fields[15..17] {
        let labels = [("device", device), ("operation", "flush")];
        sink.record(&COMPLETED, &labels, done);
        sink.record(&TIME, &labels, time * 1e-3);
    }
    for (metric, scale, at) in
        [(&IN_FLIGHT, 1.0, 8), (&IO_TIME, 1e-3, 9), (&WEIGHTED_IO_TIME, 1e-3, 10)]
    {
        if let Some(value) = fields[at] {
            sink.record(metric, &[("device", device)], value * scale);
        }
    }
}

/// Whether the device is a whole disk with a size above 0.
pub(super) fn is_disk(name: &str) -> bool {
    // sysfs has `!` in place of the slash in names like `cciss/c0d0`.
    let path = format!("/sys/block/{}/size", name.replace('/', "!"));
    std::fs::read(path).is_ok_and(|size| size.trim_ascii() != b"0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::RecordedMetrics;

    const VDA: &str = " 254       0 vda 4441419 164459 120524762 8670230 12549999 1683683 \
                       704256728 2878723 3 1003396 11971301 1226670 102 2858492288 162777 4739069 \
                       259570\n";

    #[track_caller]
    fn check(text: &str, count: usize, expected: &[(&str, f64)]) {
        let mut taken = RecordedMetrics::default();
        diskstats(text, &mut |name| name != "vda1", &mut taken);
        assert_eq!(taken.len(), count, "{taken:?}");
        for &(series, value) in expected {
            assert_eq!(taken.value(series), Some(value), "{series} in {taken:?}");
        }
    }

    #[test]
    fn disks_are_read() {
        let expected = [
            ("host_disk_completed_total{device=vda,operation=read}", 4_441_419.0),
            ("host_disk_merges_total{device=vda,operation=write}", 1_683_683.0),
            ("host_disk_bytes_total{device=vda,operation=discard}", 2_858_492_288.0 * 512.0),
            ("host_disk_time_seconds_total{device=vda,operation=read}", 8_670_230.0 * 1e-3),
            ("host_disk_completed_total{device=vda,operation=flush}", 4_739_069.0),
            ("host_disk_in_flight{device=vda}", 3.0),
            ("host_disk_io_time_seconds_total{device=vda}", 1_003_396.0 * 1e-3),
            ("host_disk_weighted_io_time_seconds_total{device=vda}", 11_971_301.0 * 1e-3),
        ];
        check(VDA, 17, &expected);
    }

    #[test]
    fn partitions_are_part_of_their_disk() {
        check(&VDA.replace("vda", "vda1"), 0, &[]);
    }

    #[test]
    fn older_kernels_have_fewer_fields() {
        let old = "8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n";
        check(old, 11, &[("host_disk_completed_total{device=sda,operation=write}", 5.0)]);
    }

    #[test]
    fn arbitrary_text_does_not_panic() {
        for text in ["", "8", "8 0", "8 0 sda", "8 0 sda x", "8 0 sda 1 2 3 4 5 6 7 8 9 10 x"] {
            check(text, 0, &[]);
        }
    }
}
