//! Inventory of series as bytes, for a file that is replaced atomically: after a restart it tells
//! what changed meanwhile. `docs/formats/series-inventory.md` specifies the format.

use std::collections::HashMap;

use model::{SeriesId, blake3_128};

use super::inventory::{NS_PER_S, SeriesArrivals, SeriesInventory, seconds};

const MAGIC: [u8; 8] = *b"tdseries";
/// Format version that is written.
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 36;
const CHECKSUM_BYTES: usize = 16;

/// Inventory as it was stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredInventory {
    /// Time of the last poll.
    pub(super) polled_s: u32,
    pub(super) series: HashMap<SeriesId, StoredArrivals>,
}

/// What is known of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StoredArrivals {
    pub(super) arrivals: SeriesArrivals,
    /// When it appeared, if that was lately; else 0.
    appeared_s: u32,
}

/// Why a stored inventory cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InventoryError {
    /// The file is another one.
    #[error("cannot read the inventory of series: found no title")]
    Title,
    /// A newer topdeck wrote it.
    #[error("cannot read the inventory of series: found version {0}, expected {VERSION}")]
    Version(u32),
    /// The bytes are not those that were written.
    #[error("cannot read the inventory of series: the checksum does not match")]
    Damaged,
}

impl StoredInventory {
    /// When a series appeared, if that was less than an hour before the inventory was stored.
    pub fn appeared_ns(&self, id: SeriesId) -> Option<i64> {
        let appeared_s = self.series.get(&id)?.appeared_s;
        (appeared_s > 0).then(|| i64::from(appeared_s).saturating_mul(NS_PER_S))
    }
}

/// Bytes of an inventory; `None` before its first poll has ended. `series` are those of the store
/// by their positions, `appeared_ns` the ones that appeared lately.
pub fn encode_inventory(
    inventory: &SeriesInventory,
    series: &[(u32, SeriesId)],
    appeared_ns: &HashMap<SeriesId, i64>,
) -> Option<Vec<u8>> {
    let polled_s = inventory.polled_s()?;
    let known = series.iter().filter_map(|(position, id)| Some((id, inventory.known(*position)?)));
    let mut bytes = Vec::with_capacity(HEADER_BYTES + series.len() * RECORD_BYTES);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(polled_s.to_le_bytes());
    let mut count: u64 = 0;
    bytes.extend(count.to_le_bytes());
    for (id, arrivals) in known {
        let appeared_s =
            appeared_ns.get(id).map_or(0, |appeared_ns| seconds(appeared_ns / NS_PER_S));
        bytes.extend(id.0);
        for number in [arrivals.end_s, arrivals.arrived_s, appeared_s] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(arrivals.interval_s.to_le_bytes());
        bytes.extend(arrivals.longest_s.to_le_bytes());
        bytes.extend([arrivals.learned, u8::from(arrivals.is_active), 0, 0]);
        count += 1;
    }
    bytes[16..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
    let checksum = blake3_128(&bytes);
    bytes.extend(checksum);
    Some(bytes)
}

/// An inventory from its bytes.
pub fn decode_inventory(bytes: &[u8]) -> Result<StoredInventory, InventoryError> {
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or(InventoryError::Title)?;
    if *magic != MAGIC {
        return Err(InventoryError::Title);
    }
    let version = rest.first_chunk().ok_or(InventoryError::Damaged)?;
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(InventoryError::Version(version));
    }
    decode_body(bytes).ok_or(InventoryError::Damaged)
}

fn decode_body(bytes: &[u8]) -> Option<StoredInventory> {
    let (body, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    if blake3_128(body) != *checksum {
        return None;
    }
    let (header, records) = body.split_first_chunk::<HEADER_BYTES>()?;
    let (polled, count) = (header[12..].first_chunk()?, header[16..].first_chunk()?);
    let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
    if records.len() != count.checked_mul(RECORD_BYTES)? {
        return None;
    }
    let series = records.chunks_exact(RECORD_BYTES).map(decode_record);
    Some(StoredInventory {
        polled_s: u32::from_le_bytes(*polled),
        series: series.collect::<Option<_>>()?,
    })
}

fn decode_record(record: &[u8]) -> Option<(SeriesId, StoredArrivals)> {
    let word = |at: usize| Some(u32::from_le_bytes(*record.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(u16::from_le_bytes(*record.get(at..)?.first_chunk()?));
    let arrivals = SeriesArrivals {
        end_s: word(16)?,
        arrived_s: word(20)?,
        interval_s: half(28)?,
        longest_s: half(30)?,
        learned: *record.get(32)?,
        is_active: *record.get(33)? != 0,
    };
    let id = SeriesId(*record.first_chunk()?);
    Some((id, StoredArrivals { arrivals, appeared_s: word(24)? }))
}
