//! A pool: the connections of a worker, which of them have room, and which are being made.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use slab::Slab;

use crate::connection::{Connection, Dial};
use crate::events::Events;

/// Connections that are being made at once, and have not taken longer than that.
const CONNECTING_MAX: usize = 64;
/// What takes longer keeps no others from being made: it may be that one of several addresses does not answer.
const CONNECTING_NS: u64 = 1_000_000_000;

#[derive(Default)]
pub(crate) struct Pool {
    all: Slab<Connection>,
    /// Those of them that never had room yet, and are not slow.
    connecting: usize,
    /// The same in the order in which they began, with some that had room or are closed; then those that are slow.
    young: VecDeque<Attempt>,
    slow: VecDeque<Attempt>,
    opened: usize,
    /// Those with room; some may have lost it.
    free: VecDeque<usize>,
}

/// A connection that was begun.
struct Attempt {
    key: usize,
    /// Tells it from others that had its key before.
    number: usize,
    began_ns: u64,
}

impl Pool {
    /// Begins to make one more.
    pub(crate) fn connect(&mut self, dial: &Dial, events: &Events) -> std::io::Result<()> {
        let number = self.opened;
        self.opened += 1;
        let connection = Connection::start(dial, number)?;
        let entry = self.all.vacant_entry();
        events.add(&connection, entry.key(), true)?;
        self.young.push_back(Attempt { key: entry.key(), number, began_ns: clock::now() });
        entry.insert(connection);
        self.connecting += 1;
        Ok(())
    }

    /// Whether one more is to be made for so many requests that wait: those in the making may be for them.
    pub(crate) fn has_too_few(&self, waiting: usize) -> bool {
        self.connecting < waiting.min(CONNECTING_MAX)
    }

    /// One with room for a request, the one that was idle for longest.
    pub(crate) fn with_room(&mut self) -> Option<usize> {
        while let Some(key) = self.free.pop_front() {
            if let Some(connection) = self.all.get_mut(key) {
                connection.is_listed = false;
                if connection.room() > 0 {
                    return Some(key);
                }
            }
        }
        None
    }

    /// Something was done with it: if it has room now, that is known of it.
    pub(crate) fn list(&mut self, key: usize) {
        let connection = &mut self.all[key];
        if !connection.is_listed && connection.room() > 0 {
            connection.is_listed = true;
            self.free.push_back(key);
            self.connecting -= usize::from(connection.is_awaited());
            connection.is_ready = true;
        }
    }

    /// Those that take long to get ready are no longer waited for; those that took as long as a request may, nobody waits for.
    pub(crate) fn age(&mut self, now: u64, timeout_ns: u64) {
        let is_old = |one: &Attempt, ns: u64| now >= one.began_ns.saturating_add(ns);
        while let Some(one) = self.young.pop_front_if(|one| is_old(one, CONNECTING_NS)) {
            if self.is_unready(&one) {
                self.all[one.key].is_slow = true;
                self.connecting -= 1;
                self.slow.push_back(one);
            }
        }
        while let Some(one) = self.slow.pop_front_if(|one| is_old(one, timeout_ns)) {
            if self.is_unready(&one) {
                // The request that it was made for has failed by now, and those that wait have time left.
                self.all.remove(one.key);
            }
        }
    }

    fn is_unready(&self, one: &Attempt) -> bool {
        let known = self.all.get(one.key);
        known.is_some_and(|known| known.number == one.number && !known.is_ready)
    }

    /// It is not one of them any more.
    pub(crate) fn remove(&mut self, key: usize) -> Connection {
        let connection = self.all.remove(key);
        self.connecting -= usize::from(connection.is_awaited());
        connection
    }

    /// Whether all have room.
    pub(crate) fn is_ready(&self) -> bool {
        self.all.iter().all(|(_, one)| one.room() > 0)
    }

    pub(crate) fn contains(&self, key: usize) -> bool {
        self.all.contains(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

impl Index<usize> for Pool {
    type Output = Connection;

    fn index(&self, key: usize) -> &Connection {
        &self.all[key]
    }
}

impl IndexMut<usize> for Pool {
    fn index_mut(&mut self, key: usize) -> &mut Connection {
        &mut self.all[key]
    }
}
