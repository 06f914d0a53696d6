//! In-memory socket and list of woken streams: replacements for a socket and an async runtime.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// In-memory connection. Its two ends share it: one reads and writes it as a socket (`AsyncRead`,
/// `AsyncWrite`), the other one calls `give` and `take`.
#[derive(Clone, Default)]
pub(super) struct Pipe(Arc<Mutex<PipeBuffer>>);

#[derive(Default)]
struct PipeBuffer {
    received: Vec<u8>,
    /// Bytes already read.
    read: usize,
    out: Vec<u8>,
}

impl Pipe {
    /// Appends received bytes.
    pub(super) fn give(&self, bytes: &[u8]) {
        let mut inside = lock(&self.0);
        if inside.read == inside.received.len() {
            inside.received.clear();
            inside.read = 0;
        }
        inside.received.extend_from_slice(bytes);
    }

    /// Takes written bytes.
    pub(super) fn take(&self, out: &mut Vec<u8>) {
        out.append(&mut lock(&self.0).out);
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inside = lock(&self.0);
        let rest = &inside.received[inside.read..];
        let length = rest.len().min(buffer.remaining());
        if length == 0 {
            // No waker is needed: the caller that appends bytes also polls.
            return Poll::Pending;
        }
        buffer.put_slice(&rest[..length]);
        inside.read += length;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        lock(&self.0).out.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut inside = lock(&self.0);
        pieces.iter().for_each(|piece| inside.out.extend_from_slice(piece));
        Poll::Ready(Ok(pieces.iter().map(|piece| piece.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Woken streams by slot, in no order, and whether the connection was woken.
#[derive(Default)]
pub(super) struct WakeList {
    streams: Mutex<Vec<usize>>,
    connection: AtomicBool,
}

impl WakeList {
    /// Waker of the stream in this slot; without a slot, of the connection.
    pub(super) fn waker(self: &Arc<WakeList>, slot: Option<usize>) -> Waker {
        Waker::from(Arc::new(StreamWaker { list: self.clone(), slot }))
    }

    /// Wakes a stream.
    pub(super) fn wake(&self, slot: usize) {
        lock(&self.streams).push(slot);
    }

    /// Removes a woken stream, the last one first. A stream woken twice is returned twice; its
    /// second poll does nothing.
    pub(super) fn pop(&self) -> Option<usize> {
        lock(&self.streams).pop()
    }

    pub(super) fn is_connection_woken(&self) -> bool {
        self.connection.load(Ordering::Relaxed)
    }

    pub(super) fn clear_connection_wake(&self) {
        self.connection.store(false, Ordering::Relaxed);
    }
}

struct StreamWaker {
    list: Arc<WakeList>,
    slot: Option<usize>,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match self.slot {
            Some(slot) => self.list.wake(slot),
            None => self.list.connection.store(true, Ordering::Relaxed),
        }
    }
}

/// A codec is used by one thread at a time: the lock is never contended, and no thread panics while
/// it holds the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
