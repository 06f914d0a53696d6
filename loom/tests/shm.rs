//! Cells and lanes of shared memory: `crates/shm/src/{cells,lanes}.rs`, the layout and the atomics
//! that they import.
#![allow(dead_code, reason = "only the protocols are built, without readers and writers of files")]

#[path = "../../crates/shm/src/cells.rs"]
mod cells;
#[path = "../../crates/shm/src/lanes.rs"]
mod lanes;
#[path = "../../crates/shm/src/layout.rs"]
mod layout;
#[path = "../../crates/shm/src/sync.rs"]
mod sync;
