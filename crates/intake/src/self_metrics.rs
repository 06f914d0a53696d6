//! Self metrics: gauges of journal, store, clock and process.

use std::time::Instant;

use crate::meter::{Meter, MetricSnapshot, SnapshotValue};
use crate::write_target::WriteTarget;

/// Adds the gauges to a meter.
pub(crate) fn register_gauges(meter: &Meter, home: WriteTarget) {
    let began = Instant::now();
    meter.register_collector(move |all| {
        let mut gauge = |name, about, labels: &[(&str, &str)], value: f64| {
            let label = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
            let labels = labels.iter().map(label).collect();
            all.push(MetricSnapshot {
                name,
                help: about,
                labels,
                value: SnapshotValue::Gauge(value),
            });
        };
        let uptime = began.elapsed().as_secs_f64();
        gauge("topdeck_uptime_seconds", "how long this process has run", &[], uptime);
        journal_gauges(&home, &mut gauge);
        store_gauges(&home, &mut gauge);
        process_gauges(&mut gauge);
        clock_gauges(&mut gauge);
        of_sequences(&home, all);
        thread_gauges(&home, all);
        of_damage(&home, all);
    });
}

type GaugeSink<'a> = &'a mut dyn FnMut(&'static str, &'static str, &[(&str, &str)], f64);

fn journal_gauges(home: &WriteTarget, gauge: GaugeSink<'_>) {
    // What cannot be read now is read the next time.
    let Ok(stat) = home.journal().stat() else { return };
    let used = stat.segment_bytes as f64;
    gauge("topdeck_journal_bytes", "bytes of the journal's segments on disk", &[], used);
    if let Some(max) = stat.settings.limits.bytes_max {
        let free = max.saturating_sub(stat.segment_bytes) as f64;
        gauge("topdeck_journal_free_bytes", "bytes until the journal is at its limit", &[], free);
    }
    let end = stat.watermarks.end;
    gauge("topdeck_journal_position", "records that were ever appended", &[], end as f64);
    for checkpoint in &stat.checkpoints {
        let lag = end.saturating_sub(checkpoint.position) as f64;
        let labels = [("subscriber", checkpoint.name.as_str())];
        gauge(
            "topdeck_journal_lag_records",
            "records that a subscriber has not passed",
            &labels,
            lag,
        );
    }
}

/// Records of the journal that were found damaged.
fn of_damage(home: &WriteTarget, all: &mut Vec<MetricSnapshot>) {
    let name = "topdeck_journal_damaged_records_total";
    let about = "records of the journal found damaged by its readers";
    let value = SnapshotValue::Counter(home.supervisor().damaged_records_total());
    all.push(MetricSnapshot { name, help: about, labels: Vec::new(), value });
}

/// Retries that the store does not know any more.
fn of_sequences(home: &WriteTarget, all: &mut Vec<MetricSnapshot>) {
    let Some(stat) = home.store().and_then(|store| store.stat().ok()) else { return };
    let name = "topdeck_store_sequences_evicted_total";
    let about = "last sequences of producers evicted from the store's table of repeats";
    let value = SnapshotValue::Counter(stat.evicted_sequences);
    all.push(MetricSnapshot { name, help: about, labels: Vec::new(), value });
}

fn store_gauges(home: &WriteTarget, gauge: GaugeSink<'_>) {
    let Some(stat) = home.store().and_then(|store| store.stat().ok()) else { return };
    gauge("topdeck_store_series", "series that the store knows", &[], stat.series as f64);
    let head = stat.head_bytes as f64;
    gauge("topdeck_store_head_bytes", "bytes of memory of rows in no part yet", &[], head);
    gauge("topdeck_store_parts", "parts that the store consists of", &[], stat.parts.len() as f64);
    let bytes: u64 = stat.parts.iter().map(|part| part.bytes).sum();
    gauge("topdeck_store_bytes", "bytes of the store's parts on disk", &[], bytes as f64);
}

fn process_gauges(gauge: GaugeSink<'_>) {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    gauge("topdeck_process_cpu_seconds", "processor time of this process", &[], seconds);
    if let Some(bytes) = resident_bytes() {
        gauge("process_resident_memory_bytes", "memory that this process has", &[], bytes);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        let files = files.count() as f64;
        gauge("process_open_fds", "files this process has open", &[], files);
    }
}

/// Threads that were run again after a panic, and inputs that work panicked on.
fn thread_gauges(home: &WriteTarget, all: &mut Vec<MetricSnapshot>) {
    let supervisor = home.supervisor();
    let mut count = |name, about, labels, count| {
        all.push(MetricSnapshot {
            name,
            help: about,
            labels,
            value: SnapshotValue::Counter(count),
        });
    };
    for thread in supervisor.threads() {
        let labels = vec![("thread".to_owned(), thread.name)];
        let about = "threads that were run again after a panic";
        count("topdeck_thread_restarts_total", about, labels, thread.restarts);
    }
    let about = "inputs that were quarantined because work on them panicked again and again";
    let total = supervisor.quarantined_total();
    count("topdeck_quarantined_inputs_total", about, Vec::new(), total);
}

/// How the clock is that times of arrival are from (docs/clock.md).
fn clock_gauges(gauge: GaugeSink<'_>) {
    let status = clock::status();
    let error = clock::error_bound_ns() as f64 / 1e9;
    gauge("topdeck_clock_error_seconds", "how far the clock may be off", &[], error);
    let about = "1 where the clock's readings are from: the processor's counter, or the system";
    gauge("topdeck_clock_mode", about, &[("mode", status.mode.name())], 1.0);
    let counts = [
        ("topdeck_clock_comparisons", "comparisons of counter and system", status.comparisons),
        (
            "topdeck_clock_rejected",
            "comparisons that took too long to be taken",
            status.rejected_comparisons,
        ),
        (
            "topdeck_clock_disruptions",
            "jumps of the counter or the system's clock",
            status.discontinuities,
        ),
        ("topdeck_clock_steps", "steps of the time of day", status.steps),
    ];
    for (name, about, count) in counts {
        gauge(name, about, &[], count as f64);
    }
}

/// `VmRSS` of `/proc/self/status` (proc_pid_status(5)), which is in units of 1024 bytes.
fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok().map(|kilobytes| kilobytes * 1024.0)
}
