//! HTTP endpoint URL. The default port is 80, or 443 for `https`.

use std::fmt;

use http::Uri;

/// Endpoint of HTTP requests: scheme, host, port, path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Whether the scheme is `https`.
    pub secure: bool,
    /// Name or address; an IPv6 address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query; `/` if the URL has none.
    pub path: String,
}

/// Invalid endpoint URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid URL {url:?}: {reason}; expected https://host:port/path")]
pub struct EndpointError {
    /// The URL.
    pub url: String,
    /// Cause.
    pub reason: String,
}

impl Endpoint {
    /// Parses a URL.
    pub fn parse(url: &str) -> Result<Endpoint, EndpointError> {
        let wrong = |reason: &str| EndpointError { url: url.to_owned(), reason: reason.to_owned() };
        let (secure, usual) = match url.split_once("://").map(|(scheme, _)| scheme) {
            Some(scheme) if scheme.eq_ignore_ascii_case("http") => (false, 80),
            Some(scheme) if scheme.eq_ignore_ascii_case("https") => (true, 443),
            Some(_) => return Err(wrong("scheme is neither http nor https")),
            None => return Err(wrong(&format!("scheme is missing: write http://{url}"))),
        };
        Endpoint::parse_as(url, secure, Some(usual))
    }

    /// Parses a URL with any scheme, treated as `scheme`. Without a default port the URL must have
    /// one.
    pub fn parse_as(
        url: &str,
        secure: bool,
        usual: Option<u16>,
    ) -> Result<Endpoint, EndpointError> {
        let wrong = |reason: &str| EndpointError { url: url.to_owned(), reason: reason.to_owned() };
        if url.split_once("://").is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with('/')) {
            return Err(wrong("host is missing"));
        }
        let uri: Uri =
            url.parse().map_err(|error: http::uri::InvalidUri| wrong(&error.to_string()))?;
        let authority = uri.authority().ok_or_else(|| wrong("host is missing"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("user name in the URL is not supported"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong("host is missing"));
        }
        let port = match (authority.port_u16(), usual) {
            (Some(port), _) => port,
            // "host:", or a port above 65535.
            (None, _) if authority.as_str().len() > authority.host().len() => {
                return Err(wrong("port is not a number from 0 to 65535"));
            }
            (None, Some(usual)) => usual,
            (None, None) => return Err(wrong("port is missing")),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Endpoint { secure, host: host.to_owned(), port, path })
    }

    /// Host and port as in a `Host` header.
    pub fn authority(&self) -> String {
        let default = if self.secure { 443 } else { 80 };
        let brackets = self.host.contains(':');
        match (brackets, self.port == default) {
            (false, true) => self.host.clone(),
            (false, false) => format!("{}:{}", self.host, self.port),
            (true, true) => format!("[{}]", self.host),
            (true, false) => format!("[{}]:{}", self.host, self.port),
        }
    }

    /// The endpoint with `path` appended to its path.
    #[must_use]
    pub fn join(&self, path: &str) -> Endpoint {
        let base = self.path.split('?').next().unwrap_or_default().trim_end_matches('/');
        Endpoint { path: format!("{base}{path}"), ..self.clone() }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: &str) {
        let found =
            Endpoint::parse(url).map_or_else(|error| error.reason, |target| target.to_string());
        assert_eq!(found, expected);
    }

    #[test]
    fn urls_are_parsed() {
        check("http://site", "http://site/");
        check("https://site:443/a/b?c=d", "https://site/a/b?c=d");
        check("http://site:443", "http://site:443/");
        check("http://[::1]:9/x", "http://[::1]:9/x");
        check("https://[::1]", "https://[::1]/");
        check("http://site?a=b", "http://site/?a=b");
    }

    #[test]
    fn invalid_urls_are_rejected() {
        // "Neither http nor https" was said of an address without a scheme.
        check("site:80", "scheme is missing: write http://site:80");
        check("ftp://site", "scheme is neither http nor https");
        check("http://me:secret@site/", "user name in the URL is not supported");
        check("http://site:99999/", "port is not a number from 0 to 65535");
        check("http://", "host is missing");
        check("http:///metrics", "host is missing");
    }

    #[test]
    fn other_schemes_have_other_ports() {
        let read = |url: &str, usual| {
            let read = Endpoint::parse_as(url, false, usual);
            read.map_or_else(|error| error.reason, |target| target.port.to_string())
        };
        assert_eq!(read("redis://site", Some(6379)), "6379");
        assert_eq!(read("redis://site:1", Some(6379)), "1");
        assert_eq!(read("tcp://site:1", None), "1");
        assert_eq!(read("tcp://site", None), "port is missing");
    }

    #[test]
    fn paths_are_joined() {
        let join = |url: &str| Endpoint::parse(url).unwrap().join("/v1/batches").to_string();
        assert_eq!(join("http://site"), "http://site/v1/batches");
        assert_eq!(join("http://site/prefix/?a"), "http://site/prefix/v1/batches");
    }
}
