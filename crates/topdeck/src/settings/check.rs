//! What TOML cannot know: names that stand twice, files that are not there, lengths that do not fit each other.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::settings::{Check, Host, Length, Problem, Problems, Scrape, Settings, Site, Size};

/// A parcel has to find room, or the agent that sends it never gets on.
const BODIES_BYTES_MIN: u64 = 32 << 20;
/// The page and its files have to be given to several clients at a time.
const ANSWERS_BYTES_MIN: u64 = 8 << 20;
const INTERVAL: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(60);

/// Everything that is wrong with settings that were read from `text`.
pub(crate) fn check(settings: &Settings, text: &str) -> Problems {
    let mut checked = Checked { text, problems: Problems::default() };
    if let Some(Length(interval)) = settings.interval
        && !INTERVAL.contains(&interval)
    {
        checked.wrong("", "interval", format!("interval is {interval:?}, must be 1s to 60s"));
    }
    checked.tls(settings);
    checked.host(&settings.host);
    checked.addresses(settings);
    if let Some(Size(bytes)) = settings.http.limits.bodies_bytes
        && bytes < BODIES_BYTES_MIN
    {
        let what = format!(
            "bodies_bytes is {bytes} bytes, must be at least 32MiB: a parcel of an agent has that"
        );
        checked.wrong("http.limits", "bodies_bytes", what);
    }
    if let Some(Size(bytes)) = settings.http.limits.answers_bytes
        && bytes < ANSWERS_BYTES_MIN
    {
        let what = format!("answers_bytes is {bytes} bytes, must be at least 8MiB");
        checked.wrong("http.limits", "answers_bytes", what);
    }
    if let Some(Size(bytes)) = settings.http.limits.query_bytes
        && bytes < api::DeskSettings::QUERY_BYTES_MIN
    {
        let what = format!(
            "query_bytes is {bytes} bytes, must be at least 32MiB: light queries have a share of it"
        );
        checked.wrong("http.limits", "query_bytes", what);
    }
    let names = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    checked.names("scrape", &names(settings.scrapes.iter().map(|one| &*one.name).collect()));
    checked.names("check", &names(settings.checks.iter().map(|one| &*one.name).collect()));
    checked.names("site", &names(settings.sites.iter().map(|one| &*one.name).collect()));
    for (at, scrape) in settings.scrapes.iter().enumerate() {
        checked.scrape(at, scrape);
    }
    for (at, check) in settings.checks.iter().enumerate() {
        checked.check(at, check);
    }
    for (at, site) in settings.sites.iter().enumerate() {
        checked.site(at, site);
    }
    checked.problems.all.sort_by_key(|problem| problem.line);
    checked.problems
}

struct Checked<'a> {
    text: &'a str,
    problems: Problems,
}

impl Checked<'_> {
    /// Something about a key of a table; `[[table]]` with its place from 0 behind a `#`.
    fn wrong(&mut self, table: &str, key: &str, what: String) {
        let problem = match place(self.text, table, key) {
            Some(byte) => Problem::at(self.text, byte, what),
            None => Problem { line: None, shown: None, what },
        };
        self.problems.all.push(problem);
    }

    fn names(&mut self, table: &str, names: &[String]) {
        let mut seen = HashSet::new();
        for (at, name) in names.iter().enumerate() {
            let table_at = format!("{table}#{at}");
            if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
                self.wrong(&table_at, "name", "a name has 1 to 64 printable bytes".to_owned());
            }
            if !seen.insert(name) {
                self.wrong(
                    &table_at,
                    "name",
                    format!("there is another [[{table}]] named {name:?}"),
                );
            }
        }
    }

    fn file(&mut self, table: &str, key: &str, path: Option<&Path>) {
        let Some(path) = path else { return };
        if let Err(error) = std::fs::File::open(path) {
            self.wrong(table, key, format!("{key}: cannot read {}: {error}", path.display()));
        }
    }

    fn tls(&mut self, settings: &Settings) {
        let Some(tls) = &settings.http.tls else { return };
        self.file("http.tls", "certificate", Some(&tls.certificate));
        self.file("http.tls", "key", Some(&tls.key));
        self.file("http.tls", "client_ca", tls.client_ca.as_deref());
    }

    fn host(&mut self, host: &Host) {
        let (min, max) = (host::Settings::HICCUP_MIN, host::Settings::HICCUP_MAX);
        if let Some(Length(period)) = host.hiccup_period
            && !(min..=max).contains(&period)
        {
            let what = format!("hiccup_period is {period:?}, must be {min:?} to {max:?}");
            self.wrong("host", "hiccup_period", what);
        }
        let (min, max) = (host::Settings::PROGRAMS_MIN, host::Settings::PROGRAMS_MAX);
        if let Some(Length(period)) = host.programs_period
            && !(min..=max).contains(&period)
        {
            let what = format!("programs_period is {period:?}, must be {min:?} to {max:?}");
            self.wrong("host", "programs_period", what);
        }
        let bytes_max = host::Settings::HOST_BYTES_MAX;
        if let Some(name) = &host.name
            && !(1..=bytes_max).contains(&name.len())
        {
            let what = format!("name has {} bytes, must have 1 to {bytes_max}", name.len());
            self.wrong("host", "name", what);
        }
    }

    /// An address can be listened on once; port 0 is another one each time.
    fn addresses(&mut self, settings: &Settings) {
        let http = settings.http.listen.as_deref().unwrap_or_default();
        let kinds: [&[(&str, &str, &[SocketAddr])]; 2] = [
            &[
                ("http", "listen", http),
                ("statsd", "tcp", &settings.statsd.tcp),
                ("graphite", "tcp", &settings.graphite.tcp),
            ],
            &[("statsd", "udp", &settings.statsd.udp), ("graphite", "udp", &settings.graphite.udp)],
        ];
        for kind in kinds {
            let mut seen = HashSet::new();
            for (table, key, addresses) in kind {
                for address in addresses.iter().filter(|address| address.port() != 0) {
                    if !seen.insert(address) {
                        self.wrong(table, key, format!("{address} is listened on twice"));
                    }
                }
            }
        }
    }

    fn url(&mut self, table: &str, key: &str, url: &str) {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
            let what = format!("{key} is {url:?}, must begin with http:// or https:// and a host");
            self.wrong(table, key, what);
        }
    }

    fn pair(&mut self, table: &str, certificate: Option<&Path>, key: Option<&Path>) {
        self.file(table, "certificate", certificate);
        self.file(table, "key", key);
        match (certificate, key) {
            (Some(_), None) => {
                self.wrong(table, "certificate", "a certificate needs its key".to_owned());
            }
            (None, Some(_)) => self.wrong(table, "key", "a key needs its certificate".to_owned()),
            _ => {}
        }
    }

    fn scrape(&mut self, at: usize, scrape: &Scrape) {
        let table = format!("scrape#{at}");
        self.url(&table, "url", &scrape.url);
        self.file(&table, "token_file", scrape.token_file.as_deref());
        self.file(&table, "ca", scrape.ca.as_deref());
        self.pair(&table, scrape.certificate.as_deref(), scrape.key.as_deref());
        if let (Some(timeout), Some(interval)) = (scrape.timeout, scrape.interval)
            && timeout > interval
        {
            self.wrong(&table, "timeout", "timeout is longer than interval".to_owned());
        }
    }

    fn check(&mut self, at: usize, check: &Check) {
        let table = format!("check#{at}");
        match (&check.http, &check.tcp) {
            (Some(url), None) => self.url(&table, "http", url),
            (None, Some(address)) => {
                let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
                if !matches!(port, Some(Ok(1..))) {
                    let what = format!("tcp is {address:?}, must be host:port");
                    self.wrong(&table, "tcp", what);
                }
            }
            _ => self.wrong(&table, "name", "a check has either http or tcp".to_owned()),
        }
        self.file(&table, "ca", check.ca.as_deref());
    }

    fn site(&mut self, at: usize, site: &Site) {
        let table = format!("site#{at}");
        self.url(&table, "url", &site.url);
        self.file(&table, "token_file", site.token_file.as_deref());
        self.file(&table, "ca", site.ca.as_deref());
        self.pair(&table, site.certificate.as_deref(), site.key.as_deref());
    }
}

/// Where a key stands, found by looking: in tables that are written as people write them. Where the key is not there,
/// the table.
fn place(text: &str, table: &str, key: &str) -> Option<usize> {
    let (name, nth) = match table.split_once('#') {
        Some((name, nth)) => (name, nth.parse::<usize>().ok()?),
        None => (table, 0),
    };
    let (mut offset, mut seen, mut is_inside, mut head) = (0, 0, name.is_empty(), None);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        let start = offset + line.len() - line.trim_start().len();
        offset += line.len();
        if trimmed.starts_with('[') {
            let found = trimmed.split(']').next().unwrap_or("").trim_start_matches('[').trim();
            is_inside = found == name && seen == nth;
            if is_inside {
                head = Some(start);
            }
            seen += usize::from(found == name);
        } else if is_inside && trimmed.split('=').next().unwrap_or("").trim() == key {
            return Some(start);
        }
    }
    head
}
