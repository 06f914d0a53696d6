//! Echo over TCP: what is sent comes back, one request after the other.

use crate::codec::{Codec, Ended, Ticket};
use crate::failure::Failure;
use crate::request::Rendered;

/// One connection to a server that sends back what it gets.
#[derive(Default)]
pub(crate) struct Echo {
    ticket: Option<Ticket>,
    /// What must come back, and how much of it has.
    expected: Vec<u8>,
    come: usize,
}

impl Codec for Echo {
    fn room(&self) -> usize {
        usize::from(self.ticket.is_none())
    }

    fn send(&mut self, request: &Rendered, ticket: Ticket, out: &mut Vec<u8>) {
        // Nothing could not come back.
        let body: &[u8] = if request.body.is_empty() { b"\n" } else { &request.body };
        out.extend_from_slice(body);
        self.expected.clear();
        self.expected.extend_from_slice(body);
        self.come = 0;
        self.ticket = Some(ticket);
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        _out: &mut Vec<u8>,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Failure> {
        let rest = &self.expected[self.come..];
        let (mine, more) = bytes.split_at(bytes.len().min(rest.len()));
        if !rest.starts_with(mine) || self.ticket.is_none() {
            return Err(Failure::Malformed);
        }
        self.come += mine.len();
        if self.come == self.expected.len() {
            let ticket = self.ticket.take();
            ended.extend(ticket.map(|ticket| Ended { ticket, failure: None }));
        }
        // It was answered, however much more follows.
        if !more.is_empty() {
            return Err(Failure::Malformed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of `ab` when this comes, and how many ended.
    #[track_caller]
    fn check(pieces: &[&[u8]], expected: Result<(), Failure>, ends: usize) {
        let (mut codec, mut out, mut ended) = (Echo::default(), Vec::new(), Vec::new());
        codec.send(&Rendered { body: b"ab".to_vec(), ..Rendered::default() }, 7, &mut out);
        let all = pieces.iter().try_for_each(|one| codec.receive(one, &mut out, &mut ended));
        assert_eq!((all, ended.len()), (expected, ends), "{pieces:?}");
    }

    #[test]
    fn what_was_sent_comes_back_in_any_pieces() {
        check(&[b"ab"], Ok(()), 1);
        check(&[b"a", b"b"], Ok(()), 1);
        check(&[b"a"], Ok(()), 0);
        check(&[b"ac"], Err(Failure::Malformed), 0);
        // More than was sent: it was answered all the same.
        check(&[b"ab", b"b"], Err(Failure::Malformed), 1);
        check(&[b"abb"], Err(Failure::Malformed), 1);
    }
}
