//! Protocols: what is spoken on a connection, one file each.

mod echo;
mod grpc;
mod http1;
mod http2;
mod postgres;
mod redis;

use crate::codec::Codec;
use crate::request::Rendered;
use crate::secret::Secret;

/// What is spoken, with all that a codec must know beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// What is sent comes back.
    Echo,
    /// One request after the other.
    Http1 {
        /// The server's name as it was written, with its port if that was.
        authority: String,
    },
    /// Many requests at once.
    Http2 {
        /// The server's name as it was written, with its port if that was.
        authority: String,
        /// Whether in TLS: requests say so.
        is_tls: bool,
    },
    /// Calls of gRPC with one message each way, many at once. A request's path is `/package.Service/Method`, its body the message.
    Grpc {
        /// The server's name as it was written, with its port if that was.
        authority: String,
        /// Whether in TLS: requests say so.
        is_tls: bool,
    },
    /// One query after the other.
    Postgres {
        /// Who asks.
        user: String,
        /// What the server may want to know.
        password: Option<Secret>,
        /// Which database.
        database: String,
        /// Whether each statement is parsed once per connection, and then only executed.
        is_prepared: bool,
    },
    /// One command after the other.
    Redis {
        /// Who asks; without one, the usual user.
        user: Option<String>,
        /// What the server may want to know.
        password: Option<Secret>,
        /// Which database; 0 is the usual one.
        database: u32,
    },
    /// None: each request is a command that is started, and ends when its process does.
    Command,
}

impl Protocol {
    /// A connection's side of it. A command has none: it panics.
    pub fn codec(&self) -> Box<dyn Codec> {
        match self {
            Protocol::Echo => Box::new(echo::Echo::default()),
            Protocol::Http1 { authority } => Box::new(http1::Http1::new(authority)),
            Protocol::Http2 { authority, is_tls } => {
                Box::new(http2::Http2::new(authority, *is_tls, http2::Kind::Http))
            }
            Protocol::Grpc { authority, is_tls } => {
                Box::new(http2::Http2::new(authority, *is_tls, http2::Kind::Grpc))
            }
            Protocol::Postgres { user, password, database, is_prepared } => {
                let login = postgres::Login::new(user, password.clone(), database);
                Box::new(postgres::Postgres::new(login, *is_prepared))
            }
            Protocol::Redis { user, password, database } => {
                Box::new(redis::Redis::new(user.as_deref(), password.as_ref(), *database))
            }
            Protocol::Command => panic!("BUG: a command is started, and has no codec"),
        }
    }

    /// Why a request cannot be said in it, whatever the server is.
    pub(crate) fn check(&self, request: &Rendered) -> Result<(), String> {
        let without = |is_empty: bool, what: &str| match is_empty {
            true => Ok(()),
            false => Err(format!("it has {what}, which this protocol has not")),
        };
        let no_arguments = || without(request.arguments.is_empty(), "arguments");
        let no_headers = || without(request.headers.is_empty(), "headers");
        match self {
            Protocol::Echo => no_arguments().and_then(|()| no_headers()),
            Protocol::Http1 { .. } => no_arguments().and_then(|()| http1::check(request)),
            Protocol::Http2 { authority, is_tls, .. } => {
                no_arguments()?;
                http2::check(authority, *is_tls, http2::Kind::Http, request)
            }
            Protocol::Grpc { authority, is_tls, .. } => {
                no_arguments()?;
                grpc::check(&request.path)?;
                http2::check(authority, *is_tls, http2::Kind::Grpc, request)
            }
            Protocol::Postgres { .. } => no_headers().and_then(|()| postgres::check(request)),
            Protocol::Redis { .. } => no_headers().and_then(|()| redis::check(request)),
            Protocol::Command if request.command.iter().any(|word| word.contains(&0)) => {
                Err("it has a zero byte in a word, where a word ends for a program".to_owned())
            }
            Protocol::Command => no_arguments().and_then(|()| no_headers()),
        }
    }

    /// What must be shown nowhere.
    pub(crate) fn secret(&self) -> Option<&Secret> {
        match self {
            Protocol::Postgres { password, .. } | Protocol::Redis { password, .. } => {
                password.as_ref()
            }
            Protocol::Echo
            | Protocol::Http1 { .. }
            | Protocol::Http2 { .. }
            | Protocol::Grpc { .. }
            | Protocol::Command => None,
        }
    }

    /// What is said before TLS, without it, where the server is to agree to TLS first. It answers `S` or `N`.
    pub(crate) fn request_for_tls(&self) -> Option<&'static [u8]> {
        match self {
            Protocol::Postgres { .. } => Some(&postgres::REQUEST_FOR_TLS),
            Protocol::Echo
            | Protocol::Http1 { .. }
            | Protocol::Http2 { .. }
            | Protocol::Grpc { .. }
            | Protocol::Redis { .. }
            | Protocol::Command => None,
        }
    }

    /// What TLS is to be told of it (ALPN, RFC 7301).
    pub(crate) fn alpn(&self) -> Vec<Vec<u8>> {
        match self {
            Protocol::Http1 { .. } => vec![b"http/1.1".to_vec()],
            Protocol::Http2 { .. } | Protocol::Grpc { .. } => vec![b"h2".to_vec()],
            Protocol::Echo
            | Protocol::Postgres { .. }
            | Protocol::Redis { .. }
            | Protocol::Command => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
