//! Targets: address and protocol.
//!
//! | URL | protocol |
//! |---|---|
//! | `http://`, `https://` | HTTP/1.1 |
//! | `h2c://`, `h2://` | HTTP/2, with prior knowledge or in TLS |
//! | `grpc://`, `grpcs://host:port/package.Service/Method` | gRPC, unary |
//! | `tcp://host:port` | echo |
//! | `postgres://user:password@host:port/database?prepared=true&sslmode=verify-full` | PostgreSQL |
//! | `redis://user:password@host:port/number`, `rediss://` | Redis, the second in TLS |

use percent_encoding::percent_decode_str;

use crate::protocols::Protocol;
use crate::secret::Secret;

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Protocol with its parameters.
    pub protocol: Protocol,
    /// Name or address; empty for commands.
    pub host: String,
    /// TCP port; 0 for commands.
    pub port: u16,
    /// Whether TLS is used.
    pub is_tls: bool,
    /// Whether the server certificate is verified.
    pub is_verified: bool,
}

/// Invalid target URL. Its password is not shown.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Unknown scheme.
    #[error(
        "unknown scheme in {url:?}; expected http://, https://, h2c://, h2://, grpc://, grpcs://, \
         tcp://, postgres://, redis:// or rediss://"
    )]
    Scheme {
        /// The URL.
        url: String,
    },
    /// Missing or invalid part.
    #[error("invalid target {url:?}: {why}")]
    Wrong {
        /// The URL.
        url: String,
        /// Cause.
        why: String,
    },
}

/// Protocol of a URL scheme.
#[derive(Clone, Copy, PartialEq)]
enum UrlScheme {
    Http1,
    Http2,
    Grpc,
    Echo,
    Postgres,
    Redis,
}

/// Protocol of a scheme, whether it implies TLS, and its default port.
fn scheme(name: &str) -> Option<(UrlScheme, bool, Option<u16>)> {
    Some(match name {
        "http" => (UrlScheme::Http1, false, Some(80)),
        "https" => (UrlScheme::Http1, true, Some(443)),
        "h2c" => (UrlScheme::Http2, false, Some(80)),
        "h2" => (UrlScheme::Http2, true, Some(443)),
        "grpc" => (UrlScheme::Grpc, false, Some(80)),
        "grpcs" => (UrlScheme::Grpc, true, Some(443)),
        "tcp" => (UrlScheme::Echo, false, None),
        "postgres" | "postgresql" => (UrlScheme::Postgres, false, Some(5432)),
        "redis" => (UrlScheme::Redis, false, Some(6379)),
        "rediss" => (UrlScheme::Redis, true, Some(6379)),
        _ => return None,
    })
}

impl Target {
    /// The URL without a password.
    pub fn redacted(url: &str) -> String {
        redacted(url)
    }

    /// Commands instead of a server.
    pub fn command() -> Target {
        Target {
            protocol: Protocol::Command,
            host: String::new(),
            port: 0,
            is_tls: false,
            is_verified: true,
        }
    }

    /// Parses a target URL. The second value is the default path of requests, `/` if the URL has
    /// none.
    pub fn parse(url: &str) -> Result<(Target, String), TargetError> {
        let unknown = || TargetError::Scheme { url: redacted(url) };
        let wrong = |why: &str| TargetError::Wrong { url: redacted(url), why: why.to_owned() };
        let (name, rest) = url.split_once("://").ok_or_else(unknown)?;
        let (scheme, is_tls, usual) = scheme(name).ok_or_else(unknown)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (user, server) = match rest[..end].rsplit_once('@') {
            Some((user, _)) => {
                (Some(Credentials::parse(user).map_err(wrong)?), &rest[user.len() + 1..])
            }
            None => (None, rest),
        };
        let without_user = format!("{name}://{server}");
        let read = net::Endpoint::parse_as(&without_user, is_tls, usual)
            .map_err(|error| wrong(&error.reason))?;
        if read.port == 0 {
            return Err(wrong("the port is not a number from 1 to 65535"));
        }
        if user.is_some() && !matches!(scheme, UrlScheme::Postgres | UrlScheme::Redis) {
            return Err(wrong("a user is not supported here; set a header instead"));
        }
        // Unchanged: the default port of another scheme must stay.
        let authority = rest[..end].to_owned();
        let (mut is_tls, mut is_verified) = (is_tls, true);
        let (protocol, path) = match scheme {
            UrlScheme::Http1 => (Protocol::Http1 { authority }, read.path),
            UrlScheme::Http2 => (Protocol::Http2 { authority, is_tls }, read.path),
            UrlScheme::Grpc => (Protocol::Grpc { authority, is_tls }, read.path),
            UrlScheme::Echo => (Protocol::Echo, "/".to_owned()),
            UrlScheme::Redis => (redis(user, &read.path).map_err(wrong)?, "/".to_owned()),
            UrlScheme::Postgres => {
                let (protocol, mode) = postgres(user, &read.path).map_err(wrong)?;
                (is_tls, is_verified) = (mode != SslMode::Disable, mode != SslMode::Require);
                (protocol, "/".to_owned())
            }
        };
        Ok((Target { protocol, host: read.host, port: read.port, is_tls, is_verified }, path))
    }
}

/// User and password of a URL.
struct Credentials {
    name: String,
    password: Option<Secret>,
}

impl Credentials {
    fn parse(url: &str) -> Result<Credentials, &'static str> {
        let (name, password) = match url.split_once(':') {
            Some((name, password)) => (name, Some(password)),
            None => (url, None),
        };
        let password =
            password.map(|one| decoded(one, "the password is not valid UTF-8 without NUL"));
        let name = decoded(name, "the user is not valid UTF-8 without NUL")?;
        Ok(Credentials { name, password: password.transpose()?.map(Secret::new) })
    }
}

/// Percent-decodes. NUL is not allowed: no protocol can represent it.
fn decoded(url: &str, why: &'static str) -> Result<String, &'static str> {
    let text = percent_decode_str(url).decode_utf8().map_err(|_| why)?;
    if text.contains('\0') { Err(why) } else { Ok(text.into_owned()) }
}

/// `sslmode` of libpq. Modes in which the server decides about TLS are not supported: the measured
/// protocol would be unknown.
#[derive(Clone, Copy, PartialEq)]
enum SslMode {
    Disable,
    /// TLS without verification.
    Require,
    VerifyFull,
}

fn postgres(user: Option<Credentials>, path: &str) -> Result<(Protocol, SslMode), &'static str> {
    let (database, query) = path.split_once('?').unwrap_or((path, ""));
    let (mut is_prepared, mut mode) = (false, SslMode::Disable);
    for one in query.split('&').filter(|one| !one.is_empty()) {
        match one {
            "prepared=true" => is_prepared = true,
            "prepared=false" => is_prepared = false,
            "sslmode=disable" => mode = SslMode::Disable,
            "sslmode=require" => mode = SslMode::Require,
            "sslmode=verify-full" => mode = SslMode::VerifyFull,
            _ => {
                return Err(
                    "unknown parameter; supported are prepared=true or false, and sslmode=disable, \
                     require or verify-full",
                );
            }
        }
    }
    let database =
        decoded(database.trim_start_matches('/'), "the database is not valid UTF-8 without NUL")?;
    let user = user.unwrap_or(Credentials { name: String::new(), password: None });
    // Like psql, except that the OS user is not the default.
    let name = if user.name.is_empty() { "postgres".to_owned() } else { user.name };
    let database = if database.is_empty() { name.clone() } else { database };
    let protocol =
        Protocol::Postgres { user: name, password: user.password, database, is_prepared };
    Ok((protocol, mode))
}

fn redis(user: Option<Credentials>, path: &str) -> Result<Protocol, &'static str> {
    let database = match path.trim_start_matches('/') {
        "" => 0,
        number => number.parse().map_err(|_| "the database is not a number")?,
    };
    let (user, password) = match user {
        Some(user) => (Some(user.name).filter(|name| !name.is_empty()), user.password),
        None => (None, None),
    };
    if user.is_some() && password.is_none() {
        return Err("a user without a password; use redis://:password@host for the default user");
    }
    Ok(Protocol::Redis { user, password, database })
}

/// Removes what may be a password: all before the last `@`, and the query if it mentions one.
fn redacted(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('@') => (format!("{scheme}://"), rest),
        _ => (String::new(), url),
    };
    let rest = match rest.rsplit_once('@') {
        Some((_, rest)) => format!("***@{rest}"),
        None => rest.to_owned(),
    };
    match rest.split_once('?') {
        Some((rest, query)) if query.to_ascii_lowercase().contains("pass") => {
            format!("{scheme}{rest}?***")
        }
        _ => scheme + &rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> (Target, String) {
        Target::parse(url).unwrap()
    }

    #[test]
    fn targets_are_parsed() {
        let (target, path) = read("http://[::1]:8080?a");
        assert_eq!((target.host.as_str(), target.port, target.is_tls), ("::1", 8080, false));
        assert_eq!(path, "/?a");
        assert_eq!(target.protocol, Protocol::Http1 { authority: "[::1]:8080".to_owned() });
        let (target, path) = read("https://a.b");
        assert_eq!((target.port, target.is_tls, path.as_str()), (443, true, "/"));
        assert_eq!(read("tcp://a:7").0.protocol, Protocol::Echo);
    }

    #[test]
    fn http2_schemes_are_parsed() {
        let (target, path) = read("h2c://a:1/b?c");
        let authority = "a:1".to_owned();
        assert_eq!(target.protocol, Protocol::Http2 { authority, is_tls: false });
        assert_eq!((path.as_str(), target.is_tls), ("/b?c", false));
        let (target, _) = read("h2://a");
        let authority = "a".to_owned();
        assert_eq!(target.protocol, Protocol::Http2 { authority, is_tls: true });
        assert_eq!((target.port, target.is_tls), (443, true));
        let (target, path) = read("grpcs://a:50051/b.C/D");
        let authority = "a:50051".to_owned();
        assert_eq!(target.protocol, Protocol::Grpc { authority, is_tls: true });
        assert_eq!(path, "/b.C/D");
    }

    #[test]
    fn database_urls_have_credentials() {
        let postgres = |user: &str, password: Option<&str>, database: &str, is_prepared| {
            let (user, database) = (user.to_owned(), database.to_owned());
            let password = password.map(Secret::new);
            Protocol::Postgres { user, password, database, is_prepared }
        };
        let (target, path) = read("postgres://m%40e:p%2F%3Aw:x@h:1/b%20c?prepared=true");
        assert_eq!(target.protocol, postgres("m@e", Some("p/:w:x"), "b c", true));
        assert_eq!((target.host.as_str(), target.port, path.as_str()), ("h", 1, "/"));
        let (target, _) = read("postgresql://me@h");
        assert_eq!((target.protocol, target.port), (postgres("me", None, "me", false), 5432));
        assert_eq!(read("postgres://h").0.protocol, postgres("postgres", None, "postgres", false));

        let modes = |url| {
            let target = read(url).0;
            (target.is_tls, target.is_verified)
        };
        assert!(!modes("postgres://h").0 && !modes("postgres://h?sslmode=disable").0);
        assert_eq!(modes("postgres://h/b?sslmode=verify-full&prepared=true"), (true, true));
        assert_eq!(modes("postgres://h/b?prepared=false&sslmode=require"), (true, false));

        let redis = |user: Option<&str>, password: Option<&str>, database| Protocol::Redis {
            user: user.map(str::to_owned),
            password: password.map(Secret::new),
            database,
        };
        let (target, _) = read("redis://h");
        assert_eq!((target.protocol, target.port), (redis(None, None, 0), 6379));
        let (target, _) = read("rediss://:p@[::1]:1/3");
        assert_eq!((target.protocol, target.is_tls), (redis(None, Some("p"), 3), true));
        assert_eq!(read("redis://u:p@h").0.protocol, redis(Some("u"), Some("p"), 0));
    }

    #[test]
    fn invalid_targets_are_rejected() {
        let error_for = |url: &str| Target::parse(url).unwrap_err().to_string();
        assert!(error_for("localhost:80").contains("http://"));
        assert!(error_for("gopher://a").contains("unknown scheme"));
        assert!(error_for("http://:80/").contains("no host"), "{}", error_for("http://:80/"));
        assert!(error_for("tcp://a").contains("port"));
        assert!(error_for("http://a:99999/").contains("65535"));
        assert!(error_for("http://a:0/").contains("65535"));
        assert!(error_for("http://u@a/").contains("header"));
        assert!(error_for("redis://a/x").contains("not a number"));
        assert!(error_for("redis://a@b").contains("without a password"));
        for query in ["a=b", "sslmode=prefer", "sslmode=verify-ca", "sslmode"] {
            assert!(error_for(&format!("postgres://a/b?{query}")).contains("sslmode=disable"));
        }
        assert!(error_for("postgres://%00@a").contains("not valid UTF-8"));
    }

    #[test]
    fn passwords_are_redacted() {
        let word = "hunter2";
        for url in [
            "http://u:hunter2@a/",
            "nothing://u:hunter2@a",
            "u:hunter2@a",
            "redis://:hunter2@a:99999",
            "redis://u:x/hunter2@a/b",
            "redis://u:x@hunter2@a:b",
            "postgres://u:hunter2@a/%00",
            "postgres://u@a/b?password=hunter2",
            "u:hunter2@http://a",
        ] {
            let error = Target::parse(url).unwrap_err();
            let redacted = format!("{error} {error:?}");
            assert!(!redacted.contains(word), "{redacted}");
        }
        for url in ["redis://:hunter2@a", "postgres://u:hunter2@a"] {
            let redacted = format!("{:?}", read(url));
            assert!(!redacted.contains(word), "{redacted}");
        }
    }
}
