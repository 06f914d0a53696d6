//! C ABI of the shared-memory metrics.
//!
//! `bindings/c/topdeck.h` is generated from this crate (`tests/it/header.rs`): its users read the
//! comments here. The inline functions of the header record in the lane of the thread; they call
//! this library only if the thread has no lane yet, or its lane does not contain the metric yet.
//!
//! No panic unwinds into C: functions that may panic catch it (`error::catch_panic`), and Rust
//! aborts if an unwind would leave an `extern "C"` function.
#![deny(unsafe_code)]

mod abi;
mod error;
mod handle;
mod pointer;
