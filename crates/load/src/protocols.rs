//! Protocols, one file each.

mod echo;
mod http1;
mod http2;
mod postgres;
mod redis;

use crate::codec::Codec;
use crate::request::RenderedRequest;
use crate::secret::Secret;

/// A protocol with its connection parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// The server sends back what it receives.
    Echo,
    /// One request at a time.
    Http1 {
        /// Host and port as in the URL.
        authority: String,
    },
    /// Multiplexed requests.
    Http2 {
        /// Host and port as in the URL.
        authority: String,
        /// Whether TLS is used: it determines `:scheme`.
        is_tls: bool,
    },
    /// Unary gRPC calls, multiplexed. The path of a request is `/package.Service/Method`, its body
    /// the message.
    Grpc {
        /// Host and port as in the URL.
        authority: String,
        /// Whether TLS is used: it determines `:scheme`.
        is_tls: bool,
    },
    /// One query at a time.
    Postgres {
        /// User name.
        user: String,
        /// Password, if any.
        password: Option<Secret>,
        /// Database name.
        database: String,
        /// Whether statements are prepared once per connection.
        is_prepared: bool,
    },
    /// One command at a time.
    Redis {
        /// User name; `None` for the default user.
        user: Option<String>,
        /// Password, if any.
        password: Option<Secret>,
        /// Database number; 0 is the default.
        database: u32,
    },
    /// Each request starts a process and ends when it exits.
    Command,
}

impl Protocol {
    /// Creates the codec of a connection. Panics for commands.
    pub fn codec(&self) -> Box<dyn Codec> {
        match self {
            Protocol::Echo => Box::new(echo::Echo::default()),
            Protocol::Http1 { authority } => Box::new(http1::Http1::new(authority)),
            Protocol::Http2 { authority, is_tls } => {
                Box::new(http2::Http2::new(authority, *is_tls, http2::RequestKind::Http))
            }
            Protocol::Grpc { authority, is_tls } => {
                Box::new(http2::Http2::new(authority, *is_tls, http2::RequestKind::Grpc))
            }
            Protocol::Postgres { user, password, database, is_prepared } => {
                let login = postgres::Login::new(user, password.clone(), database);
                Box::new(postgres::Postgres::new(login, *is_prepared))
            }
            Protocol::Redis { user, password, database } => {
                Box::new(redis::Redis::new(user.as_deref(), password.as_ref(), *database))
            }
            Protocol::Command => panic!("BUG: a command has no codec"),
        }
    }

    /// Checks that the protocol can represent a request.
    pub(crate) fn check(&self, request: &RenderedRequest) -> Result<(), String> {
        let without = |is_empty: bool, what: &str| match is_empty {
            true => Ok(()),
            false => Err(format!("the protocol does not support {what}")),
        };
        let no_arguments = || without(request.arguments.is_empty(), "arguments");
        let no_headers = || without(request.headers.is_empty(), "headers");
        match self {
            Protocol::Echo => no_arguments().and_then(|()| no_headers()),
            Protocol::Http1 { .. } => no_arguments().and_then(|()| http1::check(request)),
            Protocol::Http2 { authority, is_tls, .. } => {
                no_arguments()?;
                http2::check(authority, *is_tls, http2::RequestKind::Http, request)
            }
            Protocol::Grpc { authority, is_tls, .. } => {
                no_arguments()?;
                protocol::grpc::check_path(&request.path)?;
                http2::check(authority, *is_tls, http2::RequestKind::Grpc, request)
            }
            Protocol::Postgres { .. } => no_headers().and_then(|()| postgres::check(request)),
            Protocol::Redis { .. } => no_headers().and_then(|()| redis::check(request)),
            Protocol::Command if request.command.iter().any(|word| word.contains(&0)) => {
                Err("an argument contains a NUL byte".to_owned())
            }
            Protocol::Command => no_arguments().and_then(|()| no_headers()),
        }
    }

    /// The password, which no output may show.
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

    /// Plain-text request for TLS, if the protocol has one. The server answers `S` or `N`.
    pub(crate) fn tls_request(&self) -> Option<&'static [u8]> {
        match self {
            Protocol::Postgres { .. } => Some(&protocol::postgres::TLS_REQUEST),
            Protocol::Echo
            | Protocol::Http1 { .. }
            | Protocol::Http2 { .. }
            | Protocol::Grpc { .. }
            | Protocol::Redis { .. }
            | Protocol::Command => None,
        }
    }

    /// ALPN protocol names (RFC 7301).
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
