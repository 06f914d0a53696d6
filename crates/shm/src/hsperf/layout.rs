//! Where what lies in a file of HotSpot's performance data; `docs/formats/hsperfdata.md` has the same tables, held to
//! these by a test. Source: OpenJDK, `runtime/perfMemory.hpp` and `perfData.hpp`.

use crate::foreign::{Field, size};

/// The same bytes in either order.
pub(super) const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];

pub(super) const PROLOGUE: [Field; 10] = [
    ("magic", 0, 4),
    ("byte order", 4, 1),
    ("major version", 5, 1),
    ("minor version", 6, 1),
    ("accessible", 7, 1),
    ("used", 8, 4),
    ("overflow", 12, 4),
    ("modified", 16, 8),
    ("first entry", 24, 4),
    ("entries", 28, 4),
];

pub(super) const ENTRY: [Field; 8] = [
    ("length", 0, 4),
    ("name", 4, 4),
    ("vector length", 8, 4),
    ("type", 12, 1),
    ("flags", 13, 1),
    ("unit", 14, 1),
    ("variability", 15, 1),
    ("data", 16, 4),
];

pub(super) const PROLOGUE_BYTES: u64 = size(&PROLOGUE);
pub(super) const ENTRY_BYTES: u64 = size(&ENTRY);
