//! Whole traces of an open store: read from the journal, written to parts, found, removed.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::{ControlFlow, Range};

use model::{BatchReader, TraceId, TraceSpans};

use crate::error::Result;
use crate::inner::StoreInner;
use crate::mutex::lock;
use crate::store::Store;
use crate::traces::{StoredTrace, TraceStat};

impl Store {
    /// A trace by its id, with all of its spans that were kept.
    pub fn trace(&self, trace_id: &TraceId) -> Result<Option<StoredTrace>> {
        let inner = self.inner();
        // What was acknowledged before is included; a failure is reported elsewhere.
        let _ = inner.catch_up();
        let snapshot = lock(&inner.traces).snapshot(&|known| known == trace_id);
        snapshot.trace(trace_id)
    }

    /// Passes on spans of all traces that were received about a range of time, the latest part
    /// first, until told to stop; `None` before each part. A trace may come several times.
    pub fn search_traces(
        &self,
        range: &Range<i64>,
        each: &mut dyn FnMut(Option<TraceSpans<'_>>) -> ControlFlow<()>,
    ) -> Result<()> {
        let inner = self.inner();
        let _ = inner.catch_up();
        let snapshot = lock(&inner.traces).snapshot(&|_| true);
        snapshot.search(range, each)
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

    /// Writes all traces in memory to a part: before the records that have them leave the journal.
    /// The caller holds the mutex `work`.
    pub(crate) fn write_traces(&self) -> Result<bool> {
        let mut is_changed = false;
        loop {
            let durable = self.journal.watermarks().durable;
            let Some(write) = lock(&self.traces).begin_write(durable) else {
                return Ok(is_changed);
            };
            let written = write.run()?;
            lock(&self.traces).finish_write(&write, written);
            is_changed = true;
        }
    }

    /// Writes traces if that is due, and removes old parts. The caller holds the mutex `work`.
    pub(crate) fn maintain_traces(&self) -> Result<bool> {
        let is_due = lock(&self.traces).is_write_due(self.now());
        let is_written = is_due && self.write_traces()?;
        let is_removed = lock(&self.traces).remove_expired(self.now())?;
        Ok(is_written || is_removed)
    }
}
