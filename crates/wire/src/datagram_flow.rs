//! Datagrams between a client's port and a server.
//!
//! The observer gets each datagram at once, with its length as two bytes before it, as messages of
//! DNS have it over TCP: one observer reads both. Datagrams are not repeated or put in order;
//! what the network lost is seen as a request without response.

use std::net::{IpAddr, SocketAddr};

use protocol::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, ObservedRequest, PacketTime,
};

use crate::connection_table::{ConnectionKey, ConnectionTable};
use crate::packet::Packet;
use crate::service::{ConnectionSink, ServiceStatistics, ServiceTable};
use crate::service_rule::ServiceTransport;
use crate::statement_texts::StatementTexts;

/// Time without a datagram after which a flow is forgotten: clients of DNS give up after 5 to 30 s.
const IDLE_TIMEOUT_NS: u64 = 60_000_000_000;

/// Flows of a capture.
pub(crate) struct DatagramTable {
    flows: ConnectionTable<DatagramFlow>,
}

/// Limits and what belongs to all connections.
pub(crate) struct DatagramContext<'a> {
    pub(crate) services: &'a mut ServiceTable,
    pub(crate) texts: &'a mut StatementTexts,
    pub(crate) flows_max: usize,
    /// Memory of all observers, and its limit.
    pub(crate) observer_bytes: &'a mut usize,
    pub(crate) observer_bytes_max: usize,
}

impl DatagramTable {
    pub(crate) fn new() -> DatagramTable {
        DatagramTable { flows: ConnectionTable::new() }
    }

    /// Reads a datagram. Returns whether one of its ends has a rule.
    pub(crate) fn read(
        &mut self,
        time: PacketTime,
        now: PacketTime,
        packet: &Packet<'_>,
        context: &mut DatagramContext<'_>,
    ) -> bool {
        let is_server = |address| context.services.is_server(address, ServiceTransport::Udp);
        let server = match (is_server(packet.destination), is_server(packet.source)) {
            (false, false) => return false,
            (true, true) if packet.source.port() < packet.destination.port() => packet.source,
            (true, _) => packet.destination,
            (false, true) => packet.source,
        };
        let key = ConnectionKey::new(packet.source, packet.destination);
        let at = match self.flows.find(&key) {
            Some(at) => at,
            None => {
                let index = context.services.index(server, ServiceTransport::Udp);
                let Some(index) = index else { return false };
                while self.flows.open_count() >= context.flows_max.max(1) {
                    self.forget_oldest(context, |service| {
                        service.completeness.evicted_connections += 1;
                    });
                }
                let service = context.services.service_mut(index);
                let client = match server == packet.destination {
                    true => packet.source,
                    false => packet.destination,
                };
                self.flows.insert(key, DatagramFlow::new(index, server, client.ip(), service), now)
            }
        };
        self.flows.touch(at, now);
        let flow = self.flows.get_mut(at);
        let service = context.services.service_mut(flow.service);
        service.last_packet = now;
        flow.read(time, packet, service, context.texts);
        flow.count_memory(context.observer_bytes);
        while *context.observer_bytes > context.observer_bytes_max && self.flows.open_count() > 0 {
            self.forget_oldest(context, |service| service.completeness.evicted_connections += 1);
        }
        true
    }

    /// Forgets flows that had no datagram for too long.
    pub(crate) fn expire(&mut self, now: PacketTime, context: &mut DatagramContext<'_>) {
        while let Some((_, time)) = self.flows.oldest_open()
            && time.saturating_add(IDLE_TIMEOUT_NS) < now
        {
            self.forget_oldest(context, |service| service.completeness.idle_connections += 1);
        }
    }

    fn forget_oldest(
        &mut self,
        context: &mut DatagramContext<'_>,
        count: impl FnOnce(&mut ServiceStatistics),
    ) {
        let Some((at, _)) = self.flows.oldest_open() else { return };
        let mut flow = self.flows.remove(at);
        let service = context.services.service_mut(flow.service);
        flow.end(service, context.texts);
        *context.observer_bytes -= flow.observer_bytes;
        count(service);
    }

    /// Services of all flows.
    pub(crate) fn services_mut(&mut self) -> impl Iterator<Item = &mut usize> {
        self.flows.all_mut().map(|flow| &mut flow.service)
    }

    /// Calls `each` with the service and the requests without a response.
    pub(crate) fn in_flight(&self, each: &mut dyn FnMut(usize, ObservedRequest<'_>)) {
        for flow in self.flows.open() {
            flow.observer.in_flight(&mut |request| each(flow.service, request));
        }
    }
}

struct DatagramFlow {
    /// Index of its service.
    service: usize,
    server: SocketAddr,
    client: IpAddr,
    observer: Box<dyn ConnectionObserver>,
    /// Memory of the observer after the last datagram.
    observer_bytes: usize,
    last_response_end: Option<PacketTime>,
}

impl DatagramFlow {
    fn new(
        index: usize,
        server: SocketAddr,
        client: IpAddr,
        service: &mut ServiceStatistics,
    ) -> DatagramFlow {
        service.completeness.connections_from_start += 1;
        DatagramFlow {
            service: index,
            server,
            client,
            observer: (service.protocol.observer)(CaptureStart::FirstByte),
            observer_bytes: 0,
            last_response_end: None,
        }
    }

    /// Reads a datagram.
    fn read(
        &mut self,
        time: PacketTime,
        packet: &Packet<'_>,
        service: &mut ServiceStatistics,
        texts: &mut StatementTexts,
    ) {
        let is_to_server = packet.destination == self.server;
        let direction =
            if is_to_server { FlowDirection::ToServer } else { FlowDirection::ToClient };
        let completeness = &mut service.completeness;
        completeness.packets += 1;
        completeness.payload_bytes += packet.payload_bytes;
        let is_whole = packet.payload.len() as u64 == packet.payload_bytes;
        if !is_whole {
            completeness.gaps += 1;
            completeness.gap_bytes += packet.payload_bytes;
        }
        let (client, last_response_end) = (self.client, &mut self.last_response_end);
        let recorder = None;
        let mut sink = ConnectionSink { service, texts, client, last_response_end, recorder };
        match u16::try_from(packet.payload.len()) {
            Ok(length) if is_whole => {
                let message = [&length.to_be_bytes(), packet.payload].concat();
                self.observer.read(direction, time, &message, &mut sink);
            }
            _ => self.observer.skip(direction, packet.payload_bytes + 2, &mut sink),
        }
    }

    /// Ends the observer.
    fn end(&mut self, service: &mut ServiceStatistics, texts: &mut StatementTexts) {
        let (client, last_response_end) = (self.client, &mut self.last_response_end);
        let recorder = None;
        let mut sink = ConnectionSink { service, texts, client, last_response_end, recorder };
        self.observer.end(&mut sink);
    }

    /// Updates `total`, the memory of all observers.
    fn count_memory(&mut self, total: &mut usize) {
        *total -= self.observer_bytes;
        self.observer_bytes = self.observer.memory();
        *total += self.observer_bytes;
    }
}
