//! All connections of a capture: packets in, operations per service out.
//!
//! A packet belongs to a service if one of its ends has a rule. The server of a connection is the
//! receiver of its SYN; without SYN, the end with a rule; if both ends have one, that with the
//! lower port. Other packets are counted by port and not looked into.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use protocol::fingerprint::RouteTemplates;
use protocol::observer::{FlowDirection, ObservedRequest, PacketTime};

use crate::capture_file::CapturedPacket;
use crate::capture_totals::{CaptureTotals, TrafficCounter};
use crate::connection::{
    ConnectionContext, ConnectionFate, IgnoredBytes, TcpConnection, TcpPacket,
};
use crate::connection_table::{ConnectionKey, ConnectionTable};
use crate::datagram_flow::{DatagramContext, DatagramTable};
use crate::end_report::EndRecords;
use crate::fingerprint_cache::FingerprintCacheCounts;
use crate::in_flight::{InFlightCounter, InFlightSummary, NormalizedRequests};
use crate::key_log::KeyLog;
use crate::packet::{Packet, TcpFlags, TransportHeader};
use crate::peer_table::PeerSettings;
use crate::request_log::RequestLog;
use crate::segment_boundaries::StreamCuts;
use crate::service::{
    RecentOperations, ServiceInterval, ServiceLimits, ServiceStatistics, ServiceTable,
};
use crate::service_rule::{ServiceRule, ServiceTransport};
use crate::statement_texts::StatementTexts;
use crate::stream::BufferMemory;
use crate::stream_marks::ConnectionMarks;
use crate::tls_event::TlsEvent;
use crate::tls_session::{TlsContext, TlsSessionTable, TlsTotals};
use crate::wait_rules::WaitRules;

/// Ports without a rule that are counted apart; the others are counted together.
const OTHER_PORTS_MAX: usize = 256;
/// Memory of an observer above which it is the first to be forgotten when memory is used up, in
/// bytes. Those of connections without large messages have some KiB.
pub(crate) const LARGE_OBSERVER: usize = 64 << 10;
/// Memory for sessions of TLS libraries, beside that for packets, as a part of it: neither takes
/// the memory of the other.
const TLS_MEMORY_SHARE: usize = 4;
/// Time after which a closed connection is forgotten: Linux keeps TIME_WAIT for 60 s.
const CLOSED_TIMEOUT_NS: u64 = 60_000_000_000;

/// Limits and rules of a tracker.
#[derive(Clone)]
pub struct TrackerSettings {
    /// Which connections are observed. The first rule that matches applies.
    pub rules: Vec<ServiceRule>,
    /// Open connections, and flows of datagrams; beyond it, the one without a packet for longest is
    /// forgotten.
    pub connections_max: usize,
    /// Time without a packet after which a connection is forgotten, in nanoseconds.
    pub idle_timeout_ns: u64,
    /// Memory for bytes that were captured out of order, of all connections.
    pub reorder_bytes_max: usize,
    /// Memory of the observers of all connections, in bytes. Beyond it, connections are forgotten.
    /// Sessions of TLS libraries have a quarter of it, beside it.
    pub observer_bytes_max: usize,
    /// Servers with statistics of their own; further ones without a name share one service per
    /// protocol.
    pub servers_max: usize,
    /// Statements of a service with histograms of their own. If clients are told apart, those of
    /// another client are another statement.
    pub statements_max: usize,
    /// Memory of the texts of all statements, in bytes. Beyond it, new ones are other statements.
    pub statement_bytes_max: usize,
    /// Memory of the texts whose fingerprints are remembered, and of the fingerprints, in bytes.
    pub cache_bytes_max: usize,
    /// Bytes of the texts of requests in flight whose statements are told at once. Reading them
    /// takes some milliseconds per MiB, in which the ring fills.
    pub in_flight_bytes_max: usize,
    /// How clients are told apart; `None` if they are not.
    pub peers: Option<PeerSettings>,
    /// Templates of paths.
    pub routes: RouteTemplates,
    /// Operations that wait by design, beside those that do so by their protocol.
    pub waits: WaitRules,
}

/// What was measured in an interval.
pub struct TrackerInterval {
    /// In the order of [`ConnectionTracker::services`].
    pub services: Vec<ServiceInterval>,
    /// Packets that belong to no service.
    pub totals: CaptureTotals,
    /// What was read at TLS libraries.
    pub tls: TlsTotals,
}

/// What datagrams need of a tracker. A macro, because a method would borrow all of it.
macro_rules! datagram_context {
    ($tracker:expr) => {
        DatagramContext {
            services: &mut $tracker.services,
            texts: &mut $tracker.texts,
            flows_max: $tracker.settings.connections_max,
            observer_bytes: &mut $tracker.observer_bytes,
            observer_bytes_max: $tracker.settings.observer_bytes_max,
        }
    };
}

/// As [`datagram_context`], for sessions of TLS libraries.
macro_rules! tls_context {
    ($tracker:expr) => {
        TlsContext {
            services: &mut $tracker.services,
            texts: &mut $tracker.texts,
            sessions_max: $tracker.settings.connections_max,
            idle_timeout_ns: $tracker.settings.idle_timeout_ns,
            observer_bytes: &mut $tracker.tls_observer_bytes,
            observer_bytes_max: $tracker.settings.observer_bytes_max / TLS_MEMORY_SHARE,
        }
    };
}

/// Connections of a capture and what was measured of them.
pub struct ConnectionTracker {
    settings: TrackerSettings,
    services: ServiceTable,
    texts: StatementTexts,
    connections: ConnectionTable<TcpConnection>,
    datagrams: DatagramTable,
    tls_sessions: TlsSessionTable,
    memory: BufferMemory,
    /// Memory of all observers of packets, in bytes.
    observer_bytes: usize,
    /// Memory of those of sessions of TLS libraries.
    tls_observer_bytes: usize,
    totals: CaptureTotals,
    /// Traffic by lower port, of ports without a rule.
    other_ports: HashMap<u16, TrafficCounter>,
    first_time: Option<PacketTime>,
    /// Latest time of a packet.
    now: PacketTime,
    /// Only while requests are recorded.
    log: Option<RequestLog>,
}

impl ConnectionTracker {
    /// A tracker without connections.
    pub fn new(settings: TrackerSettings) -> ConnectionTracker {
        let mut texts = StatementTexts::new(
            settings.routes.clone(),
            settings.statement_bytes_max,
            settings.cache_bytes_max,
        );
        texts.waits.clone_from(&settings.waits);
        ConnectionTracker {
            services: ServiceTable::new(
                settings.rules.clone(),
                ServiceLimits {
                    servers_max: settings.servers_max,
                    statements_max: settings.statements_max,
                    peers: settings.peers,
                },
            ),
            texts,
            connections: ConnectionTable::new(),
            datagrams: DatagramTable::new(),
            tls_sessions: TlsSessionTable::new(),
            memory: BufferMemory::new(settings.reorder_bytes_max),
            observer_bytes: 0,
            tls_observer_bytes: 0,
            totals: CaptureTotals::default(),
            other_ports: HashMap::new(),
            first_time: None,
            now: 0,
            log: None,
            settings,
        }
    }

    /// Decrypts the TLS sessions of connections that start from now on.
    pub fn decrypt(&mut self, keys: &Arc<KeyLog>) {
        self.services.key_log = Some(Arc::clone(keys));
    }

    /// Replaces the rules. Connections stay with the service that they have.
    pub fn set_rules(&mut self, rules: Vec<ServiceRule>) {
        self.services.set_rules(rules);
    }

    /// Records the requests of connections that start from now on, for an
    /// [`EndComparison`](crate::EndComparison) with another capture. Streams are cut at `cuts`.
    pub fn record_requests(&mut self, cuts: StreamCuts) {
        self.log = Some(RequestLog::new(cuts));
    }

    /// As [`Self::record_requests`], for reports while packets are captured: the segments at the
    /// other end are not known. [`Self::take_end_records`] takes the requests.
    pub fn record_live_requests(&mut self) {
        self.log = Some(RequestLog::live());
    }

    /// Takes the requests that were recorded since the last call; `None` if there are none.
    pub fn take_end_records(&mut self) -> Option<EndRecords> {
        let log = self.log.as_mut().filter(|log| log.has_records())?.take();
        let services = self.services.services();
        Some(EndRecords::new(log, |index| {
            let service = &services[index as usize];
            (service.name.clone(), service.protocol)
        }))
    }

    /// Ends the recording of requests.
    pub(crate) fn take_request_log(&mut self) -> Option<RequestLog> {
        self.log.take()
    }

    /// Reads a packet.
    pub fn read(&mut self, captured: &CapturedPacket<'_>) {
        self.totals.packets += 1;
        let Some(time) = captured.time else {
            self.totals.without_time += 1;
            return;
        };
        self.first_time.get_or_insert(time);
        self.now = self.now.max(time);
        self.expire();
        match Packet::decode(captured.link_type, captured.bytes, captured.original_bytes) {
            Ok(packet) => self.read_packet(time, &packet),
            Err(reason) => self.totals.undecoded[reason as usize] += 1,
        }
    }

    /// Reads a chunk of plaintext of a TLS library, or the end of a session.
    pub fn read_tls(&mut self, event: &TlsEvent<'_>) {
        self.first_time.get_or_insert(event.start);
        self.now = self.now.max(event.end);
        self.expire();
        let mut context = tls_context!(self);
        self.tls_sessions.read(event, self.now, &mut context);
    }

    fn read_packet(&mut self, time: PacketTime, packet: &Packet<'_>) {
        let TransportHeader::Tcp { sequence, acknowledgement, flags } = packet.transport else {
            let mut context = datagram_context!(self);
            if !self.datagrams.read(time, self.now, packet, &mut context) {
                self.count_other(packet);
            }
            return;
        };
        let is_known = self.is_server(packet.destination) || self.is_server(packet.source);
        if !is_known {
            self.count_other(packet);
            return;
        }
        let key = ConnectionKey::new(packet.source, packet.destination);
        let found = self.connections.find(&key);
        let direction = match found {
            Some(at) if self.connections.get_mut(at).server == packet.destination => {
                FlowDirection::ToServer
            }
            Some(_) => FlowDirection::ToClient,
            None => match self.direction(packet, flags) {
                Some(direction) => direction,
                None => return self.count_other(packet),
            },
        };
        let tcp = TcpPacket { time, direction, sequence, acknowledgement, flags, packet };
        match found {
            None => self.start_connection(key, &tcp, IgnoredBytes::default()),
            Some(at) if self.connections.is_closed(at) => self.reopen(key, at, &tcp),
            Some(at) => self.continue_connection(key, at, &tcp),
        }
    }

    fn is_server(&self, address: SocketAddr) -> bool {
        self.services.is_server(address, ServiceTransport::Tcp)
    }

    /// Direction of a packet of a new connection; `None` if its server has no rule.
    fn direction(&self, packet: &Packet<'_>, flags: TcpFlags) -> Option<FlowDirection> {
        let to_server = self.is_server(packet.destination);
        let to_client = self.is_server(packet.source);
        if flags.contains(TcpFlags::SYN) {
            return match flags.contains(TcpFlags::ACK) {
                true => to_client.then_some(FlowDirection::ToClient),
                false => to_server.then_some(FlowDirection::ToServer),
            };
        }
        let is_lower = packet.destination.port() <= packet.source.port();
        match to_server && (!to_client || is_lower) {
            true => Some(FlowDirection::ToServer),
            false => Some(FlowDirection::ToClient),
        }
    }

    fn start_connection(&mut self, key: ConnectionKey, tcp: &TcpPacket<'_>, ignored: IgnoredBytes) {
        let is_start = tcp.flags.contains(TcpFlags::SYN);
        let is_reset = tcp.flags.contains(TcpFlags::RST);
        let (source, destination) = (tcp.packet.source, tcp.packet.destination);
        let (server, client) = match tcp.direction {
            FlowDirection::ToServer => (destination, source),
            FlowDirection::ToClient => (source, destination),
        };
        let has_content = is_start || tcp.packet.payload_bytes > 0;
        let is_followed = has_content && !is_reset;
        let service = match is_followed {
            true => self.services.index(server, ServiceTransport::Tcp),
            false => None,
        };
        let Some(service) = service else {
            self.totals.idle_packets += 1;
            return;
        };
        self.evict();
        let mut connection = TcpConnection::new(service, server, client.ip());
        connection.start_behind(ignored);
        if let Some(log) = &self.log {
            connection.record(ConnectionMarks::new(client, server, &log.cuts));
        }
        let at = self.connections.insert(key, connection, tcp.time);
        self.continue_connection(key, at, tcp);
    }

    /// A packet of a connection that was closed: repeated, or of a new one.
    fn reopen(&mut self, key: ConnectionKey, at: usize, tcp: &TcpPacket<'_>) {
        if !self.connections.get_mut(at).read_closed(tcp) {
            self.totals.idle_packets += 1;
            return;
        }
        let ignored = self.connections.remove(at).ignored();
        self.replace_connection(key, tcp, ignored);
    }

    /// Starts a connection with the addresses of an earlier one. The roles may have changed with
    /// the ports.
    fn replace_connection(
        &mut self,
        key: ConnectionKey,
        tcp: &TcpPacket<'_>,
        ignored: IgnoredBytes,
    ) {
        let Some(direction) = self.direction(tcp.packet, tcp.flags) else {
            return self.count_other(tcp.packet);
        };
        let ignored = match tcp.flags.contains(TcpFlags::SYN) {
            true => IgnoredBytes::default(),
            false if direction == tcp.direction => ignored,
            false => ignored.exchanged(),
        };
        self.start_connection(key, &TcpPacket { direction, ..*tcp }, ignored);
    }

    fn continue_connection(&mut self, key: ConnectionKey, at: usize, tcp: &TcpPacket<'_>) {
        self.connections.touch(at, self.now);
        let connection = self.connections.get_mut(at);
        let service = self.services.service_mut(connection.service);
        service.completeness.packets += 1;
        service.last_packet = self.now;
        let (memory, texts) = (&mut self.memory, &mut self.texts);
        let mut context = ConnectionContext { service, memory, texts, log: self.log.as_mut() };
        match connection.read(tcp, &mut context) {
            ConnectionFate::Open => {
                let bytes = connection.count_memory(&mut self.observer_bytes);
                self.limit_observer_memory(at, bytes);
            }
            ConnectionFate::Closed => {
                connection.count_memory(&mut self.observer_bytes);
                self.connections.close(at);
            }
            ConnectionFate::Replaced => {
                connection.end(&mut context);
                connection.count_memory(&mut self.observer_bytes);
                // The packet is counted again, as one of the new connection.
                context.service.completeness.packets -= 1;
                let ignored = self.connections.remove(at).ignored();
                self.replace_connection(key, tcp, ignored);
            }
        }
    }

    /// Forgets connections that had no packet for too long.
    fn expire(&mut self) {
        while let Some((at, time)) = self.connections.oldest_open()
            && time.saturating_add(self.settings.idle_timeout_ns) < self.now
        {
            self.forget(at).completeness.idle_connections += 1;
        }
        while let Some((at, time)) = self.connections.oldest_closed()
            && time.saturating_add(CLOSED_TIMEOUT_NS) < self.now
        {
            self.connections.remove(at);
        }
        let mut context = datagram_context!(self);
        self.datagrams.expire(self.now, &mut context);
        let mut context = tls_context!(self);
        self.tls_sessions.expire(self.now, &mut context);
    }

    /// Forgets connections until the observers fit into their memory: the one that has grown to
    /// `bytes`, if it is large, or those without a packet for longest.
    fn limit_observer_memory(&mut self, at: usize, bytes: usize) {
        let is_full = |of: &ConnectionTracker| of.observer_bytes > of.settings.observer_bytes_max;
        if is_full(self) && bytes > LARGE_OBSERVER {
            self.forget(at).completeness.evicted_connections += 1;
        }
        while is_full(self)
            && let Some((oldest, _)) = self.connections.oldest_open()
        {
            self.forget(oldest).completeness.evicted_connections += 1;
        }
    }

    /// Makes room for one more connection.
    fn evict(&mut self) {
        while self.connections.open_count() >= self.settings.connections_max.max(1)
            && let Some((at, _)) = self.connections.oldest_open()
        {
            self.forget(at).completeness.evicted_connections += 1;
        }
    }

    /// Ends and removes a connection. Returns its service.
    fn forget(&mut self, at: usize) -> &mut ServiceStatistics {
        let mut connection = self.connections.remove(at);
        let mut context = ConnectionContext {
            service: self.services.service_mut(connection.service),
            memory: &mut self.memory,
            texts: &mut self.texts,
            log: self.log.as_mut(),
        };
        connection.end(&mut context);
        connection.count_memory(&mut self.observer_bytes);
        self.services.service_mut(connection.service)
    }

    fn count_other(&mut self, packet: &Packet<'_>) {
        let total = match packet.transport {
            TransportHeader::Tcp { .. } => &mut self.totals.other_tcp,
            TransportHeader::Udp => &mut self.totals.other_udp,
        };
        total.add(packet.payload_bytes);
        let port = packet.source.port().min(packet.destination.port());
        let is_full = self.other_ports.len() >= OTHER_PORTS_MAX;
        if let Some(count) = self.other_ports.get_mut(&port) {
            count.add(packet.payload_bytes);
        } else if !is_full {
            self.other_ports.entry(port).or_default().add(packet.payload_bytes);
        }
    }

    /// Services, in the order in which they were seen.
    pub fn services(&self) -> &[ServiceStatistics] {
        self.services.services()
    }

    /// Operations of each service since the last call, in the order of [`Self::services`].
    pub fn take_recent(&mut self) -> Vec<RecentOperations> {
        self.services.services_mut().map(|service| std::mem::take(&mut service.recent)).collect()
    }

    /// Histograms and counts since the last call.
    pub fn take_interval(&mut self) -> TrackerInterval {
        TrackerInterval {
            services: self.services.take_interval(&mut self.texts),
            totals: std::mem::take(&mut self.totals),
            tls: self.tls_sessions.take_totals(),
        }
    }

    /// Forgets services without connections that had no packet for the time after which
    /// connections are forgotten: their servers make room for others. Returns how many.
    pub fn forget_idle_services(&mut self) -> usize {
        let time = self.now.saturating_sub(self.settings.idle_timeout_ns);
        if !self.services.has_idle(time) {
            return 0;
        }
        let connections = self.connections.all_mut().map(|connection| &mut connection.service);
        let used: HashSet<usize> = connections
            .chain(self.datagrams.services_mut())
            .chain(self.tls_sessions.services_mut())
            .map(|index| *index)
            .collect();
        let indexes = self.services.forget_idle(time, &used);
        let connections = self.connections.all_mut().map(|connection| &mut connection.service);
        for index in
            connections.chain(self.datagrams.services_mut()).chain(self.tls_sessions.services_mut())
        {
            let Some(new) = indexes[*index] else {
                panic!("BUG: service {index} has a connection and was forgotten")
            };
            *index = new;
        }
        indexes.iter().filter(|index| index.is_none()).count()
    }

    /// Packets that belong to no service.
    pub fn totals(&self) -> &CaptureTotals {
        &self.totals
    }

    /// What was read at TLS libraries since the last interval was taken.
    pub fn tls_totals(&self) -> &TlsTotals {
        self.tls_sessions.totals()
    }

    /// Ports without a rule by payload, most first.
    pub fn other_ports(&self) -> Vec<(u16, TrafficCounter)> {
        let mut ports: Vec<_> = self.other_ports.iter().map(|(port, of)| (*port, *of)).collect();
        ports.sort_by_key(|(port, count)| (std::cmp::Reverse(count.bytes), *port));
        ports
    }

    /// First and latest time of a packet.
    pub fn time_range(&self) -> Option<(PacketTime, PacketTime)> {
        self.first_time.map(|first| (first, self.now.max(first)))
    }

    /// Number of open connections.
    pub fn open_connections(&self) -> usize {
        self.connections.open_count()
    }

    /// Memory of observers and of bytes that were captured out of order.
    pub fn connection_memory(&self) -> usize {
        self.observer_bytes + self.tls_observer_bytes + self.memory.used()
    }

    /// Memory of the texts of statements and of the cache of their fingerprints.
    pub fn statement_memory(&self) -> usize {
        self.texts.bytes()
    }

    /// How often the fingerprint of a statement was in the cache, since the start.
    pub fn fingerprint_cache_counts(&self) -> FingerprintCacheCounts {
        self.texts.normalizer.cache_counts()
    }

    /// Requests in flight by service and statement, oldest first.
    pub fn in_flight(&self) -> Vec<InFlightSummary> {
        let mut texts = NormalizedRequests::default();
        self.each_in_flight(&mut |_, request| texts.add(&request));
        let last_time = texts.last_time(self.settings.in_flight_bytes_max);
        let mut counter = InFlightCounter::new(&self.texts, last_time);
        self.each_in_flight(&mut |service, request| {
            let protocol = self.services.services()[service].protocol.name;
            counter.add(service, protocol, &request);
        });
        counter.into_summaries()
    }

    fn each_in_flight(&self, each: &mut dyn FnMut(usize, ObservedRequest<'_>)) {
        for connection in self.connections.open() {
            connection.in_flight(&mut |request| each(connection.service, request));
        }
        self.datagrams.in_flight(each);
        self.tls_sessions.in_flight(each);
    }
}
