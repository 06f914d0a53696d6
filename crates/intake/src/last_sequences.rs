//! Last accepted sequence of each producer epoch.

use std::collections::BTreeMap;

use journal::BatchIdentity;

/// Maximum number of producer epochs whose last sequence is kept beside the ledger, which lags
/// slightly.
const SEQUENCES_MAX: usize = 1 << 16;

/// Last accepted sequences, bounded.
#[derive(Debug, Default)]
pub(crate) struct LastSequences {
    /// By producer and epoch: the sequence, and the number of batches counted before it.
    table: BTreeMap<(u64, u64), (u64, u64)>,
    batches: u64,
}

impl LastSequences {
    pub(crate) fn remember(&mut self, identity: BatchIdentity) {
        self.batches = self.batches.saturating_add(1);
        let (last, state) = self.table.entry((identity.producer, identity.epoch)).or_default();
        (*last, *state) = (identity.sequence.max(*last), self.batches);
        journal::evict(&mut self.table, SEQUENCES_MAX, |(_, state)| *state);
    }

    pub(crate) fn of(&self, producer: u64, epoch: u64) -> Option<u64> {
        self.table.get(&(producer, epoch)).map(|(last, _)| *last)
    }
}
