//! Services of this host, detected by its listening TCP sockets.
//!
//! The program that has a socket tells its protocol, if it is known; otherwise the number of the
//! port does, if it is one that a protocol usually has. All other sockets are listed as not
//! decoded: nothing is guessed from packets. A port that was detected stays until the limit of
//! ports is reached, so that a server that starts again is measured from its first packet.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::PROTOCOLS;
use protocol::observer::ObservedProtocol;

use crate::capture_filter::PORTS_MAX;
use crate::listening_sockets::{ListeningSocket, listening_sockets, process_ids, socket_inodes};
use crate::service_rule::{ServiceRule, ServiceTransport, find_protocol};

/// Time between two looks at the sockets.
pub const DETECTION_PERIOD: Duration = Duration::from_secs(30);

/// Bytes that are read of the command line of a process.
const COMMAND_LINE_BYTES_MAX: u64 = 64 << 10;
/// Sockets that are listed as not decoded.
const NOT_DECODED_MAX: usize = 32;

/// A program that speaks one protocol.
struct ServerProgram {
    comm: &'static str,
    protocol: &'static str,
    /// Ports at which it speaks another one.
    other_ports: &'static [u16],
}

const fn program(comm: &'static str, protocol: &'static str) -> ServerProgram {
    ServerProgram { comm, protocol, other_ports: &[] }
}

/// X protocol, group replication and Galera.
const MYSQL_OTHER_PORTS: &[u16] = &[33060, 33061, 4444, 4567, 4568];

static PROGRAMS: [ServerProgram; 13] = [
    program("postgres", "postgres"),
    program("postmaster", "postgres"),
    program("pgbouncer", "postgres"),
    ServerProgram { comm: "mysqld", protocol: "mysql", other_ports: MYSQL_OTHER_PORTS },
    ServerProgram { comm: "mariadbd", protocol: "mysql", other_ports: MYSQL_OTHER_PORTS },
    // The bus of a cluster.
    ServerProgram { comm: "redis-server", protocol: "redis", other_ports: &[16379] },
    ServerProgram { comm: "valkey-server", protocol: "redis", other_ports: &[16379] },
    program("nginx", "http"),
    program("apache2", "http"),
    program("httpd", "http"),
    program("caddy", "http"),
    program("mongod", "mongodb"),
    program("mongos", "mongodb"),
];

/// Programs of Java by an argument, with the ports of their protocol; they have others for JMX.
static JAVA_PROGRAMS: [(&str, &str, std::ops::RangeInclusive<u16>); 2] = [
    ("kafka.Kafka", "kafka", 9092..=9099),
    ("org.apache.cassandra.service.CassandraDaemon", "cassandra", 9042..=9042),
];

/// Ports of second servers, beside the default ports of all protocols.
static OTHER_PORTS: [(u16, &str); 5] =
    [(5433, "postgres"), (3307, "mysql"), (6380, "redis"), (27018, "mongodb"), (27019, "mongodb")];

/// A process with a listening socket.
#[derive(Clone, Debug)]
struct SocketProgram {
    comm: String,
    /// Of a program of Java, its row.
    java: Option<usize>,
}

/// A listening socket, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DetectedPort {
    /// `None` for all addresses of the host.
    address: Option<IpAddr>,
    port: u16,
    /// Name of the program; empty if it is not visible.
    program: String,
    /// Name of the protocol; `None` if it is not known.
    protocol: Option<&'static str>,
}

impl fmt::Display for DetectedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(IpAddr::V6(address)) => write!(f, "[{address}]:")?,
            Some(address) => write!(f, "{address}:")?,
            None => {}
        }
        write!(f, "{}", self.port)?;
        if let Some(protocol) = self.protocol {
            write!(f, "/{protocol}")?;
        }
        match self.program.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", self.program),
        }
    }
}

/// What was detected, for users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DetectedServices {
    /// Ports of this host that are observed: `127.0.0.1:5433/postgres (postgres)`.
    pub decoded: Vec<String>,
    /// The first 32 ports that are not, because their protocol is not known or the limit of ports
    /// is reached: `22 (sshd)`.
    pub not_decoded: Vec<String>,
    /// Number of all of them.
    pub not_decoded_count: usize,
}

impl fmt::Display for DetectedServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ports: &[String]| match ports {
            [] => "none".to_owned(),
            ports => ports.join(", "),
        };
        write!(f, "detected ports: {}; ", list(&self.decoded))?;
        write!(f, "not decoded: {}", list(&self.not_decoded))?;
        match self.not_decoded_count - self.not_decoded.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Detects services again and again.
#[derive(Clone)]
pub struct PortDetector {
    proc: PathBuf,
    named: Vec<ServiceRule>,
    protocols: Vec<&'static ObservedProtocol>,
    /// Sockets of the last look.
    sockets: Vec<ListeningSocket>,
    /// By inode.
    programs: HashMap<u64, SocketProgram>,
    /// Ports with a protocol, those of the last look first.
    known: Vec<DetectedPort>,
    rules: Vec<ServiceRule>,
    services: DetectedServices,
}

impl fmt::Debug for PortDetector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortDetector").field("proc", &self.proc).finish_non_exhaustive()
    }
}

impl PortDetector {
    /// A detector of servers of `protocols`. `named` are the rules of the user, which come before
    /// what is detected; the default ports of the protocols come behind it. `proc` is the directory
    /// /proc.
    pub fn new(
        proc: &Path,
        named: Vec<ServiceRule>,
        protocols: Vec<&'static ObservedProtocol>,
    ) -> PortDetector {
        let rules = ServiceRule::with_default_ports(named.clone(), &protocols);
        PortDetector {
            proc: proc.to_owned(),
            named,
            protocols,
            sockets: Vec::new(),
            programs: HashMap::new(),
            known: Vec::new(),
            rules,
            services: DetectedServices::default(),
        }
    }

    /// Rules of the user, of what was detected, and of the default ports: at most [`PORTS_MAX`]
    /// ports, if those of the user and the default ones are not more.
    pub fn rules(&self) -> &[ServiceRule] {
        &self.rules
    }

    /// What was detected.
    pub fn services(&self) -> &DetectedServices {
        &self.services
    }

    /// Looks at the sockets. Returns whether others are observed than before.
    pub fn detect(&mut self) -> bool {
        let mut sockets = listening_sockets(&self.proc);
        sockets.sort_unstable();
        sockets.dedup();
        if sockets == self.sockets {
            return false;
        }
        self.find_programs(&sockets);
        self.sockets = sockets;
        let (mut found, mut unknown): (Vec<_>, Vec<_>) =
            self.ports().into_iter().partition(|port| port.protocol.is_some());
        let is_new = |port: &DetectedPort, all: &[DetectedPort]| {
            !all.iter().any(|of| (of.address, of.port) == (port.address, port.port))
        };
        for port in std::mem::take(&mut self.known) {
            if is_new(&port, &found) && is_new(&port, &unknown) {
                found.push(port);
            }
        }
        self.known = found;
        let rules = self.limited_rules(&mut unknown);
        let of = |ports: &[DetectedPort]| ports.iter().map(ToString::to_string).collect();
        self.services = DetectedServices {
            decoded: of(&self.known),
            not_decoded: of(&unknown[..unknown.len().min(NOT_DECODED_MAX)]),
            not_decoded_count: unknown.len(),
        };
        let key = |rule: &ServiceRule| (rule.address, rule.port, rule.protocol.name);
        let is_changed = !rules.iter().map(key).eq(self.rules.iter().map(key));
        self.rules = rules;
        is_changed
    }

    /// Rules of all ports within the limit. The others are moved to `unknown`.
    fn limited_rules(&mut self, unknown: &mut Vec<DetectedPort>) -> Vec<ServiceRule> {
        let others = ServiceRule::with_default_ports(self.named.clone(), &self.protocols);
        let mut ports = ServiceRule::ports(&others);
        let mut detected = Vec::new();
        self.known.retain(|of| {
            let Some(Ok(protocol)) = of.protocol.map(find_protocol) else { return false };
            let is_within = ports.contains(&of.port) || ports.len() < PORTS_MAX;
            if !is_within {
                unknown.push(of.clone());
                return false;
            }
            if !ports.contains(&of.port) {
                ports.push(of.port);
            }
            detected.push(ServiceRule {
                address: of.address,
                port: of.port,
                transport: ServiceTransport::Tcp,
                protocol,
                name: None,
            });
            true
        });
        let named = self.named.iter().cloned().chain(detected);
        ServiceRule::with_default_ports(named, &self.protocols)
    }

    /// Programs of sockets that were not there at the last look.
    fn find_programs(&mut self, sockets: &[ListeningSocket]) {
        let is_listening = |inode: u64| sockets.iter().any(|socket| socket.inode == inode);
        self.programs.retain(|inode, _| is_listening(*inode));
        if sockets.iter().all(|socket| self.programs.contains_key(&socket.inode)) {
            return;
        }
        for process in process_ids(&self.proc) {
            let directory = self.proc.join(process.to_string());
            let mut inodes = socket_inodes(&directory);
            inodes.retain(|inode| is_listening(*inode));
            if inodes.is_empty() {
                continue;
            }
            let Some(program) = SocketProgram::read(&directory) else { continue };
            for inode in inodes {
                // A socket may have been passed on by a supervisor.
                let found = self.programs.entry(inode).or_insert_with(|| program.clone());
                if !found.is_known() && program.is_known() {
                    *found = program.clone();
                }
            }
        }
    }

    /// All listening sockets but those of rules of the user, each address and port once.
    fn ports(&self) -> Vec<DetectedPort> {
        let mut ports: Vec<DetectedPort> = Vec::new();
        for socket in &self.sockets {
            let (ip, port) = (socket.address.ip(), socket.address.port());
            let address = (!ip.is_unspecified()).then_some(ip);
            let is_named = |rule: &ServiceRule| {
                rule.port == port && (rule.address.is_none() || rule.address == address)
            };
            if self.named.iter().any(is_named) {
                continue;
            }
            let program = self.programs.get(&socket.inode);
            let protocol = match program.filter(|program| program.is_known()) {
                Some(program) => program.protocol(port),
                None => usual_protocol(port),
            };
            let is_observed = |name: &&str| self.protocols.iter().any(|of| of.name == *name);
            let protocol = protocol.filter(is_observed);
            let program = program.map(|program| program.comm.clone()).unwrap_or_default();
            let is_same = |of: &&mut DetectedPort| (of.address, of.port) == (address, port);
            match ports.iter_mut().find(is_same) {
                // IPv4 and IPv6: the same server has both.
                Some(found) => found.protocol = found.protocol.or(protocol),
                None => ports.push(DetectedPort { address, port, program, protocol }),
            }
        }
        ports
    }
}

impl SocketProgram {
    fn read(directory: &Path) -> Option<SocketProgram> {
        let comm = fs::read_to_string(directory.join("comm")).ok()?;
        // Any user chooses the name of his processes.
        let comm: String = comm.trim().chars().filter(|c| !c.is_control()).collect();
        let mut java = None;
        if comm == "java" {
            let mut line = Vec::new();
            let file = fs::File::open(directory.join("cmdline")).ok()?;
            file.take(COMMAND_LINE_BYTES_MAX).read_to_end(&mut line).ok()?;
            let has = |name: &str| line.split(|byte| *byte == 0).any(|of| of == name.as_bytes());
            java = JAVA_PROGRAMS.iter().position(|(name, ..)| has(name));
        }
        Some(SocketProgram { comm, java })
    }

    fn row(&self) -> Option<&'static ServerProgram> {
        PROGRAMS.iter().find(|row| row.comm == self.comm)
    }

    fn is_known(&self) -> bool {
        self.java.is_some() || self.row().is_some()
    }

    /// Protocol of a known program at a port.
    fn protocol(&self, port: u16) -> Option<&'static str> {
        if let Some(java) = self.java {
            let (_, protocol, ports) = &JAVA_PROGRAMS[java];
            return ports.contains(&port).then_some(*protocol);
        }
        let row = self.row()?;
        (!row.other_ports.contains(&port)).then_some(row.protocol)
    }
}

/// The protocol that usually has the port.
fn usual_protocol(port: u16) -> Option<&'static str> {
    let default = PROTOCOLS.iter().find(|protocol| protocol.default_ports.contains(&port));
    let other = || OTHER_PORTS.iter().find(|(of, _)| *of == port).map(|(_, name)| *name);
    default.map(|protocol| protocol.name).or_else(other)
}

#[cfg(test)]
mod tests;
