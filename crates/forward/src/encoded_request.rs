//! Encoded forward request.

use bytes::Bytes;
use intake::CountedRecord;
use model::ForwardRequestWriter;
use net::signature::{SIGNATURE_BYTES, Signer};

use crate::error::{Error, Result};

/// Fastest regular level of Zstandard: half the size at several hundred MB/s.
const ZSTD_LEVEL: i32 = 1;

/// Kind of a request entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// The records are in the request.
    Batch,
    /// The records are missing in the journal and are sent as a gap.
    Gap,
    /// The remote rejected the records; a gap is sent in their place.
    DeadLettered,
}

/// Change of the remote's ledger once an entry is acknowledged.
#[derive(Clone, Debug)]
pub(crate) enum LedgerUpdate {
    /// Acknowledged record.
    Record(CountedRecord),
    /// Records missing in the journal.
    Gap(journal::RecordGap),
}

/// Entry of a request, with the journal records it covers.
#[derive(Clone, Debug)]
pub(crate) struct RequestEntry {
    /// Sequence: position after the last record.
    pub(crate) sequence: u64,
    pub(crate) records: u64,
    pub(crate) samples: u64,
    pub(crate) kind: EntryKind,
    /// Size in the journal.
    pub(crate) bytes: u64,
    pub(crate) ledger_update: LedgerUpdate,
}

/// Encoded, compressed and signed forward request.
#[derive(Clone, Debug)]
pub(crate) struct EncodedRequest {
    /// Compressed request.
    pub(crate) body: Bytes,
    /// Signature of the uncompressed request.
    pub(crate) signature: [u8; SIGNATURE_BYTES],
    /// Not empty.
    pub(crate) entries: Vec<RequestEntry>,
    /// Append time of the oldest record.
    pub(crate) oldest: Option<i64>,
}

impl EncodedRequest {
    /// Sequence of the last entry.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.sequence)
    }

    /// Entries acknowledged by a sequence.
    pub(crate) fn acknowledged_up_to(&self, accepted: u64) -> impl Iterator<Item = &RequestEntry> {
        self.entries.iter().take_while(move |entry| entry.sequence <= accepted)
    }
}

/// Request under construction.
#[derive(Debug)]
pub(crate) struct RequestBuilder {
    pub(crate) writer: ForwardRequestWriter,
    entries: Vec<RequestEntry>,
    oldest: Option<i64>,
}

impl RequestBuilder {
    pub(crate) fn new(journal: u128) -> RequestBuilder {
        RequestBuilder {
            writer: ForwardRequestWriter::new(journal),
            entries: Vec::new(),
            oldest: None,
        }
    }

    pub(crate) fn push(&mut self, entry: RequestEntry, batch: &[u8]) {
        self.writer.push(entry.sequence, batch);
        self.entries.push(entry);
    }

    /// Records the append time of a record.
    pub(crate) fn set_oldest(&mut self, time: i64) {
        self.oldest = Some(self.oldest.map_or(time, |oldest| oldest.min(time)));
    }

    pub(crate) fn finish(self, signer: &Signer) -> Result<EncodedRequest> {
        let request = self.writer.finish();
        let signature = signer.sign(&request);
        let body = zstd::bulk::compress(&request, ZSTD_LEVEL).map_err(Error::Compress)?;
        Ok(EncodedRequest {
            body: body.into(),
            signature,
            entries: self.entries,
            oldest: self.oldest,
        })
    }
}
