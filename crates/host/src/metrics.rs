//! Definitions of metrics measured by topdeck itself.

use crate::metric::{MetricDefinition, MetricKind, counter, distribution, gauge};

pub(crate) const BLOCK_IO_LATENCY: MetricDefinition = distribution(
    "host_block_io_latency",
    "how long block I/O took from the request's allocation to its completion, by `device` and \
     `operation`: read, write, flush, discard, other",
);
pub(crate) const BLOCK_IO_DEVICE_LATENCY: MetricDefinition = distribution(
    "host_block_io_device_latency",
    "the same from when the driver had it; where the kernel keeps statistics of the queue",
);
pub(crate) const BLOCK_IO_ERRORS: MetricDefinition =
    counter("host_block_io_errors_total", "", "block I/O that failed, by `device` and `operation`");
pub(crate) const BLOCK_IO_UNMEASURED: MetricDefinition = counter(
    "host_block_io_unmeasured_total",
    "",
    "block I/O that is not in `host_block_io_latency`, because its request has no start \
     (`iostats` of the queue is 0) or its device no slot, by `cause`",
);
pub(crate) const RUN_QUEUE_LATENCY: MetricDefinition = distribution(
    "host_run_queue_latency",
    "how long tasks that could run waited for a processor, after a wake-up or having been \
     preempted",
);
pub(crate) const RUN_QUEUE_UNMEASURED: MetricDefinition = counter(
    "host_run_queue_unmeasured_total",
    "",
    "switches that are not in `host_run_queue_latency`, for there are more processors than cells",
);
pub(crate) const HICCUP_DELAY: MetricDefinition = distribution(
    "host_hiccup_delay",
    "how late a thread wakes up that has nothing else to do; of a stall, all moments in it count",
);
pub(crate) const BPF_AVAILABLE: MetricDefinition = gauge(
    "host_bpf_available",
    "",
    "1 if the `program` (block_io, run_queue, processes) is at work in the kernel, 0 if it is \
     wanted and cannot be",
);
pub(crate) const BPF_RUNS: MetricDefinition = counter(
    "host_bpf_runs_total",
    "",
    "how often the `program` ran; while `kernel.bpf_stats_enabled` is 1",
);
pub(crate) const BPF_TIME: MetricDefinition = counter(
    "host_bpf_seconds_total",
    "s",
    "how long it ran in all, the measuring included; while `kernel.bpf_stats_enabled` is 1",
);
pub(crate) const BPF_RECURSION_MISSES: MetricDefinition = counter(
    "host_bpf_recursion_misses_total",
    "",
    "how often the `program` should have run and did not, because it was running there: what its \
     distributions lack",
);
pub(crate) const COLLECTOR_WARNING: MetricDefinition = MetricDefinition {
    name: "host_collector_warning",
    kind: MetricKind::Text,
    unit: "",
    help: "why something is not told, by `about`; once, with the first reading or when it is seen",
};

/// All metrics of this file, for the page that lists them.
#[cfg(test)]
pub(crate) const METRICS: &[MetricDefinition] = &[
    BLOCK_IO_LATENCY,
    BLOCK_IO_DEVICE_LATENCY,
    BLOCK_IO_ERRORS,
    BLOCK_IO_UNMEASURED,
    RUN_QUEUE_LATENCY,
    RUN_QUEUE_UNMEASURED,
    HICCUP_DELAY,
    BPF_AVAILABLE,
    BPF_RUNS,
    BPF_TIME,
    BPF_RECURSION_MISSES,
    COLLECTOR_WARNING,
];

#[cfg(test)]
mod tests {
    use super::METRICS;
    use crate::metric::{MetricDefinition, MetricKind};
    use crate::procfs;

    const PAGE: &str = include_str!("../../../docs/host.md");

    fn line(metric: &MetricDefinition) -> String {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Distribution => "distribution",
            MetricKind::Text => "text",
        };
        format!("| `{}` | {kind} | {} | {} |", metric.name, metric.unit, metric.help)
    }

    #[test]
    fn the_page_lists_all_metrics_and_no_others() {
        let lines: Vec<String> =
            METRICS.iter().copied().chain(procfs::metrics()).map(|m| line(&m)).collect();
        let missing: Vec<&String> =
            lines.iter().filter(|line| !PAGE.lines().any(|found| found == *line)).collect();
        assert!(missing.is_empty(), "docs/host.md lacks:\n{missing:#?}");
        let rows = PAGE.lines().filter(|line| line.starts_with("| `host_"));
        assert_eq!(rows.count(), lines.len(), "docs/host.md lists metrics that are not");
    }
}
