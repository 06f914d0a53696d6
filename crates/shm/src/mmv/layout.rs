//! Field offsets of MMV files, versions 1 to 3; equal to `docs/formats/mmv.md`. Source: PCP 6.0.3,
//! `mmv_dev.h` and mmv(5).

use crate::endian::{EndianField, record_size};

pub(super) const MAGIC: &[u8; 4] = b"MMV\0";

pub(super) const HEADER: [EndianField; 8] = [
    ("magic", 0, 4),
    ("version", 4, 4),
    ("generation 1", 8, 8),
    ("generation 2", 16, 8),
    ("sections", 24, 4),
    ("flags", 28, 4),
    ("process", 32, 4),
    ("cluster", 36, 4),
];

pub(super) const SECTION: [EndianField; 3] = [("type", 0, 4), ("count", 4, 4), ("offset", 8, 8)];

pub(super) const INSTANCE_1: [EndianField; 4] =
    [("indom", 0, 8), ("padding", 8, 4), ("internal", 12, 4), ("external", 16, 64)];

pub(super) const INSTANCE_2: [EndianField; 4] =
    [("indom", 0, 8), ("padding", 8, 4), ("internal", 12, 4), ("external", 16, 8)];

pub(super) const METRIC_1: [EndianField; 9] = [
    ("name", 0, 64),
    ("item", 64, 4),
    ("type", 68, 4),
    ("semantics", 72, 4),
    ("dimension", 76, 4),
    ("indom", 80, 4),
    ("padding", 84, 4),
    ("short text", 88, 8),
    ("help text", 96, 8),
];

pub(super) const METRIC_2: [EndianField; 9] = [
    ("name", 0, 8),
    ("item", 8, 4),
    ("type", 12, 4),
    ("semantics", 16, 4),
    ("dimension", 20, 4),
    ("indom", 24, 4),
    ("padding", 28, 4),
    ("short text", 32, 8),
    ("help text", 40, 8),
];

pub(super) const VALUE: [EndianField; 4] =
    [("value", 0, 8), ("extra", 8, 8), ("metric", 16, 8), ("instance", 24, 8)];

pub(super) const LABEL: [EndianField; 4] =
    [("flags", 0, 4), ("identity", 4, 4), ("internal", 8, 4), ("payload", 12, 244)];

/// Length of a string including the terminating zero.
pub(super) const STRING_BYTES: u64 = 256;
/// Length of a metric or instance name in version 1.
pub(super) const NAME_BYTES: u64 = 64;

pub(super) const HEADER_BYTES: u64 = record_size(&HEADER);
pub(super) const SECTION_BYTES: u64 = record_size(&SECTION);
pub(super) const VALUE_BYTES: u64 = record_size(&VALUE);
pub(super) const LABEL_BYTES: u64 = record_size(&LABEL);
