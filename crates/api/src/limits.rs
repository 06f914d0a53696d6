//! HTTP limits, rejection counters, body budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use intake::{EventCounter, Meter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::response_buffers;

/// HTTP limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum body size in bytes, compressed and decompressed: 16 MiB. Beyond it: 413.
    pub max_body_bytes: usize,
    /// Maximum memory in bytes of all bodies being read or handled, compressed, decompressed and
    /// for the decompressors: 256 MiB. Beyond it: 429.
    pub max_buffered_body_bytes: usize,
    /// Maximum bytes of all responses that clients have not read: 128 MiB. Beyond it: 429. One
    /// response may have seven eighths of it.
    pub max_buffered_response_bytes: usize,
    /// Timeout for reading a body: 60 s. Beyond it: 408.
    pub body_read_timeout: Duration,
    /// Maximum size of request line and headers in bytes: 64 KiB. Beyond it: 431. Minimum: 8 KiB.
    pub max_header_bytes: usize,
    /// Timeout for reading request line and headers, and for the TLS handshake: 10 s. Beyond it the
    /// connection is closed.
    pub header_read_timeout: Duration,
    /// Timeout until the response begins: 120 s. Beyond it: 503. Snapshots have no timeout.
    pub request_timeout: Duration,
    /// Timeout of a blocked write of a response: 60 s. Beyond it the connection is closed.
    pub write_timeout: Duration,
    /// Idle timeout of a connection: 5 minutes.
    pub idle_timeout: Duration,
    /// Maximum number of connections: 16,384. Further ones are closed at once.
    pub max_connections: usize,
    /// Maximum number of bodies decoded concurrently: two per CPU, as one may wait for the journal
    /// while another is decoded. Further ones wait.
    pub max_concurrent_decodes: usize,
}

impl Limits {
    /// Maximum bytes of one response.
    pub fn max_response_bytes(&self) -> usize {
        response_buffers::response_bytes_max(self.max_buffered_response_bytes)
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_body_bytes: 16 << 20,
            max_buffered_body_bytes: 256 << 20,
            max_buffered_response_bytes: 128 << 20,
            body_read_timeout: Duration::from_secs(60),
            max_header_bytes: 64 << 10,
            header_read_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(300),
            max_connections: 16_384,
            max_concurrent_decodes: 2 * std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// Reason of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectReason {
    BodyBytes,
    BufferedBodyBytes,
    BufferedResponseBytes,
    BodyReadTimeout,
    HeaderReadTimeout,
    RequestTimeout,
    WriteTimeout,
    Connections,
    /// `accept` failed for lack of a system resource: open files, memory.
    AcceptError,
    /// TLS handshake failed.
    Handshake,
    /// Missing or unknown token.
    Token,
    /// Token without the scope, or a cross-origin request of a browser: status 403.
    Forbidden,
}

impl RejectReason {
    const ALL: [(RejectReason, &'static str); 12] = [
        (RejectReason::BodyBytes, "max_body_bytes"),
        (RejectReason::BufferedBodyBytes, "max_buffered_body_bytes"),
        (RejectReason::BufferedResponseBytes, "max_buffered_response_bytes"),
        (RejectReason::BodyReadTimeout, "body_read_timeout"),
        (RejectReason::HeaderReadTimeout, "header_read_timeout"),
        (RejectReason::RequestTimeout, "request_timeout"),
        (RejectReason::WriteTimeout, "write_timeout"),
        (RejectReason::Connections, "max_connections"),
        (RejectReason::AcceptError, "accept_error"),
        (RejectReason::Handshake, "handshake"),
        (RejectReason::Token, "token"),
        (RejectReason::Forbidden, "forbidden"),
    ];
}

/// Rejection counters.
#[derive(Debug)]
pub(crate) struct RejectCounters([EventCounter; RejectReason::ALL.len()]);

impl RejectCounters {
    pub(crate) fn new(meter: &Meter) -> RejectCounters {
        RejectCounters(RejectReason::ALL.map(|(_, reason)| {
            let about = "Requests and connections rejected, by reason";
            meter.counter("topdeck_http_rejected_total", about, &[("reason", reason)])
        }))
    }

    pub(crate) fn count(&self, reason: RejectReason) {
        let at = RejectReason::ALL.iter().position(|known| known.0 == reason);
        self.0[at.expect("BUG: all reasons are listed")].add(1);
    }
}

/// Memory budget for request bodies.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    used: AtomicUsize,
    max: usize,
}

impl BodyBudget {
    pub(crate) fn new(max: usize) -> Arc<BodyBudget> {
        Arc::new(BodyBudget { used: AtomicUsize::new(0), max })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// Share of one request in the body budget; released on drop.
#[derive(Debug)]
pub(crate) struct BodyReservation {
    budget: Arc<BodyBudget>,
    bytes: AtomicUsize,
}

impl BodyReservation {
    pub(crate) fn new(budget: &Arc<BodyBudget>) -> BodyReservation {
        BodyReservation { budget: Arc::clone(budget), bytes: AtomicUsize::new(0) }
    }

    /// Reserves more bytes; `false` if they exceed the budget.
    // Relaxed: the counter guards no other memory.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let reserved =
            self.budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|&used| used <= self.budget.max)
            });
        if reserved.is_ok() {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        reserved.is_ok()
    }

    /// Releases some bytes.
    pub(crate) fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

/// Permits for concurrent decoding of bodies.
#[derive(Clone, Debug)]
pub(crate) struct DecodePermits(Arc<Semaphore>);

impl DecodePermits {
    pub(crate) fn new(max: usize) -> DecodePermits {
        DecodePermits(Arc::new(Semaphore::new(max)))
    }

    pub(crate) async fn acquire(&self) -> OwnedSemaphorePermit {
        let permit = Arc::clone(&self.0).acquire_owned().await;
        permit.expect("BUG: the semaphore is never closed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_budget_is_released() {
        let budget = BodyBudget::new(10);
        let (a, b) = (BodyReservation::new(&budget), BodyReservation::new(&budget));
        assert!(a.reserve(6) && b.reserve(4) && !a.reserve(1) && !b.reserve(usize::MAX));
        assert_eq!(budget.used(), 10);
        drop(a);
        assert!(b.reserve(6) && !b.reserve(1));
        b.release(2);
        assert!(b.reserve(2) && !b.reserve(1));
        drop(b);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn every_reason_has_a_counter() {
        let meter = Meter::default();
        let rejects = RejectCounters::new(&meter);
        RejectReason::ALL.iter().for_each(|&(why, _)| rejects.count(why));
        assert!(rejects.0.iter().all(|counter| counter.get() == 1));
    }
}
