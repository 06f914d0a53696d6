//! Sessions that are read at the TLS library: chunks of plaintext in, operations out.
//!
//! A session is the library's object in a process. Its socket tells the service and the role: the
//! end with a rule is the server, as for packets. Bytes before the socket is known are counted and
//! not measured. Chunks arrive in order; a hole in the positions is a gap.
//!
//! A byte that was read has the time at which the call returned. A request that a client writes
//! has the time at which it called the library, a response that a server writes that of the
//! return: encryption and the wait for the socket's buffer are part of the latency.
//!
//! If both processes of a connection are on this host, both report it. The server's report counts,
//! the client's is only counted by its bytes. The same end in two network namespaces are two
//! connections.
//!
//! The end of a session is that of the server's stream only if the server has shut the session down
//! and all that it wrote was seen. Otherwise the last response may have been cut.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use protocol::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, ObservedRequest, ObserverState, PacketTime,
};

use crate::connection_table::{ConnectionKey, ConnectionTable};
use crate::service::{ConnectionSink, ServiceStatistics, ServiceTable};
use crate::service_rule::ServiceTransport;
use crate::statement_texts::StatementTexts;
use crate::tls_event::{TlsEvent, TlsEventKind, TlsSocket};
use crate::tls_program::LOST_CALL;
use crate::tracker::LARGE_OBSERVER;

/// Protocols that start without encryption: the first message at the library is not that of the
/// protocol.
const LATE_TLS_PROTOCOLS: &[&str] = &["mysql"];
/// Sessions of one connection that are measured, in as many namespaces.
const MEASURED_MAX: usize = 8;

/// What was read at TLS libraries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsTotals {
    /// Sessions with plaintext.
    pub sessions: u64,
    /// Plaintext of all sessions.
    pub bytes: u64,
    /// Those of `bytes` before the socket of their session was known.
    pub without_socket_bytes: u64,
    /// Those of `bytes` whose socket has no service.
    pub without_service_bytes: u64,
    /// Those of `bytes` at clients whose server is read too.
    pub other_end_bytes: u64,
}

impl TlsTotals {
    /// Adds what was read in another interval.
    pub fn merge(&mut self, other: &TlsTotals) {
        self.sessions += other.sessions;
        self.bytes += other.bytes;
        self.without_socket_bytes += other.without_socket_bytes;
        self.without_service_bytes += other.without_service_bytes;
        self.other_end_bytes += other.other_end_bytes;
    }
}

/// Sessions of a capture.
pub(crate) struct TlsSessionTable {
    sessions: ConnectionTable<TlsSession>,
    /// Sessions that are measured, by the addresses of their connection.
    measured: HashMap<ConnectionKey, Vec<usize>>,
    totals: TlsTotals,
}

/// Limits and what belongs to all connections.
pub(crate) struct TlsContext<'a> {
    pub(crate) services: &'a mut ServiceTable,
    pub(crate) texts: &'a mut StatementTexts,
    pub(crate) sessions_max: usize,
    pub(crate) idle_timeout_ns: u64,
    /// Memory of the observers of sessions, and its limit.
    pub(crate) observer_bytes: &'a mut usize,
    pub(crate) observer_bytes_max: usize,
}

struct TlsSession {
    clock_epoch: u32,
    is_from_start: bool,
    socket: Option<TlsSocket>,
    /// Positions of the next bytes read and written; `None` before the first one of a session whose
    /// first bytes were not seen.
    next: [Option<u64>; 2],
    role: SessionRole,
    /// Bytes of the session were not passed to its observer.
    has_missed_bytes: bool,
}

/// What is known of a session.
enum SessionRole {
    /// Its socket is unknown, or has no service.
    Unknown,
    /// The other end is measured.
    OtherEnd,
    Measured(MeasuredSession),
}

struct MeasuredSession {
    /// Index of its service.
    service: usize,
    connection: ConnectionKey,
    namespace: u32,
    client: IpAddr,
    is_server: bool,
    is_from_start: bool,
    observer: Box<dyn ConnectionObserver>,
    state: ObserverState,
    /// Memory of the observer after the last event.
    observer_bytes: usize,
    last_response_end: Option<PacketTime>,
}

impl TlsSessionTable {
    pub(crate) fn new() -> TlsSessionTable {
        TlsSessionTable {
            sessions: ConnectionTable::new(),
            measured: HashMap::new(),
            totals: TlsTotals::default(),
        }
    }

    pub(crate) fn totals(&self) -> &TlsTotals {
        &self.totals
    }

    /// Removes the totals.
    pub(crate) fn take_totals(&mut self) -> TlsTotals {
        std::mem::take(&mut self.totals)
    }

    /// Sessions that are known.
    pub(crate) fn open_count(&self) -> usize {
        self.sessions.open_count()
    }

    /// Reads an event.
    pub(crate) fn read(
        &mut self,
        event: &TlsEvent<'_>,
        now: PacketTime,
        context: &mut TlsContext<'_>,
    ) {
        let key = ConnectionKey::of_session(event.process, event.session);
        let mut found = self.sessions.find(&key);
        if let Some(at) = found
            && (event.kind == TlsEventKind::End || self.sessions.get_mut(at).is_replaced(event))
        {
            let is_complete = self.sessions.get_mut(at).is_complete_at(event);
            self.remove(at, is_complete, context);
            found = None;
        }
        if event.kind == TlsEventKind::End {
            return;
        }
        self.totals.bytes += event.length % LOST_CALL;
        let at = found.unwrap_or_else(|| {
            self.evict(context);
            self.totals.sessions += 1;
            self.sessions.insert(key, TlsSession::new(event), now)
        });
        self.sessions.touch(at, now);
        self.find_role(at, event, context);
        self.deliver(at, event, context);
        self.limit_observer_memory(at, context);
    }

    /// Forgets sessions until the observers fit into their memory: the one that has grown, if it is
    /// large, or those without an event for longest.
    fn limit_observer_memory(&mut self, at: usize, context: &mut TlsContext<'_>) {
        let is_full =
            |context: &TlsContext<'_>| *context.observer_bytes > context.observer_bytes_max;
        let is_large = match &self.sessions.get_mut(at).role {
            SessionRole::Measured(measured) => measured.observer_bytes > LARGE_OBSERVER,
            SessionRole::Unknown | SessionRole::OtherEnd => false,
        };
        if is_full(context) && is_large {
            self.forget(at, context, |service| service.completeness.evicted_connections += 1);
        }
        while is_full(context) && self.open_count() > 0 {
            self.forget_oldest(context, |service| service.completeness.evicted_connections += 1);
        }
    }

    /// Determines service and role of a session by its socket.
    fn find_role(&mut self, at: usize, event: &TlsEvent<'_>, context: &mut TlsContext<'_>) {
        let session = self.sessions.get_mut(at);
        let (SessionRole::Unknown, Some(socket)) = (&session.role, event.socket) else { return };
        session.socket = Some(socket);
        let TlsSocket { local, remote, namespace } = socket;
        let Some((server, is_server)) = server_end(context.services, local, remote) else { return };
        let service = context.services.index(server, ServiceTransport::Tcp);
        let Some(service) = service else { return };
        let is_from_start = session.is_at_start() && event.is_from_start;
        let connection = ConnectionKey::new(local, remote);
        let others = self.measured.get(&connection).cloned().unwrap_or_default();
        let is_measured = others
            .iter()
            .all(|other| self.replace_end(*other, is_server, namespace, is_from_start, context));
        let ends = self.measured.entry(connection).or_default();
        if !is_measured || ends.len() >= MEASURED_MAX {
            self.sessions.get_mut(at).role = SessionRole::OtherEnd;
            return;
        }
        ends.push(at);
        let statistics = context.services.service_mut(service);
        statistics.completeness.library_sessions += 1;
        let session = self.sessions.get_mut(at);
        let is_late = LATE_TLS_PROTOCOLS.contains(&statistics.protocol.name);
        let start = match is_from_start && !is_late {
            true => CaptureStart::FirstByte,
            false => CaptureStart::Midstream,
        };
        let observer = (statistics.protocol.observer)(start);
        session.role = SessionRole::Measured(MeasuredSession {
            service,
            connection,
            namespace,
            client: if is_server { remote.ip() } else { local.ip() },
            is_server,
            is_from_start,
            state: observer.state(),
            observer,
            observer_bytes: 0,
            last_response_end: None,
        });
    }

    /// A second session of a connection that `other` measures. Returns whether it is measured:
    /// instead of the other one, if it is the server's or that of a later connection with the same
    /// addresses, or beside it, if it is the same end in another network namespace.
    fn replace_end(
        &mut self,
        other: usize,
        is_server: bool,
        namespace: u32,
        is_from_start: bool,
        context: &mut TlsContext<'_>,
    ) -> bool {
        let session = self.sessions.get_mut(other);
        let SessionRole::Measured(measured) = &session.role else { return true };
        let is_same_end = measured.is_server == is_server;
        if measured.is_server && !is_same_end {
            return false;
        }
        if is_same_end && measured.namespace != namespace {
            return true;
        }
        let role = std::mem::replace(&mut session.role, SessionRole::OtherEnd);
        let SessionRole::Measured(mut measured) = role else { return true };
        // The requests of a client that wait for their response are those that the server reads
        // now, if it reads all of them.
        let is_repeated = !is_same_end && is_from_start && measured.is_from_start;
        if !is_repeated {
            measured.end(false, context);
        }
        measured.forget_memory(context);
        self.forget_measured(&measured.connection, other);
        true
    }

    fn forget_measured(&mut self, connection: &ConnectionKey, at: usize) {
        if let Some(ends) = self.measured.get_mut(connection) {
            ends.retain(|other| *other != at);
            if ends.is_empty() {
                self.measured.remove(connection);
            }
        }
    }

    /// Passes the bytes of an event to the observer of its session.
    fn deliver(&mut self, at: usize, event: &TlsEvent<'_>, context: &mut TlsContext<'_>) {
        let session = self.sessions.get_mut(at);
        let missing = session.advance(event);
        let missing_other = session.advance_other(event);
        let totals = &mut self.totals;
        match &mut session.role {
            SessionRole::Unknown => {
                session.has_missed_bytes = true;
                match event.socket {
                    None => totals.without_socket_bytes += event.length % LOST_CALL,
                    Some(_) => totals.without_service_bytes += event.length % LOST_CALL,
                }
            }
            SessionRole::OtherEnd => totals.other_end_bytes += event.length % LOST_CALL,
            SessionRole::Measured(measured) => {
                measured.skip_other(event, missing_other, context);
                measured.read(event, missing, context);
            }
        }
    }

    /// Removes a session. `is_complete`: the process has shut it down, and all of it was seen.
    fn remove(&mut self, at: usize, is_complete: bool, context: &mut TlsContext<'_>) {
        let session = self.sessions.remove(at);
        if let SessionRole::Measured(mut measured) = session.role {
            self.forget_measured(&measured.connection, at);
            // A client may give up a session before the server's stream ends.
            measured.end(is_complete && measured.is_server, context);
            measured.forget_memory(context);
        }
    }

    /// Makes room for one more session.
    fn evict(&mut self, context: &mut TlsContext<'_>) {
        while self.open_count() >= context.sessions_max.max(1) {
            self.forget_oldest(context, |service| service.completeness.evicted_connections += 1);
        }
    }

    /// Forgets sessions that had no event for too long.
    pub(crate) fn expire(&mut self, now: PacketTime, context: &mut TlsContext<'_>) {
        while let Some((_, time)) = self.sessions.oldest_open()
            && time.saturating_add(context.idle_timeout_ns) < now
        {
            self.forget_oldest(context, |service| service.completeness.idle_connections += 1);
        }
    }

    fn forget_oldest(
        &mut self,
        context: &mut TlsContext<'_>,
        count: impl FnOnce(&mut ServiceStatistics),
    ) {
        if let Some((at, _)) = self.sessions.oldest_open() {
            self.forget(at, context, count);
        }
    }

    fn forget(
        &mut self,
        at: usize,
        context: &mut TlsContext<'_>,
        count: impl FnOnce(&mut ServiceStatistics),
    ) {
        let service = match &self.sessions.get_mut(at).role {
            SessionRole::Measured(measured) => Some(measured.service),
            SessionRole::Unknown | SessionRole::OtherEnd => None,
        };
        self.remove(at, false, context);
        if let Some(service) = service {
            count(context.services.service_mut(service));
        }
    }

    /// Services of all measured sessions.
    pub(crate) fn services_mut(&mut self) -> impl Iterator<Item = &mut usize> {
        self.sessions.all_mut().filter_map(|session| match &mut session.role {
            SessionRole::Measured(measured) => Some(&mut measured.service),
            SessionRole::Unknown | SessionRole::OtherEnd => None,
        })
    }

    /// Calls `each` with the service and the requests without a complete response.
    pub(crate) fn in_flight(&self, each: &mut dyn FnMut(usize, ObservedRequest<'_>)) {
        for session in self.sessions.open() {
            if let SessionRole::Measured(measured) = &session.role {
                measured.observer.in_flight(&mut |request| each(measured.service, request));
            }
        }
    }
}

/// The end with a rule, and whether it is the local one. If both have one, that with the lower
/// port, as for packets.
fn server_end(
    services: &ServiceTable,
    local: SocketAddr,
    remote: SocketAddr,
) -> Option<(SocketAddr, bool)> {
    let is_server = |address| services.is_server(address, ServiceTransport::Tcp);
    match (is_server(local), is_server(remote)) {
        (false, false) => None,
        (true, false) => Some((local, true)),
        (false, true) => Some((remote, false)),
        (true, true) if local.port() <= remote.port() => Some((local, true)),
        (true, true) => Some((remote, false)),
    }
}

impl TlsSession {
    fn new(event: &TlsEvent<'_>) -> TlsSession {
        let is_first = event.is_from_start && event.position == 0 && event.other_position == 0;
        let next = if is_first { Some(0) } else { None };
        TlsSession {
            clock_epoch: event.clock_epoch,
            is_from_start: event.is_from_start,
            socket: None,
            next: [next; 2],
            role: SessionRole::Unknown,
            has_missed_bytes: false,
        }
    }

    /// Whether no byte was passed over.
    fn is_at_start(&self) -> bool {
        !self.has_missed_bytes && self.next == [Some(0); 2]
    }

    fn next_mut(&mut self, kind: TlsEventKind) -> &mut Option<u64> {
        &mut self.next[usize::from(kind == TlsEventKind::Written)]
    }

    /// Whether the event is of another session at the same address, or after a step of the clock.
    fn is_replaced(&mut self, event: &TlsEvent<'_>) -> bool {
        event.clock_epoch != self.clock_epoch
            || event.is_from_start != self.is_from_start
            || (self.socket.is_some() && event.socket != self.socket)
            || self.next_mut(event.kind).is_some_and(|next| event.position < next)
    }

    /// Moves behind the event. Returns the size of the gap before it.
    fn advance(&mut self, event: &TlsEvent<'_>) -> u64 {
        let next = self.next_mut(event.kind);
        let missing = next.map_or(0, |next| event.position.saturating_sub(next));
        *next = Some(event.position.saturating_add(event.length));
        missing
    }

    /// Moves behind calls of the other direction whose bytes are unknown. Returns the size of the
    /// gap. Smaller distances are calls that are under way.
    fn advance_other(&mut self, event: &TlsEvent<'_>) -> u64 {
        let next = &mut self.next[usize::from(event.kind == TlsEventKind::Read)];
        let Some(next) = next else { return 0 };
        let distance = event.other_position.saturating_sub(*next);
        let missing = distance - distance % LOST_CALL;
        *next += missing;
        missing
    }

    /// Whether the session ends here, and all of it was seen.
    fn is_complete_at(&self, event: &TlsEvent<'_>) -> bool {
        let positions = [event.position, event.other_position];
        let is_seen = |(next, position): (&Option<u64>, u64)| next.unwrap_or(0) == position;
        event.kind == TlsEventKind::End
            && event.is_shut_down
            && event.clock_epoch == self.clock_epoch
            && event.is_from_start == self.is_from_start
            && self.next.iter().zip(positions).all(is_seen)
    }
}

impl MeasuredSession {
    fn read(&mut self, event: &TlsEvent<'_>, missing: u64, context: &mut TlsContext<'_>) {
        let is_to_server = (event.kind == TlsEventKind::Read) == self.is_server;
        let (direction, time) = match (is_to_server, event.kind) {
            (true, TlsEventKind::Written) => (FlowDirection::ToServer, event.start),
            (true, _) => (FlowDirection::ToServer, event.end),
            (false, _) => (FlowDirection::ToClient, event.end),
        };
        let service = context.services.service_mut(self.service);
        service.completeness.library_bytes += event.length % LOST_CALL;
        service.last_packet = service.last_packet.max(event.end);
        let (texts, client) = (&mut *context.texts, self.client);
        let last_response_end = &mut self.last_response_end;
        let recorder = None;
        let mut sink = ConnectionSink { service, texts, client, last_response_end, recorder };
        let cut = event.length - event.bytes.len() as u64;
        for step in [DeliveryStep::Gap(missing), DeliveryStep::Bytes, DeliveryStep::Gap(cut)] {
            match step {
                DeliveryStep::Gap(0) => {}
                DeliveryStep::Gap(missing) => {
                    sink.service.completeness.gaps += 1;
                    sink.service.completeness.gap_bytes += missing % LOST_CALL;
                    self.observer.skip(direction, missing, &mut sink);
                }
                DeliveryStep::Bytes if event.bytes.is_empty() => {}
                DeliveryStep::Bytes => self.observer.read(direction, time, event.bytes, &mut sink),
            }
        }
        let state = self.observer.state();
        if state != self.state {
            sink.service.completeness.count_state(state);
            self.state = state;
        }
        self.count_memory(context);
    }

    /// A gap in the other direction than the event's.
    fn skip_other(&mut self, event: &TlsEvent<'_>, missing: u64, context: &mut TlsContext<'_>) {
        if missing == 0 {
            return;
        }
        let is_to_server = (event.kind == TlsEventKind::Read) != self.is_server;
        let direction =
            if is_to_server { FlowDirection::ToServer } else { FlowDirection::ToClient };
        let service = context.services.service_mut(self.service);
        service.completeness.gaps += 1;
        let (texts, client) = (&mut *context.texts, self.client);
        let last_response_end = &mut self.last_response_end;
        let recorder = None;
        let mut sink = ConnectionSink { service, texts, client, last_response_end, recorder };
        self.observer.skip(direction, missing, &mut sink);
    }

    /// Ends the observer. `is_complete`: the server's stream has ended.
    fn end(&mut self, is_complete: bool, context: &mut TlsContext<'_>) {
        let service = context.services.service_mut(self.service);
        let last_response_end = &mut self.last_response_end;
        let (texts, client) = (&mut *context.texts, self.client);
        let recorder = None;
        let mut sink = ConnectionSink { service, texts, client, last_response_end, recorder };
        match is_complete {
            true => self.observer.end(&mut sink),
            false => self.observer.abandon(&mut sink),
        }
    }

    /// Updates the memory of all observers.
    fn count_memory(&mut self, context: &mut TlsContext<'_>) {
        self.forget_memory(context);
        self.observer_bytes = self.observer.memory();
        *context.observer_bytes += self.observer_bytes;
    }

    fn forget_memory(&mut self, context: &mut TlsContext<'_>) {
        *context.observer_bytes -= self.observer_bytes;
        self.observer_bytes = 0;
    }
}

/// Part of an event.
enum DeliveryStep {
    Gap(u64),
    Bytes,
}
