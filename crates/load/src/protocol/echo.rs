//! Echo over TCP: what is sent comes back, one request after the other.

use crate::failure::Failure;
use crate::request::Rendered;
use crate::session::{Ended, Session, Ticket};

/// One connection to a server that sends back what it gets.
#[derive(Default)]
pub(crate) struct Echo {
    ticket: Option<Ticket>,
    /// What must come back, and how much of it has.
    expected: Vec<u8>,
    come: usize,
}

impl Session for Echo {
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
        if !self.expected[self.come..].starts_with(bytes) || self.ticket.is_none() {
            return Err(Failure::Malformed);
        }
        self.come += bytes.len();
        if self.come == self.expected.len() {
            let ticket = self.ticket.take();
            ended.extend(ticket.map(|ticket| Ended { ticket, failure: None }));
        }
        Ok(())
    }
}
