//! Targets: address and protocol of a server.
//!
//! | URL | protocol |
//! |---|---|
//! | `http://`, `https://` | HTTP/1.1 |
//! | `h2c://`, `h2://` | HTTP/2, with prior knowledge or in TLS |
//! | `grpc://`, `grpcs://host:port/package.Service/Method` | gRPC, unary |
//! | `tcp://host:port` | echo |
//! | `postgres://user:password@host:port/database?prepared=true&sslmode=verify-full` | PostgreSQL |
//! | `redis://user:password@host:port/number`, `rediss://` | Redis, the second in TLS |

use std::sync::Arc;

use crate::load_protocol::{LoadProtocol, ProtocolRow};
use crate::protocols::PROTOCOLS;
use crate::target_url::{TargetError, TargetUrl, redacted};

/// Where requests go.
#[derive(Clone, Debug)]
pub struct Target {
    /// Protocol with its parameters.
    pub protocol: Arc<dyn LoadProtocol>,
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Whether TLS is used.
    pub is_tls: bool,
    /// Whether the server certificate is verified.
    pub is_verified: bool,
}

impl Target {
    /// The URL without a password.
    pub fn redacted(url: &str) -> String {
        redacted(url)
    }

    /// Parses a target URL. The second value is the default path of requests, `/` if the URL has
    /// none.
    pub fn parse(url: &str) -> Result<(Target, String), TargetError> {
        Target::parse_with(url, PROTOCOLS)
    }

    /// Parses a target URL of one of these protocols.
    pub fn parse_with(url: &str, rows: &[ProtocolRow]) -> Result<(Target, String), TargetError> {
        let (parts, row) = TargetUrl::parse(url, rows)?;
        let opened = (row.open)(&parts).map_err(|cause| TargetError::wrong(url, &cause))?;
        let target = Target {
            protocol: opened.protocol,
            host: parts.host,
            port: parts.port,
            is_tls: opened.is_tls,
            is_verified: opened.is_verified,
        };
        Ok((target, opened.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> (Target, String) {
        Target::parse(url).unwrap()
    }

    fn shown(target: &Target) -> String {
        format!("{:?}", target.protocol)
    }

    #[test]
    fn targets_are_parsed() {
        let (target, path) = read("http://[::1]:8080?a");
        assert_eq!((target.host.as_str(), target.port, target.is_tls), ("::1", 8080, false));
        assert_eq!(path, "/?a");
        assert_eq!(shown(&target), r#"Http1Protocol { authority: "[::1]:8080" }"#);
        let (target, path) = read("https://a.b");
        assert_eq!((target.port, target.is_tls, path.as_str()), (443, true, "/"));
        assert_eq!(shown(&read("tcp://a:7").0), "EchoProtocol");
    }

    #[test]
    fn http2_schemes_are_parsed() {
        let (target, path) = read("h2c://a:1/b?c");
        let http2 = |authority: &str, is_tls: bool, kind: &str| {
            format!("Http2Protocol {{ authority: {authority:?}, is_tls: {is_tls}, kind: {kind} }}")
        };
        assert_eq!(shown(&target), http2("a:1", false, "Http"));
        assert_eq!((path.as_str(), target.is_tls), ("/b?c", false));
        let (target, _) = read("h2://a");
        assert_eq!(shown(&target), http2("a", true, "Http"));
        assert_eq!((target.port, target.is_tls), (443, true));
        let (target, path) = read("grpcs://a:50051/b.C/D");
        assert_eq!(shown(&target), http2("a:50051", true, "Grpc"));
        assert_eq!(path, "/b.C/D");
    }

    #[test]
    fn database_urls_have_default_ports_and_tls() {
        let (target, path) = read("postgres://m%40e:p%2F%3Aw:x@h:1/b%20c?prepared=true");
        assert_eq!((target.host.as_str(), target.port, path.as_str()), ("h", 1, "/"));
        assert_eq!(read("postgresql://me@h").0.port, 5432);
        let modes = |url| {
            let target = read(url).0;
            (target.is_tls, target.is_verified)
        };
        assert!(!modes("postgres://h").0 && !modes("postgres://h?sslmode=disable").0);
        assert_eq!(modes("postgres://h/b?sslmode=verify-full&prepared=true"), (true, true));
        assert_eq!(modes("postgres://h/b?prepared=false&sslmode=require"), (true, false));
        assert_eq!(read("redis://h").0.port, 6379);
        assert!(read("rediss://:p@[::1]:1/3").0.is_tls);
    }

    #[test]
    fn no_scheme_belongs_to_two_protocols() {
        let schemes = PROTOCOLS.iter().flat_map(|row| row.schemes).map(|scheme| scheme.name);
        let mut schemes: Vec<&str> = schemes.collect();
        let all = schemes.len();
        schemes.sort_unstable();
        schemes.dedup();
        assert_eq!(schemes.len(), all, "{schemes:?}");
    }

    #[test]
    fn invalid_targets_are_rejected() {
        let error_for = |url: &str| Target::parse(url).unwrap_err().to_string();
        assert!(error_for("localhost:80").contains("http://"));
        let unknown = error_for("gopher://a");
        assert!(
            unknown.starts_with("unknown scheme in \"gopher://a\"; expected http://, https://")
        );
        assert!(unknown.ends_with("tcp://, postgres://, redis:// or rediss://"), "{unknown}");
        assert!(
            error_for("http://:80/").contains("host is missing"),
            "{}",
            error_for("http://:80/")
        );
        assert!(error_for("tcp://a").contains("port"));
        assert!(error_for("http://a:99999/").contains("65535"));
        assert!(error_for("http://a:0/").contains("65535"));
        assert!(error_for("http://u@a/").contains("header"));
        assert!(error_for("redis://a/x").contains("not a number"));
        assert!(error_for("redis://a@b").contains("without a password"));
        for query in ["a=b", "sslmode=prefer", "sslmode=verify-ca", "sslmode"] {
            assert!(error_for(&format!("postgres://a/b?{query}")).contains("sslmode=disable"));
        }
        assert!(error_for("postgres://%00@a").contains("the user name is not UTF-8"));
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
