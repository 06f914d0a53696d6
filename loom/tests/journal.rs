//! The journal's buffer: `crates/journal/src/buffer.rs` with its ring and table, the levels, the
//! layout and the atomics that it imports.
#![allow(dead_code, reason = "only the buffer is built, without the journal")]

#[path = "../../crates/journal/src/buffer.rs"]
mod buffer;
#[path = "../../crates/journal/src/layout.rs"]
mod layout;
#[path = "../../crates/journal/src/level.rs"]
mod level;
#[path = "../../crates/journal/src/origin.rs"]
mod origin;
#[path = "../../crates/journal/src/ring.rs"]
mod ring;
#[path = "../../crates/journal/src/sequence_table.rs"]
mod sequence_table;
#[path = "../../crates/journal/src/sync.rs"]
mod sync;
