//! Write target: a store with its journal, or a journal alone.

use std::sync::Arc;

use journal::{Ack, BatchIdentity, Journal, Level, Supervisor};
use model::Batch;
use store::Store;

/// A store whose heads exceed this multiple of their limit is behind: its disk is full or slow.
/// Normally heads beyond the first are sealed or being sealed.
const HEADS_MAX: usize = 4;

/// Write target: store or journal.
#[derive(Clone, Debug)]
pub enum WriteTarget {
    /// A store, fed by its journal: `topdeck serve`.
    Store(Arc<Store>),
    /// A journal, from which remotes are fed: `topdeck agent`.
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

    /// Restarts threads after a panic.
    pub(crate) fn supervisor(&self) -> &Supervisor {
        self.journal().supervisor()
    }

    /// The store, if any.
    pub fn store(&self) -> Option<&Arc<Store>> {
        match self {
            WriteTarget::Store(store) => Some(store),
            WriteTarget::Journal(_) => None,
        }
    }

    /// Head bytes that the store could not flush and their limit, if the limit is exceeded.
    pub(crate) fn head_over_limit(&self) -> Option<(usize, usize)> {
        let store = self.store()?;
        let max = store.options().head_bytes_max.saturating_mul(HEADS_MAX);
        let head_bytes = store.head_and_pending_bytes();
        (head_bytes > max).then_some((head_bytes, max))
    }

    /// Whether a batch would be a duplicate.
    pub(crate) fn has_taken(&self, identity: BatchIdentity) -> Result<bool, store::Error> {
        match self {
            WriteTarget::Store(store) => store.has_taken(identity),
            WriteTarget::Journal(journal) => Ok(journal.has_accepted(identity)?),
        }
    }

    /// Appends a batch whose new series are admitted.
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
