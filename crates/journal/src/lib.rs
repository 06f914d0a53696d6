//! A durable log: what is appended is acknowledged at a stated level, read by named subscribers that each
//! have a checkpoint, and freed when all have passed it.
//!
//! ```
//! use journal::{Journal, Level, Options, Settings, Start, Item};
//! # let dir = std::env::temp_dir().join(format!("journal-doc-{}", std::process::id()));
//! # let dir = dir.as_path();
//! let disk = std::sync::Arc::new(disk::OsDisk);
//! Journal::create(&*disk, dir, journal::random_id(), 0, &Settings::default())?;
//! let journal = Journal::open(disk, dir, &Options::default())?;
//! journal.add_subscriber("store", Start::Begin, true)?;
//! let ack = journal.append(b"a record", Level::Disk)?;
//! assert_eq!((ack.positions, ack.level), (0..1, Level::Disk));
//!
//! let mut subscriber = journal.subscribe("store")?;
//! while let Some(item) = subscriber.next()? {
//!     match item {
//!         Item::Batch(batch) => batch.records().for_each(|record| assert_eq!(record.bytes, b"a record")),
//!         Item::Gap(gap) => panic!("{} records are missing: {}", gap.records(), gap.reason),
//!     }
//! }
//! subscriber.commit(subscriber.position(), Level::Disk)?;
//! # drop(subscriber);
//! # drop(journal);
//! # std::fs::remove_dir_all(dir).unwrap();
//! # Ok::<(), journal::Error>(())
//! ```
//!
//! A *record* is bytes, at a *position*: a number that rises by one with each record and is never used
//! twice. A *batch* is appended whole. What was appended is first in the *buffer*, memory that all processes
//! share and that outlives them, and then in a *frame* of a *segment*.
//!
//! Several processes may append, read, and be killed at any instruction. A journal is for a local file
//! system: over a network, neither locks nor shared memory work as they must.
#![forbid(unsafe_code)]
// The model checker runs the buffer alone.
#![cfg_attr(loom, allow(dead_code, reason = "only the buffer is built for loom"))]

mod buffer;
mod sync;

mod level;

#[cfg(not(loom))]
mod check;
#[cfg(not(loom))]
mod checkpoint;
#[cfg(not(loom))]
mod codec;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod flusher;
#[cfg(not(loom))]
mod frame;
#[cfg(not(loom))]
mod gap;
#[cfg(not(loom))]
mod journal;
pub mod layout;
#[cfg(not(loom))]
mod opening;
#[cfg(not(loom))]
mod places;
#[cfg(not(loom))]
mod presence;
#[cfg(not(loom))]
mod reader;
#[cfg(not(loom))]
mod readiness;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod settings;
#[cfg(not(loom))]
mod store;
#[cfg(not(loom))]
mod subscriber;
#[cfg(not(loom))]
mod twice;

pub use level::{Ack, Identity, Level, Marks};

#[cfg(not(loom))]
pub use self::{
    check::{Damage, Progress, Report, repair, verify},
    checkpoint::{Checkpoint, Kind},
    error::{Error, Full, Result},
    frame::{Record, Records},
    gap::{Gap, ProducerGap, Reason, fuzz_gaps},
    journal::{Journal, Options, Stat},
    opening::Opened,
    places::NAME_BYTES_MAX,
    reader::{Batch, Item, Reader, Start},
    settings::{
        AtLimit, BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, Codec, Limits, PRODUCERS_MAX_MAX,
        SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, Settings,
    },
    store::{Clock, wall_clock},
    subscriber::Subscriber,
};

/// A number for a new journal, from the system's generator of random numbers.
#[cfg(not(loom))]
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
