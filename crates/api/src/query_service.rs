//! The desk where questions are taken: who works on what when (`query_admission.rs`), with how much
//! memory (`memory_budget.rs`), and that none goes on when nobody waits for its answer any more.
//!
//! What reads little, as is known or estimated, works in the light lane. An estimate may be wrong:
//! what works too long there, or holds too much, goes on in the heavy lane, when it is its turn.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use intake::{Intake, LatencyHistogram};
use role::StatusSection;
use store::{ReadView, Store};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::active_query::{
    ActiveQuery, ActiveQueryState, CancelOnDrop, QueryRejectCounters, QueryServiceShared,
    run_blocking,
};
use crate::api_error::ApiError;
use crate::bounded_buffer::{BoundedBuffer, JsonBody};
use crate::json::Json;
use crate::limits::Limits;
use crate::memory_budget::{self, MemoryBudget, Reservation};
use crate::query_admission::{ClientId, QueryAdmission, QueryLane};
use crate::stream::hub::StreamHub;
use crate::ttl_cache::TtlCache;

/// How long the same health is reported: whoever asks needs no token, and may ask as often as they
/// like.
const HEALTH_TTL: Duration = Duration::from_secs(1);

/// Query service settings.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryServiceSettings {
    /// Heavy queries that are worked on at once: 8 by default. `max_concurrent_queries` in
    /// `[http.limits]` of the settings.
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
    /// `max_query_memory` in `[http.limits]`.
    pub max_query_bytes: u64,
    /// How long a query waits for memory that others hold, beyond which it is refused with 429: 10
    /// s by default.
    pub memory_wait_timeout: Duration,
    /// How long an answer may take, the waiting included, whatever is asked for: 2 minutes by
    /// default.
    pub timeout: Duration,
    /// What one question may cost.
    pub limits: query::Limits,
    /// Bytes of an answer at the most, as it is put together and as it is written: 112 MiB by
    /// default, which is what `max_buffered_response_bytes` in `[http.limits]` allows.
    pub max_response_bytes: usize,
    /// Threads that one question reads series on: 2 by default.
    pub threads: usize,
    /// Clients of the live stream: 64 by default.
    pub max_stream_clients: usize,
    /// The folder that snapshots are made in, of the store's file system; without one, none are
    /// made.
    pub snapshots_dir: Option<PathBuf>,
    /// The folder that boards of the page are kept in; without one, none are kept.
    pub dashboards_dir: Option<PathBuf>,
}

impl QueryServiceSettings {
    /// The least that `max_query_bytes` counts as.
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
    /// Held while a snapshot is made or removed: one of a name is not removed while it is made.
    /// Nothing else is locked here meanwhile; the store locks what it needs within.
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
            health: TtlCache::new(HEALTH_TTL, intake.supervisor().clone()),
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
        BoundedBuffer::new(self.settings.max_response_bytes, None)
    }
}
