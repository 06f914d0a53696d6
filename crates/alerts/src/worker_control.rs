//! Messages to the thread that evaluates rules: stop, and other rules.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::rule_loader::RuleSet;
use crate::settings::AlertTables;

/// Rules and settings to be used from now on.
#[derive(Clone, Debug)]
pub(crate) struct ReloadedRules {
    pub(crate) settings: AlertTables,
    pub(crate) rules: RuleSet,
}

/// Messages to the worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerControl {
    state: Mutex<ControlState>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct ControlState {
    is_stopping: bool,
    reloaded: Option<ReloadedRules>,
}

impl WorkerControl {
    pub(crate) fn stop(&self) {
        self.lock().is_stopping = true;
        self.wake.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    pub(crate) fn reload(&self, reloaded: ReloadedRules) {
        self.lock().reloaded = Some(reloaded);
        self.wake.notify_all();
    }

    /// Waits for a message or for this time; `None` without a limit. Returns other rules, if there
    /// are some.
    pub(crate) fn wait(&self, time: Option<Duration>) -> Option<ReloadedRules> {
        let state = self.lock();
        let is_idle = |state: &mut ControlState| !state.is_stopping && state.reloaded.is_none();
        let mut state = match time {
            Some(time) => {
                let waited = self.wake.wait_timeout_while(state, time, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.wake.wait_while(state, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        state.reloaded.take()
    }

    fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
