//! Settings of remotes.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use net::Endpoint;
use net::tls::ClientTls;

use crate::error::{Error, Result};

/// Bytes of a site's name at the most: it names a subscriber and a folder.
const NAME_BYTES_MAX: usize = 64;

/// Another topdeck that gets all that is in the journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remote {
    /// Its name here: letters, digits, `-`, `_` and `.`. Its place in the journal goes by it.
    pub name: String,
    /// Where it is: `https://host:port`, and a path before `/v1/batches` if there is a proxy.
    pub url: String,
    /// The token it asks for, if it does.
    pub token: Option<String>,
    /// Whom to trust, and what to show, over `https`.
    pub tls: ClientTls,
}

/// Forwarder settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where to; each gets everything.
    pub remotes: Vec<Remote>,
    /// What the sites call this agent in their books; the host's name, usually.
    pub agent: String,
    /// Where batches go that a site will not take for good, in a folder of the site's name.
    pub dead_letter_dir: PathBuf,
    /// How long a site may take for an answer before it is asked again: 30 s by default.
    pub response_timeout: Duration,
    /// How long to wait after the first failure, and at the most; doubled in between: 500 ms and 30
    /// s by default.
    pub backoff: (Duration, Duration),
    /// How often a site may refuse a batch by name before the batch is set aside: 5 times by
    /// default.
    pub rejections_max: u32,
    /// How long a stop may take to send what is left: 2 s by default. The rest goes after the next
    /// start.
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
    /// Where its parcels go.
    pub(crate) fn target(&self) -> Result<Endpoint> {
        self.check_name()?;
        let target = Endpoint::parse(&self.url).map_err(|error| self.invalid(error.to_string()))?;
        Ok(target.join(net::forward_protocol::PATH))
    }

    fn check_name(&self) -> Result<()> {
        let wrong = |why| Err(Error::Name { name: self.name.clone(), reason: why });
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        match &self.name {
            name if name.is_empty() => wrong("is empty"),
            name if name.len() > NAME_BYTES_MAX => wrong("has more than 64 bytes"),
            name if name.starts_with('.') => wrong("begins with a dot"),
            name if !name.bytes().all(allowed) => {
                wrong("has other characters than letters, digits, \"-\", \"_\" and \".\"")
            }
            _ => Ok(()),
        }
    }

    /// What a request shows of the token.
    pub(crate) fn authorization(&self) -> Result<Option<HeaderValue>> {
        let Some(token) = &self.token else { return Ok(None) };
        let value = net::bearer(token).map_err(|_| {
            self.invalid("its token has characters that no header can have".to_owned())
        })?;
        Ok(Some(value))
    }

    pub(crate) fn invalid(&self, why: String) -> Error {
        Error::Remote { remote: self.name.clone(), reason: why }
    }
}

impl Settings {
    /// Whether all can be used.
    pub(crate) fn check(&self) -> Result<()> {
        for (at, site) in self.remotes.iter().enumerate() {
            site.target()?;
            site.authorization()?;
            if self.remotes[..at].iter().any(|before| before.name == site.name) {
                return Err(Error::Name { name: site.name.clone(), reason: "is given twice" });
            }
        }
        self.agent_header().map(drop)
    }

    /// The agent's name as a header has it.
    pub(crate) fn agent_header(&self) -> Result<HeaderValue> {
        HeaderValue::from_str(&self.agent).map_err(|_| Error::Name {
            name: self.agent.clone(),
            reason: "is the agent's, and has characters that no header can have",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, url: &str, token: Option<&str>, expected: &str) {
        let site = Remote {
            name: name.to_owned(),
            url: url.to_owned(),
            token: token.map(str::to_owned),
            ..Remote::default()
        };
        let settings = Settings { remotes: vec![site], ..Settings::default() };
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
            "remote name \"a/b\" has other characters than letters, digits, \"-\", \"_\" and \".\"",
        );
        check(
            "a",
            "site:80",
            None,
            "remote \"a\": \"site:80\" cannot be dialled: it begins with neither http:// nor \
             https://; it has to look like https://host:port/path",
        );
        check(
            "a",
            "http://site",
            Some("a\nb"),
            "remote \"a\": its token has characters that no header can have",
        );
    }

    #[test]
    fn duplicate_names_are_rejected() {
        let site = Remote { name: "a".into(), url: "http://site".into(), ..Remote::default() };
        let settings = Settings { remotes: vec![site.clone(), site], ..Settings::default() };
        assert_eq!(settings.check().unwrap_err().to_string(), "remote name \"a\" is given twice");
    }
}
