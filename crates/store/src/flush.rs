//! Flush: from the head to parts.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use journal::Level;

use crate::change::StoreChange;
use crate::error::Result;
use crate::head::ImmutableHead;
use crate::inner::StoreInner;
use crate::manifest::ProducerTable;
use crate::mutex::lock;
use crate::resolution::Resolution;

/// Result of a flush.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushResult {
    /// Something on disk changed.
    pub(crate) is_changed: bool,
    /// Nothing that was read is left in memory.
    pub(crate) is_complete: bool,
}

impl StoreInner {
    /// Flushes the head, and an immutable head whose flush failed before. The caller holds the
    /// mutex `work`.
    pub(crate) fn flush(&self) -> Result<bool> {
        self.check_running()?;
        self.catch_up()?;
        let flushed = self.flush_read()?;
        if flushed.is_complete {
            return Ok(flushed.is_changed);
        }
        // The flush may have freed space in the journal for the rest.
        self.journal.flush(Level::Disk)?;
        self.catch_up()?;
        self.flush_read()?;
        Ok(true)
    }

    /// Flushes what was read from the journal, and an immutable head whose flush failed before. If
    /// the journal is full, flushes only what is durable: the missing flush may be the reason. The
    /// caller holds `work`.
    pub(crate) fn flush_read(&self) -> Result<FlushResult> {
        self.check_running()?;
        let changed = self.state().immutable_head.is_some();
        if changed {
            self.flush_immutable_head()?;
        }
        // Without blocking others; little is read from here on.
        let full = self.make_durable()?;
        let whole = {
            let mut subscriber = lock(&self.subscriber);
            let mut full = full;
            if full.is_none() && subscriber.position() > self.journal.watermarks().durable {
                full = self.make_durable()?;
            }
            let is_ahead = subscriber.position() > self.journal.watermarks().durable;
            if is_ahead {
                self.rewind_subscriber(&mut subscriber)?;
            }
            let mut state = self.state();
            let head = state.active_head.read().unwrap_or_else(PoisonError::into_inner);
            let position = subscriber.position();
            if head.is_empty() && position == state.manifest.position {
                return match full.filter(|_| is_ahead) {
                    Some(full) => Err(full.into()),
                    None => Ok(FlushResult { is_changed: changed, is_complete: true }),
                };
            }
            drop(head);
            let head = std::mem::take(&mut state.active_head);
            let producers = Arc::new(lock(&self.producers).clone());
            state.immutable_head = Some(ImmutableHead { head, position, producers });
            !is_ahead
        };
        self.flush_immutable_head()?;
        Ok(FlushResult { is_changed: true, is_complete: whole })
    }

    /// Makes the journal durable; returns the error if the journal has no space for all of it.
    fn make_durable(&self) -> Result<Option<journal::Error>> {
        match self.journal.flush(Level::Disk) {
            Ok(_) => Ok(None),
            Err(full @ journal::Error::Full(_)) => Ok(Some(full)),
            // A fail-stopped journal is detected before a head is made immutable for it.
            Err(error) => Err(error.into()),
        }
    }

    /// The journal must never assign the positions of a part's records again: they are durable when
    /// the head becomes immutable.
    fn flush_immutable_head(&self) -> Result<()> {
        let Some(immutable) = self.state().immutable_head.clone() else { return Ok(()) };
        let head = immutable.head.read().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        self.save_exemplars();
        self.save_traces();
        let mut change = StoreChange::new(self)?;
        change.add_series()?;
        let mut parts = Vec::new();
        for start in head.partitions().collect::<Vec<_>>() {
            let range = start..start.saturating_add(Resolution::Base.partition());
            parts.extend(change.add_head(&head, &range)?);
        }
        let series = change.series();
        change.commit(|manifest| {
            manifest.position = immutable.position;
            manifest.producers = ProducerTable::clone(&immutable.producers);
            manifest.series = series;
            head.gaps.iter().for_each(|gap| manifest.add_gap(gap.clone()));
        })?;
        let rate = head.bytes() as f64 / began.elapsed().as_secs_f64().max(1e-3);
        self.flush_rate.store(rate as u64, Ordering::Relaxed);
        let (id, rows) = (head.id, head.rows());
        drop(head);
        // Windows compare rows by their number: only a part with as many of each series stands for
        // the head. Others have fewer: rows of another partition, or of the same time.
        if let [part] = parts[..] {
            let mut state = self.state();
            if state.manifest.parts.get(&part).is_some_and(|info| info.rows == rows) {
                state.flushed_heads.insert(part, id);
            }
        }
        lock(&self.quarantine).clear_attempts(immutable.position);
        lock(&self.subscriber).commit(immutable.position, Level::Disk)?;
        self.count_head_bytes();
        Ok(())
    }

    /// Reads the journal to its end, flushing whenever rows in memory reach their limit; returns
    /// whether anything was flushed. The caller holds the mutex `work`.
    pub(crate) fn drain_journal(&self) -> Result<bool> {
        let mut flushed = false;
        while self.read_batch(self.options.head_bytes_max.max(1))? {
            flushed |= self.flush_read()?.is_changed;
        }
        Ok(flushed)
    }

    /// Whether the journal is full, or half full of records whose rows are only in memory here.
    pub(crate) fn is_journal_half_full(&self) -> Result<bool> {
        let position = self.state().manifest.position;
        Ok(self.journal.is_full() || self.journal.uses_half_of_limit(position)?)
    }

    /// Whether the head reached its limit, or an immutable head is left from a failed flush.
    pub(crate) fn is_head_full(&self) -> bool {
        let state = self.state();
        if state.immutable_head.is_some() {
            return true;
        }
        let active = Arc::clone(&state.active_head);
        drop(state);
        let head = active.read().unwrap_or_else(PoisonError::into_inner);
        head.limited_bytes() >= self.options.head_bytes_max
    }

    pub(crate) fn is_flush_due(&self) -> bool {
        let active = {
            let state = self.state();
            if state.immutable_head.is_some() {
                return true;
            }
            Arc::clone(&state.active_head)
        };
        // A writer of the head may need the state: it must not be locked meanwhile.
        let head = active.read().unwrap_or_else(PoisonError::into_inner);
        let latest = self.now().saturating_sub(self.options.late_grace);
        let is_over = |start: i64| start.saturating_add(Resolution::Base.partition()) <= latest;
        head.limited_bytes() >= self.options.head_bytes_max || head.partitions().any(is_over)
    }
}
