//! Listener settings and limits.

use std::time::Duration;

use crate::line_format::{AnyLineFormat, SocketAddresses};

/// Format, addresses and limits of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Line format.
    pub format: AnyLineFormat,
    /// Listen addresses.
    pub sockets: SocketAddresses,
    /// Limits.
    pub limits: Limits,
}

impl Settings {
    /// Converts a format's settings.
    pub fn new(format: AnyLineFormat) -> Settings {
        Settings { sockets: format.sockets(), limits: format.limits(), format }
    }

    /// Whether at least one address is configured.
    pub(crate) fn is_enabled(&self) -> bool {
        let SocketAddresses { udp, tcp, unix } = &self.sockets;
        !udp.is_empty() || !tcp.is_empty() || unix.is_some()
    }
}

/// Limits of a listener. All its connections together count as one socket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Receive buffer of a datagram socket: 8 MiB by default.
    pub receive_buffer_bytes: usize,
    /// Series per interval and socket: 100,000 by default.
    pub series_max: usize,
    /// Approximate memory of a socket's intervals: 128 MiB by default.
    pub memory_bytes_max: usize,
    /// Concurrent connections: 1,024 by default.
    pub connections_max: usize,
    /// Line length on a connection: 8 KiB by default.
    pub line_bytes_max: usize,
    /// Idle time without a complete line until a connection is closed: 10 min by default.
    pub idle_timeout: Duration,
    /// Longest sleep of the flusher: 1 s by default. After the sleep, clock steps are noticed and
    /// rejected writes are retried.
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
