//! Checks shared by roles: duplicate names, unreadable files, addresses in use.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use net::Endpoint;

use crate::settings::document::{Document, TableRef};
use crate::settings::problem::Problems;
use crate::settings::value::{DurationSetting, FilePath};

/// Maximum length of the name of a `[[table]]`, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Collector of problems of a settings file.
#[derive(Debug)]
pub struct SettingsCheck<'a> {
    document: &'a Document<'a>,
    problems: Problems,
    /// Offsets at which the tables with problems begin; the top level has none.
    tables: HashSet<Option<usize>>,
    /// Whether the contents of files are checked, too.
    reads_contents: bool,
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
        SettingsCheck {
            document,
            problems: Problems::default(),
            tables: HashSet::new(),
            reads_contents: false,
            listeners: HashMap::new(),
        }
    }

    /// A check that reads the contents of files, too: see [`SettingsCheck::contents`].
    pub fn with_contents(document: &'a Document<'a>) -> SettingsCheck<'a> {
        SettingsCheck { reads_contents: true, ..SettingsCheck::new(document) }
    }

    /// All problems, ordered by line.
    pub fn finish(self) -> Problems {
        self.problems.sorted()
    }

    /// Reports a problem of a key; if the key is absent, of its table. The problem of a key whose
    /// value could not be read is known already.
    pub fn problem(&mut self, table: TableRef<'_>, key: &str, what: impl fmt::Display) {
        if !self.document.is_unread(table, key) {
            self.push(table, key, what);
        }
    }

    /// Reports at `key` that the keys `absent` are absent, unless one of them could not be read.
    pub fn absent(
        &mut self,
        table: TableRef<'_>,
        key: &str,
        absent: &[&str],
        what: impl fmt::Display,
    ) {
        let is_unread = absent.iter().any(|key| self.document.is_unread(table, key));
        if !is_unread && !self.document.has_syntax_errors() {
            self.push(table, key, what);
        }
    }

    /// Reports problems at positions in bytes, found by a caller that parses values itself. After
    /// a syntax error they are not reported, because parts of the text are not in the document.
    pub fn problems_at(&mut self, found: impl IntoIterator<Item = (usize, String)>) {
        if !self.document.has_syntax_errors() {
            self.problems.extend(self.document.problems_at(found));
        }
    }

    fn push(&mut self, table: TableRef<'_>, key: &str, what: impl fmt::Display) {
        self.tables.insert(self.document.start_of(table));
        self.problems.push(self.document.problem(table, key, what.to_string()));
    }

    /// Checks the contents of the files that a table names, such as certificates, if this is asked
    /// for and the table has no other problem. A start checks them with `validate_files`.
    pub fn contents<E: fmt::Display>(
        &mut self,
        table: TableRef<'_>,
        key: &str,
        check: impl FnOnce() -> Result<(), E>,
    ) {
        let start = self.document.start_of(table);
        let is_valid = !self.tables.contains(&start) && !self.document.has_unread_keys(start);
        if self.reads_contents
            && is_valid
            && let Err(error) = check()
        {
            self.push(table, key, error);
        }
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
            (Some(_), None) => {
                self.absent(table, "certificate", &["key"], "`certificate` requires `key`");
            }
            (None, Some(_)) => {
                self.absent(table, "key", &["certificate"], "`key` requires `certificate`");
            }
            _ => {}
        }
    }

    /// Checks a URL.
    pub fn url(&mut self, table: TableRef<'_>, key: &str, url: &str) {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
            let what = format!("{key} is {url:?}, must begin with http:// or https:// and a host");
            self.problem(table, key, what);
        } else if let Err(error) = net::Endpoint::parse(url) {
            self.problem(table, key, format!("{key}: {error}"));
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
        length: Option<DurationSetting>,
        range: RangeInclusive<Duration>,
    ) {
        if let Some(DurationSetting(length)) = length
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
