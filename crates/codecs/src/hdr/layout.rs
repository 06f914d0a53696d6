//! Field offsets of encoded HdrHistograms. All numbers are big endian.
//!
//! The page `docs/formats/hdr.md` has the same tables; `tests/it/hdr.rs` compares them and checks
//! each field in encoded bytes. Source: HdrHistogram 2.2.2 (Gil Tene), `AbstractHistogram` and
//! `DoubleHistogram`.

/// A field: name, offset, size in bytes.
pub type Field = (&'static str, usize, usize);

/// Cookie of a V0 histogram, word size in bits 4..8.
pub const V0: u32 = 0x1c84_9308;
/// Cookie of a compressed V0 histogram.
pub const V0_COMPRESSED: u32 = 0x1c84_9309;
/// Cookie of a V1 histogram, word size in bits 4..8.
pub const V1: u32 = 0x1c84_9301;
/// Cookie of a compressed V1 histogram.
pub const V1_COMPRESSED: u32 = 0x1c84_9302;
/// Cookie of a V2 histogram; bit 4 is set, which marks LEB128 words.
pub const V2: u32 = 0x1c84_9303;
/// Cookie of a compressed V2 histogram.
pub const V2_COMPRESSED: u32 = 0x1c84_9304;
/// Cookie of a histogram of doubles that contains a plain integer histogram.
pub const DOUBLE: u32 = 0x0c72_124e;
/// Cookie of a histogram of doubles that contains a compressed integer histogram.
pub const DOUBLE_COMPRESSED: u32 = 0x0c72_124f;

/// Bits of a cookie with the word size.
pub(crate) const WORD_SIZE_MASK: u32 = 0xf0;
/// Word size bits of V2.
pub(crate) const LEB_WORDS: u32 = 0x10;

/// Header of V1 and V2. The counts follow.
pub const FIELDS: [Field; 7] = [
    ("cookie", 0, 4),
    ("payload length", 4, 4),
    ("normalizing index offset", 8, 4),
    ("digits", 12, 4),
    ("lowest discernible value", 16, 8),
    ("highest trackable value", 24, 8),
    ("conversion ratio", 32, 8),
];

/// Header of V0. The counts follow, to the end of the bytes.
pub const V0_FIELDS: [Field; 5] = [
    ("cookie", 0, 4),
    ("digits", 4, 4),
    ("lowest discernible value", 8, 8),
    ("highest trackable value", 16, 8),
    ("total count", 24, 8),
];

/// Fields before the zlib stream of a compressed histogram.
pub const COMPRESSED_FIELDS: [Field; 2] = [("cookie", 0, 4), ("compressed length", 4, 4)];

/// Fields before the integer histogram of a histogram of doubles.
pub const DOUBLE_FIELDS: [Field; 3] =
    [("cookie", 0, 4), ("digits", 4, 4), ("highest to lowest value ratio", 8, 8)];

#[expect(clippy::arithmetic_side_effects, reason = "worked out when it is compiled")]
const fn contiguous(fields: &[Field]) -> bool {
    let (mut at, mut end) = (0, 0);
    while at < fields.len() {
        if fields[at].1 != end {
            return false;
        }
        end += fields[at].2;
        at += 1;
    }
    true
}

const _: () = assert!(contiguous(&FIELDS) && contiguous(&V0_FIELDS));
const _: () = assert!(contiguous(&COMPRESSED_FIELDS) && contiguous(&DOUBLE_FIELDS));
