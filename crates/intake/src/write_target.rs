//! Write target: a store with its journal, or a journal alone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use journal::{Ack, BatchIdentity, Journal, Level, Supervisor};
use model::Batch;
use store::Store;

/// A store whose heads exceed this multiple of their limit is behind: its disk is full or slow.
/// Normally heads beyond the first are flushed or being flushed.
const HEADS_MAX: usize = 4;
/// Maximum time after which a sender is asked to retry.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

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

    /// Rows that the store has not flushed yet, if they are over their limit.
    pub(crate) fn flush_backlog(&self) -> Option<FlushBacklog> {
        let store = self.store()?;
        let max = store.options().head_bytes_max.saturating_mul(HEADS_MAX);
        let bytes = store.head_and_pending_bytes();
        let rate = store.flush_rate();
        (bytes > max).then_some(FlushBacklog { bytes, max, rate })
    }

    /// Whether a batch would be a duplicate.
    pub(crate) fn has_taken(&self, identity: BatchIdentity) -> Result<bool, store::Error> {
        match self {
            WriteTarget::Store(store) => store.has_taken(identity),
            WriteTarget::Journal(journal) => Ok(journal.has_accepted(identity)?),
        }
    }

    /// Sequence of the last batch of a producer epoch: later ones are no duplicates.
    pub(crate) fn last_sequence(
        &self,
        producer: u64,
        epoch: u64,
    ) -> Result<Option<u64>, store::Error> {
        match self {
            WriteTarget::Store(store) => store.last_sequence(producer, epoch),
            WriteTarget::Journal(journal) => Ok(journal.last_sequence(producer, epoch)?),
        }
    }

    /// Appends a batch whose new series are admitted. Returns whether its exemplars and traces are
    /// dropped, too.
    pub(crate) fn append(
        &self,
        identity: BatchIdentity,
        batch: &Batch,
    ) -> Result<(Ack, bool), store::Error> {
        match self {
            WriteTarget::Store(store) => {
                store.ingest_checked(Some(identity), batch, Level::Process)
            }
            WriteTarget::Journal(journal) => {
                Ok((journal.append_batch(Some(identity), &[batch.bytes()], Level::Process)?, false))
            }
        }
    }
}

/// Rows in memory over their limit.
#[derive(Debug)]
pub(crate) struct FlushBacklog {
    bytes: usize,
    max: usize,
    /// Bytes per second of the last flush.
    rate: Option<u64>,
}

impl FlushBacklog {
    /// Time until a flush has halved what the limit allows, as far as the last flush shows.
    pub(crate) fn retry_after(&self) -> Duration {
        let excess = self.bytes.saturating_sub(self.max / 2) as u64;
        let seconds = self.rate.map_or(1, |rate| excess.div_ceil(rate.max(1)));
        Duration::from_secs(seconds.clamp(1, RETRY_AFTER_MAX.as_secs()))
    }
}

impl fmt::Display for FlushBacklog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: usize| bytes as f64 / 1e6;
        write!(
            f,
            "rows arrive faster than they are written to disk: {:.0} MB are in memory, limit \
             {:.0} MB ({HEADS_MAX} times [store] max_head_size)",
            mb(self.bytes),
            mb(self.max)
        )?;
        match self.rate {
            Some(rate) => write!(f, "; the last flush wrote {:.1} MB/s", rate as f64 / 1e6),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: usize, rate: Option<u64>, seconds: u64, text: &str) {
        let backlog = FlushBacklog { bytes, max: 256_000_000, rate };
        assert_eq!(backlog.retry_after(), Duration::from_secs(seconds));
        assert_eq!(backlog.to_string(), text);
    }

    #[test]
    fn backlog_says_the_limit_and_how_long_to_wait() {
        let over = "rows arrive faster than they are written to disk: 300 MB are in memory, limit \
                    256 MB (4 times [store] max_head_size)";
        check(300_000_000, None, 1, over);
        check(300_000_000, Some(43_000_000), 4, &format!("{over}; the last flush wrote 43.0 MB/s"));
        check(300_000_000, Some(1), 30, &format!("{over}; the last flush wrote 0.0 MB/s"));
    }
}
