//! Settings as each role wants them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use net::tls::{ClientTls, ServerTls};

use crate::settings::{Check, Length, Scrape, Settings, Site};

/// Where OTLP is expected, over gRPC and over HTTP.
pub(crate) const OTLP_PORTS: [u16; 2] = [4317, 4318];
/// Bytes that a journal may take by default.
const JOURNAL_BYTES: u64 = 10 << 30;

fn length(length: Option<Length>, default: Duration) -> Duration {
    length.map_or(default, |length| length.0)
}

impl Settings {
    /// Where HTTP is listened to.
    pub(crate) fn http_addresses(&self) -> Vec<SocketAddr> {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match &self.http.listen {
            Some(addresses) => addresses.clone(),
            None => [api::PORT].into_iter().chain(OTLP_PORTS).map(local).collect(),
        }
    }

    pub(crate) fn server(&self, data: &Path) -> api::Settings {
        let tls = self.http.tls.as_ref().map(|tls| ServerTls {
            certificate: tls.certificate.clone(),
            key: tls.key.clone(),
            client_ca: tls.client_ca.clone(),
        });
        let listen = self.http_addresses().into_iter();
        let (limits, default) = (&self.http.limits, api::Limits::default());
        let bytes = |size: Option<crate::settings::Size>, default: usize| {
            size.map_or(default, |size| usize::try_from(size.0).unwrap_or(usize::MAX))
        };
        api::Settings {
            listen: listen.map(|address| api::Listen { address, tls: tls.clone() }).collect(),
            tokens: Some(crate::token::file(data)),
            tokens_required: self.http.tokens_required,
            hosts: self.http.hosts.clone(),
            limits: api::Limits {
                body_bytes: bytes(limits.body_bytes, default.body_bytes),
                bodies_bytes: bytes(limits.bodies_bytes, default.bodies_bytes),
                answers_bytes: bytes(limits.answers_bytes, default.answers_bytes),
                body_time: length(limits.body_time, default.body_time),
                head_bytes: bytes(limits.head_bytes, default.head_bytes),
                head_time: length(limits.head_time, default.head_time),
                request_time: length(limits.request_time, default.request_time),
                write_time: length(limits.write_time, default.write_time),
                idle_time: length(limits.idle_time, default.idle_time),
                connections: limits.connections.unwrap_or(default.connections),
                decoding: default.decoding,
            },
        }
    }

    pub(crate) fn desk(&self, data: &Path) -> api::DeskSettings {
        let default = api::DeskSettings::default();
        api::DeskSettings {
            queries_max: self.http.limits.queries.unwrap_or(default.queries_max),
            query_bytes: self.http.limits.query_bytes.map_or(default.query_bytes, |size| size.0),
            snapshots: Some(data.join("snapshots")),
            boards: Some(data.join("boards")),
            answer_bytes_max: self.server(data).limits.answer_bytes_max(),
            ..default
        }
    }

    pub(crate) fn intake(&self) -> intake::Settings {
        let default = intake::Settings::default();
        intake::Settings {
            level: self.acknowledge.0,
            interval: length(self.interval, default.interval),
            publish: true,
            ..default
        }
    }

    pub(crate) fn journal_bytes(&self) -> u64 {
        self.journal.size.map_or(JOURNAL_BYTES, |size| size.0)
    }

    /// Listeners, with a name for messages.
    pub(crate) fn listeners(&self) -> Vec<(&'static str, listen::Settings)> {
        let mut listeners = Vec::new();
        let Settings { statsd, graphite, .. } = self;
        if !statsd.udp.is_empty() || !statsd.tcp.is_empty() || statsd.unix.is_some() {
            let default = listen::Limits::default();
            let buffer = statsd.receive_buffer.and_then(|size| usize::try_from(size.0).ok());
            let limits = listen::Limits {
                receive_buffer_bytes: buffer.unwrap_or(default.receive_buffer_bytes),
                series_max: statsd.series.unwrap_or(default.series_max),
                ..default
            };
            let (udp, tcp, unix) = (statsd.udp.clone(), statsd.tcp.clone(), statsd.unix.clone());
            let settings =
                listen::Settings { udp, tcp, unix, limits, ..listen::Settings::statsd() };
            listeners.push(("StatsD", settings));
        }
        if !graphite.tcp.is_empty() || !graphite.udp.is_empty() {
            let (udp, tcp) = (graphite.udp.clone(), graphite.tcp.clone());
            let settings = listen::Settings { udp, tcp, ..listen::Settings::graphite() };
            listeners.push(("Graphite", settings));
        }
        listeners
    }

    /// What this host tells, if anything; `name` is what the system calls it.
    pub(crate) fn host(&self, name: &str) -> Option<host::Settings> {
        let own = &self.host;
        let default = host::Settings::of(self.host_name(name));
        let period = own.hiccup_period.map(|period| period.0).or(default.hiccup);
        let every = own.programs_period.map(|period| period.0).or(default.programs);
        let is_any = own.procfs
            || own.block_io
            || own.run_queue
            || own.processes
            || own.hiccup
            || own.programs;
        is_any.then(|| host::Settings {
            procfs: own.procfs,
            block_io: own.block_io,
            run_queue: own.run_queue,
            processes: own.processes,
            hiccup: period.filter(|_| own.hiccup),
            programs: every.filter(|_| own.programs),
            ..default
        })
    }

    /// This host's name: as it is set, or else as the system has it.
    fn host_name(&self, system: &str) -> String {
        self.host.name.clone().unwrap_or_else(|| system.to_owned())
    }

    pub(crate) fn pull(&self) -> Result<pull::Settings> {
        Ok(pull::Settings {
            scrapes: self.scrapes.iter().map(scrape).collect::<Result<_>>()?,
            checks: self.checks.iter().map(check).collect::<Result<_>>()?,
            ..pull::Settings::default()
        })
    }

    pub(crate) fn forward(&self, data: &Path, agent: &str) -> Result<forward::Settings> {
        Ok(forward::Settings {
            sites: self.sites.iter().map(site).collect::<Result<_>>()?,
            agent: self.host_name(agent),
            aside: data.join("refused"),
            ..forward::Settings::default()
        })
    }
}

fn token(of: &str, path: Option<&Path>) -> Result<Option<String>> {
    let Some(path) = path else { return Ok(None) };
    let read = fs::read_to_string(path);
    let text = read.with_context(|| format!("{of}: cannot read its token, {}", path.display()))?;
    Ok(Some(text.trim().to_owned()))
}

fn client_tls(
    ca: &Option<std::path::PathBuf>,
    certificate: &Option<std::path::PathBuf>,
    key: &Option<std::path::PathBuf>,
) -> ClientTls {
    ClientTls { ca: ca.clone(), certificate: certificate.clone(), key: key.clone() }
}

fn scrape(scrape: &Scrape) -> Result<pull::Scrape> {
    let default = pull::Scrape::default();
    let interval = length(scrape.interval, default.interval);
    Ok(pull::Scrape {
        name: scrape.name.clone(),
        url: scrape.url.clone(),
        interval,
        timeout: length(scrape.timeout, default.timeout).min(interval),
        labels: scrape.labels.clone().into_iter().collect(),
        honor_labels: scrape.honor_labels,
        honor_timestamps: scrape.honor_timestamps,
        token: token(&format!("scrape {:?}", scrape.name), scrape.token_file.as_deref())?,
        tls: client_tls(&scrape.ca, &scrape.certificate, &scrape.key),
        ..default
    })
}

fn check(check: &Check) -> Result<pull::Check> {
    let default = pull::Check::default();
    let what = match (&check.http, &check.tcp) {
        (Some(url), _) => pull::Try::Http {
            url: url.clone(),
            statuses: match &check.status {
                Some(text) => pull::Statuses::parse(text)
                    .map_err(|why| anyhow!("check {:?}: status: {why}", check.name))?,
                None => pull::Statuses::default(),
            },
            body: check.body.clone(),
        },
        (None, address) => pull::Try::Tcp { address: address.clone().unwrap_or_default() },
    };
    let interval = length(check.interval, default.interval);
    Ok(pull::Check {
        name: check.name.clone(),
        what,
        interval,
        // No more attempts than so are on their way at a time.
        timeout: length(check.timeout, default.timeout.min(interval * 60)),
        labels: check.labels.clone().into_iter().collect(),
        tls: client_tls(&check.ca, &None, &None),
    })
}

fn site(site: &Site) -> Result<forward::Site> {
    Ok(forward::Site {
        name: site.name.clone(),
        url: site.url.clone(),
        token: token(&format!("site {:?}", site.name), site.token_file.as_deref())?,
        tls: client_tls(&site.ca, &site.certificate, &site.key),
    })
}
