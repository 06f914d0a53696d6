//! Field offsets of hsperfdata; equal to `docs/formats/hsperfdata.md`. Source: OpenJDK,
//! `runtime/perfMemory.hpp` and `perfData.hpp`.

use crate::endian::{EndianField, record_size};

/// The same bytes in both byte orders.
pub(super) const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];

pub(super) const PROLOGUE: [EndianField; 10] = [
    ("magic", 0, 4),
    ("byte order", 4, 1),
    ("major version", 5, 1),
    ("minor version", 6, 1),
    ("accessible", 7, 1),
    ("used", 8, 4),
    ("overflow", 12, 4),
    ("modified", 16, 8),
    ("entry offset", 24, 4),
    ("entries", 28, 4),
];

pub(super) const ENTRY: [EndianField; 8] = [
    ("length", 0, 4),
    ("name offset", 4, 4),
    ("vector length", 8, 4),
    ("type", 12, 1),
    ("flags", 13, 1),
    ("unit", 14, 1),
    ("variability", 15, 1),
    ("data offset", 16, 4),
];

pub(super) const PROLOGUE_BYTES: u64 = record_size(&PROLOGUE);
pub(super) const ENTRY_BYTES: u64 = record_size(&ENTRY);
