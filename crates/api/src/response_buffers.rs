//! Response buffers: bytes of responses not yet read by clients, bounded per connection and in
//! total.
//!
//! A response counts from its creation until the memory of its last chunk is freed. A body that is
//! shared by all clients does not count. A large response that does not fit is rejected with 429;
//! the next request of a connection waits while too many bytes of it are unread. Small responses
//! are always admitted: a sender must get its acknowledgement.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;

/// Memory of a response beside its body: the request, headers, an HTTP/2 stream.
pub(crate) const RESPONSE_OVERHEAD_BYTES: usize = 4 << 10;
/// Responses up to this size are always admitted.
const TINY_BYTES: usize = 4 << 10;
/// Responses up to this size may use the share reserved for small ones.
const SMALL_BYTES: usize = 64 << 10;
/// Share of all bytes (one of this many parts) reserved for small responses.
const SMALL_SHARE: usize = 8;
/// Share of all bytes that may be unread on one connection before its next request waits.
const CONNECTION_SHARE: usize = 4;
/// While others use no more than this share, one response may take all free bytes.
const BUSY_SHARE: usize = 16;

/// Maximum bytes of one response, for a total of `bytes_max`.
pub(crate) fn response_bytes_max(bytes_max: usize) -> usize {
    large_bytes_max(bytes_max).saturating_sub(RESPONSE_OVERHEAD_BYTES)
}

fn large_bytes_max(bytes_max: usize) -> usize {
    bytes_max - bytes_max / SMALL_SHARE
}

/// Marker of a response whose body is shared by all clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedBody;

/// Response bytes buffered for all connections.
#[derive(Debug)]
pub(crate) struct ResponseBuffers {
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl ResponseBuffers {
    pub(crate) fn new(bytes_max: usize) -> Arc<ResponseBuffers> {
        Arc::new(ResponseBuffers { bytes: AtomicUsize::new(0), bytes_max })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether only tiny responses fit.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() >= self.bytes_max
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether a response fits beside the unread ones. If many bytes are unread, a large response
    /// gets at most half of the free ones, so that clients that do not read leave space for smaller
    /// responses.
    fn has_capacity(&self, used: usize, bytes: usize) -> bool {
        if bytes <= TINY_BYTES {
            return true;
        }
        let max = match bytes > SMALL_BYTES {
            true => large_bytes_max(self.bytes_max),
            false => self.bytes_max,
        };
        let free = max.saturating_sub(used);
        let charged = bytes.saturating_add(RESPONSE_OVERHEAD_BYTES);
        match bytes > SMALL_BYTES && used > max / BUSY_SHARE {
            true => charged <= free / 2,
            false => charged <= free,
        }
    }
}

/// Response bytes buffered for one connection.
#[derive(Debug)]
pub(crate) struct ConnectionResponseBuffers {
    all: Arc<ResponseBuffers>,
    bytes: AtomicUsize,
    /// Notified when bytes are released.
    released: Notify,
}

impl ConnectionResponseBuffers {
    pub(crate) fn new(all: &Arc<ResponseBuffers>) -> Arc<ConnectionResponseBuffers> {
        let (all, bytes, taken) = (Arc::clone(all), AtomicUsize::new(0), Notify::new());
        Arc::new(ConnectionResponseBuffers { all, bytes, released: taken })
    }

    /// Waits until few enough bytes are unread to handle a further request.
    pub(crate) async fn wait_ready(&self) {
        loop {
            // Registered first, so that a release after the check is not missed.
            let notification = self.released.notified();
            if self.bytes.load(Ordering::Relaxed) < self.all.bytes_max / CONNECTION_SHARE {
                return;
            }
            notification.await;
        }
    }

    /// Reserves the bytes of a response, if it fits.
    // Relaxed: the counters guard no other memory.
    pub(crate) fn reserve(
        self: &Arc<ConnectionResponseBuffers>,
        bytes: usize,
    ) -> Option<BufferedResponse> {
        let charged = bytes.saturating_add(RESPONSE_OVERHEAD_BYTES);
        let all = &self.all;
        let previous = all.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            all.has_capacity(used, bytes).then(|| used.saturating_add(charged))
        });
        previous.ok()?;
        self.bytes.fetch_add(charged, Ordering::Relaxed);
        Some(BufferedResponse { connection: Arc::clone(self), charged })
    }
}

/// One buffered response.
#[derive(Debug)]
pub(crate) struct BufferedResponse {
    connection: Arc<ConnectionResponseBuffers>,
    charged: usize,
}

impl BufferedResponse {
    /// Counts the bytes of the response until all their slices are freed.
    pub(crate) fn track(self: &Arc<BufferedResponse>, bytes: Bytes) -> Bytes {
        Bytes::from_owner(TrackedBytes { bytes, _response: Arc::clone(self) })
    }
}

impl Drop for BufferedResponse {
    fn drop(&mut self) {
        self.connection.all.bytes.fetch_sub(self.charged, Ordering::Relaxed);
        self.connection.bytes.fetch_sub(self.charged, Ordering::Relaxed);
        self.connection.released.notify_waiters();
    }
}

struct TrackedBytes {
    bytes: Bytes,
    _response: Arc<BufferedResponse>,
}

impl AsRef<[u8]> for TrackedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    const MIB: usize = 1 << 20;

    fn reserve(
        connection: &Arc<ConnectionResponseBuffers>,
        bytes: usize,
    ) -> Option<Arc<BufferedResponse>> {
        connection.reserve(bytes).map(Arc::new)
    }

    #[test]
    fn response_counts_until_its_last_chunk_is_dropped() {
        let all = ResponseBuffers::new(16 * MIB);
        let connection = ConnectionResponseBuffers::new(&all);
        let answer = reserve(&connection, MIB).unwrap();
        let mut bytes = answer.track(Bytes::from(vec![1; MIB]));
        drop(answer);
        let piece = bytes.split_to(10);
        drop(bytes);
        assert_eq!(all.bytes(), MIB + RESPONSE_OVERHEAD_BYTES);
        drop(piece);
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn slow_readers_leave_capacity_for_others() {
        let all = ResponseBuffers::new(128 * MIB);
        let mut unread = Vec::new();
        for _ in 0..150 {
            unread.extend(reserve(&ConnectionResponseBuffers::new(&all), 12 * MIB));
        }
        assert!(all.bytes() <= 112 * MIB, "{}", all.bytes());
        let other = ConnectionResponseBuffers::new(&all);
        assert!(reserve(&other, 5 * MIB).is_some());
        assert!(reserve(&other, SMALL_BYTES).is_some());
        unread.clear();
        assert_eq!(all.bytes(), 0);
        assert!(reserve(&other, response_bytes_max(128 * MIB)).is_some());
        assert!(reserve(&other, response_bytes_max(128 * MIB) + 1).is_none());
    }

    #[test]
    fn tiny_responses_are_always_admitted() {
        let all = ResponseBuffers::new(MIB);
        let connection = ConnectionResponseBuffers::new(&all);
        let mut unread = Vec::new();
        while !all.is_full() {
            unread.extend(reserve(&connection, TINY_BYTES));
        }
        assert!(reserve(&connection, TINY_BYTES + 1).is_none());
        assert!(reserve(&connection, TINY_BYTES).is_some());
    }

    #[test]
    fn request_waits_while_its_connection_buffer_is_full() {
        let all = ResponseBuffers::new(4 * MIB);
        let (connection, other) =
            (ConnectionResponseBuffers::new(&all), ConnectionResponseBuffers::new(&all));
        let answer = reserve(&connection, MIB).unwrap();
        let mut ready = pin!(connection.wait_ready());
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(ready.as_mut().poll(cx).is_pending());
        assert!(pin!(other.wait_ready()).poll(cx).is_ready());
        drop(answer);
        assert!(ready.as_mut().poll(cx).is_ready());
    }
}
