//! Encoded forward request.

use bytes::Bytes;
use intake::CountedRecord;
use model::ForwardRequestWriter;
use net::signature::{SIGNATURE_BYTES, Signer};

use crate::error::{Error, Result};

/// Zstandard's fastest of its own levels: half the bytes at several hundred megabytes a second.
const ZSTD_LEVEL: i32 = 1;

/// What became of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// They are in the parcel.
    Batch,
    /// They were missing in the journal, and a gap says so.
    Gap,
    /// The site does not take them, and a gap says so.
    DeadLettered,
}

/// What the book of a site says once it has a part.
#[derive(Clone, Debug)]
pub(crate) enum LedgerUpdate {
    /// A record.
    Record(CountedRecord),
    /// Records that are missing.
    Gap(journal::RecordGap),
}

/// A batch of a parcel: what of the journal it stands for.
#[derive(Clone, Debug)]
pub(crate) struct RequestEntry {
    /// Its sequence: the position behind its last record.
    pub(crate) sequence: u64,
    pub(crate) records: u64,
    pub(crate) samples: u64,
    pub(crate) kind: EntryKind,
    /// Of the journal.
    pub(crate) bytes: u64,
    pub(crate) ledger_update: LedgerUpdate,
}

/// A parcel, packed.
#[derive(Clone, Debug)]
pub(crate) struct EncodedRequest {
    /// The parcel, compressed.
    pub(crate) body: Bytes,
    /// Of the parcel.
    pub(crate) signature: [u8; SIGNATURE_BYTES],
    /// Not empty.
    pub(crate) entries: Vec<RequestEntry>,
    /// When the oldest record was appended.
    pub(crate) oldest: Option<i64>,
}

impl EncodedRequest {
    /// The last sequence.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.entries.last().map_or(0, |part| part.sequence)
    }

    /// What is done when the site has everything up to a sequence.
    pub(crate) fn acknowledged_up_to(&self, accepted: u64) -> impl Iterator<Item = &RequestEntry> {
        self.entries.iter().take_while(move |part| part.sequence <= accepted)
    }
}

/// A parcel that is being packed.
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

    pub(crate) fn push(&mut self, part: RequestEntry, batch: &[u8]) {
        self.writer.push(part.sequence, batch);
        self.entries.push(part);
    }

    /// Notes when something in it was appended.
    pub(crate) fn set_oldest(&mut self, time: i64) {
        self.oldest = Some(self.oldest.map_or(time, |oldest| oldest.min(time)));
    }

    pub(crate) fn finish(self, signer: &Signer) -> Result<EncodedRequest> {
        let parcel = self.writer.finish();
        let signature = signer.sign(&parcel);
        let body = zstd::bulk::compress(&parcel, ZSTD_LEVEL).map_err(Error::Compress)?;
        Ok(EncodedRequest {
            body: body.into(),
            signature,
            entries: self.entries,
            oldest: self.oldest,
        })
    }
}
