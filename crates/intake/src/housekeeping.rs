//! Housekeeping thread: ledger checkpoints, rejection reports, own metrics.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use journal::log::LogLevel;

use crate::error::Error;
use crate::intake_state::{IntakeState, lock};

/// Interval of ledger reads: the journal keeps records that are not in the ledger yet.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of ledger checkpoints.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);

/// Runs until stopped.
pub(crate) fn run_housekeeping(shared: &IntakeState) {
    let put_off = shared.meter.counter(
        "topdeck_self_metrics_deferred_total",
        "Self metrics intervals not stored because a limit was reached",
        &[],
    );
    let interval = i64::try_from(shared.settings.interval.as_nanos().max(1)).unwrap_or(i64::MAX);
    let now = || (shared.settings.clock)();
    let next_after =
        |now: i64| now.saturating_sub(now.rem_euclid(interval)).saturating_add(interval);
    let mut boundary = next_after(now());
    let mut saved = Instant::now();
    loop {
        shared.target.supervisor().failpoint("ledger");
        log_space(shared);
        log_absence(shared);
        log_accepted_input(shared);
        // Keeps the schedule if the clock was set back.
        boundary = boundary.min(next_after(now()));
        let remaining = Duration::from_nanos(boundary.saturating_sub(now()).max(0).cast_unsigned());
        if is_stopped(shared, remaining.min(READ_INTERVAL)) {
            return;
        }
        if now() >= boundary {
            let end = now() - now().rem_euclid(interval);
            boundary = next_after(now());
            // A failed interval is not retried: the next one carries the counters.
            match shared.write_self_metrics(end) {
                Ok(()) => {}
                Err(Error::Full { .. }) => put_off.add(1),
                Err(error) => {
                    shared.add_audit_warning(format!("cannot write the own metrics: {error}"))
                }
            }
        }
        let done = if saved.elapsed() >= SAVE_INTERVAL || shared.ledger_reader.is_save_due() {
            saved = Instant::now();
            shared.checkpoint_ledger(false)
        } else {
            shared.ledger_reader.read_new().map(drop)
        };
        if let Err(error) = done {
            shared.add_audit_warning(format!("cannot update the ledger: {error}"));
        }
    }
}

/// Logs when there is no longer space for new data, and when there is again.
fn log_space(shared: &IntakeState) {
    let problem = shared.space_problem();
    if let Some(line) = shared.space.log_line(problem.as_deref(), shared.target.journal().dir()) {
        let level = if problem.is_some() { LogLevel::Error } else { LogLevel::Info };
        (shared.settings.log)(level, &line);
    }
}

/// Logs sources that became absent or send again.
fn log_absence(shared: &IntakeState) {
    let now = (shared.settings.clock)();
    for (level, line) in shared.absence.check(now, &|id| shared.ledger_reader.producer_name(id)) {
        (shared.settings.log)(level, &line);
    }
}

/// Logs sources whose input is no longer rejected.
fn log_accepted_input(shared: &IntakeState) {
    for (level, line) in shared.rejected_inputs.check((shared.settings.clock)()) {
        (shared.settings.log)(level, &line);
    }
}

fn is_stopped(shared: &IntakeState, timeout: Duration) -> bool {
    let stop = lock(&shared.stop.0);
    let waited = shared.stop.1.wait_timeout_while(stop, timeout, |stop| !*stop);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}
