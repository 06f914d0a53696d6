//! What is due now and then: the books are led on and written, and topdeck's own measurements go into the journal.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::take::{Shared, locked};

/// How often the books are led on: what they have not read the journal has to keep.
const READ_EVERY: Duration = Duration::from_secs(1);
/// How often they are written.
const SAVE_EVERY: Duration = Duration::from_secs(10);

/// Runs until it is told to stop.
pub(crate) fn run(shared: &Shared) {
    let put_off = shared.meter.counter(
        "topdeck_own_put_off_total",
        "intervals of topdeck's own measurements that found no room",
        &[],
    );
    let interval = i64::try_from(shared.settings.interval.as_nanos().max(1)).unwrap_or(i64::MAX);
    let now = || (shared.settings.clock)();
    let next_after =
        |now: i64| now.saturating_sub(now.rem_euclid(interval)).saturating_add(interval);
    let mut boundary = next_after(now());
    let mut saved = Instant::now();
    loop {
        shared.home.supervisor().fault_point("books");
        // A clock that was set back must not silence it.
        boundary = boundary.min(next_after(now()));
        let left = Duration::from_nanos(boundary.saturating_sub(now()).max(0).cast_unsigned());
        if is_stopped(shared, left.min(READ_EVERY)) {
            return;
        }
        if now() >= boundary {
            let end = now() - now().rem_euclid(interval);
            boundary = next_after(now());
            // There is another interval after this one: what grows is told then, and nothing is tried again now.
            match shared.write_own(end) {
                Ok(()) => {}
                Err(Error::Full { .. }) => put_off.add(1),
                Err(error) => shared.note(format!("topdeck's own measurements: {error}")),
            }
        }
        let done = if saved.elapsed() >= SAVE_EVERY || shared.books.is_save_due() {
            saved = Instant::now();
            shared.keep_books(false)
        } else {
            shared.books.read_on().map(drop)
        };
        if let Err(error) = done {
            shared.note(format!("the books: {error}"));
        }
    }
}

fn is_stopped(shared: &Shared, timeout: Duration) -> bool {
    let stop = locked(&shared.stop.0);
    let waited = shared.stop.1.wait_timeout_while(stop, timeout, |stop| !*stop);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}
