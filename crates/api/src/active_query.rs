//! A running query: its class permit, memory, and cancellation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use intake::{EventCounter, LatencyHistogram, Meter, Supervisor};
use query::QueryContext;
use store::{ReadView, Store};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::api_error::{ApiError, RETRY_AFTER_BUSY};
use crate::blocking::blocking;
use crate::bounded_buffer::{BoundedBuffer, JsonBody};
use crate::json::Json;
use crate::memory_budget::{Denial, MemoryBudget, Reservation};
use crate::query_admission::{ClientId, QueryAdmission, QueryClass, QueryPermit, QueueFull};

/// Longest pause of a heavy query for light ones. After it the query runs at least as long as it
/// paused: it takes at most twice its time, however many light queries there are.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// State shared by running queries.
#[derive(Debug)]
pub(crate) struct QueryServiceShared {
    pub(crate) admission: Arc<QueryAdmission>,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) max_light_rows: u64,
    pub(crate) light_query_time: Duration,
    pub(crate) max_queued_queries: usize,
    pub(crate) max_response_bytes: usize,
    /// Threads of one query, and CPUs.
    pub(crate) query_threads: usize,
    pub(crate) cpus: usize,
    pub(crate) rejected: QueryRejectCounters,
    pub(crate) cancelled: EventCounter,
    pub(crate) pauses: EventCounter,
    pub(crate) supervisor: Supervisor,
}

impl QueryServiceShared {
    pub(crate) fn register_metrics(&self, meter: &Meter) {
        for class in QueryClass::ALL {
            let labels = [("class", class.name())];
            let of = |name, about, read: fn((usize, usize)) -> usize| {
                let admission = Arc::clone(&self.admission);
                meter.gauge(name, about, &labels, move || {
                    read(admission.running_and_queued(class)) as f64
                });
            };
            of("topdeck_queries_running", "Queries that are running", |counts| counts.0);
            of("topdeck_queries_queued", "Queries queued for a permit", |counts| counts.1);
        }
        let memory = Arc::clone(&self.memory);
        let about = "Memory reserved by queries in bytes";
        meter.gauge("topdeck_query_memory_bytes", about, &[], move || memory.used() as f64);
        let memory = Arc::clone(&self.memory);
        let about = "Queries waiting for memory";
        meter.gauge("topdeck_queries_waiting_for_memory", about, &[], move || {
            memory.waiting() as f64
        });
    }
}

impl QueryServiceShared {
    /// Whether heavy queries take CPUs that light ones need.
    fn is_light_query_slowed(&self) -> bool {
        let light = self.admission.running(QueryClass::Light);
        let heavy = || self.admission.running(QueryClass::Heavy).saturating_mul(self.query_threads);
        light > 0 && heavy().saturating_add(light) > self.cpus
    }
}

/// Rejected queries by reason.
#[derive(Debug)]
pub(crate) struct QueryRejectCounters {
    queue: EventCounter,
    memory: EventCounter,
    memory_max: EventCounter,
}

impl QueryRejectCounters {
    pub(crate) fn new(meter: &Meter) -> QueryRejectCounters {
        let of = |reason| {
            let about = "Queries rejected, by the limit reached";
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
pub(crate) struct ActiveQuery(pub(crate) Arc<ActiveQueryState>);

impl std::ops::Deref for ActiveQuery {
    type Target = ActiveQueryState;

    fn deref(&self) -> &ActiveQueryState {
        &self.0
    }
}

/// State of a running query.
#[derive(Debug)]
pub(crate) struct ActiveQueryState {
    pub(crate) service: Arc<QueryServiceShared>,
    pub(crate) client: ClientId,
    pub(crate) started: Instant,
    pub(crate) timeout: Duration,
    pub(crate) is_disconnected: AtomicBool,
    /// Notified when the client disconnects.
    pub(crate) disconnected: Notify,
    /// Error that ended the query during execution.
    pub(crate) error: OnceLock<ApiError>,
    /// Class, start time and permit. Locked while a light query waits to move to the heavy class.
    pub(crate) permit: Mutex<Option<(QueryClass, Instant, QueryPermit)>>,
    /// Whether the query is in the light class; readable without the lock.
    pub(crate) is_light: AtomicBool,
    /// Time since the start before which the query does not pause for light ones, in nanoseconds.
    pub(crate) next_pause_ns: AtomicU64,
    pub(crate) reservation: Reservation,
    /// Runtime for waits during execution.
    pub(crate) runtime: Handle,
}

impl ActiveQuery {
    /// Waits for a permit in a class.
    pub(crate) async fn enter(&self, class: QueryClass) -> Result<(), ApiError> {
        let permit = self.acquire_permit(class).await?;
        *self.permit() = Some((class, Instant::now(), permit));
        self.is_light.store(class == QueryClass::Light, Ordering::Relaxed);
        Ok(())
    }

    async fn acquire_permit(&self, class: QueryClass) -> Result<QueryPermit, ApiError> {
        let full = |_: QueueFull| {
            self.service.rejected.queue.add(1);
            let (working, waiting) = (
                self.service.admission.running_and_queued(class).0,
                self.service.max_queued_queries,
            );
            let what = format!(
                "cannot queue the query: queue limit reached: {working} {} queries running \
                 (max_concurrent_queries in [http.limits] of the settings), {waiting} queued; \
                 retry later",
                class.name()
            );
            ApiError::TooManyRequests { message: what, retry_after: RETRY_AFTER_BUSY }
        };
        let waiting = self.service.admission.enqueue(class, &self.client).map_err(full)?;
        let remaining = self.timeout.saturating_sub(self.started.elapsed());
        tokio::select! {
            biased;
            place = waiting => place.map_err(full),
            () = self.disconnected.notified() => Err(ApiError::from_query_error(query::Error::Timeout, "")),
            () = tokio::time::sleep(remaining) => {
                self.service.cancelled.add(1);
                let reason = "query timed out in the queue; retry later, or send fewer queries";
                Err(ApiError::Timeout(reason.to_owned()))
            }
        }
    }

    fn permit(&self) -> MutexGuard<'_, Option<(QueryClass, Instant, QueryPermit)>> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Current class.
    pub(crate) fn class(&self) -> Option<QueryClass> {
        self.permit().as_ref().map(|place| place.0)
    }

    /// Releases the permit.
    fn release_permit(&self) {
        drop(self.permit().take());
    }

    /// A view of the store; reads through it stop when the query is cancelled.
    pub(crate) fn view(&self, store: &Store) -> Result<ReadView, ApiError> {
        let over = self.clone();
        Ok(store.view()?.with_cancellation(Arc::new(move || over.should_stop())))
    }

    /// Whether the client has disconnected or the timeout has expired.
    fn is_cancelled(&self) -> bool {
        // Relaxed: the flag publishes no other data.
        self.is_disconnected.load(Ordering::Relaxed) || self.started.elapsed() >= self.timeout
    }

    /// Whether the query is cancelled or has failed.
    fn is_ended(&self) -> bool {
        self.error.get().is_some() || self.is_cancelled()
    }

    /// Counts a query that was executed.
    pub(crate) fn record_outcome<T>(
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

    /// Whether to stop. A query that exceeds the time limit of the light class waits here for a
    /// permit of the heavy class, and a heavy one pauses here for light ones.
    pub(crate) fn should_stop(&self) -> bool {
        if self.is_ended() {
            return true;
        }
        if self.is_light.load(Ordering::Relaxed) {
            let mut permit = self.permit();
            let is_late = permit.as_ref().is_some_and(|(class, since, _)| {
                *class == QueryClass::Light && since.elapsed() >= self.service.light_query_time
            });
            if is_late {
                return self.move_to_heavy(&mut permit).is_err();
            }
        } else if self.service.is_light_query_slowed() {
            self.pause_for_light_queries();
        }
        false
    }

    /// Leaves the CPUs to light queries. The threads of a query pause independently.
    fn pause_for_light_queries(&self) {
        let elapsed = || u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let began = elapsed();
        // Relaxed: the time guards no other memory.
        if began < self.next_pause_ns.load(Ordering::Relaxed) {
            return;
        }
        self.service.pauses.add(1);
        self.service.admission.wait_for_light_queries(PAUSE_MAX);
        let ended = elapsed();
        let next = ended.saturating_add(ended.saturating_sub(began));
        self.next_pause_ns.fetch_max(next, Ordering::Relaxed);
    }

    /// Moves to the heavy class when the client's turn comes. An error ends the query.
    fn move_to_heavy(
        &self,
        admission: &mut Option<(QueryClass, Instant, QueryPermit)>,
    ) -> Result<(), ()> {
        let refuse = |refusal| drop(self.error.set(refusal));
        self.reservation.become_heavy().map_err(|denial| refuse(self.denial_error(denial)))?;
        if admission.as_ref().is_none_or(|admission| admission.0 == QueryClass::Heavy) {
            return Ok(());
        }
        // The released permit belongs to another query now.
        *admission = None;
        let waited =
            self.runtime.block_on(self.acquire_permit(QueryClass::Heavy)).map_err(refuse)?;
        *admission = Some((QueryClass::Heavy, Instant::now(), waited));
        self.is_light.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Returns an error if the query is cancelled or has failed.
    pub(crate) fn check_cancelled(&self) -> Result<(), ApiError> {
        match (self.should_stop(), self.error.get()) {
            (false, _) => Ok(()),
            (true, Some(refusal)) => Err(refusal.clone()),
            (true, None) => Err(ApiError::from_query_error(query::Error::Timeout, "")),
        }
    }

    /// Reserves memory, released at the end of the query.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), ApiError> {
        let is_ended = || self.is_ended();
        match self.reservation.grow(bytes as u64, &is_ended) {
            Err(Denial::NotLight) => {
                let became = self.move_to_heavy(&mut self.permit());
                // The check returns the cause.
                became.or_else(|()| self.check_cancelled())?;
                self.reservation.grow(0, &is_ended).map_err(|denial| self.denial_error(denial))
            }
            outcome => outcome.map_err(|denial| self.denial_error(denial)),
        }
    }

    pub(crate) fn denial_error(&self, denial: Denial) -> ApiError {
        match denial {
            Denial::Cancelled => ApiError::from_query_error(query::Error::Timeout, ""),
            Denial::TooLarge { max } => {
                self.service.rejected.memory_max.add(1);
                ApiError::Unprocessable(format!(
                    "cannot execute the query: memory limit {max} bytes exceeded (max_query_memory \
                     in [http.limits] of the settings, less the share of light queries); use a \
                     longer step, a shorter range or fewer series, or raise max_query_memory"
                ))
            }
            Denial::Busy { .. } | Denial::NotLight => {
                self.service.rejected.memory.add(1);
                let (used, max) = match denial {
                    Denial::Busy { used, max } => (used, max),
                    _ => (self.service.memory.used(), 0),
                };
                let what = format!(
                    "cannot reserve memory for the query: queries use {used} of {max} bytes \
                     (max_query_memory in [http.limits] of the settings, less the share of light \
                     queries); retry later, or query less data"
                );
                ApiError::TooManyRequests { message: what, retry_after: RETRY_AFTER_BUSY }
            }
        }
    }

    /// A JSON response within the size limit.
    pub(crate) fn json_response(&self, json: &Json) -> Result<JsonBody, ApiError> {
        self.response_buffer().write_json(json)
    }

    /// A buffer for the response.
    pub(crate) fn response_buffer(&self) -> BoundedBuffer {
        let max = self.service.max_response_bytes;
        BoundedBuffer::new(max, Some(self.clone()))
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

    /// A light query does not become heavy for it, and none waits.
    fn try_reserve_memory(&self, bytes: u64) -> bool {
        self.reservation.try_grow(bytes)
    }

    fn release_memory(&self, bytes: u64) {
        self.reservation.shrink(bytes);
    }
}

/// Marks the client as disconnected on drop.
pub(crate) struct CancelOnDrop(pub(crate) ActiveQuery);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.is_disconnected.store(true, Ordering::Relaxed);
        self.0.disconnected.notify_one();
        self.0.service.memory.notify_waiters();
    }
}

/// Executes a query that has a permit, on a blocking thread.
pub(crate) async fn run_blocking<T: Send + 'static>(
    active: ActiveQuery,
    work: impl FnOnce(&ActiveQuery) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let supervisor = active.service.supervisor.clone();
    let done = blocking(&supervisor, move || {
        active.service.supervisor.failpoint("query execution");
        let outcome = work(&active);
        active.release_permit();
        // The stored error is more precise than the returned one.
        match active.error.get() {
            Some(refusal) => Err(refusal.clone()),
            None => outcome,
        }
    });
    done.await.unwrap_or_else(|what| Err(ApiError::Internal(what)))
}
