//! Why a request got no answer that counts.

use std::fmt;
use std::io;

/// What became of a request that failed. Each is counted by itself; none is left out of the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Nobody listens there.
    Refused,
    /// There is no way there, or none that answered in time.
    Unreachable,
    /// The connection was reset before the answer was whole.
    Reset,
    /// The connection was closed before the answer was whole.
    Closed,
    /// The answer did not come within the time that was allowed.
    TimedOut,
    /// TLS could not be agreed on, or was broken.
    Tls,
    /// What came is not of the protocol.
    Malformed,
    /// The answer says that it failed: a status of 400 or more, an error of the database.
    Status,
    /// This machine had no more files, ports, processes or memory.
    Resources,
    /// The command ended with another status than 0.
    Exit,
    /// The command was killed by a signal.
    Signal,
    /// The command could not be started.
    NotStarted,
}

impl Failure {
    /// All there are.
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

    /// As reports name it.
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

    /// The same as one word, for programs.
    pub fn key(self) -> String {
        self.name().replace(' ', "_")
    }

    /// What an error of a socket means.
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
