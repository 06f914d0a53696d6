//! Single-flight TTL cache.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use intake::Supervisor;
use tokio::sync::Mutex;

use crate::blocking::blocking;

/// Single-flight TTL cache.
pub(crate) struct TtlCache<T> {
    /// Time and value of the last computation. Locked during a computation.
    cached: Arc<Mutex<Option<(Instant, T)>>>,
    /// Time to live.
    ttl: Duration,
    supervisor: Supervisor,
}

impl<T: Clone + Send + 'static> TtlCache<T> {
    /// With a TTL of zero every call computes the value, one after the other.
    pub(crate) fn new(age_max: Duration, supervisor: Supervisor) -> TtlCache<T> {
        TtlCache { cached: Arc::default(), ttl: age_max, supervisor }
    }

    /// The cached value, or the result of `find` on a blocking thread.
    pub(crate) async fn get(&self, find: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        let mut known = Arc::clone(&self.cached).lock_owned().await;
        if let Some((at, found)) = &*known
            && at.elapsed() < self.ttl
        {
            return Ok(found.clone());
        }
        // The work holds the lock, as it continues after the client disconnects.
        let find = move || {
            let found = find();
            *known = Some((Instant::now(), found.clone()));
            found
        };
        blocking(&self.supervisor, find).await
    }
}

impl<T> fmt::Debug for TtlCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").field("age_max", &self.ttl).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Expects the number of computations for concurrent calls, and the maximum of concurrent
    /// computations.
    async fn check(age_max: Duration, expected: (usize, usize)) {
        let recent = Arc::new(TtlCache::new(age_max, Supervisor::default()));
        let (all, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let now = Arc::new(AtomicUsize::new(0));
        let ask = || {
            let (all, most, now) = (Arc::clone(&all), Arc::clone(&most), Arc::clone(&now));
            let recent = Arc::clone(&recent);
            let find = move || {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
                all.fetch_add(1, Ordering::SeqCst)
            };
            tokio::spawn(async move { recent.get(find).await.unwrap() })
        };
        let asked: Vec<_> = (0..20).map(|_| ask()).collect();
        for one in asked {
            one.await.unwrap();
        }
        assert_eq!((all.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), expected);
    }

    #[tokio::test]
    async fn concurrent_gets_compute_once() {
        check(Duration::MAX, (1, 1)).await;
        check(Duration::ZERO, (20, 1)).await;
    }
}
