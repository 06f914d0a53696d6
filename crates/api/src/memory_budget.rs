//! Query memory budget, shared by all queries.
//!
//! A share of the budget is reserved for light queries, large enough for all of them, so that they
//! never wait for memory. A heavy query that cannot grow waits, for a bounded time, until others
//! release memory. It is rejected at once if waiting cannot help: it alone needs more than the
//! budget, or every other query that holds memory waits too.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Queries draw memory from the budget in multiples of this size, to lock it seldom.
const DRAW_UNIT_BYTES: u64 = 256 << 10;
/// Share of the budget (one of this many parts) reserved for light queries.
const LIGHT_SHARE: u64 = 8;
/// Minimum size of the budget: light queries need memory.
pub(crate) const BYTES_MIN: u64 = 32 << 20;

/// Memory budget of all queries.
pub(crate) struct MemoryBudget {
    bytes_max: u64,
    /// Bytes reserved for light queries.
    light_bytes: u64,
    /// Maximum bytes of one light query.
    light_query_bytes: u64,
    wait_timeout: Duration,
    state: Mutex<BudgetState>,
    /// Notified when memory is released, or a query ends.
    changed: Condvar,
}

#[derive(Default)]
struct BudgetState {
    /// Bytes drawn by heavy queries.
    heavy: u64,
    /// Bytes drawn by light queries.
    light: u64,
    /// Heavy queries that hold memory.
    holders: usize,
    /// Holders that wait for more.
    waiting_holders: usize,
    /// All waiting queries.
    waiting: usize,
}

/// Reason of a failed reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The query needs more than its maximum.
    TooLarge {
        /// The maximum.
        max: u64,
    },
    /// Other queries hold the memory.
    Busy {
        /// Bytes held by all queries.
        used: u64,
        /// The budget.
        max: u64,
    },
    /// A light query is at its maximum and has to become heavy.
    NotLight,
    /// The query is cancelled.
    Cancelled,
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget").field("bytes_max", &self.bytes_max).finish_non_exhaustive()
    }
}

impl MemoryBudget {
    /// A budget of `bytes`, for `light` concurrent light queries. A query that cannot grow waits at
    /// most `wait_max`.
    pub(crate) fn new(
        bytes_max: u64,
        light_queries: usize,
        wait_max: Duration,
    ) -> Arc<MemoryBudget> {
        let bytes_max = bytes_max.max(BYTES_MIN);
        let light_bytes = bytes_max / LIGHT_SHARE;
        Arc::new(MemoryBudget {
            bytes_max,
            light_bytes,
            light_query_bytes: light_bytes / (light_queries.max(1) as u64),
            wait_timeout: wait_max,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drawn bytes.
    pub(crate) fn used(&self) -> u64 {
        let state = self.state();
        state.heavy + state.light
    }

    /// Number of queries that wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// Maximum bytes of all heavy queries.
    fn heavy_bytes(&self) -> u64 {
        self.bytes_max - self.light_bytes
    }

    /// Wakes waiters, which check whether their query has ended.
    pub(crate) fn notify_waiters(&self) {
        // Taking the lock excludes a waiter between its check and its wait.
        drop(self.state());
        self.changed.notify_all();
    }
}

/// Memory reservation of one query, shared by its threads; released on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<MemoryBudget>,
    /// Reserved bytes.
    reserved: AtomicU64,
    /// Bytes drawn from the budget for them. Written under the budget's lock.
    drawn: AtomicU64,
    is_light: AtomicBool,
    /// Waiting threads. Written under the budget's lock.
    waiters: AtomicUsize,
}

impl Reservation {
    /// An empty reservation of a light query.
    pub(crate) fn new(budget: &Arc<MemoryBudget>) -> Reservation {
        Reservation {
            budget: Arc::clone(budget),
            reserved: AtomicU64::new(0),
            drawn: AtomicU64::new(0),
            is_light: AtomicBool::new(true),
            waiters: AtomicUsize::new(0),
        }
    }

    /// Reserved bytes.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Reserves more bytes, and waits for them if necessary. The bytes count as reserved even after
    /// an error, because the query ends.
    // Relaxed: the counters guard no other memory, and are compared under the lock.
    pub(crate) fn grow(&self, bytes: u64, is_over: &dyn Fn() -> bool) -> Result<(), Denial> {
        let reserved = self.reserved.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        match reserved <= self.drawn.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.draw(is_over),
        }
    }

    /// Reserves more bytes if that is possible without a wait, and without becoming heavy.
    pub(crate) fn try_grow(&self, bytes: u64) -> bool {
        let reserved = self.reserved.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if reserved <= self.drawn.load(Ordering::Relaxed) {
            return true;
        }
        let outcome = self.try_draw(&mut self.budget.state());
        let has_grown = matches!(outcome, Some(Ok(())));
        if !has_grown {
            self.shrink(bytes);
        }
        has_grown
    }

    /// Releases bytes.
    pub(crate) fn shrink(&self, bytes: u64) {
        let reserved = self.reserved.fetch_sub(bytes, Ordering::Relaxed).saturating_sub(bytes);
        // Some drawn bytes are kept, as a query often reserves again soon.
        if self.drawn.load(Ordering::Relaxed) > reserved.saturating_add(4 * DRAW_UNIT_BYTES) {
            let mut state = self.budget.state();
            let target_bytes = self.reserved().next_multiple_of(DRAW_UNIT_BYTES);
            let drawn = self.drawn.load(Ordering::Relaxed);
            if target_bytes < drawn {
                self.set_drawn(&mut state, target_bytes);
                drop(state);
                self.budget.changed.notify_all();
            }
        }
    }

    /// Becomes heavy, if the reserved bytes fit.
    pub(crate) fn become_heavy(&self) -> Result<(), Denial> {
        let mut state = self.budget.state();
        if !self.is_light.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (drawn, max) = (self.drawn.load(Ordering::Relaxed), self.budget.heavy_bytes());
        if state.heavy + drawn > max {
            return Err(Denial::Busy { used: state.heavy, max });
        }
        self.set_drawn(&mut state, 0);
        self.is_light.store(false, Ordering::Relaxed);
        self.set_drawn(&mut state, drawn);
        Ok(())
    }

    /// Draws the reserved bytes, and waits if necessary. `is_over` is called under the budget's
    /// lock.
    fn draw(&self, is_over: &dyn Fn() -> bool) -> Result<(), Denial> {
        let budget = &*self.budget;
        let mut state = budget.state();
        if let Some(outcome) = self.try_draw(&mut state) {
            return outcome;
        }
        let until = Instant::now() + budget.wait_timeout;
        let is_first = self.waiters.fetch_add(1, Ordering::Relaxed) == 0;
        let is_holder = self.drawn.load(Ordering::Relaxed) > 0;
        // A query counts as one holder, regardless of its number of waiting threads.
        let counted = usize::from(is_first && is_holder);
        state.waiting += usize::from(is_first);
        state.waiting_holders += counted;
        let outcome = loop {
            if let Some(outcome) = self.try_draw(&mut state) {
                break outcome;
            }
            let remaining = until.saturating_duration_since(Instant::now());
            let nobody_gives_back = is_holder && state.waiting_holders >= state.holders;
            if is_over() {
                break Err(Denial::Cancelled);
            }
            if remaining.is_zero() || nobody_gives_back {
                break Err(Denial::Busy { used: state.heavy, max: budget.heavy_bytes() });
            }
            let waited = budget.changed.wait_timeout(state, remaining);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        let is_last = self.waiters.fetch_sub(1, Ordering::Relaxed) == 1;
        state.waiting -= usize::from(is_last);
        state.waiting_holders -= counted;
        outcome
    }

    /// Draws the reserved bytes, unless it has to wait.
    fn try_draw(&self, state: &mut BudgetState) -> Option<Result<(), Denial>> {
        let budget = &*self.budget;
        let (reserved, drawn) = (self.reserved(), self.drawn.load(Ordering::Relaxed));
        if reserved <= drawn {
            return Some(Ok(()));
        }
        let (max, others) = match self.is_light.load(Ordering::Relaxed) {
            // The reserved share has room for all light queries.
            true if reserved > budget.light_query_bytes => return Some(Err(Denial::NotLight)),
            true => (budget.light_query_bytes, 0),
            false => (budget.heavy_bytes(), state.heavy - drawn),
        };
        if reserved > max {
            return Some(Err(Denial::TooLarge { max }));
        }
        let free = max - others;
        if reserved > free {
            return None;
        }
        self.set_drawn(state, reserved.next_multiple_of(DRAW_UNIT_BYTES).min(free));
        Some(Ok(()))
    }

    fn set_drawn(&self, state: &mut BudgetState, bytes: u64) {
        let drawn = self.drawn.swap(bytes, Ordering::Relaxed);
        match self.is_light.load(Ordering::Relaxed) {
            true => state.light = state.light - drawn + bytes,
            false => {
                state.heavy = state.heavy - drawn + bytes;
                state.holders += usize::from(bytes > 0);
                state.holders -= usize::from(drawn > 0);
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        self.set_drawn(&mut state, 0);
        drop(state);
        self.budget.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const MIB: u64 = 1 << 20;
    /// Ends a test that hangs.
    const LONG: Duration = Duration::from_secs(60);
    const NEVER: &dyn Fn() -> bool = &|| false;

    /// 64 MiB: 56 for heavy queries, 2 for each light one.
    fn budget(wait_max: Duration) -> Arc<MemoryBudget> {
        MemoryBudget::new(64 * MIB, 4, wait_max)
    }

    fn heavy(budget: &Arc<MemoryBudget>) -> Reservation {
        let reservation = Reservation::new(budget);
        reservation.become_heavy().unwrap();
        reservation
    }

    /// Returns when this many queries wait for memory.
    fn await_waiting(budget: &MemoryBudget, many: usize) {
        while budget.waiting() < many {
            thread::yield_now();
        }
    }

    #[test]
    fn reserved_memory_is_drawn_and_released() {
        let budget = budget(Duration::ZERO);
        let (a, b) = (heavy(&budget), heavy(&budget));
        a.grow(30 * MIB, NEVER).unwrap();
        b.grow(20 * MIB, NEVER).unwrap();
        assert_eq!(budget.used(), 50 * MIB);
        let busy = Denial::Busy { used: 50 * MIB, max: 56 * MIB };
        assert_eq!(b.grow(10 * MIB, NEVER), Err(busy));
        drop(a);
        b.grow(MIB, NEVER).unwrap();
        assert_eq!(budget.used(), 31 * MIB);
        b.shrink(31 * MIB);
        assert_eq!((budget.used(), b.reserved()), (0, 0));
        assert_eq!(b.grow(57 * MIB, NEVER), Err(Denial::TooLarge { max: 56 * MIB }));
        drop(b);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn light_queries_have_memory_of_their_own() {
        let budget = budget(Duration::ZERO);
        let hog = heavy(&budget);
        hog.grow(56 * MIB, NEVER).unwrap();
        let light: Vec<Reservation> = (0..4).map(|_| Reservation::new(&budget)).collect();
        light.iter().for_each(|light| light.grow(2 * MIB, NEVER).unwrap());
        assert_eq!(budget.used(), 64 * MIB);
        assert_eq!(light[0].grow(1, NEVER), Err(Denial::NotLight));
        let busy = Denial::Busy { used: 56 * MIB, max: 56 * MIB };
        assert_eq!(light[1].become_heavy(), Err(busy));
        drop(hog);
        light[1].become_heavy().unwrap();
        light[1].grow(10 * MIB, NEVER).unwrap();
        drop(light);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn growth_waits_until_memory_is_released() {
        let budget = budget(LONG);
        let (a, b) = (heavy(&budget), heavy(&budget));
        a.grow(40 * MIB, NEVER).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| b.grow(20 * MIB, NEVER));
            await_waiting(&budget, 1);
            a.shrink(30 * MIB);
            assert_eq!(waiting.join().unwrap(), Ok(()));
        });
        assert_eq!((budget.used(), budget.waiting()), (30 * MIB, 0));
    }

    #[test]
    fn mutually_waiting_queries_time_out() {
        let budget = budget(LONG);
        let queries: Vec<Reservation> = (0..4).map(|_| heavy(&budget)).collect();
        queries.iter().for_each(|query| query.grow(14 * MIB, NEVER).unwrap());
        let (told, outcomes) = mpsc::channel();
        thread::scope(|scope| {
            for query in queries {
                let told = told.clone();
                scope.spawn(move || {
                    let outcome = query.grow(14 * MIB, NEVER);
                    drop(query);
                    told.send(outcome).unwrap();
                });
            }
        });
        drop(told);
        let denied = outcomes.iter().filter(Result::is_err).count();
        // The rejection of the last waiter releases memory for the others.
        assert!((1..4).contains(&denied), "{denied}");
        assert_eq!((budget.used(), budget.waiting()), (0, 0));
    }

    #[test]
    fn cancelled_query_does_not_wait_for_memory() {
        let budget = budget(LONG);
        let (a, b) = (heavy(&budget), heavy(&budget));
        a.grow(56 * MIB, NEVER).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| b.grow(MIB, &|| is_over.load(Ordering::SeqCst)));
            await_waiting(&budget, 1);
            is_over.store(true, Ordering::SeqCst);
            budget.notify_waiters();
            assert_eq!(waiting.join().unwrap(), Err(Denial::Cancelled));
        });
    }
}
