//! Stoppable thread and interval boundaries.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use intake::SupervisedThread;

use crate::error::{Error, Result};

/// Stoppable thread. Drop stops and joins it.
#[derive(Debug)]
pub(crate) struct CollectorThread<T> {
    stop: Arc<StopSignal>,
    handle: Option<JoinHandle<Option<T>>>,
}

impl<T: Send + 'static> CollectorThread<T> {
    /// Starts the thread with a stack of that many bytes, or the default. `work` runs again after a
    /// panic.
    pub(crate) fn start(
        name: &'static str,
        stack_bytes: Option<usize>,
        supervised: SupervisedThread,
        mut work: impl FnMut(&StopSignal) -> T + Send + 'static,
    ) -> Result<CollectorThread<T>> {
        let stop = Arc::new(StopSignal::default());
        let builder = std::thread::Builder::new().name(name.to_owned());
        let builder = match stack_bytes {
            Some(bytes) => builder.stack_size(bytes),
            None => builder,
        };
        let run = {
            let stop = Arc::clone(&stop);
            move || {
                let run = || {
                    supervised.failpoint();
                    work(&stop)
                };
                supervised.run(|| stop.is_set(), run)
            }
        };
        let handle = builder.spawn(run).map_err(|source| Error::Thread { name, source })?;
        Ok(CollectorThread { stop, handle: Some(handle) })
    }
}

impl<T> CollectorThread<T> {
    /// Stops the thread and returns its result, once; `None` if it panicked at the end.
    pub(crate) fn stop(&mut self) -> Option<T> {
        self.stop.set();
        self.handle.take()?.join().ok().flatten()
    }
}

impl<T> Drop for CollectorThread<T> {
    fn drop(&mut self) {
        // `stop` returns the result to callers that need it.
        let _ = self.stop();
    }
}

/// Stop signal.
#[derive(Debug, Default)]
pub(crate) struct StopSignal {
    is_set: Mutex<bool>,
    wake: Condvar,
}

impl StopSignal {
    fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }

    fn is_set(&self) -> bool {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for that time or until the signal; returns whether it was signalled.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let said = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.wake.wait_timeout_while(said, time, |said| !*said);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A scrape later than its boundary by at most this part of the interval counts as of the
/// boundary. Otherwise its row would include the first microseconds of the next interval.
const LATE_FRACTION: i64 = 20;
/// Time for which the final scrape is retried while the journal has no space, and the retry
/// period.
const FINAL_READING_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Waits for the next boundary, a multiple of the interval. Returns the time of the scrape: the
/// boundary, or now if the boundary is long past; `None` if the thread must stop.
pub(crate) fn next_boundary(
    stop: &StopSignal,
    interval: Duration,
    now: impl Fn() -> i64,
) -> Option<i64> {
    let interval = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX).max(1);
    let mut boundary = boundary_after(now(), interval);
    loop {
        let now = now();
        // The clock was set back: the boundary is now too far in the future.
        if boundary.saturating_sub(now) > interval {
            boundary = boundary_after(now, interval);
        }
        let remaining = boundary.saturating_sub(now);
        if remaining <= 0 {
            let is_late = now.saturating_sub(boundary) > interval / LATE_FRACTION;
            return Some(if is_late { now } else { boundary });
        }
        if stop.wait(Duration::from_nanos(remaining.unsigned_abs())) {
            return None;
        }
    }
}

/// First boundary after `now`.
fn boundary_after(now: i64, interval: i64) -> i64 {
    now.saturating_sub(now.rem_euclid(interval)).saturating_add(interval)
}

/// Takes the final scrape and retries for some time while the journal has no space.
pub(crate) fn retry_final_scrape(
    mut read: impl FnMut() -> intake::Result<()>,
) -> intake::Result<()> {
    let began = Instant::now();
    loop {
        match read() {
            Err(error) if error.is_retryable() && began.elapsed() < FINAL_READING_TIMEOUT => {
                std::thread::sleep(RETRY_DELAY);
            }
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[track_caller]
    fn check(now: i64, expected: i64) {
        assert_eq!(boundary_after(now, 10), expected);
    }

    #[test]
    fn boundaries_are_multiples_of_the_interval() {
        check(0, 10);
        check(9, 10);
        check(10, 20);
        check(-1, 0);
        check(i64::MAX, i64::MAX);
    }

    /// Compares the results at these clock readings, one after the other.
    #[track_caller]
    fn check_boundary(timestamps: &[i64], expected: i64) {
        let at = Cell::new(0);
        let now = || timestamps[at.replace(at.get() + 1)];
        let found = next_boundary(&StopSignal::default(), Duration::from_nanos(100), now);
        assert_eq!((found, at.get()), (Some(expected), timestamps.len()));
    }

    #[test]
    fn late_scrape_has_its_own_time() {
        check_boundary(&[130, 190, 200], 200);
        check_boundary(&[130, 205], 200);
        check_boundary(&[130, 206], 206);
        // The clock is set back by an hour, and ahead.
        check_boundary(&[1_030, 30, 101], 100);
        check_boundary(&[130, 9_999], 9_999);
    }

    #[test]
    fn stop_interrupts_the_wait() {
        let stop = StopSignal::default();
        stop.set();
        assert_eq!(next_boundary(&stop, Duration::MAX, || 5), None);
    }

    #[test]
    fn a_thread_that_is_dropped_has_ended() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let supervised = intake::Supervisor::default().thread("test");
        let thread = CollectorThread::start("test", None, supervised, move |stop| {
            while !stop.wait(Duration::from_secs(3_600)) {}
            sender.send(7)
        });
        drop(thread.expect("a thread"));
        assert_eq!(receiver.try_recv(), Ok(7));
    }
}
