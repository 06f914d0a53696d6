//! Matched requests of two hosts whose times are not compared yet, and the differences of their
//! clocks.
//!
//! Times are compared in portions of [`SETTLED_RECORDS`]. Pairs of hosts are bounded; requests of
//! further ones, and of hosts without a name of their own, have no times of one direction: the
//! clocks of several hosts have no common difference.

use std::collections::HashMap;
use std::mem;

use crate::clock_offset::{ClockOffset, OffsetInterval};
use crate::end_comparison::{RecordPair, clock_offset};
use crate::request_log::{HandshakeRecord, RequestRecord};

/// Pairs of hosts with known clocks, each with two series.
pub(crate) const PAIRS_MAX: usize = 1_024;
/// Records of a pair whose times are compared at once.
const SETTLED_RECORDS: usize = 4_096;
/// Records of all pairs that wait for it, about 250 bytes each.
const UNSETTLED_MAX: usize = 64 << 10;

/// Hosts of client and server.
pub(crate) type HostPair = (u16, u16);
/// Hosts of client and server, and the service.
pub(crate) type MatchedKey = (u16, u16, u16);

/// Clocks by hosts; under `None` what has no known clocks.
#[derive(Default)]
pub(crate) struct EndClocks {
    clocks: HashMap<Option<HostPair>, PairClock>,
    /// Records that wait.
    unsettled: usize,
}

/// Matched records, the client's and the server's.
#[derive(Default)]
pub(crate) struct MatchedRecords {
    /// With the number of requests.
    pub(crate) requests: Vec<(MatchedKey, [RequestRecord; 2], u64)>,
    pub(crate) handshakes: Vec<(MatchedKey, [HandshakeRecord; 2])>,
}

#[derive(Default)]
struct PairClock {
    records: MatchedRecords,
    /// Difference of the clocks at the last portion.
    known: Option<OffsetInterval>,
    /// Whether `known` is of this interval.
    is_new: bool,
    last_time: u64,
}

impl EndClocks {
    /// The key of two hosts. `is_named` tells whether both have names of their own.
    pub(crate) fn key(&self, hosts: HostPair, is_named: bool) -> Option<HostPair> {
        let is_known = || self.clocks.contains_key(&Some(hosts)) || self.clocks.len() < PAIRS_MAX;
        (is_named && is_known()).then_some(hosts)
    }

    pub(crate) fn add_request(
        &mut self,
        key: Option<HostPair>,
        request: (MatchedKey, [RequestRecord; 2], u64),
    ) {
        self.unsettled += 1;
        self.clocks.entry(key).or_default().records.requests.push(request);
    }

    pub(crate) fn add_handshake(
        &mut self,
        key: Option<HostPair>,
        handshake: (MatchedKey, [HandshakeRecord; 2]),
    ) {
        self.unsettled += 1;
        self.clocks.entry(key).or_default().records.handshakes.push(handshake);
    }

    /// Keys to be settled after records were added to one.
    pub(crate) fn due(&self, key: Option<HostPair>) -> Vec<Option<HostPair>> {
        if self.unsettled >= UNSETTLED_MAX {
            return self.keys();
        }
        let records = self.clocks.get(&key).map_or(0, |clock| clock.records.count());
        if records >= SETTLED_RECORDS { vec![key] } else { Vec::new() }
    }

    pub(crate) fn keys(&self) -> Vec<Option<HostPair>> {
        self.clocks.keys().copied().collect()
    }

    /// Hosts whose clocks are known or waited for.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = u16> + '_ {
        self.clocks.keys().flatten().flat_map(|(client, server)| [*client, *server])
    }

    /// Takes what waits, with the difference of the clocks; `None` if nothing waits.
    pub(crate) fn settle(
        &mut self,
        key: Option<HostPair>,
        now: u64,
    ) -> Option<(MatchedRecords, ClockOffset)> {
        let clock = self.clocks.get_mut(&key)?;
        let records = mem::take(&mut clock.records);
        if records.count() == 0 {
            return None;
        }
        self.unsettled -= records.count();
        clock.last_time = now;
        if key.is_none() {
            return Some((records, ClockOffset::new(Vec::new(), Vec::new())));
        }
        let pairs: Vec<RecordPair<'_, RequestRecord>> =
            records.requests.iter().map(|(_, [client, server], _)| (client, server)).collect();
        let shakes: Vec<RecordPair<'_, HandshakeRecord>> =
            records.handshakes.iter().map(|(_, [client, server])| (client, server)).collect();
        let of_requests = pairs.iter().map(|(client, _)| client.times[3]);
        let of_handshakes = shakes.iter().map(|(client, _)| client.times[1]);
        let last = of_requests.chain(of_handshakes).max().unwrap_or(0);
        let mut offset = clock_offset(&pairs, &shakes, clock.known);
        let mut known = offset.at(last).filter(OffsetInterval::is_consistent);
        if known.is_none() && clock.known.is_some() {
            // A clock was set since then.
            offset = clock_offset(&pairs, &shakes, None);
            known = offset.at(last).filter(OffsetInterval::is_consistent);
        }
        (clock.known, clock.is_new) = (known, true);
        Some((records, offset))
    }

    /// Forgets pairs without records since `time`.
    pub(crate) fn forget_before(&mut self, time: u64) {
        self.clocks.retain(|_, clock| clock.last_time >= time);
    }

    /// Differences that were found since the last call.
    pub(crate) fn take_new(&mut self) -> impl Iterator<Item = (HostPair, OffsetInterval)> + '_ {
        self.clocks.iter_mut().filter_map(|(key, clock)| {
            let offset = clock.known.filter(|_| mem::take(&mut clock.is_new))?;
            Some(((*key)?, offset))
        })
    }
}

impl MatchedRecords {
    fn count(&self) -> usize {
        self.requests.len() + self.handshakes.len()
    }
}
