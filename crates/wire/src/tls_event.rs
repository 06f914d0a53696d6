//! Calls of a TLS library as BPF programs report them: one record per chunk of plaintext.
//!
//! ```text
//! offset  size  field
//!      0     4  thread
//!      4     4  process
//!      8     8  session: address of the library's object in its process
//!     16     8  time of the call, monotonic, in nanoseconds
//!     24     8  time of the return
//!     32     8  position of the first byte in the stream of its direction
//!     40     8  bytes of the stream for which the record stands
//!     48     4  bytes in the record; fewer if the call had more than is copied, or was unreadable
//!     52     4  kind: 1 read, 2 written, 3 end of the session
//!     56     8  position of the other direction, in which calls may be under way
//!     64     8  flags: 1 the session was seen from its start, 2 the socket is known, 4 the process
//!               has shut it down with all that it wrote, 8 it is known to be the client
//!     72     2  address family of the socket
//!     80    16  local address
//!     96    16  remote address
//!    112     2  remote port, big-endian
//!    114     2  local port
//!    116     4  number of the network namespace
//!    120        bytes
//! ```
//!
//! Numbers are in the byte order of the machine. IPv4 addresses are the first four bytes. The end
//! of a session has the positions of what was read (position) and written (other).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use protocol::observer::PacketTime;

pub(crate) const SESSION_OFFSET: i16 = 8;
pub(crate) const START_OFFSET: i16 = 16;
pub(crate) const END_OFFSET: i16 = 24;
pub(crate) const POSITION_OFFSET: i16 = 32;
pub(crate) const LENGTH_OFFSET: i16 = 40;
pub(crate) const CAPTURED_OFFSET: i16 = 48;
pub(crate) const KIND_OFFSET: i16 = 52;
pub(crate) const OTHER_OFFSET: i16 = 56;
pub(crate) const FLAGS_OFFSET: i16 = 64;
/// Size of a record without its bytes.
pub(crate) const HEADER_BYTES: i16 = 120;

pub(crate) const KIND_READ: i32 = 1;
pub(crate) const KIND_WRITTEN: i32 = 2;
pub(crate) const KIND_END: i32 = 3;
pub(crate) const FLAG_FROM_START: i32 = 1;
pub(crate) const FLAG_SOCKET: i32 = 2;
pub(crate) const FLAG_SHUT_DOWN: i32 = 4;
pub(crate) const FLAG_CLIENT: i32 = 8;

const AF_INET: u16 = libc::AF_INET as u16;
const AF_INET6: u16 = libc::AF_INET6 as u16;

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsEventKind {
    /// The process received bytes.
    Read,
    /// The process sent bytes.
    Written,
    /// The process gave the session up.
    End,
}

/// A chunk of plaintext of a session, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsEvent<'a> {
    /// Process identifier.
    pub process: u32,
    /// Address of the session's object in the process, which may be used again after its end.
    pub session: u64,
    /// What the call did.
    pub kind: TlsEventKind,
    /// When the program called the library.
    pub start: PacketTime,
    /// When the call returned.
    pub end: PacketTime,
    /// Position of the first byte in the stream of this direction, from where it was first seen.
    pub position: u64,
    /// The same of the other direction. Its last bytes may be in a later event.
    pub other_position: u64,
    /// Bytes of the stream for which the event stands; `bytes` are the first of them.
    pub length: u64,
    /// Plaintext.
    pub bytes: &'a [u8],
    /// Whether the session was seen from its first byte.
    pub is_from_start: bool,
    /// Whether the process has said that its stream ends, and has written all of it.
    pub is_shut_down: bool,
    /// `None` if it is unknown.
    pub socket: Option<TlsSocket>,
    /// Changes when the clock was set: times before and after cannot be compared.
    pub clock_epoch: u32,
}

/// Socket of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsSocket {
    /// Address of the process.
    pub local: SocketAddr,
    /// Address of the other end.
    pub remote: SocketAddr,
    /// Number of the network namespace; 0 if the kernel does not tell it.
    pub namespace: u32,
}

impl<'a> TlsEvent<'a> {
    /// Decodes a record. Its times are monotonic; `clock` converts them. `None` if the fields
    /// contradict each other.
    pub fn decode(record: &'a [u8], clock: TlsClock) -> Option<TlsEvent<'a>> {
        let bytes = record.get(HEADER_BYTES as usize..)?;
        let word = |at: i16| -> Option<u64> {
            Some(u64::from_ne_bytes(*record.get(at as usize..)?.first_chunk()?))
        };
        let half = |at: i16| -> Option<u32> {
            Some(u32::from_ne_bytes(*record.get(at as usize..)?.first_chunk()?))
        };
        let kind = match half(KIND_OFFSET)? as i32 {
            KIND_READ => TlsEventKind::Read,
            KIND_WRITTEN => TlsEventKind::Written,
            KIND_END => TlsEventKind::End,
            _ => return None,
        };
        let (start, end) = (word(START_OFFSET)?, word(END_OFFSET)?);
        let length = word(LENGTH_OFFSET)?;
        let captured = half(CAPTURED_OFFSET)?;
        let flags = word(FLAGS_OFFSET)?;
        if u64::from(captured) > length || end < start {
            return None;
        }
        Some(TlsEvent {
            process: half(4)?,
            session: word(SESSION_OFFSET)?,
            kind,
            start: clock.time(start),
            end: clock.time(end),
            position: word(POSITION_OFFSET)?,
            other_position: word(OTHER_OFFSET)?,
            length,
            bytes: bytes.get(..captured as usize)?,
            is_from_start: flags & FLAG_FROM_START as u64 != 0,
            is_shut_down: flags & FLAG_SHUT_DOWN as u64 != 0,
            socket: match flags & FLAG_SOCKET as u64 {
                0 => None,
                _ => socket(record),
            },
            clock_epoch: clock.epoch,
        })
    }
}

/// The socket; `None` if its family is none of IP.
fn socket(record: &[u8]) -> Option<TlsSocket> {
    let family = u16::from_ne_bytes(*record.get(72..)?.first_chunk()?);
    let address = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 16] = *record.get(at..)?.first_chunk()?;
        let [a, b, c, d, ..] = octets;
        match family {
            AF_INET => Some(Ipv4Addr::new(a, b, c, d).into()),
            AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()),
            _ => None,
        }
    };
    let remote_port = u16::from_be_bytes(*record.get(112..)?.first_chunk()?);
    let local_port = u16::from_ne_bytes(*record.get(114..)?.first_chunk()?);
    Some(TlsSocket {
        local: SocketAddr::new(address(80)?, local_port),
        remote: SocketAddr::new(address(96)?, remote_port),
        namespace: u32::from_ne_bytes(*record.get(116..)?.first_chunk()?),
    })
}

/// Conversion of monotonic times, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsClock {
    /// Wall clock minus monotonic clock.
    pub(crate) offset: i64,
    /// Number of times that the clock was set.
    pub(crate) epoch: u32,
}

impl TlsClock {
    /// A step of the wall clock. It is kept in step by a rate of at most 0.05 %, which is less in
    /// any time between two readings.
    const STEP_NS: u64 = 10_000_000;

    /// The conversion after a new reading of the difference.
    pub(crate) fn follow(self, offset: i64) -> TlsClock {
        let is_step = offset.abs_diff(self.offset) > TlsClock::STEP_NS;
        TlsClock { offset, epoch: self.epoch.wrapping_add(u32::from(is_step)) }
    }

    fn time(self, monotonic: u64) -> PacketTime {
        monotonic.saturating_add_signed(self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKET: [u8; 48] = {
        let mut bytes = [0; 48];
        bytes[0] = libc::AF_INET as u8;
        bytes[8] = 127;
        bytes[11] = 1;
        bytes[24] = 10;
        bytes[27] = 2;
        bytes[40] = 0x9c;
        bytes[41] = 0x40;
        bytes[44] = 5;
        bytes
    };

    /// A record of 4 bytes on the socket 127.0.0.1:443, 10.0.0.2:40000.
    fn record(kind: i32) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend([7_u32, 42].map(u32::to_ne_bytes).concat());
        for word in [0xabc_u64, 1_000, 1_500, 96, 9] {
            record.extend(word.to_ne_bytes());
        }
        record.extend([4_u32, kind as u32].map(u32::to_ne_bytes).concat());
        record.extend([80_u64, 7].map(u64::to_ne_bytes).concat());
        record.extend(SOCKET);
        record[114..116].copy_from_slice(&443_u16.to_ne_bytes());
        record.extend(b"GET / HTTP");
        record
    }

    #[test]
    fn a_record_has_chunk_times_and_socket() {
        let clock = TlsClock { offset: 10_000, epoch: 3 };
        let bytes = record(KIND_READ);
        let expected = TlsEvent {
            process: 42,
            session: 0xabc,
            kind: TlsEventKind::Read,
            start: 11_000,
            end: 11_500,
            position: 96,
            other_position: 80,
            length: 9,
            bytes: b"GET ",
            is_from_start: true,
            is_shut_down: true,
            socket: Some(TlsSocket {
                local: "127.0.0.1:443".parse().unwrap(),
                remote: "10.0.0.2:40000".parse().unwrap(),
                namespace: u32::from_ne_bytes([5, 0, 0, 0]),
            }),
            clock_epoch: 3,
        };
        assert_eq!(TlsEvent::decode(&bytes, clock), Some(expected));
    }

    #[test]
    fn contradictions_are_no_event() {
        let clock = TlsClock::default();
        let whole = record(KIND_WRITTEN);
        for size in 0..HEADER_BYTES as usize + 4 {
            assert_eq!(TlsEvent::decode(&whole[..size], clock), None, "{size}");
        }
        assert_eq!(TlsEvent::decode(&record(9), clock), None);
        let mut longer = whole.clone();
        longer[48] = 10;
        assert_eq!(TlsEvent::decode(&longer, clock), None, "more bytes than its length");
        let mut reversed = whole.clone();
        reversed[24..32].copy_from_slice(&999_u64.to_ne_bytes());
        assert_eq!(TlsEvent::decode(&reversed, clock), None, "it returned before the call");
    }

    #[test]
    fn sockets_of_ip_alone() {
        let clock = TlsClock::default();
        let mut unix = record(KIND_READ);
        unix[72] = libc::AF_UNIX as u8;
        assert_eq!(TlsEvent::decode(&unix, clock).unwrap().socket, None);
        let mut unknown = record(KIND_READ);
        unknown[64] = 1;
        assert_eq!(TlsEvent::decode(&unknown, clock).unwrap().socket, None);
        let mut mapped = record(KIND_READ);
        mapped[72] = libc::AF_INET6 as u8;
        mapped[80..96].copy_from_slice(&Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets());
        mapped[96..112].copy_from_slice(&Ipv6Addr::LOCALHOST.octets());
        let socket = TlsEvent::decode(&mapped, clock).unwrap().socket.unwrap();
        assert_eq!(socket.local, "127.0.0.1:443".parse().unwrap());
        assert_eq!(socket.remote, "[::1]:40000".parse().unwrap());
    }

    #[test]
    fn a_step_of_the_clock_starts_an_epoch() {
        let clock = TlsClock { offset: 1_000, epoch: 0 };
        assert_eq!(clock.follow(1_000_000), TlsClock { offset: 1_000_000, epoch: 0 });
        let stepped = clock.follow(-1_000_000_000);
        assert_eq!(stepped.epoch, 1);
        assert_eq!((stepped.time(2_000_000_000), stepped.time(1)), (1_000_000_000, 0));
    }
}
