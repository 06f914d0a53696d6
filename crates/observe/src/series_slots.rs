//! Which statements of a service have series of their own, and which clients.
//!
//! A bounded number of statements has a *slot*. While slots are free, new statements take them,
//! those with the most time first. Of the others, one per interval may replace the statement with
//! the least recent time, if it has more than twice of it. A statement without operations for an
//! hour loses its slot. So the number of series that a service creates is bounded, whatever
//! statements it is sent: `max_statements`, one per interval, and `max_statements` per hour.
//!
//! Recent time is exponentially decayed, with a half-life of ten minutes.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Time in which the weight of past operations is halved, in nanoseconds.
const HALF_LIFE_NS: f64 = 600e9;
/// Time without operations after which a slot is free, in nanoseconds.
const IDLE_NS: i64 = 3_600_000_000_000;

/// Verb, statement and client.
pub(crate) type StatementName = [Arc<str>; 3];

/// What a slot is for.
pub(crate) trait SlotName: Clone + Eq + Hash + Ord {
    /// Bytes of its texts.
    fn bytes(&self) -> usize;
}

impl SlotName for StatementName {
    fn bytes(&self) -> usize {
        self.iter().map(|word| word.len()).sum()
    }
}

impl SlotName for Arc<str> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

#[derive(Debug)]
pub(crate) struct SeriesSlots<N> {
    limit: usize,
    slots: HashMap<N, SlotUse>,
    /// Bytes of the texts of all names.
    text_bytes: usize,
    /// When the weights were last decayed.
    decayed_at: i64,
}

#[derive(Debug)]
struct SlotUse {
    /// Recent time of operations, in nanoseconds.
    weight: f64,
    /// End of the last interval with operations.
    last_use: i64,
}

impl<N: SlotName> SeriesSlots<N> {
    pub(crate) fn new(limit: usize) -> SeriesSlots<N> {
        SeriesSlots { limit, slots: HashMap::new(), text_bytes: 0, decayed_at: 0 }
    }

    /// Number of names with a slot.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of the texts of all names.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Whether a name has a slot.
    pub(crate) fn contains<Q: ?Sized + Eq + Hash>(&self, name: &Q) -> bool
    where
        N: Borrow<Q>,
    {
        self.slots.contains_key(name)
    }

    /// The name of a slot, whose texts it shares.
    pub(crate) fn name(&self, name: &N) -> Option<&N> {
        self.slots.get_key_value(name).map(|(found, _)| found)
    }

    /// Assigns slots after an interval that ends at `now`, in which these names had operations with
    /// this time. Unless `admits`, no name gets a new slot. The texts of new ones have at most
    /// `free_bytes`, which are reduced.
    pub(crate) fn update(
        &mut self,
        now: i64,
        statements: &[(N, f64)],
        admits: bool,
        free_bytes: &mut usize,
    ) {
        self.decay(now);
        let mut without_slot = Vec::new();
        for (name, time) in statements {
            match self.slots.get_mut(name) {
                Some(slot) => {
                    slot.weight += time;
                    slot.last_use = now;
                }
                None => without_slot.push((name, *time)),
            }
        }
        self.slots.retain(|name, slot| {
            let is_used = now.saturating_sub(slot.last_use) < IDLE_NS;
            self.text_bytes -= if is_used { 0 } else { name.bytes() };
            is_used
        });
        if !admits {
            return;
        }
        model::sort::by(&mut without_slot, |(name, time), (other, more)| {
            more.total_cmp(time).then(name.cmp(other))
        });
        let mut candidates = without_slot.into_iter();
        while self.slots.len() < self.limit
            && let Some((name, time)) = candidates.next()
        {
            if let Some(free) = free_bytes.checked_sub(name.bytes()) {
                *free_bytes = free;
                self.insert(name, time, now);
            }
        }
        if let Some((name, time)) = candidates.next() {
            self.replace_least(name, time, now, free_bytes);
        }
    }

    fn insert(&mut self, name: &N, time: f64, now: i64) {
        self.text_bytes += name.bytes();
        self.slots.insert(name.clone(), SlotUse { weight: time, last_use: now });
    }

    fn replace_least(&mut self, name: &N, time: f64, now: i64, free_bytes: &mut usize) {
        let weights = self.slots.iter().map(|(name, slot)| (slot.weight, name));
        let least = weights.min_by(|(weight, name), (other, second)| {
            weight.total_cmp(other).then(name.cmp(second))
        });
        let Some((weight, least)) = least else { return };
        let free = free_bytes.saturating_add(least.bytes()).checked_sub(name.bytes());
        if time > 2.0 * weight
            && let Some(free) = free
        {
            let least = least.clone();
            self.slots.remove(&least);
            self.text_bytes -= least.bytes();
            *free_bytes = free;
            self.insert(name, time, now);
        }
    }

    fn decay(&mut self, now: i64) {
        let elapsed = now.saturating_sub(self.decayed_at).max(0) as f64;
        let factor = (-elapsed / HALF_LIFE_NS).exp2();
        self.slots.values_mut().for_each(|slot| slot.weight *= factor);
        self.decayed_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const INTERVAL: i64 = 10 * SECOND;

    fn update(slots: &mut SeriesSlots<StatementName>, now: i64, statements: &[(&str, f64)]) {
        let named = statements.iter().map(|(statement, time)| (name(statement), *time));
        let mut free = usize::MAX;
        slots.update(now, &named.collect::<Vec<_>>(), true, &mut free);
    }

    fn name(statement: &str) -> StatementName {
        ["Query".into(), statement.into(), "".into()]
    }

    #[track_caller]
    fn check(slots: &SeriesSlots<StatementName>, expected: &[&str]) {
        let mut found: Vec<&str> =
            slots.slots.keys().map(|[_, statement, _]| &**statement).collect();
        found.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn free_slots_are_taken_by_the_statements_with_the_most_time() {
        let mut slots = SeriesSlots::new(2);
        update(&mut slots, INTERVAL, &[("a", 1.0), ("b", 9.0), ("c", 5.0)]);
        check(&slots, &["b", "c"]);
        assert!(slots.contains(&name("b")) && !slots.contains(&name("a")));
        assert_eq!(slots.len(), 2);
    }

    #[test]
    fn a_statement_with_much_more_time_replaces_the_least() {
        let mut slots = SeriesSlots::new(2);
        update(&mut slots, INTERVAL, &[("b", 9.0), ("c", 5.0)]);
        update(&mut slots, 2 * INTERVAL, &[("d", 9.0)]);
        check(&slots, &["b", "c"]);
        // One per interval.
        update(&mut slots, 3 * INTERVAL, &[("d", 99.0), ("e", 98.0)]);
        check(&slots, &["b", "d"]);
        let mut free = usize::MAX;
        slots.update(4 * INTERVAL, &[(name("e"), 1e9)], false, &mut free);
        check(&slots, &["b", "d"]);
    }

    #[test]
    fn texts_are_bounded() {
        let (mut slots, mut free) = (SeriesSlots::<Arc<str>>::new(10), 10);
        let names: Vec<(Arc<str>, f64)> =
            [("longest", 9.0), ("longer", 8.0), ("abc", 7.0)].map(|(a, b)| (a.into(), b)).into();
        slots.update(INTERVAL, &names, true, &mut free);
        assert!(slots.contains("longest") && !slots.contains("longer") && slots.contains("abc"));
        assert_eq!((slots.text_bytes(), free), (10, 0));
        slots.update(INTERVAL + IDLE_NS, &[], true, &mut free);
        assert_eq!((slots.text_bytes(), slots.len()), (0, 0));
    }

    #[test]
    fn past_time_decays() {
        let mut slots = SeriesSlots::new(1);
        update(&mut slots, INTERVAL, &[("a", 100.0)]);
        update(&mut slots, INTERVAL + 600 * SECOND, &[("b", 99.0)]);
        check(&slots, &["a"]);
        update(&mut slots, INTERVAL + 601 * SECOND, &[("b", 101.0)]);
        check(&slots, &["b"]);
    }

    #[test]
    fn idle_statements_lose_their_slot() {
        let mut slots = SeriesSlots::new(2);
        update(&mut slots, INTERVAL, &[("a", 9.0), ("b", 1.0)]);
        update(&mut slots, INTERVAL + IDLE_NS - SECOND, &[("b", 1.0)]);
        check(&slots, &["a", "b"]);
        update(&mut slots, INTERVAL + IDLE_NS, &[("b", 1.0)]);
        check(&slots, &["b"]);
    }

    #[test]
    fn statements_that_never_come_back_create_few_series() {
        let mut slots = SeriesSlots::new(10);
        let mut created = std::collections::BTreeSet::new();
        let intervals = 360;
        for interval in 1..=intervals {
            let statements: Vec<String> = (0..50).map(|n| format!("{interval}.{n}")).collect();
            let times: Vec<_> = statements.iter().map(|name| (name.as_str(), 1.0)).collect();
            update(&mut slots, interval * INTERVAL, &times);
            created.extend(slots.slots.keys().cloned());
        }
        assert!(created.len() <= 10 + intervals as usize, "{}", created.len());
        assert_eq!(slots.len(), 10);
    }
}
