//! Plaintext of TLS libraries is measured as packets are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use observe::PacketSource;
use wire::{CaptureError, CapturedPacket, RingStatistics, TlsEvent, TlsEventKind, TlsSocket};

use crate::fixture::{WireFixture, wait};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;
const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: shop\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Requests to a server of one session, and no packets.
struct LibrarySource {
    requests: u64,
    /// Whether packets cannot be read.
    has_no_interface: bool,
    is_read: Arc<AtomicBool>,
}

impl PacketSource for LibrarySource {
    fn read(
        &mut self,
        timeout: Duration,
        _each: &mut dyn FnMut(&CapturedPacket<'_>),
    ) -> Result<bool, CaptureError> {
        std::thread::sleep(timeout.min(Duration::from_millis(1)));
        match self.has_no_interface {
            true => Err(no_interface()),
            false => Ok(false),
        }
    }

    fn statistics(&mut self) -> Result<RingStatistics, CaptureError> {
        Ok(RingStatistics::default())
    }

    fn read_tls(&mut self, each: &mut dyn FnMut(&TlsEvent<'_>)) -> Option<u64> {
        if !self.is_read.load(Ordering::SeqCst) {
            for request in 0..self.requests {
                let time = START + request * 1_000_000;
                each(&event(TlsEventKind::Read, time, request, REQUEST));
                each(&event(TlsEventKind::Written, time + 50_000, request, RESPONSE));
            }
            self.is_read.store(true, Ordering::SeqCst);
        }
        Some(7)
    }
}

fn no_interface() -> CaptureError {
    let cause = std::io::ErrorKind::NetworkDown.into();
    CaptureError::System { action: "read packets", cause }
}

/// A call with the bytes of this request, which returns at once.
fn event(kind: TlsEventKind, time: u64, request: u64, bytes: &[u8]) -> TlsEvent<'_> {
    let length = bytes.len() as u64;
    TlsEvent {
        process: 1,
        session: 0x1000,
        kind,
        start: time,
        end: time,
        position: request * length,
        other_position: 0,
        length,
        bytes,
        is_from_start: true,
        is_shut_down: false,
        socket: Some(TlsSocket {
            local: "10.0.0.2:443".parse().unwrap(),
            remote: "10.0.0.1:40000".parse().unwrap(),
            namespace: 1,
        }),
        clock_epoch: 0,
    }
}

#[test]
fn requests_have_latencies_and_sessions_are_counted() {
    check_requests(false);
}

#[test]
fn plaintext_is_measured_while_the_interface_is_down() {
    check_requests(true);
}

#[track_caller]
fn check_requests(has_no_interface: bool) {
    let fixture = WireFixture::new(Duration::from_secs(10));
    let is_read = Arc::new(AtomicBool::new(false));
    let source =
        Box::new(LibrarySource { requests: 30, has_no_interface, is_read: Arc::clone(&is_read) });
    let keys = "protocols = []\nservices = ['shop=443/http']";
    let capture = fixture.capture_source(keys, START, source);
    wait("the events are read", || is_read.load(Ordering::SeqCst));
    capture.stop().unwrap();
    let rows = fixture.contents();
    let latency = rows.distribution("wire_latency", &[("service", "shop")]);
    assert_eq!((latency.count(), latency.min().unwrap().estimate), (30, 50_000.0));
    let last = *rows.ends().last().unwrap();
    let bytes = 30 * (REQUEST.len() + RESPONSE.len());
    for (name, expected) in [
        ("wire_requests_total", 30),
        ("wire_measured_requests_total", 30),
        ("wire_tls_sessions_total", 1),
        ("wire_tls_bytes_total", bytes),
        ("wire_encrypted_connections_total", 0),
        ("wire_tls_unmeasured_bytes_total", 0),
        ("wire_tls_lost_events_total", 7),
    ] {
        assert_eq!(rows.number_at(last, name, &[]), expected as f64, "{name}");
    }
}
