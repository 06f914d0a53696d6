//! Real sockets: what is sent is what is stored, or is counted as lost.

mod connections;
mod datagrams;
mod fixture;
mod line_format;
mod overflow;
mod panics;
