//! The atomics, which become loom's when the model is checked (`--cfg loom`).

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};
