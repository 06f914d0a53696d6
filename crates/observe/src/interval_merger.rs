//! Intervals of all threads of the capture, merged to one.
//!
//! Each thread ends its intervals by the packets that it reads, at the same boundaries; an interval
//! is complete when all threads have ended it. The last ones, which are shorter, are one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::interval_composer::IntervalComposer;
use crate::shard_interval::ShardInterval;

/// Intervals of a thread that wait for those of another one; then the two oldest are merged.
const WAITING_MAX: usize = 8;

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
    composer: IntervalComposer,
}

#[derive(Default)]
struct ShardQueue {
    intervals: VecDeque<ShardInterval>,
    /// Whether the thread has ended its last interval.
    is_finished: bool,
}

impl IntervalMerger {
    /// Merges the intervals of `shards` threads.
    pub(crate) fn new(shards: usize, composer: IntervalComposer) -> IntervalMerger {
        let shards = (0..shards.max(1)).map(|_| ShardQueue::default()).collect();
        IntervalMerger(Arc::new(Mutex::new(MergerState { shards, composer })))
    }

    fn state(&self) -> MutexGuard<'_, MergerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an interval of a thread.
    pub(crate) fn push(&self, shard: usize, interval: ShardInterval) {
        let mut state = self.state();
        state.shards[shard].push(interval);
        while let Some(complete) = state.pop_complete() {
            state.composer.add(complete);
        }
    }

    /// Adds the last interval of a thread. That of the last thread ends the capture.
    pub(crate) fn finish(&self, shard: usize, interval: ShardInterval) {
        let mut state = self.state();
        state.shards[shard].push(interval);
        state.shards[shard].is_finished = true;
        if state.shards.iter().all(|shard| shard.is_finished) {
            state.finish();
        }
    }

    /// Ends the capture, although some threads may not have ended their last interval.
    pub(crate) fn finish_all(&self) {
        self.state().finish();
    }

    /// Notes that a thread has measured nothing since `start`.
    pub(crate) fn add_gap(&self, start: i64, end: i64, reason: &str) {
        self.state().composer.add_gap(start, end, reason);
    }
}

impl MergerState {
    /// The oldest interval, if all threads have ended it, and none of them at the stop.
    fn pop_complete(&mut self) -> Option<ShardInterval> {
        let ends = self.shards.iter().map(|shard| {
            let is_last = shard.is_finished && shard.intervals.len() == 1;
            shard.intervals.front().filter(|_| !is_last).map(|first| first.end)
        });
        let end = ends.collect::<Option<Vec<i64>>>()?.into_iter().min()?;
        let mut complete: Option<ShardInterval> = None;
        for shard in &mut self.shards {
            let Some(interval) = shard.intervals.pop_front_if(|first| first.end == end) else {
                continue;
            };
            match &mut complete {
                Some(complete) => complete.merge(interval),
                None => complete = Some(interval),
            }
        }
        complete
    }

    fn finish(&mut self) {
        while let Some(complete) = self.pop_complete_but_last() {
            self.composer.add(complete);
        }
        let mut last: Option<ShardInterval> = None;
        for shard in &mut self.shards {
            shard.is_finished = true;
            let mut intervals = shard.intervals.drain(..);
            let Some(mut own) = intervals.next() else { continue };
            intervals.for_each(|later| own.append(later));
            match &mut last {
                Some(last) => last.merge(own),
                None => last = Some(own),
            }
        }
        if let Some(last) = last {
            self.composer.add(last);
        }
        self.composer.finish();
    }

    /// As [`Self::pop_complete`], while each thread has an interval behind it.
    fn pop_complete_but_last(&mut self) -> Option<ShardInterval> {
        let has_later = |shard: &ShardQueue| shard.intervals.len() > 1;
        if self.shards.iter().all(has_later) { self.pop_complete() } else { None }
    }
}

impl ShardQueue {
    fn push(&mut self, interval: ShardInterval) {
        self.intervals.push_back(interval);
        if self.intervals.len() > WAITING_MAX
            && let Some(mut oldest) = self.intervals.pop_front()
            && let Some(next) = self.intervals.pop_front()
        {
            oldest.append(next);
            self.intervals.push_front(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture_status::CaptureStatus;
    use crate::interval_queue::IntervalQueue;
    use crate::metrics::CAPTURED_PACKETS;
    use crate::settings::CaptureSettings;

    struct TestMerger {
        merger: IntervalMerger,
        queue: IntervalQueue,
        packets: u64,
    }

    impl TestMerger {
        fn new(shards: usize) -> TestMerger {
            let settings = CaptureSettings::with_keys("h", "").unwrap();
            let (queue, status) = (IntervalQueue::default(), CaptureStatus::new(&[]));
            let composer = IntervalComposer::new(&settings, shards, 0, queue.clone(), status);
            TestMerger { merger: IntervalMerger::new(shards, composer), queue, packets: 0 }
        }

        /// An interval with this number of packets.
        fn interval(start: i64, end: i64, packets: u64) -> ShardInterval {
            let mut interval = ShardInterval { start, end, shards: 1, ..ShardInterval::default() };
            interval.counts.ring.packets = packets;
            interval
        }

        /// Checks the intervals in the queue: the latest end, and the packets of all of them.
        #[track_caller]
        fn check(&mut self, expected: Option<(i64, u64)>) {
            let found =
                self.queue.is_backlogged().then(|| self.queue.pop().unwrap()).map(|found| {
                    let mut numbers = found.numbers.iter();
                    let count = numbers.find(|sample| *sample.metric == CAPTURED_PACKETS).unwrap();
                    let packets = count.value as u64 - self.packets;
                    self.packets += packets;
                    (found.end.unwrap(), packets)
                });
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn an_interval_is_complete_when_all_threads_have_ended_it() {
        let mut test = TestMerger::new(2);
        test.merger.push(0, TestMerger::interval(0, 10, 3));
        test.check(None);
        test.merger.push(1, TestMerger::interval(0, 10, 4));
        test.check(Some((10, 7)));
        test.merger.push(0, TestMerger::interval(10, 20, 1));
        // A thread without packets ends a longer interval.
        test.merger.push(1, TestMerger::interval(10, 30, 2));
        test.check(Some((20, 1)));
        test.merger.push(0, TestMerger::interval(20, 30, 5));
        test.check(Some((30, 7)));
    }

    #[test]
    fn the_last_intervals_of_all_threads_are_one() {
        let mut test = TestMerger::new(2);
        test.merger.push(0, TestMerger::interval(0, 10, 1));
        test.merger.finish(0, TestMerger::interval(10, 13, 2));
        test.check(None);
        test.merger.push(1, TestMerger::interval(0, 10, 3));
        test.check(Some((10, 4)));
        test.merger.finish(1, TestMerger::interval(10, 14, 4));
        test.check(Some((14, 6)));
        assert!(test.queue.is_closed());
    }

    #[test]
    fn intervals_that_wait_for_a_thread_are_bounded_and_lose_nothing() {
        let mut test = TestMerger::new(2);
        for n in 0..100 {
            test.merger.push(0, TestMerger::interval(n * 10, n * 10 + 10, 1));
        }
        test.check(None);
        assert_eq!(test.merger.state().shards[0].intervals.len(), WAITING_MAX);
        test.merger.finish_all();
        test.check(Some((1_000, 100)));
        assert!(test.queue.is_closed());
    }
}
