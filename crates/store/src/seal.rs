//! From the head to parts: a head is closed when what it has is durable in the journal, and written as one part for
//! each partition.

use std::sync::{Arc, PoisonError, RwLock};

use journal::Level;

use crate::change::Change;
use crate::error::Result;
use crate::head::Head;
use crate::manifest::Producers;
use crate::resolution::Resolution;
use crate::store::{Inner, locked};

/// What sealing came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealed {
    /// Something on disk is other than it was.
    pub(crate) changed: bool,
    /// Nothing of what was read is left.
    pub(crate) whole: bool,
}

/// A head that takes no more rows, and what the journal had given when it was closed.
#[derive(Clone)]
pub(crate) struct Sealing {
    pub(crate) head: Arc<RwLock<Head>>,
    pub(crate) position: u64,
    pub(crate) producers: Arc<Producers>,
}

impl Inner {
    /// Seals the head, and one that could not be sealed before. The caller has `work`.
    pub(crate) fn seal(&self) -> Result<bool> {
        self.check_running()?;
        self.catch_up()?;
        let sealed = self.seal_read()?;
        if sealed.whole {
            return Ok(sealed.changed);
        }
        // That may have given the journal room for the rest.
        self.journal.flush(Level::Disk)?;
        self.catch_up()?;
        self.seal_read()?;
        Ok(true)
    }

    /// Seals what was read of the journal, and what could not be sealed before. Of a journal that is full, what is
    /// durable: it may be full because that is not sealed. The caller has `work`.
    pub(crate) fn seal_read(&self) -> Result<Sealed> {
        self.check_running()?;
        let changed = self.state().sealing.is_some();
        if changed {
            self.seal_closed()?;
        }
        // With nobody's way barred; what is read from here on is rare, and little.
        let full = self.make_durable()?;
        let whole = {
            let mut feed = locked(&self.feed);
            let mut full = full;
            if full.is_none() && feed.position() > self.journal.marks().durable {
                full = self.make_durable()?;
            }
            let is_ahead = feed.position() > self.journal.marks().durable;
            if is_ahead {
                self.go_back(&mut feed)?;
            }
            let mut state = self.state();
            let head = state.active.read().unwrap_or_else(PoisonError::into_inner);
            let position = feed.position();
            if head.is_empty() && position == state.manifest.position {
                return match full.filter(|_| is_ahead) {
                    Some(full) => Err(full.into()),
                    None => Ok(Sealed { changed, whole: true }),
                };
            }
            drop(head);
            let head = std::mem::take(&mut state.active);
            let producers = Arc::new(locked(&self.producers).clone());
            state.sealing = Some(Sealing { head, position, producers });
            !is_ahead
        };
        self.seal_closed()?;
        Ok(Sealed { changed: true, whole })
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

    /// What a part contains must never be given anew by the journal: it is durable when the head is closed.
    fn seal_closed(&self) -> Result<()> {
        let sealing = self.state().sealing.clone().expect("BUG: there is a closed head");
        let head = sealing.head.read().unwrap_or_else(PoisonError::into_inner);
        let mut change = Change::new(self)?;
        change.add_series()?;
        for start in head.partitions().collect::<Vec<_>>() {
            let range = start..start.saturating_add(Resolution::Base.partition());
            change.add_head(&head, &range)?;
        }
        let series = change.series();
        change.commit(|manifest| {
            manifest.position = sealing.position;
            manifest.producers = Producers::clone(&sealing.producers);
            manifest.series = series;
            head.gaps.iter().for_each(|gap| manifest.add_gap(gap.clone()));
        })?;
        drop(head);
        locked(&self.quarantine).sealed(sealing.position);
        locked(&self.feed).commit(sealing.position, Level::Disk)?;
        self.count_head_bytes();
        Ok(())
    }

    /// Reads the journal until there is no more, sealing whenever rows in memory take as much as they may; whether
    /// anything was sealed. The caller has `work`.
    pub(crate) fn read_all(&self) -> Result<bool> {
        let mut sealed = false;
        while self.read_on(self.options.head_bytes_max.max(1))? {
            sealed |= self.seal_read()?.changed;
        }
        Ok(sealed)
    }

    /// Whether the journal is full, or soon may be, on account of what is only in memory here.
    pub(crate) fn is_journal_short(&self) -> Result<bool> {
        let position = self.state().manifest.position;
        Ok(self.journal.is_full() || self.journal.takes_half(position)?)
    }

    pub(crate) fn is_seal_due(&self) -> bool {
        let active = {
            let state = self.state();
            if state.sealing.is_some() {
                return true;
            }
            Arc::clone(&state.active)
        };
        // Whoever writes to the head may want the state: it must not be held meanwhile.
        let head = active.read().unwrap_or_else(PoisonError::into_inner);
        let latest = self.now().saturating_sub(self.options.grace);
        let is_over = |start: i64| start.saturating_add(Resolution::Base.partition()) <= latest;
        head.bytes() >= self.options.head_bytes_max || head.partitions().any(is_over)
    }
}
