//! Threads of the role: each restarts after a panic, until it is asked to stop.

use std::thread::{Builder, JoinHandle};

use role::RoleContext;

use crate::error::AlertsError;

/// Starts a thread that runs `work`, again after each panic unless `is_stopping`.
pub(crate) fn spawn(
    name: &str,
    context: &RoleContext,
    is_stopping: impl Fn() -> bool + Send + 'static,
    mut work: impl FnMut() + Send + 'static,
) -> Result<JoinHandle<()>, AlertsError> {
    let supervised = context.intake.supervisor().thread(name);
    let run = move || {
        let attempt = || {
            supervised.failpoint();
            work();
        };
        // The supervisor reports a panic.
        let _ = supervised.run(&is_stopping, attempt);
    };
    Builder::new().name(name.to_owned()).spawn(run).map_err(AlertsError::Thread)
}
