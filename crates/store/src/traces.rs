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

pub(crate) mod trace_merge;
pub(crate) mod trace_part;
pub(crate) mod trace_snapshot;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, FileError, IoContext, OpenMode};
use model::{TraceId, TraceSpans};

use crate::error::{Error, Result};
use crate::resolution::{DAY, HOUR};
use trace_part::{PartEncoder, PartOrigin, TraceFooter};
use trace_snapshot::{TraceSnapshot, missing};

/// Memory of traces from which they are written to a part.
const HEAD_BYTES: usize = 8 << 20;
/// Memory of a trace besides its spans.
const TRACE_BYTES: usize = 96;
/// Maximum size of a trace in a part and in an answer. Senders limit traces, too, but not over a
/// long time, and not those that others forward.
const TRACE_BYTES_MAX: usize = 32 << 20;
/// A larger file is of another program.
const PART_BYTES_MAX: u64 = 4 << 30;

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
    /// Traces dropped since the opening because their part could not be written.
    pub dropped_traces: u64,
}

/// A stored trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTrace {
    /// `TracesData` of OTLP in protobuf. A span may occur more than once.
    pub spans: Vec<u8>,
    /// Whether spans were left out, because the trace exceeds a limit or cannot be read.
    pub is_cut: bool,
}

/// Appends spans to those of a trace that is cut or not, or cuts it.
fn append(of: &mut (bool, Vec<u8>), spans: &TraceSpans<'_>) {
    let is_cut = !of.1.is_empty() && of.1.len().saturating_add(spans.spans.len()) > TRACE_BYTES_MAX;
    of.0 |= spans.is_cut | is_cut;
    if !is_cut {
        of.1.extend_from_slice(spans.spans);
    }
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
        let of = self.traces.entry(spans.trace_id).or_default();
        let before = of.1.len();
        append(of, spans);
        let more = of.1.len().saturating_sub(before);
        let more = more.saturating_add(if is_new { TRACE_BYTES } else { 0 });
        self.bytes = self.bytes.saturating_add(more);
    }

    fn encode(&self, origin: &PartOrigin) -> Result<Vec<u8>> {
        let mut encoder = PartEncoder::default();
        for (trace_id, (is_cut, spans)) in &self.traces {
            encoder.push(TraceSpans { trace_id: *trace_id, is_cut: *is_cut, spans })?;
        }
        encoder.finish(origin)
    }
}

#[derive(Clone, Debug, Default)]
struct PartEntry {
    number: u64,
    length: u64,
    /// `None` of a part that cannot be read.
    footer: Option<TraceFooter>,
    /// A merge failed because of it.
    is_unmergeable: bool,
    /// Shared with snapshots: its file stays while one has it.
    users: Arc<()>,
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
    /// Parts that a merged one has replaced; their files are removed when no snapshot has them.
    replaced: Vec<PartEntry>,
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

    fn open(&self, number: u64) -> Result<PartFile> {
        let path = self.path(number);
        let file = self.disk.open(&path, OpenMode::Read).io_context("open", &path)?;
        let length = file.len().io_context("get the length of", &path)?;
        Ok(PartFile { file, path, length })
    }

    /// Calls `work` with a reader of a part.
    fn with<T>(
        &self,
        number: u64,
        work: impl FnOnce(u64, trace_part::ReadPart<'_>) -> Result<T>,
    ) -> Result<T> {
        let file = self.open(number)?;
        work(file.length, &|offset, length| file.read(offset, length))
            .map_err(|error| file.locate(error))
    }

    /// Writes a part durably, in the place of one with its number; returns its length and footer.
    fn write(&self, number: u64, bytes: &[u8]) -> Result<(u64, TraceFooter)> {
        let dir = &self.dir;
        self.disk.create_dir(dir).io_context("create", dir)?;
        if let Some(store) = dir.parent() {
            self.disk.sync_dir(store).io_context("fsync", store)?;
        }
        disk::replace_file(&*self.disk, &self.path(number), bytes)?;
        let length = bytes.len() as u64;
        let read = |offset: u64, length: usize| {
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            Ok(rest.get(..length).unwrap_or(rest).to_owned())
        };
        Ok((length, TraceFooter::read(&read, length)?))
    }
}

/// The file of a part.
struct PartFile {
    file: Box<dyn disk::File>,
    path: PathBuf,
    length: u64,
}

impl PartFile {
    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length.min(usize::try_from(PART_BYTES_MAX).unwrap_or(length))];
        let have = self.file.read_full_at(&mut bytes, offset).io_context("read", &self.path)?;
        bytes.truncate(have);
        Ok(bytes)
    }

    /// Says in which file the damage is.
    fn locate(&self, error: Error) -> Error {
        match error {
            Error::Damage { reason, .. } => {
                let location = self.path.display().to_string();
                Error::Damage { location, reason }
            }
            other => other,
        }
    }
}

impl TraceStore {
    /// Finds the parts of a store; a damaged one is reported in `notes` and left alone until it is
    /// removed as others are. Without a list of the parts nothing is kept: a new part could take
    /// the place of another.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        store: &Path,
        (mut options, journal): (TraceOptions, u128),
        notes: &mut Vec<String>,
    ) -> TraceStore {
        let files = TraceFiles { disk, dir: store.join("traces") };
        let names = match files.disk.list(&files.dir) {
            Ok(names) => names,
            Err(error) => {
                // A store without traces has no directory.
                if error.kind() != io::ErrorKind::NotFound {
                    let error = FileError::new("list", &files.dir, error);
                    notes.push(format!("traces are not kept until the next opening: {error}"));
                    options.bytes_max = 0;
                }
                Vec::new()
            }
        };
        let numbers = names.iter().filter(|name| name.len() == 16);
        let mut numbers: Vec<u64> =
            numbers.filter_map(|name| u64::from_str_radix(name, 16).ok()).collect();
        numbers.sort_unstable();
        let next_number = numbers.last().map_or(0, |last| last.saturating_add(1));
        let mut parts = Vec::new();
        for number in numbers {
            let mut length = 0;
            let footer = files.with(number, |found, read| {
                length = found;
                TraceFooter::read(read, length)
            });
            let footer = footer.map_err(|error| notes.push(missing(&error))).ok();
            parts.push(PartEntry { number, length, footer, ..PartEntry::default() });
        }
        // A kill after a merge leaves parts that another one has replaced.
        let merged: Vec<_> = parts.iter().filter_map(PartEntry::replaces).collect();
        let is_replaced = |part: &PartEntry| merged.iter().any(|all| all.contains(&part.number));
        let (replaced, parts): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_replaced);
        let footers = parts.iter().filter_map(|part: &PartEntry| part.footer);
        let own = footers.filter(|footer| footer.journal == journal);
        let read_to = own.map(|footer| footer.end).max().unwrap_or(0);
        TraceStore {
            files,
            options,
            journal,
            head: TraceHead::default(),
            writing: None,
            parts,
            replaced,
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
            oldest: self
                .parts
                .iter()
                .find_map(|part| part.footer)
                .map(|footer| footer.first)
                .or_else(|| heads.next()),
            ..self.stat
        }
    }
}

impl TraceStore {
    /// A snapshot, of the traces that may still change at least with those that `keep` wants.
    pub(crate) fn snapshot(&self, keep: &dyn Fn(&TraceId) -> bool) -> TraceSnapshot {
        let traces = self.head.traces.iter().filter(|(trace_id, _)| keep(trace_id));
        let traces = traces.map(|(trace_id, trace)| (*trace_id, trace.clone())).collect();
        let head = Arc::new(TraceHead { traces, ..TraceHead::default() });
        TraceSnapshot {
            files: self.files.clone(),
            heads: self.writing.iter().map(Arc::clone).chain([head]).collect(),
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
        let (number, footer) = (write.number, Some(footer));
        self.parts.push(PartEntry { number, length, footer, ..PartEntry::default() });
    }

    /// Whether a head waits for its part, besides the one that is filled.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.writing.is_some()
    }

    /// Drops a head that could not be written if traces in memory exceed a size.
    pub(crate) fn drop_unwritten(&mut self, bytes_max: usize) {
        if self.head_bytes() > bytes_max
            && let Some(head) = self.writing.take()
        {
            let dropped = &mut self.stat.dropped_traces;
            *dropped = dropped.saturating_add(head.traces.len() as u64);
        }
    }

    /// Parts that are too old, or beyond the limit of size: the oldest ones.
    pub(crate) fn begin_removal(&self, now: i64) -> TraceRemoval {
        let mut bytes = self.stat().bytes;
        let mut parts = Vec::new();
        let unused = self.replaced.iter().filter(|part| Arc::strong_count(&part.users) == 1);
        let replaced = unused.map(|part| part.number).collect();
        // A replaced part must not outlive its merged one: it would be a part again.
        let is_last = |part: &PartEntry| {
            let before = part.replaces();
            before.is_none_or(|all| !self.replaced.iter().any(|part| all.contains(&part.number)))
        };
        // A part that cannot be read is about as old as the next one.
        let mut last = i64::MAX;
        for part in self.parts.iter().rev() {
            last = part.footer.map_or(last, |footer| footer.last);
            if last.saturating_add(self.options.retention) <= now && is_last(part) {
                bytes = bytes.saturating_sub(part.length);
                parts.push((part.number, true));
            }
        }
        let is_old = parts.clone();
        for part in &self.parts {
            if bytes <= self.options.bytes_max {
                break;
            }
            if !is_old.contains(&(part.number, true)) && is_last(part) {
                bytes = bytes.saturating_sub(part.length);
                parts.push((part.number, false));
            }
        }
        TraceRemoval { files: self.files.clone(), parts, replaced }
    }

    /// Parts are removed.
    pub(crate) fn finish_removal(&mut self, removal: &TraceRemoval) {
        for (number, is_old) in &removal.parts {
            let count =
                if *is_old { &mut self.stat.expired_parts } else { &mut self.stat.evicted_parts };
            *count = count.saturating_add(1);
            self.parts.retain(|part| part.number != *number);
        }
        self.replaced.retain(|part| !removal.replaced.contains(&part.number));
    }
}

impl PartEntry {
    /// Numbers of the parts that it has replaced.
    fn replaces(&self) -> Option<std::ops::Range<u64>> {
        Some(self.footer?.from?..self.number)
    }
}

/// Parts that are being removed.
pub(crate) struct TraceRemoval {
    files: TraceFiles,
    /// Number, and whether it is too old.
    parts: Vec<(u64, bool)>,
    /// Parts that a merged one has replaced.
    replaced: Vec<u64>,
}

impl TraceRemoval {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.replaced.is_empty()
    }

    /// Removes the files; those that cannot be removed are no longer in `parts`.
    pub(crate) fn run(&mut self) -> Result<()> {
        let (files, mut failed) = (&self.files, None);
        let mut remove = |number: u64| {
            let path = files.path(number);
            match files.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    failed = Some(FileError::new("remove", &path, error));
                    false
                }
                _ => true,
            }
        };
        self.parts.retain(|(number, _)| remove(*number));
        self.replaced.retain(|number| remove(*number));
        if !self.is_empty() {
            files.disk.sync_dir(&files.dir).io_context("fsync", &files.dir)?;
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
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
        let (first, last) = (self.head.first, self.head.last);
        let (journal, end) = (self.journal, self.end);
        let origin = PartOrigin { journal, end, first, last, from: None };
        self.files.write(self.number, &self.head.encode(&origin)?)
    }
}
