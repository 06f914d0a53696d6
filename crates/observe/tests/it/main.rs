//! Intervals of a capture as stored in a journal, compared with what was captured.
#![forbid(unsafe_code)]

mod backpressure;
mod clock_steps;
mod conversation;
mod error_classes;
mod fixture;
mod intervals;
mod panics;
mod peers;
mod ports;
mod role;
mod servers;
mod threads;
mod tls;
mod waits;
