//! Connection pool of a worker: available connections and pending connects.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use slab::Slab;

use crate::connect_options::ConnectOptions;
use crate::connection::Connection;
use crate::poller::Poller;

/// Limit of concurrent connects that are younger than `CONNECTING_NS`.
const CONNECTING_MAX: usize = 64;
/// Older connects do not count against the limit: one of several addresses may not answer.
const CONNECTING_NS: u64 = 1_000_000_000;

#[derive(Default)]
pub(crate) struct Pool {
    all: Slab<Connection>,
    /// Connections that were never ready and are not slow.
    connecting: usize,
    /// The same in order of start, with some that are ready or closed by now; then the slow ones.
    recent: VecDeque<PendingConnect>,
    slow: VecDeque<PendingConnect>,
    opened: usize,
    /// Available connections; some may have lost their capacity.
    available: VecDeque<usize>,
}

/// A connect in progress.
struct PendingConnect {
    key: usize,
    /// Tells it from earlier connections with the same key.
    number: usize,
    start_ns: u64,
}

impl Pool {
    /// Starts a connect.
    pub(crate) fn connect(
        &mut self,
        options: &ConnectOptions,
        poller: &Poller,
    ) -> std::io::Result<()> {
        let number = self.opened;
        self.opened += 1;
        let connection = Connection::start(options, number)?;
        let entry = self.all.vacant_entry();
        poller.add(&connection, entry.key(), true)?;
        self.recent.push_back(PendingConnect { key: entry.key(), number, start_ns: clock::now() });
        entry.insert(connection);
        self.connecting += 1;
        Ok(())
    }

    /// Whether another connect is needed for this many waiting requests, given the pending ones.
    pub(crate) fn needs_connection(&self, waiting: usize) -> bool {
        self.connecting < waiting.min(CONNECTING_MAX)
    }

    /// Returns the connection with capacity that was idle for longest.
    pub(crate) fn take_available(&mut self) -> Option<usize> {
        while let Some(key) = self.available.pop_front() {
            if let Some(connection) = self.all.get_mut(key) {
                connection.is_available = false;
                if connection.capacity() > 0 {
                    return Some(key);
                }
            }
        }
        None
    }

    /// Adds a connection to the available ones if it has capacity.
    pub(crate) fn mark_available(&mut self, key: usize) {
        let connection = &mut self.all[key];
        if !connection.is_available && connection.capacity() > 0 {
            connection.is_available = true;
            self.available.push_back(key);
            self.connecting -= usize::from(connection.is_connecting());
            connection.is_ready = true;
        }
    }

    /// Connects older than `CONNECTING_NS` no longer count as pending; connects older than the
    /// request timeout are closed.
    pub(crate) fn expire_connects(&mut self, now: u64, timeout_ns: u64) {
        let is_old = |one: &PendingConnect, ns: u64| now >= one.start_ns.saturating_add(ns);
        while let Some(one) = self.recent.pop_front_if(|one| is_old(one, CONNECTING_NS)) {
            if self.is_unready(&one) {
                self.all[one.key].is_slow = true;
                self.connecting -= 1;
                self.slow.push_back(one);
            }
        }
        while let Some(one) = self.slow.pop_front_if(|one| is_old(one, timeout_ns)) {
            if self.is_unready(&one) {
                // The request that caused it has timed out; waiting requests still have time left.
                self.all.remove(one.key);
            }
        }
    }

    fn is_unready(&self, one: &PendingConnect) -> bool {
        let known = self.all.get(one.key);
        known.is_some_and(|known| known.number == one.number && !known.is_ready)
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, key: usize) -> Connection {
        let connection = self.all.remove(key);
        self.connecting -= usize::from(connection.is_connecting());
        connection
    }

    /// Whether all connections have capacity.
    pub(crate) fn is_ready(&self) -> bool {
        self.all.iter().all(|(_, one)| one.capacity() > 0)
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
