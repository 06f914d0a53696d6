//! Self metrics: gauges of journal, store, clock and process.

use crate::meter::{Meter, MetricSnapshot, SnapshotValue};
use crate::write_target::WriteTarget;

/// Registers the gauges. `started_at` is in nanoseconds since the Unix epoch.
pub(crate) fn register_gauges(meter: &Meter, home: WriteTarget, started_at: i64) {
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
        let about = "Start time of the process in seconds since the Unix epoch (wall clock)";
        gauge("process_start_time_seconds", about, &[], started_at as f64 / 1e9);
        journal_gauges(&home, &mut gauge);
        store_gauges(&home, &mut gauge);
        process_gauges(&mut gauge);
        clock_gauges(&mut gauge);
        clock_counters(all);
        cpu_time(all);
        of_sequences(&home, all);
        of_exemplars(&home, all);
        of_traces(&home, all);
        thread_gauges(&home, all);
        of_damage(&home, all);
    });
}

type GaugeSink<'a> = &'a mut dyn FnMut(&'static str, &'static str, &[(&str, &str)], f64);

fn journal_gauges(home: &WriteTarget, gauge: GaugeSink<'_>) {
    // A failed read is retried at the next snapshot.
    let Ok(stat) = home.journal().stat() else { return };
    let used = stat.segment_bytes as f64;
    gauge("topdeck_journal_bytes", "Size of the journal's segments on disk in bytes", &[], used);
    if let Some(max) = stat.settings.limits.bytes_max {
        let free = max.saturating_sub(stat.segment_bytes) as f64;
        gauge(
            "topdeck_journal_free_bytes",
            "Bytes until the journal reaches its size limit",
            &[],
            free,
        );
    }
    let end = stat.watermarks.end;
    gauge(
        "topdeck_journal_position",
        "Journal position: records appended since the journal was created",
        &[],
        end as f64,
    );
    for checkpoint in &stat.checkpoints {
        let lag = end.saturating_sub(checkpoint.position) as f64;
        let labels = [("subscriber", checkpoint.name.as_str())];
        gauge(
            "topdeck_journal_lag_records",
            "Records that the subscriber has not read",
            &labels,
            lag,
        );
    }
}

/// Damaged journal records.
fn of_damage(home: &WriteTarget, all: &mut Vec<MetricSnapshot>) {
    let about = "Damaged journal records found by readers";
    let total = home.supervisor().damaged_records_total();
    all.push(counter("topdeck_journal_damaged_records_total", about, total as f64));
}

/// Producer sequences that the store has evicted.
fn of_sequences(home: &WriteTarget, all: &mut Vec<MetricSnapshot>) {
    let Some(stat) = home.store().and_then(|store| store.stat().ok()) else { return };
    let about = "Producer sequences evicted from the store's duplicate detection";
    let total = stat.evicted_sequences as f64;
    all.push(counter("topdeck_store_sequences_evicted_total", about, total));
}

/// Exemplars of the store.
fn of_exemplars(home: &WriteTarget, all: &mut Vec<MetricSnapshot>) {
    let Some(store) = home.store() else { return };
    let stat = store.exemplar_stat();
    let gauge = |name, about, value: u64| {
        let value = SnapshotValue::Gauge(value as f64);
        MetricSnapshot { name, help: about, labels: Vec::new(), value }
    };
    all.push(gauge("topdeck_store_exemplars", "Exemplars in the store", stat.exemplars));
    let about = "Memory of the store's exemplars in bytes";
    all.push(gauge("topdeck_store_exemplars_bytes", about, stat.bytes));
    let counts = stat.counts;
    let outcomes = [
        ("kept", counts.kept),
        ("sampled_out", counts.sampled_out),
        ("duplicate", counts.duplicate),
        ("outside_time", counts.outside_time),
        ("evicted", counts.evicted),
        ("unknown_series", counts.unknown_series),
    ];
    let about = "Exemplars read from the journal, by what the store did with them; an exemplar \
                 that is kept may be sampled out or evicted later";
    all.extend(outcomes.map(|(outcome, count)| MetricSnapshot {
        labels: vec![("outcome".to_owned(), outcome.to_owned())],
        ..counter("topdeck_store_exemplars_offered_total", about, count as f64)
    }));
}

/// Whole traces of the store.
fn of_traces(home: &WriteTarget, all: &mut Vec<MetricSnapshot>) {
    let Some(stat) = home.store().map(|store| store.trace_stat()) else { return };
    let value = SnapshotValue::Gauge(stat.bytes as f64);
    let about = "Size of the store's traces on disk in bytes";
    let name = "topdeck_store_traces_bytes";
    all.push(MetricSnapshot { name, help: about, labels: Vec::new(), value });
    let about = "Parts of traces removed, by reason: their age, or the limit of size";
    for (reason, count) in [("expired", stat.expired_parts), ("evicted", stat.evicted_parts)] {
        all.push(MetricSnapshot {
            labels: vec![("reason".to_owned(), reason.to_owned())],
            ..counter("topdeck_store_trace_parts_removed_total", about, count as f64)
        });
    }
}

fn store_gauges(home: &WriteTarget, gauge: GaugeSink<'_>) {
    let Some(stat) = home.store().and_then(|store| store.stat().ok()) else { return };
    gauge("topdeck_store_series", "Series in the store", &[], stat.series as f64);
    let head = stat.head_bytes as f64;
    gauge(
        "topdeck_store_head_bytes",
        "Memory of the store's heads (points not yet in a part) in bytes",
        &[],
        head,
    );
    gauge("topdeck_store_parts", "Parts of the store", &[], stat.parts.len() as f64);
    let bytes: u64 = stat.parts.iter().map(|part| part.bytes).sum();
    gauge("topdeck_store_bytes", "Size of the store's parts on disk in bytes", &[], bytes as f64);
}

fn process_gauges(gauge: GaugeSink<'_>) {
    if let Some(bytes) = resident_bytes() {
        let about = "Resident memory in bytes (`VmRSS` of /proc/self/status)";
        gauge("process_resident_memory_bytes", about, &[], bytes);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        let files = files.count() as f64;
        gauge("process_open_fds", "Open file descriptors (/proc/self/fd)", &[], files);
    }
}

fn counter(name: &'static str, help: &'static str, total: f64) -> MetricSnapshot {
    MetricSnapshot { name, help, labels: Vec::new(), value: SnapshotValue::Counter(total) }
}

fn cpu_time(all: &mut Vec<MetricSnapshot>) {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    let about = "User and system CPU time in seconds (CLOCK_PROCESS_CPUTIME_ID)";
    all.push(counter("process_cpu_seconds_total", about, seconds));
}

/// Panics and restarts of threads, and quarantined inputs.
fn thread_gauges(home: &WriteTarget, all: &mut Vec<MetricSnapshot>) {
    let supervisor = home.supervisor();
    for thread in supervisor.threads() {
        let about = "Restarts of a thread after a panic";
        let restarts = counter("topdeck_thread_restarts_total", about, thread.restarts as f64);
        let about = "Panics of a thread, or in its requests or attempts";
        let panics = counter("topdeck_thread_panics_total", about, thread.panics as f64);
        let labels = vec![("thread".to_owned(), thread.name)];
        all.push(MetricSnapshot { labels: labels.clone(), ..restarts });
        all.push(MetricSnapshot { labels, ..panics });
    }
    let about = "Inputs quarantined after repeated panics";
    let total = supervisor.quarantined_total() as f64;
    all.push(counter("topdeck_quarantined_inputs_total", about, total));
}

/// State of the clock of arrival times (docs/clock.md).
fn clock_gauges(gauge: GaugeSink<'_>) {
    let status = clock::status();
    let bound = clock::error_bound_ns() as f64 / 1e9;
    let about = "Error bound of the clock against the system clock in seconds";
    gauge("topdeck_clock_error_bound_seconds", about, &[], bound);
    let about =
        "1 for the clock's current mode: counter (CPU's TSC), system (clock_gettime) or starting";
    gauge("topdeck_clock_mode", about, &[("mode", status.mode.name())], 1.0);
}

fn clock_counters(all: &mut Vec<MetricSnapshot>) {
    let status = clock::status();
    let counts = [
        (
            "topdeck_clock_calibrations_total",
            "Calibrations of the CPU's counter against the system clock",
            status.comparisons,
        ),
        (
            "topdeck_clock_calibrations_rejected_total",
            "Calibrations rejected because reading the clocks took too long",
            status.rejected_comparisons,
        ),
        (
            "topdeck_clock_discontinuities_total",
            "Jumps of the CPU's counter or of the system's monotonic clock",
            status.discontinuities,
        ),
        (
            "topdeck_clock_wall_steps_total",
            "Steps of the system's wall clock (CLOCK_REALTIME)",
            status.steps,
        ),
    ];
    all.extend(counts.map(|(name, about, total)| counter(name, about, total as f64)));
}

/// `VmRSS` of `/proc/self/status` (proc_pid_status(5)), which is in units of 1024 bytes.
fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok().map(|kilobytes| kilobytes * 1024.0)
}
