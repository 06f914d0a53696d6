//! Queue of requests that are due and have not ended. A request waits for a connection in order of
//! its scheduled time, and is then in flight until it ends.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use slab::Slab;

use crate::codec::RequestId;
use crate::rendered_request::RenderedRequest;

/// Ended entries that `by_due` may hold, in addition to one per live entry.
const BY_DUE_SPARE: usize = 4_096;

pub(crate) struct InFlightRequest {
    pub(crate) due_ns: u64,
    /// Sequence number of the request in the run, from 1.
    pub(crate) ordinal: u64,
    /// 0 while it waits for a connection.
    pub(crate) sent_ns: u64,
    /// Key of the connection, or of the process of a command.
    pub(crate) connection: usize,
    /// Length of stalls while it waited for a connection.
    pub(crate) late_ns: u64,
    pub(crate) request: Arc<RenderedRequest>,
    /// Generation: tells it from earlier entries with the same ID.
    pub(crate) number: u64,
}

impl InFlightRequest {
    pub(crate) fn is_sent(&self) -> bool {
        self.sent_ns > 0
    }
}

/// All requests of a worker that have not ended.
#[derive(Default)]
pub(crate) struct InFlightQueue {
    all: Slab<InFlightRequest>,
    waiting: VecDeque<RequestId>,
    /// In order of scheduled time, which is the order of timeouts; contains some ended entries.
    by_due: VecDeque<(RequestId, u64)>,
    started: u64,
}

impl InFlightQueue {
    /// Adds a request that waits. Its scheduled time must not be before that of earlier ones.
    pub(crate) fn begin(&mut self, due_ns: u64, ordinal: u64, request: Arc<RenderedRequest>) {
        self.started += 1;
        let number = self.started;
        let (sent_ns, connection, late_ns) = (0, 0, 0);
        let entry =
            InFlightRequest { due_ns, ordinal, sent_ns, connection, late_ns, request, number };
        let request_id = self.all.insert(entry) as RequestId;
        self.waiting.push_back(request_id);
        self.by_due.push_back((request_id, number));
        // Ended entries behind one that does not end would otherwise stay until its timeout.
        if self.by_due.len() > 2 * self.all.len() + BY_DUE_SPARE {
            let all = &self.all;
            self.by_due.retain(|one| is_current(all, one));
        }
    }

    /// The longest waiting request.
    pub(crate) fn next_waiting(&self) -> Option<RequestId> {
        self.waiting.front().copied()
    }

    /// Marks the longest waiting request as sent on this connection.
    pub(crate) fn send_next(
        &mut self,
        sent_ns: u64,
        connection: usize,
    ) -> Option<&InFlightRequest> {
        let entry = &mut self.all[self.waiting.pop_front()? as usize];
        (entry.sent_ns, entry.connection) = (sent_ns, connection);
        Some(entry)
    }

    /// Removes a request. Of the waiting ones, only the first can end.
    pub(crate) fn end(&mut self, request_id: RequestId) -> InFlightRequest {
        if self.next_waiting() == Some(request_id) {
            self.waiting.pop_front();
        }
        self.all.remove(request_id as usize)
    }

    /// The request with the earliest scheduled time.
    pub(crate) fn oldest(&mut self) -> Option<(RequestId, &InFlightRequest)> {
        while self.by_due.pop_front_if(|one| !is_current(&self.all, one)).is_some() {}
        let request_id = self.by_due.front()?.0;
        Some((request_id, &self.all[request_id as usize]))
    }

    /// Records a stall: during it, the times at which waiting requests would have got a connection
    /// are unknown.
    pub(crate) fn mark_stall(&mut self, duration_ns: u64) {
        for request_id in &self.waiting {
            self.all[*request_id as usize].late_ns += duration_ns;
        }
    }

    /// Number of requests.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of requests ever added.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &InFlightRequest> {
        self.all.iter().map(|(_, entry)| entry)
    }
}

impl Index<RequestId> for InFlightQueue {
    type Output = InFlightRequest;

    fn index(&self, request_id: RequestId) -> &InFlightRequest {
        &self.all[request_id as usize]
    }
}

impl IndexMut<RequestId> for InFlightQueue {
    fn index_mut(&mut self, request_id: RequestId) -> &mut InFlightRequest {
        &mut self.all[request_id as usize]
    }
}

fn is_current(all: &Slab<InFlightRequest>, (request_id, number): &(RequestId, u64)) -> bool {
    all.get(*request_id as usize).is_some_and(|one| one.number == *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(count: u64) -> InFlightQueue {
        let mut queue = InFlightQueue::default();
        (1..=count).for_each(|due_ns| queue.begin(due_ns, due_ns, Arc::default()));
        queue
    }

    #[test]
    fn oldest_request_is_due_first() {
        let mut queue = started(3);
        let first = queue.next_waiting().unwrap();
        queue.send_next(10, 7);
        queue.end(first);
        // Its ID is reused.
        queue.begin(4, 4, Arc::default());
        let (request_id, oldest) = queue.oldest().unwrap();
        assert_eq!((oldest.due_ns, Some(request_id)), (2, queue.next_waiting()));
        assert_eq!((queue.len(), queue.waiting(), queue.started()), (3, 3, 4));
    }

    #[test]
    fn ended_requests_do_not_wait() {
        let mut queue = started(2);
        let request_id = queue.next_waiting().unwrap();
        assert!(!queue.end(request_id).is_sent());
        let next = queue.send_next(10, 7).unwrap();
        assert_eq!((next.due_ns, next.is_sent(), next.connection), (2, true, 7));
        assert_eq!((queue.len(), queue.waiting()), (1, 0));
    }

    /// A request that never ends does not retain ended ones.
    #[test]
    fn ended_requests_are_removed() {
        let mut queue = started(1);
        queue.send_next(1, 0);
        for due_ns in 2..20_000 {
            queue.begin(due_ns, due_ns, Arc::default());
            let request_id = queue.next_waiting().unwrap();
            queue.end(request_id);
        }
        assert_eq!(queue.oldest().unwrap().1.due_ns, 1);
        assert!(queue.by_due.len() <= BY_DUE_SPARE + 3, "{}", queue.by_due.len());
    }

    #[test]
    fn waiting_requests_are_late_after_a_stall() {
        let mut queue = started(2);
        queue.send_next(1, 0);
        queue.mark_stall(5);
        let late: Vec<u64> = queue.iter().map(|one| one.late_ns).collect();
        assert_eq!(late, [0, 5]);
    }
}
