//! What takes the place of a socket and of a runtime: bytes in memory, and a list of who has something to do.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection in memory. A clone is the other end of it.
#[derive(Clone, Default)]
pub(super) struct Pipe(Arc<Mutex<Bytes>>);

#[derive(Default)]
struct Bytes {
    come: Vec<u8>,
    /// How much of that has been read.
    read: usize,
    out: Vec<u8>,
}

impl Pipe {
    /// What is to be read.
    pub(super) fn give(&self, bytes: &[u8]) {
        let mut inside = lock(&self.0);
        if inside.read == inside.come.len() {
            inside.come.clear();
            inside.read = 0;
        }
        inside.come.extend_from_slice(bytes);
    }

    /// What was written.
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
        let rest = &inside.come[inside.read..];
        let taken = rest.len().min(buffer.remaining());
        if taken == 0 {
            // Nobody is woken by bytes: who gives them polls.
            return Poll::Pending;
        }
        buffer.put_slice(&rest[..taken]);
        inside.read += taken;
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

/// Who has something to do: streams by their places, and the connection.
#[derive(Default)]
pub(super) struct Wakes {
    streams: Mutex<Vec<usize>>,
    connection: AtomicBool,
}

impl Wakes {
    /// Wakes the stream at this place; without a place, the connection.
    pub(super) fn waker(self: &Arc<Wakes>, place: Option<usize>) -> Waker {
        Waker::from(Arc::new(Sleeper { wakes: self.clone(), place }))
    }

    /// As its waker does.
    pub(super) fn wake(&self, place: usize) {
        lock(&self.streams).push(place);
    }

    /// A stream that has something to do. One that was woken twice comes twice, and finds nothing.
    pub(super) fn next(&self) -> Option<usize> {
        lock(&self.streams).pop()
    }

    pub(super) fn is_connection_woken(&self) -> bool {
        self.connection.load(Ordering::Relaxed)
    }

    pub(super) fn connection_is_polled(&self) {
        self.connection.store(false, Ordering::Relaxed);
    }
}

struct Sleeper {
    wakes: Arc<Wakes>,
    place: Option<usize>,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match self.place {
            Some(place) => self.wakes.wake(place),
            None => self.wakes.connection.store(true, Ordering::Relaxed),
        }
    }
}

/// One thread at a time has a codec: nobody waits here, and nobody panics with the lock held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
