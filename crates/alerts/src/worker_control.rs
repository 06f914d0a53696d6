//! Messages to the thread that evaluates rules: stop, other rules, changes of alerts such as
//! acknowledgements, also those of another site, and that something else has changed.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use role::RouteError;
use rules::{AcknowledgementChange, AlertClearance};

use crate::alert_selection::AlertSelection;
use crate::rule_loader::RuleSet;
use crate::settings::AlertTables;
use crate::site_acknowledgements::PrimaryAcknowledgements;
use crate::site_clearances::PrimaryClearances;

/// Maximum number of changes of alerts that wait. Each one has a thread of those of all requests.
const REQUESTS_MAX: usize = 64;
/// How long a request waits for the evaluation of a group.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Rules and settings to be used from now on.
#[derive(Clone, Debug)]
pub(crate) struct ReloadedRules {
    pub(crate) settings: AlertTables,
    pub(crate) rules: RuleSet,
}

/// What people did with alerts at the primary site; nothing without a primary site.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrimaryChanges {
    pub(crate) acknowledgements: PrimaryAcknowledgements,
    pub(crate) clearances: PrimaryClearances,
}

/// What somebody does to alerts.
#[derive(Clone, Debug)]
pub(crate) enum AlertChange {
    Acknowledge(AcknowledgementChange),
    /// Ends them.
    Clear(AlertClearance),
}

/// A request to change alerts.
#[derive(Debug)]
pub(crate) struct AlertChangeRequest {
    pub(crate) selection: AlertSelection,
    pub(crate) change: AlertChange,
    /// Fingerprints of the selected alerts, once the change is durable.
    pub(crate) reply: SyncSender<AlertChangeReply>,
}

pub(crate) type AlertChangeReply = Result<Vec<String>, RouteError>;

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
    requests: VecDeque<AlertChangeRequest>,
    /// The newest ones.
    of_primary: Option<PrimaryChanges>,
    is_woken: bool,
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

    /// Ends a wait of the worker: rows arrived, alerts were received, or silences changed.
    pub(crate) fn wake(&self) {
        self.lock().is_woken = true;
        self.wake.notify_all();
    }

    /// Waits for this time, or until the role stops.
    pub(crate) fn wait_stopping(&self, time: Duration) {
        let is_running = |state: &mut ControlState| !state.is_stopping;
        // The time ends the wait, too.
        drop(self.wake.wait_timeout_while(self.lock(), time, is_running));
    }

    /// Lets the worker make a change of alerts, and waits until it is durable.
    pub(crate) fn change(
        &self,
        selection: AlertSelection,
        change: AlertChange,
    ) -> AlertChangeReply {
        let (reply, received) = sync_channel(1);
        {
            let mut state = self.lock();
            if state.is_stopping {
                let what = "cannot change alerts: topdeck is shutting down; retry";
                return Err(RouteError::Unavailable(what.to_owned()));
            }
            if state.requests.len() >= REQUESTS_MAX {
                let what =
                    format!("limit of {REQUESTS_MAX} waiting changes of alerts reached; retry");
                return Err(RouteError::Limit(what));
            }
            let request = AlertChangeRequest { selection, change, reply };
            state.requests.push_back(request);
        }
        self.wake.notify_all();
        wait_for_reply(&received)
    }

    /// Lets the worker make the changes of the primary site its own.
    pub(crate) fn mirror(&self, found: PrimaryChanges) {
        self.lock().of_primary = Some(found);
        self.wake.notify_all();
    }

    /// Changes of the primary site that are new.
    pub(crate) fn take_mirrored(&self) -> Option<PrimaryChanges> {
        self.lock().of_primary.take()
    }

    /// The next request.
    pub(crate) fn next_request(&self) -> Option<AlertChangeRequest> {
        self.lock().requests.pop_front()
    }

    /// Waits for a message or for this time; `None` without a limit. Returns other rules, if there
    /// are some.
    pub(crate) fn wait(&self, time: Option<Duration>) -> Option<ReloadedRules> {
        let state = self.lock();
        let is_idle = |state: &mut ControlState| {
            let has_work = state.is_stopping || state.is_woken || !state.requests.is_empty();
            !has_work && state.reloaded.is_none() && state.of_primary.is_none()
        };
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
        state.is_woken = false;
        state.reloaded.take()
    }

    fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait_for_reply(received: &Receiver<AlertChangeReply>) -> AlertChangeReply {
    let failed = |cause: &str| {
        let what = format!(
            "cannot change alerts: {cause}; retry, which has no effect \
                            if the change was made"
        );
        Err(RouteError::Unavailable(what))
    };
    match received.recv_timeout(REPLY_TIMEOUT) {
        Ok(reply) => reply,
        Err(RecvTimeoutError::Timeout) => failed("the evaluation of a rule group takes longer"),
        // The worker panicked, which the supervisor reports, or stops.
        Err(RecvTimeoutError::Disconnected) => failed("the evaluation of rules was interrupted"),
    }
}
