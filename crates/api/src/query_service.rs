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
use intake::{Counter, Intake, LatencyHistogram, Meter, Supervisor};
use query::QueryContext;
use role::StatusSection;
use store::{ReadView, Store};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::api_error::{ApiError, RETRY_AFTER_BUSY};
use crate::blocking::blocking;
use crate::health;
use crate::json::Json;
use crate::limits::Limits;
use crate::memory_budget::{self, Denial, MemoryBudget, Reservation};
use crate::query_admission::{ClientId, LanePermit, QueryAdmission, QueryLane, QueueFull};
use crate::stream::StreamHub;
use crate::ttl_cache::TtlCache;

/// Query service settings.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryServiceSettings {
    /// Heavy queries that are worked on at once: 8 by default. `queries` in `[http.limits]` of the
    /// settings.
    pub max_concurrent_queries: usize,
    /// Light queries that are worked on at once: 8 by default.
    pub max_light_queries: usize,
    /// Queries that wait for their turn, light and heavy ones each, beyond which they are refused
    /// with 429: 200 by default.
    pub max_queued_queries: usize,
    /// A query is light that reads and makes no more rows and values than so many, as is estimated:
    /// 200,000 by default.
    pub max_light_rows: u64,
    /// A light query that works longer becomes a heavy one: 2 s by default.
    pub light_query_time: Duration,
    /// Bytes of memory of all queries together: 1 GiB by default, 32 MiB at the least.
    /// `query_bytes` in `[http.limits]`.
    pub max_query_bytes: u64,
    /// How long a query waits for memory that others hold, beyond which it is refused with 429: 10
    /// s by default.
    pub memory_wait_timeout: Duration,
    /// How long an answer may take, the waiting included, whatever is asked for: 2 minutes by default.
    pub timeout: Duration,
    /// What one question may cost.
    pub limits: query::Limits,
    /// Bytes of an answer at the most, as it is put together and as it is written: 112 MiB by
    /// default, which is what `answers_bytes` in `[http.limits]` allows.
    pub max_response_bytes: usize,
    /// Threads that one question reads series on: 2 by default.
    pub threads: usize,
    /// Clients of the live stream: 64 by default.
    pub max_stream_clients: usize,
    /// The folder that snapshots are made in, of the store's file system; without one, none are made.
    pub snapshots_dir: Option<PathBuf>,
    /// The folder that boards of the page are kept in; without one, none are kept.
    pub dashboards_dir: Option<PathBuf>,
}

impl QueryServiceSettings {
    /// The least that `query_bytes` counts as.
    pub const QUERY_BYTES_MIN: u64 = memory_budget::BYTES_MIN;
}

impl Default for QueryServiceSettings {
    fn default() -> QueryServiceSettings {
        QueryServiceSettings {
            max_concurrent_queries: 8,
            max_light_queries: 8,
            max_queued_queries: 200,
            max_light_rows: 200_000,
            light_query_time: Duration::from_secs(2),
            max_query_bytes: 1 << 30,
            memory_wait_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(120),
            limits: query::Limits::default(),
            max_response_bytes: Limits::default().max_response_bytes(),
            threads: 2,
            max_stream_clients: 64,
            snapshots_dir: None,
            dashboards_dir: None,
        }
    }
}

/// Query service: admission and execution of queries.
#[derive(Debug)]
pub struct QueryService {
    pub(crate) settings: QueryServiceSettings,
    /// When it was opened, in nanoseconds since the Unix epoch.
    pub(crate) started_at: i64,
    pub(crate) hub: Arc<StreamHub>,
    pub(crate) health: TtlCache<Result<String, String>>,
    pub(crate) metrics: TtlCache<Arc<str>>,
    /// Held while a snapshot is made or removed: one of a name is not removed while it is made. Nothing else is locked
    /// here meanwhile; the store locks what it needs within.
    pub(crate) snapshots_lock: Mutex<()>,
    /// Held while a board is written or removed; the same holds.
    pub(crate) dashboards_lock: Mutex<()>,
    intake: Arc<Intake>,
    shared: Arc<QueryServiceShared>,
    status_sections: StatusSections,
    /// What it says of roles.
    sections: Mutex<Vec<StatusSection>>,
}

/// What the status says of parts of the server, by name.
#[derive(Default)]
struct StatusSections(Mutex<Vec<(&'static str, SectionFn)>>);

/// Produces a status section; may block.
type SectionFn = Arc<dyn Fn() -> Json + Send + Sync>;

impl fmt::Debug for StatusSections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parts")
    }
}

impl QueryService {
    /// Opens it.
    pub fn new(settings: QueryServiceSettings, intake: Arc<Intake>) -> QueryService {
        let shared = Arc::new(QueryServiceShared {
            admission: QueryAdmission::new(
                settings.max_light_queries,
                settings.max_concurrent_queries,
                settings.max_queued_queries,
            ),
            memory: MemoryBudget::new(
                settings.max_query_bytes,
                settings.max_light_queries,
                settings.memory_wait_timeout,
            ),
            max_light_rows: settings.max_light_rows,
            light_query_time: settings.light_query_time,
            max_queued_queries: settings.max_queued_queries,
            max_response_bytes: settings.max_response_bytes,
            rejected: QueryRejectCounters::new(intake.meter()),
            cancelled: intake.meter().counter(
                "topdeck_queries_cancelled_total",
                "questions that were given up because their time was up or the client was gone",
                &[],
            ),
            supervisor: intake.supervisor().clone(),
        });
        shared.register_metrics(intake.meter());
        QueryService {
            started_at: intake.now(),
            hub: Arc::new(StreamHub::new(Arc::clone(&intake), settings.max_stream_clients)),
            health: TtlCache::new(health::CACHE_TTL, intake.supervisor().clone()),
            metrics: TtlCache::new(Duration::ZERO, intake.supervisor().clone()),
            snapshots_lock: Mutex::default(),
            dashboards_lock: Mutex::default(),
            shared,
            status_sections: StatusSections::default(),
            sections: Mutex::default(),
            intake,
            settings,
        }
    }

    /// From now on the status has a part of this name, in the place of one of the same name.
    pub(crate) fn add_status_section(
        &self,
        name: &'static str,
        read: impl Fn() -> Json + Send + Sync + 'static,
    ) {
        let mut parts = self.status_sections.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read: SectionFn = Arc::new(read);
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
    pub(crate) fn status_sections(&self) -> Vec<(&'static str, Json)> {
        let parts = self.status_sections.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
    pub(crate) fn store(&self) -> Result<Arc<Store>, ApiError> {
        let none = "an agent keeps nothing to ask about; ask a site that it forwards to";
        self.intake
            .target()
            .store()
            .map(Arc::clone)
            .ok_or_else(|| ApiError::NotFound(none.to_owned()))
    }

    /// Works on something that reads little, with what the store has at one moment.
    pub(crate) async fn run_light_with_view<T: Send + 'static>(
        &self,
        client: &ClientId,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&ReadView, &ActiveQuery) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let store = self.store()?;
        let work = move |asking: &ActiveQuery| work(&asking.view(&store)?, asking);
        self.run(QueryLane::Light, client, what, timeout, work).await
    }

    /// Works on something in a lane, on a thread of its own, when it is the client's turn. `what`
    /// names it in metrics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        lane: QueryLane,
        client: &ClientId,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&ActiveQuery) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let (asking, _gone) = self.begin_query(client, timeout);
        asking.enter(lane).await?;
        let timer = self.duration_histogram(what);
        run_blocking(asking, move |asking| asking.record_outcome(&timer, work(asking))).await
    }

    /// Works on a query: in the light lane what reads few rows and makes few values as `estimate`
    /// has it, in the heavy lane everything else. The estimate is made in the light lane.
    pub(crate) async fn run_query<T: Send + 'static>(
        &self,
        client: &ClientId,
        what: &'static str,
        timeout: Option<Duration>,
        estimate: impl FnOnce(&ReadView, &ActiveQuery) -> u64 + Send + 'static,
        work: impl FnOnce(&ReadView, &ActiveQuery) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        enum LaneOutcome<T, W> {
            Done(T),
            NeedsHeavyLane(W),
        }
        let (asking, _gone) = self.begin_query(client, timeout);
        asking.enter(QueryLane::Light).await?;
        let store = self.store()?;
        let timer = self.duration_histogram(what);
        let work = move |view: &ReadView, asking: &ActiveQuery| {
            asking.record_outcome(&timer, work(view, asking))
        };
        let own = Arc::clone(&store);
        let light = move |asking: &ActiveQuery| {
            let view = asking.view(&own)?;
            // What is wrong with it the work itself finds out.
            let is_light = estimate(&view, asking) <= asking.service.max_light_rows;
            asking.check_cancelled()?;
            match is_light || asking.lane() == Some(QueryLane::Heavy) {
                true => work(&view, asking).map(LaneOutcome::Done),
                false => Ok(LaneOutcome::NeedsHeavyLane(work)),
            }
        };
        match run_blocking(asking.clone(), light).await? {
            LaneOutcome::Done(done) => Ok(done),
            LaneOutcome::NeedsHeavyLane(work) => {
                asking.reservation.become_heavy().map_err(|denial| asking.denial_error(denial))?;
                asking.enter(QueryLane::Heavy).await?;
                let work = move |asking: &ActiveQuery| work(&asking.view(&store)?, asking);
                run_blocking(asking, work).await
            }
        }
    }

    fn begin_query(
        &self,
        client: &ClientId,
        timeout: Option<Duration>,
    ) -> (ActiveQuery, CancelOnDrop) {
        let timeout = timeout.map_or(self.settings.timeout, |most| most.min(self.settings.timeout));
        let asking = ActiveQuery(Arc::new(ActiveQueryState {
            service: Arc::clone(&self.shared),
            client: client.clone(),
            started: Instant::now(),
            timeout,
            is_disconnected: AtomicBool::new(false),
            disconnected: Notify::new(),
            error: OnceLock::new(),
            permit: Mutex::new(None),
            is_light: AtomicBool::new(false),
            reservation: Reservation::new(&self.shared.memory),
            runtime: Handle::current(),
        }));
        // When the client is gone, this is dropped where the work is waited for.
        let gone = CancelOnDrop(asking.clone());
        (asking, gone)
    }

    fn duration_histogram(&self, what: &'static str) -> LatencyHistogram {
        self.intake.meter().histogram(
            "topdeck_query_duration",
            "how long questions take, from when they came to when the answer was ready",
            &[("kind", what)],
        )
    }

    /// An answer in JSON, if it is not too large.
    pub(crate) fn json_response(&self, json: &Json) -> Result<JsonBody, ApiError> {
        self.response_buffer().write_json(json)
    }

    /// Somewhere to write an answer to that is small, or made out of what is held anyhow.
    pub(crate) fn response_buffer(&self) -> BoundedBuffer {
        BoundedBuffer {
            text: String::new(),
            max: self.settings.max_response_bytes,
            query: None,
            error: None,
        }
    }
}

/// Works on a question that has a place, on a thread of its own.
async fn run_blocking<T: Send + 'static>(
    asking: ActiveQuery,
    work: impl FnOnce(&ActiveQuery) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let supervisor = asking.service.supervisor.clone();
    let done = blocking(&supervisor, move || {
        asking.service.supervisor.fault_point("work on a query");
        let outcome = work(&asking);
        asking.release_permit();
        // It says more than what the work made of it.
        match asking.error.get() {
            Some(refusal) => Err(refusal.clone()),
            None => outcome,
        }
    });
    done.await.unwrap_or_else(|what| Err(ApiError::Internal(what)))
}

/// State shared by running queries.
#[derive(Debug)]
struct QueryServiceShared {
    admission: Arc<QueryAdmission>,
    memory: Arc<MemoryBudget>,
    max_light_rows: u64,
    light_query_time: Duration,
    max_queued_queries: usize,
    max_response_bytes: usize,
    rejected: QueryRejectCounters,
    cancelled: Counter,
    supervisor: Supervisor,
}

impl QueryServiceShared {
    fn register_metrics(&self, meter: &Meter) {
        for lane in QueryLane::ALL {
            let labels = [("lane", lane.name())];
            let of = |name, about, read: fn((usize, usize)) -> usize| {
                let admission = Arc::clone(&self.admission);
                meter.gauge(name, about, &labels, move || {
                    read(admission.running_and_queued(lane)) as f64
                });
            };
            of("topdeck_queries_running", "queries worked on", |counts| counts.0);
            of("topdeck_queries_queued", "queries that wait for their turn", |counts| counts.1);
        }
        let memory = Arc::clone(&self.memory);
        let about = "bytes of memory held by queries";
        meter.gauge("topdeck_query_memory_bytes", about, &[], move || memory.used() as f64);
        let memory = Arc::clone(&self.memory);
        let about = "queries that wait for memory";
        meter.gauge("topdeck_queries_waiting_for_memory", about, &[], move || {
            memory.waiting() as f64
        });
    }
}

/// Rejected queries by reason.
#[derive(Debug)]
struct QueryRejectCounters {
    queue: Counter,
    memory: Counter,
    memory_max: Counter,
}

impl QueryRejectCounters {
    fn new(meter: &Meter) -> QueryRejectCounters {
        let of = |reason| {
            let about = "queries refused, by the limit that they reached";
            meter.counter("topdeck_queries_rejected_total", about, &[("reason", reason)])
        };
        QueryRejectCounters {
            queue: of("queue"),
            memory: of("memory"),
            memory_max: of("memory_limit"),
        }
    }
}

/// A running query; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ActiveQuery(Arc<ActiveQueryState>);

impl std::ops::Deref for ActiveQuery {
    type Target = ActiveQueryState;

    fn deref(&self) -> &ActiveQueryState {
        &self.0
    }
}

/// State of a running query.
#[derive(Debug)]
pub(crate) struct ActiveQueryState {
    service: Arc<QueryServiceShared>,
    client: ClientId,
    started: Instant,
    timeout: Duration,
    is_disconnected: AtomicBool,
    /// Told when it is gone.
    disconnected: Notify,
    /// Why it was refused in the middle of the work.
    error: OnceLock<ApiError>,
    /// Where it works, and since when. The lock is held while a light question waits to become a
    /// heavy one.
    permit: Mutex<Option<(QueryLane, Instant, LanePermit)>>,
    /// Whether it works in the light lane; to be looked at without the lock.
    is_light: AtomicBool,
    reservation: Reservation,
    /// What waits for a turn in the middle of the work.
    runtime: Handle,
}

impl ActiveQuery {
    /// Waits for a place in a lane.
    async fn enter(&self, lane: QueryLane) -> Result<(), ApiError> {
        let place = self.acquire_permit(lane).await?;
        *self.permit() = Some((lane, Instant::now(), place));
        self.is_light.store(lane == QueryLane::Light, Ordering::Relaxed);
        Ok(())
    }

    async fn acquire_permit(&self, lane: QueryLane) -> Result<LanePermit, ApiError> {
        let full = |_: QueueFull| {
            self.service.rejected.queue.add(1);
            let (working, waiting) = (
                self.service.admission.running_and_queued(lane).0,
                self.service.max_queued_queries,
            );
            let what = format!(
                "cannot take the query: {working} {} queries are worked on (queries in \
                 [http.limits] of the settings) and {waiting} wait, which is as many as may; \
                 ask again later",
                lane.name()
            );
            ApiError::TooManyRequests { message: what, retry_after: RETRY_AFTER_BUSY }
        };
        let waiting = self.service.admission.enqueue(lane, &self.client).map_err(full)?;
        let left = self.timeout.saturating_sub(self.started.elapsed());
        tokio::select! {
            biased;
            place = waiting => place.map_err(full),
            () = self.disconnected.notified() => Err(ApiError::from_query_error(query::Error::Timeout, "")),
            () = tokio::time::sleep(left) => {
                self.service.cancelled.add(1);
                let why = "the question waited for its turn longer than it may; ask again later, \
                           or less at once";
                Err(ApiError::Timeout(why.to_owned()))
            }
        }
    }

    fn permit(&self) -> MutexGuard<'_, Option<(QueryLane, Instant, LanePermit)>> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In which lane it works.
    fn lane(&self) -> Option<QueryLane> {
        self.permit().as_ref().map(|place| place.0)
    }

    /// Gives its place up.
    fn release_permit(&self) {
        drop(self.permit().take());
    }

    /// What the store has now; reads of it end when this is over.
    fn view(&self, store: &Store) -> Result<ReadView, ApiError> {
        let over = self.clone();
        Ok(store.view()?.with_cancellation(Arc::new(move || over.should_stop())))
    }

    /// Nobody waits for the answer any more, or its time is up.
    fn is_cancelled(&self) -> bool {
        // Relaxed: nothing else is read by this flag.
        self.is_disconnected.load(Ordering::Relaxed) || self.started.elapsed() >= self.timeout
    }

    /// The same, or it was refused.
    fn is_ended(&self) -> bool {
        self.error.get().is_some() || self.is_cancelled()
    }

    /// Counts a question that was worked on.
    fn record_outcome<T>(
        &self,
        timer: &LatencyHistogram,
        outcome: Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        timer.record(self.started.elapsed());
        if self.is_cancelled() {
            self.service.cancelled.add(1);
        }
        outcome
    }

    /// Whether to stop. What works longer in the light lane than it may waits here for a place in
    /// the heavy one.
    pub(crate) fn should_stop(&self) -> bool {
        if self.is_ended() {
            return true;
        }
        if self.is_light.load(Ordering::Relaxed) {
            let mut place = self.permit();
            let is_late = place.as_ref().is_some_and(|(lane, since, _)| {
                *lane == QueryLane::Light && since.elapsed() >= self.service.light_query_time
            });
            if is_late {
                return self.move_to_heavy(&mut place).is_err();
            }
        }
        false
    }

    /// Goes on in the heavy lane, when it is the client's turn there. An error ends the question.
    fn move_to_heavy(
        &self,
        place: &mut Option<(QueryLane, Instant, LanePermit)>,
    ) -> Result<(), ()> {
        let refuse = |refusal| drop(self.error.set(refusal));
        self.reservation.become_heavy().map_err(|denial| refuse(self.denial_error(denial)))?;
        if place.as_ref().is_none_or(|place| place.0 == QueryLane::Heavy) {
            return Ok(());
        }
        // Others have the place that this gave up.
        *place = None;
        let waited =
            self.runtime.block_on(self.acquire_permit(QueryLane::Heavy)).map_err(refuse)?;
        *place = Some((QueryLane::Heavy, Instant::now(), waited));
        self.is_light.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// An error if it is over.
    pub(crate) fn check_cancelled(&self) -> Result<(), ApiError> {
        match (self.should_stop(), self.error.get()) {
            (false, _) => Ok(()),
            (true, Some(refusal)) => Err(refusal.clone()),
            (true, None) => Err(ApiError::from_query_error(query::Error::Timeout, "")),
        }
    }

    /// Holds more memory, which is given back at the end of the question.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), ApiError> {
        let is_ended = || self.is_ended();
        match self.reservation.grow(bytes as u64, &is_ended) {
            Err(Denial::NotLight) => {
                let became = self.move_to_heavy(&mut self.permit());
                // Why not is told by the check.
                became.or_else(|()| self.check_cancelled())?;
                self.reservation.grow(0, &is_ended).map_err(|denial| self.denial_error(denial))
            }
            outcome => outcome.map_err(|denial| self.denial_error(denial)),
        }
    }

    fn denial_error(&self, denial: Denial) -> ApiError {
        match denial {
            Denial::Cancelled => ApiError::from_query_error(query::Error::Timeout, ""),
            Denial::TooLarge { max } => {
                self.service.rejected.memory_max.add(1);
                ApiError::Unprocessable(format!(
                    "cannot answer the query: it needs more than {max} bytes of memory (query_bytes \
                     in [http.limits] of the settings, less the share of light queries); ask \
                     for longer steps, a shorter time or fewer series, or raise query_bytes"
                ))
            }
            Denial::Busy { .. } | Denial::NotLight => {
                self.service.rejected.memory.add(1);
                let (used, max) = match denial {
                    Denial::Busy { used, max } => (used, max),
                    _ => (self.service.memory.used(), 0),
                };
                let what = format!(
                    "cannot get more memory for the query: queries hold {used} of {max} bytes \
                     (query_bytes in [http.limits] of the settings, less the share of light \
                     queries); ask again later, or for less"
                );
                ApiError::TooManyRequests { message: what, retry_after: RETRY_AFTER_BUSY }
            }
        }
    }

    /// An answer in JSON, if it is not too large.
    pub(crate) fn json_response(&self, json: &Json) -> Result<JsonBody, ApiError> {
        self.response_buffer().write_json(json)
    }

    /// Somewhere to write an answer to.
    pub(crate) fn response_buffer(&self) -> BoundedBuffer {
        let max = self.service.max_response_bytes;
        BoundedBuffer { text: String::new(), max, query: Some(self.clone()), error: None }
    }
}

impl QueryContext for ActiveQuery {
    fn is_cancelled(&self) -> bool {
        ActiveQuery::should_stop(self)
    }

    fn reserve_memory(&self, bytes: u64) -> query::Result<()> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.reserve(bytes).map_err(|refusal| match refusal {
            ApiError::Timeout(_) => query::Error::Timeout,
            refusal => query::Error::Memory {
                is_transient: matches!(refusal, ApiError::TooManyRequests { .. }),
                message: refusal.message().to_owned(),
            },
        })
    }

    fn release_memory(&self, bytes: u64) {
        self.reservation.shrink(bytes);
    }
}

/// Marks the client as disconnected on drop.
struct CancelOnDrop(ActiveQuery);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.is_disconnected.store(true, Ordering::Relaxed);
        self.0.disconnected.notify_one();
        self.0.service.memory.notify_waiters();
    }
}

/// Text that may become so long.
#[derive(Debug)]
pub(crate) struct BoundedBuffer {
    pub(crate) text: String,
    max: usize,
    /// The question that its memory is taken for.
    query: Option<ActiveQuery>,
    /// Why there was no memory for more.
    error: Option<ApiError>,
}

impl BoundedBuffer {
    /// Why no more could be written.
    pub(crate) fn into_error(self) -> ApiError {
        self.error.unwrap_or_else(|| {
            ApiError::Unprocessable(format!(
                "the answer has more than {} bytes, which is as many as it may (answers_bytes in \
                 [http.limits] of the settings); ask for longer steps, a shorter time or fewer \
                 series",
                self.max
            ))
        })
    }

    fn write_json(mut self, json: &Json) -> Result<JsonBody, ApiError> {
        match write!(self, "{json:#}") {
            Ok(()) => Ok(JsonBody(self.text + "\n")),
            Err(_) => Err(self.into_error()),
        }
    }
}

impl fmt::Write for BoundedBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let bytes = self.text.len() + text.len();
        if bytes > self.max {
            return Err(fmt::Error);
        }
        if bytes > self.text.capacity() {
            // As it grows by itself, but known beforehand.
            let capacity =
                (2 * self.text.capacity()).min(self.max).max(INITIAL_BUFFER_BYTES).max(bytes);
            let more = capacity - self.text.capacity();
            if let Some(Err(denied)) = self.query.as_ref().map(|asking| asking.reserve(more)) {
                self.error = Some(denied);
                return Err(fmt::Error);
            }
            self.text.reserve_exact(capacity - self.text.len());
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// How much a page holds at first.
const INITIAL_BUFFER_BYTES: usize = 4 << 10;

/// Serialised JSON body.
#[derive(Debug)]
pub(crate) struct JsonBody(pub(crate) String);

impl IntoResponse for JsonBody {
    fn into_response(self) -> Response {
        let kind = HeaderValue::from_static("application/json");
        ([(header::CONTENT_TYPE, kind)], self.0).into_response()
    }
}
