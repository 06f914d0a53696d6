//! Write target: a store with its journal, or a journal alone.

use std::sync::Arc;

use journal::{Ack, BatchIdentity, Journal, Level, Supervisor};
use model::Batch;
use store::Store;

/// A store whose rows in memory take so many times what they may is not getting on: its disk is
/// full, or slow. What it takes in memory beyond one is sealed or being sealed as a rule.
const HEADS_MAX: usize = 4;

/// Write target: store or journal.
#[derive(Clone, Debug)]
pub enum WriteTarget {
    /// A store, which its journal feeds: `topdeck serve`.
    Store(Arc<Store>),
    /// A journal, from which sites are fed: `topdeck agent`.
    Journal(Arc<Journal>),
}

impl WriteTarget {
    /// The journal.
    pub fn journal(&self) -> &Journal {
        match self {
            WriteTarget::Store(store) => store.journal(),
            WriteTarget::Journal(journal) => journal,
        }
    }

    /// What runs threads again that panic.
    pub(crate) fn supervisor(&self) -> &Supervisor {
        self.journal().supervisor()
    }

    /// The store, if there is one.
    pub fn store(&self) -> Option<&Arc<Store>> {
        match self {
            WriteTarget::Store(store) => Some(store),
            WriteTarget::Journal(_) => None,
        }
    }

    /// Bytes of memory that rows take which the store cannot bring to disk, and how many there may
    /// be, if it has too many.
    pub(crate) fn head_over_limit(&self) -> Option<(usize, usize)> {
        let store = self.store()?;
        let max = store.options().head_bytes_max.saturating_mul(HEADS_MAX);
        let held = store.head_and_pending_bytes();
        (held > max).then_some((held, max))
    }

    /// Whether a batch would be a repeat.
    pub(crate) fn has_taken(&self, identity: BatchIdentity) -> Result<bool, store::Error> {
        match self {
            WriteTarget::Store(store) => store.has_taken(identity),
            WriteTarget::Journal(journal) => Ok(journal.has_accepted(identity)?),
        }
    }

    /// Appends a batch whose new series were admitted.
    pub(crate) fn append(
        &self,
        identity: BatchIdentity,
        batch: &Batch,
    ) -> Result<Ack, store::Error> {
        match self {
            WriteTarget::Store(store) => {
                store.ingest_checked(Some(identity), batch, Level::Process)
            }
            WriteTarget::Journal(journal) => {
                Ok(journal.append_batch(Some(identity), &[batch.bytes()], Level::Process)?)
            }
        }
    }
}
