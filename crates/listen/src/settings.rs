//! Listener settings and limits.

use std::time::Duration;

use crate::line_format::{AnyLineFormat, SocketAddresses};

/// Format, addresses and limits of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What the lines are.
    pub format: AnyLineFormat,
    /// Where it listens.
    pub sockets: SocketAddresses,
    /// Of what comes.
    pub limits: Limits,
}

impl Settings {
    /// As the format's own settings say.
    pub fn new(format: AnyLineFormat) -> Settings {
        Settings { sockets: format.sockets(), limits: format.limits(), format }
    }

    /// Whether there is an address to listen on.
    pub(crate) fn is_wanted(&self) -> bool {
        let SocketAddresses { udp, tcp, unix } = &self.sockets;
        !udp.is_empty() || !tcp.is_empty() || unix.is_some()
    }
}

/// Bounds of a listener. All its connections are one socket here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes that the kernel keeps for a socket of datagrams until they are read: 8 MiB by default.
    pub receive_buffer_bytes: usize,
    /// Series of an interval that a socket may bring: 100,000 by default.
    pub series_max: usize,
    /// Bytes that a socket's intervals may take in memory, about: 128 MiB by default.
    pub memory_bytes_max: usize,
    /// Connections at a time: 1,024 by default.
    pub connections_max: usize,
    /// Bytes of a line that comes over a connection: 8 KiB by default.
    pub line_bytes_max: usize,
    /// After how long without a line a connection is closed: 10 min by default.
    pub idle_timeout: Duration,
    /// Longest sleep of the flusher: 1 s by default. After it, a clock step is noticed and a
    /// refused write is retried.
    pub pause_max: Duration,
    /// Longest wait of a stop for free space in the journal: 5 s by default.
    pub stop_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            receive_buffer_bytes: 8 << 20,
            series_max: 100_000,
            memory_bytes_max: 128 << 20,
            connections_max: 1024,
            line_bytes_max: 8 << 10,
            idle_timeout: Duration::from_secs(600),
            pause_max: Duration::from_secs(1),
            stop_timeout: Duration::from_secs(5),
        }
    }
}
