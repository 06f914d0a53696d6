//! Acknowledged damage: a file in the journal's directory, with a line for each acknowledgement.
//!
//! ```text
//! JOURNAL TIME FOUND RECORDS LOCATION NOTE
//! ```
//! JOURNAL is the id of the journal, in hex: a new journal has the same positions again. Times are
//! ns since the Unix epoch; texts are escaped words, an empty note is `-`. The file is replaced
//! atomically and durably before the acknowledgement takes effect. No line is ever removed,
//! unreadable ones included.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use disk::Disk;
use journal::supervisor::{DamageAcknowledgement, Supervisor};
use model::text_file::{escape_word, split_words, unescape_word};

use crate::error::{Error, Result};

/// File name, in the journal's directory.
const FILE: &str = "acknowledged-damage";
/// Maximum number of lines: years of daily acknowledgements. Beyond it, damage stays reported.
const LINES_MAX: usize = 4096;
/// Maximum length of a note, in bytes.
const NOTE_BYTES_MAX: usize = 1024;
/// Maximum file size in bytes: `LINES_MAX` lines with the longest notes, escaped.
const FILE_BYTES_MAX: u64 = 32 << 20;

#[derive(Debug)]
pub(crate) struct AcknowledgedDamage {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    journal: u128,
    lines: Mutex<Vec<String>>,
}

impl AcknowledgedDamage {
    /// Loads the acknowledgements of a journal into its supervisor. Unreadable lines are skipped
    /// and reported in `notes`.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        (dir, journal): (&Path, u128),
        supervisor: &Supervisor,
        notes: &mut Vec<String>,
    ) -> Result<AcknowledgedDamage> {
        let path = dir.join(FILE);
        let bytes = disk::read_file(&*disk, &path, FILE_BYTES_MAX)?.unwrap_or_default();
        let lines: Vec<String> =
            String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect();
        for (at, line) in lines.iter().enumerate() {
            match parse(line) {
                Some((of, acknowledgement)) if of == journal => {
                    supervisor.acknowledge([acknowledgement]);
                }
                Some(_) => {}
                None => notes.push(format!("{}: cannot parse line {}", path.display(), at + 1)),
            }
        }
        Ok(AcknowledgedDamage { disk, path, journal, lines: Mutex::new(lines) })
    }

    /// Acknowledges what is reported and not acknowledged yet: all of it, or one location. Returns
    /// the new acknowledgements, durably stored.
    pub(crate) fn acknowledge(
        &self,
        supervisor: &Supervisor,
        location: Option<&str>,
        note: &str,
    ) -> Result<Vec<DamageAcknowledgement>> {
        if note.len() > NOTE_BYTES_MAX {
            return Err(Error::Rejected(format!(
                "note size limit ({NOTE_BYTES_MAX} bytes) exceeded: {} bytes",
                note.len()
            )));
        }
        // Held until the file is written: concurrent requests acknowledge one after the other.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut due = supervisor.acknowledgements_due(note);
        due.retain(|it| location.is_none_or(|location| it.location == location));
        if lines.len() + due.len() > LINES_MAX {
            return Err(Error::Rejected(format!(
                "acknowledgements limit ({LINES_MAX}) reached in {}; repair the journal",
                self.path.display()
            )));
        }
        if due.is_empty() {
            return Ok(due);
        }
        let mut with_new = lines.clone();
        with_new.extend(due.iter().map(|it| line(self.journal, it)));
        let text: String = with_new.iter().map(|line| format!("{line}\n")).collect();
        disk::replace_file(&*self.disk, &self.path, text.as_bytes())?;
        *lines = with_new;
        supervisor.acknowledge(due.iter().cloned());
        Ok(due)
    }
}

fn line(journal: u128, it: &DamageAcknowledgement) -> String {
    let note = match it.note.as_str() {
        "" => "-".to_owned(),
        "-" => "%2D".to_owned(),
        note => escape_word(note),
    };
    let DamageAcknowledgement { location, records, found_at, time, .. } = it;
    format!("{journal:032x} {time} {found_at} {records} {} {note}", escape_word(location))
}

fn parse(line: &str) -> Option<(u128, DamageAcknowledgement)> {
    let [journal, time, found_at, records, location, note] = split_words(line)?;
    let acknowledgement = DamageAcknowledgement {
        location: unescape_word(location)?,
        records: records.parse().ok()?,
        found_at: found_at.parse().ok()?,
        time: time.parse().ok()?,
        note: if note == "-" { String::new() } else { unescape_word(note)? },
    };
    Some((u128::from_str_radix(journal, 16).ok()?, acknowledgement))
}

#[cfg(test)]
mod tests {
    use disk::OpenMode;
    use sim::SimDisk;

    use super::*;

    const DIR: &str = "/journal";
    const LOCATION: &str = "records 3..4 of the journal";

    fn open(disk: &Arc<dyn Disk>, journal: u128) -> (AcknowledgedDamage, Supervisor, Vec<String>) {
        let (supervisor, mut notes) = (Supervisor::default(), Vec::new());
        let place = (Path::new(DIR), journal);
        let file =
            AcknowledgedDamage::open(Arc::clone(disk), place, &supervisor, &mut notes).unwrap();
        (file, supervisor, notes)
    }

    #[test]
    fn acknowledged_damage_stays_acknowledged_after_a_restart() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        disk.create_dir(Path::new(DIR)).unwrap();
        let (file, supervisor, _) = open(&disk, 7);
        assert_eq!(file.acknowledge(&supervisor, None, "").unwrap(), [], "nothing is reported");
        supervisor.report_damage(LOCATION.to_owned(), 1, "repair".to_owned());
        supervisor.report_damage("records 8..9 of the journal".to_owned(), 1, "repair".to_owned());
        let note = "disk replaced, 10 % lost";
        let new = file.acknowledge(&supervisor, Some(LOCATION), note).unwrap();
        assert_eq!((new.len(), &*new[0].location, &*new[0].note), (1, LOCATION, note));

        let (file, supervisor, notes) = open(&disk, 7);
        assert_eq!((supervisor.acknowledged(), notes), (new.clone(), vec![]));
        supervisor.report_damage(LOCATION.to_owned(), 1, "repair".to_owned());
        assert_eq!(file.acknowledge(&supervisor, None, "again").unwrap(), []);
        assert_eq!(supervisor.acknowledged(), new, "the first acknowledgement stays");
        assert_eq!(open(&disk, 8).1.acknowledged(), [], "another journal");
    }

    #[test]
    fn an_unreadable_line_is_reported_and_kept() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        disk.create_dir(Path::new(DIR)).unwrap();
        let path = Path::new(DIR).join(FILE);
        let written = disk.open(&path, OpenMode::Create).unwrap();
        written.write_all_at(b"no acknowledgement\n", 0).unwrap();
        let (file, supervisor, notes) = open(&disk, 7);
        assert_eq!(notes, ["/journal/acknowledged-damage: cannot parse line 1"]);
        supervisor.quarantine_permanently("record 5 of the journal", "a count overflows");
        assert_eq!(file.acknowledge(&supervisor, None, "-").unwrap().len(), 1);
        let text = disk::read_file(&*disk, &path, 1 << 10).unwrap().unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().next(), Some("no acknowledgement"));
        assert_eq!(open(&disk, 7).1.acknowledged()[0].note, "-");
    }
}
