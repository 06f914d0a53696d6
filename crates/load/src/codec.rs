//! Protocol codec of one connection, without I/O: turns requests into bytes and bytes into
//! completions. The caller owns sockets and time.

use crate::failure::Failure;
use crate::rendered_request::RenderedRequest;

/// Identifies a request in flight; chosen by the caller.
pub type RequestId = u32;

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request.
    pub request_id: RequestId,
    /// Reason if it failed.
    pub failure: Option<Failure>,
}

/// Client side of a protocol on one connection.
///
/// After an error the caller closes the connection and fails all its requests in flight; it calls
/// nothing else.
pub trait Codec: Send {
    /// Writes what the client sends first after connecting.
    fn open(&mut self, _out: &mut Vec<u8>) {}

    /// Number of requests that can be sent now, in addition to those in flight: 0 while not ready,
    /// or when no more are accepted.
    fn capacity(&self) -> usize;

    /// Whether no more requests are accepted because either side is closing. The caller closes the
    /// connection after the last request in flight.
    fn is_ending(&self) -> bool {
        false
    }

    /// Encodes a request. Requires capacity.
    fn send(&mut self, request: &RenderedRequest, request_id: RequestId, out: &mut Vec<u8>);

    /// Decodes received bytes and reports completions. Bytes to send to the server go to `out`.
    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Failure>;

    /// Handles end of stream. A response may end with it; the caller fails all other requests in
    /// flight.
    fn close(&mut self, _ended: &mut Vec<Completion>) {}

    /// Returns and clears the detail of the last failure of this kind, such as the server's error
    /// message.
    fn error_detail(&mut self, _failure: Failure) -> Option<String> {
        None
    }

    /// Cancels a request. Returns whether the connection can be reused; if not, the caller closes
    /// it.
    fn cancel(&mut self, _request: RequestId, _out: &mut Vec<u8>) -> bool {
        false
    }
}
