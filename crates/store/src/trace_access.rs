//! Whole traces of an open store: read from the journal, written to parts, found, removed.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::{ControlFlow, Range};

use model::{BatchReader, TraceId, TraceSpans};

use crate::error::{Error, Result};
use crate::inner::StoreInner;
use crate::mutex::lock;
use crate::store::Store;
use crate::traces::trace_snapshot::{ReserveTrace, TraceSearchStep};
use crate::traces::{StoredTrace, TraceStat};

impl Store {
    /// A trace by its id, with all of its spans that were kept; `None` as well if `reserve` stops
    /// the reading.
    pub fn trace(
        &self,
        trace_id: &TraceId,
        reserve: ReserveTrace<'_>,
    ) -> Result<Option<StoredTrace>> {
        let inner = self.inner();
        // What was acknowledged before is included; a failure is reported elsewhere.
        let _ = inner.catch_up();
        let snapshot = lock(&inner.traces).snapshot(&|known| known == trace_id);
        let mut notes = Vec::new();
        let found = snapshot.trace(trace_id, reserve, &mut notes);
        notes.into_iter().for_each(|note| inner.add_warning(note));
        found
    }

    /// Passes on spans of all traces that were received about a range of time, the latest part
    /// first, until told to stop. A trace may come several times. What cannot be read is skipped
    /// and reported as a warning.
    pub fn search_traces(
        &self,
        range: &Range<i64>,
        each: &mut dyn FnMut(TraceSearchStep<'_>) -> ControlFlow<()>,
    ) {
        let inner = self.inner();
        let _ = inner.catch_up();
        let snapshot = lock(&inner.traces).snapshot(&|_| true);
        let mut notes = Vec::new();
        snapshot.search(range, each, &mut notes);
        notes.into_iter().for_each(|note| inner.add_warning(note));
    }

    /// Passes on all spans of some traces, whose ids ascend, until told to stop. A trace may come
    /// several times. What cannot be read is skipped and reported as a warning.
    pub fn traces(
        &self,
        trace_ids: &[TraceId],
        each: &mut dyn FnMut(TraceSpans<'_>) -> ControlFlow<()>,
    ) {
        let inner = self.inner();
        let _ = inner.catch_up();
        let is_wanted = |known: &TraceId| trace_ids.binary_search(known).is_ok();
        let snapshot = lock(&inner.traces).snapshot(&is_wanted);
        let mut notes = Vec::new();
        snapshot.traces(trace_ids, each, &mut notes);
        notes.into_iter().for_each(|note| inner.add_warning(note));
    }

    /// Ids of traces that were received since a time, and perhaps of earlier ones.
    pub fn recent_trace_ids(&self, since: i64) -> Vec<TraceId> {
        let inner = self.inner();
        let _ = inner.catch_up();
        let snapshot = lock(&inner.traces).snapshot(&|_| true);
        snapshot.recent_ids(since)
    }

    /// State of the traces.
    pub fn trace_stat(&self) -> TraceStat {
        lock(&self.inner().traces).stat()
    }
}

impl StoreInner {
    /// Reads the spans of a record whose samples were read.
    pub(crate) fn offer_traces(
        &self,
        reader: &BatchReader<'_>,
        (position, received): (u64, i64),
    ) -> model::Result<()> {
        let mut traces = reader.traces().peekable();
        if traces.peek().is_none() {
            return Ok(());
        }
        lock(&self.traces).offer(traces, position, received)
    }

    /// Writes the traces that are in memory at first to parts: before the records that have them
    /// leave the journal. What cannot be written stays in memory, within a limit. The caller holds
    /// the mutex `work`.
    pub(crate) fn write_traces(&self) -> Result<bool> {
        let mut is_changed = false;
        let rounds = if lock(&self.traces).has_unwritten() { 2 } else { 1 };
        // Spans that are read meanwhile are of records that stay in the journal.
        for _ in 0..rounds {
            let durable = self.journal.watermarks().durable;
            let Some(write) = lock(&self.traces).begin_write(durable) else { break };
            let written = write.run();
            let mut traces = lock(&self.traces);
            match written {
                Ok(written) => traces.finish_write(&write, written),
                Err(error) => {
                    traces.drop_unwritten(self.options.head_bytes_max / 2);
                    return Err(error);
                }
            }
            is_changed = true;
        }
        Ok(is_changed)
    }

    /// As [`StoreInner::write_traces`]; a failure costs no samples and is reported as a warning.
    pub(crate) fn save_traces(&self) {
        if let Err(error) = self.write_traces() {
            self.add_warning(format!("traces are only in memory: {error}"));
        }
    }

    /// Writes traces if that is due, and removes old parts. The caller holds the mutex `work`.
    pub(crate) fn maintain_traces(&self) -> Result<bool> {
        let is_due = lock(&self.traces).is_write_due(self.now());
        let _parts = lock(&self.trace_parts);
        // What cannot be written may be so because of what is to be removed.
        let written = if is_due { self.write_traces() } else { Ok(false) };
        let mut removal = lock(&self.traces).begin_removal(self.now());
        let removed = removal.run();
        lock(&self.traces).finish_removal(&removal);
        removed?;
        Ok(written? || !removal.is_empty())
    }

    /// Merges small parts, if there are some; the mutex `work` is not needed.
    pub(crate) fn merge_traces(&self) -> Result<bool> {
        let _parts = lock(&self.trace_parts);
        let Some(merge) = lock(&self.traces).begin_merge(self.now()) else { return Ok(false) };
        let merged = merge.run();
        let mut traces = lock(&self.traces);
        match &merged {
            Ok(Some(merged)) => traces.finish_merge(merged),
            Ok(None) => traces.fail_merge(&merge, 1),
            // The next pass tries again.
            Err(Error::Io(error)) if !error.is_not_found() => {}
            Err(_) => traces.fail_merge(&merge, usize::MAX),
        }
        Ok(merged?.is_some())
    }
}
