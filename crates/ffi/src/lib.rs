//! C ABI of the shared-memory metrics.
//!
//! `bindings/c/topdeck.h` is made out of this crate (`tests/it/header.rs`): the comments here are
//! what its users read. A record is done in the header itself, in the lane of its thread, and calls
//! this library only when the lane has no room for it yet.
//!
//! Nothing unwinds into C: what may panic is caught ([`problem::guarded`]), and Rust aborts where
//! anything else would leave a function of C's.
#![deny(unsafe_code)]

mod abi;
mod error;
mod handle;
mod pointer;
