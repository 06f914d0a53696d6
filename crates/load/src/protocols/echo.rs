//! Echo over TCP, one request at a time.

use crate::codec::{Codec, Completion, RequestId};
use crate::failure::Failure;
use crate::load_protocol::{LoadProtocol, ProtocolRow, ProtocolTarget, UrlScheme};
use crate::rendered_request::RenderedRequest;

/// The row of the table.
pub(super) const ROW: ProtocolRow = ProtocolRow {
    schemes: &[UrlScheme {
        name: "tcp",
        is_tls: false,
        default_port: None,
        help: Some("tcp (echo)"),
    }],
    has_credentials: false,
    body: None,
    argument: None,
    open: |url| Ok(ProtocolTarget::new(EchoProtocol, url.scheme)),
};

/// The server sends back what it receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EchoProtocol;

impl LoadProtocol for EchoProtocol {
    fn codec(&self) -> Box<dyn Codec> {
        Box::new(Echo::default())
    }

    fn check(&self, request: &RenderedRequest) -> Result<(), String> {
        request.refuse_arguments()?;
        request.refuse_headers()
    }
}

/// Codec of one connection.
#[derive(Default)]
pub(crate) struct Echo {
    request_id: Option<RequestId>,
    /// Bytes that must be echoed, and the number received so far.
    expected: Vec<u8>,
    received: usize,
}

impl Codec for Echo {
    fn capacity(&self) -> usize {
        usize::from(self.request_id.is_none())
    }

    fn send(&mut self, request: &RenderedRequest, request_id: RequestId, out: &mut Vec<u8>) {
        // An empty message has no echo.
        let body: &[u8] = if request.body.is_empty() { b"\n" } else { &request.body };
        out.extend_from_slice(body);
        self.expected.clear();
        self.expected.extend_from_slice(body);
        self.received = 0;
        self.request_id = Some(request_id);
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        _out: &mut Vec<u8>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Failure> {
        let rest = &self.expected[self.received..];
        let (mine, more) = bytes.split_at(bytes.len().min(rest.len()));
        if !rest.starts_with(mine) || self.request_id.is_none() {
            return Err(Failure::Malformed);
        }
        self.received += mine.len();
        if self.received == self.expected.len() {
            let request_id = self.request_id.take();
            completions
                .extend(request_id.map(|request_id| Completion { request_id, failure: None }));
        }
        // The request completed, whatever follows.
        if !more.is_empty() {
            return Err(Failure::Malformed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outcome of `ab` for these received pieces, and the number of completions.
    #[track_caller]
    fn check(pieces: &[&[u8]], expected: Result<(), Failure>, ends: usize) {
        let (mut codec, mut out, mut completions) = (Echo::default(), Vec::new(), Vec::new());
        codec.send(
            &RenderedRequest { body: b"ab".to_vec(), ..RenderedRequest::default() },
            7,
            &mut out,
        );
        let all = pieces.iter().try_for_each(|one| codec.receive(one, &mut out, &mut completions));
        assert_eq!((all, completions.len()), (expected, ends), "{pieces:?}");
    }

    #[test]
    fn echo_accepts_any_pieces() {
        check(&[b"ab"], Ok(()), 1);
        check(&[b"a", b"b"], Ok(()), 1);
        check(&[b"a"], Ok(()), 0);
        check(&[b"ac"], Err(Failure::Malformed), 0);
        // More than was sent: the request completed nevertheless.
        check(&[b"ab", b"b"], Err(Failure::Malformed), 1);
        check(&[b"abb"], Err(Failure::Malformed), 1);
    }
}
