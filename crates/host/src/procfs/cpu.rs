//! CPU metrics: utilisation by mode, load, PSI, run queues.
//!
//! Source: kernel, Documentation/filesystems/proc.rst (stat, loadavg),
//! Documentation/accounting/psi.rst, Documentation/scheduler/sched-stats.rst. Ticks are 1/100 s on
//! all machines this is built for (`USER_HZ`).

use super::numbers;
use crate::metric::{MetricDefinition, MetricSink, counter, gauge};

/// Ticks per second in files of `/proc`.
const USER_HZ: f64 = 100.0;
/// In the order of `/proc/stat`.
const MODES: [&str; 10] =
    ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"];

const CPU: MetricDefinition = counter(
    "host_cpu_seconds_total",
    "s",
    "CPU time by `cpu` and `mode`; modes add up to total time, `user` excludes `guest`",
);
const SWITCHES: MetricDefinition = counter("host_context_switches_total", "", "context switches");
const FORKS: MetricDefinition =
    counter("host_forks_total", "", "processes and threads created (fork, clone)");
const INTERRUPTS: MetricDefinition = counter("host_interrupts_total", "", "interrupts served");
const SOFT_INTERRUPTS: MetricDefinition = counter("host_softirqs_total", "", "softirqs served");
const RUNNING: MetricDefinition =
    gauge("host_tasks_running", "", "runnable tasks (`procs_running`)");
const BLOCKED: MetricDefinition =
    gauge("host_tasks_blocked", "", "tasks blocked on I/O (`procs_blocked`)");
const BOOT: MetricDefinition =
    gauge("host_boot_time_seconds", "s", "boot time, seconds since the Unix epoch");
const LOAD_AVERAGE: MetricDefinition =
    gauge("host_load_average", "", "load average by `minutes`: 1, 5, 15");
const PRESSURE: MetricDefinition = counter(
    "host_pressure_seconds_total",
    "s",
    "PSI stall time by `resource` (cpu, io, memory) and `type` (some, full)",
);
const WAIT: MetricDefinition = counter(
    "host_run_queue_wait_seconds_total",
    "s",
    "time tasks waited on the run queue, by `cpu` (`/proc/schedstat`)",
);
const TIMESLICES: MetricDefinition =
    counter("host_run_queue_timeslices_total", "", "timeslices run, by `cpu` (`/proc/schedstat`)");

#[cfg(test)]
pub(super) const METRICS: &[MetricDefinition] = &[
    CPU,
    SWITCHES,
    FORKS,
    INTERRUPTS,
    SOFT_INTERRUPTS,
    RUNNING,
    BLOCKED,
    BOOT,
    LOAD_AVERAGE,
    PRESSURE,
    WAIT,
    TIMESLICES,
];

/// `/proc/stat`
pub(super) fn stat(text: &str, sink: &mut dyn MetricSink) {
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else { continue };
        let metric = match name {
            "ctxt" => &SWITCHES,
            "processes" => &FORKS,
            "intr" => &INTERRUPTS,
            "softirq" => &SOFT_INTERRUPTS,
            "procs_running" => &RUNNING,
            "procs_blocked" => &BLOCKED,
            "btime" => &BOOT,
            _ => {
                if let Some(cpu) = name.strip_prefix("cpu").filter(|cpu| !cpu.is_empty()) {
                    modes(cpu, rest, sink);
                }
                continue;
            }
        };
        // The first number of `intr` and `softirq` is the total.
        if let Some(value) = numbers(rest).next() {
            sink.record(metric, &[], value);
        }
    }
}

fn modes(cpu: &str, rest: &str, sink: &mut dyn MetricSink) {
    let mut ticks = [None; MODES.len()];
    for (to, from) in ticks.iter_mut().zip(numbers(rest)) {
        *to = Some(from);
    }
    // `user` and `nice` include guest time.
    for (outer, guest) in [(0, 8), (1, 9)] {
        if let (Some(all), Some(guest)) = (ticks[outer], ticks[guest]) {
            ticks[outer] = Some((all - guest).max(0.0));
        }
    }
    for (mode, ticks) in MODES.into_iter().zip(ticks) {
        if let Some(ticks) = ticks {
            sink.record(&CPU, &[("cpu", cpu), ("mode", mode)], ticks / USER_HZ);
        }
    }
}

/// `/proc/loadavg`
pub(super) fn loadavg(text: &str, sink: &mut dyn MetricSink) {
    for (minutes, value) in ["1", "5", "15"].into_iter().zip(numbers(text)) {
        sink.record(&LOAD_AVERAGE, &[("minutes", minutes)], value);
    }
}

/// `/proc/pressure/RESOURCE`
pub(super) fn pressure(resource: &str, text: &str, sink: &mut dyn MetricSink) {
    for line in text.lines() {
        let Some((stall_type @ ("some" | "full"), rest)) = line.split_once(' ') else { continue };
        let total = rest.split(' ').find_map(|field| field.strip_prefix("total="));
        if let Some(microseconds) = total.and_then(|total| total.parse::<u64>().ok()) {
            let labels = [("resource", resource), ("type", stall_type)];
            sink.record(&PRESSURE, &labels, microseconds as f64 / 1e6);
        }
    }
}

/// `/proc/schedstat`
pub(super) fn schedstat(text: &str, sink: &mut dyn MetricSink) {
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else { continue };
        let Some(cpu) = name.strip_prefix("cpu") else { continue };
        let mut last = numbers(rest).skip(7);
        if let (Some(nanoseconds), Some(slices)) = (last.next(), last.next()) {
            sink.record(&WAIT, &[("cpu", cpu)], nanoseconds / 1e9);
            sink.record(&TIMESLICES, &[("cpu", cpu)], slices);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::RecordedMetrics;

    const STAT: &str = "cpu  300 20 3 4 5 6 7 8 90 10\ncpu0 300 20 3 4 5 6 7 8 90 10\ncpu1 1 2 3 \
                        4\nintr 45782506 0 0 7\nctxt 134718135\nbtime 1795294823\nprocesses \
                        971683\nprocs_running 2\nprocs_blocked 1\nsoftirq 24477657 0 1\n";

    #[track_caller]
    fn check(read: impl FnOnce(&mut RecordedMetrics), expected: &[(&str, f64)]) {
        let mut taken = RecordedMetrics::default();
        read(&mut taken);
        for &(series, value) in expected {
            assert_eq!(taken.value(series), Some(value), "{series} in {taken:?}");
        }
    }

    #[test]
    fn stat_is_read() {
        let expected = [
            ("host_cpu_seconds_total{cpu=0,mode=user}", 2.1),
            ("host_cpu_seconds_total{cpu=0,mode=nice}", 0.1),
            ("host_cpu_seconds_total{cpu=0,mode=steal}", 0.08),
            ("host_cpu_seconds_total{cpu=0,mode=guest}", 0.9),
            ("host_cpu_seconds_total{cpu=1,mode=idle}", 0.04),
            ("host_context_switches_total{}", 134_718_135.0),
            ("host_interrupts_total{}", 45_782_506.0),
            ("host_softirqs_total{}", 24_477_657.0),
            ("host_forks_total{}", 971_683.0),
            ("host_tasks_running{}", 2.0),
            ("host_tasks_blocked{}", 1.0),
            ("host_boot_time_seconds{}", 1_795_294_823.0),
        ];
        check(|taken| stat(STAT, taken), &expected);
    }

    #[test]
    fn all_processors_together_are_not_one_more() {
        let mut taken = RecordedMetrics::default();
        stat(STAT, &mut taken);
        assert_eq!(taken.len(), 10 + 4 + 7);
    }

    #[test]
    fn load_is_read() {
        let text = "1.11 0.94 1.05 2/98 30501\n";
        check(
            |taken| loadavg(text, taken),
            &[("host_load_average{minutes=1}", 1.11), ("host_load_average{minutes=15}", 1.05)],
        );
    }

    #[test]
    fn pressure_is_read() {
        let text = "some avg10=1.65 avg60=9.32 avg300=5.36 total=12420500000\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        let expected = [
            ("host_pressure_seconds_total{resource=io,type=some}", 12_420.5),
            ("host_pressure_seconds_total{resource=io,type=full}", 5e-6),
        ];
        check(|taken| pressure("io", text, taken), &expected);
    }

    #[test]
    fn run_queues_are_read() {
        let text = "version 17\ntimestamp 4295\ncpu0 0 0 0 0 0 0 7000000000 1500000000 321\n\
                    domain0 MC 3 0 0\n";
        let expected = [
            ("host_run_queue_wait_seconds_total{cpu=0}", 1.5),
            ("host_run_queue_timeslices_total{cpu=0}", 321.0),
        ];
        check(|taken| schedstat(text, taken), &expected);
    }

    #[test]
    fn arbitrary_text_does_not_panic() {
        let mut taken = RecordedMetrics::default();
        for text in [
            "",
            "\n",
            "cpu",
            "cpu0",
            "cpu0 ",
            "cpu0 x",
            "intr",
            "some",
            "some total=",
            "cpu0 1 2 3 4 5 6 7 8",
        ] {
            stat(text, &mut taken);
            loadavg(text, &mut taken);
            pressure("io", text, &mut taken);
            schedstat(text, &mut taken);
        }
        assert_eq!(taken.value("host_pressure_seconds_total{resource=io,type=some}"), None);
    }
}
