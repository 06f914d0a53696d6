//! Whole traces of a store: spans of batches, in memory and in part files by hour.
//!
//! The directory `traces` has the parts. They are not in the manifest: each says up to which
//! position of the journal it has the traces, and a record before it is not read again. A span that
//! is in two parts nevertheless, because records were not durable when a part was written, is found
//! twice; readers count spans once by their ids.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

pub(crate) mod trace_part;

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, IoContext, OpenMode};
use model::{TraceId, TraceReader, TraceSpans};

use crate::error::{Error, Result};
use crate::resolution::{DAY, HOUR, MINUTE};
use trace_part::{TraceFooter, TracePart};

/// Memory of traces from which they are written to a part.
const HEAD_BYTES: usize = 8 << 20;
/// Memory of a trace besides its spans.
const TRACE_BYTES: usize = 96;
/// A larger file is of another program.
const PART_BYTES_MAX: u64 = 4 << 30;
/// Spans that arrive this long after a range are searched, too.
const LATE_MAX: i64 = HOUR;
/// Clocks of senders may be ahead by this.
const AHEAD_MAX: i64 = 5 * MINUTE;

/// How traces are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Maximum size on disk: 1 GiB by default. Beyond it the oldest parts are removed; 0 keeps
    /// none.
    pub bytes_max: u64,
    /// How long traces are kept after they were received, in nanoseconds: seven days by default.
    pub retention: i64,
}

impl TraceOptions {
    /// Keeps all: for programs that open a store for a while.
    pub fn unlimited() -> TraceOptions {
        TraceOptions { bytes_max: u64::MAX, retention: i64::MAX }
    }
}

impl Default for TraceOptions {
    fn default() -> TraceOptions {
        TraceOptions { bytes_max: 1 << 30, retention: 7 * DAY }
    }
}

/// State of the traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceStat {
    /// Parts.
    pub parts: u64,
    /// Size of the parts in bytes.
    pub bytes: u64,
    /// Memory of traces that are in no part, in bytes.
    pub head_bytes: u64,
    /// When the oldest of them was received, in nanoseconds since the Unix epoch.
    pub oldest: Option<i64>,
    /// Parts removed since the opening because of their age.
    pub expired_parts: u64,
    /// Parts removed since the opening because of the limit of size.
    pub evicted_parts: u64,
}

/// A stored trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTrace {
    /// `TracesData` of OTLP in protobuf. A span may occur more than once.
    pub spans: Vec<u8>,
    /// Whether spans were left out, because the trace exceeds a limit.
    pub is_cut: bool,
}

/// Traces that are in no part.
#[derive(Clone, Debug, Default)]
pub(crate) struct TraceHead {
    /// Whether it is cut, and its spans.
    pub(crate) traces: BTreeMap<TraceId, (bool, Vec<u8>)>,
    bytes: usize,
    /// When the first and the last of their records were written.
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// Position after them.
    end: u64,
}

impl TraceHead {
    fn add(&mut self, spans: &TraceSpans<'_>, received: i64) {
        if self.traces.is_empty() {
            self.first = received;
        }
        self.last = self.last.max(received).max(self.first);
        let is_new = !self.traces.contains_key(&spans.trace_id);
        let more = spans.spans.len().saturating_add(if is_new { TRACE_BYTES } else { 0 });
        self.bytes = self.bytes.saturating_add(more);
        let of = self.traces.entry(spans.trace_id).or_default();
        of.0 |= spans.is_cut;
        of.1.extend_from_slice(spans.spans);
    }
}

#[derive(Clone, Debug)]
struct PartEntry {
    number: u64,
    length: u64,
    footer: TraceFooter,
}

/// See the module.
pub(crate) struct TraceStore {
    files: TraceFiles,
    options: TraceOptions,
    journal: u128,
    head: TraceHead,
    /// A head that is being written, or could not be.
    writing: Option<Arc<TraceHead>>,
    /// By number, which is the order of time.
    parts: Vec<PartEntry>,
    next_number: u64,
    /// Position after the last record that was read.
    read_to: u64,
    stat: TraceStat,
}

/// The directory.
#[derive(Clone)]
struct TraceFiles {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl TraceFiles {
    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:016x}"))
    }

    /// Calls `work` with a reader of a part.
    fn with<T>(
        &self,
        number: u64,
        work: impl FnOnce(u64, trace_part::ReadPart<'_>) -> Result<T>,
    ) -> Result<T> {
        let path = self.path(number);
        let file = self.disk.open(&path, OpenMode::Read).io_context("open", &path)?;
        let length = file.len().io_context("get the length of", &path)?;
        let read = |offset: u64, length: usize| {
            let mut bytes = vec![0; length.min(usize::try_from(PART_BYTES_MAX).unwrap_or(length))];
            let have = file.read_full_at(&mut bytes, offset).io_context("read", &path)?;
            bytes.truncate(have);
            Ok(bytes)
        };
        work(length, &read).map_err(|error| match error {
            Error::Damage { reason, .. } => {
                let location = path.display().to_string();
                Error::Damage { location, reason }
            }
            other => other,
        })
    }
}

impl TraceStore {
    /// Finds the parts of a store; a damaged one is reported in `notes` and left alone.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        store: &Path,
        (options, journal): (TraceOptions, u128),
        notes: &mut Vec<String>,
    ) -> TraceStore {
        let files = TraceFiles { disk, dir: store.join("traces") };
        // A store without traces has no directory.
        let names = files.disk.list(&files.dir).unwrap_or_default();
        let numbers = names.iter().filter(|name| name.len() == 16);
        let mut numbers: Vec<u64> =
            numbers.filter_map(|name| u64::from_str_radix(name, 16).ok()).collect();
        numbers.sort_unstable();
        let next_number = numbers.last().map_or(0, |last| last.saturating_add(1));
        let mut parts = Vec::new();
        for number in numbers {
            match files.with(number, |length, read| Ok((length, TraceFooter::read(read, length)?)))
            {
                Ok((length, footer)) => parts.push(PartEntry { number, length, footer }),
                Err(error) => notes.push(format!("traces are missing: {error}")),
            }
        }
        let own = parts.iter().filter(|part| part.footer.journal == journal);
        let read_to = own.map(|part| part.footer.end).max().unwrap_or(0);
        TraceStore {
            files,
            options,
            journal,
            head: TraceHead::default(),
            writing: None,
            parts,
            next_number,
            read_to,
            stat: TraceStat::default(),
        }
    }

    /// Reads the spans of a record, once.
    pub(crate) fn offer<'a>(
        &mut self,
        traces: impl Iterator<Item = model::Result<TraceSpans<'a>>>,
        position: u64,
        received: i64,
    ) -> model::Result<()> {
        if position < self.read_to {
            return Ok(());
        }
        for spans in traces {
            let spans = spans?;
            if self.options.bytes_max > 0 {
                self.head.add(&spans, received);
            }
        }
        self.read_to = position.saturating_add(1);
        Ok(())
    }

    /// Memory of traces that are in no part.
    pub(crate) fn head_bytes(&self) -> usize {
        let writing = self.writing.as_ref().map_or(0, |writing| writing.bytes);
        self.head.bytes.saturating_add(writing)
    }

    /// Whether traces should be written: they take much memory, or their hour is over.
    pub(crate) fn is_write_due(&self, now: i64) -> bool {
        let is_over =
            || self.head.first.div_euclid(HOUR) < now.div_euclid(HOUR) && self.head.bytes > 0;
        self.writing.is_some() || self.head.bytes >= HEAD_BYTES || is_over()
    }

    /// State.
    pub(crate) fn stat(&self) -> TraceStat {
        let heads = self.writing.as_deref().into_iter().chain([&self.head]);
        let mut heads = heads.filter(|head| head.bytes > 0).map(|head| head.first);
        TraceStat {
            parts: self.parts.len() as u64,
            bytes: self.parts.iter().map(|part| part.length).fold(0, u64::saturating_add),
            head_bytes: self.head_bytes() as u64,
            oldest: self.parts.first().map(|part| part.footer.first).or_else(|| heads.next()),
            ..self.stat
        }
    }
}

/// Traces of a store at one time, without its lock.
pub(crate) struct TraceSnapshot {
    files: TraceFiles,
    heads: Vec<Arc<TraceHead>>,
    parts: Vec<PartEntry>,
}

impl TraceStore {
    /// A snapshot with the traces in memory that `keep` wants.
    pub(crate) fn snapshot(&self, keep: &dyn Fn(&TraceId) -> bool) -> TraceSnapshot {
        let wanted = |head: &TraceHead| {
            let traces = head.traces.iter().filter(|(trace_id, _)| keep(trace_id));
            let traces = traces.map(|(trace_id, trace)| (*trace_id, trace.clone())).collect();
            Arc::new(TraceHead { traces, ..TraceHead::default() })
        };
        let heads = self.writing.as_deref().into_iter().chain([&self.head]);
        TraceSnapshot {
            files: self.files.clone(),
            heads: heads.map(wanted).collect(),
            parts: self.parts.clone(),
        }
    }

    /// The head that is to be written next, and what its file is: number, and position of the end.
    /// Records from `durable` on may be lost, and others be in their place.
    pub(crate) fn begin_write(&mut self, durable: u64) -> Option<TraceWrite> {
        if self.writing.is_none() && self.head.bytes > 0 {
            let head = TraceHead { end: self.read_to, ..std::mem::take(&mut self.head) };
            self.writing = Some(Arc::new(head));
        }
        let head = Arc::clone(self.writing.as_ref()?);
        let (number, end) = (self.next_number, head.end.min(durable));
        self.next_number = number.saturating_add(1);
        Some(TraceWrite { files: self.files.clone(), head, number, journal: self.journal, end })
    }

    /// The head is in a part with a length.
    pub(crate) fn finish_write(
        &mut self,
        write: &TraceWrite,
        (length, footer): (u64, TraceFooter),
    ) {
        self.writing = None;
        self.parts.push(PartEntry { number: write.number, length, footer });
    }

    /// Removes parts that are too old, or beyond the limit of size. Returns whether any was.
    pub(crate) fn remove_expired(&mut self, now: i64) -> Result<bool> {
        let mut bytes = self.stat().bytes;
        let mut is_changed = false;
        while let Some(oldest) = self.parts.first() {
            let is_old = oldest.footer.last.saturating_add(self.options.retention) <= now;
            if !is_old && bytes <= self.options.bytes_max {
                break;
            }
            let path = self.files.path(oldest.number);
            self.files.disk.remove(&path).io_context("remove", &path)?;
            bytes = bytes.saturating_sub(oldest.length);
            let count =
                if is_old { &mut self.stat.expired_parts } else { &mut self.stat.evicted_parts };
            *count = count.saturating_add(1);
            self.parts.remove(0);
            is_changed = true;
        }
        if is_changed {
            let dir = &self.files.dir;
            self.files.disk.sync_dir(dir).io_context("fsync", dir)?;
        }
        Ok(is_changed)
    }
}

/// A part that is being written.
pub(crate) struct TraceWrite {
    files: TraceFiles,
    head: Arc<TraceHead>,
    number: u64,
    journal: u128,
    end: u64,
}

impl TraceWrite {
    /// Writes it durably.
    pub(crate) fn run(&self) -> Result<(u64, TraceFooter)> {
        let bytes = trace_part::encode(&self.head, self.journal, self.end)?;
        let dir = &self.files.dir;
        self.files.disk.create_dir(dir).io_context("create", dir)?;
        if let Some(store) = dir.parent() {
            self.files.disk.sync_dir(store).io_context("fsync", store)?;
        }
        disk::replace_file(&*self.files.disk, &self.files.path(self.number), &bytes)?;
        let length = bytes.len() as u64;
        let read = |offset: u64, length: usize| {
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            Ok(rest.get(..length).unwrap_or(rest).to_owned())
        };
        Ok((length, TraceFooter::read(&read, length)?))
    }
}

impl TraceSnapshot {
    /// A trace, from all parts that have spans of it.
    pub(crate) fn trace(&self, trace_id: &TraceId) -> Result<Option<StoredTrace>> {
        let mut found = BTreeMap::new();
        for part in &self.parts {
            self.with_part(part, |opened| match opened.block_of(trace_id) {
                Some(block) => {
                    trace_part::add_from_block(&opened.block(block)?, trace_id, &mut found)
                }
                None => Ok(()),
            })?;
        }
        for (is_cut, spans) in self.heads.iter().filter_map(|head| head.traces.get(trace_id)) {
            let of: &mut (bool, Vec<u8>) = found.entry(*trace_id).or_default();
            of.0 |= is_cut;
            of.1.extend_from_slice(spans);
        }
        Ok(found.remove(trace_id).map(|(is_cut, spans)| StoredTrace { spans, is_cut }))
    }

    /// Passes on spans of all traces that were received about a range of time, the latest first,
    /// until told to stop, which is possible after each part. A trace may come several times.
    pub(crate) fn search(
        &self,
        range: &Range<i64>,
        each: &mut dyn FnMut(Option<TraceSpans<'_>>) -> ControlFlow<()>,
    ) -> Result<()> {
        for head in self.heads.iter().rev() {
            for (trace_id, (is_cut, spans)) in &head.traces {
                let spans = TraceSpans { trace_id: *trace_id, is_cut: *is_cut, spans };
                if each(Some(spans)).is_break() {
                    return Ok(());
                }
            }
        }
        for part in self.parts.iter().rev() {
            if each(None).is_break() {
                return Ok(());
            }
            let is_later = part.footer.first.saturating_sub(LATE_MAX) >= range.end;
            if is_later || part.footer.last.saturating_add(AHEAD_MAX) < range.start {
                continue;
            }
            let mut flow = ControlFlow::Continue(());
            self.with_part(part, |opened| {
                for block in 0..opened.blocks() {
                    for spans in TraceReader::new(&opened.block(block)?) {
                        flow = each(Some(spans?));
                        if flow.is_break() {
                            return Ok(());
                        }
                    }
                }
                Ok(())
            })?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Ids of traces that were received since a time.
    pub(crate) fn recent_ids(&self, since: i64) -> Vec<TraceId> {
        let mut ids: Vec<TraceId> =
            self.heads.iter().flat_map(|head| head.traces.keys().copied()).collect();
        for part in self.parts.iter().filter(|part| part.footer.last >= since) {
            // A damaged part is reported when it is read.
            let _ = self.with_part(part, |opened| {
                ids.extend(opened.trace_ids());
                Ok(())
            });
        }
        ids
    }

    /// Opens a part, unless it was removed since.
    fn with_part(
        &self,
        part: &PartEntry,
        work: impl FnOnce(&TracePart<'_>) -> Result<()>,
    ) -> Result<()> {
        let done = self
            .files
            .with(part.number, |length, read| work(&TracePart::open(&part.footer, length, read)?));
        match done {
            Err(Error::Io(error)) if error.is_not_found() => Ok(()),
            done => done,
        }
    }
}
