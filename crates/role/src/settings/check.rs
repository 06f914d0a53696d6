//! Checks that several roles need: names given twice, files that cannot be read, addresses in use.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::settings::document::{Document, TableRef};
use crate::settings::problem::Problems;
use crate::settings::value::{FilePath, Length};

/// Bytes of the name of a `[[table]]` at most.
const NAME_BYTES_MAX: usize = 64;

/// The problems of a settings file, as they are found.
#[derive(Debug)]
pub struct SettingsCheck<'a> {
    document: &'a Document<'a>,
    problems: Problems,
    listeners: HashSet<(Transport, SocketAddr)>,
}

/// How many of something the settings have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingsCount {
    /// How many.
    pub count: usize,
    /// The noun for one.
    pub one: &'static str,
    /// The noun for none or several.
    pub many: &'static str,
}

/// Sockets of different transports can have the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

impl<'a> SettingsCheck<'a> {
    /// A check that found nothing yet.
    pub fn new(document: &'a Document<'a>) -> SettingsCheck<'a> {
        SettingsCheck { document, problems: Problems::default(), listeners: HashSet::new() }
    }

    /// All problems, in the order of their lines.
    pub fn finish(self) -> Problems {
        self.problems.sorted()
    }

    /// Reports a problem of a key; where the key is not given, of its table.
    pub fn problem(&mut self, table: TableRef<'_>, key: &str, what: impl fmt::Display) {
        self.problems.push(self.document.problem(table, key, what.to_string()));
    }

    /// Names of all `[[table]]`: printable, short, each once.
    pub fn names<'n>(&mut self, table: &str, names: impl IntoIterator<Item = &'n str>) {
        let mut seen = HashSet::new();
        for (index, name) in names.into_iter().enumerate() {
            let at = TableRef::nth(table, index);
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control)
            {
                self.problem(at, "name", "a name has 1 to 64 printable bytes");
            }
            if !seen.insert(name) {
                let what = format!("there is another [[{table}]] named {name:?}");
                self.problem(at, "name", what);
            }
        }
    }

    /// A file that has to be readable.
    pub fn file(&mut self, table: TableRef<'_>, key: &str, path: Option<&FilePath>) {
        let Some(path) = path else { return };
        if let Err(error) = std::fs::File::open(path) {
            let what = format!("{key}: cannot read {}: {error}", path.display());
            self.problem(table, key, what);
        }
    }

    /// The files of a TLS client, keys `ca`, `certificate` and `key`.
    pub fn client_tls(
        &mut self,
        table: TableRef<'_>,
        ca: Option<&FilePath>,
        certificate: Option<&FilePath>,
        key: Option<&FilePath>,
    ) {
        self.file(table, "ca", ca);
        self.file(table, "certificate", certificate);
        self.file(table, "key", key);
        match (certificate, key) {
            (Some(_), None) => self.problem(table, "certificate", "a certificate needs its key"),
            (None, Some(_)) => self.problem(table, "key", "a key needs its certificate"),
            _ => {}
        }
    }

    /// The address of a page.
    pub fn url(&mut self, table: TableRef<'_>, key: &str, url: &str) {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
            let what = format!("{key} is {url:?}, must begin with http:// or https:// and a host");
            self.problem(table, key, what);
        }
    }

    /// `host:port`.
    pub fn host_and_port(&mut self, table: TableRef<'_>, key: &str, address: &str) {
        let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(1..))) {
            self.problem(table, key, format!("{key} is {address:?}, must be host:port"));
        }
    }

    /// A length of time within bounds.
    pub fn range(
        &mut self,
        table: TableRef<'_>,
        key: &str,
        length: Option<Length>,
        range: RangeInclusive<Duration>,
    ) {
        if let Some(Length(length)) = length
            && !range.contains(&length)
        {
            let (min, max) = range.into_inner();
            let what = format!("{key} is {length:?}, must be {min:?} to {max:?}");
            self.problem(table, key, what);
        }
    }

    /// Addresses to listen on: all roles together can have an address once. Port 0 is another port
    /// each time.
    pub fn listen(
        &mut self,
        table: TableRef<'_>,
        key: &str,
        transport: Transport,
        addresses: &[SocketAddr],
    ) {
        for address in addresses.iter().filter(|address| address.port() != 0) {
            if !self.listeners.insert((transport, *address)) {
                self.problem(table, key, format!("{address} is listened on twice"));
            }
        }
    }
}
