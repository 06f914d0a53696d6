//! Flights: requests that were due and have not ended. Each waits for a connection, in the order in which they were due, and then is
//! under way until it ends.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use slab::Slab;

use crate::codec::Ticket;
use crate::request::Rendered;

/// So many that have ended are kept in the order of all flights, beside as many as there are flights.
const BY_DUE_SPARE: usize = 4_096;

pub(crate) struct Flight {
    pub(crate) due_ns: u64,
    /// Which of all that are due in the run; the first is 1.
    pub(crate) ordinal: u64,
    /// 0 while it waits for a connection.
    pub(crate) sent_ns: u64,
    /// Or its process, where requests are commands.
    pub(crate) connection: usize,
    /// How long the worker stood still while it waited for a connection.
    pub(crate) late_ns: u64,
    pub(crate) request: Arc<Rendered>,
    /// How many were begun with it: tells it from others that had its ticket before.
    pub(crate) number: u64,
}

impl Flight {
    pub(crate) fn is_sent(&self) -> bool {
        self.sent_ns > 0
    }
}

/// All of a worker.
#[derive(Default)]
pub(crate) struct Flights {
    all: Slab<Flight>,
    waiting: VecDeque<Ticket>,
    /// In the order in which they were due, and so in which their time ends; with some that have ended.
    by_due: VecDeque<(Ticket, u64)>,
    begun: u64,
}

impl Flights {
    /// One begins, and waits. It is due later than all before it.
    pub(crate) fn begin(&mut self, due_ns: u64, ordinal: u64, request: Arc<Rendered>) {
        self.begun += 1;
        let number = self.begun;
        let (sent_ns, connection, late_ns) = (0, 0, 0);
        let flight = Flight { due_ns, ordinal, sent_ns, connection, late_ns, request, number };
        let ticket = self.all.insert(flight) as Ticket;
        self.waiting.push_back(ticket);
        self.by_due.push_back((ticket, number));
        // Behind one that does not end, those that have ended would stay until its time is over.
        if self.by_due.len() > 2 * self.all.len() + BY_DUE_SPARE {
            let all = &self.all;
            self.by_due.retain(|one| is_there(all, one));
        }
    }

    /// The one that waits for longest.
    pub(crate) fn next(&self) -> Option<Ticket> {
        self.waiting.front().copied()
    }

    /// The one that waits for longest is sent, on this connection.
    pub(crate) fn send_next(&mut self, sent_ns: u64, connection: usize) -> Option<&Flight> {
        let flight = &mut self.all[self.waiting.pop_front()? as usize];
        (flight.sent_ns, flight.connection) = (sent_ns, connection);
        Some(flight)
    }

    /// It has ended. Of those that wait only the one that waits for longest can.
    pub(crate) fn end(&mut self, ticket: Ticket) -> Flight {
        if self.next() == Some(ticket) {
            self.waiting.pop_front();
        }
        self.all.remove(ticket as usize)
    }

    /// The one that was due first.
    pub(crate) fn oldest(&mut self) -> Option<(Ticket, &Flight)> {
        while self.by_due.pop_front_if(|one| !is_there(&self.all, one)).is_some() {}
        let ticket = self.by_due.front()?.0;
        Some((ticket, &self.all[ticket as usize]))
    }

    /// Nobody knows when those that wait would have found a connection in this time.
    pub(crate) fn stood_still(&mut self, length_ns: u64) {
        for ticket in &self.waiting {
            self.all[*ticket as usize].late_ns += length_ns;
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many of them wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many there ever were.
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.all.iter().map(|(_, flight)| flight)
    }
}

impl Index<Ticket> for Flights {
    type Output = Flight;

    fn index(&self, ticket: Ticket) -> &Flight {
        &self.all[ticket as usize]
    }
}

impl IndexMut<Ticket> for Flights {
    fn index_mut(&mut self, ticket: Ticket) -> &mut Flight {
        &mut self.all[ticket as usize]
    }
}

fn is_there(all: &Slab<Flight>, (ticket, number): &(Ticket, u64)) -> bool {
    all.get(*ticket as usize).is_some_and(|one| one.number == *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(count: u64) -> Flights {
        let mut flights = Flights::default();
        (1..=count).for_each(|due_ns| flights.begin(due_ns, due_ns, Arc::default()));
        flights
    }

    #[test]
    fn the_oldest_is_the_one_that_was_due_first() {
        let mut flights = begun(3);
        let first = flights.next().unwrap();
        flights.send_next(10, 7);
        flights.end(first);
        // Its ticket is another's now.
        flights.begin(4, 4, Arc::default());
        let (ticket, oldest) = flights.oldest().unwrap();
        assert_eq!((oldest.due_ns, Some(ticket)), (2, flights.next()));
        assert_eq!((flights.len(), flights.waiting(), flights.begun()), (3, 3, 4));
    }

    #[test]
    fn what_ends_does_not_wait() {
        let mut flights = begun(2);
        let ticket = flights.next().unwrap();
        assert!(!flights.end(ticket).is_sent());
        let next = flights.send_next(10, 7).unwrap();
        assert_eq!((next.due_ns, next.is_sent(), next.connection), (2, true, 7));
        assert_eq!((flights.len(), flights.waiting()), (1, 0));
    }

    /// One that does not end keeps no others.
    #[test]
    fn those_that_have_ended_are_forgotten() {
        let mut flights = begun(1);
        flights.send_next(1, 0);
        for due_ns in 2..20_000 {
            flights.begin(due_ns, due_ns, Arc::default());
            let ticket = flights.next().unwrap();
            flights.end(ticket);
        }
        assert_eq!(flights.oldest().unwrap().1.due_ns, 1);
        assert!(flights.by_due.len() <= BY_DUE_SPARE + 3, "{}", flights.by_due.len());
    }

    #[test]
    fn who_waits_while_it_stood_still_is_late() {
        let mut flights = begun(2);
        flights.send_next(1, 0);
        flights.stood_still(5);
        let late: Vec<u64> = flights.iter().map(|one| one.late_ns).collect();
        assert_eq!(late, [0, 5]);
    }
}
