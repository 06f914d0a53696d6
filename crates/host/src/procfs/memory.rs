//! Memory metrics.
//!
//! Source: kernel, Documentation/filesystems/proc.rst (meminfo), mm/vmstat.c (`vmstat_text`).

use super::numbers;
use crate::metric::{MetricDefinition, MetricSink, counter, gauge};

/// Fields of `/proc/meminfo`, there in units of 1,024 bytes.
const SIZES: [(&str, MetricDefinition); 21] = [
    ("MemTotal", gauge("host_memory_total_bytes", "B", "memory that the kernel has to give")),
    ("MemFree", gauge("host_memory_free_bytes", "B", "memory that nobody uses")),
    (
        "MemAvailable",
        gauge("host_memory_available_bytes", "B", "memory to be had without swapping"),
    ),
    ("Buffers", gauge("host_memory_buffers_bytes", "B", "raw blocks of disks in memory")),
    ("Cached", gauge("host_memory_cached_bytes", "B", "files in memory, shared memory among them")),
    ("SwapCached", gauge("host_swap_cached_bytes", "B", "memory that is in swap too")),
    ("SwapTotal", gauge("host_swap_total_bytes", "B", "swap")),
    ("SwapFree", gauge("host_swap_free_bytes", "B", "swap that is free")),
    ("Dirty", gauge("host_memory_dirty_bytes", "B", "what waits to be written to disks")),
    ("Writeback", gauge("host_memory_writeback_bytes", "B", "what is being written to disks")),
    (
        "AnonPages",
        gauge("host_memory_anonymous_bytes", "B", "memory of programs that is of no file"),
    ),
    ("Mapped", gauge("host_memory_mapped_bytes", "B", "files that programs have mapped")),
    ("Shmem", gauge("host_memory_shared_bytes", "B", "shared memory and tmpfs")),
    (
        "SReclaimable",
        gauge("host_memory_slab_reclaimable_bytes", "B", "the kernel's own, to be had back"),
    ),
    (
        "SUnreclaim",
        gauge("host_memory_slab_unreclaimable_bytes", "B", "the kernel's own, not to be had back"),
    ),
    ("KernelStack", gauge("host_memory_kernel_stacks_bytes", "B", "stacks of the kernel")),
    ("PageTables", gauge("host_memory_page_tables_bytes", "B", "tables of pages")),
    (
        "Mlocked",
        gauge("host_memory_locked_bytes", "B", "memory that programs keep from being swapped"),
    ),
    (
        "Committed_AS",
        gauge("host_memory_committed_bytes", "B", "memory that programs were promised"),
    ),
    ("CommitLimit", gauge("host_memory_commit_limit_bytes", "B", "memory that may be promised")),
    (
        "AnonHugePages",
        gauge(
            "host_memory_anonymous_huge_bytes",
            "B",
            "of the anonymous memory that in huge pages",
        ),
    ),
];

/// Fields of `/proc/vmstat` that count events.
const EVENTS: [(&str, MetricDefinition); 10] = [
    ("pgfault", counter("host_page_faults_total", "", "faults of pages, minor and major")),
    (
        "pgmajfault",
        counter("host_major_page_faults_total", "", "faults of pages that had to be read"),
    ),
    ("pswpin", counter("host_swap_in_pages_total", "", "pages read from swap")),
    ("pswpout", counter("host_swap_out_pages_total", "", "pages written to swap")),
    (
        "pgscan_kswapd",
        counter(
            "host_reclaim_scanned_kswapd_pages_total",
            "",
            "pages looked at in the background, to have memory back",
        ),
    ),
    (
        "pgscan_direct",
        counter(
            "host_reclaim_scanned_direct_pages_total",
            "",
            "pages that programs had to look at to get memory: they waited",
        ),
    ),
    (
        "pgsteal_kswapd",
        counter("host_reclaim_stolen_kswapd_pages_total", "", "pages taken back in the background"),
    ),
    (
        "pgsteal_direct",
        counter(
            "host_reclaim_stolen_direct_pages_total",
            "",
            "pages taken back while programs waited",
        ),
    ),
    (
        "compact_stall",
        counter(
            "host_compaction_stalls_total",
            "",
            "times that a program waited for memory to be moved together",
        ),
    ),
    ("oom_kill", counter("host_oom_kills_total", "", "processes killed for want of memory")),
];
/// Times that memory had to be found while a program waited: one counter a zone, added up here.
const STALLS: MetricDefinition = counter(
    "host_allocation_stalls_total",
    "",
    "times that a program waited for memory to be taken back",
);
/// In units of 1,024 bytes.
const PAGE_IN: MetricDefinition =
    counter("host_page_in_bytes_total", "B", "read from disks into memory");
const PAGE_OUT: MetricDefinition =
    counter("host_page_out_bytes_total", "B", "written from memory to disks");

/// All metrics of this file, for the page that lists them.
#[cfg(test)]
pub(super) fn metrics() -> impl Iterator<Item = MetricDefinition> {
    let rest = [STALLS, PAGE_IN, PAGE_OUT];
    SIZES.iter().chain(&EVENTS).map(|entry| entry.1).chain(rest)
}

/// `/proc/meminfo`
pub(super) fn meminfo(text: &str, take: &mut dyn MetricSink) {
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let Some((_, metric)) = SIZES.iter().find(|entry| entry.0 == name) else { continue };
        if let Some(kibibytes) = numbers(rest).next() {
            take.record(metric, &[], kibibytes * 1024.0);
        }
    }
}

/// `/proc/vmstat`
pub(super) fn vmstat(text: &str, take: &mut dyn MetricSink) {
    let mut stalls = None;
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else { continue };
        let Some(value) = numbers(rest).next() else { continue };
        match name {
            "pgpgin" => take.record(&PAGE_IN, &[], value * 1024.0),
            "pgpgout" => take.record(&PAGE_OUT, &[], value * 1024.0),
            _ if name.starts_with("allocstall_") => *stalls.get_or_insert(0.0) += value,
            _ => {
                if let Some((_, metric)) = EVENTS.iter().find(|entry| entry.0 == name) {
                    take.record(metric, &[], value);
                }
            }
        }
    }
    if let Some(stalls) = stalls {
        take.record(&STALLS, &[], stalls);
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
        let text = "MemTotal:       24684084 kB\nMemAvailable:   24090036 kB\nHugePages_Total:       \
                    0\nSwapFree:              0 kB\n";
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
