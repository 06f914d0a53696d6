//! A journal on a simulated disk beside a model of its guarantees, for the fault tests.
//!
//! Every record carries its number, so that delivered records can be compared with sent ones. A
//! process stops at the operation during which it is killed or loses power: the panic unwinds, and
//! only destructors of the journal run after it.

use std::collections::{BTreeMap, BTreeSet};
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
pub(crate) fn small(codec: Compression, at_limit: LimitPolicy, bytes_max: Option<u64>) -> Settings {
    Settings {
        codec,
        buffer_bytes: BUFFER_BYTES_MIN,
        segment_bytes: SEGMENT_BYTES_MIN,
        producers_max: 8,
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

/// A subscriber or bookmark.
#[derive(Clone, Debug)]
struct NamedCheckpoint {
    /// Possible positions: the last one was set last, the others since the last durable one.
    positions: Vec<u64>,
    blocks_deletion: bool,
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

    pub(crate) fn add(
        &mut self,
        handle: u32,
        name: &str,
        start: StartPosition,
        kind: CheckpointKind,
        holds: bool,
    ) -> OperationResult {
        let known = self.names.contains_key(name);
        let journal = &self.handles[&handle].journal;
        let result = attempt(|| match kind {
            CheckpointKind::Subscriber => journal.add_subscriber(name, start, holds),
            CheckpointKind::Bookmark => journal.add_bookmark(name, start, holds),
        });
        self.log_event(("add", handle, name, start, kind, holds, &result));
        match result {
            Ok(checkpoint) => {
                self.ensure(!matches!(self.names.get(name), Some(NameState::Yes(_))), || {
                    format!("{name} was there already")
                });
                let named = NamedCheckpoint {
                    positions: vec![checkpoint.position],
                    blocks_deletion: holds,
                };
                self.names.insert(name.to_owned(), NameState::Yes(named));
                Ok(())
            }
            Err(Interruption::Error(
                Error::CheckpointExists { .. } | Error::CheckpointCorrupt { .. },
            )) if known => Ok(()),
            Err(Interruption::Error(error @ Error::PositionOutOfRange { .. })) => Err(error.into()),
            Err(stop) => {
                if !known {
                    let end = self.handles[&handle].journal.watermarks();
                    let positions = vec![end.first, end.end];
                    self.names.insert(
                        name.to_owned(),
                        NameState::Unknown(NamedCheckpoint { positions, blocks_deletion: holds }),
                    );
                }
                Err(stop)
            }
        }
    }

    pub(crate) fn remove(&mut self, handle: u32, name: &str) -> OperationResult {
        self.handles.values_mut().for_each(|handle| drop(handle.subscribers.remove(name)));
        let journal = &self.handles[&handle].journal;
        let result = attempt(|| journal.remove_checkpoint(name));
        self.log_event(("remove", handle, name, &result));
        match result {
            Ok(()) => {
                let known = self.names.remove(name).is_some();
                self.ensure(known, || format!("no {name} to remove"));
                Ok(())
            }
            Err(Interruption::Error(Error::NoCheckpoint { .. })) => {
                self.ensure(!matches!(self.names.get(name), Some(NameState::Yes(_))), || {
                    format!("{name} is gone")
                });
                // A removal that is not durable may be undone by a power loss.
                Ok(())
            }
            Err(stop) => {
                if let Some(NameState::Yes(named) | NameState::Unknown(named)) =
                    self.names.remove(name)
                {
                    self.names.insert(name.to_owned(), NameState::Unknown(named));
                }
                Err(stop)
            }
        }
    }

    pub(crate) fn set(&mut self, handle: u32, name: &str, start: StartPosition) -> OperationResult {
        self.handles.values_mut().for_each(|handle| drop(handle.subscribers.remove(name)));
        let journal = &self.handles[&handle].journal;
        let marks = journal.watermarks();
        let result = attempt(|| journal.set_checkpoint(name, start));
        self.log_event(("set", handle, name, start, &result));
        match result {
            Ok(checkpoint) => {
                let Some(NameState::Yes(named) | NameState::Unknown(named)) = self.names.get(name)
                else {
                    self.fail(&format!("{name} should not be there"));
                };
                let named =
                    NamedCheckpoint { positions: vec![checkpoint.position], ..named.clone() };
                self.names.insert(name.to_owned(), NameState::Yes(named));
                Ok(())
            }
            Err(Interruption::Error(Error::NoCheckpoint { .. })) => {
                self.ensure(!matches!(self.names.get(name), Some(NameState::Yes(_))), || {
                    format!("{name} is gone")
                });
                Ok(())
            }
            Err(Interruption::Error(error @ Error::PositionOutOfRange { .. })) => Err(error.into()),
            Err(stop) => {
                if let Some(NameState::Yes(named) | NameState::Unknown(named)) =
                    self.names.get_mut(name)
                {
                    named.positions.extend([marks.first, marks.end]);
                    if let StartPosition::At(position) = start {
                        named.positions.push(position);
                    }
                }
                Err(stop)
            }
        }
    }

    fn subscriber(&mut self, handle: u32, name: &str) -> OperationResult<bool> {
        if self.handles[&handle].subscribers.contains_key(name) {
            return Ok(true);
        }
        // One reader at a time.
        self.handles.values_mut().for_each(|handle| drop(handle.subscribers.remove(name)));
        let journal = &self.handles[&handle].journal;
        match attempt(|| journal.subscribe(name)) {
            Ok(subscriber) => {
                self.check_position(name, subscriber.position());
                let end = self.handles[&handle].journal.watermarks().end;
                self.ensure(subscriber.position() <= end, || {
                    format!("{name} is at {}, the journal ends at {end}", subscriber.position())
                });
                let Some(NameState::Yes(named) | NameState::Unknown(named)) =
                    self.names.remove(name)
                else {
                    self.fail(&format!("{name} should not be there"));
                };
                self.names.insert(name.to_owned(), NameState::Yes(named));
                self.handles
                    .get_mut(&handle)
                    .expect("BUG: no such handle")
                    .subscribers
                    .insert(name.to_owned(), subscriber);
                Ok(true)
            }
            Err(Interruption::Error(Error::NoCheckpoint { .. })) => {
                self.ensure(!matches!(self.names.get(name), Some(NameState::Yes(_))), || {
                    format!("{name} is gone")
                });
                Ok(false)
            }
            Err(stop) => Err(stop),
        }
    }

    #[track_caller]
    fn check_position(&self, name: &str, found: u64) {
        match self.names.get(name) {
            Some(NameState::Yes(named)) if self.faulty => {
                self.ensure(named.positions.contains(&found), || {
                    format!("{name} is at {found}, should be at one of {:?}", named.positions)
                });
            }
            Some(NameState::Yes(named)) => {
                self.ensure(named.positions.contains(&found), || {
                    format!("{name} is at {found}, should be at one of {:?}", named.positions)
                });
            }
            Some(NameState::Unknown(_)) => {}
            None => self.fail(&format!("{name} should not be there")),
        }
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

    /// Checks that a delivered record was sent with this content.
    #[track_caller]
    fn check_records(
        &mut self,
        positions: std::ops::Range<u64>,
        records: &[(u64, Option<BatchIdentity>, Vec<u8>)],
    ) {
        let found: Vec<u64> = records.iter().map(|(position, ..)| *position).collect();
        self.ensure(found == positions.clone().collect::<Vec<_>>(), || {
            format!("{positions:?} has records at {found:?}")
        });
        for (position, identity, bytes) in records {
            let number = |at: usize| {
                bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
            };
            let (Some(batch), Some(index)) = (number(0), number(4)) else {
                self.fail(&format!("the record at {position} was never sent"));
            };
            let sent = self.sent.get(batch as usize).filter(|s| (index as usize) < s.lens.len());
            let Some(sent) = sent.cloned() else {
                self.fail(&format!("the record at {position} was never sent"));
            };
            let expected = record((batch, index), sent.lens[index as usize]);
            self.ensure(*bytes == expected && *identity == sent.identity, || {
                format!("the record at {position} is not as {:?} was sent", (batch, index))
            });
            self.ensure(sent.state != BatchState::Lost, || {
                format!("{:?} was lost, or never appended, and is at {position}", (batch, index))
            });
            if index == 0 || sent.first.is_some() || sent.state == BatchState::Unknown {
                let Some(first) = position.checked_sub(u64::from(index)) else {
                    self.fail(&format!("{:?} at {position}", (batch, index)))
                };
                if sent.state == BatchState::Unknown || sent.state == BatchState::Uncertain {
                    self.sent[batch as usize].state = BatchState::Alive;
                }
                self.set_position(batch, first);
            }
        }
        self.mark_durable();
    }

    /// Checks that the positions of a gap are missing for the right reason.
    #[track_caller]
    fn check_gap(&mut self, handle: u32, gap: &RecordGap, name: Option<&str>) {
        let first = self.handles[&handle].journal.watermarks().first;
        let mut doubtful = BTreeSet::new();
        for position in gap.positions.clone() {
            let Some(&((batch, _), _)) = self.history.get(&position) else { continue };
            let sent = &self.sent[batch as usize];
            if sent.state == BatchState::Uncertain {
                doubtful.insert(batch);
            }
            if sent.state != BatchState::Alive || self.damaged {
                continue;
            }
            let holds = name.is_some_and(|name| {
                matches!(
                    self.names.get(name),
                    Some(NameState::Yes(NamedCheckpoint { blocks_deletion: true, .. }))
                )
            });
            let kept = holds && self.settings.limits.on_full == LimitPolicy::Reject;
            self.ensure(position < first && !kept, || {
                format!("batch {batch} at {position} was acknowledged and is in a gap: {gap:?}")
            });
            self.ensure(matches!(gap.reason, GapReason::BytesLimit | GapReason::AgeLimit), || {
                format!("batch {batch} was dropped, and the reason said is {gap:?}")
            });
        }
        self.ensure(self.damaged || self.may_miss_gaps || gap.reason != GapReason::Damaged, || {
            format!("nothing was damaged, but there is {gap:?}")
        });
        for batch in doubtful {
            self.sent[batch as usize].state = BatchState::Lost;
        }
        if gap.is_complete {
            self.check_producers(gap);
        }
    }

    /// Checks that the counts per producer add up where the model knows all positions.
    #[track_caller]
    fn check_producers(&self, gap: &RecordGap) {
        let mut expected: BTreeMap<(u64, u64), (u64, u64, u64)> = BTreeMap::new();
        for position in gap.positions.clone() {
            let Some(&((batch, _), _)) = self.history.get(&position) else { return };
            let sent = &self.sent[batch as usize];
            if sent.state != BatchState::Alive {
                return;
            }
            if let Some(BatchIdentity { producer, epoch, sequence }) = sent.identity {
                let part = expected.entry((producer, epoch)).or_insert((sequence, sequence, 0));
                *part = (part.0.min(sequence), part.1.max(sequence), part.2 + 1);
            }
        }
        let found: BTreeMap<_, _> = gap
            .producers
            .iter()
            .map(|part| {
                let sequences = (*part.sequences.start(), *part.sequences.end(), part.records);
                ((part.producer, part.epoch), sequences)
            })
            .collect();
        self.ensure(found == expected, || format!("{gap:?} should be of {expected:?}"));
    }

    /// Reads everything and compares it with the model.
    #[track_caller]
    pub(crate) fn audit(&mut self, handle: u32) {
        match self.try_audit(handle) {
            Ok(()) => {}
            Err(stop) => self.fail(&format!("reading does not succeed: {stop:?}")),
        }
    }

    #[track_caller]
    pub(crate) fn try_audit(&mut self, handle: u32) -> OperationResult {
        let journal = &self.handles[&handle].journal;
        let marks = journal.watermarks();
        self.ensure(
            marks.first <= marks.end
                && marks.durable <= marks.flushed
                && marks.flushed <= marks.end,
            || format!("{marks:?}"),
        );
        let mut items = Vec::new();
        attempt(|| {
            let mut reader = journal.reader(StartPosition::First)?;
            self.ensure(reader.position() == marks.first, || "not at the first".to_owned());
            while let Some(item) = reader.next()? {
                items.push(match item {
                    ReadItem::Batch(batch) => Ok((
                        batch.positions(),
                        batch.records().map(to_owned_record).collect::<Vec<_>>(),
                    )),
                    ReadItem::Gap(gap) => Err(gap),
                });
            }
            Ok(())
        })?;
        self.log_event(("audit", marks, items.len()));
        let mut next = marks.first;
        let mut there = BTreeSet::new();
        let mut last: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for item in items {
            let positions = match &item {
                Ok((positions, _)) => positions.clone(),
                Err(gap) => gap.positions.clone(),
            };
            self.ensure(positions.start == next && positions.end > next, || {
                format!("expected {next}, got {positions:?}")
            });
            next = positions.end;
            match item {
                Ok((positions, records)) => {
                    for (position, identity, _) in &records {
                        there.insert(*position);
                        if let Some(BatchIdentity { producer, epoch, sequence }) = *identity {
                            let before = last.insert((producer, epoch), sequence);
                            self.ensure(before.is_none_or(|before| before <= sequence), || {
                                format!("{identity:?} at {position} comes after {before:?}")
                            });
                        }
                    }
                    self.check_records(positions, &records);
                }
                Err(gap) => self.check_gap(handle, &gap, None),
            }
        }
        self.ensure(next == marks.end, || format!("reading ends at {next} of {marks:?}"));
        self.check_all(marks, &there);
        self.check_names(handle)?;
        self.check_levels(handle)?;
        Ok(())
    }

    #[track_caller]
    fn check_all(&mut self, marks: Watermarks, there: &BTreeSet<u64>) {
        for batch in 0..self.sent.len() {
            let sent = &self.sent[batch];
            let Some(first) = sent.first else {
                if sent.state == BatchState::Uncertain {
                    self.fail("BUG: doubtful without a position");
                }
                continue;
            };
            if sent.state == BatchState::Lost || first < marks.first {
                continue;
            }
            let positions = first..first + sent.lens.len() as u64;
            let found = positions.clone().filter(|position| {
                there.contains(position) && self.history[position].0.0 == batch as u32
            });
            let found = found.count();
            let sent = &mut self.sent[batch];
            if found == sent.lens.len() {
                continue;
            }
            let whole = found == 0;
            if sent.state == BatchState::Uncertain && whole {
                sent.state = BatchState::Lost;
                continue;
            }
            let (state, durable) = (sent.state, sent.durable);
            self.ensure(self.damaged && whole, || {
                format!(
                    "batch {batch} ({state:?}, durable: {durable}) at {positions:?}: {found} \
                         are there, {marks:?}"
                )
            });
        }
        // Dropped: check that the limits allow it.
        let dropped = self.history.range(..marks.first).next().is_some();
        let limits = self.settings.limits;
        if dropped && limits.on_full == LimitPolicy::Reject && !self.damaged {
            for (name, exists) in &self.names {
                if let NameState::Yes(NamedCheckpoint { positions, blocks_deletion: true }) = exists
                {
                    let at = *positions.last().expect("BUG: nowhere");
                    let lost_only = |from: u64| {
                        self.history.range(from..marks.first).all(|(_, ((batch, _), _))| {
                            let state = self.sent[*batch as usize].state;
                            matches!(state, BatchState::Lost | BatchState::Uncertain)
                        })
                    };
                    self.ensure(marks.first <= at || lost_only(at), || {
                        format!("{name} holds {at}, but the first is {}", marks.first)
                    });
                }
            }
        }
    }

    #[track_caller]
    fn check_names(&mut self, handle: u32) -> OperationResult {
        let journal = &self.handles[&handle].journal;
        let stat = attempt(|| journal.stat())?;
        self.ensure(self.damaged || stat.damaged_checkpoints.is_empty(), || format!("{stat:?}"));
        let found: BTreeMap<String, u64> =
            stat.checkpoints.iter().map(|c| (c.name.clone(), c.position)).collect();
        for (name, exists) in self.names.clone() {
            match (exists, found.get(&name)) {
                (NameState::Yes(mut named), Some(&position)) => {
                    self.check_position(&name, position);
                    // It stays at or before the position found.
                    if self.handles.values().all(|h| !h.subscribers.contains_key(&name)) {
                        named.positions.retain(|&p| p != position);
                        named.positions.push(position);
                        self.names.insert(name, NameState::Yes(named));
                    }
                }
                (NameState::Yes(_), None) => {
                    self.ensure(self.damaged, || format!("{name} is gone"));
                }
                (NameState::Unknown(named), Some(&position)) => {
                    let mut positions = named.positions.clone();
                    positions.push(position);
                    // Its name may not be durable: a power loss may still remove it.
                    self.names.insert(
                        name,
                        NameState::Unknown(NamedCheckpoint {
                            positions,
                            blocks_deletion: named.blocks_deletion,
                        }),
                    );
                }
                (NameState::Unknown(_), None) => {}
            }
        }
        for name in found.keys() {
            self.ensure(self.names.contains_key(name), || format!("{name} should not be there"));
        }
        let used = stat.segment_bytes;
        if let Some(max) = self.settings.limits.bytes_max {
            self.ensure(used <= max, || format!("segments take {used} bytes of {max}"));
        }
        Ok(())
    }

    /// Checks that a reader at level `disk` gets all durable records and no others.
    #[track_caller]
    fn check_levels(&mut self, handle: u32) -> OperationResult {
        let journal = &self.handles[&handle].journal;
        let marks = journal.watermarks();
        let read = |level, buffered| {
            attempt(|| {
                let mut reader = journal.reader(StartPosition::First)?;
                reader.set_level(level);
                reader.set_reads_buffer(buffered);
                while reader.next()?.is_some() {}
                Ok(reader.position())
            })
        };
        let durable = read(Level::Disk, true)?;
        let flushed = read(Level::Process, false)?;
        self.ensure(durable == marks.durable.max(marks.first) || durable == marks.durable, || {
            format!("a reader of what is durable comes to {durable}: {marks:?}")
        });
        self.ensure(flushed == marks.flushed.max(marks.first), || {
            format!("a reader of segments comes to {flushed}: {marks:?}")
        });
        Ok(())
    }
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
