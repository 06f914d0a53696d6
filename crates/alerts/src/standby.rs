//! Standby: this site evaluates the same rules as another one, the primary, and notifies contacts
//! only while the primary is silent.
//!
//! A thread asks the primary for its deliveries. What it delivered is finished here; the rest is
//! held until the primary has not answered for a time. What was acknowledged or cleared there is so
//! here. There is no consensus: if only the connection between the sites is cut, both send, and
//! receivers recognize the keys.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use intake::{LogFn, LogLevel};
use journal::WallClock;
use notify::OtherSiteDeliveries;
use role::json::Json::{self, Bool, Integer, Null, Object, Text};
use role::json::integer;
use tokio::runtime::{Builder, Runtime};

use crate::delivery_api::SiteChanges;
use crate::notifier_handle::NotifierHandle;
use crate::primary_site::{DeliveryPage, DeliveryPosition, PrimarySite};
use crate::site_acknowledgements::PrimaryAcknowledgements;
use crate::site_clearances::PrimaryClearances;
use crate::worker_control::{PrimaryChanges, WorkerControl};

/// Messages to the thread, and what it says about the primary. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct StandbyControl(Arc<StandbyShared>);

#[derive(Debug, Default)]
struct StandbyShared {
    state: Mutex<StandbyState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StandbyState {
    is_stopping: bool,
    primary: Option<PrimarySite>,
    /// Number of changes of the primary.
    changes: u64,
    status: Option<PrimaryStatus>,
}

/// What is known of the primary.
#[derive(Clone, Debug)]
struct PrimaryStatus {
    url: String,
    /// Whether this site notifies contacts in its place.
    is_sending: bool,
    /// When it last answered.
    answered_ns: Option<i64>,
    /// Deliveries of the primary that were due here, too.
    settled: u64,
    error: Option<String>,
}

impl StandbyControl {
    pub(crate) fn new(primary: Option<PrimarySite>) -> StandbyControl {
        let control = StandbyControl::default();
        control.lock().primary = primary;
        control
    }

    /// Uses another primary, or none.
    pub(crate) fn set(&self, primary: Option<PrimarySite>) {
        let mut state = self.lock();
        state.primary = primary;
        state.changes += 1;
        self.0.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.lock().is_stopping = true;
        self.0.changed.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    /// Status: null without a primary.
    pub(crate) fn status_json(&self) -> Json {
        let Some(status) = self.lock().status.clone() else { return Null };
        Object(vec![
            ("url", Text(status.url)),
            ("is_sending", Bool(status.is_sending)),
            ("answered_ns", status.answered_ns.map_or(Null, |at_ns| Integer(at_ns.into()))),
            ("settled", integer(status.settled)),
            ("error", status.error.map_or(Null, Text)),
        ])
    }

    /// Waits for another primary or the stop, at most for a time. Returns whether there was one.
    fn wait(&self, changes: u64, time: Duration) -> bool {
        let is_same = |state: &mut StandbyState| !state.is_stopping && state.changes == changes;
        let waited = self.0.changed.wait_timeout_while(self.lock(), time, is_same);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.is_stopping || state.changes != changes
    }

    fn lock(&self) -> MutexGuard<'_, StandbyState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's view of the node.
pub(crate) struct StandbySite {
    pub(crate) control: StandbyControl,
    pub(crate) notifier: NotifierHandle,
    /// Of the thread that evaluates rules.
    pub(crate) worker: Arc<WorkerControl>,
    pub(crate) clock: WallClock,
    pub(crate) log: LogFn,
}

/// A watch of one primary.
struct PrimaryWatch<'a> {
    site: &'a StandbySite,
    primary: PrimarySite,
    position: DeliveryPosition,
    /// Deliveries that were not due here yet.
    delivered: OtherSiteDeliveries,
    settled: u64,
    is_sending: bool,
    /// When the primary last answered: for the failover, and for people.
    answered_at: Instant,
    answered_ns: i64,
    /// Since when it has answered without a gap; `i64::MAX` if it does not.
    answering_since_ns: i64,
}

impl StandbySite {
    /// Watches the primary until the stop. Without a primary nothing is held.
    pub(crate) fn run(&self) {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("BUG: no event loop");
        let (mut url, mut delivered) = (String::new(), OtherSiteDeliveries::default());
        loop {
            let (primary, changes) = {
                let mut state = self.control.lock();
                if state.is_stopping {
                    return;
                }
                state.status = None;
                (state.primary.clone(), state.changes)
            };
            match primary {
                Some(primary) => {
                    // Of the same primary, a reload does not bring back what was found before.
                    if url != primary.url() {
                        (url, delivered) = (primary.url(), OtherSiteDeliveries::default());
                    }
                    delivered = self.watch(primary, delivered).run(&runtime, changes);
                }
                None => {
                    self.notifier.release(i64::MIN);
                    while !self.control.wait(changes, Duration::MAX) {}
                }
            }
        }
    }

    fn watch(&self, primary: PrimarySite, delivered: OtherSiteDeliveries) -> PrimaryWatch<'_> {
        PrimaryWatch {
            site: self,
            primary,
            position: DeliveryPosition::default(),
            delivered,
            settled: 0,
            is_sending: false,
            answered_at: Instant::now(),
            answered_ns: (self.clock)(),
            answering_since_ns: i64::MAX,
        }
    }
}

impl PrimaryWatch<'_> {
    /// Runs until there is another primary, or the node stops. Returns the deliveries of the
    /// primary that were not due here.
    fn run(mut self, runtime: &Runtime, changes: u64) -> OtherSiteDeliveries {
        self.site.notifier.hold();
        loop {
            let answer = self.ask(runtime);
            if let Err(cause) = &answer {
                self.answering_since_ns = i64::MAX;
                self.check_failover(cause);
            }
            self.publish(answer.err());
            if self.site.control.wait(changes, self.primary.poll_interval()) {
                return self.delivered;
            }
        }
    }

    /// Asks for what is new.
    fn ask(&mut self, runtime: &Runtime) -> Result<(), String> {
        loop {
            let asked_ns = (self.site.clock)();
            let page = runtime.block_on(self.primary.deliveries(self.position))?;
            (self.answered_at, self.answered_ns) = (Instant::now(), asked_ns);
            self.answering_since_ns = self.answering_since_ns.min(asked_ns);
            if std::mem::take(&mut self.is_sending) {
                self.site.notifier.hold();
                self.log("answers again; notifications are held");
            }
            let DeliveryPage { deliveries, changes, position } = page;
            self.mirror(changes, (self.site.clock)());
            if position.epoch != self.position.epoch {
                self.position = DeliveryPosition { epoch: position.epoch, number: 0 };
            }
            let is_last = position.number <= self.position.number;
            self.position.number = self.position.number.max(position.number);
            deliveries.into_iter().for_each(|delivery| self.delivered.add(delivery));
            if is_last {
                self.settle();
                return Ok(());
            }
        }
    }

    /// Takes the acknowledgements and clearances of the primary, each time, also if there are none:
    /// an alert may begin here after it was acknowledged there, and the worker may have failed to
    /// store what it got before. A primary of an earlier version tells none.
    fn mirror(&self, changes: SiteChanges, answered_ns: i64) {
        let SiteChanges { acknowledgements, clearances, now_ns } = changes;
        let Some(acknowledgements) = acknowledgements else { return };
        let url = self.primary.url();
        self.site.worker.mirror(PrimaryChanges {
            acknowledgements: PrimaryAcknowledgements::new(&url, acknowledgements),
            clearances: PrimaryClearances::new(&url, clearances, now_ns, answered_ns),
        });
    }

    fn check_failover(&mut self, cause: &str) {
        if self.is_sending || self.answered_at.elapsed() < self.primary.failover_after {
            return;
        }
        self.settle();
        self.is_sending = true;
        // It may have made deliveries after its last answer.
        let interval_ns = i64::try_from(self.primary.poll_interval().as_nanos());
        let interval_ns = interval_ns.unwrap_or(i64::MAX);
        self.site.notifier.release(self.answered_ns.saturating_add(interval_ns));
        let failover_after = self.primary.failover_after;
        self.log(&format!(
            "has not answered for {failover_after:?} ({cause}); this site notifies contacts"
        ));
    }

    fn settle(&mut self) {
        // The notifier reports an error of its log.
        let settled = self.site.notifier.settle(&mut self.delivered, self.answering_since_ns);
        self.settled += settled.unwrap_or(0);
    }

    fn publish(&self, error: Option<String>) {
        let has_answered = self.position.epoch != 0;
        self.site.control.lock().status = Some(PrimaryStatus {
            url: self.primary.url(),
            is_sending: self.is_sending,
            answered_ns: has_answered.then_some(self.answered_ns),
            settled: self.settled,
            error,
        });
    }

    fn log(&self, what: &str) {
        let line = format!("the primary site {} {what}", self.primary.url());
        (self.site.log)(LogLevel::Warn, &line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primary_site::PrimarySiteTable;

    /// The worker may not have stored the list before.
    #[test]
    fn the_worker_gets_each_list_of_acknowledgements_also_empty_ones() {
        let site = StandbySite {
            control: StandbyControl::default(),
            notifier: NotifierHandle::default(),
            worker: Arc::default(),
            clock: Arc::new(|| 0),
            log: Arc::new(|_, _| {}),
        };
        let table: PrimarySiteTable =
            serde_json::from_str(r#"{"url": "http://north:7717"}"#).expect("a table");
        let watch = site.watch(table.read().expect("a site"), OtherSiteDeliveries::default());
        for _ in 0..3 {
            let changes = SiteChanges { acknowledgements: Some(Vec::new()), ..Default::default() };
            watch.mirror(changes, 0);
            assert!(site.worker.take_mirrored().is_some());
        }
        watch.mirror(SiteChanges::default(), 0);
        assert!(site.worker.take_mirrored().is_none(), "of an earlier version");
    }
}
