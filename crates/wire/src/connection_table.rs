//! Connections by their two addresses, or sessions by their process, in the order of their last
//! packet, in a bounded table.
//!
//! Closed connections stay for a while, so that repeated segments of them do not look like new
//! connections; they are forgotten first.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use slab::Slab;

/// Closed connections that are remembered.
const CLOSED_MAX: usize = 16_384;

/// Both ends of a connection, independent of direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionKey {
    addresses: [u128; 2],
    ports: u32,
}

impl ConnectionKey {
    pub(crate) fn new(one: SocketAddr, other: SocketAddr) -> ConnectionKey {
        let number = |address: SocketAddr| match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let (a, b) = ((number(one), one.port()), (number(other), other.port()));
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        let ports = u32::from(low.1) << 16 | u32::from(high.1);
        ConnectionKey { addresses: [low.0, high.0], ports }
    }

    /// A session of a TLS library: the address of its object in a process. It is in another table
    /// than connections.
    pub(crate) fn of_session(process: u32, session: u64) -> ConnectionKey {
        ConnectionKey { addresses: [process.into(), session.into()], ports: 0 }
    }
}

/// Connections of type `C`.
pub(crate) struct ConnectionTable<C> {
    index: HashMap<ConnectionKey, usize>,
    entries: Slab<ConnectionEntry<C>>,
    open: EntryList,
    closed: EntryList,
}

struct ConnectionEntry<C> {
    key: ConnectionKey,
    connection: C,
    last_time: u64,
    is_closed: bool,
    older: Option<usize>,
    newer: Option<usize>,
}

/// Ends of a list of entries, and their number.
#[derive(Default)]
struct EntryList {
    oldest: Option<usize>,
    newest: Option<usize>,
    count: usize,
}

impl<C> ConnectionTable<C> {
    pub(crate) fn new() -> ConnectionTable<C> {
        ConnectionTable {
            index: HashMap::new(),
            entries: Slab::new(),
            open: EntryList::default(),
            closed: EntryList::default(),
        }
    }

    pub(crate) fn find(&self, key: &ConnectionKey) -> Option<usize> {
        self.index.get(key).copied()
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> &mut C {
        &mut self.entries[at].connection
    }

    /// Number of connections that are not closed.
    pub(crate) fn open_count(&self) -> usize {
        self.open.count
    }

    /// Adds a connection that is not in the table. Returns its index.
    pub(crate) fn insert(&mut self, key: ConnectionKey, connection: C, time: u64) -> usize {
        let at = self.entries.insert(ConnectionEntry {
            key,
            connection,
            last_time: time,
            is_closed: false,
            older: None,
            newer: None,
        });
        let replaced = self.index.insert(key, at);
        assert!(replaced.is_none(), "BUG: the connection was in the table");
        self.append(at);
        at
    }

    /// The connection has a packet at `time`.
    pub(crate) fn touch(&mut self, at: usize, time: u64) {
        let entry = &mut self.entries[at];
        entry.last_time = time;
        if entry.newer.is_some() {
            self.unlink(at);
            self.append(at);
        }
    }

    /// Marks an open connection as closed. Forgets the oldest closed one if there are too many.
    pub(crate) fn close(&mut self, at: usize) {
        self.unlink(at);
        self.entries[at].is_closed = true;
        self.append(at);
        if self.closed.count > CLOSED_MAX
            && let Some(oldest) = self.closed.oldest
        {
            self.remove(oldest);
        }
    }

    pub(crate) fn is_closed(&self, at: usize) -> bool {
        self.entries[at].is_closed
    }

    pub(crate) fn remove(&mut self, at: usize) -> C {
        self.unlink(at);
        let entry = self.entries.remove(at);
        self.index.remove(&entry.key);
        entry.connection
    }

    /// The open connection whose last packet is the oldest, with its time.
    pub(crate) fn oldest_open(&self) -> Option<(usize, u64)> {
        self.open.oldest.map(|at| (at, self.entries[at].last_time))
    }

    /// As [`Self::oldest_open`], of closed connections.
    pub(crate) fn oldest_closed(&self) -> Option<(usize, u64)> {
        self.closed.oldest.map(|at| (at, self.entries[at].last_time))
    }

    /// Open connections, in no order.
    pub(crate) fn open(&self) -> impl Iterator<Item = &C> {
        let entries = self.entries.iter().map(|(_, entry)| entry);
        entries.filter(|entry| !entry.is_closed).map(|entry| &entry.connection)
    }

    /// All connections, in no order.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut C> {
        self.entries.iter_mut().map(|(_, entry)| &mut entry.connection)
    }

    fn list(&mut self, is_closed: bool) -> &mut EntryList {
        if is_closed { &mut self.closed } else { &mut self.open }
    }

    fn append(&mut self, at: usize) {
        let list = self.list(self.entries[at].is_closed);
        let newest = list.newest.replace(at);
        list.oldest.get_or_insert(at);
        list.count += 1;
        self.entries[at].older = newest;
        self.entries[at].newer = None;
        if let Some(newest) = newest {
            self.entries[newest].newer = Some(at);
        }
    }

    fn unlink(&mut self, at: usize) {
        let entry = &self.entries[at];
        let (older, newer, is_closed) = (entry.older, entry.newer, entry.is_closed);
        if let Some(older) = older {
            self.entries[older].newer = newer;
        }
        if let Some(newer) = newer {
            self.entries[newer].older = older;
        }
        let list = self.list(is_closed);
        list.count -= 1;
        if older.is_none() {
            list.oldest = newer;
        }
        if newer.is_none() {
            list.newest = older;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> ConnectionKey {
        let server = SocketAddr::from(([10, 0, 0, 1], 80));
        ConnectionKey::new(SocketAddr::from(([10, 0, 0, 2], port)), server)
    }

    #[test]
    fn a_key_is_the_same_in_both_directions() {
        let (one, other) = ("[::1]:80".parse().unwrap(), "10.0.0.1:80".parse().unwrap());
        assert!(ConnectionKey::new(one, other) == ConnectionKey::new(other, one));
        assert!(key(1) != key(2));
    }

    #[test]
    fn connections_are_in_the_order_of_their_last_packet() {
        let mut table = ConnectionTable::new();
        let at: Vec<usize> = (0..3).map(|n| table.insert(key(n), n, u64::from(n))).collect();
        table.touch(at[0], 10);
        table.touch(at[0], 11);
        assert_eq!(table.oldest_open(), Some((at[1], 1)));
        table.touch(at[2], 12);
        assert_eq!(table.remove(at[1]), 1);
        assert_eq!(table.oldest_open(), Some((at[0], 11)));
        assert_eq!(table.remove(at[0]), 0);
        assert_eq!(table.oldest_open(), Some((at[2], 12)));
        assert_eq!(table.remove(at[2]), 2);
        assert_eq!((table.oldest_open(), table.open_count()), (None, 0));
        assert_eq!(table.find(&key(2)), None);
    }

    #[test]
    fn closed_connections_are_apart_and_bounded() {
        let mut table = ConnectionTable::new();
        let stays = table.insert(key(0), 0, 0);
        for port in 1..=CLOSED_MAX as u16 + 1 {
            let at = table.insert(key(port), port, u64::from(port));
            table.close(at);
        }
        assert_eq!(table.oldest_open(), Some((stays, 0)));
        assert_eq!(table.open().count(), 1);
        assert_eq!(table.find(&key(1)), None);
        let (oldest, time) = table.oldest_closed().unwrap();
        assert!(table.is_closed(oldest));
        assert_eq!((*table.get_mut(oldest), time), (2, 2));
    }
}
