//! Conversations of a client and a server as packets, damage to them, and what a capture of them
//! can know at best.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use protocol::fingerprint::RouteTemplates;
use protocol::observer::FlowDirection;
use wire::{
    CapturedPacket, ConnectionTracker, LinkType, ServiceRule, ServiceTransport, TcpFlags,
    TrackerSettings, WaitRules,
};

use crate::checks::message_protocol::{self, message};

/// Start of all conversations, in nanoseconds.
pub(crate) const START: u64 = 1_000_000_000;

/// A packet of a conversation.
#[derive(Clone, Debug)]
pub(crate) struct TestPacket {
    pub(crate) time: u64,
    pub(crate) direction: FlowDirection,
    /// Position of the first byte in its stream.
    pub(crate) position: u64,
    pub(crate) flags: u8,
    pub(crate) payload: Vec<u8>,
    /// Bytes of the opposite stream that the sender has.
    pub(crate) acknowledged: u64,
    /// Captured bytes of the payload.
    pub(crate) captured: usize,
    pub(crate) client_port: u16,
    /// Sequence numbers of the first bytes of both streams.
    pub(crate) initial: [u32; 2],
}

/// A request, by positions in both streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestRequest {
    pub(crate) id: u32,
    pub(crate) request: (u64, u64),
    pub(crate) response: (u64, u64),
}

/// Packets of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    pub(crate) packets: Vec<TestPacket>,
    pub(crate) requests: Vec<TestRequest>,
}

/// Shape of a conversation.
#[derive(Clone, Debug)]
pub(crate) struct ConversationShape {
    pub(crate) first_id: u32,
    /// Payload sizes of requests and responses.
    pub(crate) sizes: Vec<(usize, usize)>,
    /// Requests that are sent before their responses are read.
    pub(crate) depth: usize,
    pub(crate) segment: usize,
    pub(crate) initial: [u32; 2],
    pub(crate) client_port: u16,
    pub(crate) start: u64,
}

impl Default for ConversationShape {
    fn default() -> ConversationShape {
        ConversationShape {
            first_id: 0,
            sizes: vec![(20, 50); 10],
            depth: 1,
            segment: 1_448,
            initial: [1_000, 5_000],
            client_port: 40_000,
            start: START,
        }
    }
}

/// Writes the packets of a conversation in the order of time.
struct PacketWriter {
    packets: Vec<TestPacket>,
    time: u64,
    /// Bytes sent in both streams.
    sent: [u64; 2],
    initial: [u32; 2],
    client_port: u16,
}

pub(crate) fn index(direction: FlowDirection) -> usize {
    match direction {
        FlowDirection::ToServer => 0,
        FlowDirection::ToClient => 1,
    }
}

impl PacketWriter {
    fn packet(&mut self, direction: FlowDirection, flags: u8, payload: &[u8]) {
        // Times that no two packets share, and whose differences vary.
        self.time += 1_000 + (self.packets.len() as u64 * 7_919) % 977;
        let own = index(direction);
        self.packets.push(TestPacket {
            time: self.time,
            direction,
            position: self.sent[own],
            flags,
            payload: payload.to_vec(),
            acknowledged: self.sent[1 - own],
            captured: payload.len(),
            client_port: self.client_port,
            initial: self.initial,
        });
        self.sent[own] += payload.len() as u64;
    }

    fn send(&mut self, direction: FlowDirection, bytes: &[u8], segment: usize) {
        for piece in bytes.chunks(segment) {
            self.packet(direction, TcpFlags::ACK.0, piece);
        }
    }
}

impl Conversation {
    /// Handshake, requests with responses, and both FIN.
    pub(crate) fn new(shape: &ConversationShape) -> Conversation {
        let mut writer = PacketWriter {
            packets: Vec::new(),
            time: shape.start,
            sent: [0; 2],
            initial: shape.initial,
            client_port: shape.client_port,
        };
        writer.packet(FlowDirection::ToServer, TcpFlags::SYN.0, b"");
        writer.packet(FlowDirection::ToClient, TcpFlags::SYN.0 | TcpFlags::ACK.0, b"");
        writer.packet(FlowDirection::ToServer, TcpFlags::ACK.0, b"");
        let mut requests = Vec::new();
        let mut id = shape.first_id;
        for batch in shape.sizes.chunks(shape.depth.max(1)) {
            let (mut queries, mut replies) = (Vec::new(), Vec::new());
            let [query_start, reply_start] = writer.sent;
            for (request, response) in batch {
                let starts =
                    (query_start + queries.len() as u64, reply_start + replies.len() as u64);
                queries.extend(message(b'Q', id, *request));
                replies.extend(message(b'R', id, *response));
                requests.push(TestRequest {
                    id,
                    request: (starts.0, query_start + queries.len() as u64),
                    response: (starts.1, reply_start + replies.len() as u64),
                });
                id += 1;
            }
            writer.send(FlowDirection::ToServer, &queries, shape.segment);
            writer.packet(FlowDirection::ToClient, TcpFlags::ACK.0, b"");
            writer.send(FlowDirection::ToClient, &replies, shape.segment);
            writer.packet(FlowDirection::ToServer, TcpFlags::ACK.0, b"");
        }
        writer.packet(FlowDirection::ToServer, TcpFlags::FIN.0 | TcpFlags::ACK.0, b"");
        writer.packet(FlowDirection::ToClient, TcpFlags::FIN.0 | TcpFlags::ACK.0, b"");
        Conversation { packets: writer.packets, requests }
    }

    /// Positions of the packets with payload.
    pub(crate) fn data_packets(&self) -> Vec<usize> {
        let has_payload = |at: &usize| !self.packets[*at].payload.is_empty();
        (0..self.packets.len()).filter(has_payload).collect()
    }

    /// Where a capture knows a stream to start: at the first payload, at what the other side
    /// acknowledges before it, or at the SYN. A connection is followed from its SYN or its first
    /// payload on.
    fn known_start(&self, direction: FlowDirection) -> u64 {
        let is_syn = |packet: &&TestPacket| TcpFlags(packet.flags).contains(TcpFlags::SYN);
        let is_content = |packet: &&TestPacket| is_syn(packet) || !packet.payload.is_empty();
        let Some(first) = self.packets.iter().position(|packet| is_content(&packet)) else {
            return 0;
        };
        let tells = |packet: &TestPacket| match packet.direction == direction {
            true => is_content(&packet).then_some(packet.position),
            false => {
                let has_acknowledgement = TcpFlags(packet.flags).contains(TcpFlags::ACK);
                has_acknowledgement.then_some(packet.acknowledged)
            }
        };
        self.packets[first..].iter().find_map(tells).unwrap_or(0)
    }

    /// Latency of each request from the captured packets: each byte has the time at which it was
    /// first captured, but no earlier than the bytes before it.
    pub(crate) fn latencies(&self) -> BTreeMap<u32, u64> {
        let times = [FlowDirection::ToServer, FlowDirection::ToClient].map(|direction| {
            let mut first: BTreeMap<u64, u64> = BTreeMap::new();
            for packet in self.packets.iter().filter(|packet| packet.direction == direction) {
                for byte in 0..packet.captured as u64 {
                    let known = first.entry(packet.position + byte).or_insert(packet.time);
                    *known = (*known).min(packet.time);
                }
            }
            let mut first = first.split_off(&self.known_start(direction));
            let mut latest = 0;
            first.values_mut().for_each(|time| {
                latest = latest.max(*time);
                *time = latest;
            });
            first
        });
        let latency = |request: &TestRequest| {
            let start = times[0].get(&request.request.0)?;
            let end = times[1].get(&(request.response.1 - 1))?;
            Some((request.id, end.checked_sub(*start)?))
        };
        self.requests.iter().filter_map(latency).collect()
    }
}

impl TestPacket {
    /// Headers of IPv4 and TCP, and the captured payload.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let own = index(self.direction);
        let ports = [self.client_port, message_protocol::PORT];
        let (ips, ports) = match self.direction {
            FlowDirection::ToServer => ([client, server], ports),
            FlowDirection::ToClient => ([server, client], [ports[1], ports[0]]),
        };
        // The SYN has the number before the first byte.
        let is_syn = TcpFlags(self.flags).contains(TcpFlags::SYN);
        let first = self.initial[own].wrapping_add(self.position as u32);
        let sequence = first.wrapping_sub(u32::from(is_syn));
        let acknowledgement = self.initial[1 - own].wrapping_add(self.acknowledged as u32);
        let total = 40 + self.payload.len();
        let mut bytes = vec![0x45, 0];
        bytes.extend((total as u16).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        bytes.extend(ips.concat());
        bytes.extend(ports[0].to_be_bytes());
        bytes.extend(ports[1].to_be_bytes());
        bytes.extend(sequence.to_be_bytes());
        bytes.extend(acknowledgement.to_be_bytes());
        bytes.extend([0x50, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend(&self.payload[..self.captured]);
        bytes
    }

    pub(crate) fn read_by(&self, tracker: &mut ConnectionTracker) {
        self.read_with_port(tracker, message_protocol::PORT);
    }

    /// As [`Self::read_by`], with another port of the server.
    pub(crate) fn read_with_port(&self, tracker: &mut ConnectionTracker, port: u16) {
        let original_bytes = 40 + self.payload.len() as u32;
        let time = Some(self.time);
        let mut bytes = self.bytes();
        let at = if self.direction == FlowDirection::ToServer { 22 } else { 20 };
        bytes[at..at + 2].copy_from_slice(&port.to_be_bytes());
        let link_type = LinkType::RawIp;
        tracker.read(&CapturedPacket { time, link_type, bytes: &bytes, original_bytes });
    }
}

/// A tracker of the test protocol.
pub(crate) fn tracker() -> ConnectionTracker {
    ConnectionTracker::new(settings())
}

pub(crate) fn settings() -> TrackerSettings {
    TrackerSettings {
        rules: vec![ServiceRule {
            address: None,
            port: message_protocol::PORT,
            transport: ServiceTransport::Tcp,
            protocol: &message_protocol::PROTOCOL,
            name: None,
        }],
        connections_max: 1_000,
        idle_timeout_ns: 3_600_000_000_000,
        reorder_bytes_max: 1 << 20,
        observer_bytes_max: 16 << 20,
        servers_max: 1_000,
        statements_max: 100_000,
        statement_bytes_max: 64 << 20,
        cache_bytes_max: 1 << 20,
        in_flight_bytes_max: 1 << 20,
        peers: None,
        routes: RouteTemplates::default(),
        waits: WaitRules::default(),
    }
}

/// Address of the server, the name of its service.
pub(crate) fn server_name() -> String {
    SocketAddrV4::new([10, 0, 0, 2].into(), message_protocol::PORT).to_string()
}

/// Latency of each measured request. Every request of a test has an id of its own.
pub(crate) fn measured_latencies(tracker: &ConnectionTracker) -> BTreeMap<u32, u64> {
    let mut latencies = BTreeMap::new();
    for statement in tracker.services().iter().flat_map(|service| service.statements.statements()) {
        let mut all = statement.work();
        all.merge(&statement.waits);
        assert_eq!(all.last_byte.count(), 1, "request {} was measured once", statement.statement);
        let latency = all.last_byte.max().unwrap().estimate as u64;
        latencies.insert(statement.statement.parse().unwrap(), latency);
    }
    latencies
}

/// Measured, not measured and in flight.
pub(crate) fn counts(tracker: &ConnectionTracker) -> (u64, u64, u64) {
    let of = |service: &wire::ServiceStatistics| {
        (service.completeness.measured, service.completeness.not_measured.total())
    };
    let (measured, not_measured) = tracker.services().first().map_or((0, 0), of);
    let in_flight = tracker.in_flight().iter().map(|summary| summary.requests).sum();
    (measured, not_measured, in_flight)
}
