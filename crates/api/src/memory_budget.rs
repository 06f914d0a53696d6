//! Query memory budget, shared by all queries.
//!
//! Light queries have a share of it that heavy ones cannot take, as large as all of them may need,
//! so that they never wait for memory. A heavy query that cannot grow waits until others give
//! memory back, for a bounded time. It is refused at once where that would not happen: where it
//! alone needs more than there is, and where every other query that holds memory waits for some as
//! well.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Memory is drawn in multiples of so much: between, a query does not look at the budget.
const DRAW_UNIT_BYTES: u64 = 256 << 10;
/// The share of the budget that only light queries draw from.
const LIGHT_SHARE: u64 = 8;
/// Bytes of the budget at the least: light queries have to have room.
pub(crate) const BYTES_MIN: u64 = 32 << 20;

/// The memory of all queries together.
pub(crate) struct MemoryBudget {
    bytes_max: u64,
    /// What only light queries draw from.
    light_bytes: u64,
    /// How many bytes one light query may hold.
    light_query_bytes: u64,
    wait_timeout: Duration,
    state: Mutex<BudgetState>,
    /// Memory was given back, or a query is over.
    changed: Condvar,
}

#[derive(Default)]
struct BudgetState {
    /// Bytes that heavy queries have drawn.
    heavy: u64,
    /// Bytes that light ones have.
    light: u64,
    /// Heavy queries that have drawn some.
    holders: usize,
    /// Those of them that wait for more.
    waiting_holders: usize,
    /// All that wait.
    waiting: usize,
}

/// Reason why a query gets no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// It would need more than there is.
    TooLarge {
        /// As much as it may have.
        max: u64,
    },
    /// Others hold it.
    Busy {
        /// How much they all hold.
        used: u64,
        /// As much as all may have.
        max: u64,
    },
    /// A light query holds as much as it may, and has to become a heavy one.
    NotLight,
    /// It is over, and needs none.
    Cancelled,
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget").field("bytes_max", &self.bytes_max).finish_non_exhaustive()
    }
}

impl MemoryBudget {
    /// Of so many bytes, for so many light queries at a time. Who cannot grow waits as long as
    /// `wait_max`.
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

    /// Bytes that are drawn.
    pub(crate) fn used(&self) -> u64 {
        let state = self.state();
        state.heavy + state.light
    }

    /// Queries that wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// As much as all heavy queries may have.
    fn heavy_bytes(&self) -> u64 {
        self.bytes_max - self.light_bytes
    }

    /// Those who wait look again whether they are over.
    pub(crate) fn notify_waiters(&self) {
        // With the lock, so that nobody is between looking and waiting.
        drop(self.state());
        self.changed.notify_all();
    }
}

/// Memory reservation of one query, shared by its threads; released on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<MemoryBudget>,
    /// What the query holds.
    reserved: AtomicU64,
    /// What it has drawn for that. Written with the budget's lock.
    drawn: AtomicU64,
    is_light: AtomicBool,
    /// Threads that wait for memory. Written with the budget's lock.
    waiters: AtomicUsize,
}

impl Reservation {
    /// Of a light query that holds nothing.
    pub(crate) fn new(budget: &Arc<MemoryBudget>) -> Reservation {
        Reservation {
            budget: Arc::clone(budget),
            reserved: AtomicU64::new(0),
            drawn: AtomicU64::new(0),
            is_light: AtomicBool::new(true),
            waiters: AtomicUsize::new(0),
        }
    }

    /// What the query holds.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Holds more; waits for it if need be. The bytes count as held even where they are denied: the
    /// query ends.
    // Relaxed: the numbers guard no other memory, and where they are compared the lock is held.
    pub(crate) fn grow(&self, bytes: u64, is_over: &dyn Fn() -> bool) -> Result<(), Denial> {
        let held = self.reserved.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        match held <= self.drawn.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.draw(is_over),
        }
    }

    /// Holds less.
    pub(crate) fn shrink(&self, bytes: u64) {
        let held = self.reserved.fetch_sub(bytes, Ordering::Relaxed).saturating_sub(bytes);
        // A few are kept, as a query that gives back soon takes again.
        if self.drawn.load(Ordering::Relaxed) > held.saturating_add(4 * DRAW_UNIT_BYTES) {
            let mut state = self.budget.state();
            let wanted = self.reserved().next_multiple_of(DRAW_UNIT_BYTES);
            let drawn = self.drawn.load(Ordering::Relaxed);
            if wanted < drawn {
                self.set_drawn(&mut state, wanted);
                drop(state);
                self.budget.changed.notify_all();
            }
        }
    }

    /// Draws as a heavy query from now on, if what it holds fits.
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

    /// Draws what is held; waits for it if need be. `is_over` is asked with the lock of the budget.
    fn draw(&self, is_over: &dyn Fn() -> bool) -> Result<(), Denial> {
        let budget = &*self.budget;
        let mut state = budget.state();
        if let Some(outcome) = self.try_draw(&mut state) {
            return outcome;
        }
        let until = Instant::now() + budget.wait_timeout;
        let is_first = self.waiters.fetch_add(1, Ordering::Relaxed) == 0;
        let is_holder = self.drawn.load(Ordering::Relaxed) > 0;
        // However many of its threads wait, it is one holder.
        let counted = usize::from(is_first && is_holder);
        state.waiting += usize::from(is_first);
        state.waiting_holders += counted;
        let outcome = loop {
            if let Some(outcome) = self.try_draw(&mut state) {
                break outcome;
            }
            let left = until.saturating_duration_since(Instant::now());
            let nobody_gives_back = is_holder && state.waiting_holders >= state.holders;
            if is_over() {
                break Err(Denial::Cancelled);
            }
            if left.is_zero() || nobody_gives_back {
                break Err(Denial::Busy { used: state.heavy, max: budget.heavy_bytes() });
            }
            let waited = budget.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        let is_last = self.waiters.fetch_sub(1, Ordering::Relaxed) == 1;
        state.waiting -= usize::from(is_last);
        state.waiting_holders -= counted;
        outcome
    }

    /// Draws what is held, if that can be decided now.
    fn try_draw(&self, state: &mut BudgetState) -> Option<Result<(), Denial>> {
        let budget = &*self.budget;
        let (held, drawn) = (self.reserved(), self.drawn.load(Ordering::Relaxed));
        if held <= drawn {
            return Some(Ok(()));
        }
        let (max, others) = match self.is_light.load(Ordering::Relaxed) {
            // All of them fit together.
            true if held > budget.light_query_bytes => return Some(Err(Denial::NotLight)),
            true => (budget.light_query_bytes, 0),
            false => (budget.heavy_bytes(), state.heavy - drawn),
        };
        if held > max {
            return Some(Err(Denial::TooLarge { max }));
        }
        let free = max - others;
        if held > free {
            return None;
        }
        self.set_drawn(state, held.next_multiple_of(DRAW_UNIT_BYTES).min(free));
        Some(Ok(()))
    }

    fn set_drawn(&self, state: &mut BudgetState, wanted: u64) {
        let drawn = self.drawn.swap(wanted, Ordering::Relaxed);
        match self.is_light.load(Ordering::Relaxed) {
            true => state.light = state.light - drawn + wanted,
            false => {
                state.heavy = state.heavy - drawn + wanted;
                state.holders += usize::from(wanted > 0);
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
    /// Only to end a test that hangs.
    const LONG: Duration = Duration::from_secs(60);
    const NEVER: &dyn Fn() -> bool = &|| false;

    /// 64 MiB, of which heavy queries have 56 and light ones 2 each.
    fn budget(wait_max: Duration) -> Arc<MemoryBudget> {
        MemoryBudget::new(64 * MIB, 4, wait_max)
    }

    fn heavy(budget: &Arc<MemoryBudget>) -> Reservation {
        let reservation = Reservation::new(budget);
        reservation.become_heavy().unwrap();
        reservation
    }

    /// Returns when somebody waits for memory.
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
        // Whoever waited last made room for the others.
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
