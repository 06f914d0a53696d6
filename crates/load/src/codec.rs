//! A codec: one connection's side of a protocol, without the connection. It turns requests into bytes and bytes into answers; when
//! bytes come and go, and what time it is, others know.

use crate::failure::Failure;
use crate::request::Rendered;

/// Which request an answer belongs to, as whoever sent it says.
pub type Ticket = u32;

/// A request that has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whose end it is.
    pub ticket: Ticket,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

/// One connection's side of a protocol.
///
/// After an error nothing more is asked of it: the connection is closed, and all that is under way on it has failed.
pub trait Codec: Send {
    /// What is said first, as soon as there is a connection.
    fn open(&mut self, _out: &mut Vec<u8>) {}

    /// How many requests it takes now, beside those that are under way: 0 while it is not ready, and when it takes no more at all.
    fn room(&self) -> usize;

    /// Whether it takes none any more, because its side or the other wants to end: the connection is closed when the last that is under
    /// way has ended.
    fn is_ending(&self) -> bool {
        false
    }

    /// Sends a request; there is room.
    fn send(&mut self, request: &Rendered, ticket: Ticket, out: &mut Vec<u8>);

    /// Takes what came, and tells what has ended by it. What must be said to the other side goes to `out`.
    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Failure>;

    /// The other side sends nothing more. An answer may end by that; all others that are under way have failed.
    fn close(&mut self, _ended: &mut Vec<Ended>) {}

    /// What is known of what failed last for this reason, such as what the other side said of it. Whoever asks takes it.
    fn words(&mut self, _failure: Failure) -> Option<String> {
        None
    }

    /// Nobody waits for this answer any more. Whether the codec can go on; if not, the connection is closed.
    fn abandon(&mut self, _ticket: Ticket, _out: &mut Vec<u8>) -> bool {
        false
    }
}
