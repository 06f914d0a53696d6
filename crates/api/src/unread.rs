//! Answers that clients have not taken yet: their bytes are bounded, for each connection and in
//! all.
//!
//! An answer counts from when it is made until the memory of its last piece is free. What is made
//! once for all who ask counts no bytes of its own. A large answer that does not fit is refused
//! with 429; the next request of a connection waits while too much is unread on it. Small answers
//! are always given: that something was stored has to be told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;

/// What an answer takes beside its bytes: the request, headers, a stream of HTTP/2.
pub(crate) const ANSWER_OVERHEAD_BYTES: usize = 4 << 10;
/// An answer of no more bytes is always given.
const TINY_BYTES: usize = 4 << 10;
/// An answer of no more bytes may take what is kept free of large ones.
const SMALL_BYTES: usize = 64 << 10;
/// The share of all bytes that is kept free for small answers.
const SMALL_SHARE: usize = 8;
/// The share of all bytes that may be unread on one connection before its next request waits.
const CONNECTION_SHARE: usize = 4;
/// While others have no more than this share, one answer may take all that is free.
const BUSY_SHARE: usize = 16;

/// As many bytes as one answer may have where so many are allowed in all.
pub(crate) fn answer_bytes_max(bytes_max: usize) -> usize {
    large_bytes_max(bytes_max).saturating_sub(ANSWER_OVERHEAD_BYTES)
}

fn large_bytes_max(bytes_max: usize) -> usize {
    bytes_max - bytes_max / SMALL_SHARE
}

/// Marks a response whose body is made once for all who ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedBody;

/// Unread answers of all connections.
#[derive(Debug)]
pub(crate) struct UnreadAnswers {
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl UnreadAnswers {
    pub(crate) fn new(bytes_max: usize) -> Arc<UnreadAnswers> {
        Arc::new(UnreadAnswers { bytes: AtomicUsize::new(0), bytes_max })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether there is room for tiny answers only.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() >= self.bytes_max
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether an answer fits beside what is unread. Where much is, a large one gets half of what
    /// is free at most, so that those who do not read leave room for who asks for less.
    fn fits(&self, used: usize, bytes: usize) -> bool {
        if bytes <= TINY_BYTES {
            return true;
        }
        let max = match bytes > SMALL_BYTES {
            true => large_bytes_max(self.bytes_max),
            false => self.bytes_max,
        };
        let free = max.saturating_sub(used);
        let charged = bytes.saturating_add(ANSWER_OVERHEAD_BYTES);
        match bytes > SMALL_BYTES && used > max / BUSY_SHARE {
            true => charged <= free / 2,
            false => charged <= free,
        }
    }
}

/// Unread answers of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionAnswers {
    all: Arc<UnreadAnswers>,
    bytes: AtomicUsize,
    /// Something was taken.
    taken: Notify,
}

impl ConnectionAnswers {
    pub(crate) fn new(all: &Arc<UnreadAnswers>) -> Arc<ConnectionAnswers> {
        let (all, bytes, taken) = (Arc::clone(all), AtomicUsize::new(0), Notify::new());
        Arc::new(ConnectionAnswers { all, bytes, taken })
    }

    /// Waits until so little is unread that a further request may be answered.
    pub(crate) async fn ready(&self) {
        loop {
            // Asked for first: what is taken from here on is told.
            let taken = self.taken.notified();
            if self.bytes.load(Ordering::Relaxed) < self.all.bytes_max / CONNECTION_SHARE {
                return;
            }
            taken.await;
        }
    }

    /// Counts an answer, if it fits.
    // Relaxed: the numbers guard no other memory.
    pub(crate) fn hold(self: &Arc<ConnectionAnswers>, bytes: usize) -> Option<UnreadAnswer> {
        let charged = bytes.saturating_add(ANSWER_OVERHEAD_BYTES);
        let all = &self.all;
        let held = all.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            all.fits(used, bytes).then(|| used.saturating_add(charged))
        });
        held.ok()?;
        self.bytes.fetch_add(charged, Ordering::Relaxed);
        Some(UnreadAnswer { connection: Arc::clone(self), charged })
    }
}

/// One answer that is not taken yet.
#[derive(Debug)]
pub(crate) struct UnreadAnswer {
    connection: Arc<ConnectionAnswers>,
    charged: usize,
}

impl UnreadAnswer {
    /// Bytes of the answer, which count until all their pieces are gone.
    pub(crate) fn count(self: &Arc<UnreadAnswer>, bytes: Bytes) -> Bytes {
        Bytes::from_owner(CountedBytes { bytes, _answer: Arc::clone(self) })
    }
}

impl Drop for UnreadAnswer {
    fn drop(&mut self) {
        self.connection.all.bytes.fetch_sub(self.charged, Ordering::Relaxed);
        self.connection.bytes.fetch_sub(self.charged, Ordering::Relaxed);
        self.connection.taken.notify_waiters();
    }
}

struct CountedBytes {
    bytes: Bytes,
    _answer: Arc<UnreadAnswer>,
}

impl AsRef<[u8]> for CountedBytes {
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

    fn hold(connection: &Arc<ConnectionAnswers>, bytes: usize) -> Option<Arc<UnreadAnswer>> {
        connection.hold(bytes).map(Arc::new)
    }

    #[test]
    fn an_answer_counts_until_its_last_piece_is_gone() {
        let all = UnreadAnswers::new(16 * MIB);
        let connection = ConnectionAnswers::new(&all);
        let answer = hold(&connection, MIB).unwrap();
        let mut bytes = answer.count(Bytes::from(vec![1; MIB]));
        drop(answer);
        let piece = bytes.split_to(10);
        drop(bytes);
        assert_eq!(all.bytes(), MIB + ANSWER_OVERHEAD_BYTES);
        drop(piece);
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn clients_that_do_not_read_leave_room_for_others() {
        let all = UnreadAnswers::new(128 * MIB);
        let mut unread = Vec::new();
        for _ in 0..150 {
            unread.extend(hold(&ConnectionAnswers::new(&all), 12 * MIB));
        }
        assert!(all.bytes() <= 112 * MIB, "{}", all.bytes());
        let other = ConnectionAnswers::new(&all);
        assert!(hold(&other, 5 * MIB).is_some());
        assert!(hold(&other, SMALL_BYTES).is_some());
        unread.clear();
        assert_eq!(all.bytes(), 0);
        assert!(hold(&other, answer_bytes_max(128 * MIB)).is_some());
        assert!(hold(&other, answer_bytes_max(128 * MIB) + 1).is_none());
    }

    #[test]
    fn tiny_answers_are_always_given() {
        let all = UnreadAnswers::new(MIB);
        let connection = ConnectionAnswers::new(&all);
        let mut unread = Vec::new();
        while !all.is_full() {
            unread.extend(hold(&connection, TINY_BYTES));
        }
        assert!(hold(&connection, TINY_BYTES + 1).is_none());
        assert!(hold(&connection, TINY_BYTES).is_some());
    }

    #[test]
    fn a_request_waits_while_too_much_is_unread_on_its_connection() {
        let all = UnreadAnswers::new(4 * MIB);
        let (connection, other) = (ConnectionAnswers::new(&all), ConnectionAnswers::new(&all));
        let answer = hold(&connection, MIB).unwrap();
        let mut ready = pin!(connection.ready());
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(ready.as_mut().poll(cx).is_pending());
        assert!(pin!(other.ready()).poll(cx).is_ready());
        drop(answer);
        assert!(ready.as_mut().poll(cx).is_ready());
    }
}
