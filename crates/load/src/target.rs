//! A target: where load goes, and what is spoken there.
//!
//! | written | spoken |
//! |---|---|
//! | `http://`, `https://` | HTTP/1.1 |
//! | `h2c://`, `h2://` | HTTP/2, with prior knowledge or in TLS |
//! | `grpc://`, `grpcs://host:port/package.Service/Method` | gRPC, one message each way |
//! | `tcp://host:port` | an echo |
//! | `postgres://user:password@host:port/database?prepared=true&sslmode=verify-full` | PostgreSQL |
//! | `redis://user:password@host:port/number`, `rediss://` | Redis, the second in TLS |

use percent_encoding::percent_decode_str;

use crate::protocol::Protocol;
use crate::secret::Secret;

/// Where load goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is spoken.
    pub protocol: Protocol,
    /// A name or an address; empty of commands.
    pub host: String,
    /// Of TCP; 0 of commands.
    pub port: u16,
    /// Whether in TLS.
    pub is_tls: bool,
    /// Whether, in TLS, the server must show a certificate that is trusted.
    pub is_verified: bool,
}

/// What is wrong with a target as it was written. A password that stands in it is not shown.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// It does not begin with a name of a protocol that is known.
    #[error(
        "{written:?} does not say what is spoken: write http://, https://, h2c://, h2://, grpc://, grpcs://, tcp://, \
         postgres://, redis:// or rediss:// before it"
    )]
    Scheme {
        /// As it was written.
        written: String,
    },
    /// Something in it is missing, or is not what it must be.
    #[error("{written:?} is no target: {why}")]
    Wrong {
        /// As it was written.
        written: String,
        /// What.
        why: String,
    },
}

/// What is spoken, but for what the rest of a target says.
#[derive(Clone, Copy, PartialEq)]
enum Spoken {
    Http1,
    Http2,
    Grpc,
    Echo,
    Postgres,
    Redis,
}

/// What a scheme stands for: what is spoken, whether in TLS, and the usual port.
fn scheme(name: &str) -> Option<(Spoken, bool, Option<u16>)> {
    Some(match name {
        "http" => (Spoken::Http1, false, Some(80)),
        "https" => (Spoken::Http1, true, Some(443)),
        "h2c" => (Spoken::Http2, false, Some(80)),
        "h2" => (Spoken::Http2, true, Some(443)),
        "grpc" => (Spoken::Grpc, false, Some(80)),
        "grpcs" => (Spoken::Grpc, true, Some(443)),
        "tcp" => (Spoken::Echo, false, None),
        "postgres" | "postgresql" => (Spoken::Postgres, false, Some(5432)),
        "redis" => (Spoken::Redis, false, Some(6379)),
        "rediss" => (Spoken::Redis, true, Some(6379)),
        _ => return None,
    })
}

impl Target {
    /// As it was written, without what may be a password.
    pub fn shown(written: &str) -> String {
        shown(written)
    }

    /// No server: each request is a command.
    pub fn command() -> Target {
        Target {
            protocol: Protocol::Command,
            host: String::new(),
            port: 0,
            is_tls: false,
            is_verified: true,
        }
    }

    /// Reads `http://host:port/path` and its like; the second is what a request's path is without another, `/` if the target has none.
    pub fn parse(written: &str) -> Result<(Target, String), TargetError> {
        let unknown = || TargetError::Scheme { written: shown(written) };
        let wrong = |why: &str| TargetError::Wrong { written: shown(written), why: why.to_owned() };
        let (name, rest) = written.split_once("://").ok_or_else(unknown)?;
        let (spoken, is_tls, usual) = scheme(name).ok_or_else(unknown)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (user, server) = match rest[..end].rsplit_once('@') {
            Some((user, _)) => (Some(User::parse(user).map_err(wrong)?), &rest[user.len() + 1..]),
            None => (None, rest),
        };
        let url = format!("{name}://{server}");
        let read = net::Target::parse_as(&url, is_tls, usual).map_err(|error| wrong(&error.why))?;
        if read.port == 0 {
            return Err(wrong("its port is no number from 1 to 65535"));
        }
        if user.is_some() && !matches!(spoken, Spoken::Postgres | Spoken::Redis) {
            return Err(wrong("it has a user in it, who is not sent: write a header for that"));
        }
        // As it was written: a port stays that is the usual one of another scheme.
        let authority = rest[..end].to_owned();
        let (mut is_tls, mut is_verified) = (is_tls, true);
        let (protocol, path) = match spoken {
            Spoken::Http1 => (Protocol::Http1 { authority }, read.path),
            Spoken::Http2 => (Protocol::Http2 { authority, is_tls }, read.path),
            Spoken::Grpc => (Protocol::Grpc { authority, is_tls }, read.path),
            Spoken::Echo => (Protocol::Echo, "/".to_owned()),
            Spoken::Redis => (redis(user, &read.path).map_err(wrong)?, "/".to_owned()),
            Spoken::Postgres => {
                let (protocol, mode) = postgres(user, &read.path).map_err(wrong)?;
                (is_tls, is_verified) = (mode != SslMode::Disable, mode != SslMode::Require);
                (protocol, "/".to_owned())
            }
        };
        Ok((Target { protocol, host: read.host, port: read.port, is_tls, is_verified }, path))
    }
}

/// Who asks.
struct User {
    name: String,
    password: Option<Secret>,
}

impl User {
    fn parse(written: &str) -> Result<User, &'static str> {
        let (name, password) = match written.split_once(':') {
            Some((name, password)) => (name, Some(password)),
            None => (written, None),
        };
        let password = password.map(|one| decoded(one, "its password is no text"));
        let name = decoded(name, "its user is no text")?;
        Ok(User { name, password: password.transpose()?.map(Secret::new) })
    }
}

/// `%40` stands for `@`. Zeros are no text: no protocol can say them.
fn decoded(written: &str, why: &'static str) -> Result<String, &'static str> {
    let text = percent_decode_str(written).decode_utf8().map_err(|_| why)?;
    if text.contains('\0') { Err(why) } else { Ok(text.into_owned()) }
}

/// How PostgreSQL is spoken with, as its own clients call it. Modes in which the server decides whether there is TLS are not among them:
/// nobody would know what was measured.
#[derive(Clone, Copy, PartialEq)]
enum SslMode {
    Disable,
    /// In TLS with anybody.
    Require,
    VerifyFull,
}

fn postgres(user: Option<User>, path: &str) -> Result<(Protocol, SslMode), &'static str> {
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
                    "after the database it can say prepared=true or false, and sslmode=disable, require or verify-full, only",
                );
            }
        }
    }
    let database = decoded(database.trim_start_matches('/'), "its database is no text")?;
    let user = user.unwrap_or(User { name: String::new(), password: None });
    // As psql would have it, but that it does not ask the system who we are.
    let name = if user.name.is_empty() { "postgres".to_owned() } else { user.name };
    let database = if database.is_empty() { name.clone() } else { database };
    let protocol =
        Protocol::Postgres { user: name, password: user.password, database, is_prepared };
    Ok((protocol, mode))
}

fn redis(user: Option<User>, path: &str) -> Result<Protocol, &'static str> {
    let database = match path.trim_start_matches('/') {
        "" => 0,
        number => number.parse().map_err(|_| "its database is no number")?,
    };
    let (user, password) = match user {
        Some(user) => (Some(user.name).filter(|name| !name.is_empty()), user.password),
        None => (None, None),
    };
    if user.is_some() && password.is_none() {
        return Err(
            "it has a user without a password: write redis://:password@host for the usual user",
        );
    }
    Ok(Protocol::Redis { user, password, database })
}

/// As it was written, without what may be a password: all before the last `@`, and all after a question mark if it speaks of one.
fn shown(written: &str) -> String {
    let (scheme, rest) = match written.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('@') => (format!("{scheme}://"), rest),
        _ => (String::new(), written),
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

    fn read(written: &str) -> (Target, String) {
        Target::parse(written).unwrap()
    }

    #[test]
    fn a_target_is_read() {
        let (target, path) = read("http://[::1]:8080?a");
        assert_eq!((target.host.as_str(), target.port, target.is_tls), ("::1", 8080, false));
        assert_eq!(path, "/?a");
        assert_eq!(target.protocol, Protocol::Http1 { authority: "[::1]:8080".to_owned() });
        let (target, path) = read("https://a.b");
        assert_eq!((target.port, target.is_tls, path.as_str()), (443, true, "/"));
        assert_eq!(read("tcp://a:7").0.protocol, Protocol::Echo);
    }

    #[test]
    fn http2_is_spoken_where_it_is_written() {
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
    fn databases_are_told_who_asks() {
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

        let modes = |written| {
            let target = read(written).0;
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
    fn what_is_wrong_is_said() {
        let said = |written: &str| Target::parse(written).unwrap_err().to_string();
        assert!(said("localhost:80").contains("http://"));
        assert!(said("gopher://a").contains("does not say"));
        assert!(said("http://:80/").contains("no host"), "{}", said("http://:80/"));
        assert!(said("tcp://a").contains("no port"));
        assert!(said("http://a:99999/").contains("65535"));
        assert!(said("http://a:0/").contains("65535"));
        assert!(said("http://u@a/").contains("header"));
        assert!(said("redis://a/x").contains("no number"));
        assert!(said("redis://a@b").contains("without a password"));
        for query in ["a=b", "sslmode=prefer", "sslmode=verify-ca", "sslmode"] {
            assert!(said(&format!("postgres://a/b?{query}")).contains("sslmode=disable"));
        }
        assert!(said("postgres://%00@a").contains("no text"));
    }

    #[test]
    fn a_password_is_shown_nowhere() {
        let word = "hunter2";
        for written in [
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
            let error = Target::parse(written).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(word), "{shown}");
        }
        for written in ["redis://:hunter2@a", "postgres://u:hunter2@a"] {
            let shown = format!("{:?}", read(written));
            assert!(!shown.contains(word), "{shown}");
        }
    }
}
