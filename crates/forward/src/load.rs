//! What goes to a site in one request.

use bytes::Bytes;
use model::ParcelWriter;

use crate::error::{Error, Result};

/// Zstandard's fastest of its own levels: half the bytes at several hundred megabytes a second.
const ZSTD_LEVEL: i32 = 1;

/// A parcel, packed.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// The parcel, compressed.
    pub(crate) body: Bytes,
    /// Its last sequence: the journal's position behind its last record.
    pub(crate) last: u64,
    /// Records that it deals with: sent, or told as missing.
    pub(crate) records: u64,
    /// Samples in them.
    pub(crate) samples: u64,
    /// When the oldest record was appended.
    pub(crate) oldest: Option<i64>,
}

/// A parcel that is being packed.
#[derive(Debug)]
pub(crate) struct Packing {
    pub(crate) parcel: ParcelWriter,
    last: u64,
    records: u64,
    samples: u64,
    oldest: Option<i64>,
}

impl Packing {
    pub(crate) fn new(journal: u128) -> Packing {
        let parcel = ParcelWriter::new(journal);
        Packing { parcel, last: 0, records: 0, samples: 0, oldest: None }
    }

    /// Adds a batch that stands for so many records, the last of which is before position `sequence`.
    pub(crate) fn push(&mut self, sequence: u64, batch: &[u8], records: u64, samples: u64) {
        self.parcel.push(sequence, batch);
        self.last = sequence;
        self.records += records;
        self.samples += samples;
    }

    /// Notes when something in it was appended.
    pub(crate) fn note(&mut self, time: i64) {
        self.oldest = Some(self.oldest.map_or(time, |oldest| oldest.min(time)));
    }

    pub(crate) fn finish(self) -> Result<Load> {
        let parcel = self.parcel.finish();
        let body = zstd::bulk::compress(&parcel, ZSTD_LEVEL).map_err(Error::Compress)?;
        Ok(Load {
            body: body.into(),
            last: self.last,
            records: self.records,
            samples: self.samples,
            oldest: self.oldest,
        })
    }
}
