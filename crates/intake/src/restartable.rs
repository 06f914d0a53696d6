//! Restartable async tasks: restarted by the supervisor after a panic.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use journal::supervisor::SupervisedThread;

/// Work that can be restarted after a panic; its state is consistent between runs.
pub trait Restartable: Send {
    /// Runs until stopped.
    fn run(&mut self) -> impl Future<Output = ()> + Send;

    /// Returns when a stop is requested. It ends a backoff after a panic; the work is then run a
    /// last time.
    fn wait_for_stop(&mut self) -> impl Future<Output = ()> + Send;
}

/// Runs work until it returns; restarts it after each panic.
pub async fn keep_running(thread: SupervisedThread, mut work: impl Restartable) {
    while let Err(panic) = catch_panic_async(work.run()).await {
        let wait = thread.record_panic(&*panic);
        let is_stopping = tokio::time::timeout(wait, work.wait_for_stop()).await.is_ok();
        if is_stopping {
            if let Err(panic) = catch_panic_async(work.run()).await {
                thread.record_panic(&*panic);
            }
            return;
        }
        thread.record_restart();
    }
}

/// The outcome of a future, or its panic.
pub async fn catch_panic_async<T>(
    future: impl Future<Output = T>,
) -> Result<T, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            // The future is not polled again.
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// Reports panics of the clock calibration thread like those of all other threads.
pub(crate) struct ClockThread(pub(crate) SupervisedThread);

impl clock::CalibratorObserver for ClockThread {
    fn panicked(&self, panic: &(dyn Any + Send)) -> Duration {
        self.0.record_panic(panic)
    }

    fn restarted(&self) {
        self.0.record_restart();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use journal::Supervisor;
    use journal::supervisor::SupervisorSettings;

    use super::*;

    /// Test task that panics a number of times.
    struct PanickingTask {
        panics: u32,
        runs: u32,
        is_stopping: bool,
    }

    impl Restartable for &mut PanickingTask {
        async fn run(&mut self) {
            self.runs += 1;
            tokio::task::yield_now().await;
            assert!(self.runs > self.panics, "run {}", self.runs);
        }

        async fn wait_for_stop(&mut self) {
            if !self.is_stopping {
                std::future::pending().await
            }
        }
    }

    /// Expects the number of runs and of restarts after a backoff.
    fn check(panics: u32, is_stopping: bool, expected: (u32, u64)) {
        let settings =
            SupervisorSettings { initial_backoff: Duration::ZERO, ..SupervisorSettings::default() };
        let supervisor = Supervisor::new(settings);
        let mut work = PanickingTask { panics, runs: 0, is_stopping };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(keep_running(supervisor.thread("site"), &mut work));
        let status = &supervisor.threads()[0];
        assert_eq!((work.runs, status.restarts), expected);
        assert_eq!((status.count, status.waiting), (0, 0));
    }

    #[test]
    fn a_task_that_panics_is_run_again() {
        check(0, false, (1, 0));
        check(2, false, (3, 2));
    }

    #[test]
    fn stop_during_the_wait_ends_the_task() {
        check(1, true, (2, 0));
        check(9, true, (2, 0));
    }
}
