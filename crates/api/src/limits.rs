//! How much one may ask of the server, and what is counted where it is more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use intake::{Counter, Meter};

use crate::unread;

/// How much one may ask of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a body, as it comes and as it is unpacked: 16 MiB. Beyond, the answer is 413.
    pub body_bytes: usize,
    /// Bytes that all bodies take which are being read or worked on, as they come and unpacked, and
    /// what they are unpacked with: 256 MiB. Beyond, 429.
    pub bodies_bytes: usize,
    /// Bytes of all answers that clients have not taken yet: 128 MiB. Beyond, 429. One answer may
    /// have seven eighths of it.
    pub answers_bytes: usize,
    /// How long a body may take to come: 60 s. Beyond, 408.
    pub body_time: Duration,
    /// Bytes of a request's line and headers: 64 KiB. Beyond, 431. The least is 8 KiB.
    pub head_bytes: usize,
    /// How long a request's line and headers may take to come, and the beginning of TLS: 10 s. Then the connection ends.
    pub head_time: Duration,
    /// How long a request may take until its answer begins: 120 s. Beyond, 503. Snapshots take as long as they take.
    pub request_time: Duration,
    /// How long the other end may take nothing of an answer: 60 s. Then the connection ends.
    pub write_time: Duration,
    /// How long a connection is held on which nothing is asked: 5 minutes.
    pub idle_time: Duration,
    /// Connections at a time: 16,384. One more is closed at once.
    pub connections: usize,
    /// Bodies that are decoded at a time: two for each processor, as one waits for the journal while
    /// another is decoded. One more waits.
    pub decoding: usize,
}

impl Limits {
    /// As many bytes as one answer may have.
    pub fn answer_bytes_max(&self) -> usize {
        unread::answer_bytes_max(self.answers_bytes)
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: 16 << 20,
            bodies_bytes: 256 << 20,
            answers_bytes: 128 << 20,
            body_time: Duration::from_secs(60),
            head_bytes: 64 << 10,
            head_time: Duration::from_secs(10),
            request_time: Duration::from_secs(120),
            write_time: Duration::from_secs(60),
            idle_time: Duration::from_secs(300),
            connections: 16_384,
            decoding: 2 * std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// At which bound something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    BodyBytes,
    BodiesBytes,
    AnswersBytes,
    BodyTime,
    HeadTime,
    RequestTime,
    WriteTime,
    Connections,
    /// The system gave no more: open files, memory.
    Accept,
    /// TLS was not agreed on.
    Handshake,
    /// No token, or none that is known.
    Token,
    /// A token without the scope, or a web page.
    Forbidden,
}

impl Why {
    const ALL: [(Why, &'static str); 12] = [
        (Why::BodyBytes, "body_bytes"),
        (Why::BodiesBytes, "bodies_bytes"),
        (Why::AnswersBytes, "answers_bytes"),
        (Why::BodyTime, "body_time"),
        (Why::HeadTime, "head_time"),
        (Why::RequestTime, "request_time"),
        (Why::WriteTime, "write_time"),
        (Why::Connections, "connections"),
        (Why::Accept, "accept"),
        (Why::Handshake, "handshake"),
        (Why::Token, "token"),
        (Why::Forbidden, "forbidden"),
    ];
}

/// Counts what was refused.
#[derive(Debug)]
pub(crate) struct Refused([Counter; Why::ALL.len()]);

impl Refused {
    pub(crate) fn new(meter: &Meter) -> Refused {
        Refused(Why::ALL.map(|(_, why)| {
            let about = "requests and connections that were refused, by the bound they came to";
            meter.counter("topdeck_http_refused_total", about, &[("why", why)])
        }))
    }

    pub(crate) fn count(&self, why: Why) {
        let at = Why::ALL.iter().position(|known| known.0 == why);
        self.0[at.expect("BUG: all reasons are listed")].add(1);
    }
}

/// Room for bodies, of all requests together.
#[derive(Debug)]
pub(crate) struct Room {
    used: AtomicUsize,
    max: usize,
}

impl Room {
    pub(crate) fn new(max: usize) -> Arc<Room> {
        Arc::new(Room { used: AtomicUsize::new(0), max })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// What one request takes of the room; it gives it back at its end.
#[derive(Debug)]
pub(crate) struct Held {
    room: Arc<Room>,
    bytes: AtomicUsize,
}

impl Held {
    pub(crate) fn new(room: &Arc<Room>) -> Held {
        Held { room: Arc::clone(room), bytes: AtomicUsize::new(0) }
    }

    /// Takes more; whether there was as much.
    // Relaxed: the numbers guard no other memory.
    pub(crate) fn more(&self, bytes: usize) -> bool {
        let taken = self.room.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|&used| used <= self.room.max)
        });
        if taken.is_ok() {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    /// Gives some of it back.
    pub(crate) fn less(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.room.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.used.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_back() {
        let room = Room::new(10);
        let (a, b) = (Held::new(&room), Held::new(&room));
        assert!(a.more(6) && b.more(4) && !a.more(1) && !b.more(usize::MAX));
        assert_eq!(room.used(), 10);
        drop(a);
        assert!(b.more(6) && !b.more(1));
        b.less(2);
        assert!(b.more(2) && !b.more(1));
        drop(b);
        assert_eq!(room.used(), 0);
    }

    #[test]
    fn each_reason_has_its_counter() {
        let meter = Meter::default();
        let refused = Refused::new(&meter);
        Why::ALL.iter().for_each(|&(why, _)| refused.count(why));
        assert!(refused.0.iter().all(|counter| counter.get() == 1));
    }
}
