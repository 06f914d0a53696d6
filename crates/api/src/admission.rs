//! Admission of queries: which are worked on now, and whose turn is next.
//!
//! There are two lanes, each with its own places, so that heavy queries do not keep light ones
//! waiting: status, metadata, and what reads little. In a lane, clients take turns: a client with
//! many waiting queries delays the first one of another client by one turn at most. Where the most
//! that may wait do, the client with most of them loses its newest.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// Who asks: whose queries take turns with those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClientId {
    /// Nobody in particular: topdeck itself.
    #[default]
    Internal,
    /// The holder of a token, by its name.
    Token(String),
    /// The other end of a connection. Without a token it is on this host, where all have one
    /// address: the port tells clients apart.
    Peer(SocketAddr),
}

/// Where a query waits and works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// What reads little.
    Light,
    /// Everything else.
    Heavy,
}

impl Lane {
    pub(crate) const ALL: [Lane; 2] = [Lane::Light, Lane::Heavy];

    /// How metrics name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Lane::Light => "light",
            Lane::Heavy => "heavy",
        }
    }
}

/// As many wait as may, and none of another client has more of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// Who works and who waits, by lane.
pub(crate) struct Admission {
    lanes: [Mutex<Queue>; 2],
    waiting_max: usize,
}

/// A lane.
struct Queue {
    /// Places in which nobody works.
    free: usize,
    working: usize,
    waiting: usize,
    /// Clients with waiting queries; the turn is the first one's.
    clients: VecDeque<(ClientId, VecDeque<Waiter>)>,
    /// The number of the next query that waits.
    next: u64,
}

struct Waiter {
    number: u64,
    place: oneshot::Sender<Result<Place, QueueFull>>,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("waiting_max", &self.waiting_max).finish_non_exhaustive()
    }
}

impl Admission {
    /// With so many places in the lanes, and so many that wait for one in each.
    pub(crate) fn new(light: usize, heavy: usize, waiting_max: usize) -> Arc<Admission> {
        let queue = |places: usize| {
            let clients = VecDeque::new();
            Mutex::new(Queue { free: places.max(1), working: 0, waiting: 0, clients, next: 0 })
        };
        Arc::new(Admission { lanes: [queue(light), queue(heavy)], waiting_max })
    }

    fn queue(&self, lane: Lane) -> MutexGuard<'_, Queue> {
        self.lanes[lane as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many work in a lane, and how many wait.
    pub(crate) fn counts(&self, lane: Lane) -> (usize, usize) {
        let queue = self.queue(lane);
        (queue.working, queue.waiting)
    }

    /// A place in a lane, when it is this client's turn.
    pub(crate) fn enter(
        self: &Arc<Admission>,
        lane: Lane,
        client: &ClientId,
    ) -> Result<Waiting, QueueFull> {
        let mut queue = self.queue(lane);
        let (sender, place) = oneshot::channel();
        let number = queue.next;
        queue.next += 1;
        if queue.free > 0 {
            queue.free -= 1;
            queue.working += 1;
            // The receiver is here.
            let _ = sender.send(Ok(Place { admission: Some(Arc::clone(self)), lane }));
        } else {
            if queue.waiting >= self.waiting_max {
                queue.make_room(client)?;
            }
            queue.push(client, Waiter { number, place: sender });
        }
        Ok(Waiting { place, admission: Arc::clone(self), lane, number })
    }

    /// A place became free: the next one has it.
    fn hand_on(self: &Arc<Admission>, lane: Lane) {
        let mut queue = self.queue(lane);
        while let Some(waiter) = queue.pop() {
            let place = Place { admission: Some(Arc::clone(self)), lane };
            match waiter.place.send(Ok(place)) {
                Ok(()) => return,
                // Nobody waits any more. The place is not given back a second time.
                Err(place) => drop(place.map(|mut place| place.admission.take())),
            }
        }
        queue.free += 1;
        queue.working -= 1;
    }
}

impl Queue {
    fn push(&mut self, client: &ClientId, waiter: Waiter) {
        self.waiting += 1;
        match self.clients.iter_mut().find(|(known, _)| known == client) {
            Some((_, waiters)) => waiters.push_back(waiter),
            None => self.clients.push_back((client.clone(), VecDeque::from([waiter]))),
        }
    }

    /// The one whose turn it is.
    fn pop(&mut self) -> Option<Waiter> {
        let (client, mut waiters) = self.clients.pop_front()?;
        let waiter = waiters.pop_front();
        if !waiters.is_empty() {
            self.clients.push_back((client, waiters));
        }
        self.waiting -= usize::from(waiter.is_some());
        waiter
    }

    /// Sends the newest of the client away that has most waiting, if these are more than `client`
    /// would have.
    fn make_room(&mut self, client: &ClientId) -> Result<(), QueueFull> {
        let own = self.clients.iter().find(|(known, _)| known == client);
        let own = own.map_or(0, |(_, waiters)| waiters.len());
        let most = self.clients.iter_mut().max_by_key(|(_, waiters)| waiters.len());
        let (_, waiters) = most.filter(|(_, waiters)| waiters.len() > own + 1).ok_or(QueueFull)?;
        if let Some(newest) = waiters.pop_back() {
            self.waiting -= 1;
            // If it is gone, it need not be told.
            drop(newest.place.send(Err(QueueFull)));
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
        self.waiting -= before - after;
    }
}

/// A query that waits for its turn. Dropped, it waits no more.
pub(crate) struct Waiting {
    place: oneshot::Receiver<Result<Place, QueueFull>>,
    admission: Arc<Admission>,
    lane: Lane,
    number: u64,
}

impl Future for Waiting {
    type Output = Result<Place, QueueFull>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // A sender is dropped only with the queue, of which this has a part.
        Pin::new(&mut self.place).poll(cx).map(|place| place.unwrap_or(Err(QueueFull)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.admission.queue(self.lane).remove(self.number);
        // A place that came meanwhile is given back with the receiver, when the lock is free again.
    }
}

/// A place in a lane. Dropped, it is the next one's.
#[derive(Debug)]
pub(crate) struct Place {
    /// None once it is somebody else's.
    admission: Option<Arc<Admission>>,
    lane: Lane,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(admission) = self.admission.take() {
            admission.hand_on(self.lane);
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

    /// The place, if it is there.
    fn now(waiting: &mut Waiting) -> Option<Result<Place, QueueFull>> {
        match Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => Some(place),
            Poll::Pending => None,
        }
    }

    /// In which order waiting queries of these clients get the one place.
    #[track_caller]
    fn check(asked: &[&str], expected: &[&str]) {
        let admission = Admission::new(1, 1, 1000);
        let mut first = admission.enter(Lane::Heavy, &client("first")).unwrap();
        let mut place = now(&mut first).unwrap().unwrap();
        let mut waiting: Vec<(&str, Waiting)> = asked
            .iter()
            .map(|name| (*name, admission.enter(Lane::Heavy, &client(name)).unwrap()))
            .collect();
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(place);
            let ready = waiting
                .iter_mut()
                .enumerate()
                .find_map(|(at, (_, waiting))| Some((at, now(waiting)?.unwrap())));
            let (at, next) = ready.expect("a place is free");
            order.push(waiting.remove(at).0);
            place = next;
        }
        assert_eq!(order, expected);
        drop(place);
        assert_eq!(admission.counts(Lane::Heavy), (0, 0));
    }

    #[test]
    fn clients_take_turns() {
        check(&["a", "a", "a", "b"], &["a", "b", "a", "a"]);
        check(&["a", "a", "b", "b", "c"], &["a", "b", "c", "a", "b"]);
    }

    #[test]
    fn a_client_with_200_waiting_queries_delays_another_one_by_one_turn() {
        let asked: Vec<&str> = [&["many"; 200][..], &["one"]].concat();
        let expected: Vec<&str> = [&["many", "one"][..], &["many"; 199]].concat();
        check(&asked, &expected);
    }

    #[test]
    fn heavy_queries_take_no_place_of_light_ones() {
        let admission = Admission::new(1, 1, 10);
        let mut heavy = admission.enter(Lane::Heavy, &client("a")).unwrap();
        let _place = now(&mut heavy).unwrap().unwrap();
        assert!(now(&mut admission.enter(Lane::Heavy, &client("b")).unwrap()).is_none());
        let mut light = admission.enter(Lane::Light, &client("b")).unwrap();
        let light = now(&mut light).unwrap().unwrap();
        assert_eq!(admission.counts(Lane::Light), (1, 0));
        drop(light);
        assert_eq!(admission.counts(Lane::Light), (0, 0));
    }

    #[test]
    fn who_has_most_waiting_queries_loses_the_newest() {
        let admission = Admission::new(1, 1, 3);
        let enter = |name| admission.enter(Lane::Heavy, &client(name));
        let place = now(&mut enter("a").unwrap()).unwrap().unwrap();
        let mut many: Vec<Waiting> = (0..3).map(|_| enter("many").unwrap()).collect();
        assert!(matches!(enter("many"), Err(QueueFull)));
        let mut one = enter("one").unwrap();
        assert!(matches!(now(&mut many[2]), Some(Err(QueueFull))));
        assert!(now(&mut many[1]).is_none() && now(&mut one).is_none());
        // Now nobody has more than one beyond what another one would.
        assert!(matches!(enter("one"), Err(QueueFull)));
        assert_eq!(admission.counts(Lane::Heavy), (1, 3));
        drop(place);
        drop(now(&mut many[0]).unwrap().unwrap());
        assert!(now(&mut one).is_some());
    }

    #[test]
    fn who_waits_no_more_is_passed_over() {
        let admission = Admission::new(1, 1, 2);
        let enter = |name| admission.enter(Lane::Heavy, &client(name)).unwrap();
        let place = now(&mut enter("a")).unwrap().unwrap();
        let (gone, mut next) = (enter("b"), enter("c"));
        drop(gone);
        assert_eq!(admission.counts(Lane::Heavy), (1, 1));
        drop(place);
        assert!(now(&mut next).is_some());
        // One that has its place, and never looks at it, gives it back.
        let unseen = enter("d");
        drop(unseen);
        assert_eq!(admission.counts(Lane::Heavy), (0, 0));
    }
}
