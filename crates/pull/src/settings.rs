//! Settings of scrape targets and checks.

use std::ops::RangeInclusive;
use std::time::Duration;

use net::dial::{DialTimeouts, Dialer};
use net::tls::ClientTls;
use net::{Endpoint, EndpointError};

use crate::error::{Error, Result};
use crate::probe::{AnyProbe, TcpProbe};

/// Allowed job intervals.
pub(crate) const INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
/// A phase's timeout is this multiple of the attempt's timeout, so that the attempt's timeout
/// always fires first.
pub(crate) const MISSED_STARTS_MAX: u32 = 2;
/// Longest timeout in intervals; limits the attempts of a job in flight.
pub(crate) const INTERVALS_MAX: u32 = 60;

/// Settings of all jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Scrape jobs.
    pub scrapes: Vec<ScrapeJobSettings>,
    /// Check jobs.
    pub checks: Vec<CheckJobSettings>,
    /// Longest wait for attempts in flight at a stop: 5 s by default.
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
    /// Value of the label `job` and name in the ledger.
    pub name: String,
    /// Target URL; host and port become the label `instance`.
    pub url: String,
    /// Interval between scheduled starts: 15 s by default.
    pub interval: Duration,
    /// Timeout from the scheduled start, at most the interval: 10 s by default.
    pub timeout: Duration,
    /// Labels added to all series; they replace the defaults of `job` and `instance`.
    pub labels: Vec<(String, String)>,
    /// Whether scraped labels take precedence over `job`, `instance` and `labels`. Otherwise
    /// conflicting scraped labels are renamed to `exported_…`.
    pub honor_labels: bool,
    /// Whether scraped timestamps are used: `true` by default.
    pub honor_timestamps: bool,
    /// Token of `Authorization: Bearer`.
    pub token: Option<String>,
    /// TLS settings for `https`.
    pub tls: ClientTls,
    /// Size limit of the decompressed response: 64 MiB by default.
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

/// Check settings.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckJobSettings {
    /// Value of the label `check`.
    pub name: String,
    /// What is probed, and how.
    pub target: AnyProbe,
    /// Interval between scheduled starts: 10 s by default.
    pub interval: Duration,
    /// Timeout from the scheduled start, at most 60 intervals: 10 s by default.
    pub timeout: Duration,
    /// Labels added to all series, in addition to `check`, `phase` and `outcome`.
    pub labels: Vec<(String, String)>,
    /// TLS settings for `https`.
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

/// Validates the common settings of a job: target, TLS, times and labels.
pub(crate) fn resolve_target(common: &JobCommon<'_>) -> Result<(Endpoint, Dialer)> {
    let job = || format!("{} {:?}", common.kind, common.name);
    let wrong = |what| Err(Error::Setting { job: job(), message: what });
    let (interval, limit) = (common.interval, common.timeout);
    if !INTERVALS.contains(&interval) {
        return wrong(format!("invalid interval {interval:?}: allowed 100 ms to 24 h"));
    }
    if limit.is_zero() || limit > interval * INTERVALS_MAX {
        return wrong(format!(
            "invalid timeout {limit:?}: allowed more than 0 and at most {INTERVALS_MAX} intervals"
        ));
    }
    if let Some((name, _)) = common.labels.iter().find(|label| label.0.starts_with("__")) {
        return wrong(format!("invalid label {name:?}: names that begin with __ are reserved"));
    }
    let target = common.endpoint.clone().map_err(|cause| Error::Target { job: job(), cause })?;
    let limit = limit * MISSED_STARTS_MAX;
    let limits = DialTimeouts { resolve: limit, connect: limit, tls: limit };
    let dialer = Dialer::for_target(&target, common.tls, common.alpn, limits);
    Ok((target, dialer.map_err(|cause| Error::Tls { job: job(), cause })?))
}

/// Settings common to scrape targets and checks.
pub(crate) struct JobCommon<'a> {
    pub(crate) kind: &'static str,
    pub(crate) name: &'a str,
    pub(crate) endpoint: Result<Endpoint, EndpointError>,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) labels: &'a [(String, String)],
    pub(crate) tls: &'a ClientTls,
    /// ALPN protocols, in order of preference.
    pub(crate) alpn: &'a [&'a [u8]],
}
