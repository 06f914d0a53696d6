//! Intervals of all threads of the capture, merged to rows.
//!
//! Each thread ends its intervals by the packets that it reads, at the same boundaries. A row has
//! one interval of each thread or more, and ends at the first boundary that all of them have
//! reached: a thread that was late, or whose clock stepped, may have skipped some. A row that waits
//! too long is written without the threads that are late; what they have measured is in a later
//! row.
//!
//! A thread that is not in a row has the state of its last one. So the counts of each thread are
//! always those at the end of one of its intervals, with the requests that were in flight at that
//! time, and no counter decreases.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::interval_composer::IntervalComposer;
use crate::settings::{CaptureSettings, StatementLimits};
use crate::shard_interval::{MeasuredInterval, ShardInterval, ShardState};

/// Intervals of a thread that wait for those of another one.
const WAITING_MAX: usize = 2;

/// Merges intervals. Clones share it.
#[derive(Clone)]
pub(crate) struct IntervalMerger(Arc<Mutex<MergerState>>);

impl fmt::Debug for IntervalMerger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntervalMerger").finish_non_exhaustive()
    }
}

struct MergerState {
    shards: Vec<ShardQueue>,
    /// End of the last row; `None` before the first one, and after the clock was set back.
    last_end: Option<i64>,
    /// Limits of an interval that waits.
    limits: StatementLimits,
    composer: IntervalComposer,
}

#[derive(Default)]
struct ShardQueue {
    /// Intervals that are in no row, with increasing ends.
    intervals: VecDeque<ShardInterval>,
    /// State of the thread in the last row.
    state: ShardState,
    /// End of the last interval of the thread.
    last_end: Option<i64>,
    /// Whether the thread has lost the requests in flight of its last interval.
    has_lost_requests: bool,
    /// Whether the thread has ended its last interval.
    is_finished: bool,
}

impl IntervalMerger {
    /// Merges the intervals of `shards` threads.
    pub(crate) fn new(
        settings: &CaptureSettings,
        shards: usize,
        composer: IntervalComposer,
    ) -> IntervalMerger {
        let shards = (0..shards.max(1)).map(|_| ShardQueue::default()).collect();
        let (last_end, limits) = (None, settings.statement_limits());
        IntervalMerger(Arc::new(Mutex::new(MergerState { shards, last_end, limits, composer })))
    }

    fn state(&self) -> MutexGuard<'_, MergerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an interval of a thread.
    pub(crate) fn push(&self, shard: usize, interval: ShardInterval) {
        let mut state = self.state();
        state.push(shard, interval);
        state.write_rows();
    }

    /// Adds the last interval of a thread. That of the last thread ends the capture.
    pub(crate) fn finish(&self, shard: usize, interval: ShardInterval) {
        let mut state = self.state();
        state.push(shard, interval);
        state.shards[shard].is_finished = true;
        state.write_rows();
        if state.shards.iter().all(|shard| shard.is_finished) {
            state.composer.finish();
        }
    }

    /// Ends the capture, although some threads may not have ended their last interval.
    pub(crate) fn finish_all(&self) {
        let mut state = self.state();
        state.shards.iter_mut().for_each(|shard| shard.is_finished = true);
        state.write_rows();
        state.composer.finish();
    }

    /// Notes that a thread has measured nothing since `start`, and does not know the connections
    /// that it had.
    pub(crate) fn restart(&self, shard: usize, start: i64, end: i64, reason: &str) {
        let mut state = self.state();
        state.shards[shard].has_lost_requests = true;
        state.composer.add_gap(start, end, reason);
    }
}

impl MergerState {
    fn push(&mut self, shard: usize, interval: ShardInterval) {
        let shard = &mut self.shards[shard];
        let end = interval.measured.end;
        // The clock was set back: the next rows have earlier times than the last one.
        if shard.last_end.replace(end).is_some_and(|last| last >= end) {
            self.last_end = None;
        }
        shard.push(interval, self.last_end, self.limits);
    }

    fn write_rows(&mut self) {
        while let Some(end) = self.row_end() {
            self.write_row(end);
        }
    }

    /// End of the next row, if it is complete, or has waited too long.
    fn row_end(&self) -> Option<i64> {
        let first_ends = self.shards.iter().filter_map(|shard| shard.first_end());
        let end = first_ends.max()?;
        let is_complete = self.shards.iter().all(|shard| shard.has_reached(end));
        let is_late = |shard: &&ShardQueue| shard.intervals.len() > WAITING_MAX;
        match is_complete {
            true => Some(end),
            false => self.shards.iter().find(is_late).and_then(ShardQueue::first_end),
        }
    }

    /// Writes a row of all intervals up to `end`.
    fn write_row(&mut self, end: i64) {
        let mut row: Option<MeasuredInterval> = None;
        for shard in &mut self.shards {
            while let Some(interval) = shard.pop_until(end) {
                match &mut row {
                    Some(row) => row.merge(interval),
                    None => row = Some(interval),
                }
            }
        }
        let Some(mut row) = row else { return };
        row.end = end;
        // What a thread has measured late is in a row that does not overlap the one before.
        row.start = row.start.max(self.last_end.unwrap_or(row.start));
        self.last_end = Some(end);
        let states: Vec<&ShardState> = self.shards.iter().map(|shard| &shard.state).collect();
        self.composer.add(row, &states);
    }
}

impl ShardQueue {
    /// Adds an interval. The last row ended at `last_row_end`.
    fn push(
        &mut self,
        mut interval: ShardInterval,
        last_row_end: Option<i64>,
        limits: StatementLimits,
    ) {
        if std::mem::take(&mut self.has_lost_requests) {
            let last = self.intervals.back().map_or(&self.state, |last| &last.state);
            interval.measured.services.extend(last.lost_requests());
        }
        let end = interval.measured.end;
        // One interval with those behind it in time, and with those that are late anyway.
        let is_joined = |before: &mut ShardInterval| {
            before.measured.end >= end || last_row_end >= Some(before.measured.end)
        };
        while let Some(before) = self.intervals.pop_back_if(is_joined) {
            interval.measured.join(before.measured, limits);
        }
        self.intervals.push_back(interval);
    }

    fn first_end(&self) -> Option<i64> {
        self.intervals.front().map(|first| first.measured.end)
    }

    /// Whether the thread has ended all intervals up to `end`.
    fn has_reached(&self, end: i64) -> bool {
        self.is_finished || self.intervals.back().is_some_and(|last| last.measured.end >= end)
    }

    fn pop_until(&mut self, end: i64) -> Option<MeasuredInterval> {
        let first = self.intervals.pop_front_if(|first| first.measured.end <= end)?;
        self.state = first.state;
        Some(first.measured)
    }
}

#[cfg(test)]
mod tests;
