//! Thread of one contact: sends what is due, or heartbeats.

use std::sync::Arc;
use std::time::Duration;

use journal::log::LogLevel;
use journal::supervisor::SupervisedThread;
use net::ExponentialBackoff;
use tokio::sync::Notify;

use super::{NotifierShared, RETRY_WAIT, WAIT_MAX, lock};
use crate::contact::DeliveryContext;
use crate::contact_settings::ConfiguredContact;
use crate::delivery::{MessageComposition, deliver_next, lock_log};
use crate::delivery_log::DeliveryLogError;
use crate::message_template::MessageTemplates;
use crate::notification::{AlertImpact, Notification, NotificationKey, NotifiedState};
use crate::picture_links::PictureLinks;

/// Time that a message under way gets when the notifier stops. Afterwards its outcome is unknown.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Waits after the log could not be written.
const LOG_BACKOFF: (Duration, Duration) = (RETRY_WAIT, Duration::from_secs(30));
/// A heartbeat stops if the router has written nothing for this time without an error.
pub(super) const ROUTER_AGE_MAX_NS: i64 = 60_000_000_000;

/// What the messages of the running settings are made with.
#[derive(Clone, Debug)]
pub(super) struct NodeComposition {
    pub(super) templates: Arc<dyn MessageTemplates>,
    pub(super) pictures: Option<PictureLinks>,
}

/// A contact and its thread's wake-up.
#[derive(Debug)]
pub(super) struct ContactWorker {
    contact: ConfiguredContact,
    composition: NodeComposition,
    wake: Notify,
}

impl ContactWorker {
    pub(super) fn new(contact: ConfiguredContact, composition: NodeComposition) -> ContactWorker {
        ContactWorker { contact, composition, wake: Notify::new() }
    }

    pub(super) fn name(&self) -> &str {
        &self.contact.name
    }

    pub(super) fn kind(&self) -> &'static str {
        self.contact.contact.kind()
    }

    pub(super) fn host(&self) -> Option<String> {
        self.contact.contact.host()
    }

    pub(super) fn shows_pictures(&self) -> bool {
        self.contact.contact.shows_pictures()
    }

    pub(super) fn failover(&self) -> Option<String> {
        self.contact.policy.failover.clone()
    }

    pub(super) fn thread_name(&self) -> String {
        format!("contact {}", self.contact.name)
    }

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Runs until the notifier stops.
    pub(super) fn run(&self, shared: &NotifierShared) {
        let thread = shared.options.supervisor.thread(self.thread_name());
        thread.run(
            || shared.is_stopping(),
            || {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_all().build().expect("BUG: no event loop");
                runtime.block_on(async {
                    match self.contact.contact.heartbeat_interval() {
                        Some(interval) => self.beat(shared, interval).await,
                        None => self.deliver(shared, &thread).await,
                    }
                });
            },
        );
    }

    async fn deliver(&self, shared: &NotifierShared, thread: &SupervisedThread) {
        let mut backoff = ExponentialBackoff::new(LOG_BACKOFF);
        while !shared.is_stopping() {
            if shared.is_held() {
                self.sleep(Some(WAIT_MAX)).await;
                continue;
            }
            let now_ns = || shared.now_ns();
            let dir = &shared.options.settings_dir;
            let NodeComposition { templates, pictures } = &self.composition;
            let composition =
                MessageComposition { templates: &**templates, pictures: pictures.as_ref() };
            let (log, client) = (&shared.log, &shared.client);
            let sent = deliver_next(log, &self.contact, client, dir, &now_ns, &composition);
            let result = tokio::select! {
                result = sent => result,
                () = stop_grace(shared) => return,
            };
            thread.failpoint();
            self.report(shared, result.as_ref().err());
            match result {
                Ok(Some(report)) => {
                    backoff.reset();
                    if let Some(message) = &report.panic {
                        thread.record_caught_panic(message);
                    }
                    let is_failure = !report.note.is_empty() || report.failover.is_some();
                    let failover = report.failover.clone();
                    lock(&shared.status).add_report(report);
                    if let Some(failover) = failover {
                        let workers = lock(&shared.workers).clone();
                        let failover = workers.iter().find(|worker| worker.name() == failover);
                        failover.inspect(|worker| worker.wake());
                    }
                    if is_failure {
                        // The next step of an escalation may be due at once.
                        shared.wake_router();
                    }
                }
                Ok(None) => {
                    backoff.reset();
                    let due_ns = lock_log(&shared.log).next_due_ns(self.name());
                    self.sleep(due_ns.map(|due_ns| until(due_ns, shared.now_ns()))).await;
                }
                Err(_) => self.sleep(Some(backoff.next_delay(None, false, u64::MAX))).await,
            }
        }
    }

    /// Requests at an interval, as long as the router works.
    async fn beat(&self, shared: &NotifierShared, interval: Duration) {
        let interval_ns = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX);
        let mut next_ns = shared.now_ns();
        while !shared.is_stopping() {
            let now_ns = shared.now_ns();
            if next_ns > now_ns.saturating_add(interval_ns) {
                // The clock stepped back.
                next_ns = now_ns;
            }
            if now_ns < next_ns {
                self.sleep(Some(until(next_ns, now_ns))).await;
                continue;
            }
            let routed_ns = lock(&shared.status).routed_ns();
            let is_alive =
                routed_ns.is_some_and(|at| now_ns.saturating_sub(at) <= ROUTER_AGE_MAX_NS);
            if !is_alive {
                self.sleep(Some(RETRY_WAIT)).await;
                continue;
            }
            next_ns = now_ns.saturating_add(interval_ns);
            let context = DeliveryContext {
                client: &shared.client,
                dir: &shared.options.settings_dir,
                previous: None,
                may_be_duplicate: false,
                now_ns,
                texts: None,
                pictures: None,
            };
            let beat = beat_notification(self.name(), now_ns);
            let result = tokio::select! {
                result = self.contact.contact.send(&beat, &context) => result,
                () = stop_grace(shared) => return,
            };
            let failure = result.err().map(|error| error.to_string());
            lock(&shared.status).add_beat(self.name(), shared.now_ns(), failure);
        }
    }

    /// Shows that the log cannot be used, or that it can again.
    fn report(&self, shared: &NotifierShared, error: Option<&DeliveryLogError>) {
        let text = error.map(ToString::to_string);
        let at_ns = shared.now_ns();
        let is_new = lock(&shared.status).set_error(self.name(), text.as_deref(), at_ns);
        if let Some(text) = text.filter(|_| is_new) {
            (shared.options.log)(LogLevel::Error, &text);
        }
    }

    /// Sleeps until it is woken; at most for a time if there is one.
    async fn sleep(&self, time: Option<Duration>) {
        match time {
            // A timeout only says that nothing woke it.
            Some(time) => drop(tokio::time::timeout(time, self.wake.notified()).await),
            None => self.wake.notified().await,
        }
    }
}

/// Time until a due time by the clock; it is looked at again after a second, because it may step.
fn until(due_ns: i64, now_ns: i64) -> Duration {
    let wait_ns = u64::try_from(due_ns.saturating_sub(now_ns)).unwrap_or(0);
    Duration::from_nanos(wait_ns).clamp(Duration::from_millis(10), WAIT_MAX)
}

/// Ends some time after the notifier is told to stop.
async fn stop_grace(shared: &NotifierShared) {
    while !shared.is_stopping() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(STOP_GRACE).await;
}

fn beat_notification(contact: &str, now_ns: i64) -> Notification {
    Notification {
        key: NotificationKey { alert_id: contact.to_owned(), transition: 0, reminder: 0 },
        state: NotifiedState::Resolved,
        severity: 5,
        name: "heartbeat".to_owned(),
        labels: Default::default(),
        annotations: Default::default(),
        since_ns: now_ns,
        at_ns: now_ns,
        criterion: String::new(),
        impact: AlertImpact::default(),
        unit: String::new(),
        threshold: None,
        value: None,
        link: None,
        notes: None,
        also_firing: Vec::new(),
        picture: None,
    }
}
