//! Query admission: permits per class, fair queueing by client.
//!
//! There are two classes with separate permits, so that heavy queries do not delay light ones:
//! status, metadata, and queries that read little. Within a class clients take turns: a client with
//! many queued queries delays the first query of another client by at most one turn. At the queue
//! limit, the client with the most queued queries loses its newest one. The number of running light
//! queries tells heavy ones when to leave the CPUs to them (`active_query.rs`).

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

/// Client identity for fair queueing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClientId {
    /// Topdeck itself.
    #[default]
    Internal,
    /// A token, by name.
    Token(String),
    /// A connection. Without a token it is a loopback connection, so all clients have the same
    /// address: the port distinguishes them.
    Peer(SocketAddr),
}

/// Class of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryClass {
    /// Queries that read little.
    Light,
    /// All other queries.
    Heavy,
}

impl QueryClass {
    pub(crate) const ALL: [QueryClass; 2] = [QueryClass::Light, QueryClass::Heavy];

    /// Value of the metrics' label `class`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            QueryClass::Light => "light",
            QueryClass::Heavy => "heavy",
        }
    }
}

/// Queue limit reached, and no other client has more queued queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// Query admission: running and queued queries per class.
pub(crate) struct QueryAdmission {
    classes: [Mutex<ClassQueue>; 2],
    /// Running queries of each class, to be read without its lock.
    running: [AtomicUsize; 2],
    /// Notified when no light query runs any more.
    light_ended: Condvar,
    max_queued: usize,
}

/// Queue of a class.
struct ClassQueue {
    /// Free permits.
    free_permits: usize,
    running: usize,
    queued: usize,
    /// Clients with queued queries; the first one is next.
    clients: VecDeque<(ClientId, VecDeque<QueuedWaiter>)>,
    /// Next sequence number of a queued query.
    next: u64,
}

struct QueuedWaiter {
    number: u64,
    permit: oneshot::Sender<Result<QueryPermit, QueueFull>>,
}

impl fmt::Debug for QueryAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("waiting_max", &self.max_queued).finish_non_exhaustive()
    }
}

impl QueryAdmission {
    /// With the permits of the classes, and the queue limit of each.
    pub(crate) fn new(light: usize, heavy: usize, waiting_max: usize) -> Arc<QueryAdmission> {
        let queue = |places: usize| {
            let clients = VecDeque::new();
            Mutex::new(ClassQueue {
                free_permits: places.max(1),
                running: 0,
                queued: 0,
                clients,
                next: 0,
            })
        };
        Arc::new(QueryAdmission {
            classes: [queue(light), queue(heavy)],
            running: Default::default(),
            light_ended: Condvar::new(),
            max_queued: waiting_max,
        })
    }

    fn lock_queue(&self, class: QueryClass) -> MutexGuard<'_, ClassQueue> {
        self.classes[class as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of running and of queued queries of a class.
    pub(crate) fn running_and_queued(&self, class: QueryClass) -> (usize, usize) {
        let queue = self.lock_queue(class);
        (queue.running, queue.queued)
    }

    /// Number of running queries of a class; it may have changed already.
    pub(crate) fn running(&self, class: QueryClass) -> usize {
        // Relaxed: the number orders nothing else.
        self.running[class as usize].load(Ordering::Relaxed)
    }

    /// Blocks while light queries run, at most for `timeout`.
    pub(crate) fn wait_for_light_queries(&self, timeout: Duration) {
        let queue = self.lock_queue(QueryClass::Light);
        let is_busy = |queue: &mut ClassQueue| queue.running > 0;
        let waited = self.light_ended.wait_timeout_while(queue, timeout, is_busy);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Adopts the number of running queries of a locked class.
    fn publish_running(&self, class: QueryClass, queue: &ClassQueue) {
        self.running[class as usize].store(queue.running, Ordering::Relaxed);
        if class == QueryClass::Light && queue.running == 0 {
            self.light_ended.notify_all();
        }
    }

    /// Queues for a permit of a class.
    pub(crate) fn enqueue(
        self: &Arc<QueryAdmission>,
        class: QueryClass,
        client: &ClientId,
    ) -> Result<QueuedQuery, QueueFull> {
        let mut queue = self.lock_queue(class);
        let (sender, ticket) = oneshot::channel();
        let number = queue.next;
        queue.next += 1;
        if queue.free_permits > 0 {
            queue.free_permits -= 1;
            queue.running += 1;
            self.publish_running(class, &queue);
            // The receiver exists: sending cannot fail.
            let _ = sender.send(Ok(QueryPermit { admission: Some(Arc::clone(self)), class }));
        } else {
            if queue.queued >= self.max_queued {
                queue.evict_for(client)?;
            }
            queue.push(client, QueuedWaiter { number, permit: sender });
        }
        Ok(QueuedQuery { permit: ticket, admission: Arc::clone(self), class, number })
    }

    /// Passes a free permit to the next query.
    fn release_permit(self: &Arc<QueryAdmission>, class: QueryClass) {
        let mut queue = self.lock_queue(class);
        while let Some(waiter) = queue.pop() {
            let permit = QueryPermit { admission: Some(Arc::clone(self)), class };
            match waiter.permit.send(Ok(permit)) {
                Ok(()) => return,
                // The waiter is gone. Dropping the returned permit must not release it twice.
                Err(permit) => drop(permit.map(|mut permit| permit.admission.take())),
            }
        }
        queue.free_permits += 1;
        queue.running -= 1;
        self.publish_running(class, &queue);
    }
}

impl ClassQueue {
    fn push(&mut self, client: &ClientId, waiter: QueuedWaiter) {
        self.queued += 1;
        match self.clients.iter_mut().find(|(known, _)| known == client) {
            Some((_, waiters)) => waiters.push_back(waiter),
            None => self.clients.push_back((client.clone(), VecDeque::from([waiter]))),
        }
    }

    /// Removes the next query.
    fn pop(&mut self) -> Option<QueuedWaiter> {
        let (client, mut waiters) = self.clients.pop_front()?;
        let waiter = waiters.pop_front();
        if !waiters.is_empty() {
            self.clients.push_back((client, waiters));
        }
        self.queued -= usize::from(waiter.is_some());
        waiter
    }

    /// Evicts the newest query of the client with the most queued queries, if it has more than
    /// `client` would have.
    fn evict_for(&mut self, client: &ClientId) -> Result<(), QueueFull> {
        let waiting = self.clients.iter().find(|(known, _)| known == client);
        let waiting = waiting.map_or(0, |(_, waiters)| waiters.len());
        let most = self.clients.iter_mut().max_by_key(|(_, waiters)| waiters.len());
        let (_, waiters) =
            most.filter(|(_, waiters)| waiters.len() > waiting + 1).ok_or(QueueFull)?;
        if let Some(newest) = waiters.pop_back() {
            self.queued -= 1;
            // Sending fails only if the waiter is gone.
            drop(newest.permit.send(Err(QueueFull)));
        }
        Ok(())
    }

    fn remove(&mut self, number: u64) {
        let before = self.clients.iter().map(|(_, waiters)| waiters.len()).sum::<usize>();
        for (_, waiters) in &mut self.clients {
            waiters.retain(|waiter| waiter.number != number);
        }
        self.clients.retain(|(_, waiters)| !waiters.is_empty());
        let after = self.clients.iter().map(|(_, waiters)| waiters.len()).sum::<usize>();
        self.queued -= before - after;
    }
}

/// A queued query; dropping it removes it from the queue.
pub(crate) struct QueuedQuery {
    permit: oneshot::Receiver<Result<QueryPermit, QueueFull>>,
    admission: Arc<QueryAdmission>,
    class: QueryClass,
    number: u64,
}

impl Future for QueuedQuery {
    type Output = Result<QueryPermit, QueueFull>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The queue owns the sender, and this value keeps the queue alive.
        Pin::new(&mut self.permit).poll(cx).map(|place| place.unwrap_or(Err(QueueFull)))
    }
}

impl Drop for QueuedQuery {
    fn drop(&mut self) {
        self.admission.lock_queue(self.class).remove(self.number);
        // A permit that arrived meanwhile is released with the receiver, after the lock.
    }
}

/// Permit of a class; on drop it goes to the next query.
#[derive(Debug)]
pub(crate) struct QueryPermit {
    /// `None` once it has been passed on.
    admission: Option<Arc<QueryAdmission>>,
    class: QueryClass,
}

impl Drop for QueryPermit {
    fn drop(&mut self) {
        if let Some(admission) = self.admission.take() {
            admission.release_permit(self.class);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn client(name: &str) -> ClientId {
        ClientId::Token(name.to_owned())
    }

    /// The permit, if it is available.
    fn try_permit(waiting: &mut QueuedQuery) -> Option<Result<QueryPermit, QueueFull>> {
        match Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => Some(place),
            Poll::Pending => None,
        }
    }

    /// Expects the order in which queued queries of these clients get the only permit.
    #[track_caller]
    fn check(asked: &[&str], expected: &[&str]) {
        let admission = QueryAdmission::new(1, 1, 1000);
        let mut first = admission.enqueue(QueryClass::Heavy, &client("first")).unwrap();
        let mut place = try_permit(&mut first).unwrap().unwrap();
        let mut waiting: Vec<(&str, QueuedQuery)> = asked
            .iter()
            .map(|name| (*name, admission.enqueue(QueryClass::Heavy, &client(name)).unwrap()))
            .collect();
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(place);
            let ready = waiting
                .iter_mut()
                .enumerate()
                .find_map(|(at, (_, waiting))| Some((at, try_permit(waiting)?.unwrap())));
            let (at, next) = ready.expect("a permit is free");
            order.push(waiting.remove(at).0);
            place = next;
        }
        assert_eq!(order, expected);
        drop(place);
        assert_eq!(admission.running_and_queued(QueryClass::Heavy), (0, 0));
    }

    #[test]
    fn clients_take_turns() {
        check(&["a", "a", "a", "b"], &["a", "b", "a", "a"]);
        check(&["a", "a", "b", "b", "c"], &["a", "b", "c", "a", "b"]);
    }

    #[test]
    fn client_with_200_queued_queries_delays_others_by_one_turn() {
        let asked: Vec<&str> = [&["many"; 200][..], &["one"]].concat();
        let expected: Vec<&str> = [&["many", "one"][..], &["many"; 199]].concat();
        check(&asked, &expected);
    }

    #[test]
    fn heavy_queries_use_no_light_permits() {
        let admission = QueryAdmission::new(1, 1, 10);
        let mut heavy = admission.enqueue(QueryClass::Heavy, &client("a")).unwrap();
        let _place = try_permit(&mut heavy).unwrap().unwrap();
        assert!(
            try_permit(&mut admission.enqueue(QueryClass::Heavy, &client("b")).unwrap()).is_none()
        );
        let mut light = admission.enqueue(QueryClass::Light, &client("b")).unwrap();
        let light = try_permit(&mut light).unwrap().unwrap();
        assert_eq!(admission.running_and_queued(QueryClass::Light), (1, 0));
        drop(light);
        assert_eq!(admission.running_and_queued(QueryClass::Light), (0, 0));
    }

    #[test]
    fn client_with_most_queued_queries_loses_the_newest() {
        let admission = QueryAdmission::new(1, 1, 3);
        let enter = |name| admission.enqueue(QueryClass::Heavy, &client(name));
        let place = try_permit(&mut enter("a").unwrap()).unwrap().unwrap();
        let mut many: Vec<QueuedQuery> = (0..3).map(|_| enter("many").unwrap()).collect();
        assert!(matches!(enter("many"), Err(QueueFull)));
        let mut one = enter("one").unwrap();
        assert!(matches!(try_permit(&mut many[2]), Some(Err(QueueFull))));
        assert!(try_permit(&mut many[1]).is_none() && try_permit(&mut one).is_none());
        // No client has more than one query more than another one would.
        assert!(matches!(enter("one"), Err(QueueFull)));
        assert_eq!(admission.running_and_queued(QueryClass::Heavy), (1, 3));
        drop(place);
        drop(try_permit(&mut many[0]).unwrap().unwrap());
        assert!(try_permit(&mut one).is_some());
    }

    #[test]
    fn wait_for_light_queries_ends_with_the_last_one() {
        let admission = QueryAdmission::new(2, 1, 10);
        let enter = || {
            let mut waiting = admission.enqueue(QueryClass::Light, &client("a")).unwrap();
            try_permit(&mut waiting).unwrap().unwrap()
        };
        let (first, second) = (enter(), enter());
        assert_eq!(admission.running(QueryClass::Light), 2);
        admission.wait_for_light_queries(Duration::ZERO);
        std::thread::scope(|scope| {
            scope.spawn(|| admission.wait_for_light_queries(Duration::MAX));
            drop(first);
            drop(second);
        });
        assert_eq!(admission.running(QueryClass::Light), 0);
    }

    #[test]
    fn dropped_queries_are_skipped() {
        let admission = QueryAdmission::new(1, 1, 2);
        let enter = |name| admission.enqueue(QueryClass::Heavy, &client(name)).unwrap();
        let place = try_permit(&mut enter("a")).unwrap().unwrap();
        let (gone, mut next) = (enter("b"), enter("c"));
        drop(gone);
        assert_eq!(admission.running_and_queued(QueryClass::Heavy), (1, 1));
        drop(place);
        assert!(try_permit(&mut next).is_some());
        // A query that is dropped without polling its permit releases it.
        let unseen = enter("d");
        drop(unseen);
        assert_eq!(admission.running_and_queued(QueryClass::Heavy), (0, 0));
    }
}
