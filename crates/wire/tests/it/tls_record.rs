//! Records of the programs at a TLS library, for tests.

use std::net::SocketAddrV4;

use wire::{ConnectionTracker, TlsClock, TlsEvent};

pub(crate) const READ: u32 = 1;
pub(crate) const WRITTEN: u32 = 2;
pub(crate) const END: u32 = 3;

/// Fields of a record; the numbers are those of the programs.
#[derive(Clone, Debug)]
pub(crate) struct TlsRecord {
    pub(crate) process: u32,
    pub(crate) session: u64,
    pub(crate) kind: u32,
    /// Times of call and return.
    pub(crate) times: (u64, u64),
    pub(crate) position: u64,
    pub(crate) other_position: u64,
    /// Bytes of the stream behind `bytes`.
    pub(crate) cut: u64,
    pub(crate) is_from_start: bool,
    pub(crate) is_shut_down: bool,
    /// Local and remote address.
    pub(crate) socket: Option<(SocketAddrV4, SocketAddrV4)>,
    pub(crate) namespace: u32,
    pub(crate) bytes: Vec<u8>,
}

impl TlsRecord {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let length = self.bytes.len() as u64 + self.cut;
        let mut record = [0, self.process].map(u32::to_ne_bytes).concat();
        for word in [self.session, self.times.0, self.times.1, self.position, length] {
            record.extend(word.to_ne_bytes());
        }
        record.extend([self.bytes.len() as u32, self.kind].map(u32::to_ne_bytes).concat());
        record.extend(self.other_position.to_ne_bytes());
        let flags = [self.is_from_start, self.socket.is_some(), self.is_shut_down];
        let flags = (0..).zip(flags).map(|(bit, is_set)| u64::from(is_set) << bit).sum::<u64>();
        record.extend(flags.to_ne_bytes());
        // AF_INET.
        record.extend(u64::from(self.socket.map_or(0, |_| 2_u16)).to_ne_bytes());
        let unknown = SocketAddrV4::new([0, 0, 0, 0].into(), 0);
        let (local, remote) = self.socket.unwrap_or((unknown, unknown));
        for address in [local, remote] {
            record.extend(address.ip().octets());
            record.extend([0; 12]);
        }
        record.extend(remote.port().to_be_bytes());
        record.extend(local.port().to_ne_bytes());
        record.extend(self.namespace.to_ne_bytes());
        record.extend(&self.bytes);
        record
    }

    pub(crate) fn read_by(&self, tracker: &mut ConnectionTracker) {
        let bytes = self.to_bytes();
        let event = TlsEvent::decode(&bytes, TlsClock::default());
        tracker.read_tls(&event.expect("a valid record"));
    }
}
