//! History of alerts: each change of state is a line of the file `alert-history` in the data
//! directory. A full file becomes `alert-history-old`, in place of the one before.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use disk::{Disk, File, FileError, IoContext, OpenMode, read_file};

use crate::history_entry::HistoryEntry;

/// Name in the data directory.
const FILE_NAME: &str = "alert-history";
/// Name of the file before.
const OLD_NAME: &str = "alert-history-old";
/// First line.
const TITLE: &str = "topdeck alert history 1\n";
/// Size from which a new file is begun: 40,000 changes of 200 bytes. A search reads two files.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Newest changes in memory, for clients that follow.
const RECENT_MAX: usize = 1000;

/// Changes of state, in files and in memory.
pub(crate) struct AlertHistory {
    disk: Arc<dyn Disk>,
    data: PathBuf,
    file_bytes_max: u64,
    state: Mutex<HistoryState>,
}

struct HistoryState {
    /// `None` after an error: the next change opens it again.
    file: Option<Box<dyn File>>,
    bytes: u64,
    next_number: u64,
    recent: VecDeque<Arc<HistoryEntry>>,
}

/// Changes after a number.
#[derive(Debug, Default)]
pub(crate) struct HistoryTail {
    /// By number.
    pub(crate) entries: Vec<Arc<HistoryEntry>>,
    /// Changes before them that are not kept.
    pub(crate) missed: u64,
    /// Number of the newest change; 0 without one.
    pub(crate) newest: u64,
}

impl fmt::Debug for AlertHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertHistory").field("data", &self.data).finish_non_exhaustive()
    }
}

impl AlertHistory {
    /// Opens the history of a data directory. What cannot be read is kept under another name, and
    /// the problem is returned.
    pub(crate) fn open(disk: Arc<dyn Disk>, data: &Path) -> (AlertHistory, Option<String>) {
        AlertHistory::with_limit(disk, data, FILE_BYTES_MAX)
    }

    fn with_limit(
        disk: Arc<dyn Disk>,
        data: &Path,
        file_bytes_max: u64,
    ) -> (AlertHistory, Option<String>) {
        let mut problems = Vec::new();
        let mut entries = Vec::new();
        for path in [data.join(OLD_NAME), data.join(FILE_NAME)] {
            match read_entries(&*disk, &path) {
                Ok((found, 0)) => entries.extend(found),
                Ok((found, damaged)) => {
                    entries.extend(found);
                    let name = path.display();
                    problems.push(format!("{name}: {damaged} damaged lines are left out"));
                }
                Err(cause) => {
                    let kept = path.with_added_extension("damaged");
                    let kept = match disk.rename(&path, &kept) {
                        Ok(()) => format!(", kept as {}", kept.display()),
                        Err(_) => String::new(),
                    };
                    problems.push(format!("cannot read the history of alerts: {cause}{kept}"));
                }
            }
        }
        let newest = entries.iter().map(|entry| entry.number).max().unwrap_or(0);
        let first = entries.len().saturating_sub(RECENT_MAX);
        let state = HistoryState {
            file: None,
            bytes: 0,
            next_number: newest + 1,
            recent: entries.drain(first..).map(Arc::new).collect(),
        };
        let data = data.to_owned();
        let history = AlertHistory { disk, data, file_bytes_max, state: Mutex::new(state) };
        (history, (!problems.is_empty()).then(|| problems.join("; ")))
    }

    /// Adds changes, whose numbers are assigned, durably. If they cannot be stored, they are kept
    /// in memory only.
    pub(crate) fn append(&self, mut entries: Vec<HistoryEntry>) -> Result<(), String> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut state = self.lock();
        let mut text = String::new();
        for entry in &mut entries {
            entry.number = state.next_number;
            state.next_number += 1;
            text.push_str(&entry.encode());
        }
        state.recent.extend(entries.into_iter().map(Arc::new));
        let surplus = state.recent.len().saturating_sub(RECENT_MAX);
        state.recent.drain(..surplus);
        // No file becomes larger than what is read.
        let part_bytes = usize::try_from(self.file_bytes_max).unwrap_or(usize::MAX);
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let mut fits = rest.as_bytes()[..rest.len().min(part_bytes)].iter();
            let end = fits.rposition(|byte| *byte == b'\n').or_else(|| rest.find('\n'));
            let (part, later) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            self.write(&mut state, part.as_bytes())
                .map_err(|error| format!("cannot store the history of alerts: {error}"))?;
            rest = later;
        }
        Ok(())
    }

    fn write(&self, state: &mut HistoryState, text: &[u8]) -> Result<(), FileError> {
        let path = self.data.join(FILE_NAME);
        let (file, len) = match state.file.take() {
            Some(file) => (file, state.bytes),
            None => self.open_file(&path)?,
        };
        let is_full = len + text.len() as u64 > self.file_bytes_max && len > TITLE.len() as u64;
        let (file, len) = match is_full {
            false => (file, len),
            true => {
                drop(file);
                let old = self.data.join(OLD_NAME);
                self.disk.rename(&path, &old).io_context("rename", &path)?;
                // Before the new name: a crash must not leave only that.
                self.disk.sync_dir(&self.data).io_context("fsync directory", &self.data)?;
                self.open_file(&path)?
            }
        };
        file.write_all_at(text, len).io_context("write", &path)?;
        file.sync().io_context("fsync", &path)?;
        state.bytes = len + text.len() as u64;
        state.file = Some(file);
        Ok(())
    }

    /// The file and its length up to the last whole line: a kill may have cut the rest.
    fn open_file(&self, path: &Path) -> Result<(Box<dyn File>, u64), FileError> {
        let bytes = read_file(&*self.disk, path, u64::MAX)?.unwrap_or_default();
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let file = self.disk.open(path, OpenMode::Create).io_context("open", path)?;
        file.set_len(whole as u64).io_context("truncate", path)?;
        if whole > 0 {
            return Ok((file, whole as u64));
        }
        file.write_all_at(TITLE.as_bytes(), 0).io_context("write", path)?;
        self.disk.sync_dir(&self.data).io_context("fsync directory", &self.data)?;
        Ok((file, TITLE.len() as u64))
    }

    /// All changes, the oldest first.
    pub(crate) fn read(&self) -> Result<Vec<Arc<HistoryEntry>>, String> {
        // No file is begun between the two.
        let (texts, recent) = {
            let state = self.lock();
            let read = |name| read_text(&*self.disk, &self.data.join(name));
            let texts = [OLD_NAME, FILE_NAME].map(read);
            (texts, state.recent.clone())
        };
        let mut entries: Vec<Arc<HistoryEntry>> = Vec::new();
        for text in texts {
            let (found, _) = decode_lines(&text?)?;
            entries.extend(found.into_iter().map(Arc::new));
        }
        // Those that could not be stored are in memory only.
        let known: std::collections::HashSet<u64> =
            entries.iter().map(|entry| entry.number).collect();
        entries.extend(recent.into_iter().filter(|entry| !known.contains(&entry.number)));
        model::sort::by_key(&mut entries, |entry| entry.number);
        Ok(entries)
    }

    /// Changes after a number, of those in memory.
    pub(crate) fn after(&self, number: u64) -> HistoryTail {
        let state = self.lock();
        let newest = state.next_number - 1;
        let entries: Vec<_> =
            state.recent.iter().filter(|entry| entry.number > number).cloned().collect();
        let first = entries.first().map_or(newest + 1, |entry| entry.number);
        // A client may know the numbers of another data directory.
        let missed = first.saturating_sub(number.saturating_add(1));
        HistoryTail { entries, missed, newest }
    }

    /// Number of the newest change; 0 without one.
    pub(crate) fn newest(&self) -> u64 {
        self.lock().next_number - 1
    }

    /// A panic leaves the state usable: at worst, numbers are left out.
    fn lock(&self) -> MutexGuard<'_, HistoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_text(disk: &dyn Disk, path: &Path) -> Result<String, String> {
    let bytes = read_file(disk, path, 2 * FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    // A damaged byte spoils its line only.
    Ok(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
}

/// Entries of a file, and the number of damaged lines.
fn read_entries(disk: &dyn Disk, path: &Path) -> Result<(Vec<HistoryEntry>, usize), String> {
    decode_lines(&read_text(disk, path)?)
}

/// Entries of a text, and the number of damaged lines. A last line that was cut is none of them.
pub(crate) fn decode_lines(text: &str) -> Result<(Vec<HistoryEntry>, usize), String> {
    // The file is missing, or a kill cut its first line.
    if TITLE.starts_with(text) {
        return Ok((Vec::new(), 0));
    }
    let Some(lines) = text.strip_prefix(TITLE) else {
        let found: String = text.lines().next().unwrap_or_default().chars().take(40).collect();
        return Err(format!("found {found:?}, expected {:?}", TITLE.trim_end()));
    };
    let whole = lines.rfind('\n').map_or("", |at| &lines[..at]);
    let (mut entries, mut damaged) = (Vec::new(), 0);
    for line in whole.lines() {
        match HistoryEntry::decode(line) {
            Some(entry) => entries.push(entry),
            None => damaged += 1,
        }
    }
    Ok((entries, damaged))
}

#[cfg(test)]
mod tests;
