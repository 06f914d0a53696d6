//! The C ABI: what a program in C, or in any language that can call C, counts and times, in shared memory like that of a Rust program.
//!
//! `bindings/c/topdeck.h` is made out of this crate (`tests/it/header.rs`): the comments here are what its users read. A record is done
//! in the header itself, in the lane of its thread, and calls this library only when the lane has no room for it yet.
//!
//! Nothing unwinds into C: what may panic is caught ([`problem::guarded`]), and Rust aborts where anything else would leave a function of C's.
#![deny(unsafe_code)]

mod abi;
mod handle;
mod pointer;
mod problem;
