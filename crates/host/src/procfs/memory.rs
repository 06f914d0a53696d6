//! Memory metrics.
//!
//! Source: kernel, Documentation/filesystems/proc.rst (meminfo), mm/vmstat.c (`vmstat_text`).

use super::numbers;
use crate::metric::{MetricDefinition, MetricSink, counter, gauge};

/// Fields of `/proc/meminfo`, in units of 1,024 bytes.
const SIZES: [(&str, MetricDefinition); 21] = [
    ("MemTotal", gauge("host_memory_total_bytes", "B", "total memory (`MemTotal`)")),
    ("MemFree", gauge("host_memory_free_bytes", "B", "free memory (`MemFree`)")),
    (
        "MemAvailable",
        gauge(
            "host_memory_available_bytes",
            "B",
            "memory available without swapping (`MemAvailable`)",
        ),
    ),
    ("Buffers", gauge("host_memory_buffers_bytes", "B", "block device buffers (`Buffers`)")),
    (
        "Cached",
        gauge("host_memory_cached_bytes", "B", "page cache including shared memory (`Cached`)"),
    ),
    (
        "SwapCached",
        gauge("host_swap_cached_bytes", "B", "swapped memory also in RAM (`SwapCached`)"),
    ),
    ("SwapTotal", gauge("host_swap_total_bytes", "B", "swap")),
    ("SwapFree", gauge("host_swap_free_bytes", "B", "free swap (`SwapFree`)")),
    ("Dirty", gauge("host_memory_dirty_bytes", "B", "memory waiting for writeback (`Dirty`)")),
    (
        "Writeback",
        gauge("host_memory_writeback_bytes", "B", "memory under writeback (`Writeback`)"),
    ),
    ("AnonPages", gauge("host_memory_anonymous_bytes", "B", "anonymous memory (`AnonPages`)")),
    ("Mapped", gauge("host_memory_mapped_bytes", "B", "mapped files (`Mapped`)")),
    ("Shmem", gauge("host_memory_shared_bytes", "B", "shared memory and tmpfs (`Shmem`)")),
    (
        "SReclaimable",
        gauge("host_memory_slab_reclaimable_bytes", "B", "reclaimable slab (`SReclaimable`)"),
    ),
    (
        "SUnreclaim",
        gauge("host_memory_slab_unreclaimable_bytes", "B", "unreclaimable slab (`SUnreclaim`)"),
    ),
    ("KernelStack", gauge("host_memory_kernel_stacks_bytes", "B", "kernel stacks (`KernelStack`)")),
    ("PageTables", gauge("host_memory_page_tables_bytes", "B", "page tables (`PageTables`)")),
    ("Mlocked", gauge("host_memory_locked_bytes", "B", "memory locked by mlock (`Mlocked`)")),
    (
        "Committed_AS",
        gauge("host_memory_committed_bytes", "B", "committed memory (`Committed_AS`)"),
    ),
    ("CommitLimit", gauge("host_memory_commit_limit_bytes", "B", "commit limit (`CommitLimit`)")),
    (
        "AnonHugePages",
        gauge(
            "host_memory_anonymous_huge_bytes",
            "B",
            "anonymous memory in huge pages (`AnonHugePages`)",
        ),
    ),
];

/// Event counters of `/proc/vmstat`.
const EVENTS: [(&str, MetricDefinition); 10] = [
    ("pgfault", counter("host_page_faults_total", "", "page faults, minor and major (`pgfault`)")),
    ("pgmajfault", counter("host_major_page_faults_total", "", "major page faults (`pgmajfault`)")),
    ("pswpin", counter("host_swap_in_pages_total", "", "pages swapped in (`pswpin`)")),
    ("pswpout", counter("host_swap_out_pages_total", "", "pages swapped out (`pswpout`)")),
    (
        "pgscan_kswapd",
        counter(
            "host_reclaim_scanned_kswapd_pages_total",
            "",
            "pages scanned by kswapd (`pgscan_kswapd`)",
        ),
    ),
    (
        "pgscan_direct",
        counter(
            "host_reclaim_scanned_direct_pages_total",
            "",
            "pages scanned by direct reclaim (`pgscan_direct`)",
        ),
    ),
    (
        "pgsteal_kswapd",
        counter(
            "host_reclaimed_kswapd_pages_total",
            "",
            "pages reclaimed by kswapd (`pgsteal_kswapd`)",
        ),
    ),
    (
        "pgsteal_direct",
        counter(
            "host_reclaimed_direct_pages_total",
            "",
            "pages reclaimed by direct reclaim (`pgsteal_direct`)",
        ),
    ),
    (
        "compact_stall",
        counter("host_compaction_stalls_total", "", "compaction stalls (`compact_stall`)"),
    ),
    (
        "oom_kill",
        counter("host_oom_kills_total", "", "processes killed by the OOM killer (`oom_kill`)"),
    ),
];
/// Sum of `allocstall_*`, which the kernel counts per zone.
const STALLS: MetricDefinition =
    counter("host_allocation_stalls_total", "", "direct reclaim stalls (`allocstall_*`)");
/// In units of 1,024 bytes.
const PAGE_IN: MetricDefinition =
    counter("host_page_in_bytes_total", "B", "bytes paged in from disk (`pgpgin`)");
const PAGE_OUT: MetricDefinition =
    counter("host_page_out_bytes_total", "B", "bytes paged out to disk (`pgpgout`)");

/// All metrics of this file, compared with docs/host.md.
#[cfg(test)]
pub(super) fn metrics() -> impl Iterator<Item = MetricDefinition> {
    let rest = [STALLS, PAGE_IN, PAGE_OUT];
    SIZES.iter().chain(&EVENTS).map(|entry| entry.1).chain(rest)
}

/// `/proc/meminfo`
pub(super) fn meminfo(text: &str, sink: &mut dyn MetricSink) {
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let Some((_, metric)) = SIZES.iter().find(|entry| entry.0 == name) else { continue };
        if let Some(kibibytes) = numbers(rest).next() {
            sink.record(metric, &[], kibibytes * 1024.0);
        }
    }
}

/// `/proc/vmstat`
pub(super) fn vmstat(text: &str, sink: &mut dyn MetricSink) {
    let mut stalls = None;
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else { continue };
        let Some(value) = numbers(rest).next() else { continue };
        match name {
            "pgpgin" => sink.record(&PAGE_IN, &[], value * 1024.0),
            "pgpgout" => sink.record(&PAGE_OUT, &[], value * 1024.0),
            _ if name.starts_with("allocstall_") => *stalls.get_or_insert(0.0) += value,
            _ => {
                if let Some((_, metric)) = EVENTS.iter().find(|entry| entry.0 == name) {
                    sink.record(metric, &[], value);
                }
            }
        }
    }
    if let Some(stalls) = stalls {
        sink.record(&STALLS, &[], stalls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::RecordedMetrics;

    #[track_caller]
    fn check(read: fn(&str, &mut dyn MetricSink), text: &str, expected: &[(&str, f64)]) {
        let mut taken = RecordedMetrics::default();
        read(text, &mut taken);
        assert_eq!(taken.len(), expected.len(), "{taken:?}");
        for &(series, value) in expected {
            assert_eq!(taken.value(series), Some(value), "{series} in {taken:?}");
        }
    }

    #[test]
    fn sizes_are_in_bytes() {
        let text = "MemTotal:       24684084 kB\nMemAvailable:   24090036 kB\n\
                    HugePages_Total:       0\nSwapFree:              0 kB\n";
        let expected = [
            ("host_memory_total_bytes{}", 24_684_084.0 * 1024.0),
            ("host_memory_available_bytes{}", 24_090_036.0 * 1024.0),
            ("host_swap_free_bytes{}", 0.0),
        ];
        check(meminfo, text, &expected);
    }

    #[test]
    fn events_are_counted() {
        let text = "nr_free_pages 2198742\npgpgin 3\npgpgout 4\npswpin 1\nallocstall_normal 5\n\
                    allocstall_movable 2\npgfault 897546879\noom_kill 1\n";
        let expected = [
            ("host_page_in_bytes_total{}", 3072.0),
            ("host_page_out_bytes_total{}", 4096.0),
            ("host_swap_in_pages_total{}", 1.0),
            ("host_page_faults_total{}", 897_546_879.0),
            ("host_oom_kills_total{}", 1.0),
            ("host_allocation_stalls_total{}", 7.0),
        ];
        check(vmstat, text, &expected);
    }

    #[test]
    fn arbitrary_text_does_not_panic() {
        for text in
            ["", ":", "MemTotal", "MemTotal:", "MemTotal: x kB", "pgfault", "pgfault x", " "]
        {
            check(meminfo, text, &[]);
            check(vmstat, text, &[]);
        }
    }
}
