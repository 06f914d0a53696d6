//! A target URL, split into the parts that protocols read.

use percent_encoding::percent_decode_str;

use crate::load_protocol::{ProtocolRow, UrlScheme, schemes_expected};
use crate::secret::Secret;

/// Invalid target URL. Its password is not shown.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Unknown scheme.
    #[error("unknown scheme in {url:?}; expected {expected}")]
    Scheme {
        /// The URL.
        url: String,
        /// Known schemes.
        expected: String,
    },
    /// Missing or invalid part.
    #[error("invalid target {url:?}: {cause}")]
    Invalid {
        /// The URL.
        url: String,
        /// Cause.
        cause: String,
    },
}

/// A target URL.
#[derive(Debug)]
pub struct TargetUrl<'a> {
    /// Its scheme.
    pub scheme: UrlScheme,
    /// Host and port as written, without the user.
    pub authority: &'a str,
    /// Name or address of the host.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path and query; `/` if the URL has none.
    pub path: String,
    /// User name, decoded; `None` if the URL has no user.
    pub user: Option<String>,
    /// Password, decoded.
    pub password: Option<Secret>,
}

impl<'a> TargetUrl<'a> {
    /// Splits a URL, and finds the protocol of its scheme.
    pub(crate) fn parse<'r>(
        url: &'a str,
        rows: &'r [ProtocolRow],
    ) -> Result<(TargetUrl<'a>, &'r ProtocolRow), TargetError> {
        let unknown =
            || TargetError::Scheme { url: redacted(url), expected: schemes_expected(rows) };
        let wrong = |cause: &str| TargetError::wrong(url, cause);
        let (name, rest) = url.split_once("://").ok_or_else(unknown)?;
        let (scheme, row) = find(name, rows).ok_or_else(unknown)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (user, password, server) = match rest[..end].rsplit_once('@') {
            Some((user, _)) => {
                let (name, password) = credentials(user).map_err(wrong)?;
                (Some(name), password, &rest[user.len() + 1..])
            }
            None => (None, None, rest),
        };
        let without_user = format!("{name}://{server}");
        let read = net::Endpoint::parse_as(&without_user, scheme.is_tls, scheme.default_port)
            .map_err(|error| wrong(&error.reason))?;
        if read.port == 0 {
            return Err(wrong("the port is not a number from 1 to 65535"));
        }
        if user.is_some() && !row.has_credentials {
            return Err(wrong("a user is not supported here; set a header instead"));
        }
        // Unchanged: the default port of another scheme must stay.
        let authority = server.split(['/', '?', '#']).next().unwrap_or_default();
        let (host, port, path) = (read.host, read.port, read.path);
        Ok((TargetUrl { scheme, authority, host, port, path, user, password }, row))
    }
}

impl TargetError {
    pub(crate) fn wrong(url: &str, cause: &str) -> TargetError {
        TargetError::Invalid { url: redacted(url), cause: cause.to_owned() }
    }
}

fn find<'r>(name: &str, rows: &'r [ProtocolRow]) -> Option<(UrlScheme, &'r ProtocolRow)> {
    let mut all = rows.iter().flat_map(|row| row.schemes.iter().map(move |scheme| (*scheme, row)));
    all.find(|(scheme, _)| scheme.name == name)
}

/// User and password of a URL.
fn credentials(url: &str) -> Result<(String, Option<Secret>), &'static str> {
    let (name, password) = match url.split_once(':') {
        Some((name, password)) => (name, Some(password)),
        None => (url, None),
    };
    let password = password.map(|one| decoded(one, "the password is not UTF-8 without NUL"));
    let name = decoded(name, "the user name is not UTF-8 without NUL")?;
    Ok((name, password.transpose()?.map(Secret::new)))
}

/// Percent-decodes. NUL is not allowed: no protocol can represent it.
pub(crate) fn decoded(url: &str, cause: &'static str) -> Result<String, &'static str> {
    let text = percent_decode_str(url).decode_utf8().map_err(|_| cause)?;
    if text.contains('\0') { Err(cause) } else { Ok(text.into_owned()) }
}

/// Removes what may be a password: all before the last `@`, and the query if it mentions one.
pub(crate) fn redacted(url: &str) -> String {
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
