//! What batches end in: a store with its journal, or a journal alone.

use std::sync::Arc;

use journal::{Ack, Identity, Journal, Level};
use model::Batch;
use store::Store;

use crate::error::Result;

/// What batches end in.
#[derive(Clone, Debug)]
pub enum Home {
    /// A store, which its journal feeds: `topdeck serve`.
    Store(Arc<Store>),
    /// A journal, from which sites are fed: `topdeck agent`.
    Journal(Arc<Journal>),
}

impl Home {
    /// The journal.
    pub fn journal(&self) -> &Journal {
        match self {
            Home::Store(store) => store.journal(),
            Home::Journal(journal) => journal,
        }
    }

    /// The store, if there is one.
    pub fn store(&self) -> Option<&Arc<Store>> {
        match self {
            Home::Store(store) => Some(store),
            Home::Journal(_) => None,
        }
    }

    pub(crate) fn append(&self, identity: Identity, batch: &Batch) -> Result<Ack> {
        match self {
            Home::Store(store) => Ok(store.ingest(Some(identity), batch, Level::Process)?),
            Home::Journal(journal) => {
                Ok(journal.append_batch(Some(identity), &[batch.bytes()], Level::Process)?)
            }
        }
    }
}
