//! The notifier, shared by the role and the thread that evaluates rules.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use disk::OsDisk;
use journal::wall_clock;
use notify::{
    LogLimits, Notifier, NotifierError, NotifierOptions, NotifierStatus, NotifySettings,
    OtherSiteDeliveries, PictureLinks, RoutedNotification, SilenceSet, SiteDelivery,
};
use role::RoleContext;

use crate::message_templates::AlertMessageTemplates;
use crate::settings::AlertTables;

/// Name of the directory of deliveries in the data directory.
const DELIVERIES_NAME: &str = "notifications";
/// Name of the directory of pictures in it.
const PICTURES_NAME: &str = "pictures";

/// Pictures that receivers fetch from this node.
pub(crate) fn picture_links(settings: &AlertTables, context: &RoleContext) -> PictureLinks {
    let dir = context.data.join(DELIVERIES_NAME).join(PICTURES_NAME);
    PictureLinks::new(dir, settings.external_url())
}

/// What the notifier needs of the node.
pub(crate) fn notifier_options(settings: &AlertTables, context: &RoleContext) -> NotifierOptions {
    NotifierOptions {
        disk: Arc::new(OsDisk),
        dir: context.data.join(DELIVERIES_NAME),
        settings_dir: settings.dir.clone(),
        clock: wall_clock(),
        supervisor: context.intake.supervisor().clone(),
        log: Arc::clone(&context.log),
        tls: Default::default(),
        templates: Arc::new(AlertMessageTemplates::new(settings.templates())),
        pictures: Some(picture_links(settings, context)),
        limits: LogLimits::default(),
        is_held: settings.has_primary(),
    }
}

/// The notifier, if there are contacts. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct NotifierHandle {
    notifier: Arc<Mutex<Option<Notifier>>>,
    /// A lock of its own: a reload waits for messages under way.
    status: Arc<Mutex<Option<StatusFn>>>,
    /// For a notifier that starts later.
    silences: Arc<Mutex<SilenceSet>>,
}

type StatusFn = Arc<dyn Fn() -> NotifierStatus + Send + Sync>;

impl std::fmt::Debug for NotifierHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NotifierHandle").finish_non_exhaustive()
    }
}

impl NotifierHandle {
    /// Starts the notifier, or gives the running one other settings. Without contacts there is
    /// none, unless it runs already: it gives up what is not delivered.
    pub(crate) fn apply(
        &self,
        settings: NotifySettings,
        options: NotifierOptions,
    ) -> Result<(), NotifierError> {
        let mut notifier = lock(&self.notifier);
        match &mut *notifier {
            Some(running) => running.reload(settings, &options.templates, options.pictures),
            None if settings.contacts.is_empty() => Ok(()),
            None => {
                let started = Notifier::start(settings, options)?;
                *lock(&self.status) = Some(Arc::new(started.status_reader()));
                started.set_silences(lock(&self.silences).clone());
                *notifier = Some(started);
                Ok(())
            }
        }
    }

    /// Whether somebody can be notified.
    pub(crate) fn is_running(&self) -> bool {
        lock(&self.notifier).is_some()
    }

    /// Whether a contact shows pictures.
    pub(crate) fn shows_pictures(&self) -> bool {
        lock(&self.notifier).as_ref().is_some_and(Notifier::shows_pictures)
    }

    /// Uses other silences from now on.
    pub(crate) fn set_silences(&self, silences: SilenceSet) {
        *lock(&self.silences) = silences.clone();
        if let Some(notifier) = &*lock(&self.notifier) {
            notifier.set_silences(silences);
        }
    }

    /// Submits the state of an alert.
    pub(crate) fn submit(
        &self,
        notification: impl Into<RoutedNotification>,
    ) -> Result<(), NotifierError> {
        match &*lock(&self.notifier) {
            Some(notifier) => notifier.submit(notification),
            None => Err(NotifierError::Stopped),
        }
    }

    /// Waits until all that was submitted before is routed, see [`Notifier::routing_waiter`].
    /// Returns whether it is.
    pub(crate) fn wait_until_routed(&self, timeout: Duration) -> bool {
        let wait = lock(&self.notifier).as_ref().map(Notifier::routing_waiter);
        wait.is_none_or(|wait| wait(timeout))
    }

    /// Holds all deliveries: another site makes them.
    pub(crate) fn hold(&self) {
        if let Some(notifier) = &*lock(&self.notifier) {
            notifier.hold();
        }
    }

    /// Makes the deliveries that were held, see [`Notifier::release`].
    pub(crate) fn release(&self, shared_until_ns: i64) {
        if let Some(notifier) = &*lock(&self.notifier) {
            notifier.release(shared_until_ns);
        }
    }

    /// What contacts got from this site after a number, see [`Notifier::deliveries_after`].
    pub(crate) fn deliveries_after(&self, number: u64) -> Result<Vec<SiteDelivery>, String> {
        match &*lock(&self.notifier) {
            Some(notifier) => notifier.deliveries_after(number).map_err(|error| error.to_string()),
            None => Err("cannot say what was delivered: this site has no contacts".to_owned()),
        }
    }

    /// As [`Notifier::settle`].
    pub(crate) fn settle(
        &self,
        other: &mut OtherSiteDeliveries,
        answering_since_ns: i64,
    ) -> Result<u64, NotifierError> {
        match &*lock(&self.notifier) {
            Some(notifier) => notifier.settle(other, answering_since_ns),
            None => Ok(0),
        }
    }

    /// Stops the notifier.
    pub(crate) fn stop(&self) {
        if let Some(notifier) = lock(&self.notifier).take() {
            notifier.stop();
        }
    }

    /// Status, if there are or were contacts.
    pub(crate) fn status(&self) -> Option<NotifierStatus> {
        let read = lock(&self.status).clone();
        read.map(|read| read())
    }
}

/// A panic leaves each of these values usable: they change in single steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
