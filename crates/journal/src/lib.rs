//! Durable log with group commit, named subscribers and bounded retention.
//!
//! ```
//! use journal::{Journal, Level, Options, Settings, StartPosition, ReadItem};
//! # let dir = std::env::temp_dir().join(format!("journal-doc-{}", std::process::id()));
//! # let dir = dir.as_path();
//! let disk = std::sync::Arc::new(disk::OsDisk);
//! Journal::create(&*disk, dir, journal::random_id(), 0, &Settings::default())?;
//! let journal = Journal::open(disk, dir, &Options::default())?;
//! journal.add_subscriber("store", StartPosition::First, true)?;
//! let ack = journal.append(b"a record", Level::Disk)?;
//! assert_eq!((ack.positions, ack.level), (0..1, Level::Disk));
//!
//! let mut subscriber = journal.subscribe("store")?;
//! while let Some(item) = subscriber.next()? {
//!     match item {
//!         ReadItem::Batch(batch) => batch.records().for_each(|record| assert_eq!(record.bytes, b"a record")),
//!         ReadItem::Gap(gap) => panic!("{} records are missing: {}", gap.records(), gap.reason),
//!     }
//! }
//! subscriber.commit(subscriber.position(), Level::Disk)?;
//! # drop(subscriber);
//! # drop(journal);
//! # std::fs::remove_dir_all(dir).unwrap();
//! # Ok::<(), journal::Error>(())
//! ```
//!
//! A *record* is a byte string at a *position*: a number that increases by one with each record and
//! is never reused. A *batch* is appended atomically. Records are first in the *buffer*, memory
//! that all processes share and that outlives them, and then in a *frame* of a *segment*.
//!
//! Several processes may append and read, and be killed at any instruction. A journal requires a
//! local file system: network file systems do not support its locks and shared memory.
#![forbid(unsafe_code)]

mod buffer;
mod check;
mod checkpoint;
mod compression;
mod error;
mod eviction;
mod flusher;
mod frame;
mod gap;
mod handle_locks;
mod journal;
pub mod layout;
mod level;
pub mod log;
mod mapped_journal;
mod open_journal;
mod options;
mod origin;
mod paths;
mod reader;
mod readiness;
mod recovery;
mod ring;
mod segment;
mod sequence_table;
mod settings;
mod subscriber;
mod superblock;
pub mod supervisor;
mod sync;
mod wall_clock;

pub use self::{
    check::{CheckProgress, CheckReport, FileDamage, repair, verify},
    checkpoint::{Checkpoint, CheckpointKind},
    error::{Error, FullReason, Result},
    frame::Record,
    gap::{GapReason, ProducerGap, RecordGap},
    journal::{Journal, JournalStat},
    level::{Ack, BatchIdentity, Level, Watermarks},
    options::Options,
    origin::{evict, producer_origin, with_origin},
    paths::NAME_BYTES_MAX,
    reader::{JournalReader, ReadItem, RecordBatch, StartPosition},
    recovery::RecoveryReport,
    settings::{BUFFER_BYTES_MIN, Compression, LimitPolicy, Limits, SEGMENT_BYTES_MIN, Settings},
    subscriber::Subscriber,
    supervisor::Supervisor,
    wall_clock::{WallClock, wall_clock},
};

/// Random id for a new journal, from the system's random number generator.
pub fn random_id() -> u128 {
    let mut bytes = [0; 16];
    let mut have = 0;
    while have < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[have..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => have += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("BUG: the system has no random numbers: {error}"),
        }
    }
    u128::from_le_bytes(bytes)
}

/// Parsers below the checksums, for fuzzing: a fuzzer cannot produce valid checksums, a buggy
/// writer can.
#[doc(hidden)]
pub mod fuzzing {
    use crate::buffer::{Buffer, BufferLayout};

    /// Parses arbitrary bytes as a frame body; returns the number of records and whether it is
    /// valid.
    pub fn body(bytes: &[u8]) -> (u64, bool) {
        let records = crate::frame::RecordIter::new(bytes, 0);
        let count = records.clone().count() as u64;
        (count, records.contains_exactly(count))
    }

    /// Parses arbitrary bytes as a gaps file.
    pub fn gaps(bytes: &[u8]) -> usize {
        crate::gap::count(bytes)
    }

    /// Parses arbitrary bytes as the ring of a buffer; returns the words where entries were found.
    pub fn ring(bytes: &[u8]) -> Option<(u64, u64)> {
        let size = BufferLayout::new(4096, 1);
        let memory = disk::Region::heap(size.file_bytes()).expect("BUG: no memory");
        let ring = memory.len() - 4096 / 8;
        for (word, chunk) in memory[ring..].iter().zip(bytes.chunks_exact(8)) {
            let value = u64::from_le_bytes(chunk.try_into().expect("BUG: eight bytes"));
            word.store(value, std::sync::atomic::Ordering::Relaxed);
        }
        Buffer::new(memory, size, 0).ring().recover_entries(0, 0).0
    }
}
