//! Intervals of a capture as stored in a journal, compared with what was captured.
#![forbid(unsafe_code)]

mod backpressure;
mod conversation;
mod fixture;
mod intervals;
mod panics;
mod role;
