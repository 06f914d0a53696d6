//! What goes to a site in one request.

use bytes::Bytes;
use intake::Counted;
use model::ParcelWriter;
use net::signature::{SIGNATURE_BYTES, Signer};

use crate::error::{Error, Result};

/// Zstandard's fastest of its own levels: half the bytes at several hundred megabytes a second.
const ZSTD_LEVEL: i32 = 1;

/// What became of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They are in the parcel.
    Sent,
    /// They were missing in the journal, and a gap says so.
    Missing,
    /// The site does not take them, and a gap says so.
    SetAside,
}

/// What the book of a site says once it has a part.
#[derive(Clone, Debug)]
pub(crate) enum Account {
    /// A record.
    Record(Counted),
    /// Records that are missing.
    Gap(journal::Gap),
}

/// A batch of a parcel: what of the journal it stands for.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Its sequence: the position behind its last record.
    pub(crate) sequence: u64,
    pub(crate) records: u64,
    pub(crate) samples: u64,
    pub(crate) fate: Fate,
    /// Of the journal.
    pub(crate) bytes: u64,
    pub(crate) account: Account,
}

/// A parcel, packed.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// The parcel, compressed.
    pub(crate) body: Bytes,
    /// Of the parcel.
    pub(crate) signature: [u8; SIGNATURE_BYTES],
    /// Not empty.
    pub(crate) parts: Vec<Part>,
    /// When the oldest record was appended.
    pub(crate) oldest: Option<i64>,
}

impl Load {
    /// The last sequence.
    pub(crate) fn last(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.sequence)
    }

    /// What is done when the site has everything up to a sequence.
    pub(crate) fn done(&self, accepted: u64) -> impl Iterator<Item = &Part> {
        self.parts.iter().take_while(move |part| part.sequence <= accepted)
    }
}

/// A parcel that is being packed.
#[derive(Debug)]
pub(crate) struct Packing {
    pub(crate) parcel: ParcelWriter,
    parts: Vec<Part>,
    oldest: Option<i64>,
}

impl Packing {
    pub(crate) fn new(journal: u128) -> Packing {
        Packing { parcel: ParcelWriter::new(journal), parts: Vec::new(), oldest: None }
    }

    pub(crate) fn push(&mut self, part: Part, batch: &[u8]) {
        self.parcel.push(part.sequence, batch);
        self.parts.push(part);
    }

    /// Notes when something in it was appended.
    pub(crate) fn note(&mut self, time: i64) {
        self.oldest = Some(self.oldest.map_or(time, |oldest| oldest.min(time)));
    }

    pub(crate) fn finish(self, signer: &Signer) -> Result<Load> {
        let parcel = self.parcel.finish();
        let signature = signer.sign(&parcel);
        let body = zstd::bulk::compress(&parcel, ZSTD_LEVEL).map_err(Error::Compress)?;
        Ok(Load { body: body.into(), signature, parts: self.parts, oldest: self.oldest })
    }
}
