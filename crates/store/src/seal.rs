//! Flush: from the head to parts.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::sync::{Arc, PoisonError};

use journal::Level;

use crate::change::StoreChange;
use crate::error::Result;
use crate::head::SealingHead;
use crate::inner::StoreInner;
use crate::manifest::ProducerTable;
use crate::mutex::lock;
use crate::resolution::Resolution;

/// Result of a flush (seal).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SealResult {
    /// Something on disk is other than it was.
    pub(crate) is_changed: bool,
    /// Nothing of what was read is left.
    pub(crate) is_complete: bool,
}

impl StoreInner {
    /// Seals the head, and one that could not be sealed before. The caller has `work`.
    pub(crate) fn seal(&self) -> Result<bool> {
        self.check_running()?;
        self.catch_up()?;
        let sealed = self.seal_read()?;
        if sealed.is_complete {
            return Ok(sealed.is_changed);
        }
        // That may have given the journal room for the rest.
        self.journal.flush(Level::Disk)?;
        self.catch_up()?;
        self.seal_read()?;
        Ok(true)
    }

    /// Seals what was read of the journal, and what could not be sealed before. Of a journal that
    /// is full, what is durable: it may be full because that is not sealed. The caller has `work`.
    pub(crate) fn seal_read(&self) -> Result<SealResult> {
        self.check_running()?;
        let changed = self.state().sealing_head.is_some();
        if changed {
            self.seal_closed()?;
        }
        // With nobody's way barred; what is read from here on is rare, and little.
        let full = self.make_durable()?;
        let whole = {
            let mut feed = lock(&self.feed);
            let mut full = full;
            if full.is_none() && feed.position() > self.journal.watermarks().durable {
                full = self.make_durable()?;
            }
            let is_ahead = feed.position() > self.journal.watermarks().durable;
            if is_ahead {
                self.rewind_feed(&mut feed)?;
            }
            let mut state = self.state();
            let head = state.active_head.read().unwrap_or_else(PoisonError::into_inner);
            let position = feed.position();
            if head.is_empty() && position == state.manifest.position {
                return match full.filter(|_| is_ahead) {
                    Some(full) => Err(full.into()),
                    None => Ok(SealResult { is_changed: changed, is_complete: true }),
                };
            }
            drop(head);
            let head = std::mem::take(&mut state.active_head);
            let producers = Arc::new(lock(&self.producers).clone());
            state.sealing_head = Some(SealingHead { head, position, producers });
            !is_ahead
        };
        self.seal_closed()?;
        Ok(SealResult { is_changed: true, is_complete: whole })
    }

    /// Makes durable what the journal has; the error of one that has no room for all of it.
    fn make_durable(&self) -> Result<Option<journal::Error>> {
        match self.journal.flush(Level::Disk) {
            Ok(_) => Ok(None),
            Err(full @ journal::Error::Full(_)) => Ok(Some(full)),
            // A journal that takes nothing more is met before a head is closed for it.
            Err(error) => Err(error.into()),
        }
    }

    /// What a part contains must never be given anew by the journal: it is durable when the head is
    /// closed.
    fn seal_closed(&self) -> Result<()> {
        let Some(sealing) = self.state().sealing_head.clone() else { return Ok(()) };
        let head = sealing.head.read().unwrap_or_else(PoisonError::into_inner);
        let mut change = StoreChange::new(self)?;
        change.add_series()?;
        for start in head.partitions().collect::<Vec<_>>() {
            let range = start..start.saturating_add(Resolution::Base.partition());
            change.add_head(&head, &range)?;
        }
        let series = change.series();
        change.commit(|manifest| {
            manifest.position = sealing.position;
            manifest.producers = ProducerTable::clone(&sealing.producers);
            manifest.series = series;
            head.gaps.iter().for_each(|gap| manifest.add_gap(gap.clone()));
        })?;
        drop(head);
        lock(&self.quarantine).clear_attempts(sealing.position);
        lock(&self.feed).commit(sealing.position, Level::Disk)?;
        self.count_head_bytes();
        Ok(())
    }

    /// Reads the journal until there is no more, sealing whenever rows in memory take as much as
    /// they may; whether anything was sealed. The caller has `work`.
    pub(crate) fn drain_journal(&self) -> Result<bool> {
        let mut sealed = false;
        while self.read_batch(self.options.head_bytes_max.max(1))? {
            sealed |= self.seal_read()?.is_changed;
        }
        Ok(sealed)
    }

    /// Whether the journal is full, or soon may be, on account of what is only in memory here.
    pub(crate) fn is_journal_nearly_full(&self) -> Result<bool> {
        let position = self.state().manifest.position;
        Ok(self.journal.is_full() || self.journal.uses_half_of_limit(position)?)
    }

    pub(crate) fn is_seal_due(&self) -> bool {
        let active = {
            let state = self.state();
            if state.sealing_head.is_some() {
                return true;
            }
            Arc::clone(&state.active_head)
        };
        // Whoever writes to the head may want the state: it must not be held meanwhile.
        let head = active.read().unwrap_or_else(PoisonError::into_inner);
        let latest = self.now().saturating_sub(self.options.late_grace);
        let is_over = |start: i64| start.saturating_add(Resolution::Base.partition()) <= latest;
        head.bytes() >= self.options.head_bytes_max || head.partitions().any(is_over)
    }
}
