//! Integration tests with real sockets: every value sent is stored or counted as lost.

mod connections;
mod datagrams;
mod fixture;
mod line_format;
mod overflow;
mod panics;
