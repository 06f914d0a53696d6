//! A journal on a simulated disk beside a model of its guarantees, for the fault tests.
//!
//! Every record carries its number, so that delivered records can be compared with sent ones. A
//! process stops at the operation during which it is killed or loses power: the panic unwinds, and
//! only destructors of the journal run after it.

mod audit;
mod checkpoints;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use journal::*;
use sim::{NameOrder, SimDisk, SimProcess};

use crate::dying_process::{DyingDisk, ProcessDeath};

pub(crate) const DIR: &str = "/data/journal";

/// Minimum settings, used by most tests.
pub(crate) fn small(
    compression: Compression,
    at_limit: LimitPolicy,
    bytes_max: Option<u64>,
) -> Settings {
    Settings {
        compression,
        buffer_bytes: BUFFER_BYTES_MIN,
        segment_bytes: SEGMENT_BYTES_MIN,
        dedup_producers: 8,
        limits: Limits { bytes_max, age_max: None, on_full: at_limit },
    }
}

/// Why an operation of a [`JournalFixture`] did not complete.
#[derive(Debug)]
pub(crate) enum Interruption {
    /// The process died during it, or power was lost.
    ProcessDied,
    /// The journal returned an error.
    Error(Error),
}

impl From<Error> for Interruption {
    fn from(error: Error) -> Interruption {
        Interruption::Error(error)
    }
}

pub(crate) type OperationResult<T = ()> = std::result::Result<T, Interruption>;

fn attempt<T>(act: impl FnOnce() -> Result<T>) -> OperationResult<T> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(result) => Ok(result?),
        Err(payload) if payload.is::<ProcessDeath>() => Err(Interruption::ProcessDied),
        Err(payload) => resume_unwind(payload),
    }
}

// ---- the model ----

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchState {
    /// The append failed or its process died: the batch may be present.
    Unknown,
    /// Acknowledged or read.
    Alive,
    /// Power was lost since, and it was not durable.
    Uncertain,
    /// Lost with the power.
    Lost,
}

/// A batch that was sent.
#[derive(Clone, Debug)]
struct SentBatch {
    lens: Vec<usize>,
    identity: Option<BatchIdentity>,
    state: BatchState,
    first: Option<u64>,
    /// Durable at some time: only a limit may remove it.
    durable: bool,
}

/// Records are numbered by batch and index in the batch.
type RecordId = (u32, u32);

fn record(id: RecordId, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.max(8)];
    bytes[..4].copy_from_slice(&id.0.to_le_bytes());
    bytes[4..8].copy_from_slice(&id.1.to_le_bytes());
    let mut x = u64::from(id.0) << 20 | u64::from(id.1) | 1 << 60;
    for byte in &mut bytes[8..] {
        // Every other batch is incompressible noise.
        if id.0.is_multiple_of(2) {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        *byte = (x >> 56) as u8;
    }
    bytes
}

/// A checkpoint.
#[derive(Clone, Debug)]
struct NamedCheckpoint {
    /// Possible positions: the last one was set last, the others since the last durable one.
    positions: Vec<u64>,
    pins_records: bool,
}

/// Knowledge about a name.
#[derive(Clone, Debug)]
enum NameState {
    Yes(NamedCheckpoint),
    /// Creating or removing it failed.
    Unknown(NamedCheckpoint),
}

/// An open handle of a process.
struct OpenJournal {
    journal: Journal,
    dying: DyingDisk,
    subscribers: BTreeMap<String, Subscriber>,
}

/// The machine, its journal, and the expected state.
pub(crate) struct JournalFixture {
    pub(crate) disk: SimDisk,
    pub(crate) now: Arc<AtomicI64>,
    pub(crate) settings: Settings,
    handles: BTreeMap<u32, OpenJournal>,
    next_handle: u32,
    sent: Vec<SentBatch>,
    names: BTreeMap<String, NameState>,
    /// The record at each position, and whether the position is final.
    history: BTreeMap<u64, (RecordId, bool)>,
    /// Bytes were damaged: records may be missing because of it.
    pub(crate) damaged: bool,
    /// Faults are injected: operations may fail.
    pub(crate) faulty: bool,
    /// An opening on a full disk could not record the gaps it found: they appear as damage.
    pub(crate) may_miss_gaps: bool,
    /// A process death is pending.
    pub(crate) is_death_pending: bool,
    /// Log of operations, for failure messages.
    pub(crate) log: Vec<String>,
    /// Duplicates reported although the batch itself was lost, because a later batch of its
    /// producer is present.
    pub(crate) repeats_of_lost: u32,
}

impl JournalFixture {
    pub(crate) fn new(seed: u64, order: NameOrder, settings: Settings) -> JournalFixture {
        let disk = SimDisk::new(seed);
        disk.set_name_order(order);
        Journal::create(&disk.process(), Path::new(DIR), 99, 0, &settings).unwrap();
        JournalFixture {
            disk,
            now: Arc::new(AtomicI64::new(1_000)),
            settings,
            handles: BTreeMap::new(),
            next_handle: 0,
            sent: Vec::new(),
            names: BTreeMap::new(),
            history: BTreeMap::new(),
            damaged: false,
            faulty: false,
            is_death_pending: false,
            may_miss_gaps: false,
            log: Vec::new(),
            repeats_of_lost: 0,
        }
    }

    fn log_event(&mut self, what: impl Debug) {
        self.log.push(format!("{what:?}"));
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        let log = self.log.join("\n  ");
        panic!("{what}\nafter\n  {log}");
    }

    #[track_caller]
    fn ensure(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(&what());
        }
    }

    pub(crate) fn handles(&self) -> Vec<u32> {
        self.handles.keys().copied().collect()
    }

    pub(crate) fn journal(&self, handle: u32) -> &Journal {
        &self.handles[&handle].journal
    }

    pub(crate) fn process(&self, handle: u32) -> &SimProcess {
        &self.handles[&handle].dying.process
    }

    // ---- operations ----

    /// Opens the journal in another process.
    pub(crate) fn open(&mut self) -> OperationResult<u32> {
        self.open_killed_after(None)
    }

    pub(crate) fn open_killed_after(&mut self, kill_after: Option<u64>) -> OperationResult<u32> {
        let dying = DyingDisk::new(&self.disk);
        if let Some(count) = kill_after {
            dying.process.kill_after(count);
        }
        let now = Arc::clone(&self.now);
        let options = Options {
            has_background_thread: false,
            sync_interval: None,
            append_timeout: Duration::from_millis(5),
            clock: Arc::new(move || now.load(SeqCst)),
            ..Options::default()
        };
        let opened = attempt(|| Journal::open(Arc::new(dying.clone()), Path::new(DIR), &options));
        match opened {
            Ok(journal) => {
                self.may_miss_gaps |=
                    journal.recovery_report().damaged_files.iter().any(|f| f.contains("no space"));
                let handle = self.next_handle;
                self.next_handle += 1;
                self.log_event(("open", handle, journal.recovery_report(), journal.watermarks()));
                self.handles
                    .insert(handle, OpenJournal { journal, dying, subscribers: BTreeMap::new() });
                Ok(handle)
            }
            Err(stop) => {
                self.log_event(("open", &stop));
                Err(stop)
            }
        }
    }

    /// Opens it without faults.
    #[track_caller]
    pub(crate) fn reopen(&mut self) -> u32 {
        match self.open() {
            Ok(handle) => handle,
            Err(stop) => self.fail(&format!("opening does not succeed: {stop:?}")),
        }
    }

    fn records(&self, batch: u32) -> Vec<Vec<u8>> {
        let lens = &self.sent[batch as usize].lens;
        lens.iter().enumerate().map(|(i, &len)| record((batch, i as u32), len)).collect()
    }

    /// Sends a batch.
    #[track_caller]
    pub(crate) fn append(
        &mut self,
        handle: u32,
        identity: Option<BatchIdentity>,
        lens: &[usize],
        level: Level,
    ) -> OperationResult<Ack> {
        let batch = self.sent.len() as u32;
        self.sent.push(SentBatch {
            lens: lens.to_vec(),
            identity,
            state: BatchState::Unknown,
            first: None,
            durable: false,
        });
        let records = self.records(batch);
        let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let journal = &self.handles[&handle].journal;
        let result = attempt(|| journal.append_batch(identity, &slices, level));
        self.log_event(("append", batch, handle, identity, lens, level, &result));
        let ack = result?;
        if ack.is_duplicate {
            // An earlier batch, not this one.
            self.sent[batch as usize].state = BatchState::Lost;
            self.check_repeat(batch, &ack);
        } else {
            let identity = self.sent[batch as usize].identity;
            self.check_not_repeat(batch, identity);
            let count = ack.positions.end - ack.positions.start;
            self.ensure(count == lens.len() as u64, || format!("{count} positions"));
            let sent = &mut self.sent[batch as usize];
            sent.state = BatchState::Alive;
            sent.durable = ack.level == Level::Disk;
            self.set_position(batch, ack.positions.start);
        }
        if ack.level == Level::Disk {
            let durable = self.handles[&handle].journal.watermarks().durable;
            self.ensure(durable >= ack.positions.end, || format!("durable is {durable}"));
        }
        self.mark_durable();
        Ok(ack)
    }

    /// The newest batch of a producer epoch that is or may be present.
    fn newest(
        &self,
        of: BatchIdentity,
        except: u32,
        state: impl Fn(BatchState) -> bool,
    ) -> Option<u64> {
        let sent = self.sent.iter().enumerate();
        sent.filter(|&(i, sent)| i as u32 != except && state(sent.state))
            .filter_map(|(_, sent)| sent.identity)
            .filter(|identity| (identity.producer, identity.epoch) == (of.producer, of.epoch))
            .map(|identity| identity.sequence)
            .max()
    }

    #[track_caller]
    fn check_repeat(&mut self, batch: u32, ack: &Ack) {
        let identity = self.sent[batch as usize].identity.expect("a repeat without identity");
        let there = |state| state == BatchState::Alive;
        let maybe = |state| matches!(state, BatchState::Unknown | BatchState::Uncertain);
        let newest = self.newest(identity, batch, there);
        let newest_maybe = self.newest(identity, batch, maybe);
        self.ensure(newest.max(newest_maybe) >= Some(identity.sequence), || {
            format!("{identity:?} is no repeat of anything that is there, but was answered {ack:?}")
        });
        let same =
            |sent: &&SentBatch| sent.identity == Some(identity) && sent.state != BatchState::Lost;
        if self.sent.iter().enumerate().all(|(i, sent)| i as u32 == batch || !same(&sent)) {
            self.repeats_of_lost += 1;
        }
    }

    #[track_caller]
    fn check_not_repeat(&self, batch: u32, identity: Option<BatchIdentity>) {
        if let Some(identity) = identity {
            let newest = self.newest(identity, batch, |state| state == BatchState::Alive);
            self.ensure(newest < Some(identity.sequence), || {
                format!("{identity:?} was appended again, or after {newest:?}")
            });
        }
    }

    /// Checks that a batch is at a position.
    #[track_caller]
    fn set_position(&mut self, batch: u32, first: u64) {
        let sent = &self.sent[batch as usize];
        let (before, count) = (sent.first, sent.lens.len() as u32);
        self.ensure(before.is_none_or(|before| before == first), || {
            format!("batch {batch} was at {before:?} and is at {first}")
        });
        self.sent[batch as usize].first = Some(first);
        for index in 0..count {
            let (position, id) = (first + u64::from(index), (batch, index));
            if let Some(&(other, forever)) = self.history.get(&position)
                && other != id
            {
                let lost = self.sent[other.0 as usize].state == BatchState::Lost
                    || self.sent[other.0 as usize].state == BatchState::Uncertain;
                let passed = self.names.values().any(|exists| match exists {
                    NameState::Yes(named) => named.positions.iter().all(|&at| at > position),
                    NameState::Unknown(_) => false,
                });
                self.ensure(lost && !forever && !passed, || {
                    format!(
                        "position {position} was {other:?}'s (never another's: {forever} \
                             {passed}) and is {id:?}'s"
                    )
                });
            }
            self.history.entry(position).or_insert((id, false)).0 = id;
        }
    }

    /// Marks everything below the durable position as durable.
    fn mark_durable(&mut self) {
        let Some(handle) = self.handles.values().next() else { return };
        let durable = handle.journal.watermarks().durable;
        for sent in &mut self.sent {
            let end = sent.first.map(|first| first + sent.lens.len() as u64);
            if sent.state == BatchState::Alive && end.is_some_and(|end| end <= durable) {
                sent.durable = true;
            }
        }
        for (_, ((batch, _), forever)) in self.history.range_mut(..durable) {
            *forever |= self.sent[*batch as usize].state == BatchState::Alive;
        }
    }

    pub(crate) fn flush(&mut self, handle: u32, level: Level) -> OperationResult {
        let end = self.handles[&handle].journal.watermarks().end;
        let journal = &self.handles[&handle].journal;
        let result = attempt(|| journal.flush(level));
        self.log_event(("flush", handle, level, &result));
        let marks = result?;
        let reached = if level == Level::Disk { marks.durable } else { marks.flushed };
        self.ensure(reached >= end, || format!("flushed to {marks:?}, asked for {end}"));
        self.mark_durable();
        Ok(())
    }

    /// Reads at most this many items with a subscriber, and optionally commits at a level.
    pub(crate) fn read(
        &mut self,
        handle: u32,
        name: &str,
        items: usize,
        commit: Option<Level>,
    ) -> OperationResult {
        if !self.subscriber(handle, name)? {
            return Ok(());
        }
        for _ in 0..items {
            let mut delivered = Vec::new();
            let subscriber = self
                .handles
                .get_mut(&handle)
                .and_then(|handle| handle.subscribers.get_mut(name))
                .expect("BUG: no subscriber");
            let before = subscriber.position();
            let item = attempt(|| {
                Ok(subscriber.next()?.map(|item| match item {
                    ReadItem::Batch(batch) => {
                        delivered.extend(batch.records().map(to_owned_record));
                        (batch.positions(), None)
                    }
                    ReadItem::Gap(gap) => (gap.positions.clone(), Some(gap)),
                }))
            });
            let after = subscriber.position();
            self.log_event(("read", name, &item));
            let Some((positions, gap)) = item? else {
                let end = self.handles[&handle].journal.watermarks().end;
                self.ensure(before == end, || format!("{name} stays at {before}, end is {end}"));
                break;
            };
            self.ensure(positions.start == before && positions.end == after, || {
                format!("{name} was at {before}, is at {after} and got {positions:?}")
            });
            self.ensure(positions.start < positions.end, || "nothing was delivered".to_owned());
            match gap {
                Some(gap) => self.check_gap(handle, &gap, Some(name)),
                None => self.check_records(positions, &delivered),
            }
        }
        if let Some(level) = commit {
            let subscriber = self
                .handles
                .get_mut(&handle)
                .and_then(|handle| handle.subscribers.get_mut(name))
                .expect("BUG: no subscriber");
            let position = subscriber.position();
            let result = attempt(|| subscriber.commit(position, level));
            self.log_event(("commit", name, position, level, &result));
            let Some(NameState::Yes(named)) = self.names.get_mut(name) else {
                self.fail("no subscriber")
            };
            if result.is_ok() && level == Level::Disk {
                named.positions.clear();
            }
            named.positions.push(position);
            result?;
        }
        Ok(())
    }

    /// Closes a handle orderly.
    pub(crate) fn close(&mut self, handle: u32) {
        let end = self.handles.remove(&handle).expect("BUG: no such handle");
        drop(end.subscribers);
        drop(end.journal);
        self.log_event(("close", handle));
    }

    /// Kill -9.
    pub(crate) fn kill(&mut self, handle: u32) {
        let handle_ = self.handles.remove(&handle).expect("BUG: no such handle");
        handle_.dying.process.kill();
        drop(handle_.subscribers);
        // No later store may reach the other processes.
        std::mem::forget(handle_.journal);
        self.log_event(("kill", handle));
    }

    /// Removes dead handles.
    pub(crate) fn remove_dead(&mut self) {
        for handle in self.handles() {
            if self.process(handle).is_dead() {
                self.kill(handle);
            }
        }
    }

    /// Cuts and restores power.
    pub(crate) fn power_cut(&mut self) {
        self.mark_durable();
        self.disk.power_cut();
        for (_, handle) in std::mem::take(&mut self.handles) {
            handle.dying.is_cleanup.store(true, SeqCst);
            drop(handle.subscribers);
            drop(handle.journal);
        }
        for sent in &mut self.sent {
            if sent.state == BatchState::Alive && !sent.durable {
                sent.state = BatchState::Uncertain;
            }
        }
        self.is_death_pending = false;
        self.log_event("power cut");
    }

    // ---- checks ----
}

impl Drop for JournalFixture {
    fn drop(&mut self) {
        // Destructors of journals are no longer checked.
        self.handles.values().for_each(|handle| handle.dying.is_cleanup.store(true, SeqCst));
    }
}

fn to_owned_record(record: Record<'_>) -> (u64, Option<BatchIdentity>, Vec<u8>) {
    (record.position, record.identity, record.bytes.to_vec())
}
