//! Checks shared by roles: duplicate names, unreadable files, addresses in use.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use net::Endpoint;

use crate::settings::document::{Document, TableRef};
use crate::settings::problem::Problems;
use crate::settings::value::{FilePath, Length};

/// Maximum length of the name of a `[[table]]`, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Collector of problems of a settings file.
#[derive(Debug)]
pub struct SettingsCheck<'a> {
    document: &'a Document<'a>,
    problems: Problems,
    /// Listen addresses, each with the key and table that has it.
    listeners: HashMap<(Transport, SocketAddr), String>,
}

/// Number of configured objects of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingsCount {
    /// The number.
    pub count: usize,
    /// Singular noun.
    pub one: &'static str,
    /// Plural noun.
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
    /// A check without problems.
    pub fn new(document: &'a Document<'a>) -> SettingsCheck<'a> {
        SettingsCheck { document, problems: Problems::default(), listeners: HashMap::new() }
    }

    /// All problems, ordered by line.
    pub fn finish(self) -> Problems {
        self.problems.sorted()
    }

    /// Reports a problem of a key; if the key is absent, of its table.
    pub fn problem(&mut self, table: TableRef<'_>, key: &str, what: impl fmt::Display) {
        self.problems.push(self.document.problem(table, key, what.to_string()));
    }

    /// Checks the names of all `[[table]]`: no control characters, at most 64 bytes, unique.
    pub fn names<'n>(&mut self, table: &str, names: impl IntoIterator<Item = &'n str>) {
        let mut names_so_far = HashSet::new();
        for (index, name) in names.into_iter().enumerate() {
            let at = TableRef::nth(table, index);
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control)
            {
                let what = format!(
                    "invalid name {name:?}; expected 1 to {NAME_BYTES_MAX} bytes without control \
                     characters"
                );
                self.problem(at, "name", what);
            }
            if !names_so_far.insert(name) {
                let what = format!("duplicate [[{table}]] name {name:?}");
                self.problem(at, "name", what);
            }
        }
    }

    /// Checks that a file is readable.
    pub fn file(&mut self, table: TableRef<'_>, key: &str, path: Option<&FilePath>) {
        let Some(path) = path else { return };
        if let Err(error) = std::fs::File::open(path) {
            let what = format!("{key}: cannot read {}: {error}", path.display());
            self.problem(table, key, what);
        }
    }

    /// Checks the files of a TLS client: keys `ca`, `certificate` and `key`.
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
            (Some(_), None) => self.problem(table, "certificate", "`certificate` requires `key`"),
            (None, Some(_)) => self.problem(table, "key", "`key` requires `certificate`"),
            _ => {}
        }
    }

    /// Checks a URL.
    pub fn url(&mut self, table: TableRef<'_>, key: &str, url: &str) {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
            let what = format!("{key} is {url:?}, must begin with http:// or https:// and a host");
            self.problem(table, key, what);
        }
    }

    /// Checks `host:port`.
    pub fn host_and_port(&mut self, table: TableRef<'_>, key: &str, address: &str) {
        let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        // These end the host and port of a URL.
        let is_endpoint = !address.contains(['/', '?', '#'])
            && Endpoint::parse(&format!("http://{address}")).is_ok();
        if !is_endpoint || !matches!(port, Some(Ok(1..))) {
            self.problem(table, key, format!("{key} is {address:?}, must be host:port"));
        }
    }

    /// Checks that a duration is within its bounds.
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

    /// Checks listen addresses: an address may be used once among all roles. Port 0 is a different
    /// port each time.
    pub fn listen(
        &mut self,
        table: TableRef<'_>,
        key: &str,
        transport: Transport,
        addresses: &[SocketAddr],
    ) {
        for address in addresses.iter().filter(|address| address.port() != 0) {
            let user = format!("{key} of [{}]", table.name);
            if let Some(first) = self.listeners.insert((transport, *address), user) {
                let what = format!("listen address {address} is used twice, first in {first}");
                self.problem(table, key, what);
            }
        }
    }
}
