//! MySQL and MariaDB: packets of a connection between other programs.
//!
//! A packet is a length of three bytes (little-endian), a sequence number, and a payload. The
//! number starts at 0 with each command and continues through its response, in both directions.

mod commands;
mod frames;
pub(crate) mod observer;
mod packets;
mod requests;
mod responses;
mod statements;
