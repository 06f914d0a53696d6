//! Fuzz checks of the observers: a script of reads and gaps, which the fuzzer invents.
//!
//! A script is a byte that says whether capture starts with the connection, then steps. A step is
//! a control byte, a length of two bytes (little-endian), and, unless it is a gap, that many bytes
//! of a connection. Bit 0 of the control byte is the direction, bit 1 a gap, bit 2 makes a gap
//! larger than any message.

use protocol::PROTOCOLS;
use protocol::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, NotMeasuredReason, ObservedProtocol,
    ObservedRequest, ObserverState, Operation, OperationSink, STATEMENT_BYTES_MAX,
};

/// Maximum heap of one observer: statements of requests in flight, prepared statements, and
/// messages that are incomplete.
pub(crate) const MEMORY_MAX: usize = 1 << 20;

/// Protocols whose responses have the id of their request.
const HAVE_IDS: [&str; 5] = ["kafka", "cassandra", "http2", "mongodb", "dns"];

/// Control byte of a step.
pub(crate) const TO_CLIENT: u8 = 1;
pub(crate) const GAP: u8 = 2;
const HUGE_GAP: u8 = 4;

/// The protocol of this name.
pub(crate) fn protocol(name: &str) -> &'static ObservedProtocol {
    PROTOCOLS.iter().find(|protocol| protocol.name == name).unwrap()
}

/// Runs a script against the observer of a protocol. Panics if an operation contradicts itself,
/// if the observer does not account for a request, or if its memory is unbounded.
pub(crate) fn observe(name: &str, script: &[u8]) {
    let Some((start, mut script)) = script.split_first() else { return };
    let start = if start % 2 == 0 { CaptureStart::FirstByte } else { CaptureStart::Midstream };
    let mut observer = (protocol(name).observer)(start);
    let mut sink = SanitySink::default();
    let mut time = 1;
    let mut read_bytes = 0;
    while let Some(([control, low, high], rest)) = script.split_first_chunk::<3>() {
        let length = u16::from_le_bytes([*low, *high]);
        let direction = if control & TO_CLIENT == 0 {
            FlowDirection::ToServer
        } else {
            FlowDirection::ToClient
        };
        sink.now = time;
        if control & GAP != 0 {
            let missing = u64::from(length) << if control & HUGE_GAP != 0 { 40 } else { 0 };
            observer.skip(direction, missing, &mut sink);
            script = rest;
        } else {
            let (bytes, rest) = rest.split_at(rest.len().min(usize::from(length)));
            observer.read(direction, time, bytes, &mut sink);
            read_bytes += bytes.len() as u64;
            script = rest;
        }
        time += 1;
        check_observer(name, observer.as_ref(), &mut sink);
    }
    observer.end(&mut sink);
    assert_eq!(
        check_observer(name, observer.as_ref(), &mut sink),
        0,
        "requests are left after the end"
    );
    assert!(sink.requests <= read_bytes, "{} requests in {read_bytes} bytes", sink.requests);
}

/// Returns the number of requests in flight.
fn check_observer(name: &str, observer: &dyn ConnectionObserver, sink: &mut SanitySink) -> u64 {
    assert!(observer.memory() <= MEMORY_MAX, "{} bytes", observer.memory());
    let mut in_flight = 0;
    observer.in_flight(&mut |request: ObservedRequest<'_>| {
        in_flight += 1;
        assert!(!request.verb.is_empty());
        assert!(request.statement.len() <= STATEMENT_BYTES_MAX);
        assert!(0 < request.since && request.since <= sink.now, "{request:?}");
    });
    // Ids match responses to requests even if one direction has lost its position.
    if observer.state() != ObserverState::Synchronized && !HAVE_IDS.contains(&name) {
        assert_eq!(in_flight, 0, "in flight in state {:?}", observer.state());
    }
    in_flight
}

/// Checks that times are in order and lengths in their limits.
#[derive(Default)]
struct SanitySink {
    now: u64,
    requests: u64,
}

impl OperationSink for SanitySink {
    fn operation(&mut self, operation: &Operation<'_>) {
        self.requests += 1;
        assert!(!operation.verb.is_empty(), "{operation:?}");
        assert!(operation.statement.len() <= STATEMENT_BYTES_MAX, "{operation:?}");
        let times = [operation.request_start, operation.request_end, operation.response_end];
        assert!(times.is_sorted() && times[0] > 0 && times[2] <= self.now, "{operation:?}");
        let response = operation.response_start..=operation.response_end;
        assert!(response.start() <= response.end(), "{operation:?}");
        assert!(operation.request_start <= operation.response_start, "{operation:?}");
    }

    fn not_measured(&mut self, requests: u64, _: NotMeasuredReason) {
        self.requests += requests;
    }

    fn unparsed(&mut self, _: FlowDirection, _: u64) {}
}
