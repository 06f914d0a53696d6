//! A TCP connection: both streams, the observer of its protocol, and times of the transport.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use protocol::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, ObservedRequest, ObserverState, PacketTime,
};

use crate::packet::{Packet, TcpFlags};
use crate::request_log::{ConnectionRecorder, RequestLog};
use crate::service::{ConnectionSink, ServiceStatistics};
use crate::statement_texts::StatementTexts;
use crate::stream::{BufferMemory, PayloadSegment, SegmentKind, StreamAssembler, StreamSink};
use crate::stream_marks::ConnectionMarks;
use crate::tls_decryption::TlsDecryptor;

/// Implausible segments in a row after which a connection is taken as a new one: the ports were
/// used again, and its SYN was not captured.
const IMPLAUSIBLE_MAX: u8 = 3;

pub(crate) struct TcpConnection {
    /// Index of its service.
    pub(crate) service: usize,
    pub(crate) server: SocketAddr,
    client: IpAddr,
    to_server: StreamAssembler,
    to_client: StreamAssembler,
    /// Created with the first payload.
    observer: Option<Box<dyn ConnectionObserver>>,
    state: ObserverState,
    handshake: Handshake,
    acknowledgement: AcknowledgementTimer,
    last_response_end: Option<PacketTime>,
    implausible: u8,
    /// Bytes of implausible segments, which are of the connection that may follow.
    ignored: IgnoredBytes,
    /// Memory of the observer after the last packet.
    observer_bytes: usize,
    /// Only while requests are recorded.
    marks: Option<Box<ConnectionMarks>>,
}

/// Packets that open a connection.
#[derive(Default)]
struct Handshake {
    /// First SYN of the client, and its sequence number.
    syn: Option<(PacketTime, u32)>,
    /// SYN of the server, and its sequence number.
    reply: Option<(PacketTime, u32)>,
    is_repeated: bool,
    is_complete: bool,
}

/// A segment of the server that waits for its acknowledgement.
#[derive(Default)]
struct AcknowledgementTimer {
    /// Sequence number behind the segment, and its time.
    pending: Option<(u32, PacketTime)>,
}

/// Sequence numbers behind the bytes of both directions that were captured but not read.
#[derive(Clone, Copy, Default)]
pub(crate) struct IgnoredBytes {
    to_server: Option<u32>,
    to_client: Option<u32>,
}

/// What belongs to all connections.
pub(crate) struct ConnectionContext<'a> {
    pub(crate) service: &'a mut ServiceStatistics,
    pub(crate) memory: &'a mut BufferMemory,
    pub(crate) texts: &'a mut StatementTexts,
    /// Only while requests are recorded.
    pub(crate) log: Option<&'a mut RequestLog>,
}

/// Fields of a TCP packet.
#[derive(Clone, Copy)]
pub(crate) struct TcpPacket<'a> {
    pub(crate) time: PacketTime,
    pub(crate) direction: FlowDirection,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) flags: TcpFlags,
    pub(crate) packet: &'a Packet<'a>,
}

/// What becomes of a connection after a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionFate {
    Open,
    Closed,
    /// The packet starts another connection with the same addresses.
    Replaced,
}

impl TcpConnection {
    pub(crate) fn new(service: usize, server: SocketAddr, client: IpAddr) -> TcpConnection {
        TcpConnection {
            service,
            server,
            client,
            to_server: StreamAssembler::default(),
            to_client: StreamAssembler::default(),
            observer: None,
            state: ObserverState::Synchronized,
            handshake: Handshake::default(),
            acknowledgement: AcknowledgementTimer::default(),
            last_response_end: None,
            implausible: 0,
            ignored: IgnoredBytes::default(),
            observer_bytes: 0,
            marks: None,
        }
    }

    /// Records the requests of a connection that starts.
    pub(crate) fn record(&mut self, marks: ConnectionMarks) {
        self.marks = Some(Box::new(marks));
    }

    /// Reads a packet.
    pub(crate) fn read(
        &mut self,
        tcp: &TcpPacket<'_>,
        context: &mut ConnectionContext<'_>,
    ) -> ConnectionFate {
        if tcp.flags.contains(TcpFlags::SYN) {
            if !self.handshake.accepts(tcp) || !self.is_syn_of_this_connection(tcp) {
                return ConnectionFate::Replaced;
            }
            self.stream(tcp.direction).start(tcp.sequence.wrapping_add(1));
        }
        if tcp.flags.contains(TcpFlags::RST) {
            return self.read_reset(tcp, context);
        }
        if !self.is_plausible(tcp) {
            context.service.completeness.implausible_segments += 1;
            return if self.ignore(tcp) { ConnectionFate::Replaced } else { ConnectionFate::Open };
        }
        self.implausible = 0;
        self.ignored = IgnoredBytes::default();
        if tcp.flags.contains(TcpFlags::ACK) {
            self.read_acknowledgement(tcp, context);
        }
        self.read_payload(tcp, context);
        if self.to_server.is_complete() && self.to_client.is_complete() {
            self.end(context);
            return ConnectionFate::Closed;
        }
        ConnectionFate::Open
    }

    /// Reads a packet after the connection was closed. Returns whether it starts another one.
    pub(crate) fn read_closed(&mut self, tcp: &TcpPacket<'_>) -> bool {
        if tcp.flags.contains(TcpFlags::SYN) {
            return self.handshake.sequence(tcp.direction) != Some(tcp.sequence);
        }
        if !self.is_plausible(tcp) || self.is_alive(tcp) {
            return self.ignore(tcp);
        }
        // Other packets say nothing of a stream that may have gone on.
        if tcp.packet.payload_bytes > 0 && self.stream(tcp.direction).has_end() {
            self.implausible = 0;
            self.ignored = IgnoredBytes::default();
        }
        false
    }

    /// Whether a closed connection goes on: what closed it was sent by others, and the receiver has
    /// ignored it (RFC 5961).
    fn is_alive(&mut self, tcp: &TcpPacket<'_>) -> bool {
        let end = tcp.sequence.wrapping_add(tcp.packet.payload_bytes as u32);
        tcp.packet.payload_bytes > 0 && self.stream(tcp.direction).is_behind_end(end)
    }

    /// Counts an implausible segment. Returns whether it is of another connection.
    fn ignore(&mut self, tcp: &TcpPacket<'_>) -> bool {
        self.implausible = self.implausible.saturating_add(1);
        if self.implausible >= IMPLAUSIBLE_MAX && tcp.packet.payload_bytes > 0 {
            return true;
        }
        self.ignored.add(tcp);
        false
    }

    /// Bytes of the connection that replaces this one.
    pub(crate) fn ignored(&self) -> IgnoredBytes {
        self.ignored
    }

    /// Bytes that were captured before are not read when they are repeated: the time of their first
    /// packet is that of another connection.
    pub(crate) fn start_behind(&mut self, ignored: IgnoredBytes) {
        ignored.to_server.into_iter().for_each(|sequence| self.to_server.start(sequence));
        ignored.to_client.into_iter().for_each(|sequence| self.to_client.start(sequence));
    }

    /// Whether the connection cannot have had other bytes before this SYN.
    fn is_syn_of_this_connection(&mut self, tcp: &TcpPacket<'_>) -> bool {
        let first = tcp.sequence.wrapping_add(1);
        let repeats = self.handshake.sequence(tcp.direction) == Some(tcp.sequence);
        let stream = self.stream(tcp.direction);
        // A repeated SYN has the same number, whatever was sent since.
        repeats || stream.is_at_first_byte(first)
    }

    fn is_plausible(&self, tcp: &TcpPacket<'_>) -> bool {
        let (own, opposite) = match tcp.direction {
            FlowDirection::ToServer => (&self.to_server, &self.to_client),
            FlowDirection::ToClient => (&self.to_client, &self.to_server),
        };
        let has_acknowledgement = tcp.flags.contains(TcpFlags::ACK);
        own.is_plausible_segment(tcp.sequence)
            && (!has_acknowledgement || opposite.is_plausible_acknowledgement(tcp.acknowledgement))
    }

    fn stream(&mut self, direction: FlowDirection) -> &mut StreamAssembler {
        match direction {
            FlowDirection::ToServer => &mut self.to_server,
            FlowDirection::ToClient => &mut self.to_client,
        }
    }

    fn read_reset(
        &mut self,
        tcp: &TcpPacket<'_>,
        context: &mut ConnectionContext<'_>,
    ) -> ConnectionFate {
        let is_refusal = self.handshake.syn.is_some()
            && self.handshake.reply.is_none()
            && self.observer.is_none()
            && tcp.direction == FlowDirection::ToClient;
        if is_refusal {
            context.service.completeness.connections_refused += 1;
        } else if !self.stream(tcp.direction).is_plausible_segment(tcp.sequence) {
            context.service.completeness.implausible_segments += 1;
            return ConnectionFate::Open;
        }
        self.end(context);
        self.stream(tcp.direction).end_here();
        ConnectionFate::Closed
    }

    fn read_acknowledgement(&mut self, tcp: &TcpPacket<'_>, context: &mut ConnectionContext<'_>) {
        if tcp.direction == FlowDirection::ToServer && !tcp.flags.contains(TcpFlags::SYN) {
            if let Some(times) = self.handshake.complete(tcp) {
                context.service.connect.record(times.connect as f64);
                if let Some(round_trip) = times.round_trip {
                    context.service.round_trip.record(round_trip as f64);
                }
                self.record_handshake(context);
            }
            if let Some(time) = self.acknowledgement.stop(tcp) {
                context.service.acknowledgement.record(time as f64);
            }
        }
        let opposite = match tcp.direction {
            FlowDirection::ToServer => FlowDirection::ToClient,
            FlowDirection::ToClient => FlowDirection::ToServer,
        };
        self.stream(opposite).start(tcp.acknowledgement);
        self.with_feed(opposite, context, |stream, memory, feed| {
            stream.acknowledge(tcp.acknowledgement, memory, feed);
        });
    }

    fn read_payload(&mut self, tcp: &TcpPacket<'_>, context: &mut ConnectionContext<'_>) {
        let is_syn = tcp.flags.contains(TcpFlags::SYN);
        let segment = PayloadSegment {
            time: tcp.time,
            // Data in a SYN (TCP Fast Open) has the number behind it.
            sequence: tcp.sequence.wrapping_add(u32::from(is_syn)),
            payload: tcp.packet.payload,
            length: tcp.packet.payload_bytes,
            is_last: tcp.flags.contains(TcpFlags::FIN),
        };
        if segment.length == 0 && !segment.is_last {
            return;
        }
        context.service.completeness.payload_bytes += segment.length;
        let mut kind = SegmentKind::Empty;
        self.with_feed(tcp.direction, context, |stream, memory, feed| {
            kind = stream.segment(&segment, memory, feed);
        });
        let completeness = &mut context.service.completeness;
        completeness.retransmitted_segments += u64::from(kind == SegmentKind::Retransmitted);
        completeness.reordered_segments += u64::from(kind == SegmentKind::Reordered);
        if tcp.direction == FlowDirection::ToClient {
            self.acknowledgement.start(&segment, kind);
        }
        let is_disturbed = matches!(kind, SegmentKind::Retransmitted | SegmentKind::Reordered);
        if let Some(marks) = self.marks.as_mut().filter(|_| is_disturbed) {
            marks.note_reordering();
        }
    }

    fn record_handshake(&mut self, context: &mut ConnectionContext<'_>) {
        let Handshake { syn, reply, is_repeated, .. } = self.handshake;
        let recorder = self.recorder(context);
        if let (Some(mut recorder), Some(syn), Some(reply)) = (recorder, syn, reply) {
            recorder.record_handshake(syn, reply, is_repeated);
        }
    }

    fn recorder<'a>(
        &'a mut self,
        context: &'a mut ConnectionContext<'_>,
    ) -> Option<ConnectionRecorder<'a>> {
        let is_from_start = self.handshake.has_both_numbers();
        recorder(&mut self.marks, &mut context.log, self.service, is_from_start)
    }

    /// Calls `each` with the stream of a direction and the observer of its bytes.
    fn with_feed(
        &mut self,
        direction: FlowDirection,
        context: &mut ConnectionContext<'_>,
        each: impl FnOnce(&mut StreamAssembler, &mut BufferMemory, &mut ObserverFeed<'_>),
    ) {
        let stream = match direction {
            FlowDirection::ToServer => &mut self.to_server,
            FlowDirection::ToClient => &mut self.to_client,
        };
        let is_from_start = self.handshake.has_both_numbers();
        let recorder = recorder(&mut self.marks, &mut context.log, self.service, is_from_start);
        let mut feed = ObserverFeed {
            direction,
            is_from_start,
            observer: &mut self.observer,
            state: &mut self.state,
            sink: ConnectionSink {
                service: context.service,
                texts: context.texts,
                client: self.client,
                last_response_end: &mut self.last_response_end,
                recorder,
            },
        };
        each(stream, context.memory, &mut feed);
    }

    /// Delivers what is buffered and ends the observer.
    pub(crate) fn end(&mut self, context: &mut ConnectionContext<'_>) {
        for direction in [FlowDirection::ToServer, FlowDirection::ToClient] {
            self.with_feed(direction, context, |stream, memory, feed| stream.finish(memory, feed));
        }
        let is_from_start = self.handshake.has_both_numbers();
        if let Some(mut observer) = self.observer.take() {
            let mut sink = ConnectionSink {
                service: context.service,
                texts: context.texts,
                client: self.client,
                last_response_end: &mut self.last_response_end,
                recorder: recorder(&mut self.marks, &mut context.log, self.service, is_from_start),
            };
            match self.to_client.is_complete() {
                true => observer.end(&mut sink),
                false => observer.abandon(&mut sink),
            }
        }
        if let Some(mut recorder) = self.recorder(context) {
            recorder.end();
        }
    }

    /// Calls `each` with the requests without a complete response.
    pub(crate) fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        if let Some(observer) = &self.observer {
            observer.in_flight(each);
        }
    }

    /// Updates `total`, the memory of all observers, and returns the memory of this one.
    pub(crate) fn count_memory(&mut self, total: &mut usize) -> usize {
        *total -= self.observer_bytes;
        self.observer_bytes = self.observer.as_ref().map_or(0, |observer| observer.memory());
        *total += self.observer_bytes;
        self.observer_bytes
    }
}

impl IgnoredBytes {
    fn add(&mut self, tcp: &TcpPacket<'_>) {
        let end = tcp.sequence.wrapping_add(tcp.packet.payload_bytes as u32);
        let highest = match tcp.direction {
            FlowDirection::ToServer => &mut self.to_server,
            FlowDirection::ToClient => &mut self.to_client,
        };
        if highest.is_none_or(|highest| (end.wrapping_sub(highest) as i32) > 0) {
            *highest = Some(end);
        }
    }

    /// The same bytes, if client and server have changed places.
    pub(crate) fn exchanged(self) -> IgnoredBytes {
        IgnoredBytes { to_server: self.to_client, to_client: self.to_server }
    }
}

/// Times of a handshake, in nanoseconds.
struct HandshakeTimes {
    connect: u64,
    /// `None` if a packet was repeated, because it is unknown which one was answered.
    round_trip: Option<u64>,
}

impl Handshake {
    /// Notes a SYN. Returns whether it can be of this connection.
    fn accepts(&mut self, tcp: &TcpPacket<'_>) -> bool {
        let slot = match tcp.direction {
            FlowDirection::ToServer => &mut self.syn,
            FlowDirection::ToClient => &mut self.reply,
        };
        match slot {
            Some((_, sequence)) if *sequence == tcp.sequence => self.is_repeated = true,
            Some(_) => return false,
            None => *slot = Some((tcp.time, tcp.sequence)),
        }
        true
    }

    fn sequence(&self, direction: FlowDirection) -> Option<u32> {
        match direction {
            FlowDirection::ToServer => self.syn.map(|(_, sequence)| sequence),
            FlowDirection::ToClient => self.reply.map(|(_, sequence)| sequence),
        }
    }

    /// Whether the first bytes of both streams are known. The reply of the server acknowledges the
    /// SYN of the client, and so tells both.
    fn has_both_numbers(&self) -> bool {
        self.reply.is_some()
    }

    /// The client acknowledged. Returns the times of the handshake if that ends it.
    fn complete(&mut self, tcp: &TcpPacket<'_>) -> Option<HandshakeTimes> {
        let (syn, _) = self.syn?;
        let (_, reply) = self.reply?;
        if self.is_complete {
            return None;
        }
        self.is_complete = true;
        // A later acknowledgement is not that of the handshake, which was not captured.
        if tcp.acknowledgement != reply.wrapping_add(1) {
            return None;
        }
        let connect = tcp.time.checked_sub(syn)?;
        Some(HandshakeTimes { connect, round_trip: (!self.is_repeated).then_some(connect) })
    }
}

impl AcknowledgementTimer {
    fn start(&mut self, segment: &PayloadSegment<'_>, kind: SegmentKind) {
        match kind {
            SegmentKind::InOrder if self.pending.is_none() => {
                let end = segment.sequence.wrapping_add(segment.length as u32);
                self.pending = Some((end, segment.time));
            }
            // It is unknown which of both is acknowledged (Karn's algorithm).
            SegmentKind::Retransmitted | SegmentKind::Reordered => self.pending = None,
            SegmentKind::InOrder | SegmentKind::Empty => {}
        }
    }

    fn stop(&mut self, tcp: &TcpPacket<'_>) -> Option<u64> {
        let (end, time) = self.pending?;
        if (tcp.acknowledgement.wrapping_sub(end) as i32) < 0 {
            return None;
        }
        self.pending = None;
        tcp.time.checked_sub(time)
    }
}

fn recorder<'a>(
    marks: &'a mut Option<Box<ConnectionMarks>>,
    log: &'a mut Option<&mut RequestLog>,
    service: usize,
    is_from_start: bool,
) -> Option<ConnectionRecorder<'a>> {
    let (marks, log) = (marks.as_deref_mut()?, log.as_deref_mut()?);
    Some(ConnectionRecorder { marks, log, service, is_from_start })
}

/// Passes the bytes of one direction to the observer.
struct ObserverFeed<'a> {
    direction: FlowDirection,
    is_from_start: bool,
    observer: &'a mut Option<Box<dyn ConnectionObserver>>,
    state: &'a mut ObserverState,
    sink: ConnectionSink<'a>,
}

impl ObserverFeed<'_> {
    fn read(&mut self, time: PacketTime, bytes: &[u8]) {
        let service = &mut *self.sink.service;
        let observer = open_observer(self.observer, self.state, self.is_from_start, service);
        observer.read(self.direction, time, bytes, &mut self.sink);
        if let Some(recorder) = &mut self.sink.recorder
            && recorder.must_prune(self.direction)
        {
            let mut oldest: Option<PacketTime> = None;
            observer.in_flight(&mut |request| {
                oldest = Some(oldest.map_or(request.since, |time| time.min(request.since)));
            });
            recorder.prune(self.direction, oldest);
        }
        let state = observer.state();
        self.update_state(state, bytes.len() as u64);
    }

    /// Counts a change of the observer's state.
    fn update_state(&mut self, state: ObserverState, bytes: u64) {
        let completeness = &mut self.sink.service.completeness;
        if state != *self.state {
            completeness.count_state(state);
            *self.state = state;
        }
        if state == ObserverState::Encrypted {
            completeness.encrypted_bytes += bytes;
        }
    }
}

/// The observer of a connection, which is created with its first payload.
fn open_observer<'a>(
    observer: &'a mut Option<Box<dyn ConnectionObserver>>,
    state: &mut ObserverState,
    is_from_start: bool,
    service: &mut ServiceStatistics,
) -> &'a mut dyn ConnectionObserver {
    observer
        .get_or_insert_with(|| {
            let (start, count) = match is_from_start {
                true => (CaptureStart::FirstByte, &mut service.completeness.connections_from_start),
                false => {
                    (CaptureStart::Midstream, &mut service.completeness.connections_from_middle)
                }
            };
            *count += 1;
            let mut observer = (service.protocol.observer)(start);
            if let Some(keys) = &service.key_log {
                observer = Box::new(TlsDecryptor::new(Arc::clone(keys), observer, is_from_start));
            }
            *state = observer.state();
            observer
        })
        .as_mut()
}

impl StreamSink for ObserverFeed<'_> {
    fn bytes(&mut self, mut sequence: u32, time: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (part_bytes, part_time) = match &mut self.sink.recorder {
                Some(recorder) => recorder.mark(self.direction, sequence, time, bytes.len()),
                None => (bytes.len(), time),
            };
            let (part, rest) = bytes.split_at(part_bytes);
            self.read(part_time, part);
            (sequence, bytes) = (sequence.wrapping_add(part_bytes as u32), rest);
        }
    }

    fn missing(&mut self, count: u64) {
        let service = &mut *self.sink.service;
        service.completeness.gaps += 1;
        service.completeness.gap_bytes += count;
        let observer = open_observer(self.observer, self.state, self.is_from_start, service);
        observer.skip(self.direction, count, &mut self.sink);
        let state = observer.state();
        self.update_state(state, count);
    }
}
