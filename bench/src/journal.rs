//! Journals: appending, durable acknowledgements, and reading back, beside other logs, queues and
//! stores.
//!
//! A journal takes part in a comparison by implementing its trait. `append.rs`, `durable.rs` and
//! `read.rs` hold a comparison each, the files named after peers their side, and `program.rs` what
//! peers share that run as programs of their own. topdeck's side goes into the three lists of
//! contenders below and nowhere else.

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

/// A way of appending: a row of the first comparison.
pub(crate) trait AppendContender {
    fn label(&self) -> ContenderLabel;

    /// How many of a million messages a round is to append: fewer if that took too long.
    fn messages(&self) -> usize {
        MILLION
    }

    /// Appends the messages, of `messages::SIZE` bytes each, to a new journal in an empty folder.
    /// The clock stops when all of them are with the operating system, so that no process needs to
    /// live any longer.
    fn append(&self, folder: &Path, messages: &[u8]) -> Result<JournalCost>;
}

/// A journal whose acknowledgement means that a message survives a power cut.
pub(crate) trait AckContender {
    fn label(&self) -> ContenderLabel;

    /// Runs so many producers on a new journal in an empty folder for so long. Each appends a
    /// message and waits until it is durable before it appends the next.
    fn acknowledge(
        &self,
        folder: &Path,
        producers: usize,
        time: Duration,
        messages: &Messages,
    ) -> Result<AckStats>;
}

/// A way of reading a journal from its first message to its last.
pub(crate) trait ReadContender {
    fn label(&self) -> ContenderLabel;

    /// How many messages it is to read.
    fn messages(&self) -> usize {
        MILLION
    }

    /// Fills an empty folder with a journal; not measured.
    fn prepare(&self, folder: &Path, messages: &[u8]) -> Result<()>;

    /// Reads all that `prepare` wrote, touches each byte, and checks that it was all.
    fn read(&self, folder: &Path, messages: &[u8]) -> Result<JournalCost>;
}

/// What a row is called and what a reader must know to compare it with another.
#[derive(Clone)]
pub(crate) struct ContenderLabel {
    pub(crate) name: String,
    /// Whether the stored bytes are checked, and what an acknowledged message survives.
    pub(crate) promises: &'static str,
}

impl ContenderLabel {
    pub(crate) fn new(name: impl Into<String>, promises: &'static str) -> ContenderLabel {
        ContenderLabel { name: name.into(), promises }
    }
}

const MILLION: usize = 1_000_000;
/// Rounds take long here; five tell a median from its neighbours.
const ROUNDS: usize = 5;
/// A quick run handles this part of the messages.
const QUICK_DIVISOR: usize = 20;

const PROMISES: &str = "Promises: *checksum*, stored bytes are verified when read; *visible*, \
                        another process can read a message as soon as it is appended; *kill*, an \
                        appended message survives `kill -9` of its writer; *power*, it survives \
                        a power failure.";

fn rounds(effort: &Effort) -> usize {
    effort.rounds.min(ROUNDS)
}

/// Of so many messages, those that this run handles.
fn count(effort: &Effort, messages: usize) -> usize {
    if effort.quick { messages / QUICK_DIVISOR } else { messages }
}

/// What the journals are written to, for the report.
fn file_system() -> String {
    match scratch::target() {
        Ok(folder) => scratch::describe(&folder),
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

    /// Reads twice what it wrote, and sees that other messages are others.
    #[track_caller]
    fn check(journal: &dyn ReadContender) {
        let messages = Messages::new(2 * COUNT);
        let folder = tempfile::tempdir().unwrap();
        let (all, others) = messages.first(2 * COUNT).split_at(messages.first(COUNT).len());
        journal.prepare(folder.path(), all).unwrap();
        for _ in 0..2 {
            journal.read(folder.path(), all).unwrap();
        }
        assert!(journal.read(folder.path(), others).is_err(), "{}", journal.label().name);
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
            let folder = tempfile::tempdir().unwrap();
            let cost = way.append(folder.path(), messages.first(COUNT)).unwrap();
            assert_eq!(cost.messages, COUNT);
            // LZ4 makes it less than what was appended, but not less than a fifth.
            assert!(cost.stored_bytes > 20 * COUNT as u64, "{}: {cost:?}", way.label().name);
        }
    }

    #[test]
    fn acknowledgements_are_counted_with_their_latencies() {
        let messages = Messages::new(100);
        let folder = tempfile::tempdir().unwrap();
        let time = Duration::from_millis(30);
        let result =
            raft_engine::RaftEngineDurable.acknowledge(folder.path(), 3, time, &messages).unwrap();
        assert!(result.count >= 3 && result.wall >= time);
        assert!(result.median_us <= result.p99_us && result.p99_us <= result.max_us);
    }
}
