//! JLog 2.6.0, the journal that topdeck replaces: measured if a program is provided, otherwise
//! quoted.
//!
//! `TOPDECK_BENCH_JLOG` is the path of the program. It is called as `PROGRAM DIR COUNT MODE`,
//! writes COUNT messages of 100 bytes to a new journal in the directory, and prints one line: wall
//! time in seconds, CPU time in seconds, and bytes on disk, separated by tabs. The modes are those
//! below and `read`, which also writes but measures only the read. The messages of the other
//! contenders are in the file that `TOPDECK_BENCH_MESSAGES` names; the program may use its own.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::report::{ReportTable, number};

use super::cost::JournalCost;
use super::program::{self, ProgramPaths};
use super::{AppendContender, ContenderLabel, ReadContender};

const PROGRAM: &str = "TOPDECK_BENCH_JLOG";
const MESSAGES: &str = "TOPDECK_BENCH_MESSAGES";

const PROMISES: &str = "visible, kill";
/// The buffer is mapped memory: the next writer writes its contents, even if they were written
/// before.
const PROMISES_BUFFER: &str = "kill, may repeat";

/// A mode of appending, with results from the machine that `QUOTED` names.
pub(crate) struct JlogMode {
    pub(crate) name: &'static str,
    argument: &'static str,
    promises: &'static str,
    pub(crate) cpu_ns: f64,
    /// Thousand messages per second of wall time, median of five rounds.
    pub(crate) thousands: f64,
    /// Bytes on disk per byte of message.
    pub(crate) stored: f64,
}

pub(crate) const MODES: [JlogMode; 6] = [
    mode("JLog, multi-process (default)", "mp", PROMISES, 1810.0, 334.0, 1.16),
    mode("JLog, multi-process, LZ4", "mp-lz4", PROMISES, 2090.0, 279.0, 1.209),
    mode("JLog, one process", "sp", PROMISES, 1200.0, 445.0, 1.16),
    mode("JLog, one process, LZ4", "sp-lz4", PROMISES, 1460.0, 272.0, 1.209),
    mode("JLog, 128 KiB pre-commit", "precommit", PROMISES_BUFFER, 200.0, 2320.0, 1.16),
    mode("JLog, 128 KiB pre-commit, LZ4", "precommit-lz4", PROMISES_BUFFER, 410.0, 1260.0, 1.209),
];
/// The same for reads: name, CPU time in nanoseconds, and thousand messages per second, minimum and
/// maximum.
const READING: [(&str, f64, [f64; 2]); 2] = [
    ("JLog, read_message", 910.0, [130.0, 450.0]),
    ("JLog, bulk_read, 2nd to 4th subscriber", 340.0, [3500.0, 6300.0]),
];
const QUOTED: &str = "JLog 2.6.0, **quoted, not measured here**: medians of five rounds of a \
                      million messages of 100 bytes on another, busy machine with two CPUs \
                      (Xeon, 2.3 GHz, ext4, segments of 4 MiB). Set `TOPDECK_BENCH_JLOG` to the \
                      path of a program to measure it (see `bench/src/journal/jlog.rs`).";

const fn mode(
    name: &'static str,
    argument: &'static str,
    promises: &'static str,
    cpu_ns: f64,
    thousands: f64,
    stored: f64,
) -> JlogMode {
    JlogMode { name, argument, promises, cpu_ns, thousands, stored }
}

fn is_available() -> bool {
    env::var_os(PROGRAM).is_some()
}

pub(crate) fn append_contenders() -> Vec<Box<dyn AppendContender>> {
    if !is_available() {
        return Vec::new();
    }
    MODES.iter().map(|mode| Box::new(mode) as Box<dyn AppendContender>).collect()
}

pub(crate) fn read_contenders() -> Vec<Box<dyn ReadContender>> {
    if is_available() { vec![Box::new(JlogReader)] } else { Vec::new() }
}

/// Section of the report without a program.
pub(crate) fn quoted_appending() -> Option<ReportTable> {
    if is_available() {
        return None;
    }
    let header = ["", "promises", "CPU ns/message", "1000 messages/s", "stored B/B"];
    let mut table = ReportTable::new(QUOTED, 2, &header);
    for mode in MODES {
        let figures = [mode.cpu_ns, mode.thousands, mode.stored].map(number);
        let mut row = vec![mode.name.to_owned(), mode.promises.to_owned()];
        row.extend(figures);
        table.rows.push(row);
    }
    Some(table)
}

/// The same for reading.
pub(crate) fn quoted_reading() -> Option<ReportTable> {
    if is_available() {
        return None;
    }
    let mut table =
        ReportTable::new(QUOTED, 1, &["", "CPU ns/message", "1000 messages/s, min–max"]);
    for (name, cpu_ns, range) in READING {
        let range = range.map(number).join("–");
        table.rows.push(vec![name.to_owned(), number(cpu_ns), range]);
    }
    Some(table)
}

fn run(dir: &Path, mode: &str, messages: &[u8]) -> Result<JournalCost> {
    let places = ProgramPaths::new(dir, messages)?;
    let count = program::message_count(messages);
    let mut command = Command::new(env::var_os(PROGRAM).context("no program is set")?);
    command.arg(&places.journal).arg(count.to_string()).arg(mode);
    command.env(MESSAGES, &places.messages);
    program::run_program(&mut command, &places, count)
}

impl AppendContender for &JlogMode {
    fn label(&self) -> ContenderLabel {
        ContenderLabel::new(self.name, self.promises)
    }

    fn append(&self, dir: &Path, messages: &[u8]) -> Result<JournalCost> {
        run(dir, self.argument, messages)
    }
}

struct JlogReader;

impl ReadContender for JlogReader {
    fn label(&self) -> ContenderLabel {
        ContenderLabel::new("JLog", PROMISES)
    }

    fn prepare(&self, _: &Path, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read(&self, dir: &Path, messages: &[u8]) -> Result<JournalCost> {
        run(dir, "read", messages)
    }
}
