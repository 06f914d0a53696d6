//! File of the generation table: text, one fact per line, replaced atomically.
//!
//! ```text
//! topdeck generations 1
//! batch EPOCH SEQUENCE              of the last batch of sums
//! pending END                       the batch after it was begun; END is the end of its rows
//! process DEVICE INODE BOOT PID NAMESPACE TICKS open|pending|done START SHARE PROGRAM FORMAT
//! end SHARE TIME PROGRAM FORMAT     end of the last row of a share that is not held
//! checksum CRC                      CRC-32C of all preceding lines, 8 hexadecimal digits
//! ```
//! Numbers are decimal, EPOCH and BOOT hexadecimal, times ns since the Unix epoch. SHARE is a value
//! of the label `generation`. PROGRAM and FORMAT are escaped words with `=` in front, because they
//! may be empty.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use disk::Disk;
use model::text_file::{checksum_line, escape_word, split_last_line, split_words, unescape_word};
use shm::ProcessIdentity;

use crate::shm_metrics::generation_table::{
    AssignedProcess, GenerationTable, ProgramName, SeriesShare,
};

/// File name, in the journal's directory.
const FILE: &str = "program-generations";
const TITLE: &str = "topdeck generations 1";
/// Maximum file size in bytes: more than all processes of a scrape take.
const BYTES_MAX: u64 = 16 << 20;

/// File of a generation table.
#[derive(Debug)]
pub(crate) struct GenerationFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// What the file contains.
    saved: GenerationTable,
}

impl GenerationFile {
    /// Loads the table of a journal. An unreadable file is as an empty one, with a warning.
    pub(crate) fn open(disk: Arc<dyn Disk>, journal: &Path) -> (GenerationFile, Option<String>) {
        let path = journal.join(FILE);
        let loaded = match disk::read_file(&*disk, &path, BYTES_MAX) {
            Ok(None) => Ok(GenerationTable::default()),
            Ok(Some(bytes)) => decode(&bytes).ok_or_else(|| "the file is damaged".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let (saved, warning) = match loaded {
            Ok(table) => (table, None),
            Err(cause) => {
                let path = path.display();
                let text = format!(
                    "cannot read {path}: {cause}; counts of programs that run may be repeated"
                );
                (GenerationTable::default(), Some(text))
            }
        };
        (GenerationFile { disk, path, saved }, warning)
    }

    /// The table as saved.
    pub(crate) fn table(&self) -> GenerationTable {
        self.saved.clone()
    }

    /// Replaces the file durably if the table has changed.
    pub(crate) fn save(&mut self, table: &GenerationTable) -> Result<(), disk::FileError> {
        if self.saved != *table {
            disk::replace_file(&*self.disk, &self.path, encode(table).as_bytes())?;
            self.saved.clone_from(table);
        }
        Ok(())
    }
}

fn encode(table: &GenerationTable) -> String {
    let mut out = format!("{TITLE}\nbatch {:x} {}\n", table.epoch, table.sequence);
    let (pending, end) = table.pending.clone().unzip();
    // Writing to a string does not fail.
    let _ = end.map(|end: i64| writeln!(out, "pending {end}"));
    let name = |program: &ProgramName| {
        format!("={} ={}", escape_word(&program.process), escape_word(&program.format))
    };
    for (file, one) in &table.processes {
        let is_pending = pending.as_ref().is_some_and(|files| files.contains(file));
        let state = match (one.is_done, is_pending) {
            (true, _) => "done",
            (false, true) => "pending",
            (false, false) => "open",
        };
        let ProcessIdentity { boot, pid, pid_namespace, start_ticks } = one.identity;
        let (device, inode) = file;
        let process = format!("{device} {inode} {boot:x} {pid} {pid_namespace} {start_ticks}");
        let (share, program) = (one.share.label(), name(&one.program));
        let _ = writeln!(out, "process {process} {state} {} {share} {program}", one.start);
    }
    for ((program, share), end) in &table.ends {
        let _ = writeln!(out, "end {} {end} {}", share.label(), name(program));
    }
    let checksum = checksum_line(&out);
    out + &checksum
}

fn decode(bytes: &[u8]) -> Option<GenerationTable> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (body, last) = split_last_line(text);
    if last != checksum_line(body) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next()? != TITLE {
        return None;
    }
    let mut table = GenerationTable::default();
    for line in lines {
        let (fact, rest) = line.split_once(' ')?;
        match fact {
            "batch" => {
                let [epoch, sequence] = split_words(rest)?;
                table.epoch = u64::from_str_radix(epoch, 16).ok()?;
                table.sequence = number(sequence)?;
            }
            "pending" => table.pending = Some((BTreeSet::new(), number(rest)?)),
            "process" => add_process(&mut table, rest)?,
            "end" => {
                let [share, end, process, format] = split_words(rest)?;
                let key = (program(process, format)?, SeriesShare::parse(share)?);
                table.ends.insert(key, number(end)?);
            }
            _ => return None,
        }
    }
    Some(table)
}

fn add_process(table: &mut GenerationTable, words: &str) -> Option<()> {
    let [device, inode, boot, pid, namespace, ticks, state, start, share, process, format] =
        split_words(words)?;
    let file = (number(device)?, number(inode)?);
    let identity = ProcessIdentity {
        boot: u128::from_str_radix(boot, 16).ok()?,
        pid: number(pid)?,
        pid_namespace: number(namespace)?,
        start_ticks: number(ticks)?,
    };
    let is_done = match state {
        "open" => false,
        "done" => true,
        "pending" => {
            table.pending.as_mut()?.0.insert(file);
            false
        }
        _ => return None,
    };
    let (program, share) = (program(process, format)?, SeriesShare::parse(share)?);
    let assigned = AssignedProcess { identity, program, share, start: number(start)?, is_done };
    table.processes.insert(file, assigned);
    Some(())
}

fn number<T: FromStr>(word: &str) -> Option<T> {
    word.parse().ok()
}

fn program(process: &str, format: &str) -> Option<ProgramName> {
    let text = |word: &str| unescape_word(word.strip_prefix('=')?);
    Some(ProgramName { process: text(process)?, format: text(format)? })
}

#[cfg(test)]
mod tests {
    use sim::SimDisk;

    use super::*;

    fn example() -> GenerationTable {
        let mut table = GenerationTable::default();
        let program = |name: &str, format: &str| ProgramName {
            process: name.to_owned(),
            format: format.to_owned(),
        };
        let identity =
            |pid| ProcessIdentity { boot: 1 << 100, pid, pid_namespace: 4, start_ticks: 5 };
        let shop = program("my shop %", "");
        table.assign_generation((1, 2), identity(3), &shop, -7, 64).unwrap();
        table.assign_generation((1, 3), identity(4), &shop, 8, 64).unwrap();
        table.release((1, 2), 77);
        table.assign_sum((1, 4), identity(5), &program("", "jvm"), SeriesShare::Short, 9);
        table.assign_sum((1, 5), identity(6), &shop, SeriesShare::Other, 9);
        table.begin_batch(BTreeSet::from([(1, 4)]), 99);
        table
    }

    #[test]
    fn saved_table_is_the_same_after_a_restart() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        let journal = Path::new("/journal");
        disk.create_dir(journal).unwrap();
        let (mut file, warning) = GenerationFile::open(Arc::clone(&disk), journal);
        assert_eq!((file.table(), warning), (GenerationTable::default(), None));
        let table = example();
        file.save(&table).unwrap();
        let (file, warning) = GenerationFile::open(disk, journal);
        assert_eq!((file.table(), warning), (table, None));
    }

    #[test]
    fn damaged_file_is_reported() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        let journal = Path::new("/journal");
        disk.create_dir(journal).unwrap();
        let text = encode(&example()).replace("my", "mY");
        disk::replace_file(&*disk, &journal.join(FILE), text.as_bytes()).unwrap();
        let (file, warning) = GenerationFile::open(disk, journal);
        assert_eq!(file.table(), GenerationTable::default());
        let expected = "cannot read /journal/program-generations: the file is damaged; counts of \
                        programs that run may be repeated";
        assert_eq!(warning.as_deref(), Some(expected));
    }
}
