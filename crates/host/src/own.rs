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
pub(crate) const BLOCK_IO_ERRORS: Metric = counter(
    "host_block_io_errors_total",
    "",
    "block I/O that failed, by `device` and `operation`",
);
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
    "1 if the `program` (block_io, run_queue) is at work in the kernel, 0 if it is wanted and cannot be",
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
pub(crate) const NOTE: Metric = Metric {
    name: "host_note",
    kind: Kind::Text,
    unit: "",
    about: "why something is not told, by `about`; once, with the first reading",
};

/// All metrics of this file.
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
    NOTE,
];
