//! All processes that show something: found, read each second, told a last time when they are over, and let go.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use intake::{Counter, Meter};
use shm::Identity;

use crate::own;
use crate::programs::process::Process;
use crate::programs::rows::{Named, Out, Told, Whose};

/// Files of metrics that are read at the most; the latest.
const PROCESSES_MAX: usize = 1_000;
/// Looking for processes costs some microseconds for each process of the host: it is done each time, but as rarely as is needed to
/// take at most this part of the time; yet before the file of a process that ended is removed, which is after a minute.
const LOOK_SHARE: u32 = 100;
const LOOK_EVERY_MAX: Duration = Duration::from_secs(20);
/// How often files are removed of processes that are long gone.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Files about which it is said that they cannot be read, at the most; once each.
const NOTES_MAX: usize = 100;

/// All that show something.
#[derive(Debug)]
pub(crate) struct Collector {
    own: Identity,
    /// By the device and inode of the file.
    processes: HashMap<(u64, u64), Process>,
    look_at: Instant,
    has_looked: bool,
    swept: Option<Instant>,
    noted: HashSet<String>,
    /// Not told yet.
    notes: Vec<String>,
    open: Arc<AtomicUsize>,
    unreadable: Counter,
    left_out: [Counter; 4],
}

/// Why something is left out, as the label has it.
const CAUSES: [&str; 4] = ["processes", "series", "refused", "unknown"];

impl Collector {
    pub(crate) fn new(meter: &Meter) -> Collector {
        let open = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&open);
        let about = "files of metrics of processes that are read";
        // Relaxed: a number to look at.
        meter.gauge("topdeck_programs_files", about, &[], move || {
            seen.load(Ordering::Relaxed) as f64
        });
        let about = "readings of what was left out: files beyond the limit of processes, rows beyond the limit of series, rows \
                     that cannot be stored, values that nobody knows";
        let left_out = CAUSES.map(|cause| {
            meter.counter("topdeck_programs_left_out_total", about, &[("cause", cause)])
        });
        let about = "readings of files of metrics that failed";
        Collector {
            own: Identity::own(),
            processes: HashMap::new(),
            look_at: Instant::now(),
            has_looked: false,
            swept: None,
            noted: HashSet::new(),
            notes: Vec::new(),
            open,
            unreadable: meter.counter("topdeck_programs_unreadable_total", about, &[]),
            left_out,
        }
    }

    /// The next reading looks for processes, however long that takes.
    pub(crate) fn look_now(&mut self) {
        self.look_at = Instant::now();
    }

    /// Tells all there is.
    pub(crate) fn read(&mut self, out: &mut Out<'_>) {
        if Instant::now() >= self.look_at {
            let began = Instant::now();
            self.look(out.end);
            self.look_at = began + (began.elapsed() * LOOK_SHARE).min(LOOK_EVERY_MAX);
        }
        let (mut unknown, mut failed) = (0, Vec::new());
        for process in self.processes.values_mut() {
            match process.read(out) {
                Ok(count) => unknown += count,
                Err(error) => failed.push(error),
            }
        }
        failed.iter().for_each(|error| self.cannot_read(error));
        let [_, series, refused, unknown_values] = &self.left_out;
        series.add(out.left_out);
        refused.add(out.refused);
        unknown_values.add(unknown);
        let (start, end, mut told) = (out.end, out.end, Told::new());
        for note in &self.notes {
            let labels = [("about".to_owned(), "programs".to_owned())];
            let mut whose = Whose { labels: &[], start, end, told: &mut told };
            let named = Named { name: own::NOTE.name, unit: "", labels: &labels };
            out.text(&mut whose, named, note.clone());
        }
        let open = self.processes.values().filter(|process| process.is_open()).count();
        self.open.store(open, Ordering::Relaxed);
    }

    /// What was told is safe.
    pub(crate) fn keep(&mut self) {
        self.processes.values_mut().for_each(Process::keep);
        self.notes.clear();
    }

    /// What was told was not taken.
    pub(crate) fn tell_again(&mut self) {
        self.processes.values_mut().for_each(Process::tell_again);
    }

    /// Looks who is there.
    fn look(&mut self, now: i64) {
        let (found, problems) = shm::processes();
        problems.iter().for_each(|problem| self.cannot_read(problem));
        let mut seen = HashSet::new();
        let mut folders = HashSet::new();
        // The earliest first, so that of two files of one process the earlier is over before the later begins.
        for one in found.into_iter().rev() {
            folders.extend(one.path.parent().map(PathBuf::from));
            // What we measure of ourselves is told as such.
            if one.identity == self.own {
                continue;
            }
            let Ok(file) = std::fs::symlink_metadata(&one.path) else { continue };
            let key = (file.dev(), file.ino());
            seen.insert(key);
            match self.processes.get_mut(&key) {
                Some(known) if is_same(&known.identity, &one.identity) => known.note(one.fate, now),
                // A file that was removed, whose number another one has got: its last values are told first.
                Some(known) if known.is_open() => _ = known.end(now.saturating_sub(1)),
                _ => self.add(key, one, now),
            }
        }
        for (key, process) in &mut self.processes {
            if !seen.contains(key) || process.is_replaced() {
                process.end(now);
            }
        }
        self.processes.retain(|key, process| seen.contains(key) || process.is_open());
        self.has_looked = true;
        if self.swept.is_none_or(|swept| swept.elapsed() >= SWEEP_EVERY) {
            self.swept = Some(Instant::now());
            folders.iter().filter(|folder| is_ours(folder)).for_each(|folder| {
                shm::sweep(folder, shm::Limits::default());
            });
        }
    }

    fn add(&mut self, key: (u64, u64), found: shm::Found, now: i64) {
        let open = self.processes.values().filter(|process| process.is_open()).count();
        if open >= PROCESSES_MAX {
            return self.left_out[0].add(1);
        }
        let fate = found.fate;
        let mut process = match Process::new(found, &self.own, now) {
            Ok(process) => process,
            Err(error) => return self.cannot_read(&error),
        };
        // An earlier file of what has the same labels is over when this one begins, and this one begins when that is over: so its
        // first reading counts whole.
        for earlier in self.processes.values_mut().filter(|it| it.labels == process.labels) {
            let by = process.start.unwrap_or(now).min(now.saturating_sub(1));
            let over = earlier.end(by);
            process.start = process.start.map(|start| start.max(over));
        }
        process.note(fate, now);
        if !self.has_looked && fate.is_gone() && process.is_topdeck() {
            // One that ran before us told itself what it measured.
            process.pass_over();
        }
        self.processes.insert(key, process);
    }

    fn cannot_read(&mut self, error: &shm::Error) {
        self.unreadable.add(1);
        let text = error.to_string();
        if self.noted.len() < NOTES_MAX && self.noted.insert(text.clone()) {
            self.notes.push(format!("a file of metrics is left out: {text}"));
        }
    }
}

/// Whether a file is still of the process that it was of. Files of other formats do not say when theirs began: that is known as long as
/// it runs.
fn is_same(known: &Identity, now: &Identity) -> bool {
    *known == *now || *now == Identity { start_ticks: 0, ..*known }
}

/// Whether the folder belongs to us: others remove their own.
fn is_ours(folder: &std::path::Path) -> bool {
    let owner = std::fs::symlink_metadata(folder).map(|found| found.uid());
    owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
}
