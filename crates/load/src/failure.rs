//! Reasons for failed requests.

use std::fmt;
use std::io;

use protocol::ProtocolViolation;

/// Reason for a failed request. Each request has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Connection refused.
    Refused,
    /// No route, or the connect timed out.
    Unreachable,
    /// Connection reset before the response was complete.
    Reset,
    /// Connection closed before the response was complete.
    Closed,
    /// No response within the timeout.
    TimedOut,
    /// TLS handshake or record error.
    Tls,
    /// The received bytes violate the protocol.
    Malformed,
    /// The response reports an error: HTTP status of 400 or more, a database error.
    Status,
    /// Out of file descriptors, ports, processes or memory on this machine.
    Resources,
    /// The command exited with a status other than 0.
    Exit,
    /// The command was killed by a signal.
    Signal,
    /// The command could not be started.
    NotStarted,
}

impl Failure {
    /// All reasons.
    pub const ALL: [Failure; 12] = [
        Failure::Refused,
        Failure::Unreachable,
        Failure::Reset,
        Failure::Closed,
        Failure::TimedOut,
        Failure::Tls,
        Failure::Malformed,
        Failure::Status,
        Failure::Resources,
        Failure::Exit,
        Failure::Signal,
        Failure::NotStarted,
    ];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Failure::Refused => "refused",
            Failure::Unreachable => "unreachable",
            Failure::Reset => "reset",
            Failure::Closed => "closed",
            Failure::TimedOut => "timed out",
            Failure::Tls => "tls",
            Failure::Malformed => "malformed",
            Failure::Status => "status",
            Failure::Resources => "resources",
            Failure::Exit => "exit",
            Failure::Signal => "signal",
            Failure::NotStarted => "not started",
        }
    }

    /// Name in JSON and labels.
    pub fn key(self) -> String {
        self.name().replace(' ', "_")
    }

    /// Classifies a socket error.
    pub fn of(error: &io::Error) -> Failure {
        use io::ErrorKind as Kind;
        const RESOURCES: [rustix::io::Errno; 5] = [
            rustix::io::Errno::MFILE,
            rustix::io::Errno::NFILE,
            rustix::io::Errno::NOBUFS,
            rustix::io::Errno::NOMEM,
            rustix::io::Errno::ADDRNOTAVAIL,
        ];
        if RESOURCES.iter().any(|one| error.raw_os_error() == Some(one.raw_os_error())) {
            return Failure::Resources;
        }
        match error.kind() {
            Kind::ConnectionRefused => Failure::Refused,
            Kind::TimedOut | Kind::HostUnreachable | Kind::NetworkUnreachable => {
                Failure::Unreachable
            }
            Kind::UnexpectedEof | Kind::NotConnected => Failure::Closed,
            _ => Failure::Reset,
        }
    }
}

impl From<ProtocolViolation> for Failure {
    fn from(_: ProtocolViolation) -> Failure {
        Failure::Malformed
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
