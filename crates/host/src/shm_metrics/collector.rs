//! Shm collector: discovery, assignment to series, scrape, final scrape after exit.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use disk::FileError;
use intake::{EventCounter, Meter};
use shm::ProcessIdentity;

use crate::cgroup_owner::CgroupOwners;
use crate::metrics;
use crate::shm_metrics::exit_totals::ExitTotals;
use crate::shm_metrics::generation_file::GenerationFile;
use crate::shm_metrics::generation_table::{FileId, GenerationTable, ProgramName, SeriesShare};
use crate::shm_metrics::rows::{LastReported, MetricDescriptor, SeriesContext, ShmRowWriter};
use crate::shm_metrics::running_processes::{RunningProcess, RunningProcesses};
use crate::shm_metrics::tracked_process::{self, TrackedProcess};

/// Limit of metrics files; the latest are read.
const PROCESSES_MAX: usize = 1_000;
/// A scan for processes costs some microseconds per process of the host. It runs at every scrape,
/// but at most for this part of the time; yet often enough to find the file of an exited process
/// before it is removed after a minute.
const SCAN_SHARE: u32 = 100;
const SCAN_INTERVAL_MAX: Duration = Duration::from_secs(20);
/// Interval of the cleanup of files of exited processes.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(30);
/// Limit of warnings, of files that cannot be read and of programs above their limit, once each.
const WARNINGS_MAX: usize = 100;
/// Rows of a sum may end this long after now: the batches of one scrape follow each other by a
/// nanosecond. If the clock was set back farther, exited processes wait.
const CLOCK_TOLERANCE_NS: i64 = 1_000_000_000;
/// Running processes of a program that hold no generation because of the limit.
const ABOVE_LIMIT: &str = "process_above_limit";

/// What is collected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectorOptions {
    /// Whether the metrics of other topdecks are collected.
    pub(crate) with_topdecks: bool,
    /// Maximum number of generations per program.
    pub(crate) generations_max: u32,
    /// A process that exits earlier after its start, in nanoseconds, is only part of a sum.
    pub(crate) short_lived_ns: i64,
}

/// Collector of metrics in shared memory.
#[derive(Debug)]
pub(crate) struct ShmCollector {
    this_process: ProcessIdentity,
    options: CollectorOptions,
    processes: HashMap<FileId, TrackedProcess>,
    pub(crate) table: GenerationTable,
    file: GenerationFile,
    /// Programs above the limit of generations, and their processes without one; a program stays
    /// with 0 for one scrape.
    above_limit: HashMap<ProgramName, u64>,
    live: RunningProcesses,
    owners: CgroupOwners,
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

/// Values of the label `reason` of what is dropped.
const DROP_REASONS: [&str; 4] = ["processes", "series", "rejected", "unknown"];

impl ShmCollector {
    pub(crate) fn new(
        meter: &Meter,
        options: CollectorOptions,
        (file, warning): (GenerationFile, Option<String>),
        live: RunningProcesses,
    ) -> ShmCollector {
        let open = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&open);
        let about = "metrics files read";
        // Relaxed: the number publishes no other data.
        meter.gauge("topdeck_shm_files", about, &[], move || seen.load(Ordering::Relaxed) as f64);
        let about = "processes and rows dropped by `reason`: processes (file limit), series (row \
                     limit), rejected (invalid rows), unknown (unsupported values)";
        let left_out = DROP_REASONS
            .map(|reason| meter.counter("topdeck_shm_dropped_total", about, &[("reason", reason)]));
        let about = "failed reads of metrics files";
        ShmCollector {
            this_process: ProcessIdentity::current(),
            options,
            processes: HashMap::new(),
            table: file.table(),
            file,
            above_limit: HashMap::new(),
            live,
            owners: CgroupOwners::default(),
            next_scan: Instant::now(),
            has_scanned: false,
            last_cleanup: None,
            warned: HashSet::new(),
            pending_warnings: warning.into_iter().collect(),
            open,
            read_errors: meter.counter("topdeck_shm_read_errors_total", about, &[]),
            dropped: left_out,
        }
    }

    /// Makes the next scrape scan for processes, whatever the last scan cost.
    pub(crate) fn rescan_now(&mut self) {
        self.next_scan = Instant::now();
    }

    /// Scans for processes if that is due, and assigns them to series. Durable on return: rows that
    /// depend on an assignment may be appended.
    pub(crate) fn prepare(&mut self, now: i64) -> Result<(), FileError> {
        if Instant::now() >= self.next_scan {
            let began = Instant::now();
            self.scan(now);
            self.next_scan = began + (began.elapsed() * SCAN_SHARE).min(SCAN_INTERVAL_MAX);
        }
        self.file.save(&self.table)
    }

    /// Saves what the last scrape changed.
    pub(crate) fn save(&mut self) -> Result<(), FileError> {
        self.file.save(&self.table)
    }

    /// Reports all metrics of all processes that hold a generation.
    pub(crate) fn read(&mut self, out: &mut ShmRowWriter<'_>) {
        let (mut unknown, mut failed) = (0, Vec::new());
        for (file, process) in &mut self.processes {
            if !matches!(process.share(), Some(SeriesShare::Generation(_))) {
                continue;
            }
            match process.read(out, self.options.with_topdecks) {
                Ok(count) => unknown += count,
                Err(error) => failed.push(error),
            }
            if !process.is_open() {
                // It is a topdeck, which was not known yet.
                self.table.release(*file, out.end);
            }
        }
        failed.iter().for_each(|error| self.record_read_error(error));
        let [_, series, refused, unknown_values] = &self.dropped;
        series.add(out.dropped);
        refused.add(out.rejected);
        unknown_values.add(unknown);
        self.report_collector(out);
        let open = self.processes.values().filter(|process| process.is_open()).count();
        self.open.store(open, Ordering::Relaxed);
    }

    /// Reports warnings, and programs above the limit of generations.
    fn report_collector(&self, out: &mut ShmRowWriter<'_>) {
        let (start, end, mut told) = (out.end, out.end, LastReported::new());
        let mut report = |labels: &[(String, String)], text: Option<&str>, number: f64| {
            let reported = &mut told;
            let mut whose = SeriesContext { labels, start, end, reported, is_final: false };
            match text {
                Some(text) => {
                    let labels = [("collector".to_owned(), "shm".to_owned())];
                    let name = metrics::COLLECTOR_WARNING.name;
                    let named = MetricDescriptor { name, unit: "", labels: &labels };
                    out.text(&mut whose, named, text.to_owned());
                }
                None => {
                    let named = MetricDescriptor { name: ABOVE_LIMIT, unit: "", labels: &[] };
                    out.gauge(&mut whose, named, number);
                }
            }
        };
        self.pending_warnings.iter().for_each(|note| report(&[], Some(note), 0.0));
        for (program, count) in &self.above_limit {
            let labels = tracked_process::labels(program, SeriesShare::Other);
            report(&labels, None, *count as f64);
        }
    }

    /// Commits the last scrape: it is durable.
    pub(crate) fn commit(&mut self) {
        for (file, process) in &mut self.processes {
            if let Some(end) = process.commit() {
                self.table.release(*file, end);
            }
        }
        self.pending_warnings.clear();
        self.above_limit.retain(|_, count| *count > 0);
    }

    /// Reverts the last scrape: it was not accepted.
    pub(crate) fn rollback(&mut self) {
        self.processes.values_mut().for_each(TrackedProcess::rollback);
    }

    /// Sums of the final values of at most `count` exited processes, as the pending batch of the
    /// table, and the end of its rows; `None` if there are none, or the clock was set far back
    /// before the last sum. Durable on return.
    pub(crate) fn begin_sums(
        &mut self,
        count: usize,
        now: i64,
    ) -> Result<Option<(ExitTotals, i64)>, FileError> {
        let (mut sums, mut files, mut failed) =
            (ExitTotals::default(), BTreeSet::new(), Vec::new());
        let mut end = now;
        for (file, process) in &mut self.processes {
            let Some(share @ (SeriesShare::Short | SeriesShare::Other)) = process.share() else {
                continue;
            };
            let last_end = self.table.end(&process.program, share).unwrap_or(i64::MIN);
            let is_set_back = last_end.saturating_sub(now) > CLOCK_TOLERANCE_NS;
            if !process.is_open() || is_set_back || files.len() >= count {
                continue;
            }
            // The last sum may be of this scrape: an earlier batch of it.
            end = end.max(last_end.saturating_add(1));
            if let Err(error) = process.add_to(&mut sums, last_end) {
                failed.push(error);
            }
            files.insert(*file);
        }
        failed.iter().for_each(|error| self.record_read_error(error));
        if files.is_empty() {
            return Ok(None);
        }
        self.table.begin_batch(files, end);
        self.file.save(&self.table).inspect_err(|_| self.table.settle(false))?;
        Ok(Some((sums, end)))
    }

    /// Ends the pending batch of sums: it was accepted, or it was not.
    pub(crate) fn settle_sums(&mut self, is_accepted: bool, rejected: u64) {
        let files = self.table.pending.clone().map(|(files, _)| files).unwrap_or_default();
        self.table.settle(is_accepted);
        if is_accepted {
            self.dropped[2].add(rejected);
            for file in files {
                if let Some(process) = self.processes.get_mut(&file) {
                    process.skip();
                }
            }
        }
    }

    /// Scans for processes.
    fn scan(&mut self, now: i64) {
        let (found, problems) = shm::list_metrics_files();
        problems.iter().for_each(|problem| self.record_read_error(problem));
        let mut found_ids = HashSet::new();
        let mut dirs = HashSet::new();
        // Earliest first, so that the earlier of two files of one process ends before the later
        // starts.
        for one in found.into_iter().rev() {
            dirs.extend(one.path.parent().map(PathBuf::from));
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
            let is_found = found_ids.contains(key);
            if process.is_missing(!is_found, now) || process.is_replaced() {
                process.report_exit(now);
            }
        }
        self.processes.retain(|key, process| found_ids.contains(key) || process.is_open());
        let programs = self.processes.values().map(|process| &process.program).collect();
        let is_there =
            |file: &FileId| found_ids.contains(file) || self.processes.contains_key(file);
        self.table.retain_files(is_there, &programs, now);
        self.assign(now);
        self.has_scanned = true;
        if self.last_cleanup.is_none_or(|swept| swept.elapsed() >= CLEANUP_INTERVAL) {
            self.last_cleanup = Some(Instant::now());
            dirs.iter().filter(|dir| is_own_dir(dir)).for_each(|dir| {
                shm::remove_expired(dir, shm::FileRetention::default());
            });
        }
    }

    fn add(&mut self, key: FileId, found: shm::MetricsFile, now: i64) {
        let open = self.processes.values().filter(|process| process.is_open()).count();
        if open >= PROCESSES_MAX {
            return self.dropped[0].add(1);
        }
        let state = found.state;
        let mut process = match TrackedProcess::new(found, now) {
            Ok(process) => process,
            Err(error) => return self.record_read_error(&error),
        };
        // An earlier file of the same process ends where this one starts.
        let is_earlier = |it: &&mut TrackedProcess| {
            it.identity == process.identity && it.program == process.program
        };
        for earlier in self.processes.values_mut().filter(is_earlier) {
            earlier.report_exit(process.start.unwrap_or(now).min(now.saturating_sub(1)));
        }
        process.update_state(state, now);
        if let Some(pid) = process.live_pid() {
            process.set_owner(self.owners.of_process(pid));
        }
        match self.table.processes.get(&key) {
            Some(known) if is_same_process(&known.identity, &process.identity) => {
                process.assign(known.share, known.start);
                if known.is_done {
                    process.skip();
                }
            }
            // The file of another process had this inode.
            Some(_) => {
                self.table.release(key, now.saturating_sub(1));
                self.table.processes.remove(&key);
            }
            None => {}
        }
        if !self.has_scanned && state.has_ended() && process.is_topdeck() {
            // An earlier topdeck stored its own metrics itself.
            process.skip();
        }
        self.processes.insert(key, process);
    }

    /// Assigns processes to series: the earliest first.
    fn assign(&mut self, now: i64) {
        let CollectorOptions { with_topdecks, generations_max, short_lived_ns } = self.options;
        self.above_limit.values_mut().for_each(|count| *count = 0);
        let mut waiting: Vec<(&FileId, &mut TrackedProcess)> = self
            .processes
            .iter_mut()
            .filter(|(_, process)| process.is_open() && process.share().is_none())
            .collect();
        model::sort::by_key(&mut waiting, |(file, process)| (process.start, **file));
        let mut warnings = Vec::new();
        for (&file, process) in waiting {
            let is_short = process.age(now).is_some_and(|age| age < short_lived_ns);
            let has_exited = process.exited_at().is_some();
            if is_short && !has_exited {
                continue;
            }
            if !with_topdecks && process.is_topdeck() {
                process.skip();
                continue;
            }
            let (identity, start) = (process.identity, process.start.unwrap_or(now));
            let (table, program) = (&mut self.table, &process.program);
            let free = match is_short {
                true => None,
                false => table.assign_generation(file, identity, program, start, generations_max),
            };
            match free {
                Some((share, start)) => process.assign(share, start),
                None if has_exited => {
                    let share = if is_short { SeriesShare::Short } else { SeriesShare::Other };
                    table.assign_sum(file, identity, program, share, start);
                    process.assign(share, start);
                }
                None => {
                    *self.above_limit.entry(program.clone()).or_default() += 1;
                    warnings.push(limit_warning(&program.process, generations_max));
                }
            }
        }
        warnings.into_iter().for_each(|text| self.warn(text));
        let live = self.processes.values().filter(|process| process.is_open());
        let live = live.filter_map(|process| {
            let ProgramName { process: program, format } = process.program.clone();
            let generation = process.share().map(SeriesShare::label);
            Some((process.live_pid()?, RunningProcess { program, format, generation }))
        });
        self.live.set(live.collect());
    }

    fn record_read_error(&mut self, error: &shm::Error) {
        self.read_errors.add(1);
        self.warn(format!("metrics file skipped: {error}"));
    }

    fn warn(&mut self, text: String) {
        if self.warned.len() < WARNINGS_MAX && self.warned.insert(text.clone()) {
            self.pending_warnings.push(text);
        }
    }
}

fn limit_warning(process: &str, limit: u32) -> String {
    format!(
        "cannot store the processes of {process} apart: generations limit ({limit}) reached; the \
         others are added to generation \"other\" when they exit; raise [host] shm_generations"
    )
}

/// Whether a file still belongs to the same process. Files of other formats do not contain a start
/// time: it is known only while the process runs.
fn is_same_process(known: &ProcessIdentity, now: &ProcessIdentity) -> bool {
    *known == *now || *now == ProcessIdentity { start_ticks: 0, ..*known }
}

/// Whether the directory belongs to this user; other users remove their own files.
fn is_own_dir(dir: &std::path::Path) -> bool {
    let owner = std::fs::symlink_metadata(dir).map(|found| found.uid());
    owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
}
