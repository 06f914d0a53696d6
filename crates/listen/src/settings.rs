//! What is listened on, and within which bounds.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
const SERIES_MAX: usize = 100_000;
const MEMORY_BYTES_MAX: usize = 128 << 20;
const CONNECTIONS_MAX: usize = 1024;
const LINE_BYTES_MAX: usize = 8 << 10;
const IDLE_MAX: Duration = Duration::from_secs(600);

/// StatsD and DogStatsD.
#[derive(Clone, Debug, PartialEq)]
pub struct Statsd {
    /// Datagrams: `127.0.0.1:8125` by default.
    pub udp: Vec<SocketAddr>,
    /// Connections, of lines: none by default.
    pub tcp: Vec<SocketAddr>,
    /// A Unix socket for datagrams: none by default.
    pub unix: Option<PathBuf>,
    /// A Unix socket for connections, of lines: none by default.
    pub unix_stream: Option<PathBuf>,
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
    pub idle_max: Duration,
}

impl Default for Statsd {
    fn default() -> Statsd {
        Statsd {
            udp: vec![(Ipv4Addr::LOCALHOST, 8125).into()],
            tcp: Vec::new(),
            unix: None,
            unix_stream: None,
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
            series_max: SERIES_MAX,
            memory_bytes_max: MEMORY_BYTES_MAX,
            connections_max: CONNECTIONS_MAX,
            line_bytes_max: LINE_BYTES_MAX,
            idle_max: IDLE_MAX,
        }
    }
}

/// Graphite's plain text.
#[derive(Clone, Debug, PartialEq)]
pub struct Graphite {
    /// Connections, of lines: `127.0.0.1:2003` by default.
    pub tcp: Vec<SocketAddr>,
    /// Datagrams: none by default.
    pub udp: Vec<SocketAddr>,
    /// As for [`Statsd`].
    pub receive_buffer_bytes: usize,
    /// As for [`Statsd`].
    pub series_max: usize,
    /// As for [`Statsd`].
    pub memory_bytes_max: usize,
    /// As for [`Statsd`].
    pub connections_max: usize,
    /// As for [`Statsd`].
    pub line_bytes_max: usize,
    /// As for [`Statsd`].
    pub idle_max: Duration,
}

impl Default for Graphite {
    fn default() -> Graphite {
        Graphite {
            tcp: vec![(Ipv4Addr::LOCALHOST, 2003).into()],
            udp: Vec::new(),
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
            series_max: SERIES_MAX,
            memory_bytes_max: MEMORY_BYTES_MAX,
            connections_max: CONNECTIONS_MAX,
            line_bytes_max: LINE_BYTES_MAX,
            idle_max: IDLE_MAX,
        }
    }
}

/// What a listener understands.
#[derive(Clone, Debug, PartialEq)]
pub enum Settings {
    /// StatsD and DogStatsD.
    Statsd(Statsd),
    /// Graphite's plain text.
    Graphite(Graphite),
}

impl From<Statsd> for Settings {
    fn from(settings: Statsd) -> Settings {
        Settings::Statsd(settings)
    }
}

impl From<Graphite> for Settings {
    fn from(settings: Graphite) -> Settings {
        Settings::Graphite(settings)
    }
}

/// What the lines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Statsd,
    Graphite,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Statsd => "statsd",
            Protocol::Graphite => "graphite",
        }
    }
}

/// Bounds, whatever the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) receive_buffer_bytes: usize,
    pub(crate) series_max: usize,
    pub(crate) memory_bytes_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) line_bytes_max: usize,
    pub(crate) idle_max: Duration,
}

impl Settings {
    pub(crate) fn protocol(&self) -> Protocol {
        match self {
            Settings::Statsd(_) => Protocol::Statsd,
            Settings::Graphite(_) => Protocol::Graphite,
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        match self {
            Settings::Statsd(s) => Limits {
                receive_buffer_bytes: s.receive_buffer_bytes,
                series_max: s.series_max,
                memory_bytes_max: s.memory_bytes_max,
                connections_max: s.connections_max,
                line_bytes_max: s.line_bytes_max,
                idle_max: s.idle_max,
            },
            Settings::Graphite(s) => Limits {
                receive_buffer_bytes: s.receive_buffer_bytes,
                series_max: s.series_max,
                memory_bytes_max: s.memory_bytes_max,
                connections_max: s.connections_max,
                line_bytes_max: s.line_bytes_max,
                idle_max: s.idle_max,
            },
        }
    }
}
