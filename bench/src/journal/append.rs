//! Appends to a journal until the operating system has the data; fsync is not requested.

use crate::Effort;
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples, number};

use super::cost::JournalCost;
use super::messages::{Messages, ratios};
use super::{ContenderTurns, MILLION, PROMISES, jlog, rounds, run_turns, scratch, topdeck};

const METHOD: &str = "CPU time of all threads (user and system), and messages per second of wall \
                      time, from the first append until all messages are in the page cache; \
                      fsync is not requested. Each round uses a new journal in an empty directory; \
                      opening and closing are not counted. “1000 each” appends a thousand \
                      messages per call, the other rows one message per call. “Stored” is the \
                      disk space of the files at the end, “written” is the number of bytes \
                      passed to `write` and related system calls (without mapped memory), both \
                      per byte of message. Slow contenders append fewer messages per round, as \
                      listed.\n\ntopdeck appends to shared memory, from which a separate thread \
                      writes segments. The measurement ends when that thread has written \
                      everything, and includes both threads. The size of the files includes the \
                      buffer.\n\nraft-engine compresses batches above 8 KiB with LZ4 by default. \
                      fjall and raft-engine are stores with an index rather than journals; they \
                      are included because they are used as such. The JVM of Chronicle Queue is \
                      warmed up with a fifth as many messages in another queue before the \
                      measurement. JLog, if it is measured, is a program that writes its own \
                      lines of 100 bytes.";

pub(crate) fn run(effort: &Effort) -> ReportSection {
    let mut section = ReportSection {
        name: "journal-append",
        title: "Journal: append",
        method: METHOD.to_owned(),
        tables: Vec::new(),
        targets: Vec::new(),
        samples: Vec::new(),
    };
    let messages = Messages::new(super::count(effort, MILLION));
    let contenders = super::append_contenders();
    let result = run_turns(
        contenders.iter().map(|one| one.label()).collect(),
        rounds(effort),
        |at| -> anyhow::Result<JournalCost> {
            let one = &contenders[at];
            let dir = scratch::dir()?;
            let count = super::count(effort, one.messages());
            one.append(dir.path(), messages.first(count))
        },
    );
    let counts: Vec<usize> =
        contenders.iter().map(|one| super::count(effort, one.messages())).collect();
    let (lz4, zstd) = ratios(&messages);
    section.method += &format!(
        "\n\nMedians of {} rounds. Messages are metric lines of 100 bytes (batches of 64 KiB \
         compress to {lz4:.2} with LZ4, to {zstd:.2} with zstd 1), the same for all contenders. \
         {PROMISES} File system: {}.",
        rounds(effort),
        super::file_system()
    );
    let rows = AppendFigures::new(&result);
    section.tables.push(rows.table(&result, &counts));
    section.tables.extend(jlog::quoted_appending());
    section.targets = targets(&rows);
    section.samples = vec![
        ("CPU time per message, ns".to_owned(), rows.cpu_ns),
        ("thousand messages per second".to_owned(), rows.thousands),
        ("stored bytes per byte".to_owned(), rows.stored),
        ("written bytes per byte".to_owned(), rows.written),
    ];
    section
}

/// Figures of all contenders, in order.
pub(crate) struct AppendFigures {
    pub(crate) cpu_ns: Vec<Samples>,
    pub(crate) thousands: Vec<Samples>,
    pub(crate) stored: Vec<Samples>,
    written: Vec<Samples>,
}

impl AppendFigures {
    fn new(turns: &[ContenderTurns<JournalCost>]) -> AppendFigures {
        let of = |figure: &dyn Fn(&JournalCost) -> Option<f64>| {
            turns.iter().map(|one| one.samples(figure)).collect::<Vec<_>>()
        };
        let payload = |cost: &JournalCost| (cost.messages * super::messages::SIZE) as f64;
        AppendFigures {
            cpu_ns: of(&|cost| Some(cost.cpu_ns())),
            thousands: of(&|cost| Some(cost.per_second() / 1e3)),
            stored: of(&|cost| Some(cost.stored_bytes as f64 / payload(cost))),
            written: of(&|cost| Some(cost.written_bytes? as f64 / payload(cost))),
        }
    }

    fn table(&self, turns: &[ContenderTurns<JournalCost>], counts: &[usize]) -> ReportTable {
        let caption = "Median (min–max).";
        let header = [
            "",
            "promises",
            "messages",
            "CPU ns/message",
            "1000 messages/s",
            "stored B/B",
            "written B/B",
        ];
        let mut table = ReportTable::new(caption, 2, &header);
        for (at, turns) in turns.iter().enumerate() {
            table.rows.push(turns.row(header.len(), || {
                vec![
                    counts[at].to_string(),
                    self.cpu_ns[at].cell(),
                    self.thousands[at].cell(),
                    number(self.stored[at].median()),
                    match self.written[at].values.is_empty() {
                        true => "–".to_owned(),
                        false => number(self.written[at].median()),
                    },
                ]
            }));
        }
        table
    }
}

/// Compares with JLog as measured in this run or, without it, as quoted from another machine; the
/// names of the targets state which.
fn targets(rows: &AppendFigures) -> Vec<ReportTarget> {
    let median = |samples: &[Samples], name: &str| named_median(samples, name);
    let mut targets = Vec::new();
    for ((name, times), mode) in topdeck::JLOG_CPU_NS.into_iter().zip(&jlog::MODES) {
        let measured = median(&rows.thousands, mode.name);
        let from = if measured.is_some() { "" } else { " (quoted)" };
        let ratio =
            median(&rows.thousands, name).map(|ours| ours / measured.unwrap_or(mode.thousands));
        let what = format!("journal, messages/s, {name}, against {}{from}", mode.name);
        targets.push(ReportTarget::at_least(&what, times, "× as many", ratio));
    }
    for (name, most) in topdeck::JLOG_STORED {
        let what = format!("journal, stored bytes per byte of message, {name}");
        targets.push(ReportTarget::at_most(&what, most, "B", median(&rows.stored, name)));
    }
    targets
}

/// Median of the named row, if it was measured.
pub(crate) fn named_median(samples: &[Samples], name: &str) -> Option<f64> {
    let row = samples.iter().find(|row| row.name == name)?;
    Some(row.median()).filter(|median| median.is_finite())
}
