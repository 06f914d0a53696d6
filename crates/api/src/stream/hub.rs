//! Clients of the live stream, and the thread that serves them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use intake::{EventCounter, Intake};
use journal::StartPosition;
use model::{Selector, Series};
use tokio::sync::mpsc;

use super::body::EventStream;
use super::{event, feed};
use crate::api_error::ApiError;

/// Maximum events queued for one client.
pub(super) const EVENTS_MAX: usize = 4096;
/// Maximum bytes queued for one client.
pub(super) const BYTES_MAX: usize = 4 << 20;
/// Retry delay at the clients limit.
const RETRY_AFTER_FULL: Duration = Duration::from_secs(5);

/// Stream clients.
pub(crate) struct StreamHub {
    pub(super) intake: Arc<Intake>,
    clients_max: usize,
    state: Mutex<HubState>,
    /// Number of clients, for the metric.
    count: Arc<AtomicU64>,
    dropped_events: EventCounter,
}

#[derive(Default)]
struct HubState {
    clients: Vec<StreamClient>,
    thread: Option<JoinHandle<()>>,
    is_running: bool,
    is_stopped: bool,
}

/// One stream client.
struct StreamClient {
    selector: Selector,
    events: mpsc::Sender<Arc<str>>,
    /// Queued bytes; the body subtracts what it sends.
    queued_bytes: Arc<AtomicUsize>,
    /// Dropped events that are not reported yet.
    dropped: u64,
}

impl StreamHub {
    pub(crate) fn new(intake: Arc<Intake>, clients_max: usize) -> StreamHub {
        let count = Arc::new(AtomicU64::new(0));
        let meter = intake.meter();
        let read = Arc::clone(&count);
        meter.gauge("topdeck_stream_clients", "Clients of the live stream", &[], move || {
            read.load(Ordering::Relaxed) as f64
        });
        let dropped_events = meter.counter(
            "topdeck_stream_dropped_events_total",
            "Events dropped because a client of the live stream was too slow",
            &[],
        );
        StreamHub { clients_max, state: Mutex::default(), count, dropped_events, intake }
    }

    fn state(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to events from now on. The first client starts the thread. Call it on a blocking
    /// thread: it opens files.
    pub(super) fn subscribe(self: &Arc<Self>, selector: Selector) -> Result<EventStream, ApiError> {
        let mut state = self.state();
        self.remove_disconnected(&mut state);
        if state.is_stopped {
            return Err(ApiError::ShuttingDown);
        }
        if state.clients.len() >= self.clients_max {
            let what = format!("stream clients limit ({}) reached; retry later", self.clients_max);
            return Err(ApiError::TooManyRequests { message: what, retry_after: RETRY_AFTER_FULL });
        }
        if !state.is_running {
            let failed = |error: &dyn fmt::Display| {
                ApiError::Internal(format!("cannot read the journal: {error}"))
            };
            let journal = self.intake.write_target().journal();
            let reader = journal.reader(StartPosition::End).map_err(|error| failed(&error))?;
            let hub = Arc::clone(self);
            let supervised = self.intake.supervisor().thread("stream");
            // After a panic the clients get an error, and the next client starts another thread.
            let run = move || {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| feed::run_feed(&hub, reader)))
                {
                    supervised.record_caught_panic(&*panic);
                    hub.on_thread_exit("a thread panicked (see the server's log); reconnect");
                }
            };
            let thread = std::thread::Builder::new().name("stream".to_owned());
            let thread = thread.spawn(run).map_err(|error| failed(&error))?;
            // The previous thread has ended, or is about to.
            state.thread = Some(thread);
            state.is_running = true;
        }
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        let waiting = Arc::new(AtomicUsize::new(0));
        let events = EventStream::new(receiver, Arc::clone(&waiting));
        state.clients.push(StreamClient {
            selector,
            events: sender,
            queued_bytes: waiting,
            dropped: 0,
        });
        self.publish_count(&state);
        Ok(events)
    }

    fn publish_count(&self, state: &HubState) {
        self.count.store(state.clients.len() as u64, Ordering::Relaxed);
    }

    /// Removes disconnected clients.
    fn remove_disconnected(&self, state: &mut HubState) {
        state.clients.retain(|client| !client.events.is_closed());
        self.publish_count(state);
    }

    /// Removes disconnected clients. Returns whether the thread continues: there are clients. If
    /// not, the next client starts another thread.
    pub(super) fn update_running(&self) -> bool {
        let mut state = self.state();
        self.remove_disconnected(&mut state);
        state.is_running = !state.clients.is_empty() && !state.is_stopped;
        state.is_running
    }

    /// Called when the thread ends, with the reason.
    pub(super) fn on_thread_exit(&self, reason: &str) {
        let mut state = self.state();
        let text: Arc<str> = event::failed(reason).into();
        for client in &mut state.clients {
            client.send(&text, &self.dropped_events);
        }
        state.clients.clear();
        state.is_running = false;
        self.publish_count(&state);
    }

    /// Sends an event to the clients that select the series, or to all. The event is serialized
    /// once, if any client selects it, and without the lock: a distribution may be long.
    pub(super) fn broadcast(&self, series: Option<&Series>, text: impl FnOnce() -> String) {
        let wants =
            |client: &StreamClient| series.is_none_or(|series| client.selector.matches(series));
        if !self.state().clients.iter().any(wants) {
            return;
        }
        let text: Arc<str> = text().into();
        let mut state = self.state();
        let clients = state.clients.iter_mut().filter(|client| wants(client));
        clients.for_each(|client| client.send(&text, &self.dropped_events));
    }

    /// Ends all streams and the thread.
    pub(crate) fn stop(&self) {
        let thread = {
            let mut state = self.state();
            state.is_stopped = true;
            state.clients.clear();
            self.publish_count(&state);
            state.thread.take()
        };
        if let Some(thread) = thread {
            // The supervisor reports a panic.
            let _ = thread.join();
        }
    }
}

impl StreamClient {
    /// Never blocks.
    fn send(&mut self, text: &Arc<str>, missed: &EventCounter) {
        if self.dropped > 0 && self.try_send(&event::lagged(self.dropped).into()) {
            self.dropped = 0;
        }
        if self.dropped > 0 || !self.try_send(text) {
            self.dropped += 1;
            missed.add(1);
        }
    }

    fn try_send(&self, text: &Arc<str>) -> bool {
        // Relaxed: the counter orders no other memory.
        let waiting = self.queued_bytes.load(Ordering::Relaxed);
        // An event over the limit is sent if the queue is empty.
        if waiting > 0 && waiting + text.len() > BYTES_MAX {
            return false;
        }
        self.queued_bytes.fetch_add(text.len(), Ordering::Relaxed);
        let is_sent = self.events.try_send(Arc::clone(text)).is_ok();
        if !is_sent {
            self.queued_bytes.fetch_sub(text.len(), Ordering::Relaxed);
        }
        is_sent
    }
}

impl fmt::Debug for StreamHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamHub")
            .field("clients", &self.state().clients.len())
            .finish_non_exhaustive()
    }
}
