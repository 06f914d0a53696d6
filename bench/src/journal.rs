//! Journals: appends, durable acknowledgements, and reads, compared with other logs, queues and
//! stores.
//!
//! A journal takes part in a comparison by implementing its trait. `append.rs`, `durable.rs` and
//! `read.rs` contain one comparison each, files named after peers contain their implementation, and
//! `program.rs` contains the code shared by peers that run as separate programs. topdeck is only in
//! the three contender lists below.

mod append;
mod chronicle;
mod cost;
mod durable;
mod fjall;
mod jlog;
mod messages;
pub(crate) mod program;
mod raft_engine;
mod read;
pub(crate) mod scratch;
mod topdeck;
mod turns;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use self::cost::JournalCost;
use self::durable::AckStats;
use self::messages::Messages;
use self::turns::{ContenderTurns, run_turns};
pub(crate) use self::{append::run as append, durable::run as durable, read::run as read};
use crate::Effort;

/// A contender of the append comparison.
pub(crate) trait AppendContender {
    fn label(&self) -> ContenderLabel;

    /// Number of the million messages to append per round: fewer if a round would take too long.
    fn messages(&self) -> usize {
        MILLION
    }

    /// Appends the messages, of `messages::SIZE` bytes each, to a new journal in an empty
    /// directory. The measurement ends when the operating system has all of them, so that a crash
    /// of the process would lose none.
    fn append(&self, dir: &Path, messages: &[u8]) -> Result<JournalCost>;
}

/// A journal whose acknowledgement means that a message survives a power failure.
pub(crate) trait AckContender {
    fn label(&self) -> ContenderLabel;

    /// Runs producers on a new journal in an empty directory for a time. Each appends a message and
    /// waits until it is durable before it appends the next one.
    fn acknowledge(
        &self,
        dir: &Path,
        producers: usize,
        time: Duration,
        messages: &Messages,
    ) -> Result<AckStats>;
}

/// A contender that reads a journal from its first to its last message.
pub(crate) trait ReadContender {
    fn label(&self) -> ContenderLabel;

    /// Number of messages to read.
    fn messages(&self) -> usize {
        MILLION
    }

    /// Writes a journal to an empty directory; not measured.
    fn prepare(&self, dir: &Path, messages: &[u8]) -> Result<()>;

    /// Reads everything that `prepare` wrote, accesses each byte, and verifies completeness.
    fn read(&self, dir: &Path, messages: &[u8]) -> Result<JournalCost>;
}

/// Name of a row, and the guarantees that make it comparable.
#[derive(Clone)]
pub(crate) struct ContenderLabel {
    pub(crate) name: String,
    /// Whether stored bytes are verified, and what an acknowledged message survives.
    pub(crate) promises: &'static str,
}

impl ContenderLabel {
    pub(crate) fn new(name: impl Into<String>, promises: &'static str) -> ContenderLabel {
        ContenderLabel { name: name.into(), promises }
    }
}

const MILLION: usize = 1_000_000;
/// Rounds take long; five separate a median from its neighbours.
const ROUNDS: usize = 5;
/// Divisor of the number of messages in a quick run.
const QUICK_DIVISOR: usize = 20;

const PROMISES: &str = "Promises: *checksum*, stored bytes are verified when read; *visible*, \
                        another process can read a message as soon as it is appended; *kill*, an \
                        appended message survives `kill -9` of its writer; *power*, it survives \
                        a power failure.";

fn rounds(effort: &Effort) -> usize {
    effort.rounds.min(ROUNDS)
}

/// Number of messages of this run.
fn count(effort: &Effort, messages: usize) -> usize {
    if effort.quick { messages / QUICK_DIVISOR } else { messages }
}

/// File system of the journals, for the report.
fn file_system() -> String {
    match scratch::target() {
        Ok(dir) => scratch::describe(&dir),
        Err(error) => format!("{error:#}"),
    }
}

fn append_contenders() -> Vec<Box<dyn AppendContender>> {
    let mut all: Vec<Box<dyn AppendContender>> = topdeck::append_contenders();
    all.extend(jlog::append_contenders());
    all.extend(raft_engine::append_contenders());
    all.extend(fjall::append_contenders());
    all.extend(chronicle::append_contenders());
    all
}

fn ack_contenders() -> Vec<Box<dyn AckContender>> {
    vec![
        Box::new(topdeck::TopdeckDurable),
        Box::new(raft_engine::RaftEngineDurable),
        Box::new(fjall::FjallDurable),
    ]
}

fn read_contenders() -> Vec<Box<dyn ReadContender>> {
    let mut all: Vec<Box<dyn ReadContender>> = topdeck::read_contenders();
    all.extend(jlog::read_contenders());
    all.extend([
        Box::new(raft_engine::RaftEngineReader) as Box<dyn ReadContender>,
        Box::new(fjall::FjallReader),
        Box::new(chronicle::ChronicleReader),
    ]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 3456;

    /// Reads the written messages twice, and checks that other messages are detected.
    #[track_caller]
    fn check(journal: &dyn ReadContender) {
        let messages = Messages::new(2 * COUNT);
        let dir = tempfile::tempdir().unwrap();
        let (all, others) = messages.first(2 * COUNT).split_at(messages.first(COUNT).len());
        journal.prepare(dir.path(), all).unwrap();
        for _ in 0..2 {
            journal.read(dir.path(), all).unwrap();
        }
        assert!(journal.read(dir.path(), others).is_err(), "{}", journal.label().name);
    }

    #[test]
    fn read_messages_equal_appended_ones() {
        topdeck::READERS.iter().for_each(|reader| check(reader));
        check(&raft_engine::RaftEngineReader);
        check(&fjall::FjallReader);
    }

    #[test]
    fn every_append_contender_appends() {
        let messages = Messages::new(COUNT);
        let all = [
            topdeck::append_contenders(),
            raft_engine::append_contenders(),
            fjall::append_contenders(),
        ];
        for way in all.into_iter().flatten() {
            let dir = tempfile::tempdir().unwrap();
            let cost = way.append(dir.path(), messages.first(COUNT)).unwrap();
            assert_eq!(cost.messages, COUNT);
            // LZ4 stores less than was appended, but not less than a fifth.
            assert!(cost.stored_bytes > 20 * COUNT as u64, "{}: {cost:?}", way.label().name);
        }
    }

    #[test]
    fn acknowledgements_are_counted_with_their_latencies() {
        let messages = Messages::new(100);
        let dir = tempfile::tempdir().unwrap();
        let time = Duration::from_millis(30);
        let result =
            raft_engine::RaftEngineDurable.acknowledge(dir.path(), 3, time, &messages).unwrap();
        assert!(result.count >= 3 && result.wall >= time);
        assert!(result.median_us <= result.p99_us && result.p99_us <= result.max_us);
    }
}
