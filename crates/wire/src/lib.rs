//! Packets of connections between other programs: capture files and packet decoding. No I/O beyond
//! `Read`, no clock: all times are those of the packets.
#![forbid(unsafe_code)]

mod capture_file;
mod packet;

pub use capture_file::{CaptureFile, CaptureFileError, CapturedPacket, LinkType};
pub use packet::{Packet, TcpFlags, Transport, UndecodedReason};
