//! The desk where questions are taken: so many are worked on at once, so many wait, and none goes on when nobody
//! waits for its answer any more.

#[cfg(test)]
mod tests;

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use intake::{Counter, Intake};
use store::{Store, View};
use tokio::sync::Semaphore;

use crate::health;
use crate::json::Json;
use crate::processes::Published;
use crate::recent::Recent;
use crate::refusal::Refusal;
use crate::stream::Hub;

/// How questions are taken.
#[derive(Clone, Debug, PartialEq)]
pub struct DeskSettings {
    /// Questions that are worked on at once: 8 by default. `queries` in `[http.limits]` of the settings.
    pub queries_max: usize,
    /// Questions that wait for their turn, beyond which they are refused with 429: 200 by default.
    pub waiting_max: usize,
    /// How long an answer may take, the waiting included, whatever is asked for: 2 minutes by default.
    pub timeout: Duration,
    /// What one question may cost.
    pub limits: query::Limits,
    /// Bytes of an answer at the most, as it is put together and as it is written: 256 MiB by default.
    pub answer_bytes_max: usize,
    /// Threads that one question reads series on: 2 by default.
    pub threads: usize,
    /// Clients of the live stream: 64 by default.
    pub stream_clients_max: usize,
    /// The folder that snapshots are made in, of the store's file system; without one, none are made.
    pub snapshots: Option<PathBuf>,
    /// The folder that boards of the page are kept in; without one, none are kept.
    pub boards: Option<PathBuf>,
}

impl Default for DeskSettings {
    fn default() -> DeskSettings {
        DeskSettings {
            queries_max: 8,
            waiting_max: 200,
            timeout: Duration::from_secs(120),
            limits: query::Limits::default(),
            answer_bytes_max: 256 << 20,
            threads: 2,
            stream_clients_max: 64,
            snapshots: None,
            boards: None,
        }
    }
}

/// After how long one who was refused may ask again.
const AFTER_BUSY: Duration = Duration::from_secs(1);

/// Where questions are taken; one for all handlers.
#[derive(Debug)]
pub struct Desk {
    pub(crate) settings: DeskSettings,
    /// When it was opened, in nanoseconds since the Unix epoch.
    pub(crate) since: i64,
    pub(crate) hub: Arc<Hub>,
    pub(crate) health: Recent<Result<String, String>>,
    pub(crate) metrics: Recent<Arc<str>>,
    /// Held while a snapshot is made or removed: one of a name is not removed while it is made. Nothing else is locked
    /// here meanwhile; the store locks what it needs within.
    pub(crate) snapshots: Mutex<()>,
    /// Held while a board is written or removed; the same holds.
    pub(crate) boards: Mutex<()>,
    intake: Arc<Intake>,
    turns: Arc<Semaphore>,
    /// Those who work and those who wait.
    places: Arc<Semaphore>,
    refused: Counter,
    abandoned: Counter,
    parts: Parts,
    /// Where the process table of this host is published, if it is.
    processes: Mutex<Option<Published>>,
}

/// What the status says of parts of topdeck that are not known here, by name.
#[derive(Default)]
struct Parts(Mutex<Vec<(&'static str, Read)>>);

/// Reads how a part is now; on a thread that may wait.
type Read = Arc<dyn Fn() -> Json + Send + Sync>;

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parts")
    }
}

impl Desk {
    /// Opens it.
    pub fn new(settings: DeskSettings, intake: Arc<Intake>) -> Desk {
        let meter = intake.meter();
        let counter = |name, about| meter.counter(name, about, &[]);
        Desk {
            since: intake.now(),
            hub: Arc::new(Hub::new(Arc::clone(&intake), settings.stream_clients_max)),
            health: Recent::new(health::AGE_MAX),
            metrics: Recent::new(Duration::ZERO),
            snapshots: Mutex::default(),
            boards: Mutex::default(),
            turns: Arc::new(Semaphore::new(settings.queries_max.max(1))),
            places: Arc::new(Semaphore::new(
                settings.queries_max.max(1).saturating_add(settings.waiting_max),
            )),
            refused: counter(
                "topdeck_queries_refused_total",
                "questions that were refused because too many waited",
            ),
            abandoned: counter(
                "topdeck_queries_abandoned_total",
                "questions that were given up because their time was up or the client was gone",
            ),
            parts: Parts::default(),
            processes: Mutex::default(),
            intake,
            settings,
        }
    }

    /// From now on the status has a part of this name, in the place of one of the same name.
    pub fn tell(&self, name: &'static str, read: impl Fn() -> Json + Send + Sync + 'static) {
        let mut parts = self.parts.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read: Read = Arc::new(read);
        match parts.iter_mut().find(|(known, _)| *known == name) {
            Some(part) => part.1 = read,
            None => parts.push((name, read)),
        }
    }

    /// From now on the process table of this host is found there; or nowhere.
    pub fn publish(&self, processes: Option<Published>) {
        *self.processes.lock().unwrap_or_else(PoisonError::into_inner) = processes;
    }

    /// Where the process table of this host is.
    pub(crate) fn processes(&self) -> Option<Published> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How the parts are that told of themselves.
    pub(crate) fn parts(&self) -> Vec<(&'static str, Json)> {
        let parts = self.parts.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        parts.iter().map(|(name, read)| (*name, read())).collect()
    }

    /// A point at which a test may have a panic thrown.
    pub(crate) fn fault_point(&self, name: &str) {
        self.intake.supervisor().fault_point(name);
    }

    /// Ends live streams, so that their connections can be closed.
    pub fn stop(&self) {
        self.hub.stop();
    }

    /// The store that is asked.
    pub(crate) fn store(&self) -> Result<Arc<Store>, Refusal> {
        let none = "an agent keeps nothing to ask about; ask a site that it forwards to";
        self.intake.home().store().map(Arc::clone).ok_or_else(|| Refusal::Missing(none.to_owned()))
    }

    /// Takes a question: waits for its turn and works on it, on a thread of its own. `what` names it in the books.
    pub(crate) async fn take<T: Send + 'static>(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&View, &Asking) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let store = self.store()?;
        let work = move |asking: &Asking| {
            let over = asking.clone();
            work(&store.view()?.until(Arc::new(move || over.is_over())), asking)
        };
        self.blocking(what, timeout, work).await
    }

    /// The same of what needs no view.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&Asking) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let timeout = timeout.map_or(self.settings.timeout, |most| most.min(self.settings.timeout));
        let began = Instant::now();
        let is_gone = Arc::new(AtomicBool::new(false));
        let asking = Asking { is_gone: Arc::clone(&is_gone), began, timeout };
        // When the client is gone, this is dropped where it waits below.
        let _gone = Gone(is_gone);
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            self.refused.add(1);
            let (working, waiting) = (self.settings.queries_max, self.settings.waiting_max);
            let what = format!(
                "{working} questions are worked on (queries in [http.limits] of the settings) and {waiting} wait, which is as many as may; ask again later"
            );
            Refusal::Busy { what, after: AFTER_BUSY }
        })?;
        let turn = tokio::time::timeout(timeout, Arc::clone(&self.turns).acquire_owned());
        let turn = match turn.await {
            Ok(Ok(turn)) => turn,
            Ok(Err(_)) => return Err(Refusal::Internal("topdeck is stopping".to_owned())),
            Err(_) => {
                self.abandoned.add(1);
                let why = "the question waited for its turn longer than it may; ask again later, or less at once";
                return Err(Refusal::Time(why.to_owned()));
            }
        };
        let timer = self.intake.meter().timer(
            "topdeck_query",
            "how long questions take, from when they came to when the answer was ready",
            &[("kind", what)],
        );
        let abandoned = self.abandoned.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _held = (place, turn);
            let outcome = work(&asking);
            timer.record(began.elapsed());
            if asking.is_over() {
                abandoned.add(1);
            }
            outcome
        });
        done.await.unwrap_or_else(|error| Err(Refusal::Internal(format!("BUG: {error}"))))
    }

    /// An answer in JSON, if it is not too large.
    pub(crate) fn answer(&self, json: &Json) -> Result<Written, Refusal> {
        let mut out = self.page();
        match write!(out, "{json:#}") {
            Ok(()) => Ok(Written(out.text + "\n")),
            Err(_) => Err(out.refusal()),
        }
    }

    /// Somewhere to write an answer to.
    pub(crate) fn page(&self) -> Page {
        Page { text: String::new(), max: self.settings.answer_bytes_max }
    }
}

/// A question that is being worked on.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    is_gone: Arc<AtomicBool>,
    began: Instant,
    timeout: Duration,
}

impl Asking {
    /// Nobody waits for the answer any more, or its time is up.
    pub(crate) fn is_over(&self) -> bool {
        // Relaxed: nothing else is read by this flag.
        self.is_gone.load(Ordering::Relaxed) || self.began.elapsed() >= self.timeout
    }

    /// An error if it is over.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match self.is_over() {
            true => Err(Refusal::of_question(query::Error::Time, "")),
            false => Ok(()),
        }
    }
}

/// Says that the client is gone, when it is dropped.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Text that may become so long.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) text: String,
    max: usize,
}

impl Page {
    /// Why no more could be written.
    pub(crate) fn refusal(&self) -> Refusal {
        Refusal::Execution(format!(
            "the answer has more than {} bytes, which is as many as it may; ask for longer steps, a shorter time or fewer series",
            self.max
        ))
    }
}

impl fmt::Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > self.max {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// An answer in JSON, written.
#[derive(Debug)]
pub(crate) struct Written(pub(crate) String);

impl IntoResponse for Written {
    fn into_response(self) -> Response {
        let kind = HeaderValue::from_static("application/json");
        ([(header::CONTENT_TYPE, kind)], self.0).into_response()
    }
}
