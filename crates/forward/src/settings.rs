//! Settings of remotes.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use net::Endpoint;
use net::tls::ClientTls;

use crate::error::{Error, Result};

/// Length limit of a remote's name, which names a subscriber and a directory.
const NAME_BYTES_MAX: usize = 64;

/// Remote settings: another topdeck that gets everything in the journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remote {
    /// Name: letters, digits, `-`, `_` and `.`. Identifies the position in the journal.
    pub name: String,
    /// URL: `https://host:port`, with a path prefix before `/v1/batches` for a proxy.
    pub url: String,
    /// Bearer token, if the remote requires one.
    pub token: Option<String>,
    /// TLS settings for `https`.
    pub tls: ClientTls,
}

/// Forwarder settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Remotes; each gets everything.
    pub remotes: Vec<Remote>,
    /// Name of this agent in the remotes' ledgers; usually the host name.
    pub agent: String,
    /// Parent directory of the remotes' dead letter directories.
    pub dead_letter_dir: PathBuf,
    /// Timeout of a response, then the request is retried: 30 s by default.
    pub response_timeout: Duration,
    /// Delays after the first failure and at most, doubled in between: 500 ms and 30 s by default.
    pub backoff: (Duration, Duration),
    /// Rejections of a batch until it becomes a dead letter: 5 by default.
    pub rejections_max: u32,
    /// Time for sending the remaining records at a stop: 2 s by default. The rest is sent after the
    /// next start.
    pub stop_grace: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            remotes: Vec::new(),
            agent: "agent".to_owned(),
            dead_letter_dir: PathBuf::from("dead-letter"),
            response_timeout: Duration::from_secs(30),
            backoff: (Duration::from_millis(500), Duration::from_secs(30)),
            rejections_max: 5,
            stop_grace: Duration::from_secs(2),
        }
    }
}

impl Remote {
    /// Endpoint of its forward requests.
    pub(crate) fn target(&self) -> Result<Endpoint> {
        self.check_name()?;
        let target = Endpoint::parse(&self.url).map_err(|error| self.invalid(error.to_string()))?;
        Ok(target.join(net::forward_protocol::PATH))
    }

    fn check_name(&self) -> Result<()> {
        let wrong = |reason| Err(Error::Name { name: self.name.clone(), reason });
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        match &self.name {
            name if name.is_empty() => wrong("is empty"),
            name if name.len() > NAME_BYTES_MAX => wrong("is longer than 64 bytes"),
            name if name.starts_with('.') => wrong("begins with a dot"),
            name if !name.bytes().all(allowed) => {
                wrong("has characters other than letters, digits, \"-\", \"_\" and \".\"")
            }
            _ => Ok(()),
        }
    }

    /// Checks name, URL, token and certificates.
    pub(crate) fn check(&self) -> Result<()> {
        self.target()?;
        if self.tls.has_files() {
            self.tls.config().map_err(|error| self.invalid(error.to_string()))?;
        }
        self.authorization().map(drop)
    }

    /// Authorization header of requests.
    pub(crate) fn authorization(&self) -> Result<Option<HeaderValue>> {
        let Some(token) = &self.token else { return Ok(None) };
        let value = net::bearer(token).map_err(|_| {
            self.invalid("token has characters that are not allowed in a header".to_owned())
        })?;
        Ok(Some(value))
    }

    pub(crate) fn invalid(&self, reason: String) -> Error {
        Error::Remote { remote: self.name.clone(), reason }
    }
}

impl Settings {
    /// Validates all settings.
    pub(crate) fn check(&self) -> Result<()> {
        for (at, remote) in self.remotes.iter().enumerate() {
            remote.check()?;
            if self.remotes[..at].iter().any(|before| before.name == remote.name) {
                return Err(Error::Name { name: remote.name.clone(), reason: "is not unique" });
            }
        }
        self.agent_header().map(drop)
    }

    /// The agent's name as a header value.
    pub(crate) fn agent_header(&self) -> Result<HeaderValue> {
        HeaderValue::from_str(&self.agent).map_err(|_| Error::AgentName {
            name: self.agent.clone(),
            reason: "has characters that are not allowed in a header",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, url: &str, token: Option<&str>, expected: &str) {
        let remote = Remote {
            name: name.to_owned(),
            url: url.to_owned(),
            token: token.map(str::to_owned),
            ..Remote::default()
        };
        let settings = Settings { remotes: vec![remote], ..Settings::default() };
        let found = settings.check().map_or_else(|error| error.to_string(), |()| "fine".to_owned());
        assert_eq!(found, expected);
    }

    #[test]
    fn remotes_are_checked_before_anything_starts() {
        check("a.b-c_1", "https://site/x", Some("secret"), "fine");
        check("", "http://site", None, "remote name \"\" is empty");
        check("..", "http://site", None, "remote name \"..\" begins with a dot");
        check(
            "a/b",
            "http://site",
            None,
            "remote name \"a/b\" has characters other than letters, digits, \"-\", \"_\" and \".\"",
        );
        check(
            "a",
            "site:80",
            None,
            "remote \"a\": invalid URL \"site:80\": scheme is missing: write http://site:80; \
             expected https://host:port/path",
        );
        check(
            "a",
            "http://site",
            Some("a\nb"),
            "remote \"a\": token has characters that are not allowed in a header",
        );
    }

    #[test]
    fn an_agent_name_that_is_no_header_value_is_rejected() {
        let settings = Settings { agent: "a\nb".into(), ..Settings::default() };
        assert_eq!(
            settings.check().unwrap_err().to_string(),
            "agent name \"a\\nb\" has characters that are not allowed in a header"
        );
    }

    #[test]
    fn duplicate_names_are_rejected() {
        let remote = Remote { name: "a".into(), url: "http://site".into(), ..Remote::default() };
        let settings = Settings { remotes: vec![remote.clone(), remote], ..Settings::default() };
        assert_eq!(settings.check().unwrap_err().to_string(), "remote name \"a\" is not unique");
    }
}
