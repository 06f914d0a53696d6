//! What came in a stretch of time, by series.
//!
//! A series is known by a key: a byte for what it is, then what names it, as it came.
//!
//! ```text
//! c g m d s   name | tags     StatsD: counter, gauge, milliseconds, distribution, set
//! p           path;tags       Graphite
//! ```

use std::collections::HashMap;

use crate::counters::{Lost, Reason};
use crate::held::{Held, What};

/// Bytes of a series beside its key and what it holds, and of an interval, about.
pub(crate) const SERIES_BYTES: usize = 160;

/// `[start, end)`, in nanoseconds since the Unix epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interval {
    pub(crate) start: i64,
    pub(crate) end: i64,
    index: HashMap<Box<[u8]>, usize>,
    held: Vec<Held>,
    pub(crate) lost: Lost,
}

/// A series and what is known of it.
pub(crate) type Row = (Box<[u8]>, Held);

impl Interval {
    pub(crate) fn new(start: i64, length: i64) -> Interval {
        Interval { start, end: start.saturating_add(length), ..Interval::default() }
    }

    /// The one of that length, aligned to its multiples, that a time falls into.
    pub(crate) fn around(time: i64, length: i64) -> Interval {
        Interval::new(time.saturating_sub(time.rem_euclid(length)), length)
    }

    pub(crate) fn contains(&self, time: i64) -> bool {
        (self.start..self.end).contains(&time)
    }

    /// Nothing came, and nothing was lost.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.lost.is_empty()
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        self.index.get(key).copied()
    }

    pub(crate) fn insert(&mut self, key: Box<[u8]>, held: Held) -> usize {
        let at = self.held.len();
        self.index.insert(key, at);
        self.held.push(held);
        at
    }

    pub(crate) fn at(&mut self, at: usize) -> &mut Held {
        &mut self.held[at]
    }

    /// All rows, in the order in which they came.
    pub(crate) fn take_rows(&mut self) -> Vec<Row> {
        let mut keys: Vec<(Box<[u8]>, usize)> =
            std::mem::take(&mut self.index).into_iter().collect();
        keys.sort_unstable_by_key(|&(_, at)| at);
        let held = std::mem::take(&mut self.held);
        keys.into_iter().map(|(key, _)| key).zip(held).collect()
    }

    /// What is left when the rows are gone.
    pub(crate) fn without_rows(&self) -> Interval {
        Interval { start: self.start, end: self.end, lost: self.lost, ..Interval::default() }
    }

    /// What is lost if the rows are.
    pub(crate) fn as_lost(&self, reason: Reason) -> Lost {
        let mut lost = Lost::default();
        self.held.iter().for_each(|held| lost.add_held(reason, held));
        lost
    }

    /// Adds rows, to those of the same key. Returns how many values could not be.
    pub(crate) fn add_rows(&mut self, rows: impl IntoIterator<Item = Row>) -> Lost {
        let mut lost = Lost::default();
        for (key, held) in rows {
            match self.find(&key) {
                None => {
                    self.insert(key, held);
                }
                Some(at) => {
                    let reason = match held.what {
                        What::Set(_) => Reason::Members,
                        _ => Reason::Memory,
                    };
                    let ours = &mut self.held[at];
                    let n = ours.what.merge(held.what, held.received);
                    ours.received += held.received.saturating_sub(n);
                    lost.add(reason, n);
                }
            }
        }
        lost
    }

    /// Takes in another one: what came from the one's beginning to the other's end. What is lost by that is in
    /// [`Self::lost`] and is returned.
    pub(crate) fn merge(&mut self, mut other: Interval) -> Lost {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.lost.merge(&other.lost);
        let lost = self.add_rows(other.take_rows());
        self.lost.merge(&lost);
        lost
    }

    /// Bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let keys: usize = self.index.keys().map(|key| key.len()).sum();
        let held: usize = self.held.iter().map(|held| held.what.bytes()).sum();
        SERIES_BYTES * (1 + self.held.len()) + keys + held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(time: i64, expected: (i64, i64)) {
        let interval = Interval::around(time, 10);
        assert_eq!((interval.start, interval.end), expected);
        assert!(interval.contains(time) || interval.end == i64::MAX);
    }

    #[test]
    fn intervals_are_aligned() {
        check(0, (0, 10));
        check(19, (10, 20));
        check(20, (20, 30));
        check(-1, (-10, 0));
        check(i64::MAX, (i64::MAX - 7, i64::MAX));
    }

    #[test]
    fn rows_come_back_in_their_order_and_add_up() {
        let row =
            |key: &str, n: f64| (key.as_bytes().into(), Held { received: 1, what: What::Count(n) });
        let (mut one, mut other) = (Interval::new(0, 10), Interval::new(10, 10));
        assert!(one.add_rows([row("b", 1.0), row("a", 2.0)]).is_empty());
        assert!(other.add_rows([row("c", 3.0), row("a", 4.0)]).is_empty());
        assert!(one.merge(other).is_empty());
        assert_eq!((one.start, one.end), (0, 20));
        let shown: Vec<String> = one
            .take_rows()
            .iter()
            .map(|(key, held)| format!("{} {:?}", String::from_utf8_lossy(key), held.what))
            .collect();
        assert_eq!(shown, ["b Count(1.0)", "a Count(6.0)", "c Count(3.0)"]);
    }
}
