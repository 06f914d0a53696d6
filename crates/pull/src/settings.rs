//! Settings of scrapes and checks.

use std::ops::RangeInclusive;
use std::time::Duration;

use net::Endpoint;
use net::dial::{DialTimeouts, Dialer};
use net::tls::ClientTls;

use crate::error::{Error, Result};
use crate::probe::{AnyProbe, TcpProbe};

/// Jobs begin so often.
const INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
/// A phase gets that many times the timeout, so that it is always the attempt as a whole that is
/// given up.
pub(crate) const MISSED_STARTS_MAX: u32 = 2;
/// A timeout is no more intervals than that: so many attempts of a job may be on their way at a
/// time.
const INTERVALS_MAX: u32 = 60;

/// Everything that is fetched.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Pages of metrics.
    pub scrapes: Vec<ScrapeJobSettings>,
    /// Things that are tried.
    pub checks: Vec<CheckJobSettings>,
    /// Attempts in flight are waited for so long at a stop: 5 s by default.
    pub stop_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        let stop_max = Duration::from_secs(5);
        Settings { scrapes: Vec::new(), checks: Vec::new(), stop_timeout: stop_max }
    }
}

/// Scrape settings: Prometheus text, OpenMetrics, or protobuf with native histograms.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrapeJobSettings {
    /// The label `job`; what it is known by in the books.
    pub name: String,
    /// Where it is; host and port become the label `instance`.
    pub url: String,
    /// From one intended beginning to the next: 15 s by default.
    pub interval: Duration,
    /// How long it may take, from the intended beginning, at most the interval: 10 s by default.
    pub timeout: Duration,
    /// Labels that its series get; `job` and `instance` among them replace those.
    pub labels: Vec<(String, String)>,
    /// Whether the page's own labels count more than `job`, `instance` and `labels`; otherwise they
    /// become `exported_…`.
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

impl Default for ScrapeJobSettings {
    fn default() -> ScrapeJobSettings {
        ScrapeJobSettings {
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
pub struct CheckJobSettings {
    /// The label `check`.
    pub name: String,
    /// Target of a check: HTTP or TCP.
    pub target: AnyProbe,
    /// From one intended beginning to the next: 10 s by default.
    pub interval: Duration,
    /// How long it may take, from the intended beginning, at most 60 intervals: 10 s by default.
    pub timeout: Duration,
    /// Labels that its series get, beside `check`, `phase` and `outcome`.
    pub labels: Vec<(String, String)>,
    /// Whom to trust, over `https`.
    pub tls: ClientTls,
}

impl Default for CheckJobSettings {
    fn default() -> CheckJobSettings {
        CheckJobSettings {
            name: String::new(),
            target: AnyProbe::new(TcpProbe::default()),
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            labels: Vec::new(),
            tls: ClientTls::default(),
        }
    }
}

/// What is common to both kinds of jobs: where it goes and how, if its times and labels make sense.
pub(crate) fn resolve_target(common: &JobCommon<'_>) -> Result<(Endpoint, Dialer)> {
    let job = || format!("{} {:?}", common.kind, common.name);
    let wrong = |what| Err(Error::Setting { job: job(), message: what });
    let (interval, limit) = (common.interval, common.timeout);
    if !INTERVALS.contains(&interval) {
        return wrong(format!("its interval is {interval:?}, must be 100 ms to 24 h"));
    }
    if limit.is_zero() || limit > interval * INTERVALS_MAX {
        return wrong(format!(
            "its timeout is {limit:?}, must be more than nothing and at most {INTERVALS_MAX} \
             intervals"
        ));
    }
    if let Some((name, _)) = common.labels.iter().find(|label| label.0.starts_with("__")) {
        return wrong(format!(
            "it has the label {name:?}, and names that begin with __ have other uses"
        ));
    }
    let target =
        Endpoint::parse(common.url).map_err(|source| Error::Target { job: job(), source })?;
    let limit = limit * MISSED_STARTS_MAX;
    let limits = DialTimeouts { resolve: limit, connect: limit, tls: limit };
    let dialer = Dialer::for_target(&target, common.tls, common.alpn, limits);
    Ok((target, dialer.map_err(|source| Error::Tls { job: job(), source })?))
}

/// Settings common to scrapes and checks.
pub(crate) struct JobCommon<'a> {
    pub(crate) kind: &'static str,
    pub(crate) name: &'a str,
    pub(crate) url: &'a str,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) labels: &'a [(String, String)],
    pub(crate) tls: &'a ClientTls,
    /// Protocols over TLS, the better first.
    pub(crate) alpn: &'a [&'a [u8]],
}
