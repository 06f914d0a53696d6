//! What is chosen: which sites, and how patient to be with them.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use net::Target;
use net::tls::ClientTls;

use crate::error::{Error, Result};

/// Bytes of a site's name at the most: it names a subscriber and a folder.
const NAME_BYTES_MAX: usize = 64;

/// Another topdeck that gets all that is in the journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// Its name here: letters, digits, `-`, `_` and `.`. Its place in the journal goes by it.
    pub name: String,
    /// Where it is: `https://host:port`, and a path before `/v1/batches` if there is a proxy.
    pub url: String,
    /// The token it asks for, if it does.
    pub token: Option<String>,
    /// Whom to trust, and what to show, over `https`.
    pub tls: ClientTls,
}

/// How batches are forwarded.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where to; each gets everything.
    pub sites: Vec<Site>,
    /// What the sites call this agent in their books; the host's name, usually.
    pub agent: String,
    /// Where batches go that a site will not take for good, in a folder of the site's name.
    pub aside: PathBuf,
    /// How long a site may take for an answer before it is asked again: 30 s by default.
    pub answer_max: Duration,
    /// How long to wait after the first failure, and at the most; doubled in between: 500 ms and 30 s by default.
    pub retry: (Duration, Duration),
    /// How often a site may refuse a batch by name before the batch is set aside: 5 times by default.
    pub refusals_max: u32,
    /// How long a stop may take to send what is left: 2 s by default. The rest goes after the next start.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            sites: Vec::new(),
            agent: "agent".to_owned(),
            aside: PathBuf::from("refused"),
            answer_max: Duration::from_secs(30),
            retry: (Duration::from_millis(500), Duration::from_secs(30)),
            refusals_max: 5,
            grace: Duration::from_secs(2),
        }
    }
}

impl Site {
    /// Where its parcels go.
    pub(crate) fn target(&self) -> Result<Target> {
        self.check_name()?;
        let target = Target::parse(&self.url).map_err(|error| self.wrong(error.to_string()))?;
        Ok(target.join(net::parcels::PATH))
    }

    fn check_name(&self) -> Result<()> {
        let wrong = |why| Err(Error::Name { name: self.name.clone(), why });
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
            self.wrong("its token has characters that no header can have".to_owned())
        })?;
        Ok(Some(value))
    }

    pub(crate) fn wrong(&self, why: String) -> Error {
        Error::Site { site: self.name.clone(), why }
    }
}

impl Settings {
    /// Whether all can be used.
    pub(crate) fn check(&self) -> Result<()> {
        for (at, site) in self.sites.iter().enumerate() {
            site.target()?;
            site.authorization()?;
            if self.sites[..at].iter().any(|before| before.name == site.name) {
                return Err(Error::Name { name: site.name.clone(), why: "is given twice" });
            }
        }
        self.agent_header().map(drop)
    }

    /// The agent's name as a header has it.
    pub(crate) fn agent_header(&self) -> Result<HeaderValue> {
        HeaderValue::from_str(&self.agent).map_err(|_| Error::Name {
            name: self.agent.clone(),
            why: "is the agent's, and has characters that no header can have",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, url: &str, token: Option<&str>, expected: &str) {
        let site = Site {
            name: name.to_owned(),
            url: url.to_owned(),
            token: token.map(str::to_owned),
            ..Site::default()
        };
        let settings = Settings { sites: vec![site], ..Settings::default() };
        let found = settings.check().map_or_else(|error| error.to_string(), |()| "fine".to_owned());
        assert_eq!(found, expected);
    }

    #[test]
    fn sites_are_checked_before_anything_starts() {
        check("a.b-c_1", "https://site/x", Some("secret"), "fine");
        check("", "http://site", None, "site name \"\" is empty");
        check("..", "http://site", None, "site name \"..\" begins with a dot");
        check(
            "a/b",
            "http://site",
            None,
            "site name \"a/b\" has other characters than letters, digits, \"-\", \"_\" and \".\"",
        );
        check(
            "a",
            "site:80",
            None,
            "site \"a\": \"site:80\" cannot be dialled: it begins with neither http:// nor https://; \
             it has to look like https://host:port/path",
        );
        check(
            "a",
            "http://site",
            Some("a\nb"),
            "site \"a\": its token has characters that no header can have",
        );
    }

    #[test]
    fn a_name_is_given_once() {
        let site = Site { name: "a".into(), url: "http://site".into(), ..Site::default() };
        let settings = Settings { sites: vec![site.clone(), site], ..Settings::default() };
        assert_eq!(settings.check().unwrap_err().to_string(), "site name \"a\" is given twice");
    }
}
