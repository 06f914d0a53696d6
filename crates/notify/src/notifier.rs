//! Notifier: delivers the states of alerts to contacts, on threads of its own.
//!
//! A thread routes alerts and writes what is due to the log of deliveries; each contact has a
//! thread that sends from the log, so that a slow or dead contact delays no other. All threads run
//! under the supervisor. Submitted states are in memory until they are due: after a start the
//! source submits the newest state of each alert again, and the log recognizes duplicates. Ends of
//! alerts, which the source forgets, are in the log as soon as they are routed.
//!
//! Locks: the router holds the dispatcher's while it takes one of the others: inbox, log, status,
//! contacts. No two of these are held together.

mod contact_worker;
mod routing_progress;
mod status;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use disk::Disk;
use journal::log::{LogFn, LogLevel};
use journal::supervisor::{SupervisedThread, catch_panic};
use journal::{Supervisor, WallClock};
use net::tls::ClientTls;

use crate::alert_dispatcher::{AlertDispatcher, DeliveryHold};
use crate::contact_settings::ConfiguredContact;
use crate::delivery::lock_log;
use crate::delivery_log::{
    DeliveryLog, DeliveryLogError, LogLimits, OtherSiteDeliveries, SiteDelivery,
};
use crate::http_client::HttpClient;
use crate::message_template::MessageTemplates;
use crate::notify_settings::NotifySettings;
use crate::picture_links::PictureLinks;
use crate::routed_notification::RoutedNotification;
use crate::silence::SilenceSet;
use contact_worker::{ContactWorker, NodeComposition, ROUTER_AGE_MAX_NS};
use routing_progress::RoutingProgress;
pub use status::{ContactStatus, NotifierStatus, TimedText, UndeliveredNotification};
use status::{PENDING_MAX, REPORTS_MAX, StatusBoard};

/// Maximum number of alerts that are not resolved.
const ALERTS_MAX: usize = 100_000;
/// Approximate memory of all alerts above which pictures are dropped.
const PICTURES_BYTES_MAX: usize = 64 << 20;
/// Approximate memory of all alerts above which no other one is accepted.
const ALERTS_BYTES_MAX: usize = 256 << 20;
/// Timeout of each phase of a request to a contact.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for a time that is due: the clock may step.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Maximum number of deliveries that the other site gets at once.
const SITE_DELIVERIES_MAX: usize = 1_000;
/// Wait after the log could not be written, and where a due time cannot be used yet.
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// What a notifier needs from its node.
#[derive(Clone)]
pub struct NotifierOptions {
    /// File system of the log.
    pub disk: Arc<dyn Disk>,
    /// Directory of the log; its parent exists.
    pub dir: PathBuf,
    /// Directory of the settings file, for relative paths of secrets.
    pub settings_dir: PathBuf,
    /// Wall clock.
    pub clock: WallClock,
    /// Restarts threads.
    pub supervisor: Supervisor,
    /// Log of the node.
    pub log: LogFn,
    /// TLS of all contacts.
    pub tls: ClientTls,
    /// Expands templates of messages.
    pub templates: Arc<dyn MessageTemplates>,
    /// Links to pictures; `None` if nobody would answer them.
    pub pictures: Option<PictureLinks>,
    /// Limits of the log of deliveries.
    pub limits: LogLimits,
    /// Whether deliveries are held from the start, as by [`Notifier::hold`].
    pub is_held: bool,
}

impl fmt::Debug for NotifierOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotifierOptions").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Error of a notifier.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotifierError {
    /// Too many alerts.
    #[error("cannot accept the alert: alerts limit ({ALERTS_MAX}) reached; group the rules")]
    AlertsLimit,
    /// Too much memory.
    #[error(
        "cannot accept the alert: memory limit of alerts ({} MiB) reached; shorten annotations",
        ALERTS_BYTES_MAX >> 20
    )]
    MemoryLimit,
    /// It was stopped.
    #[error("cannot accept the alert: the notifier has stopped")]
    Stopped,
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] DeliveryLogError),
    /// Another site makes the deliveries.
    #[error(
        "cannot say what was delivered: this site is a standby, too; remove [alerts.primary] from \
         one of the sites"
    )]
    Held,
    /// Nothing is routed.
    #[error("cannot say what was delivered: nothing was routed for a minute")]
    Stalled,
    /// The system has no thread.
    #[error("cannot start a thread for notifications: {0}; raise the limit of threads")]
    Thread(std::io::Error),
}

/// A running notifier. Dropping it stops it, without waiting for messages under way.
#[derive(Debug)]
pub struct Notifier {
    shared: Arc<NotifierShared>,
    threads: Vec<JoinHandle<()>>,
}

/// State of all threads.
struct NotifierShared {
    options: NotifierOptions,
    log: Mutex<DeliveryLog>,
    dispatcher: Mutex<AlertDispatcher>,
    inbox: Mutex<Inbox>,
    inbox_changed: Condvar,
    progress: RoutingProgress,
    status: Mutex<StatusBoard>,
    client: HttpClient,
    /// Contacts of the running threads.
    workers: Mutex<Vec<Arc<ContactWorker>>>,
    is_stopping: AtomicBool,
    /// Whether another site makes the deliveries.
    is_held: AtomicBool,
    /// Since when it does not; `i64::MIN` if it never did.
    released_ns: AtomicI64,
}

/// What the router has not seen yet.
#[derive(Default)]
struct Inbox {
    /// The newest state of each alert.
    notifications: BTreeMap<String, RoutedNotification>,
    bytes: usize,
    /// Number of accepted notifications.
    accepted: u64,
    is_woken: bool,
}

impl fmt::Debug for NotifierShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotifierShared").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Inbox {
    fn insert(&mut self, submitted: RoutedNotification) {
        self.accepted += 1;
        self.bytes += submitted.size_bytes();
        let alert_id = submitted.notification.key.alert_id.clone();
        if let Some(before) = self.notifications.insert(alert_id, submitted) {
            self.bytes = self.bytes.saturating_sub(before.size_bytes());
        }
    }
}

impl Notifier {
    /// Opens the log and starts the threads.
    pub fn start(
        settings: NotifySettings,
        options: NotifierOptions,
    ) -> Result<Notifier, NotifierError> {
        let log = DeliveryLog::open(Arc::clone(&options.disk), &options.dir, options.limits)?;
        let (receivers, routing) = settings.into_receivers();
        let contacts = receivers.contacts().to_vec();
        let mut inbox = Inbox::default();
        log.pending_ends().into_iter().for_each(|end| inbox.insert(end.into()));
        let shared = Arc::new(NotifierShared {
            log: Mutex::new(log),
            dispatcher: Mutex::new(AlertDispatcher::new(receivers, routing)),
            inbox: Mutex::new(inbox),
            inbox_changed: Condvar::new(),
            progress: RoutingProgress::default(),
            status: Mutex::default(),
            client: HttpClient::new(options.tls.clone(), SEND_TIMEOUT),
            workers: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            is_held: AtomicBool::new(options.is_held),
            released_ns: AtomicI64::new(i64::MIN),
            options,
        });
        let NotifierOptions { templates, pictures, .. } = &shared.options;
        let (templates, pictures) = (Arc::clone(templates), pictures.clone());
        let composition = NodeComposition { templates, pictures };
        let mut notifier = Notifier { shared, threads: Vec::new() };
        let names: Vec<String> = contacts.iter().map(|contact| contact.name.clone()).collect();
        notifier.start_threads(contacts, &composition, &names)?;
        Ok(notifier)
    }

    /// Takes the new state of an alert. A state that is not newer than the known one is ignored.
    ///
    /// The state is in memory until it is due. The source therefore submits the newest state of
    /// each alert after every start; of an alert that ended, too, until its end is durable, which
    /// [`Notifier::routing_waiter`] awaits.
    pub fn submit(&self, notification: impl Into<RoutedNotification>) -> Result<(), NotifierError> {
        self.shared.submit(notification.into())
    }

    /// Uses other silences from now on. They are kept by reloads, not by restarts.
    pub fn set_silences(&self, silences: SilenceSet) {
        lock(&self.shared.dispatcher).set_silences(silences);
        self.shared.wake_router();
    }

    /// Holds all deliveries: another site makes them. Messages under way are not stopped.
    pub fn hold(&self) {
        self.shared.is_held.store(true, Ordering::Release);
    }

    /// Makes the deliveries that were held. The other site may have made those that were due up to
    /// `shared_until_ns`: to receivers that cannot recognize a repeat they are marked as one.
    pub fn release(&self, shared_until_ns: i64) {
        lock_log(&self.shared.log).set_shared_until(shared_until_ns);
        if self.shared.is_held() {
            self.shared.released_ns.store(self.shared.now_ns(), Ordering::Relaxed);
        }
        self.shared.is_held.store(false, Ordering::Release);
        self.shared.wake();
    }

    /// What this site delivered after a number, oldest first, at most 1,000. An error says that
    /// this site cannot be relied upon to notify contacts.
    pub fn deliveries_after(&self, number: u64) -> Result<Vec<SiteDelivery>, NotifierError> {
        let shared = &self.shared;
        if shared.is_held() {
            return Err(NotifierError::Held);
        }
        let routed_ns = lock(&shared.status).routed_ns();
        let age_ns = routed_ns.map(|at_ns| shared.now_ns().saturating_sub(at_ns));
        if age_ns.is_none_or(|age_ns| age_ns > ROUTER_AGE_MAX_NS) {
            return Err(NotifierError::Stalled);
        }
        Ok(lock_log(&shared.log).deliveries_after(number, SITE_DELIVERIES_MAX))
    }

    /// Finishes the held deliveries that the other site made; returns their number. The other site
    /// has answered without a gap since `answering_since_ns`; `i64::MAX` if it does not.
    pub fn settle(
        &self,
        other: &mut OtherSiteDeliveries,
        answering_since_ns: i64,
    ) -> Result<u64, NotifierError> {
        Ok(lock_log(&self.shared.log).settle(other, answering_since_ns, self.shared.now_ns())?)
    }

    /// Whether a contact shows pictures: without one they need not be drawn.
    pub fn shows_pictures(&self) -> bool {
        lock(&self.shared.workers).iter().any(|worker| worker.shows_pictures())
    }

    /// Status of contacts, alerts and the log.
    pub fn status(&self) -> NotifierStatus {
        self.shared.status()
    }

    /// A function that waits until all that was submitted before is routed: ends of alerts are
    /// durable then. It returns whether that is so.
    pub fn routing_waiter(&self) -> impl Fn(Duration) -> bool + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move |timeout| {
            let accepted = lock(&shared.inbox).accepted;
            shared.progress.wait(accepted, timeout, &shared.is_stopping)
        }
    }

    /// A function that returns the status, also after the notifier has stopped.
    pub fn status_reader(&self) -> impl Fn() -> NotifierStatus + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.status()
    }

    /// Uses other settings, templates and links to pictures. Alerts and deliveries are kept;
    /// messages under way are awaited for at most 5 s.
    pub fn reload(
        &mut self,
        settings: NotifySettings,
        templates: &Arc<dyn MessageTemplates>,
        pictures: Option<PictureLinks>,
    ) -> Result<(), NotifierError> {
        self.stop_threads();
        let (receivers, routing) = settings.into_receivers();
        let contacts = receivers.contacts().to_vec();
        let (now_ns, supervisor) = (self.shared.now_ns(), &self.shared.options.supervisor);
        let panics =
            lock(&self.shared.dispatcher).reconfigure(receivers, routing, now_ns, supervisor);
        if !panics.is_empty() {
            let thread = supervisor.thread("notify");
            panics.iter().for_each(|panic| thread.record_caught_panic(panic));
        }
        self.shared.is_stopping.store(false, Ordering::Release);
        let composition = NodeComposition { templates: Arc::clone(templates), pictures };
        self.start_threads(contacts, &composition, &[])
    }

    /// Stops; waits at most 5 s for messages under way. What is not delivered is delivered after
    /// the next start.
    pub fn stop(mut self) {
        self.stop_threads();
        lock_log(&self.shared.log).release();
    }

    /// Of contacts in `unseen` the status has no attempts yet: the log knows them.
    fn start_threads(
        &mut self,
        contacts: Vec<ConfiguredContact>,
        composition: &NodeComposition,
        unseen: &[String],
    ) -> Result<(), NotifierError> {
        let shared = &self.shared;
        let given_up = lock_log(&shared.log).give_up_all_except(&contacts, shared.now_ns())?;
        if given_up > 0 {
            let line = format!("{given_up} deliveries given up: contacts are not configured");
            (shared.options.log)(LogLevel::Warn, &line);
        }
        let worker = |contact| Arc::new(ContactWorker::new(contact, composition.clone()));
        let workers: Vec<_> = contacts.into_iter().map(worker).collect();
        lock(&shared.workers).clone_from(&workers);
        lock(&shared.status).set_contacts(&workers);
        for contact in unseen {
            let earlier = lock_log(&shared.log).last_attempts(contact, REPORTS_MAX);
            let mut status = lock(&shared.status);
            earlier.into_iter().for_each(|report| status.add_earlier_report(report));
        }
        for worker in workers {
            let (shared, name) = (Arc::clone(shared), worker.thread_name());
            self.threads.push(spawn(&name, move || worker.run(&shared))?);
        }
        let shared = Arc::clone(&self.shared);
        self.threads.push(spawn("notify", move || shared.route())?);
        Ok(())
    }

    fn stop_threads(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.wake();
        for thread in self.threads.drain(..) {
            // The supervisor has reported a panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.wake();
    }
}

impl NotifierShared {
    fn now_ns(&self) -> i64 {
        (self.options.clock)()
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

    fn delivery_hold(&self) -> DeliveryHold {
        match self.is_held() {
            true => DeliveryHold::Held,
            false => DeliveryHold::ReleasedAt(self.released_ns.load(Ordering::Relaxed)),
        }
    }

    /// Wakes all threads.
    fn wake(&self) {
        lock(&self.workers).iter().for_each(|worker| worker.wake());
        self.progress.wake();
        self.wake_router();
    }

    fn wake_router(&self) {
        lock(&self.inbox).is_woken = true;
        self.inbox_changed.notify_all();
    }

    fn submit(&self, mut submitted: RoutedNotification) -> Result<(), NotifierError> {
        if self.is_stopping() {
            return Err(NotifierError::Stopped);
        }
        let (count, used_bytes) = lock(&self.status).alerts_in_memory();
        let mut inbox = lock(&self.inbox);
        let key = submitted.notification.key.clone();
        let before = inbox.notifications.get(&key.alert_id);
        if before.is_some_and(|before| before.notification.key >= key) {
            return Ok(());
        }
        // The limits are soft: the router may take alerts between the two locks.
        // An alert that ends is always accepted.
        let is_open = submitted.notification.needs_attention();
        if is_open && count + inbox.notifications.len() >= ALERTS_MAX && before.is_none() {
            return Err(NotifierError::AlertsLimit);
        }
        let used_bytes = used_bytes + inbox.bytes;
        if used_bytes > PICTURES_BYTES_MAX {
            submitted.notification.picture = None;
        }
        if is_open && used_bytes + submitted.size_bytes() > ALERTS_BYTES_MAX {
            return Err(NotifierError::MemoryLimit);
        }
        inbox.insert(submitted);
        inbox.is_woken = true;
        drop(inbox);
        self.inbox_changed.notify_all();
        Ok(())
    }

    fn status(&self) -> NotifierStatus {
        let (summary, unfinished, undelivered) = {
            let log = lock_log(&self.log);
            let undelivered = log.undelivered().map(UndeliveredNotification::from).collect();
            (log.summary(), log.pending(PENDING_MAX), undelivered)
        };
        let workers = lock(&self.workers).clone();
        let pending: Vec<_> =
            workers.iter().map(|worker| lock_log(&self.log).pending_of(worker.name())).collect();
        let mut status = lock(&self.status).status(summary, undelivered, &pending);
        (status.is_held, status.pending) = (self.is_held(), unfinished);
        status
    }

    /// The router's thread.
    fn route(&self) {
        let thread = self.options.supervisor.thread("notify");
        thread.run(
            || self.is_stopping(),
            || {
                while !self.is_stopping() {
                    thread.failpoint();
                    let wait = self.route_once(&thread);
                    self.wait_for_inbox(wait);
                }
            },
        );
    }

    /// Takes what was submitted and writes what is due. Returns the time until the next call.
    fn route_once(&self, thread: &SupervisedThread) -> Option<Duration> {
        let mut dispatcher = lock(&self.dispatcher);
        let now_ns = self.now_ns();
        let accepted = lock(&self.inbox).accepted;
        // An alert that panics must not keep the others from their contacts.
        while let Some(submitted) = self.first_of_inbox() {
            let key = submitted.notification.key.clone();
            let taken = catch_panic(|| {
                thread.supervisor().failpoint("notify submit");
                dispatcher.submit(submitted, now_ns);
            });
            if let Err(message) = taken {
                thread.record_caught_panic(&format!("alert {key} is not routed: {message}"));
            }
            let mut inbox = lock(&self.inbox);
            let newest = inbox.notifications.get(&key.alert_id);
            if newest.is_some_and(|newest| newest.notification.key == key) {
                let taken = inbox.notifications.remove(&key.alert_id);
                let freed = taken.map_or(0, |taken| taken.size_bytes());
                inbox.bytes = inbox.bytes.saturating_sub(freed);
            }
        }
        let (hold, supervisor) = (self.delivery_hold(), thread.supervisor());
        let result = dispatcher.run(&self.log, now_ns, hold, supervisor);
        let next_ns = dispatcher.next_due_ns();
        let counts = (dispatcher.alert_count(), dispatcher.group_count(), dispatcher.size_bytes());
        drop(dispatcher);
        let error = result.as_ref().err().map(ToString::to_string);
        if error.is_none() {
            self.progress.advance(accepted);
        }
        let report = result.unwrap_or_default();
        for warning in report.warnings {
            self.warn(warning, now_ns);
        }
        for text in report.panics {
            thread.record_caught_panic(&text);
            lock(&self.status).add_warning(TimedText { at_ns: now_ns, text });
        }
        let is_new_error = lock(&self.status).routed(counts, next_ns, error.as_deref(), now_ns);
        if let Some(error) = error.as_ref().filter(|_| is_new_error) {
            (self.options.log)(LogLevel::Error, error);
        }
        if report.queued > 0 || error.is_some() {
            lock(&self.workers).iter().for_each(|worker| worker.wake());
        }
        if error.is_some() {
            return Some(RETRY_WAIT);
        }
        let due = next_ns?.saturating_sub(now_ns);
        let due = Duration::from_nanos(u64::try_from(due).unwrap_or(0));
        Some(due.clamp(RETRY_WAIT, WAIT_MAX))
    }

    fn first_of_inbox(&self) -> Option<RoutedNotification> {
        lock(&self.inbox).notifications.values().next().cloned()
    }

    fn wait_for_inbox(&self, wait: Option<Duration>) {
        let mut inbox = lock(&self.inbox);
        // Without a due time, the heartbeat contacts still see that the router is alive.
        let wait = wait.unwrap_or(WAIT_MAX);
        if !inbox.is_woken {
            inbox = match self.inbox_changed.wait_timeout(inbox, wait) {
                Ok((inbox, _)) => inbox,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        inbox.is_woken = false;
    }

    fn warn(&self, text: String, at_ns: i64) {
        (self.options.log)(LogLevel::Warn, &text);
        lock(&self.status).add_warning(TimedText { at_ns, text });
    }
}

fn spawn(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, NotifierError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map_err(NotifierError::Thread)
}

/// A panic leaves each of these values usable: they change in single steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
