//! Query service: admission (`query_admission.rs`), memory (`memory_budget.rs`), and cancellation
//! of queries whose client has disconnected.
//!
//! Queries that read little, known or estimated, run in the light class. The estimate may be wrong:
//! a query that runs too long there, or needs too much memory, moves to the heavy class when it
//! gets a permit.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use intake::{Intake, LatencyHistogram};
use role::{MetricThreshold, StatusSection};
use store::{ReadView, Store};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use crate::active_query::{
    ActiveQuery, ActiveQueryState, CancelOnDrop, QueryRejectCounters, QueryServiceShared,
    run_blocking,
};
use crate::api_error::ApiError;
use crate::bounded_buffer::{BoundedBuffer, JsonBody};
use crate::config_reload::SharedConfigReload;
use crate::health::HealthReport;
use crate::json::Json;
use crate::limits::Limits;
use crate::memory_budget::{self, MemoryBudget, Reservation};
use crate::overview_cache::OverviewCache;
use crate::query_admission::{ClientId, QueryAdmission, QueryClass};
use crate::rule_replay::ReplayLane;
use crate::stream::hub::StreamHub;
use crate::ttl_cache::TtlCache;

/// How long a health report is cached: clients need no token, and may request it at any rate.
const HEALTH_TTL: Duration = Duration::from_secs(1);

/// Query service settings.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryServiceSettings {
    /// Maximum concurrent heavy queries; default: 8. `max_concurrent_queries` in `[http.limits]` of
    /// the settings.
    pub max_concurrent_queries: usize,
    /// Maximum concurrent light queries; default: 8.
    pub max_light_queries: usize,
    /// Maximum queued queries per class; default: 200. Beyond it: 429.
    pub max_queued_queries: usize,
    /// Maximum estimated number of points and values of a light query; default: 200,000.
    pub max_light_rows: u64,
    /// Time after which a light query becomes heavy; default: 2 s.
    pub light_query_time: Duration,
    /// Memory of all queries in bytes; default: 1 GiB, minimum: 32 MiB. `max_query_memory` in
    /// `[http.limits]`.
    pub max_query_bytes: u64,
    /// Maximum wait for memory that other queries hold; default: 10 s. Beyond it: 429.
    pub memory_wait_timeout: Duration,
    /// Maximum timeout of a query, queueing included; default: 2 minutes.
    pub timeout: Duration,
    /// Limits of one query.
    pub limits: query::Limits,
    /// Maximum size of a response in bytes, in memory and serialized; default: 112 MiB, which
    /// `max_buffered_response_bytes` in `[http.limits]` allows.
    pub max_response_bytes: usize,
    /// Reader threads of one query; default: 2.
    pub threads: usize,
    /// Maximum clients of the live stream; default: 64.
    pub max_stream_clients: usize,
    /// Directory of snapshots, on the store's file system; without it snapshots are disabled.
    pub snapshots_dir: Option<PathBuf>,
    /// Directory of dashboards; without it dashboards are disabled.
    pub dashboards_dir: Option<PathBuf>,
    /// Directory of programs for other hosts: `TARGET/topdeck`, as `make dist` writes them.
    pub programs_dir: Option<PathBuf>,
    /// URL of a trace, with `{trace_id}` and `{span_id}`, for links of exemplars.
    pub trace_url: Option<String>,
}

impl QueryServiceSettings {
    /// Minimum of `max_query_bytes`.
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
            programs_dir: None,
            trace_url: None,
        }
    }
}

/// Query service: admission and execution of queries.
#[derive(Debug)]
pub struct QueryService {
    pub(crate) settings: QueryServiceSettings,
    /// Start time, in nanoseconds since the Unix epoch.
    pub(crate) started_at: i64,
    pub(crate) config_reload: SharedConfigReload,
    pub(crate) hub: Arc<StreamHub>,
    pub(crate) health: TtlCache<HealthReport>,
    pub(crate) metrics: TtlCache<Arc<str>>,
    pub(crate) overviews: OverviewCache,
    pub(crate) replay_lane: Arc<ReplayLane>,
    /// Locked while a snapshot is created or deleted: a snapshot is not deleted while it is
    /// created. No other lock of this crate is taken meanwhile.
    pub(crate) snapshots_lock: Mutex<()>,
    /// Locked while a dashboard is written or deleted; the same rule applies.
    pub(crate) dashboards_lock: Mutex<()>,
    intake: Arc<Intake>,
    shared: Arc<QueryServiceShared>,
    status_sections: StatusSections,
    /// Status sections of roles.
    sections: Mutex<Vec<StatusSection>>,
    /// Thresholds of SLOs.
    thresholds: Mutex<Vec<MetricThreshold>>,
    /// Whether the server stops.
    is_stopped: watch::Sender<bool>,
}

/// Status sections of the server, by name.
#[derive(Default)]
struct StatusSections(Mutex<Vec<(&'static str, SectionFn)>>);

/// Produces a status section; may block.
type SectionFn = Arc<dyn Fn() -> Json + Send + Sync>;

impl fmt::Debug for StatusSections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parts")
    }
}

/// The result of a query of any type: what runs queries is compiled once.
type AnyAnswer = Box<dyn Any + Send>;
/// Estimates how much a query reads.
type EstimateFn = Box<dyn FnOnce(&ReadView, &ActiveQuery) -> u64 + Send>;
type QueryWork = Box<dyn FnOnce(&ActiveQuery) -> Result<AnyAnswer, ApiError> + Send>;
type ViewWork = Box<dyn FnOnce(&ReadView, &ActiveQuery) -> Result<AnyAnswer, ApiError> + Send>;

fn into_answer<T: Send + 'static>(result: T) -> AnyAnswer {
    Box::new(result)
}

fn from_answer<T: 'static>(answer: AnyAnswer) -> T {
    *answer.downcast().expect("BUG: a query returned a result of another type")
}

impl QueryService {
    /// Creates the service.
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
            query_threads: settings.threads,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            rejected: QueryRejectCounters::new(intake.meter()),
            cancelled: intake.meter().counter(
                "topdeck_queries_cancelled_total",
                "Queries cancelled by timeout or client disconnect",
                &[],
            ),
            pauses: intake.meter().counter(
                "topdeck_query_pauses_total",
                "Pauses of heavy queries for light ones",
                &[],
            ),
            supervisor: intake.supervisor().clone(),
        });
        shared.register_metrics(intake.meter());
        QueryService {
            started_at: intake.now(),
            config_reload: SharedConfigReload::new(&intake),
            hub: Arc::new(StreamHub::new(Arc::clone(&intake), settings.max_stream_clients)),
            health: TtlCache::new(HEALTH_TTL, intake.supervisor().clone()),
            metrics: TtlCache::new(Duration::ZERO, intake.supervisor().clone()),
            overviews: OverviewCache::default(),
            replay_lane: Arc::default(),
            snapshots_lock: Mutex::default(),
            dashboards_lock: Mutex::default(),
            shared,
            status_sections: StatusSections::default(),
            sections: Mutex::default(),
            thresholds: Mutex::default(),
            is_stopped: watch::Sender::new(false),
            intake,
            settings,
        }
    }

    /// Adds a status section; replaces one of the same name.
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

    /// Replaces the status sections of roles.
    pub fn set_sections(&self, sections: Vec<StatusSection>) {
        *self.sections.lock().unwrap_or_else(PoisonError::into_inner) = sections;
    }

    /// Records a reload of the settings, or why it failed.
    pub fn note_config_reload(&self, outcome: Result<(), String>) {
        self.config_reload.set(self.intake.now(), outcome);
    }

    /// Replaces the thresholds of roles.
    pub fn set_thresholds(&self, thresholds: Vec<MetricThreshold>) {
        *self.thresholds.lock().unwrap_or_else(PoisonError::into_inner) = thresholds;
    }

    /// Thresholds of roles.
    pub(crate) fn thresholds(&self) -> Vec<MetricThreshold> {
        self.thresholds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Current status sections of the server and the roles.
    pub(crate) fn status_sections(&self) -> Vec<(&'static str, Json)> {
        let parts = self.status_sections.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sections = self.sections.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let own = parts.iter().map(|(name, read)| (*name, read()));
        own.chain(sections.iter().map(|section| (section.name, section.read()))).collect()
    }

    /// Current status section of a role.
    pub(crate) fn status_section(&self, name: &str) -> Option<Json> {
        let sections = self.sections.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sections.iter().find(|section| section.name == name).map(StatusSection::read)
    }

    /// A point at which a test can inject a panic.
    pub(crate) fn failpoint(&self, name: &str) {
        self.intake.supervisor().failpoint(name);
    }

    /// Ends live streams and long polls, so that their connections can close.
    pub fn stop(&self) {
        self.is_stopped.send_replace(true);
        self.hub.stop();
    }

    /// Waits for the stop.
    pub(crate) async fn stopped(&self) {
        // The sender lives as long as the service.
        let _ = self.is_stopped.subscribe().wait_for(|is_stopped| *is_stopped).await;
    }

    /// The store.
    pub(crate) fn store(&self) -> Result<Arc<Store>, ApiError> {
        let none = "an agent stores no data; query a remote that it forwards to";
        self.intake
            .write_target()
            .store()
            .map(Arc::clone)
            .ok_or_else(|| ApiError::NotFound(none.to_owned()))
    }

    /// Runs work that reads little, with a view of the store.
    pub(crate) async fn run_light_with_view<T: Send + 'static>(
        &self,
        client: &ClientId,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&ReadView, &ActiveQuery) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let store = self.store()?;
        let work = move |active: &ActiveQuery| work(&active.view(&store)?, active);
        self.run(QueryClass::Light, client, what, timeout, work).await
    }

    /// Runs work in a class, on a blocking thread, when the client gets a permit. `what` is its
    /// metric label.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        class: QueryClass,
        client: &ClientId,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&ActiveQuery) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let work = move |active: &ActiveQuery| work(active).map(into_answer);
        self.run_any(class, client, what, timeout, Box::new(work)).await.map(from_answer)
    }

    async fn run_any(
        &self,
        class: QueryClass,
        client: &ClientId,
        what: &'static str,
        timeout: Option<Duration>,
        work: QueryWork,
    ) -> Result<AnyAnswer, ApiError> {
        let (active, _gone) = self.begin_query(client, timeout);
        active.enter(class).await?;
        let timer = self.duration_histogram(what);
        run_blocking(active, move |active| active.record_outcome(&timer, work(active))).await
    }

    /// Runs a query: in the light class if `estimate` gives few points and values, otherwise in the
    /// heavy class. The estimate itself runs in the light class.
    pub(crate) async fn run_query<T: Send + 'static>(
        &self,
        client: &ClientId,
        what: &'static str,
        timeout: Option<Duration>,
        estimate: impl FnOnce(&ReadView, &ActiveQuery) -> u64 + Send + 'static,
        work: impl FnOnce(&ReadView, &ActiveQuery) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let work = move |view: &ReadView, active: &ActiveQuery| work(view, active).map(into_answer);
        let (estimate, work) = (Box::new(estimate), Box::new(work));
        self.run_any_query(client, what, timeout, estimate, work).await.map(from_answer)
    }

    async fn run_any_query(
        &self,
        client: &ClientId,
        what: &'static str,
        timeout: Option<Duration>,
        estimate: EstimateFn,
        work: ViewWork,
    ) -> Result<AnyAnswer, ApiError> {
        enum ClassOutcome<W> {
            Done(AnyAnswer),
            NeedsHeavyPermit(W),
        }
        let (active, _gone) = self.begin_query(client, timeout);
        active.enter(QueryClass::Light).await?;
        let store = self.store()?;
        let timer = self.duration_histogram(what);
        let work = move |view: &ReadView, active: &ActiveQuery| {
            active.record_outcome(&timer, work(view, active))
        };
        let own = Arc::clone(&store);
        let light = move |active: &ActiveQuery| {
            let view = active.view(&own)?;
            // The query itself reports errors.
            let is_light = estimate(&view, active) <= active.service.max_light_rows;
            active.check_cancelled()?;
            match is_light || active.class() == Some(QueryClass::Heavy) {
                true => work(&view, active).map(ClassOutcome::Done),
                false => Ok(ClassOutcome::NeedsHeavyPermit(work)),
            }
        };
        match run_blocking(active.clone(), light).await? {
            ClassOutcome::Done(done) => Ok(done),
            ClassOutcome::NeedsHeavyPermit(work) => {
                active.reservation.become_heavy().map_err(|denial| active.denial_error(denial))?;
                active.enter(QueryClass::Heavy).await?;
                let work = move |active: &ActiveQuery| work(&active.view(&store)?, active);
                run_blocking(active, work).await
            }
        }
    }

    /// Runs a replay of rules on a blocking thread. It needs no permit, because the caller runs one
    /// at a time, so that it does not delay queries; its memory is that of a heavy query.
    pub(crate) async fn run_replay<T: Send + 'static>(
        &self,
        client: &ClientId,
        timeout: Duration,
        work: impl FnOnce(&ReadView, &ActiveQuery) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let store = self.store()?;
        let (active, _gone) = self.begin_long_query(client, timeout);
        active.reservation.become_heavy().map_err(|denial| active.denial_error(denial))?;
        let timer = self.duration_histogram("rule_replay");
        let work = move |active: &ActiveQuery| {
            active.record_outcome(&timer, work(&active.view(&store)?, active))
        };
        run_blocking(active, work).await
    }

    fn begin_query(
        &self,
        client: &ClientId,
        timeout: Option<Duration>,
    ) -> (ActiveQuery, CancelOnDrop) {
        let timeout = timeout.map_or(self.settings.timeout, |most| most.min(self.settings.timeout));
        self.begin_long_query(client, timeout)
    }

    /// Begins a query whose timeout may be longer than the maximum.
    fn begin_long_query(
        &self,
        client: &ClientId,
        timeout: Duration,
    ) -> (ActiveQuery, CancelOnDrop) {
        let active = ActiveQuery(Arc::new(ActiveQueryState {
            service: Arc::clone(&self.shared),
            client: client.clone(),
            started: Instant::now(),
            timeout,
            is_disconnected: AtomicBool::new(false),
            disconnected: Notify::new(),
            error: OnceLock::new(),
            permit: Mutex::new(None),
            is_light: AtomicBool::new(false),
            next_pause_ns: AtomicU64::new(0),
            reservation: Reservation::new(&self.shared.memory),
            runtime: Handle::current(),
        }));
        // Dropped with this future when the client disconnects.
        let gone = CancelOnDrop(active.clone());
        (active, gone)
    }

    fn duration_histogram(&self, what: &'static str) -> LatencyHistogram {
        self.intake.meter().histogram(
            "topdeck_query_duration",
            "Time from receiving a query to its response",
            &[("kind", what)],
        )
    }

    /// A JSON response within the size limit.
    pub(crate) fn json_response(&self, json: &Json) -> Result<JsonBody, ApiError> {
        self.response_buffer().write_json(json)
    }

    /// A buffer for a response that is small, or made of data held anyway.
    pub(crate) fn response_buffer(&self) -> BoundedBuffer {
        BoundedBuffer::new(self.settings.max_response_bytes, None)
    }
}
