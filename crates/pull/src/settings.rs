//! What is fetched, how often, and what is well.

use std::time::Duration;

use net::tls::ClientTls;

/// Everything that is fetched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Pages of metrics.
    pub scrapes: Vec<Scrape>,
    /// Things that are tried.
    pub checks: Vec<Check>,
}

/// A page of metrics: Prometheus text, OpenMetrics, or protocol buffers with native histograms.
#[derive(Clone, Debug, PartialEq)]
pub struct Scrape {
    /// The label `job`.
    pub name: String,
    /// Where it is; host and port become the label `instance`.
    pub url: String,
    /// From one intended beginning to the next: 15 s by default.
    pub interval: Duration,
    /// How long it may take: 10 s by default.
    pub timeout: Duration,
    /// Labels that its series get.
    pub labels: Vec<(String, String)>,
    /// Whether the page's own labels count more than `job`, `instance` and `labels`; otherwise they become
    /// `exported_…`.
    pub honor_labels: bool,
    /// Whether times on the page count: `true` by default.
    pub honor_timestamps: bool,
    /// What stands behind `Authorization: Bearer`.
    pub token: Option<String>,
    /// Whom to trust, over `https`.
    pub tls: ClientTls,
    /// Bytes of the page at the most, unpacked: 64 MiB by default.
    pub bytes_max: usize,
}

impl Default for Scrape {
    fn default() -> Scrape {
        Scrape {
            name: String::new(),
            url: String::new(),
            interval: Duration::from_secs(15),
            timeout: Duration::from_secs(10),
            labels: Vec::new(),
            honor_labels: false,
            honor_timestamps: true,
            token: None,
            tls: ClientTls::default(),
            bytes_max: 64 << 20,
        }
    }
}

/// Something that is tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The label `check`.
    pub name: String,
    /// What is tried.
    pub what: Try,
    /// From one intended beginning to the next: 10 s by default.
    pub interval: Duration,
    /// How long it may take, from the intended beginning: 10 s by default.
    pub timeout: Duration,
    /// Labels that its series get.
    pub labels: Vec<(String, String)>,
    /// Whom to trust, over `https`.
    pub tls: ClientTls,
}

impl Default for Check {
    fn default() -> Check {
        Check {
            name: String::new(),
            what: Try::Tcp { address: String::new() },
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            labels: Vec::new(),
            tls: ClientTls::default(),
        }
    }
}

/// What is tried.
#[derive(Clone, Debug, PartialEq)]
pub enum Try {
    /// A page is fetched, over a connection of its own.
    Http {
        /// Where.
        url: String,
        /// Statuses that are well.
        statuses: Statuses,
        /// What has to stand in the first MiB of the answer.
        body: Option<String>,
    },
    /// A connection is made and closed.
    Tcp {
        /// `host:port`.
        address: String,
    },
}

/// Statuses of HTTP, from one to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(Vec<(u16, u16)>);

impl Default for Statuses {
    fn default() -> Statuses {
        Statuses(vec![(200, 299)])
    }
}

impl Statuses {
    /// `200`, `200-299`, `200,301-302`.
    pub fn parse(text: &str) -> Result<Statuses, String> {
        let expected =
            || format!("{text:?}: expected statuses such as 200, 200-299 or 200,301-302");
        let status = |text: &str| {
            text.trim().parse::<u16>().ok().filter(|status| (100..=599).contains(status))
        };
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = status(first).zip(status(last)).filter(|(first, last)| first <= last);
            range.ok_or_else(expected)
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Statuses)
    }

    pub(crate) fn holds(&self, status: u16) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_read() {
        let holds = |text: &str, status| Statuses::parse(text).unwrap().holds(status);
        assert!(holds("200", 200) && !holds("200", 201) && holds("200-299", 299));
        assert!(holds("200, 301-302", 302) && !holds("200,301-302", 300));
        for wrong in ["", "20", "600", "300-200", "200,,201", "ok"] {
            assert!(Statuses::parse(wrong).is_err(), "{wrong}");
        }
    }
}
