//! The desk where questions are taken: who works on what when ([`crate::admission`]), with how much
//! memory ([`crate::memory`]), and that none goes on when nobody waits for its answer any more.
//!
//! What reads little, as is known or estimated, works in the light lane. An estimate may be wrong:
//! what works too long there, or holds too much, goes on in the heavy lane, when it is its turn.

#[cfg(test)]
mod tests;

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use intake::{Counter, Intake, Meter, Supervisor, Timer};
use query::QueryContext;
use role::StatusSection;
use store::{Store, View};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::admission::{Admission, ClientId, Lane, Place, QueueFull};
use crate::blocking::blocking;
use crate::health;
use crate::json::Json;
use crate::limits::Limits;
use crate::memory::{self, Denial, MemoryBudget, Reservation};
use crate::recent::Recent;
use crate::refusal::{AFTER_BUSY, Refusal};
use crate::stream::Hub;

/// How questions are taken.
#[derive(Clone, Debug, PartialEq)]
pub struct DeskSettings {
    /// Heavy queries that are worked on at once: 8 by default. `queries` in `[http.limits]` of the
    /// settings.
    pub queries_max: usize,
    /// Light queries that are worked on at once: 8 by default.
    pub light_queries_max: usize,
    /// Queries that wait for their turn, light and heavy ones each, beyond which they are refused
    /// with 429: 200 by default.
    pub waiting_max: usize,
    /// A query is light that reads and makes no more rows and values than so many, as is estimated:
    /// 200,000 by default.
    pub light_rows_max: u64,
    /// A light query that works longer becomes a heavy one: 2 s by default.
    pub light_time: Duration,
    /// Bytes of memory of all queries together: 1 GiB by default, 32 MiB at the least.
    /// `query_bytes` in `[http.limits]`.
    pub query_bytes: u64,
    /// How long a query waits for memory that others hold, beyond which it is refused with 429: 10
    /// s by default.
    pub memory_wait: Duration,
    /// How long an answer may take, the waiting included, whatever is asked for: 2 minutes by default.
    pub timeout: Duration,
    /// What one question may cost.
    pub limits: query::Limits,
    /// Bytes of an answer at the most, as it is put together and as it is written: 112 MiB by
    /// default, which is what `answers_bytes` in `[http.limits]` allows.
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

impl DeskSettings {
    /// The least that `query_bytes` counts as.
    pub const QUERY_BYTES_MIN: u64 = memory::BYTES_MIN;
}

impl Default for DeskSettings {
    fn default() -> DeskSettings {
        DeskSettings {
            queries_max: 8,
            light_queries_max: 8,
            waiting_max: 200,
            light_rows_max: 200_000,
            light_time: Duration::from_secs(2),
            query_bytes: 1 << 30,
            memory_wait: Duration::from_secs(10),
            timeout: Duration::from_secs(120),
            limits: query::Limits::default(),
            answer_bytes_max: Limits::default().answer_bytes_max(),
            threads: 2,
            stream_clients_max: 64,
            snapshots: None,
            boards: None,
        }
    }
}

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
    shared: Arc<Shared>,
    parts: Parts,
    /// What it says of roles.
    sections: Mutex<Vec<StatusSection>>,
}

/// What the status says of parts of the server, by name.
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
        let shared = Arc::new(Shared {
            admission: Admission::new(
                settings.light_queries_max,
                settings.queries_max,
                settings.waiting_max,
            ),
            memory: MemoryBudget::new(
                settings.query_bytes,
                settings.light_queries_max,
                settings.memory_wait,
            ),
            light_rows_max: settings.light_rows_max,
            light_time: settings.light_time,
            waiting_max: settings.waiting_max,
            answer_bytes_max: settings.answer_bytes_max,
            refused: Refused::new(intake.meter()),
            abandoned: intake.meter().counter(
                "topdeck_queries_abandoned_total",
                "questions that were given up because their time was up or the client was gone",
                &[],
            ),
            supervisor: intake.supervisor().clone(),
        });
        shared.measure(intake.meter());
        Desk {
            since: intake.now(),
            hub: Arc::new(Hub::new(Arc::clone(&intake), settings.stream_clients_max)),
            health: Recent::new(health::AGE_MAX, intake.supervisor().clone()),
            metrics: Recent::new(Duration::ZERO, intake.supervisor().clone()),
            snapshots: Mutex::default(),
            boards: Mutex::default(),
            shared,
            parts: Parts::default(),
            sections: Mutex::default(),
            intake,
            settings,
        }
    }

    /// From now on the status has a part of this name, in the place of one of the same name.
    pub(crate) fn tell(&self, name: &'static str, read: impl Fn() -> Json + Send + Sync + 'static) {
        let mut parts = self.parts.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read: Read = Arc::new(read);
        match parts.iter_mut().find(|(known, _)| *known == name) {
            Some(part) => part.1 = read,
            None => parts.push((name, read)),
        }
    }

    /// From now on the status has these sections of roles.
    pub fn set_sections(&self, sections: Vec<StatusSection>) {
        *self.sections.lock().unwrap_or_else(PoisonError::into_inner) = sections;
    }

    /// How the parts are that told of themselves, and the roles.
    pub(crate) fn parts(&self) -> Vec<(&'static str, Json)> {
        let parts = self.parts.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sections = self.sections.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let own = parts.iter().map(|(name, read)| (*name, read()));
        own.chain(sections.iter().map(|section| (section.name, section.read()))).collect()
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

    /// Works on something that reads little, with what the store has at one moment.
    pub(crate) async fn light_view<T: Send + 'static>(
        &self,
        client: &ClientId,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&View, &Asking) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let store = self.store()?;
        let work = move |asking: &Asking| work(&asking.view(&store)?, asking);
        self.run(Lane::Light, client, what, timeout, work).await
    }

    /// Works on something in a lane, on a thread of its own, when it is the client's turn. `what`
    /// names it in metrics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        client: &ClientId,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&Asking) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (asking, _gone) = self.asking(client, timeout);
        asking.enter(lane).await?;
        let timer = self.timer(what);
        spawn(asking, move |asking| asking.finish(&timer, work(asking))).await
    }

    /// Works on a query: in the light lane what reads few rows and makes few values as `estimate`
    /// has it, in the heavy lane everything else. The estimate is made in the light lane.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        client: &ClientId,
        what: &'static str,
        timeout: Option<Duration>,
        estimate: impl FnOnce(&View, &Asking) -> u64 + Send + 'static,
        work: impl FnOnce(&View, &Asking) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        enum Either<T, W> {
            Done(T),
            Heavy(W),
        }
        let (asking, _gone) = self.asking(client, timeout);
        asking.enter(Lane::Light).await?;
        let store = self.store()?;
        let timer = self.timer(what);
        let work = move |view: &View, asking: &Asking| asking.finish(&timer, work(view, asking));
        let own = Arc::clone(&store);
        let light = move |asking: &Asking| {
            let view = asking.view(&own)?;
            // What is wrong with it the work itself finds out.
            let is_light = estimate(&view, asking) <= asking.desk.light_rows_max;
            asking.check()?;
            match is_light || asking.lane() == Some(Lane::Heavy) {
                true => work(&view, asking).map(Either::Done),
                false => Ok(Either::Heavy(work)),
            }
        };
        match spawn(asking.clone(), light).await? {
            Either::Done(done) => Ok(done),
            Either::Heavy(work) => {
                asking.reservation.become_heavy().map_err(|denial| asking.denied(denial))?;
                asking.enter(Lane::Heavy).await?;
                let work = move |asking: &Asking| work(&asking.view(&store)?, asking);
                spawn(asking, work).await
            }
        }
    }

    fn asking(&self, client: &ClientId, timeout: Option<Duration>) -> (Asking, Gone) {
        let timeout = timeout.map_or(self.settings.timeout, |most| most.min(self.settings.timeout));
        let asking = Asking(Arc::new(Question {
            desk: Arc::clone(&self.shared),
            client: client.clone(),
            began: Instant::now(),
            timeout,
            is_gone: AtomicBool::new(false),
            gone: Notify::new(),
            refusal: OnceLock::new(),
            place: Mutex::new(None),
            is_light: AtomicBool::new(false),
            reservation: Reservation::new(&self.shared.memory),
            runtime: Handle::current(),
        }));
        // When the client is gone, this is dropped where the work is waited for.
        let gone = Gone(asking.clone());
        (asking, gone)
    }

    fn timer(&self, what: &'static str) -> Timer {
        self.intake.meter().timer(
            "topdeck_query",
            "how long questions take, from when they came to when the answer was ready",
            &[("kind", what)],
        )
    }

    /// An answer in JSON, if it is not too large.
    pub(crate) fn answer(&self, json: &Json) -> Result<Written, Refusal> {
        self.page().json(json)
    }

    /// Somewhere to write an answer to that is small, or made out of what is held anyhow.
    pub(crate) fn page(&self) -> Page {
        Page {
            text: String::new(),
            max: self.settings.answer_bytes_max,
            asking: None,
            denied: None,
        }
    }
}

/// Works on a question that has a place, on a thread of its own.
async fn spawn<T: Send + 'static>(
    asking: Asking,
    work: impl FnOnce(&Asking) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let supervisor = asking.desk.supervisor.clone();
    let done = blocking(&supervisor, move || {
        asking.desk.supervisor.fault_point("work on a query");
        let outcome = work(&asking);
        asking.leave();
        // It says more than what the work made of it.
        match asking.refusal.get() {
            Some(refusal) => Err(refusal.clone()),
            None => outcome,
        }
    });
    done.await.unwrap_or_else(|what| Err(Refusal::Internal(what)))
}

/// What questions share that are worked on.
#[derive(Debug)]
struct Shared {
    admission: Arc<Admission>,
    memory: Arc<MemoryBudget>,
    light_rows_max: u64,
    light_time: Duration,
    waiting_max: usize,
    answer_bytes_max: usize,
    refused: Refused,
    abandoned: Counter,
    supervisor: Supervisor,
}

impl Shared {
    fn measure(&self, meter: &Meter) {
        for lane in Lane::ALL {
            let labels = [("lane", lane.name())];
            let of = |name, about, read: fn((usize, usize)) -> usize| {
                let admission = Arc::clone(&self.admission);
                meter.gauge(name, about, &labels, move || read(admission.counts(lane)) as f64);
            };
            of("topdeck_queries_working", "queries worked on", |counts| counts.0);
            of("topdeck_queries_waiting", "queries that wait for their turn", |counts| counts.1);
        }
        let memory = Arc::clone(&self.memory);
        let about = "bytes of memory held by queries";
        meter.gauge("topdeck_query_memory_bytes", about, &[], move || memory.used() as f64);
        let memory = Arc::clone(&self.memory);
        let about = "queries that wait for memory";
        meter.gauge("topdeck_query_memory_waiting", about, &[], move || memory.waiting() as f64);
    }
}

/// Counts refused questions by reason.
#[derive(Debug)]
struct Refused {
    queue: Counter,
    memory: Counter,
    memory_max: Counter,
}

impl Refused {
    fn new(meter: &Meter) -> Refused {
        let of = |reason| {
            let about = "queries refused, by the limit that they reached";
            meter.counter("topdeck_queries_refused_total", about, &[("reason", reason)])
        };
        Refused { queue: of("queue"), memory: of("memory"), memory_max: of("memory_max") }
    }
}

/// A question that is being worked on; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Asking(Arc<Question>);

impl std::ops::Deref for Asking {
    type Target = Question;

    fn deref(&self) -> &Question {
        &self.0
    }
}

/// What is known of a question that is being worked on.
#[derive(Debug)]
pub(crate) struct Question {
    desk: Arc<Shared>,
    client: ClientId,
    began: Instant,
    timeout: Duration,
    is_gone: AtomicBool,
    /// Told when it is gone.
    gone: Notify,
    /// Why it was refused in the middle of the work.
    refusal: OnceLock<Refusal>,
    /// Where it works, and since when. The lock is held while a light question waits to become a
    /// heavy one.
    place: Mutex<Option<(Lane, Instant, Place)>>,
    /// Whether it works in the light lane; to be looked at without the lock.
    is_light: AtomicBool,
    reservation: Reservation,
    /// What waits for a turn in the middle of the work.
    runtime: Handle,
}

impl Asking {
    /// Waits for a place in a lane.
    async fn enter(&self, lane: Lane) -> Result<(), Refusal> {
        let place = self.wait_for_place(lane).await?;
        *self.place() = Some((lane, Instant::now(), place));
        self.is_light.store(lane == Lane::Light, Ordering::Relaxed);
        Ok(())
    }

    async fn wait_for_place(&self, lane: Lane) -> Result<Place, Refusal> {
        let full = |_: QueueFull| {
            self.desk.refused.queue.add(1);
            let (working, waiting) = (self.desk.admission.counts(lane).0, self.desk.waiting_max);
            let what = format!(
                "cannot take the query: {working} {} queries are worked on (queries in \
                 [http.limits] of the settings) and {waiting} wait, which is as many as may; \
                 ask again later",
                lane.name()
            );
            Refusal::Busy { what, after: AFTER_BUSY }
        };
        let waiting = self.desk.admission.enter(lane, &self.client).map_err(full)?;
        let left = self.timeout.saturating_sub(self.began.elapsed());
        tokio::select! {
            biased;
            place = waiting => place.map_err(full),
            () = self.gone.notified() => Err(Refusal::of_question(query::Error::Time, "")),
            () = tokio::time::sleep(left) => {
                self.desk.abandoned.add(1);
                let why = "the question waited for its turn longer than it may; ask again later, \
                           or less at once";
                Err(Refusal::Time(why.to_owned()))
            }
        }
    }

    fn place(&self) -> MutexGuard<'_, Option<(Lane, Instant, Place)>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In which lane it works.
    fn lane(&self) -> Option<Lane> {
        self.place().as_ref().map(|place| place.0)
    }

    /// Gives its place up.
    fn leave(&self) {
        drop(self.place().take());
    }

    /// What the store has now; reads of it end when this is over.
    fn view(&self, store: &Store) -> Result<View, Refusal> {
        let over = self.clone();
        Ok(store.view()?.until(Arc::new(move || over.is_over())))
    }

    /// Nobody waits for the answer any more, or its time is up.
    fn is_abandoned(&self) -> bool {
        // Relaxed: nothing else is read by this flag.
        self.is_gone.load(Ordering::Relaxed) || self.began.elapsed() >= self.timeout
    }

    /// The same, or it was refused.
    fn is_ended(&self) -> bool {
        self.refusal.get().is_some() || self.is_abandoned()
    }

    /// Counts a question that was worked on.
    fn finish<T>(&self, timer: &Timer, outcome: Result<T, Refusal>) -> Result<T, Refusal> {
        timer.record(self.began.elapsed());
        if self.is_abandoned() {
            self.desk.abandoned.add(1);
        }
        outcome
    }

    /// Whether to stop. What works longer in the light lane than it may waits here for a place in
    /// the heavy one.
    pub(crate) fn is_over(&self) -> bool {
        if self.is_ended() {
            return true;
        }
        if self.is_light.load(Ordering::Relaxed) {
            let mut place = self.place();
            let is_late = place.as_ref().is_some_and(|(lane, since, _)| {
                *lane == Lane::Light && since.elapsed() >= self.desk.light_time
            });
            if is_late {
                return self.become_heavy(&mut place).is_err();
            }
        }
        false
    }

    /// Goes on in the heavy lane, when it is the client's turn there. An error ends the question.
    fn become_heavy(&self, place: &mut Option<(Lane, Instant, Place)>) -> Result<(), ()> {
        let refuse = |refusal| drop(self.refusal.set(refusal));
        self.reservation.become_heavy().map_err(|denial| refuse(self.denied(denial)))?;
        if place.as_ref().is_none_or(|place| place.0 == Lane::Heavy) {
            return Ok(());
        }
        // Others have the place that this gave up.
        *place = None;
        let waited = self.runtime.block_on(self.wait_for_place(Lane::Heavy)).map_err(refuse)?;
        *place = Some((Lane::Heavy, Instant::now(), waited));
        self.is_light.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// An error if it is over.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match (self.is_over(), self.refusal.get()) {
            (false, _) => Ok(()),
            (true, Some(refusal)) => Err(refusal.clone()),
            (true, None) => Err(Refusal::of_question(query::Error::Time, "")),
        }
    }

    /// Holds more memory, which is given back at the end of the question.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), Refusal> {
        let is_ended = || self.is_ended();
        match self.reservation.grow(bytes as u64, &is_ended) {
            Err(Denial::NotLight) => {
                let became = self.become_heavy(&mut self.place());
                // Why not is told by the check.
                became.or_else(|()| self.check())?;
                self.reservation.grow(0, &is_ended).map_err(|denial| self.denied(denial))
            }
            outcome => outcome.map_err(|denial| self.denied(denial)),
        }
    }

    fn denied(&self, denial: Denial) -> Refusal {
        match denial {
            Denial::Over => Refusal::of_question(query::Error::Time, ""),
            Denial::TooLarge { max } => {
                self.desk.refused.memory_max.add(1);
                Refusal::Execution(format!(
                    "cannot answer the query: it needs more than {max} bytes of memory (query_bytes \
                     in [http.limits] of the settings, less the share of light queries); ask \
                     for longer steps, a shorter time or fewer series, or raise query_bytes"
                ))
            }
            Denial::Busy { .. } | Denial::NotLight => {
                self.desk.refused.memory.add(1);
                let (used, max) = match denial {
                    Denial::Busy { used, max } => (used, max),
                    _ => (self.desk.memory.used(), 0),
                };
                let what = format!(
                    "cannot get more memory for the query: queries hold {used} of {max} bytes \
                     (query_bytes in [http.limits] of the settings, less the share of light \
                     queries); ask again later, or for less"
                );
                Refusal::Busy { what, after: AFTER_BUSY }
            }
        }
    }

    /// An answer in JSON, if it is not too large.
    pub(crate) fn answer(&self, json: &Json) -> Result<Written, Refusal> {
        self.page().json(json)
    }

    /// Somewhere to write an answer to.
    pub(crate) fn page(&self) -> Page {
        let max = self.desk.answer_bytes_max;
        Page { text: String::new(), max, asking: Some(self.clone()), denied: None }
    }
}

impl QueryContext for Asking {
    fn is_over(&self) -> bool {
        Asking::is_over(self)
    }

    fn grow(&self, bytes: u64) -> query::Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.hold(bytes).map_err(|refusal| match refusal {
            Refusal::Time(_) => query::Error::Time,
            refusal => query::Error::Memory {
                is_transient: matches!(refusal, Refusal::Busy { .. }),
                message: refusal.what().to_owned(),
            },
        })
    }

    fn shrink(&self, bytes: u64) {
        self.reservation.shrink(bytes);
    }
}

/// Says that the client is gone, when it is dropped.
struct Gone(Asking);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.is_gone.store(true, Ordering::Relaxed);
        self.0.gone.notify_one();
        self.0.desk.memory.wake();
    }
}

/// Text that may become so long.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) text: String,
    max: usize,
    /// The question that its memory is taken for.
    asking: Option<Asking>,
    /// Why there was no memory for more.
    denied: Option<Refusal>,
}

impl Page {
    /// Why no more could be written.
    pub(crate) fn refusal(self) -> Refusal {
        self.denied.unwrap_or_else(|| {
            Refusal::Execution(format!(
                "the answer has more than {} bytes, which is as many as it may (answers_bytes in \
                 [http.limits] of the settings); ask for longer steps, a shorter time or fewer \
                 series",
                self.max
            ))
        })
    }

    fn json(mut self, json: &Json) -> Result<Written, Refusal> {
        match write!(self, "{json:#}") {
            Ok(()) => Ok(Written(self.text + "\n")),
            Err(_) => Err(self.refusal()),
        }
    }
}

impl fmt::Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let bytes = self.text.len() + text.len();
        if bytes > self.max {
            return Err(fmt::Error);
        }
        if bytes > self.text.capacity() {
            // As it grows by itself, but known beforehand.
            let capacity = (2 * self.text.capacity()).min(self.max).max(PAGE_BYTES).max(bytes);
            let more = capacity - self.text.capacity();
            if let Some(Err(denied)) = self.asking.as_ref().map(|asking| asking.hold(more)) {
                self.denied = Some(denied);
                return Err(fmt::Error);
            }
            self.text.reserve_exact(capacity - self.text.len());
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// How much a page holds at first.
const PAGE_BYTES: usize = 4 << 10;

/// An answer in JSON, written.
#[derive(Debug)]
pub(crate) struct Written(pub(crate) String);

impl IntoResponse for Written {
    fn into_response(self) -> Response {
        let kind = HeaderValue::from_static("application/json");
        ([(header::CONTENT_TYPE, kind)], self.0).into_response()
    }
}
