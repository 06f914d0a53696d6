//! Listener settings and limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Addresses, protocol and limits of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What the lines are.
    pub protocol: LineProtocol,
    /// Datagrams: none by default.
    pub udp: Vec<SocketAddr>,
    /// Connections, of lines: none by default.
    pub tcp: Vec<SocketAddr>,
    /// A Unix socket for datagrams: none by default.
    pub unix: Option<PathBuf>,
    /// Of what comes.
    pub limits: Limits,
}

impl Settings {
    /// StatsD and DogStatsD, on no address yet.
    pub fn statsd() -> Settings {
        Settings::with_protocol(LineProtocol::Statsd)
    }

    /// Graphite's plain text, on no address yet.
    pub fn graphite() -> Settings {
        Settings::with_protocol(LineProtocol::Graphite)
    }

    fn with_protocol(protocol: LineProtocol) -> Settings {
        let (udp, tcp) = (Vec::new(), Vec::new());
        Settings { protocol, udp, tcp, unix: None, limits: Limits::default() }
    }
}

/// Line protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineProtocol {
    /// StatsD and DogStatsD.
    Statsd,
    /// Graphite's plain text.
    Graphite,
}

impl LineProtocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            LineProtocol::Statsd => "statsd",
            LineProtocol::Graphite => "graphite",
        }
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
