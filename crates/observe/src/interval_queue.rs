//! Hand-over of intervals from the thread that captures to the thread that writes.
//!
//! Intervals that were not written yet are merged, so that the queue is bounded and the capture
//! never waits for the disk.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::operation_series::NumberSample;
use crate::pending_samples::PendingSamples;

/// One or more intervals.
#[derive(Debug, Default)]
pub(crate) struct QueuedIntervals {
    pub(crate) distributions: PendingSamples,
    /// Counters and gauges of the latest interval.
    pub(crate) numbers: Vec<NumberSample>,
    /// Gauges of earlier intervals, which were not written: their number, and the end of the first
    /// one.
    pub(crate) lost_gauges: Option<(u64, i64)>,
    /// Times in which nothing was measured: start and end, and the reason.
    pub(crate) gaps: Vec<(i64, i64, String)>,
    /// End of the latest interval; `None` if there is none.
    pub(crate) end: Option<i64>,
}

/// Gaps that are apart; further ones extend the last one.
const GAPS_MAX: usize = 16;

impl QueuedIntervals {
    /// Adds later intervals.
    pub(crate) fn merge(&mut self, later: QueuedIntervals) {
        if let (Some(end), Some(_)) = (self.end, later.end) {
            let gauges = self.numbers.iter().filter(|sample| sample.is_gauge()).count() as u64;
            self.add_lost_gauges(gauges, end);
        }
        if let Some((gauges, first)) = later.lost_gauges {
            self.add_lost_gauges(gauges, first);
        }
        if later.end.is_some() {
            self.numbers = later.numbers;
            self.end = later.end;
        }
        self.distributions.merge(later.distributions);
        later.gaps.into_iter().for_each(|(start, end, reason)| self.add_gap(start, end, reason));
    }

    /// Time up to which there is something to write; `None` if there is nothing.
    pub(crate) fn written_until(&self) -> Option<i64> {
        self.end.or_else(|| self.gaps.last().map(|(_, end, _)| *end))
    }

    /// Notes gauges that were lost, the first ones at `first`.
    pub(crate) fn add_lost_gauges(&mut self, gauges: u64, first: i64) {
        let (before, earlier) = self.lost_gauges.unwrap_or((0, first));
        self.lost_gauges = Some((before + gauges, earlier.min(first)));
    }

    pub(crate) fn add_gap(&mut self, start: i64, end: i64, reason: String) {
        let is_full = self.gaps.len() >= GAPS_MAX;
        match self.gaps.last_mut().filter(|_| is_full) {
            Some(last) => last.1 = last.1.max(end),
            None => self.gaps.push((start.min(end), end, reason)),
        }
    }
}

#[derive(Debug, Default)]
struct QueueState {
    intervals: QueuedIntervals,
    has_intervals: bool,
    is_closed: bool,
    /// Whether the writer still has intervals that the journal did not accept.
    is_backlogged: bool,
}

/// The queue. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct IntervalQueue(Arc<(Mutex<QueueState>, Condvar)>);

impl IntervalQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds intervals.
    pub(crate) fn push(&self, intervals: QueuedIntervals) {
        let mut state = self.state();
        state.intervals.merge(intervals);
        state.has_intervals = true;
        self.0.1.notify_all();
    }

    /// No interval follows.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.0.1.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Waits for intervals; `None` if the queue is closed and empty.
    pub(crate) fn pop(&self) -> Option<QueuedIntervals> {
        let waiting = |state: &mut QueueState| !state.has_intervals && !state.is_closed;
        let mut state =
            self.0.1.wait_while(self.state(), waiting).unwrap_or_else(PoisonError::into_inner);
        let has_intervals = std::mem::take(&mut state.has_intervals);
        has_intervals.then(|| std::mem::take(&mut state.intervals))
    }

    /// Whether earlier intervals are not written yet.
    pub(crate) fn is_backlogged(&self) -> bool {
        let state = self.state();
        state.is_backlogged || state.has_intervals
    }

    pub(crate) fn set_backlogged(&self, is_backlogged: bool) {
        self.state().is_backlogged = is_backlogged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{IN_FLIGHT, REQUESTS};

    fn interval(end: i64, value: f64) -> QueuedIntervals {
        let sample = |metric| NumberSample { metric, labels: Vec::new(), value, start: end };
        QueuedIntervals {
            numbers: vec![sample(&IN_FLIGHT), sample(&REQUESTS)],
            end: Some(end),
            ..QueuedIntervals::default()
        }
    }

    #[test]
    fn unwritten_intervals_are_merged() {
        let queue = IntervalQueue::default();
        queue.push(interval(10, 1.0));
        queue.push(interval(20, 2.0));
        queue.push(interval(30, 3.0));
        let found = queue.pop().unwrap();
        assert_eq!((found.end, found.numbers[1].value), (Some(30), 3.0));
        assert_eq!(found.lost_gauges, Some((2, 10)));
        queue.close();
        assert!(queue.pop().is_none());
    }

    #[test]
    fn a_closed_queue_returns_what_it_has() {
        let queue = IntervalQueue::default();
        queue.push(interval(10, 1.0));
        assert!(queue.is_backlogged() && !queue.is_closed());
        queue.close();
        assert_eq!(queue.pop().unwrap().end, Some(10));
        assert!(queue.pop().is_none() && queue.is_closed());
    }

    #[test]
    fn a_gap_is_written_without_an_interval() {
        let mut intervals = QueuedIntervals::default();
        assert_eq!(intervals.written_until(), None);
        intervals.add_gap(10, 20, "reason".to_owned());
        assert_eq!(intervals.written_until(), Some(20));
        intervals.merge(interval(30, 1.0));
        assert_eq!(intervals.written_until(), Some(30));
    }

    #[test]
    fn gaps_are_bounded() {
        let mut intervals = QueuedIntervals::default();
        for n in 0..100 {
            intervals.add_gap(n, n + 1, "reason".to_owned());
        }
        assert_eq!(intervals.gaps.len(), GAPS_MAX);
        assert_eq!(intervals.gaps[GAPS_MAX - 1].1, 100);
    }
}
