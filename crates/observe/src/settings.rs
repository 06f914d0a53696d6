//! Settings: the table `[wire]`.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use protocol::PROTOCOLS;
use protocol::fingerprint::RouteTemplates;
use protocol::observer::ObservedProtocol;
use role::BoxError;
use role::settings::{Document, Problems, SettingsCheck, Size, TableRef};
use serde::Deserialize;
use wire::{
    CaptureMemory, DETECTION_PERIOD, PORTS_MAX, PeerSettings, PortDetector, RING_BLOCKS,
    ServiceRule, TLS_RING_BYTES, TlsTarget, TrackerSettings, WaitRules, find_protocol,
};

use crate::end_queue::EndQueue;
use crate::end_settings::{EndSettings, WireEndsTable};

const TABLE: TableRef<'static> = TableRef::named("wire");
/// Longest name of an interface in Linux (`IFNAMSIZ` less the final zero).
const INTERFACE_BYTES_MAX: usize = 15;
/// Longest name of a service, the label `service`.
const SERVICE_BYTES_MAX: usize = 255;
const MIB: u64 = 1 << 20;
const RING_SIZES: RangeInclusive<u64> = 2 * MIB..=1024 * MIB;
/// A connection without a packet for an hour is forgotten.
const IDLE_TIMEOUT_NS: u64 = 3_600_000_000_000;
/// Bytes of the texts of requests in flight whose statements are told. Reading them takes some ten
/// milliseconds.
const IN_FLIGHT_BYTES_MAX: usize = 2 << 20;
/// Clients of an interval whose operations are told apart, per client with a label: which ones get
/// it is known at the end of the interval.
const PEER_CANDIDATES: usize = 4;

/// Settings tables of the role.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct WireTables {
    wire: Option<WireTable>,
    wire_ends: Option<WireEndsTable>,
}

/// `[wire]`: operations of other programs, from the packets of this host. The table enables it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
struct WireTable {
    /// Names of network interfaces; default: all.
    interfaces: Vec<String>,
    /// Protocols whose default ports are observed; default: all.
    protocols: Option<Vec<String>>,
    /// `auto`: the ports of this host's listening sockets whose protocol is known, too.
    ports: Option<String>,
    /// Services on other ports, or with a name: `[NAME=][ADDRESS:]PORT/PROTOCOL`.
    services: Vec<String>,
    /// TLS libraries that are read: `auto`, process identifiers, files.
    tls: Vec<String>,
    /// Templates of paths, most important first: `/users/{name}/orders`.
    routes: Vec<String>,
    /// Operations that wait by design: verb and statement, as in the series.
    waits: Vec<String>,
    /// Memory of the ring of each interface: `64MiB`, from 2 MiB to 1 GiB.
    ring_size: Option<Size>,
    /// Connections that are followed: 65,536.
    max_connections: Option<usize>,
    /// Servers with series of their own, besides named services: 64.
    max_servers: Option<usize>,
    /// Statements of a service with series of their own: 200.
    max_statements: Option<usize>,
    /// Leading bits of an IPv4 address of a client that are its label `peer`; default: no label.
    peer_ipv4_prefix: Option<usize>,
    /// Leading bits of an IPv6 address of a client that are its label `peer`; default: no label.
    peer_ipv6_prefix: Option<usize>,
    /// Clients or networks of a service with a label of their own: 20.
    max_peers: Option<usize>,
    /// Threads that read packets, each with rings of its own: 1.
    threads: Option<usize>,
}

const CONNECTIONS: (usize, RangeInclusive<usize>) = (65_536, 1..=1_000_000);
const SERVERS: (usize, RangeInclusive<usize>) = (64, 1..=1_024);
const STATEMENTS: (usize, RangeInclusive<usize>) = (200, 1..=10_000);
const IPV4_PREFIX: (usize, RangeInclusive<usize>) = (32, 0..=32);
const IPV6_PREFIX: (usize, RangeInclusive<usize>) = (128, 0..=128);
const PEERS: (usize, RangeInclusive<usize>) = (20, 1..=1_000);
const THREADS: (usize, RangeInclusive<usize>) = (1, 1..=64);

impl WireTables {
    /// Reports every invalid value.
    pub(crate) fn check(&self, check: &mut SettingsCheck<'_>) {
        if let Some(table) = &self.wire {
            table.check(check);
        }
        if let Some(table) = &self.wire_ends {
            table.check(check);
        }
    }

    /// Whether packets are captured.
    pub(crate) fn is_enabled(&self) -> bool {
        self.wire.is_some()
    }

    /// Whether requests of both ends are compared here.
    pub(crate) fn receives_ends(&self) -> bool {
        self.wire_ends.as_ref().is_some_and(WireEndsTable::receives)
    }

    /// Settings of the comparison of both ends; `None` without the table.
    pub(crate) fn ends(&self) -> Result<Option<EndSettings>, BoxError> {
        self.wire_ends.as_ref().map(WireEndsTable::settings).transpose()
    }

    /// Settings of the capture; `None` without the table.
    pub(crate) fn settings(&self, host: &str) -> Result<Option<CaptureSettings>, String> {
        self.wire.as_ref().map(|table| table.settings(host)).transpose()
    }
}

impl WireTable {
    fn check(&self, check: &mut SettingsCheck<'_>) {
        for (at, name) in self.interfaces.iter().enumerate() {
            if self.interfaces[..at].contains(name) {
                let what = format!(
                    "interface {name:?} is named twice, which would count its packets twice; \
                     remove one"
                );
                check.problem(TABLE, "interfaces", what);
            }
            let is_valid = (1..=INTERFACE_BYTES_MAX).contains(&name.len())
                && !name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
            if !is_valid {
                let what = format!(
                    "interface {name:?}: expected the name of a network interface, 1 to \
                     {INTERFACE_BYTES_MAX} bytes; `ip link` lists them"
                );
                check.problem(TABLE, "interfaces", what);
            }
        }
        if let Err(what) = self.default_protocols() {
            check.problem(TABLE, "protocols", what);
        }
        if let Err(what) = self.rules() {
            check.problem(TABLE, "services", what);
        }
        if let Err(what) = self.tls_targets() {
            check.problem(TABLE, "tls", what);
        }
        if let Err(what) = RouteTemplates::new(self.routes.clone()) {
            check.problem(TABLE, "routes", what);
        }
        if let Err(what) = WaitRules::new(self.waits.clone()) {
            check.problem(TABLE, "waits", what);
        }
        if let Some(value) = self.ports.as_ref().filter(|value| *value != "auto") {
            check.problem(TABLE, "ports", format!("ports is {value:?}, expected \"auto\""));
        }
        if let Some(size) = self.ring_size
            && (!RING_SIZES.contains(&size.0) || size.0 % MIB != 0)
        {
            let what = "ring_size: expected a multiple of 1MiB from 2MiB to 1GiB";
            check.problem(TABLE, "ring_size", what);
        }
        let limits = [
            ("max_connections", self.max_connections, CONNECTIONS.1),
            ("max_servers", self.max_servers, SERVERS.1),
            ("max_statements", self.max_statements, STATEMENTS.1),
            ("peer_ipv4_prefix", self.peer_ipv4_prefix, IPV4_PREFIX.1),
            ("peer_ipv6_prefix", self.peer_ipv6_prefix, IPV6_PREFIX.1),
            ("max_peers", self.max_peers, PEERS.1),
            ("threads", self.threads, THREADS.1),
        ];
        for (key, value, range) in limits {
            if let Some(value) = value
                && !range.contains(&value)
            {
                let (min, max) = range.into_inner();
                check.problem(TABLE, key, format!("{key} is {value}, must be {min} to {max}"));
            }
        }
    }

    /// How clients are told apart: by whole addresses, where only the other prefix is set.
    fn peers(&self) -> Option<PeerSettings> {
        let is_enabled = self.peer_ipv4_prefix.is_some() || self.peer_ipv6_prefix.is_some();
        let prefix = |value: Option<usize>, default: usize| {
            u8::try_from(value.unwrap_or(default)).unwrap_or(u8::MAX)
        };
        is_enabled.then(|| PeerSettings {
            ipv4_prefix: prefix(self.peer_ipv4_prefix, IPV4_PREFIX.0),
            ipv6_prefix: prefix(self.peer_ipv6_prefix, IPV6_PREFIX.0),
            peers_max: self.max_peers.unwrap_or(PEERS.0),
        })
    }

    fn tls_targets(&self) -> Result<Vec<TlsTarget>, String> {
        let parse =
            |text: &String| TlsTarget::parse(text).map_err(|what| format!("tls {text:?}: {what}"));
        self.tls.iter().map(parse).collect()
    }

    fn default_protocols(&self) -> Result<Vec<&'static ObservedProtocol>, String> {
        match &self.protocols {
            Some(names) => names.iter().map(|name| find_protocol(name)).collect(),
            None => Ok(PROTOCOLS.iter().collect()),
        }
    }

    fn named_rules(&self) -> Result<Vec<ServiceRule>, String> {
        let parse = |text: &String| {
            let rule = ServiceRule::parse(text).map_err(|what| format!("{text:?}: {what}"))?;
            match rule.name.as_ref().map(String::len) {
                Some(SERVICE_BYTES_MAX..) => {
                    Err(format!("{text:?}: the name must have less than {SERVICE_BYTES_MAX} bytes"))
                }
                _ => Ok(rule),
            }
        };
        self.services.iter().map(parse).collect()
    }

    fn rules(&self) -> Result<Vec<ServiceRule>, String> {
        let named = self.named_rules()?;
        // An unknown protocol is a problem of its own key.
        let defaults = self.default_protocols().unwrap_or_default();
        let rules = ServiceRule::with_default_ports(named, &defaults);
        let ports = ServiceRule::ports(&rules).len();
        match ports {
            0 => Err("no ports: name services or protocols".to_owned()),
            1..=PORTS_MAX => Ok(rules),
            _ => Err(format!("ports limit ({PORTS_MAX}) exceeded ({ports}); name fewer services")),
        }
    }

    fn settings(&self, host: &str) -> Result<CaptureSettings, String> {
        let ring_bytes = self.ring_size.map_or(RING_BLOCKS as u64 * MIB, |size| size.0);
        let protocols = self.default_protocols()?;
        let detection = match self.ports {
            Some(_) => Some(PortDetection {
                detector: PortDetector::new(Path::new("/proc"), self.named_rules()?, protocols),
                period: DETECTION_PERIOD,
            }),
            None => None,
        };
        Ok(CaptureSettings {
            detection,
            host: host.to_owned(),
            interfaces: self.interfaces.clone(),
            ring_blocks: usize::try_from(ring_bytes / MIB).unwrap_or(RING_BLOCKS),
            rules: self.rules()?,
            tls: self.tls_targets()?,
            routes: RouteTemplates::new(self.routes.clone())?,
            waits: WaitRules::new(self.waits.clone())?,
            connections_max: self.max_connections.unwrap_or(CONNECTIONS.0),
            servers_max: self.max_servers.unwrap_or(SERVERS.0),
            statements_max: self.max_statements.unwrap_or(STATEMENTS.0),
            peers: self.peers(),
            threads: self.threads.unwrap_or(THREADS.0),
            end_queue: None,
        })
    }
}

/// What is captured and measured.
#[derive(Clone)]
pub struct CaptureSettings {
    /// Label `host` of all series.
    pub(crate) host: String,
    /// Names of the interfaces; empty for all.
    pub(crate) interfaces: Vec<String>,
    /// Size of a ring in MiB.
    pub(crate) ring_blocks: usize,
    pub(crate) rules: Vec<ServiceRule>,
    /// `None` if ports are not detected.
    pub(crate) detection: Option<PortDetection>,
    /// TLS libraries that are read.
    pub(crate) tls: Vec<TlsTarget>,
    pub(crate) routes: RouteTemplates,
    /// Operations that wait by design.
    pub(crate) waits: WaitRules,
    pub(crate) connections_max: usize,
    pub(crate) servers_max: usize,
    /// Statements of a service with series of their own.
    pub(crate) statements_max: usize,
    /// How clients are told apart; `None` if they are not.
    pub(crate) peers: Option<PeerSettings>,
    /// Threads that read packets.
    pub(crate) threads: usize,
    /// Where measured requests go, if they are compared with those of the other end.
    pub(crate) end_queue: Option<EndQueue>,
}

/// Detection of ports.
#[derive(Clone, Debug)]
pub(crate) struct PortDetection {
    pub(crate) detector: PortDetector,
    /// Time between two looks at the sockets.
    pub(crate) period: Duration,
}

/// Limits of the statements in an interval of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatementLimits {
    /// Statements of a service.
    pub(crate) statements_max: usize,
    /// Bytes of the texts of all services.
    pub(crate) text_bytes_max: usize,
}

impl CaptureSettings {
    /// Settings with keys of `[wire]`, as TOML.
    pub fn with_keys(host: &str, keys: &str) -> Result<CaptureSettings, Problems> {
        let text = format!("[wire]\n{keys}");
        let document = Document::parse(&text, Path::new("."))?;
        let tables: WireTables = document.read(&["wire", "wire_ends"])?;
        let mut check = SettingsCheck::new(&document);
        tables.check(&mut check);
        let problems = check.finish();
        match tables.settings(host) {
            Ok(Some(settings)) if problems.is_empty() => Ok(settings),
            _ => Err(problems),
        }
    }

    /// Detects ports in a directory that stands for /proc, again after each `period`.
    pub fn detect_ports_in(&mut self, proc: &Path, period: Duration) {
        let detector = PortDetector::new(proc, Vec::new(), PROTOCOLS.iter().collect());
        self.detection = Some(PortDetection { detector, period });
    }

    /// Looks at the sockets of this host, if ports are detected.
    pub(crate) fn with_detected_ports(mut self) -> CaptureSettings {
        if let Some(detection) = &mut self.detection
            && detection.detector.detect()
        {
            self.rules = detection.detector.rules().to_vec();
        }
        self
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        ServiceRule::ports(&self.rules)
    }

    /// Memory of all threads, beside their rings.
    fn memory(&self) -> CaptureMemory {
        let rings = self.interfaces.len().max(1) * self.threads;
        let of_packets = rings.saturating_mul(self.ring_blocks << 20);
        let of_tls = if self.tls.is_empty() { 0 } else { TLS_RING_BYTES };
        CaptureMemory::beside_rings(of_packets.saturating_add(of_tls))
    }

    /// Limits of the statements in an interval of one thread.
    pub(crate) fn statement_limits(&self) -> StatementLimits {
        StatementLimits {
            // All statements with series, and some that may get one.
            statements_max: 2 * self.statements_max,
            text_bytes_max: self.memory().statement_bytes_max / self.threads,
        }
    }

    /// Settings of the tracker of one thread. Limits of connections and memory are divided.
    pub(crate) fn tracker(&self) -> TrackerSettings {
        let peers = self.peers.map(|peers| PeerSettings {
            peers_max: peers.peers_max.saturating_mul(PEER_CANDIDATES),
            ..peers
        });
        let StatementLimits { statements_max, text_bytes_max } = self.statement_limits();
        let memory = self.memory();
        TrackerSettings {
            rules: self.rules.clone(),
            connections_max: self.connections_max.div_ceil(self.threads),
            idle_timeout_ns: IDLE_TIMEOUT_NS,
            reorder_bytes_max: memory.reorder_bytes_max / self.threads,
            observer_bytes_max: memory.observer_bytes_max / self.threads,
            statement_bytes_max: text_bytes_max,
            cache_bytes_max: memory.cache_bytes_max / self.threads,
            in_flight_bytes_max: IN_FLIGHT_BYTES_MAX / self.threads,
            peers,
            servers_max: self.servers_max,
            statements_max,
            routes: self.routes.clone(),
            waits: self.waits.clone(),
        }
    }
}

impl fmt::Debug for CaptureSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CaptureSettings { host, interfaces, .. } = self;
        f.debug_struct("CaptureSettings")
            .field("host", host)
            .field("interfaces", interfaces)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_problem(keys: &str, expected: &str) {
        let problems = CaptureSettings::with_keys("h", keys).unwrap_err().to_string();
        assert!(problems.contains(expected), "{problems}");
    }

    #[test]
    fn an_empty_table_captures_all_default_ports_of_all_interfaces() {
        let settings = CaptureSettings::with_keys("h", "").unwrap();
        assert_eq!(settings.interfaces, [""; 0]);
        assert!(settings.ports().contains(&5432) && settings.ports().contains(&53));
        assert_eq!((settings.ring_blocks, settings.servers_max), (64, 64));
        assert_eq!((settings.connections_max, settings.statements_max), (65_536, 200));
        assert!(WireTables::default().settings("h").unwrap().is_none());
    }

    #[test]
    fn services_and_protocols_select_the_ports() {
        let keys = "protocols = ['redis']\nservices = ['shop=6543/postgres', '8080/http']\n\
                    routes = ['/users/*/orders']\ntls = ['auto', '12']\nring_size = '2MiB'\nmax_statements = 7";
        let settings = CaptureSettings::with_keys("h", keys).unwrap();
        assert_eq!(settings.ports(), [6379, 6543, 8080]);
        assert_eq!(settings.rules[0].name.as_deref(), Some("shop"));
        assert_eq!((settings.ring_blocks, settings.statements_max), (2, 7));
        assert_eq!(settings.tls, [TlsTarget::Auto, TlsTarget::Process(12)]);
        let mut route = String::new();
        settings.routes.write("/users/ann/orders", &mut route);
        assert_eq!(route, "/users/*/orders");
    }

    #[test]
    fn clients_are_told_apart_if_a_prefix_is_set() {
        assert_eq!(CaptureSettings::with_keys("h", "max_peers = 5").unwrap().peers, None);
        let keys = "peer_ipv4_prefix = 24\nmax_peers = 5";
        let settings = CaptureSettings::with_keys("h", keys).unwrap();
        let expected = PeerSettings { ipv4_prefix: 24, ipv6_prefix: 128, peers_max: 5 };
        assert_eq!(settings.peers, Some(expected));
        assert_eq!(settings.tracker().peers, Some(PeerSettings { peers_max: 20, ..expected }));
    }

    #[test]
    fn threads_divide_the_limits() {
        let one = CaptureSettings::with_keys("h", "").unwrap();
        // With the same memory of all rings.
        let two = CaptureSettings::with_keys("h", "threads = 2\nring_size = '32MiB'").unwrap();
        assert_eq!((one.threads, two.threads), (1, 2));
        let limits = |settings: &CaptureSettings| {
            let tracker = settings.tracker();
            [
                tracker.connections_max,
                tracker.reorder_bytes_max,
                tracker.observer_bytes_max,
                tracker.statement_bytes_max,
                tracker.cache_bytes_max,
                tracker.in_flight_bytes_max,
            ]
        };
        assert_eq!(limits(&one), limits(&two).map(|limit| 2 * limit));
    }

    #[test]
    fn invalid_values_are_reported() {
        check_problem("interfaces = ['']", "interface \"\": expected the name");
        check_problem("interfaces = ['an interface']", "interface \"an interface\"");
        let twice = "interfaces = ['lo', 'eth0', 'lo']";
        check_problem(twice, "interface \"lo\" is named twice");
        check_problem("protocols = ['gopher']", "unknown protocol gopher; known are http");
        check_problem("protocols = []", "no ports: name services or protocols");
        check_problem("services = ['6543']", "\"6543\": expected [NAME=][ADDRESS:]PORT/PROTOCOL");
        let long = format!("services = ['{}=1/http']", "x".repeat(256));
        check_problem(&long, "the name must have less than 255 bytes");
        let many: Vec<String> = (1_000..1_101).map(|port| format!("'{port}/http'")).collect();
        let many = format!("protocols = []\nservices = [{}]", many.join(", "));
        check_problem(&many, "ports limit (100) exceeded (101); name fewer services");
        check_problem("tls = ['nginx']", "tls \"nginx\": expected auto, a process identifier, or");
        check_problem("ports = 'all'", "ports is \"all\", expected \"auto\"");
        check_problem("waits = [' GET']", "wait \" GET\": expected a verb and a statement");
        check_problem("routes = ['users']", "route \"users\" does not start with /");
        check_problem("ring_size = '1MiB'", "ring_size: expected a multiple of 1MiB");
        check_problem("ring_size = 3000000", "ring_size: expected a multiple of 1MiB");
        check_problem("max_statements = 0", "max_statements is 0, must be 1 to 10000");
        check_problem("max_servers = 5000", "max_servers is 5000, must be 1 to 1024");
        check_problem("max_connections = 0", "max_connections is 0, must be 1 to 1000000");
        check_problem("peer_ipv4_prefix = 33", "peer_ipv4_prefix is 33, must be 0 to 32");
        check_problem("peer_ipv6_prefix = 129", "peer_ipv6_prefix is 129, must be 0 to 128");
        check_problem("max_peers = 0", "max_peers is 0, must be 1 to 1000");
        check_problem("threads = 0", "threads is 0, must be 1 to 64");
        check_problem("interface = 'lo'", "did you mean \"interfaces\"?");
    }
}
