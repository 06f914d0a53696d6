//! The settings of `topdeck serve` and `topdeck agent`: one TOML file, each key with its default and unit here.
//!
//! What is read is checked as a whole before anything starts: [`Settings::read`] gives settings that make sense, or
//! every reason why they do not, each with its line.

mod check;
mod problem;
pub(crate) mod roles;
mod value;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub(crate) use crate::settings::problem::{Problem, Problems};
pub(crate) use crate::settings::value::{Acked, Length, Rule, Size};

/// All of it. A table or key that is not here is an error that names the nearest one.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// The folder of everything that topdeck keeps. Relative folders and files are seen from the settings' folder.
    pub(crate) data: Option<PathBuf>,
    /// What a batch has survived when its sender is told: `disk` (default), `process` or `memory`.
    pub(crate) acknowledge: Acked,
    /// How often sources write what they have put together: `10s`, from 1 s to 60 s.
    pub(crate) interval: Option<Length>,
    pub(crate) http: Http,
    pub(crate) statsd: Statsd,
    pub(crate) graphite: Graphite,
    pub(crate) host: Host,
    #[serde(rename = "scrape")]
    pub(crate) scrapes: Vec<Scrape>,
    #[serde(rename = "check")]
    pub(crate) checks: Vec<Check>,
    #[serde(rename = "site")]
    pub(crate) sites: Vec<Site>,
    pub(crate) journal: Journal,
    pub(crate) store: Store,
}

/// `[http]`: everything that comes and goes by HTTP and gRPC, on each of the addresses.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Http {
    /// `["127.0.0.1:7717", "127.0.0.1:4317", "127.0.0.1:4318"]`; `[]` for none.
    pub(crate) listen: Option<Vec<SocketAddr>>,
    /// Whether a token is asked for on loopback too; on other addresses it always is.
    pub(crate) tokens_required: bool,
    /// Names under which it is asked for without a token, beside localhost: of a proxy before it.
    pub(crate) hosts: Vec<String>,
    pub(crate) tls: Option<ServerTls>,
    pub(crate) limits: Limits,
}

/// `[http.tls]`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerTls {
    /// PEM, the server's first.
    pub(crate) certificate: PathBuf,
    /// PEM.
    pub(crate) key: PathBuf,
    /// PEM: certificates of clients that these have signed stand for tokens.
    pub(crate) client_ca: Option<PathBuf>,
}

/// `[http.limits]`: what one may ask of the server; docs/serve.md says what happens beyond.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Of a request, as it comes and as it is unpacked: `16MiB`.
    pub(crate) body_bytes: Option<Size>,
    /// Of all bodies that are being read or worked on: `256MiB`.
    pub(crate) bodies_bytes: Option<Size>,
    /// Of all answers that clients have not taken yet: `128MiB`.
    pub(crate) answers_bytes: Option<Size>,
    /// For a whole body to come: `60s`.
    pub(crate) body_time: Option<Length>,
    /// Of a request's line and headers: `64KiB`.
    pub(crate) head_bytes: Option<Size>,
    /// For these to come: `10s`.
    pub(crate) head_time: Option<Length>,
    /// Until the answer begins: `120s`.
    pub(crate) request_time: Option<Length>,
    /// In which the other end takes nothing of an answer: `60s`.
    pub(crate) write_time: Option<Length>,
    /// Between requests of a connection: `300s`.
    pub(crate) idle_time: Option<Length>,
    /// At a time: 16,384.
    pub(crate) connections: Option<usize>,
    /// Heavy queries that are worked on at a time: 8.
    pub(crate) queries: Option<usize>,
    /// Memory of all queries together: `1GiB`.
    pub(crate) query_bytes: Option<Size>,
}

/// `[statsd]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Statsd {
    /// `["127.0.0.1:8125"]` without a file.
    pub(crate) udp: Vec<SocketAddr>,
    pub(crate) tcp: Vec<SocketAddr>,
    /// A socket of datagrams.
    pub(crate) unix: Option<PathBuf>,
    /// What the kernel is asked to hold of datagrams that were not read yet: `8MiB`.
    pub(crate) receive_buffer: Option<Size>,
    /// Series in an interval: 100,000.
    pub(crate) series: Option<usize>,
}

/// `[graphite]`: plain lines.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Graphite {
    pub(crate) tcp: Vec<SocketAddr>,
    pub(crate) udp: Vec<SocketAddr>,
}

/// `[host]`: what this host tells by itself.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Host {
    /// The label `host`: the host's name.
    pub(crate) name: Option<String>,
    /// Processors, memory, disks and network, from /proc: true.
    pub(crate) procfs: bool,
    /// Block I/O latency per device and operation, by BPF: true.
    pub(crate) block_io: bool,
    /// How long tasks wait for a processor, by BPF: true.
    pub(crate) run_queue: bool,
    /// The process table in shared memory, each second: true.
    pub(crate) processes: bool,
    /// How late a thread is woken: true.
    pub(crate) hiccup: bool,
    /// How often it asks to be woken: `10ms`.
    pub(crate) hiccup_period: Option<Length>,
    /// What programs record into shared memory: true.
    pub(crate) programs: bool,
    /// How often it is read: `1s`.
    pub(crate) programs_period: Option<Length>,
}

impl Default for Host {
    fn default() -> Host {
        Host {
            name: None,
            procfs: true,
            block_io: true,
            run_queue: true,
            processes: true,
            hiccup: true,
            hiccup_period: None,
            programs: true,
            programs_period: None,
        }
    }
}

/// `[[scrape]]`: a page of metrics, fetched again and again.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scrape {
    /// The label `job`.
    pub(crate) name: String,
    /// `http://` or `https://`.
    pub(crate) url: String,
    /// `15s`.
    pub(crate) interval: Option<Length>,
    /// `10s`, at most the interval.
    pub(crate) timeout: Option<Length>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// Whether labels of the page count more than `job`, `instance` and those here.
    #[serde(default)]
    pub(crate) honor_labels: bool,
    /// Whether times on the page count.
    #[serde(default = "yes")]
    pub(crate) honor_timestamps: bool,
    /// A file that holds what stands behind `Authorization: Bearer`.
    pub(crate) token_file: Option<PathBuf>,
    /// PEM: who signs the page's certificate, if not one that the system trusts.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// `[[check]]`: something that is tried again and again, on an open schedule.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Check {
    /// The label `check`.
    pub(crate) name: String,
    /// A page: `http://` or `https://`.
    pub(crate) http: Option<String>,
    /// An address to connect to: `host:port`.
    pub(crate) tcp: Option<String>,
    /// `10s`.
    pub(crate) interval: Option<Length>,
    /// `10s`.
    pub(crate) timeout: Option<Length>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// Statuses that are well, as 200 or 200-299: `200-299`.
    pub(crate) status: Option<String>,
    /// What has to stand in the answer.
    pub(crate) body: Option<String>,
    pub(crate) ca: Option<PathBuf>,
}

/// `[[site]]`: another topdeck, which gets all that is taken here.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Site {
    pub(crate) name: String,
    /// `http://` or `https://`.
    pub(crate) url: String,
    /// A file that holds the token.
    pub(crate) token_file: Option<PathBuf>,
    /// PEM: who signs the site's certificate, if not one that the system trusts.
    pub(crate) ca: Option<PathBuf>,
    /// PEM: who we are.
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// `[journal]`: what waits for the store, and for sites.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Journal {
    /// `10GiB`. At it, senders are asked to wait.
    pub(crate) size: Option<Size>,
}

/// `[store]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Store {
    /// How long rows are kept, as `topdeck store keep` has it: `["base 30d", "1m 90d"]`.
    pub(crate) keep: Option<Vec<Rule>>,
    /// Series at the most: what the store says.
    pub(crate) series: Option<u64>,
    /// Rows in memory, in bytes, before they are sealed: `128MiB`.
    pub(crate) head: Option<Size>,
}

fn yes() -> bool {
    true
}

impl Settings {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Settings, Problems> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Problems::of_file(path, format!("cannot read it: {error}")))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Settings::parse(&text, folder).map_err(|problems| problems.in_file(path))
    }

    /// Reads and checks text; files are seen from `folder`.
    pub(crate) fn parse(text: &str, folder: &Path) -> Result<Settings, Problems> {
        let mut settings: Settings =
            toml::from_str(text).map_err(|error| Problems::of_toml(text, &error))?;
        settings.see_from(folder);
        let problems = check::check(&settings, text);
        if problems.is_empty() { Ok(settings) } else { Err(problems) }
    }

    /// What `topdeck serve` does on a host that says nothing else.
    pub(crate) fn of_this_host() -> Settings {
        let statsd = SocketAddr::from(([127, 0, 0, 1], 8125));
        Settings {
            statsd: Statsd { udp: vec![statsd], ..Statsd::default() },
            ..Settings::default()
        }
    }

    fn see_from(&mut self, folder: &Path) {
        let tls = self.http.tls.iter_mut().flat_map(|tls| {
            [Some(&mut tls.certificate), Some(&mut tls.key), tls.client_ca.as_mut()]
        });
        let scrapes = self.scrapes.iter_mut().flat_map(|scrape| {
            let Scrape { token_file, ca, certificate, key, .. } = scrape;
            [token_file.as_mut(), ca.as_mut(), certificate.as_mut(), key.as_mut()]
        });
        let checks = self.checks.iter_mut().map(|check| check.ca.as_mut());
        let sites = self.sites.iter_mut().flat_map(|site| {
            let Site { token_file, ca, certificate, key, .. } = site;
            [token_file.as_mut(), ca.as_mut(), certificate.as_mut(), key.as_mut()]
        });
        let own = [self.data.as_mut(), self.statsd.unix.as_mut()];
        own.into_iter()
            .chain(tls)
            .chain(scrapes)
            .chain(checks)
            .chain(sites)
            .flatten()
            .for_each(|path| *path = folder.join(&*path));
    }
}

#[cfg(test)]
mod tests;
