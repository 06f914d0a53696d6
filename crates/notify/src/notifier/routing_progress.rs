//! How much of what was submitted the router has routed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::lock;

/// Number of the notifications that are routed, in the order in which they were accepted.
#[derive(Debug, Default)]
pub(super) struct RoutingProgress {
    routed: Mutex<u64>,
    changed: Condvar,
}

impl RoutingProgress {
    /// Notes that the first `accepted` ones are routed.
    pub(super) fn advance(&self, accepted: u64) {
        *lock(&self.routed) = accepted;
        self.changed.notify_all();
    }

    /// Ends waits, if the notifier stops.
    pub(super) fn wake(&self) {
        // Whoever waits has seen the flag, or waits for this.
        drop(lock(&self.routed));
        self.changed.notify_all();
    }

    /// Waits until the first `accepted` ones are routed; returns whether they are.
    pub(super) fn wait(&self, accepted: u64, timeout: Duration, is_stopping: &AtomicBool) -> bool {
        let is_waiting =
            |routed: &mut u64| *routed < accepted && !is_stopping.load(Ordering::Acquire);
        let waited = self.changed.wait_timeout_while(lock(&self.routed), timeout, is_waiting);
        let (routed, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *routed >= accepted
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(120);

    #[test]
    fn a_wait_ends_when_all_is_routed_when_the_notifier_stops_or_after_its_time() {
        let (progress, is_stopping) =
            (Arc::<RoutingProgress>::default(), Arc::<AtomicBool>::default());
        assert!(progress.wait(0, Duration::ZERO, &is_stopping));
        assert!(!progress.wait(1, Duration::ZERO, &is_stopping));
        let wait = |accepted| {
            let (progress, is_stopping) = (Arc::clone(&progress), Arc::clone(&is_stopping));
            std::thread::spawn(move || progress.wait(accepted, PATIENCE, &is_stopping))
        };
        let waiting = wait(2);
        progress.advance(1);
        progress.advance(2);
        assert!(waiting.join().unwrap());
        let waiting = wait(3);
        is_stopping.store(true, Ordering::Release);
        progress.wake();
        assert!(!waiting.join().unwrap());
    }
}
