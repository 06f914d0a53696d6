//! Definitions of metrics that topdeck measures itself.

use crate::metric::{MetricDefinition, MetricKind, counter, distribution, gauge};

pub(crate) const BLOCK_IO_LATENCY: MetricDefinition = distribution(
    "host_block_io_latency",
    "block I/O latency from request allocation to completion, by `device` and `operation` (read, \
     write, flush, discard, other)",
);
pub(crate) const BLOCK_IO_DEVICE_LATENCY: MetricDefinition = distribution(
    "host_block_io_device_latency",
    "block I/O latency from issue to the driver to completion; requires queue `iostats`",
);
pub(crate) const BLOCK_IO_ERRORS: MetricDefinition = counter(
    "host_block_io_errors_total",
    "",
    "failed block I/O requests, by `device` and `operation`",
);
pub(crate) const BLOCK_IO_UNMEASURED: MetricDefinition = counter(
    "host_block_io_unmeasured_total",
    "",
    "block I/O requests not in `host_block_io_latency`, by `reason`: no_start (`iostats` of the \
     queue is 0), no_slot (device table full)",
);
pub(crate) const RUN_QUEUE_LATENCY: MetricDefinition = distribution(
    "host_run_queue_latency",
    "run queue latency: time runnable tasks waited for a CPU after wake-up or preemption \
     (run_delay)",
);
pub(crate) const RUN_QUEUE_UNMEASURED: MetricDefinition = counter(
    "host_run_queue_unmeasured_total",
    "",
    "context switches not in `host_run_queue_latency`: more CPUs than the BPF map has entries for",
);
pub(crate) const HICCUP_DELAY: MetricDefinition = distribution(
    "host_hiccup_delay",
    "wake-up delay of an idle thread (jHiccup); a stall contributes one sample per missed interval",
);
pub(crate) const BPF_AVAILABLE: MetricDefinition = gauge(
    "host_bpf_available",
    "",
    "1 if the BPF `program` (block_io, run_queue, processes) is attached, 0 if enabled but \
     unavailable",
);
pub(crate) const BPF_RUNS: MetricDefinition = counter(
    "host_bpf_runs_total",
    "",
    "runs of the BPF `program` (requires `kernel.bpf_stats_enabled` = 1)",
);
pub(crate) const BPF_TIME: MetricDefinition = counter(
    "host_bpf_seconds_total",
    "s",
    "total run time of the BPF `program`, including measurement overhead (requires \
     `kernel.bpf_stats_enabled` = 1)",
);
pub(crate) const BPF_RECURSION_MISSES: MetricDefinition = counter(
    "host_bpf_recursion_misses_total",
    "",
    "runs of the BPF `program` skipped because it was already running on the CPU \
     (`recursion_misses`)",
);
pub(crate) const COLLECTOR_WARNING: MetricDefinition = MetricDefinition {
    name: "host_collector_warning",
    kind: MetricKind::Text,
    unit: "",
    help: "warning of the host source `collector`: it is unavailable, uses a fallback, reached a \
           limit or skipped a file; written once per cause",
};

/// All metrics of this file, compared with docs/host.md.
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
    use crate::{cgroups, procfs};

    const PAGE: &str = include_str!("../../../docs/host.md");

    fn line(metric: &MetricDefinition) -> String {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Distribution => "histogram",
            MetricKind::Text => "text",
        };
        format!("| `{}` | {kind} | {} | {} |", metric.name, metric.unit, metric.help)
    }

    #[test]
    fn the_page_lists_all_metrics_and_no_others() {
        let own = METRICS.iter().chain(cgroups::METRICS).copied();
        let lines: Vec<String> = own.chain(procfs::metrics()).map(|m| line(&m)).collect();
        let missing: Vec<&String> =
            lines.iter().filter(|line| !PAGE.lines().any(|found| found == *line)).collect();
        assert!(missing.is_empty(), "docs/host.md lacks:\n{missing:#?}");
        let rows = PAGE.lines().filter(|line| line.starts_with("| `host_"));
        assert_eq!(rows.count(), lines.len(), "docs/host.md lists metrics that are not");
    }
}
