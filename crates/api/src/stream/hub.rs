//! Who listens, and the thread that reads the journal as long as somebody does.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use intake::{Counter, Intake};
use journal::Start;
use model::{Selector, Series};
use tokio::sync::mpsc;

use super::body::Events;
use super::{BYTES_MAX, EVENTS_MAX, event, feed};
use crate::refusal::Refusal;

/// After how long one for whom there was no place may try again.
const AFTER_FULL: Duration = Duration::from_secs(5);

/// Who listens; one for all.
pub(crate) struct Hub {
    pub(super) intake: Arc<Intake>,
    clients_max: usize,
    state: Mutex<State>,
    /// For the books.
    count: Arc<AtomicU64>,
    missed: Counter,
}

#[derive(Default)]
struct State {
    clients: Vec<Client>,
    thread: Option<JoinHandle<()>>,
    is_running: bool,
    is_stopped: bool,
}

/// One who listens.
struct Client {
    selector: Selector,
    events: mpsc::Sender<Arc<str>>,
    /// Bytes that wait; the body counts them down.
    waiting: Arc<AtomicUsize>,
    /// Events that it has not been told it missed.
    missed: u64,
}

impl Hub {
    pub(crate) fn new(intake: Arc<Intake>, clients_max: usize) -> Hub {
        let count = Arc::new(AtomicU64::new(0));
        let meter = intake.meter();
        let read = Arc::clone(&count);
        meter.gauge("topdeck_stream_clients", "clients of the live stream", &[], move || {
            read.load(Ordering::Relaxed) as f64
        });
        let missed = meter.counter(
            "topdeck_stream_missed_total",
            "events that clients of the live stream were too slow for",
            &[],
        );
        Hub { clients_max, state: Mutex::default(), count, missed, intake }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What comes from now on. The first who listens starts the thread. To be called where a thread may wait: files are
    /// opened.
    pub(super) fn subscribe(self: &Arc<Self>, selector: Selector) -> Result<Events, Refusal> {
        let mut state = self.state();
        self.forget(&mut state);
        if state.is_stopped {
            return Err(Refusal::Internal("topdeck is stopping".to_owned()));
        }
        if state.clients.len() >= self.clients_max {
            let what = format!(
                "{} clients listen already, which is as many as may; try again later",
                self.clients_max
            );
            return Err(Refusal::Busy { what, after: AFTER_FULL });
        }
        if !state.is_running {
            let failed = |error: &dyn fmt::Display| {
                Refusal::Internal(format!("cannot read the journal: {error}"))
            };
            let journal = self.intake.home().journal();
            let reader = journal.reader(Start::End).map_err(|error| failed(&error))?;
            let hub = Arc::clone(self);
            let supervised = self.intake.supervisor().thread("stream");
            // Whoever listens is told, and the next who listens starts another.
            let run = move || {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| feed::run(&hub, reader))) {
                    supervised.caught(&*panic);
                    hub.ended("a defect of topdeck; listen again");
                }
            };
            let thread = std::thread::Builder::new().name("stream".to_owned());
            let thread = thread.spawn(run).map_err(|error| failed(&error))?;
            // The one before has ended, or is about to.
            state.thread = Some(thread);
            state.is_running = true;
        }
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        let waiting = Arc::new(AtomicUsize::new(0));
        let events = Events::new(receiver, Arc::clone(&waiting));
        state.clients.push(Client { selector, events: sender, waiting, missed: 0 });
        self.counted(&state);
        Ok(events)
    }

    fn counted(&self, state: &State) {
        self.count.store(state.clients.len() as u64, Ordering::Relaxed);
    }

    /// Those who are gone.
    fn forget(&self, state: &mut State) {
        state.clients.retain(|client| !client.events.is_closed());
        self.counted(state);
    }

    /// Whether the thread goes on: somebody listens. If not it has ended, and the next who listens starts another.
    pub(super) fn goes_on(&self) -> bool {
        let mut state = self.state();
        self.forget(&mut state);
        state.is_running = !state.clients.is_empty() && !state.is_stopped;
        state.is_running
    }

    /// The thread ends, with a reason.
    pub(super) fn ended(&self, why: &str) {
        let mut state = self.state();
        let text: Arc<str> = event::failed(why).into();
        for client in &mut state.clients {
            client.send(&text, &self.missed);
        }
        state.clients.clear();
        state.is_running = false;
        self.counted(&state);
    }

    /// Gives an event to those who want the series, or to all. It is written once, if anybody wants it, and while
    /// nothing is locked: a distribution may be long.
    pub(super) fn give(&self, series: Option<&Series>, text: impl FnOnce() -> String) {
        let wants = |client: &Client| series.is_none_or(|series| client.selector.matches(series));
        if !self.state().clients.iter().any(wants) {
            return;
        }
        let text: Arc<str> = text().into();
        let mut state = self.state();
        let clients = state.clients.iter_mut().filter(|client| wants(client));
        clients.for_each(|client| client.send(&text, &self.missed));
    }

    /// Ends all streams, and the thread.
    pub(crate) fn stop(&self) {
        let thread = {
            let mut state = self.state();
            state.is_stopped = true;
            state.clients.clear();
            self.counted(&state);
            state.thread.take()
        };
        if let Some(thread) = thread {
            // A panic is told by the supervisor.
            let _ = thread.join();
        }
    }
}

impl Client {
    /// Never waits.
    fn send(&mut self, text: &Arc<str>, missed: &Counter) {
        if self.missed > 0 && self.put(&event::lagged(self.missed).into()) {
            self.missed = 0;
        }
        if self.missed > 0 || !self.put(text) {
            self.missed += 1;
            missed.add(1);
        }
    }

    fn put(&self, text: &Arc<str>) -> bool {
        // Only an amount: nothing else is ordered by it.
        let waiting = self.waiting.load(Ordering::Relaxed);
        // One that is larger than may wait goes alone.
        if waiting > 0 && waiting + text.len() > BYTES_MAX {
            return false;
        }
        self.waiting.fetch_add(text.len(), Ordering::Relaxed);
        let is_sent = self.events.try_send(Arc::clone(text)).is_ok();
        if !is_sent {
            self.waiting.fetch_sub(text.len(), Ordering::Relaxed);
        }
        is_sent
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("clients", &self.state().clients.len()).finish_non_exhaustive()
    }
}
