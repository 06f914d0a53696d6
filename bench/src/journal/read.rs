//! Reads of a journal from its first to its last message.

use std::hint::black_box;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::Effort;
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples};

use super::append::named_median;
use super::cost::JournalCost;
use super::messages::{Messages, SIZE};
use super::{ContenderTurns, MILLION, PROMISES, jlog, rounds, run_turns, scratch, topdeck};

const METHOD: &str = "Reads all messages of an existing journal in order, from the page cache. \
                      The XOR of all bytes is compared with that of the written bytes, so each \
                      byte is read. Opening the journal is not measured. CPU time covers all \
                      threads.\n\nThe subscribers of topdeck read segments, not the buffer, and \
                      verify every checksum; four subscribers are four threads, whose messages \
                      are added up.\n\nraft-engine is read in calls of 1000 entries; fjall scans \
                      a range of keys. Chronicle Queue reads with one tailer, after its JVM has \
                      been warmed up with as many messages from another queue.";

pub(crate) fn run(effort: &Effort) -> ReportSection {
    let mut section = ReportSection {
        name: "journal-read",
        title: "Journal: read",
        method: METHOD.to_owned(),
        tables: Vec::new(),
        targets: Vec::new(),
        samples: Vec::new(),
    };
    let messages = Messages::new(super::count(effort, MILLION));
    let contenders = super::read_contenders();
    let counts: Vec<usize> =
        contenders.iter().map(|one| super::count(effort, one.messages())).collect();
    let prepared: Vec<Result<TempDir>> = contenders
        .iter()
        .zip(&counts)
        .map(|(one, &count)| {
            let dir = scratch::dir()?;
            one.prepare(dir.path(), messages.first(count))?;
            Ok(dir)
        })
        .collect();
    let result = run_turns(
        contenders.iter().map(|one| one.label()).collect(),
        rounds(effort),
        |at| -> Result<JournalCost> {
            let dir = prepared[at].as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
            contenders[at].read(dir.path(), messages.first(counts[at]))
        },
    );
    section.method += &format!(
        "\n\nMedians of {} rounds. {PROMISES} File system: {}.",
        rounds(effort),
        super::file_system()
    );
    let rows = ReadFigures::new(&result);
    section.tables.push(rows.table(&result, &counts));
    section.tables.extend(jlog::quoted_reading());
    section.targets = targets(&rows);
    section.samples = vec![
        ("CPU time per message, ns".to_owned(), rows.cpu_ns),
        ("thousand messages per second".to_owned(), rows.thousands),
    ];
    section
}

/// Figures of all contenders, in order.
pub(crate) struct ReadFigures {
    cpu_ns: Vec<Samples>,
    pub(crate) thousands: Vec<Samples>,
}

impl ReadFigures {
    fn new(turns: &[ContenderTurns<JournalCost>]) -> ReadFigures {
        let of = |figure: &dyn Fn(&JournalCost) -> Option<f64>| {
            turns.iter().map(|one| one.samples(figure)).collect::<Vec<_>>()
        };
        ReadFigures {
            cpu_ns: of(&|cost| Some(cost.cpu_ns())),
            thousands: of(&|cost| Some(cost.per_second() / 1e3)),
        }
    }

    fn table(&self, turns: &[ContenderTurns<JournalCost>], counts: &[usize]) -> ReportTable {
        let header = ["", "promises", "messages", "CPU ns/message", "1000 messages/s"];
        let mut table = ReportTable::new("Median (min–max).", 2, &header);
        for (at, turns) in turns.iter().enumerate() {
            table.rows.push(turns.row(header.len(), || {
                vec![counts[at].to_string(), self.cpu_ns[at].cell(), self.thousands[at].cell()]
            }));
        }
        table
    }
}

fn targets(rows: &ReadFigures) -> Vec<ReportTarget> {
    let target = |reader: &topdeck::TopdeckReader| {
        let name = reader.name();
        let each =
            named_median(&rows.thousands, &name).map(|all| all * 1e3 / reader.subscribers as f64);
        let what = format!("journal, messages/s read by each subscriber, {name}");
        ReportTarget::at_least(&what, 4_000_000.0, "messages/s", each)
    };
    topdeck::READERS.iter().map(target).collect()
}

/// Accumulates messages as they are read, to verify completeness and contents.
#[derive(Debug, Default)]
pub(crate) struct ReadChecksum {
    messages: usize,
    bytes: usize,
    xor: u64,
}

impl ReadChecksum {
    #[inline]
    pub(crate) fn add(&mut self, message: &[u8]) {
        let (words, rest) = message.as_chunks::<8>();
        let words = words.iter().fold(0, |xor, word| xor ^ u64::from_le_bytes(*word));
        let rest = rest.iter().fold(0, |xor, &byte| xor ^ u64::from(byte));
        self.messages += 1;
        self.bytes += message.len();
        self.xor ^= black_box(words ^ rest);
    }

    /// Fails unless the messages are those that were written.
    pub(crate) fn check(&self, written: &[u8]) -> Result<()> {
        let mut expected = ReadChecksum::default();
        written.chunks_exact(SIZE).for_each(|message| expected.add(message));
        ensure!(
            (self.messages, self.bytes) == (expected.messages, expected.bytes),
            "read {} messages of {} bytes in total, wrote {} of {}",
            self.messages,
            self.bytes,
            expected.messages,
            expected.bytes
        );
        ensure!(self.xor == expected.xor, "the bytes read differ from those written");
        Ok(())
    }
}
