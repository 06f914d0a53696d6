//! Tasks of a runtime under the process's supervisor: they are run again after a panic, as threads
//! are.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use journal::supervisor::SupervisedThread;

/// Work that can be run again: what it holds is whole whenever it is not running.
pub trait Restartable: Send {
    /// Runs until it is told to stop.
    fn run(&mut self) -> impl Future<Output = ()> + Send;

    /// Ends when it is told to stop. A wait after a panic ends with it, and the work is run a last
    /// time.
    fn stopped(&mut self) -> impl Future<Output = ()> + Send;
}

/// Runs work until it returns, again after each panic.
pub async fn keep_running(thread: SupervisedThread, mut work: impl Restartable) {
    while let Err(panic) = caught(work.run()).await {
        let wait = thread.panicked(&*panic);
        let is_stopping = tokio::time::timeout(wait, work.stopped()).await.is_ok();
        if is_stopping {
            if let Err(panic) = caught(work.run()).await {
                thread.panicked(&*panic);
            }
            return;
        }
        thread.restarted();
    }
}

/// The outcome of a future, or its panic.
pub async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            // It is polled no more.
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// Reports panics of the clock's keeper like those of all other threads.
pub(crate) struct ClockThread(pub(crate) SupervisedThread);

impl clock::KeeperObserver for ClockThread {
    fn panicked(&self, panic: &(dyn Any + Send)) -> Duration {
        self.0.panicked(panic)
    }

    fn restarted(&self) {
        self.0.restarted();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use journal::Supervisor;
    use journal::supervisor::Settings;

    use super::*;

    /// Panics so often, then ends; it is told to stop from the start, or never.
    struct Fragile {
        panics: u32,
        runs: u32,
        is_stopping: bool,
    }

    impl Restartable for &mut Fragile {
        async fn run(&mut self) {
            self.runs += 1;
            tokio::task::yield_now().await;
            assert!(self.runs > self.panics, "run {}", self.runs);
        }

        async fn stopped(&mut self) {
            if !self.is_stopping {
                std::future::pending().await
            }
        }
    }

    /// How often it ran, and how often it was run again after a wait.
    fn check(panics: u32, is_stopping: bool, expected: (u32, u64)) {
        let settings = Settings { wait_first: Duration::ZERO, ..Settings::default() };
        let supervisor = Supervisor::new(settings);
        let mut work = Fragile { panics, runs: 0, is_stopping };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(keep_running(supervisor.thread("site"), &mut work));
        let status = &supervisor.threads()[0];
        assert_eq!((work.runs, status.restarts), expected);
        assert_eq!((status.running, status.waiting), (0, 0));
    }

    #[test]
    fn a_task_that_panics_is_run_again() {
        check(0, false, (1, 0));
        check(2, false, (3, 2));
    }

    #[test]
    fn a_stop_ends_the_wait_and_the_task_ends_in_order() {
        check(1, true, (2, 0));
        check(9, true, (2, 0));
    }
}
