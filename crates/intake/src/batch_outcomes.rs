//! What became of the received batches.

use crate::meter::EventCounter;

/// Requests rejected because of the sender's identity.
#[derive(Debug)]
pub(crate) struct IdentityRejections {
    pub(crate) keys: EventCounter,
    pub(crate) sequences: EventCounter,
}

/// Batches by outcome.
#[derive(Debug)]
pub(crate) struct BatchOutcomes {
    pub(crate) accepted: EventCounter,
    pub(crate) duplicate: EventCounter,
    pub(crate) rejected: EventCounter,
    pub(crate) deferred: EventCounter,
}
