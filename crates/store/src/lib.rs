//! A time-series store whose datum is the histogram: what was recorded is kept whole, added up exactly, and
//! given back with what is known to be missing.
//!
//! The way in: [`Store::ingest`] puts a [`model::Batch`] into the journal and acknowledges it; the *head* reads
//! it from there. The head is sealed into *parts*, which are never changed: rows of a series are *chunks* with a
//! checksum each. One *manifest* says which parts count, and up to where the journal is in them. Days that are
//! over are rolled up, exactly.
//!
//! The way out: a [`View`] is what can be read at one moment.
#![forbid(unsafe_code)]

mod resolution;
mod row;

mod column;
mod times;

mod chunk;

mod backend;
mod local;
mod part;

mod manifest;

mod change;
mod compact;
mod delta;
mod gather;
mod head;
mod index;
mod retain;
mod roll;
mod store;

mod check;
mod snapshot;

mod grid;
mod merge;
mod view;

mod error;

/// What the formats' pages are held to.
pub mod layout {
    pub use crate::chunk::{FIELDS as CHUNK_FIELDS, HEADER_BYTES as CHUNK_HEADER_BYTES};
    pub use crate::part::{ENTRY_BYTES, FOOTER, FOOTER_BYTES, HEADER_BYTES as PART_HEADER_BYTES};
}

pub use check::{Damage, Progress, Report};
pub use error::{Error, Result};
pub use grid::Grid;
pub use index::{Cardinality, LabelCardinality, Limits, Refused};
pub use manifest::{Covers, Keep, PartInfo};
pub use resolution::{DAY, HOUR, MINUTE, Resolution, SECOND};
pub use row::{Row, Summary};
pub use snapshot::Snapshot;
pub use store::{Deleted, Found, Options, Stat, Store};
pub use view::{COLUMNS_MAX, Column, Columns, View};
