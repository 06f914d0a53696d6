//! Protocols: what is spoken on a connection, one file each.

mod echo;
mod http1;

use crate::session::Session;

/// What is spoken, with all that a session must know beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// What is sent comes back.
    Echo,
    /// One request after the other.
    Http1 {
        /// The server's name, with its port if that is not the usual one.
        authority: String,
    },
}

impl Protocol {
    /// A connection's side of it.
    pub fn session(&self) -> Box<dyn Session> {
        match self {
            Protocol::Echo => Box::new(echo::Echo::default()),
            Protocol::Http1 { authority } => Box::new(http1::Http1::new(authority)),
        }
    }

    /// What TLS is to be told of it (ALPN, RFC 7301).
    pub(crate) fn alpn(&self) -> Vec<Vec<u8>> {
        match self {
            Protocol::Http1 { .. } => vec![b"http/1.1".to_vec()],
            Protocol::Echo => Vec::new(),
        }
    }
}
