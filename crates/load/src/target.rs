//! A target: where load goes, and what is spoken there.

use crate::protocol::Protocol;

/// Where load goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is spoken.
    pub protocol: Protocol,
    /// A name or an address.
    pub host: String,
    /// Of TCP.
    pub port: u16,
    /// Whether in TLS.
    pub is_tls: bool,
}

/// What is wrong with a target as it was written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// It does not begin with a name of a protocol that is known.
    #[error("{written:?} does not say what is spoken: write http://, https:// or tcp:// before it")]
    Scheme {
        /// As it was written.
        written: String,
    },
    /// There is no host, or no port where one is needed.
    #[error("{written:?} has no {missing}")]
    Missing {
        /// As it was written.
        written: String,
        /// What.
        missing: &'static str,
    },
    /// The port is no number up to 65,535.
    #[error("{written:?} has the port {port:?}: it must be a number from 1 to 65535")]
    Port {
        /// As it was written.
        written: String,
        /// What stands there.
        port: String,
    },
}

impl Target {
    /// Reads `http://host:port/path` and its like; the second is what follows the host, `/` if nothing does.
    pub fn parse(written: &str) -> Result<(Target, String), TargetError> {
        let unknown = || TargetError::Scheme { written: written.to_owned() };
        let (scheme, rest) = written.split_once("://").ok_or_else(unknown)?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = match path.chars().next() {
            None => "/".to_owned(),
            Some('?') => format!("/{path}"),
            _ => path.to_owned(),
        };
        let (usual, is_tls) = match scheme {
            "http" => (Some(80), false),
            "https" => (Some(443), true),
            "tcp" => (None, false),
            _ => return Err(unknown()),
        };
        let (host, port) = host_and_port(authority);
        let missing = |missing| TargetError::Missing { written: written.to_owned(), missing };
        if host.is_empty() {
            return Err(missing("host"));
        }
        let port = match port {
            Some(port) => match port.parse::<u16>() {
                Ok(port) if port > 0 => port,
                _ => {
                    let (written, port) = (written.to_owned(), port.to_owned());
                    return Err(TargetError::Port { written, port });
                }
            },
            None => usual.ok_or_else(|| missing("port"))?,
        };
        let protocol = match scheme {
            "tcp" => Protocol::Echo,
            _ => Protocol::Http1 { authority: authority.to_owned() },
        };
        Ok((Target { protocol, host: host.to_owned(), port, is_tls }, path))
    }
}

/// An address of version 6 stands in brackets.
fn host_and_port(authority: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (host, rest.strip_prefix(':'));
    }
    match authority.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read() {
        let (target, path) = Target::parse("http://[::1]:8080?a").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.is_tls), ("::1", 8080, false));
        assert_eq!(path, "/?a");
        assert_eq!(target.protocol, Protocol::Http1 { authority: "[::1]:8080".to_owned() });
        let (target, path) = Target::parse("https://a.b").unwrap();
        assert_eq!((target.port, target.is_tls, path.as_str()), (443, true, "/"));
        assert_eq!(Target::parse("tcp://a:7").unwrap().0.protocol, Protocol::Echo);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let said = |written| Target::parse(written).unwrap_err().to_string();
        assert!(said("localhost:80").contains("http://"));
        assert!(said("gopher://a").contains("does not say"));
        assert!(said("http://:80/").contains("no host"));
        assert!(said("tcp://a").contains("no port"));
        assert!(said("http://a:99999/").contains("65535"));
        assert!(said("http://a:0/").contains("65535"));
    }
}
