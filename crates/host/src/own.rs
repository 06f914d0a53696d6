//! Metrics of what is counted here and not in files of the kernel.

use crate::metric::{Kind, Metric, counter, distribution, gauge};

pub(crate) const BLOCK_IO: Metric = distribution(
    "host_block_io",
    "how long block I/O took from the request's allocation to its completion, by `device` and `operation`: read, write, flush, discard, other",
);
pub(crate) const BLOCK_IO_DEVICE: Metric = distribution(
    "host_block_io_device",
    "the same from when the driver had it; where the kernel keeps statistics of the queue",
);
pub(crate) const BLOCK_IO_ERRORS: Metric =
    counter("host_block_io_errors_total", "", "block I/O that failed, by `device` and `operation`");
pub(crate) const BLOCK_IO_UNTIMED: Metric = counter(
    "host_block_io_untimed_total",
    "",
    "block I/O that is not in `host_block_io`, because its request has no start (`iostats` of the queue is 0) or its device no slot, by `cause`",
);
pub(crate) const RUN_QUEUE: Metric = distribution(
    "host_run_queue_delay",
    "how long tasks that could run waited for a processor, after a wake-up or having been preempted",
);
pub(crate) const RUN_QUEUE_UNTIMED: Metric = counter(
    "host_run_queue_untimed_total",
    "",
    "switches that are not in `host_run_queue_delay`, for there are more processors than cells",
);
pub(crate) const HICCUP: Metric = distribution(
    "host_hiccup",
    "how late a thread wakes up that has nothing else to do; of a stall, all moments in it count",
);
pub(crate) const BPF_AVAILABLE: Metric = gauge(
    "host_bpf_available",
    "",
    "1 if the `program` (block_io, run_queue, processes) is at work in the kernel, 0 if it is wanted and cannot be",
);
pub(crate) const BPF_RUNS: Metric = counter(
    "host_bpf_runs_total",
    "",
    "how often the `program` ran; while `kernel.bpf_stats_enabled` is 1",
);
pub(crate) const BPF_TIME: Metric = counter(
    "host_bpf_seconds_total",
    "s",
    "how long it ran in all, the measuring included; while `kernel.bpf_stats_enabled` is 1",
);
pub(crate) const BPF_MISSED: Metric = counter(
    "host_bpf_missed_total",
    "",
    "how often the `program` should have run and did not, because it was running there: what its distributions lack",
);
pub(crate) const NOTE: Metric = Metric {
    name: "host_note",
    kind: Kind::Text,
    unit: "",
    about: "why something is not told, by `about`; once, with the first reading or when it is seen",
};

/// All metrics of this file, for the page that lists them.
#[cfg(test)]
pub(crate) const METRICS: &[Metric] = &[
    BLOCK_IO,
    BLOCK_IO_DEVICE,
    BLOCK_IO_ERRORS,
    BLOCK_IO_UNTIMED,
    RUN_QUEUE,
    RUN_QUEUE_UNTIMED,
    HICCUP,
    BPF_AVAILABLE,
    BPF_RUNS,
    BPF_TIME,
    BPF_MISSED,
    NOTE,
];

#[cfg(test)]
mod tests {
    use super::METRICS;
    use crate::metric::{Kind, Metric};
    use crate::procfs;

    const PAGE: &str = include_str!("../../../docs/host.md");

    fn line(metric: &Metric) -> String {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Distribution => "distribution",
            Kind::Text => "text",
        };
        format!("| `{}` | {kind} | {} | {} |", metric.name, metric.unit, metric.about)
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
