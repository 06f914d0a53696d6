//! Shm collector: discovery, reading, final reading after exit.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use intake::{EventCounter, Meter};
use shm::ProcessIdentity;

use crate::metrics;
use crate::shm_metrics::rows::{LastReported, MetricName, SeriesContext, ShmRowWriter};
use crate::shm_metrics::tracked_process::TrackedProcess;

/// Limit of metrics files; the latest are read.
const PROCESSES_MAX: usize = 1_000;
/// A scan for processes costs some microseconds per process of the host. It runs at every reading,
/// but at most for this part of the time; yet often enough to find the file of an exited process
/// before it is removed after a minute.
const SCAN_SHARE: u32 = 100;
const SCAN_INTERVAL_MAX: Duration = Duration::from_secs(20);
/// Interval of the cleanup of files of exited processes.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(30);
/// Limit of files reported as unreadable, once each.
const WARNINGS_MAX: usize = 100;

/// Collector of metrics in shared memory.
#[derive(Debug)]
pub(crate) struct ShmCollector {
    this_process: ProcessIdentity,
    /// Whether the metrics of other topdecks are collected.
    with_topdecks: bool,
    /// By device and inode of the file.
    processes: HashMap<(u64, u64), TrackedProcess>,
    next_scan: Instant,
    has_scanned: bool,
    last_cleanup: Option<Instant>,
    warned: HashSet<String>,
    /// Warnings not reported yet.
    pending_warnings: Vec<String>,
    open: Arc<AtomicUsize>,
    read_errors: EventCounter,
    dropped: [EventCounter; 4],
}

/// Values of the label `reason` of dropped readings.
const DROP_REASONS: [&str; 4] = ["processes", "series", "rejected", "unknown"];

impl ShmCollector {
    pub(crate) fn new(meter: &Meter, with_topdecks: bool) -> ShmCollector {
        let open = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&open);
        let about = "metrics files read";
        // Relaxed: the number publishes no other data.
        meter.gauge("topdeck_shm_files", about, &[], move || seen.load(Ordering::Relaxed) as f64);
        let about = "readings dropped by `reason`: processes (file limit), series (row limit), \
                     rejected (invalid rows), unknown (unsupported values)";
        let left_out = DROP_REASONS
            .map(|reason| meter.counter("topdeck_shm_dropped_total", about, &[("reason", reason)]));
        let about = "failed reads of metrics files";
        ShmCollector {
            this_process: ProcessIdentity::current(),
            with_topdecks,
            processes: HashMap::new(),
            next_scan: Instant::now(),
            has_scanned: false,
            last_cleanup: None,
            warned: HashSet::new(),
            pending_warnings: Vec::new(),
            open,
            read_errors: meter.counter("topdeck_shm_read_errors_total", about, &[]),
            dropped: left_out,
        }
    }

    /// Makes the next reading scan for processes, whatever the last scan cost.
    pub(crate) fn rescan_now(&mut self) {
        self.next_scan = Instant::now();
    }

    /// Reports all metrics of all processes.
    pub(crate) fn read(&mut self, out: &mut ShmRowWriter<'_>) {
        if Instant::now() >= self.next_scan {
            let began = Instant::now();
            self.scan(out.end);
            self.next_scan = began + (began.elapsed() * SCAN_SHARE).min(SCAN_INTERVAL_MAX);
        }
        let (mut unknown, mut failed) = (0, Vec::new());
        for process in self.processes.values_mut() {
            match process.read(out, self.with_topdecks) {
                Ok(count) => unknown += count,
                Err(error) => failed.push(error),
            }
        }
        failed.iter().for_each(|error| self.record_read_error(error));
        let [_, series, refused, unknown_values] = &self.dropped;
        series.add(out.dropped);
        refused.add(out.rejected);
        unknown_values.add(unknown);
        let (start, end, mut told) = (out.end, out.end, LastReported::new());
        for note in &self.pending_warnings {
            let labels = [("collector".to_owned(), "shm".to_owned())];
            let mut whose = SeriesContext { labels: &[], start, end, reported: &mut told };
            let named =
                MetricName { name: metrics::COLLECTOR_WARNING.name, unit: "", labels: &labels };
            out.text(&mut whose, named, note.clone());
        }
        let open = self.processes.values().filter(|process| process.is_open()).count();
        self.open.store(open, Ordering::Relaxed);
    }

    /// Commits the last reading: it is durable.
    pub(crate) fn commit(&mut self) {
        self.processes.values_mut().for_each(TrackedProcess::commit);
        self.pending_warnings.clear();
    }

    /// Reverts the last reading: it was not accepted.
    pub(crate) fn rollback(&mut self) {
        self.processes.values_mut().for_each(TrackedProcess::rollback);
    }

    /// Scans for processes.
    fn scan(&mut self, now: i64) {
        let (found, problems) = shm::list_metrics_files();
        problems.iter().for_each(|problem| self.record_read_error(problem));
        let mut found_ids = HashSet::new();
        let mut folders = HashSet::new();
        // Earliest first, so that the earlier of two files of one process ends before the later
        // starts.
        for one in found.into_iter().rev() {
            folders.extend(one.path.parent().map(PathBuf::from));
            // This process' own metrics are stored without the collector.
            if one.identity == self.this_process {
                continue;
            }
            let Ok(file) = std::fs::symlink_metadata(&one.path) else { continue };
            let key = (file.dev(), file.ino());
            found_ids.insert(key);
            match self.processes.get_mut(&key) {
                Some(known) if is_same_process(&known.identity, &one.identity) => {
                    known.update_state(one.state, now)
                }
                // The file was removed and its inode reused: its last values are reported first.
                Some(known) if known.is_open() => _ = known.report_exit(now.saturating_sub(1)),
                _ => self.add(key, one, now),
            }
        }
        for (key, process) in &mut self.processes {
            if !found_ids.contains(key) || process.is_replaced() {
                process.report_exit(now);
            }
        }
        self.processes.retain(|key, process| found_ids.contains(key) || process.is_open());
        self.has_scanned = true;
        if self.last_cleanup.is_none_or(|swept| swept.elapsed() >= CLEANUP_INTERVAL) {
            self.last_cleanup = Some(Instant::now());
            folders.iter().filter(|folder| is_own_folder(folder)).for_each(|folder| {
                shm::remove_expired(folder, shm::FileRetention::default());
            });
        }
    }

    fn add(&mut self, key: (u64, u64), found: shm::MetricsFile, now: i64) {
        let open = self.processes.values().filter(|process| process.is_open()).count();
        if open >= PROCESSES_MAX {
            return self.dropped[0].add(1);
        }
        let state = found.state;
        let mut process = match TrackedProcess::new(found, &self.this_process, now) {
            Ok(process) => process,
            Err(error) => return self.record_read_error(&error),
        };
        // An earlier file with the same labels ends where this one starts, so the first reading of
        // this one counts whole.
        for earlier in self.processes.values_mut().filter(|it| it.labels == process.labels) {
            let by = process.start.unwrap_or(now).min(now.saturating_sub(1));
            let over = earlier.report_exit(by);
            process.start = process.start.map(|start| start.max(over));
        }
        process.update_state(state, now);
        if !self.has_scanned && state.has_exited() && process.is_topdeck() {
            // An earlier topdeck stored its own metrics itself.
            process.skip();
        }
        self.processes.insert(key, process);
    }

    fn record_read_error(&mut self, error: &shm::Error) {
        self.read_errors.add(1);
        let text = error.to_string();
        if self.warned.len() < WARNINGS_MAX && self.warned.insert(text.clone()) {
            self.pending_warnings.push(format!("metrics file skipped: {text}"));
        }
    }
}

/// Whether a file still belongs to the same process. Files of other formats do not contain a start
/// time: it is known only while the process runs.
fn is_same_process(known: &ProcessIdentity, now: &ProcessIdentity) -> bool {
    *known == *now || *now == ProcessIdentity { start_ticks: 0, ..*known }
}

/// Whether the directory belongs to this user; other users remove their own files.
fn is_own_folder(folder: &std::path::Path) -> bool {
    let owner = std::fs::symlink_metadata(folder).map(|found| found.uid());
    owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
}
