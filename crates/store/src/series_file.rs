//! Series file: canonical keys, owners, deletions.
//!
//! ```text
//! records, without padding:
//!   length   u32  lower 24 bits: length of the payload; upper 8 bits: kind of the record
//!   checksum u32  CRC-32C of the payload, then of the kind unless that is 0
//!   payload       kind 0: the canonical key of a series
//!                 kind 1: u64, the producer that the series of the records after it count for; one byte, 0, if
//!                         it is not known
//!                 kind 2: the id of a deleted series; it may be added again later
//!                 kind 3: the id of a series, and u64, another producer that sent it
//! ```
//! Numbers are little-endian. The producer is unknown at the start and after damage.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use model::SeriesId;

use crate::backend::SeriesRecord;

const HEADER_BYTES: usize = 8;
const KIND_SHIFT: u32 = 24;
const KEY: u32 = 0;
const PRODUCER: u32 = 1;
const DELETED: u32 = 2;
const SENT: u32 = 3;
const SENT_BYTES: usize = size_of::<SeriesId>() + size_of::<u64>();

/// Encodes what is appended to the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeriesWriter {
    /// End of the intact records in the file.
    intact_end: u64,
    /// Bytes not written yet.
    pending: Vec<u8>,
    /// Producer that further series in the file count for.
    producer: Option<u64>,
}

impl SeriesWriter {
    pub(crate) fn add(&mut self, producer: Option<u64>, canonical_key: &[u8]) {
        if self.producer != producer {
            match producer {
                Some(producer) => self.record(PRODUCER, &producer.to_le_bytes()),
                None => self.record(PRODUCER, &[0]),
            }
            self.producer = producer;
        }
        self.record(KEY, canonical_key);
    }

    pub(crate) fn add_producer(&mut self, id: &SeriesId, producer: u64) {
        let mut payload = [0; SENT_BYTES];
        let (of_id, of_producer) = payload.split_at_mut(id.0.len());
        of_id.copy_from_slice(&id.0);
        of_producer.copy_from_slice(&producer.to_le_bytes());
        self.record(SENT, &payload);
    }

    pub(crate) fn delete(&mut self, id: &SeriesId) {
        self.record(DELETED, &id.0);
    }

    /// Takes offset and bytes of the next write. The writer's state is then valid once the write is
    /// durable.
    pub(crate) fn take_pending(&mut self) -> (u64, Vec<u8>) {
        let (at, bytes) = (self.intact_end, std::mem::take(&mut self.pending));
        self.intact_end = self.intact_end.saturating_add(bytes.len() as u64);
        (at, bytes)
    }

    /// End of the intact records in the file.
    pub(crate) fn intact_end(&self) -> u64 {
        self.intact_end
    }

    fn record(&mut self, kind: u32, payload: &[u8]) {
        self.pending.extend((payload.len() as u32 | kind << KIND_SHIFT).to_le_bytes());
        self.pending.extend(checksum(kind, payload).to_le_bytes());
        self.pending.extend_from_slice(payload);
    }
}

fn checksum(kind: u32, payload: &[u8]) -> u32 {
    let checksum = crc32c::crc32c(payload);
    if kind == KEY { checksum } else { crc32c::crc32c_append(checksum, &kind.to_le_bytes()) }
}

/// Yields every record of the file. Returns the number of damaged places and the writer for
/// appends.
pub(crate) fn read(bytes: &[u8], each: &mut dyn FnMut(SeriesRecord<'_>)) -> (u64, SeriesWriter) {
    let mut writer = SeriesWriter::default();
    let (mut rest, mut damaged, mut was_sound, mut producer) = (bytes, 0_u64, true, None);
    while !rest.is_empty() {
        let Some((record, after)) = record(rest) else {
            // After damage, scans byte by byte for the next intact record.
            damaged = damaged.saturating_add(u64::from(was_sound));
            (was_sound, producer) = (false, None);
            rest = rest.get(1..).unwrap_or_default();
            continue;
        };
        (rest, was_sound) = (after, true);
        match record {
            SeriesFileRecord::Key(canonical_key) => {
                each(SeriesRecord::Added { key: canonical_key, producer })
            }
            SeriesFileRecord::Producer(found) => producer = found,
            SeriesFileRecord::Sent(id, producer) => each(SeriesRecord::Sent { id, producer }),
            SeriesFileRecord::Deleted(id) => each(SeriesRecord::Deleted(id)),
        }
        writer.intact_end = bytes.len().saturating_sub(rest.len()) as u64;
        writer.producer = producer;
    }
    // No manifest acknowledged a truncated tail; it is overwritten.
    (damaged.saturating_sub(u64::from(!was_sound)), writer)
}

enum SeriesFileRecord<'a> {
    Key(&'a [u8]),
    Producer(Option<u64>),
    Sent(SeriesId, u64),
    Deleted(SeriesId),
}

/// The first record, and the bytes after it.
fn record(bytes: &[u8]) -> Option<(SeriesFileRecord<'_>, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let number = u64::from_le_bytes(*header);
    let (head, expected) = (number as u32, (number >> 32) as u32);
    let (kind, length) = (head >> KIND_SHIFT, head & ((1 << KIND_SHIFT) - 1));
    let (payload, rest) = rest.split_at_checked(length as usize)?;
    if payload.is_empty() || payload.len() > model::CANONICAL_KEY_BYTES_MAX {
        return None;
    }
    if checksum(kind, payload) != expected {
        return None;
    }
    let record = match kind {
        KEY => SeriesFileRecord::Key(payload),
        PRODUCER if payload == [0] => SeriesFileRecord::Producer(None),
        PRODUCER => SeriesFileRecord::Producer(Some(u64::from_le_bytes(payload.try_into().ok()?))),
        SENT => {
            let (id, producer) = payload.split_first_chunk()?;
            let producer = u64::from_le_bytes(producer.try_into().ok()?);
            SeriesFileRecord::Sent(SeriesId(*id), producer)
        }
        DELETED => SeriesFileRecord::Deleted(SeriesId(payload.try_into().ok()?)),
        _ => return None,
    };
    Some((record, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> (Vec<String>, u64, SeriesWriter) {
        let mut lines = Vec::new();
        let (damaged, writer) = read(bytes, &mut |record| {
            lines.push(match record {
                SeriesRecord::Added { key: canonical_key, producer } => {
                    format!("{} {producer:?}", String::from_utf8_lossy(canonical_key))
                }
                SeriesRecord::Sent { id, producer } => {
                    format!("sent {} Some({producer})", id.0[0])
                }
                SeriesRecord::Deleted(id) => format!("deleted {}", id.0[0]),
            });
        });
        (lines, damaged, writer)
    }

    fn file() -> Vec<u8> {
        let mut writer = SeriesWriter::default();
        writer.add(None, b"old");
        writer.add(Some(7), b"a");
        writer.add(Some(7), b"b");
        writer.delete(&SeriesId([3; 16]));
        writer.add_producer(&SeriesId([4; 16]), 9);
        writer.add(Some(8), b"c");
        writer.add(None, b"from a part");
        writer.take_pending().1
    }

    #[test]
    fn records_round_trip_and_can_be_appended_to() {
        let mut bytes = file();
        let (found, damaged, mut writer) = lines(&bytes);
        let all = [
            "old None",
            "a Some(7)",
            "b Some(7)",
            "deleted 3",
            "sent 4 Some(9)",
            "c Some(8)",
            "from a part None",
        ];
        assert_eq!((found, damaged), (all.map(str::to_owned).to_vec(), 0));
        writer.add(Some(8), b"d");
        let (at, more) = writer.take_pending();
        assert_eq!(at, bytes.len() as u64);
        // Truncated, and overwritten.
        bytes.extend(&more[..5]);
        let (_, damaged, writer) = lines(&bytes);
        assert_eq!((damaged, writer.intact_end), (0, at));
        bytes.truncate(at as usize);
        bytes.extend(more);
        assert_eq!(lines(&bytes).0.last().unwrap(), "d Some(8)");
    }

    #[test]
    fn flipped_bits_lose_records_without_changing_owners() {
        let bytes = file();
        let (all, ..) = lines(&bytes);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let (found, locations, _) = lines(&damaged);
            let whose = |line: &String| {
                let (canonical_key, _) = line.split_once(' ').unwrap();
                all.contains(line)
                    || all.iter().any(|known| known.starts_with(canonical_key))
                        && line.ends_with("None")
            };
            assert!(found.iter().all(whose), "bit {bit}: {found:?}");
            assert!(locations > 0 || found.len() < all.len(), "bit {bit}");
        }
    }
}
