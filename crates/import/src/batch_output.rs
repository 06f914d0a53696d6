//! Batches of one file or block: numbered, written to the target, and counted.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Result;
use client::ServerClient;
use journal::{BatchIdentity, Level};
use model::Batch;
use store::Store;

use crate::batch_sender::{BatchSender, RequestOutcome};
use crate::import_batches::{BATCH_FORMAT, ImportSummary};

/// Number of batches between two checks of the memory size.
const BATCHES_BETWEEN: u64 = 8;
/// Approximate maximum of rows in memory before a flush.
const HEAD_BYTES_MAX: u64 = 128 << 20;

/// Writer of the batches of a producer. Sequences start at 1; batches that the target has are not
/// written again.
pub(crate) struct BatchOutput<'a> {
    destination: BatchDestination<'a>,
    /// Sequence up to which the target had everything at the start.
    last_known: u64,
    /// Counts of the batches that the server has not acknowledged.
    unacknowledged: VecDeque<ImportSummary>,
    summary: ImportSummary,
}

enum BatchDestination<'a> {
    Store { store: &'a Store, producer: u64 },
    Server(BatchSender),
}

impl<'a> BatchOutput<'a> {
    /// Writes to a store in a directory.
    pub(crate) fn to_store(store: &'a Store, producer: u64) -> Result<BatchOutput<'a>> {
        let last_known = store.last_sequence(producer, BATCH_FORMAT)?.unwrap_or(0);
        Ok(BatchOutput::new(BatchDestination::Store { store, producer }, last_known))
    }

    /// Sends to a server; see [`BatchSender::start`].
    pub(crate) fn to_server(
        client: &ServerClient,
        retry_for: Duration,
        producer: u64,
    ) -> Result<BatchOutput<'a>> {
        let sender = BatchSender::start(client, retry_for, producer)?;
        let last_known = sender.last_known();
        Ok(BatchOutput::new(BatchDestination::Server(sender), last_known))
    }

    fn new(destination: BatchDestination<'a>, last_known: u64) -> BatchOutput<'a> {
        let (unacknowledged, summary) = (VecDeque::new(), ImportSummary::default());
        BatchOutput { destination, last_known, unacknowledged, summary }
    }

    /// Whether the target has the next batch, which then need not be encoded.
    pub(crate) fn has_next(&self) -> bool {
        self.summary.batches < self.last_known
    }

    /// Counts the next batch, which the target has.
    pub(crate) fn skip(&mut self) {
        self.summary.batches += 1;
        self.summary.duplicates += 1;
    }

    /// Writes the next batch. A server stores it later: [`Self::finish`] waits for that.
    pub(crate) fn push(&mut self, batch: &Batch, counts: ImportSummary) -> Result<()> {
        if self.has_next() {
            self.skip();
            return Ok(());
        }
        self.summary.batches += 1;
        let sequence = self.summary.batches;
        match &mut self.destination {
            BatchDestination::Store { store, producer } => {
                let identity = BatchIdentity { producer: *producer, epoch: BATCH_FORMAT, sequence };
                match store.ingest(Some(identity), batch, Level::Disk)?.is_duplicate {
                    true => self.summary.duplicates += 1,
                    false => self.summary.add(&counts),
                }
                // A server limits its memory by itself.
                if sequence.is_multiple_of(BATCHES_BETWEEN)
                    && store.stat()?.head_bytes > HEAD_BYTES_MAX
                {
                    store.flush()?;
                }
            }
            BatchDestination::Server(sender) => {
                self.unacknowledged.push_back(counts);
                sender.push(sequence, batch)?;
                while let Some(outcome) = sender.next_outcome()? {
                    acknowledge(&mut self.summary, &mut self.unacknowledged, &outcome);
                }
            }
        }
        Ok(())
    }

    /// Waits until everything is durable.
    pub(crate) fn finish(mut self) -> Result<ImportSummary> {
        if let BatchDestination::Server(sender) = self.destination {
            for outcome in sender.finish()? {
                acknowledge(&mut self.summary, &mut self.unacknowledged, &outcome);
            }
        }
        Ok(self.summary)
    }
}

fn acknowledge(
    summary: &mut ImportSummary,
    unacknowledged: &mut VecDeque<ImportSummary>,
    outcome: &RequestOutcome,
) {
    let batches = unacknowledged.drain(..outcome.batches as usize);
    for (at, counts) in batches.enumerate() {
        match (at as u64) < outcome.duplicates {
            true => summary.duplicates += 1,
            false => summary.add(&counts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_another_import_stored_meanwhile_are_not_counted() {
        let mut summary = ImportSummary::default();
        let one = |numbers| ImportSummary { numbers, ..ImportSummary::default() };
        let mut unacknowledged: VecDeque<ImportSummary> = [1, 10, 100, 1000].map(one).into();
        let outcome = RequestOutcome { batches: 3, duplicates: 2 };
        acknowledge(&mut summary, &mut unacknowledged, &outcome);
        assert_eq!((summary.numbers, summary.duplicates, unacknowledged.len()), (100, 2, 1));
    }
}
