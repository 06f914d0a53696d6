//! Layout of the journal's files, as in `docs/formats/journal.md`.
//!
//! All numbers are little-endian, lengths and offsets in bytes, times in nanoseconds since the Unix
//! epoch, checksums CRC-32C (Castagnoli). A table lists (name, offset, size); a test compares
//! the tables with the page.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

/// Newest version of every file here; changing a byte requires a new version.
pub const VERSION: u32 = 1;

/// Field: name, offset, size in bytes.
pub type Field = (&'static str, usize, usize);

/// Segment header, before the producer table.
pub const SEGMENT: [Field; 9] = [
    ("magic", 0, 8),
    ("version", 8, 4),
    ("header_crc", 12, 4),
    ("journal_id", 16, 16),
    ("first_position", 32, 8),
    ("created", 40, 8),
    ("producers", 48, 4),
    ("reserved", 52, 4),
    ("frames_offset", 56, 8),
];
/// Size of [`SEGMENT`].
pub const SEGMENT_BYTES: usize = 64;
/// The first bytes of a segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"tdJournl";

/// Entry of a segment's producer table.
pub const PRODUCER: [Field; 4] =
    [("producer", 0, 8), ("epoch", 8, 8), ("sequence", 16, 8), ("end_position", 24, 8)];
/// Size of [`PRODUCER`].
pub const PRODUCER_BYTES: usize = 32;

/// Frame header.
pub const FRAME: [Field; 11] = [
    ("magic", 0, 4),
    ("header_crc", 4, 4),
    ("body_crc", 8, 4),
    ("stored_bytes", 12, 4),
    ("raw_bytes", 16, 4),
    ("records", 20, 4),
    ("first_position", 24, 8),
    ("time_min", 32, 8),
    ("time_max", 40, 8),
    ("compression", 48, 1),
    ("reserved", 49, 7),
];
/// Size of [`FRAME`].
pub const FRAME_BYTES: usize = 56;
/// The first bytes of a frame.
pub const FRAME_MAGIC: [u8; 4] = *b"tdJf";
/// Frames begin at multiples of this.
pub const FRAME_ALIGN: u64 = 8;

/// Superblock copy: settings, checkpoints.
pub const SUPERBLOCK: [Field; 5] = [
    ("magic", 0, 8),
    ("version", 8, 4),
    ("crc", 12, 4),
    ("generation", 16, 8),
    ("payload", 24, 104),
];
/// Size of [`SUPERBLOCK`].
pub(crate) const SUPERBLOCK_BYTES: usize = 128;
/// Offset of the second copy: on another page and, on all disks, in another sector.
pub const SUPERBLOCK_MIRROR_OFFSET: u64 = 4096;

/// Payload of the settings.
pub const SETTINGS: [Field; 9] = [
    ("journal_id", 0, 16),
    ("created", 16, 8),
    ("buffer_bytes", 24, 8),
    ("segment_bytes", 32, 8),
    ("bytes_max", 40, 8),
    ("age_max", 48, 8),
    ("dedup_producers", 56, 4),
    ("compression", 60, 1),
    ("on_full", 61, 1),
];
/// Size of [`SETTINGS`].
const SETTINGS_BYTES: usize = 62;
/// The first bytes of each copy of the settings.
pub const SETTINGS_MAGIC: [u8; 8] = *b"tdJsetng";

/// Payload of a checkpoint.
pub const CHECKPOINT: [Field; 4] =
    [("position", 0, 8), ("committed_at", 8, 8), ("kind", 16, 1), ("pins_records", 17, 1)];
/// Size of [`CHECKPOINT`].
const CHECKPOINT_BYTES: usize = 18;
/// The first bytes of each copy of a checkpoint.
pub const CHECKPOINT_MAGIC: [u8; 8] = *b"tdJcheck";

/// Header of the gaps file.
pub const GAPS: [Field; 5] =
    [("magic", 0, 8), ("version", 8, 4), ("crc", 12, 4), ("gaps", 16, 4), ("reserved", 20, 4)];
/// Size of [`GAPS`].
pub(crate) const GAPS_BYTES: usize = 24;
/// First bytes of the gaps file.
pub const GAPS_MAGIC: [u8; 8] = *b"tdJgaps1";
/// Gap, before its producers. `complete`: times and producers describe exactly these positions.
pub const GAP: [Field; 8] = [
    ("first_position", 0, 8),
    ("end_position", 8, 8),
    ("time_min", 16, 8),
    ("time_max", 24, 8),
    ("reason", 32, 1),
    ("complete", 33, 1),
    ("reserved", 34, 2),
    ("producers", 36, 4),
];
/// Size of [`GAP`].
pub(crate) const GAP_BYTES: usize = 40;
/// Producer's share of a gap.
pub const GAP_PRODUCER: [Field; 5] = [
    ("producer", 0, 8),
    ("epoch", 8, 8),
    ("first_sequence", 16, 8),
    ("last_sequence", 24, 8),
    ("records", 32, 8),
];
/// Size of [`GAP_PRODUCER`].
pub(crate) const GAP_PRODUCER_BYTES: usize = 40;

/// Entry of the buffer: the records of one append. Before the body it may have the identity of a
/// batch and the number of records (`docs/formats/journal.md`).
pub const ENTRY: [Field; 4] =
    [("crc", 0, 4), ("length", 4, 4), ("first_position", 8, 8), ("time", 16, 8)];
/// Size of [`ENTRY`].
pub const ENTRY_BYTES: usize = 24;

const _: () = {
    check_contiguous(&SEGMENT, SEGMENT_BYTES);
    check_contiguous(&PRODUCER, PRODUCER_BYTES);
    check_contiguous(&FRAME, FRAME_BYTES);
    check_contiguous(&SUPERBLOCK, SUPERBLOCK_BYTES);
    check_contiguous(&SETTINGS, SETTINGS_BYTES);
    check_contiguous(&CHECKPOINT, CHECKPOINT_BYTES);
    check_contiguous(&GAPS, GAPS_BYTES);
    check_contiguous(&GAP, GAP_BYTES);
    check_contiguous(&GAP_PRODUCER, GAP_PRODUCER_BYTES);
    check_contiguous(&ENTRY, ENTRY_BYTES);
};

/// Checks that fields are contiguous and the last ends at `bytes`.
const fn check_contiguous(fields: &[Field], bytes: usize) {
    let mut at = 0;
    let mut i = 0;
    while i < fields.len() {
        assert!(fields[i].1 == at);
        at = at.saturating_add(fields[i].2);
        i = i.saturating_add(1);
    }
    assert!(at == bytes);
}

/// Checksum of a file or copy that starts with 8 bytes of magic, 4 of version and 4 of this
/// checksum; covers all other bytes. The location is the same in every version, so that a corrupt
/// version is not taken for a newer one.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

/// Byte range of a field.
pub(crate) const fn field(fields: &[Field], name: &str) -> std::ops::Range<usize> {
    let mut i = 0;
    while i < fields.len() {
        if is_same(fields[i].0.as_bytes(), name.as_bytes()) {
            return fields[i].1..fields[i].1.saturating_add(fields[i].2);
        }
        i = i.saturating_add(1);
    }
    panic!("no such field")
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i = i.saturating_add(1);
    }
    true
}

/// Fields of a table in bytes, accessed by name.
pub(crate) struct FieldTable<B> {
    table: &'static [Field],
    bytes: B,
}

impl<'a> FieldTable<&'a [u8]> {
    pub(crate) fn read_only(table: &'static [Field], bytes: &'a [u8]) -> FieldTable<&'a [u8]> {
        FieldTable { table, bytes }
    }

    pub(crate) fn bytes(&self, name: &str) -> &'a [u8] {
        &self.bytes[field(self.table, name)]
    }

    pub(crate) fn u8(&self, name: &str) -> u8 {
        self.bytes(name)[0]
    }

    pub(crate) fn u32(&self, name: &str) -> u32 {
        u32::from_le_bytes(self.array(name))
    }

    pub(crate) fn u64(&self, name: &str) -> u64 {
        u64::from_le_bytes(self.array(name))
    }

    pub(crate) fn i64(&self, name: &str) -> i64 {
        self.u64(name).cast_signed()
    }

    pub(crate) fn u128(&self, name: &str) -> u128 {
        u128::from_le_bytes(self.array(name))
    }

    /// # Panics
    ///
    /// If the field's length in the table differs from the caller's.
    fn array<const N: usize>(&self, name: &str) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(name));
        array
    }
}

impl<'a> FieldTable<&'a mut [u8]> {
    pub(crate) fn into(table: &'static [Field], bytes: &'a mut [u8]) -> FieldTable<&'a mut [u8]> {
        FieldTable { table, bytes }
    }

    pub(crate) fn put(&mut self, name: &str, value: &[u8]) {
        self.bytes[field(self.table, name)].copy_from_slice(value);
    }
}
