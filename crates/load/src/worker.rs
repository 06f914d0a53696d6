//! A worker thread: sends its part of the schedule and polls its connections.
//!
//! A request is dequeued when it is due and waits in an unbounded queue for a connection: the
//! schedule never waits. It is bound to a connection only when it is sent, so a server that accepts
//! no request holds back nothing that another connection could carry.
//!
//! The worker detects its own stalls (SIGSTOP, no CPU) of [`STALL_NS`] or more. Requests scheduled
//! during a stall are not sent; they count as `not_sent`. Responses that arrived during it, and
//! requests that waited for a connection, count as `observed_late` because their times are unknown,
//! unless the stall is shorter than one bucket of the service time.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use rustix::event::epoll::EventFlags;
use rustix::time::{ClockId, clock_gettime};
use slab::Slab;

use crate::codec::{Completion, RequestId};
use crate::connect_options::ConnectOptions;
use crate::connection::ReadOutcome;
use crate::failure::Failure;
use crate::first_errors::FirstErrors;
use crate::in_flight::InFlightQueue;
use crate::poller::Poller;
use crate::pool::Pool;
use crate::process::{CommandFailure, Process, REAP_DEADLINE_NS};
use crate::recorder::{PerSecondSeries, TallyRecorder};
use crate::request::Requests;
use crate::schedule::SplitMix64;
use crate::tally::{Tally, bucket_width};

/// Shortest interruption that counts as a stall.
pub(crate) const STALL_NS: u64 = 10_000_000;
/// Longest sleep, so that stops are detected.
const SLEEP_MAX_NS: u64 = 5_000_000;
/// Due requests dequeued at once: an overloaded worker must still handle responses and its own end.
const DUE_BATCH_MAX: usize = 4_096;
/// How long a thread with its own CPU spins before a request is due: 99 % of sleeps of 10 ms on a
/// virtual machine end less than 0.15 ms late.
const SPIN_NS: u64 = 200_000;
/// Longest service time for which it spins. Beyond it the wake-up latency
/// ([`Poller::WAKEUP_SLACK_NS`]) is less than one bucket (2.19 %).
const SPIN_SERVICE_MAX_NS: u64 = 2_500_000;
const BUFFER: usize = 64 << 10;
const SECOND_NS: u64 = 1_000_000_000;

/// Configuration of a worker.
pub(crate) struct WorkerConfig {
    /// How to connect to the target; `None` if each request starts a command.
    pub(crate) connect_options: Option<ConnectOptions>,
    /// Paths of the programs of commands, by request.
    pub(crate) programs: Arc<[Option<PathBuf>]>,
    /// Index of this worker, and number of workers.
    pub(crate) number: usize,
    pub(crate) threads: usize,
    /// Scheduled times from the start.
    pub(crate) due: Box<dyn Iterator<Item = u64> + Send>,
    pub(crate) requests: Requests,
    pub(crate) seed: u64,
    pub(crate) connections: usize,
    pub(crate) max_connections: usize,
    pub(crate) timeout_ns: u64,
    /// Duration of the schedule, from the start.
    pub(crate) duration_ns: u64,
    pub(crate) grace_period_ns: u64,
    /// Whether there are more CPUs than workers, so that it may spin.
    pub(crate) has_dedicated_cpu: bool,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) abort: Arc<AtomicBool>,
}

/// Message of a worker to the run.
pub(crate) enum WorkerReport {
    /// Requests that ended in the second that ended at this offset from the start. Sent for every
    /// second.
    Interval(u64, Box<Tally>),
    /// The rest, at the end.
    Final(Box<WorkerSummary>),
}

/// Final values of a worker.
pub(crate) struct WorkerSummary {
    /// Offset of the end from the start.
    pub(crate) duration_ns: u64,
    /// Requests that ended since the last interval.
    pub(crate) tally: Tally,
    pub(crate) per_second: std::collections::BTreeMap<u64, hist::Histogram>,
    pub(crate) per_request: Vec<hist::Histogram>,
    /// Stalls, as offsets from the start.
    pub(crate) stalls: Vec<(u64, u64)>,
    /// Stopped before all requests were sent.
    pub(crate) is_interrupted: bool,
    pub(crate) first_errors: FirstErrors,
}

pub(crate) struct Worker {
    config: WorkerConfig,
    poller: Poller,
    start_ns: u64,
    pool: Pool,
    /// Processes of commands, which have no connections.
    processes: Slab<Process>,
    /// Since when a process slot is free.
    slot_free_since_ns: u64,
    in_flight: InFlightQueue,
    /// Service time of the last response.
    last_service_ns: u64,
    /// Index of the next request in this worker's part of the schedule.
    next_index: u64,
    next_due_ns: Option<u64>,
    random: SplitMix64,
    recorder: TallyRecorder,
    per_second: PerSecondSeries,
    per_request: Vec<hist::Recorder>,
    stalls: Vec<(u64, u64)>,
    first_errors: FirstErrors,
    /// Polls during which events are observed late.
    late_polls: u32,
    /// Upper bound of the lateness.
    late_ns: u64,
    /// Last time the worker was known to run, or the planned end of its current sleep.
    last_active_ns: u64,
    /// The last request counted as queued.
    queued_until: u64,
    cpu_before_ns: u64,
    buffer: Box<[u8]>,
    scratch: Vec<u8>,
    completions: Vec<Completion>,
}

impl Worker {
    pub(crate) fn new(mut config: WorkerConfig) -> std::io::Result<Worker> {
        let names = config.requests.names().count();
        let spin_ns = if config.has_dedicated_cpu { SPIN_NS } else { Poller::WAKEUP_SLACK_NS };
        Ok(Worker {
            poller: Poller::new(spin_ns)?,
            start_ns: 0,
            pool: Pool::default(),
            processes: Slab::new(),
            slot_free_since_ns: 0,
            in_flight: InFlightQueue::default(),
            last_service_ns: 0,
            next_index: 0,
            next_due_ns: config.due.next(),
            random: SplitMix64::new(config.seed),
            recorder: TallyRecorder::default(),
            per_second: PerSecondSeries::default(),
            per_request: (0..names).map(|_| hist::Recorder::new()).collect(),
            stalls: Vec::new(),
            first_errors: FirstErrors::default(),
            late_polls: 0,
            late_ns: 0,
            last_active_ns: u64::MAX,
            queued_until: 0,
            cpu_before_ns: cpu_ns(),
            buffer: vec![0; BUFFER].into(),
            scratch: Vec::new(),
            completions: Vec::new(),
            config,
        })
    }

    /// Opens the initial connections and waits until all are ready, or the time is over.
    pub(crate) fn open_initial_connections(&mut self, patience_ns: u64) {
        let until = clock::now() + patience_ns;
        for _ in 0..self.config.connections {
            self.connect();
        }
        while !self.pool.is_ready() && clock::now() < until {
            self.poller.wait(clock::now() + SLEEP_MAX_NS);
            self.poll_events();
        }
    }

    /// Runs the worker from `start_ns` of the clock.
    pub(crate) fn run(mut self, start_ns: u64, reports: &Sender<WorkerReport>) {
        self.start_ns = start_ns;
        self.cpu_before_ns = cpu_ns();
        self.last_active_ns = clock::now().max(start_ns);
        let mut report_ns = start_ns + SECOND_NS;
        let (mut is_stopped, mut is_interrupted) = (false, false);
        let end_ns = loop {
            let now = self.now();
            // Also seconds within a stall: the other workers' seconds wait for them.
            while now >= report_ns {
                let tally = self.drain_tally();
                let _ = reports.send(WorkerReport::Interval(report_ns - start_ns, Box::new(tally)));
                report_ns += SECOND_NS;
            }
            self.enqueue_due(now);
            if !is_stopped && self.config.stop.load(Ordering::Relaxed) {
                is_stopped = true;
                is_interrupted = self.handle_stop(now);
            }
            // After a stall, events come first: responses that arrived during it have neither timed
            // out nor are missing.
            if self.late_polls == 0 {
                self.expire(now);
            }
            self.pool.expire_connects(now, self.config.timeout_ns);
            self.dispatch();
            if self.is_over(now) {
                break now;
            }
            self.wait_for_events(now, report_ns);
        };
        let summary = self.into_summary(end_ns, is_interrupted);
        // After an abort nobody receives it.
        let _ = reports.send(WorkerReport::Final(Box::new(summary)));
    }

    /// Ends sending, or the grace period if all is sent. Returns whether requests were left.
    fn handle_stop(&mut self, now: u64) -> bool {
        // Requests due by now count as scheduled.
        self.skip_until(now + 1);
        let is_interrupted = self.next_due_ns.take().is_some();
        let duration_ns = now.saturating_sub(self.start_ns);
        if duration_ns < self.config.duration_ns {
            self.config.duration_ns = duration_ns;
        } else {
            self.config.grace_period_ns = 0;
        }
        is_interrupted
    }

    /// Whether the run has ended.
    fn is_over(&self, now: u64) -> bool {
        let end = self.start_ns + self.config.duration_ns;
        let is_done = self.next_due_ns.is_none() && self.in_flight.len() == 0;
        let grace_end = end.saturating_add(self.config.grace_period_ns);
        let is_grace_over = self.late_polls == 0 && now >= grace_end;
        self.config.abort.load(Ordering::Relaxed) || now >= end && (is_done || is_grace_over)
    }

    /// Waits until the next action is due, at most until `report_ns`, and handles events.
    fn wait_for_events(&mut self, now: u64, report_ns: u64) {
        let can_add = self.needs_connection() && !self.is_full();
        let must_poll = self.late_polls > 0 || can_add || self.is_response_near(now);
        let until = match must_poll {
            true => now,
            false => self.next_ns(now).min(report_ns).min(self.now() + SLEEP_MAX_NS),
        };
        self.poller.wait(until);
        // The planned sleep is no stall.
        self.last_active_ns = self.last_active_ns.max(until);
        self.now();
        self.poll_events();
        self.late_polls = late_polls_left(self.late_polls, self.poller.len());
        if self.late_polls == 0 {
            self.late_ns = 0;
        }
    }

    /// Kills all processes, counts requests without a response as unfinished, and returns the
    /// final values.
    fn into_summary(mut self, end_ns: u64, is_interrupted: bool) -> WorkerSummary {
        // All are killed before any is waited for.
        self.processes.iter().for_each(|(_, process)| process.kill());
        let until_ns = clock::now() + REAP_DEADLINE_NS;
        self.processes.iter_mut().for_each(|(_, process)| process.reap(until_ns));
        for request in self.in_flight.iter() {
            let age_ns = end_ns - request.due_ns;
            self.recorder.tally.unfinished += 1;
            self.recorder.response.record(age_ns);
            self.per_second.record(request.due_ns - self.start_ns, age_ns);
            self.per_request[request.request.index].record(age_ns);
        }
        WorkerSummary {
            duration_ns: end_ns - self.start_ns,
            tally: self.drain_tally(),
            per_request: self.per_request.iter().map(hist::Recorder::snapshot).collect(),
            per_second: self.per_second.finish(),
            stalls: self.stalls,
            is_interrupted,
            first_errors: self.first_errors,
        }
    }

    /// Returns the current time and detects stalls since the last call.
    fn now(&mut self) -> u64 {
        let now = clock::now();
        if now > self.last_active_ns.saturating_add(STALL_NS) {
            self.record_stall(self.last_active_ns, now);
        }
        self.last_active_ns = self.last_active_ns.max(now);
        now
    }

    /// Records a stall.
    fn record_stall(&mut self, from_ns: u64, to_ns: u64) {
        self.stalls.push((from_ns - self.start_ns, to_ns - self.start_ns));
        // Events of the current poll, and all that arrived during the stall.
        self.late_polls = 2 + (self.pool.len() / Poller::MAX) as u32;
        self.late_ns += to_ns - from_ns;
        self.skip_until(to_ns);
        self.in_flight.mark_stall(to_ns - from_ns);
    }

    /// Counts requests due before this time as not sent.
    fn skip_until(&mut self, until_ns: u64) {
        while self.next_due_ns.is_some_and(|due| self.start_ns + due < until_ns) {
            self.recorder.tally.scheduled += 1;
            self.recorder.tally.not_sent += 1;
            self.advance();
        }
    }

    fn enqueue_due(&mut self, now: u64) {
        for _ in 0..DUE_BATCH_MAX {
            let Some(due) = self.next_due_ns.filter(|due| self.start_ns + due <= now) else {
                return;
            };
            self.recorder.tally.scheduled += 1;
            self.begin(self.start_ns + due, now);
            self.advance();
        }
    }

    /// Moves on to the next request.
    fn advance(&mut self) {
        self.next_due_ns = self.config.due.next();
        self.next_index += 1;
    }

    fn begin(&mut self, due_ns: u64, now: u64) {
        if !self.is_command() {
            self.recorder.generator_lag.record(now - due_ns);
        }
        let request = self.config.requests.sample(&mut self.random);
        // Workers take requests in turns.
        let ordinal = self.next_index * self.config.threads as u64 + self.config.number as u64 + 1;
        self.in_flight.begin(due_ns, ordinal, request);
        let in_flight = &mut self.recorder.tally.in_flight_peak;
        *in_flight = (*in_flight).max(self.in_flight.len() as u64);
    }

    /// Times out requests.
    fn expire(&mut self, now: u64) {
        let timeout_ns = self.config.timeout_ns;
        while let Some((request_id, request)) = self.in_flight.oldest()
            && now >= request.due_ns.saturating_add(timeout_ns)
        {
            let (is_sent, key) = (request.is_sent(), request.connection);
            self.fail(request_id, Failure::TimedOut, now);
            if is_sent && self.is_command() {
                self.kill_process(key);
            } else if is_sent && !self.pool[key].cancel(request_id, &mut self.scratch) {
                self.close(key, Failure::Closed);
            } else if is_sent {
                self.refresh_connection(key);
            }
        }
    }

    /// Sends queued requests as capacity allows; opens connections if there is none.
    fn dispatch(&mut self) {
        if self.is_command() {
            return self.start_next();
        }
        while let Some(request_id) = self.in_flight.next() {
            let Some(key) = self.pool.take_available() else {
                if !self.needs_connection() {
                    return;
                }
                if self.is_full() {
                    return self.count_queued(request_id);
                }
                // One connect at a time. It takes long enough for others to regain capacity, and an
                // overloaded server does not receive needless connects.
                match self.connect() {
                    true => return,
                    false => continue,
                }
            };
            // While the request still waits, so that a stall is attributed to it.
            let now = self.now();
            let Some(request) = self.in_flight.send_next(now, key) else { return };
            self.recorder.queue_time.record(now - request.due_ns);
            match self.pool[key].send(&request.request, request_id, &mut self.scratch) {
                Ok(()) => self.refresh_connection(key),
                Err(failure) => self.close(key, failure),
            }
        }
    }

    fn is_command(&self) -> bool {
        self.config.connect_options.is_none()
    }

    /// Whether the queued requests need another connection or process.
    fn needs_connection(&self) -> bool {
        self.pool.needs_connection(self.in_flight.waiting())
    }

    /// Whether the limit of connections or processes is reached.
    fn is_full(&self) -> bool {
        self.pool.len() + self.processes.len() >= self.config.max_connections
    }

    /// Whether a response may come so soon that the wake-up latency would distort its time.
    fn is_response_near(&mut self, now: u64) -> bool {
        let is_fast = self.config.has_dedicated_cpu && self.last_service_ns < SPIN_SERVICE_MAX_NS;
        // If the oldest request waits, none is in flight; if it hangs, responses are not fast now.
        let oldest = self.in_flight.oldest().filter(|_| is_fast);
        oldest.is_some_and(|(_, one)| one.is_sent() && now < one.sent_ns + SPIN_SERVICE_MAX_NS)
    }

    /// Starts the command of the longest waiting request if a slot is free. One at a time: during a
    /// start others exit, or become due.
    fn start_next(&mut self) {
        let Some(request_id) = self.in_flight.next() else { return };
        if self.is_full() {
            return self.count_queued(request_id);
        }
        let now = self.now();
        let entry = self.processes.vacant_entry();
        let Some(request) = self.in_flight.send_next(now, entry.key()) else { return };
        self.recorder.queue_time.record(now - request.due_ns);
        // A start blocks this thread and delays the next ones: all but the wait for a slot is
        // generator lag.
        let could_start_ns = request.due_ns.max(self.slot_free_since_ns);
        self.recorder.generator_lag.record(now.saturating_sub(could_start_ns));
        let (request, number) = (&request.request, request.ordinal);
        let program = self.config.programs[request.index].as_deref();
        // The output of one failing process is enough.
        let captures_stderr = !self.first_errors.has(Failure::Exit);
        let process = Process::start(program, request, number, request_id, captures_stderr);
        let added = process.and_then(|process| {
            self.recorder.tally.connections_opened += 1;
            self.poller.add(&process, entry.key(), false)?;
            entry.insert(process);
            Ok(())
        });
        self.update_peaks();
        if let Err(error) = added {
            let CommandFailure { failure, why } = CommandFailure::start(&error);
            self.first_errors.add(failure, now, || Some(why));
            self.fail(request_id, failure, clock::now());
        }
    }

    /// Kills a process whose request timed out.
    fn kill_process(&mut self, key: usize) {
        let process = &mut self.processes[key];
        process.request_id = None;
        process.kill();
        let detail = || process.error_detail("was killed after the timeout");
        self.first_errors.add(Failure::TimedOut, clock::now(), detail);
    }

    /// Handles the exit of a process.
    fn handle_process_exit(&mut self, key: usize) {
        let now = self.now();
        let Some(result) = self.processes[key].poll_exit() else { return };
        let process = self.processes.remove(key);
        if self.processes.len() + 1 == self.config.max_connections {
            self.slot_free_since_ns = now;
        }
        let Some(request_id) = process.request_id else { return };
        match result {
            Ok(()) => self.complete(request_id, now),
            Err(CommandFailure { failure, why }) => {
                self.first_errors.add(failure, now, || process.error_detail(&why));
                self.fail(request_id, failure, now);
            }
        }
    }

    /// Counts all requests from this one on as queued.
    fn count_queued(&mut self, first: RequestId) {
        let from = self.in_flight[first].number.max(self.queued_until + 1);
        self.recorder.tally.queued_requests += (self.in_flight.started() + 1).saturating_sub(from);
        self.queued_until = self.in_flight.started();
    }

    /// After activity on a connection: makes it available, closes it, or updates its poll interest.
    fn refresh_connection(&mut self, key: usize) {
        if self.pool[key].is_closed() {
            return self.close(key, Failure::Closed);
        }
        self.pool.mark_available(key);
        let connection = &mut self.pool[key];
        if connection.has_unsent() != connection.wants_write {
            connection.wants_write = !connection.wants_write;
            let changed = self.poller.modify(&*connection, key, connection.wants_write);
            if let Err(error) = changed {
                self.close(key, Failure::of(&error));
            }
        }
    }

    /// Starts a connect. Returns false, and fails the longest waiting request, if that is
    /// impossible.
    fn connect(&mut self) -> bool {
        self.recorder.tally.connections_opened += 1;
        let options = self.config.connect_options.as_ref();
        let options = options.expect("BUG: a command has no connections");
        match self.pool.connect(options, &self.poller) {
            Ok(()) => {
                self.update_peaks();
                true
            }
            Err(error) => {
                let failure = Failure::of(&error);
                self.first_errors.add(failure, clock::now(), || Some(error.to_string()));
                self.not_connected(failure);
                false
            }
        }
    }

    fn update_peaks(&mut self) {
        let most = &mut self.recorder.tally.connections_peak;
        *most = (*most).max((self.pool.len() + self.processes.len()) as u64);
    }

    /// Fails the longest waiting request: no connection.
    fn not_connected(&mut self, failure: Failure) {
        if let Some(request_id) = self.in_flight.next() {
            self.fail(request_id, failure, clock::now());
        }
    }

    /// Closes a connection and fails its requests in flight.
    fn close(&mut self, key: usize, failure: Failure) {
        let mut connection = self.pool.remove(key);
        let now = clock::now();
        self.first_errors.add(failure, now, || connection.error_detail(failure));
        for request_id in &connection.in_flight {
            self.fail(*request_id, failure, now);
        }
        if !connection.is_ready {
            self.not_connected(failure);
        }
    }

    fn fail(&mut self, request_id: RequestId, failure: Failure, now: u64) {
        let request = self.in_flight.end(request_id);
        self.recorder.fail(failure, now.saturating_sub(request.due_ns));
    }

    /// Time of the next action without an event.
    fn next_ns(&mut self, now: u64) -> u64 {
        let due = self.next_due_ns.map_or(u64::MAX, |due| self.start_ns + due);
        let oldest = self.in_flight.oldest();
        let times_out =
            oldest.map_or(u64::MAX, |(_, one)| one.due_ns.saturating_add(self.config.timeout_ns));
        let end = self.start_ns + self.config.duration_ns;
        let end = match self.next_due_ns {
            Some(_) => u64::MAX,
            None if now < end => end,
            None => end.saturating_add(self.config.grace_period_ns),
        };
        due.min(times_out).min(end)
    }

    /// Handles the events of the last poll.
    fn poll_events(&mut self) {
        for number in 0..self.poller.len() {
            // The connection may be closed by now. There are only connections, or only processes.
            match self.poller.get(number) {
                Some((key, flags)) if self.pool.contains(key) => {
                    self.handle_connection_event(key, flags)
                }
                Some((key, _)) if self.processes.contains(key) => self.handle_process_exit(key),
                _ => {}
            }
        }
    }

    fn handle_connection_event(&mut self, key: usize, flags: EventFlags) {
        let connection = &mut self.pool[key];
        if !connection.is_connected() {
            match connection.connect(&mut self.scratch) {
                Ok(true) => self.refresh_connection(key),
                Ok(false) => {}
                Err(failure) => self.close(key, failure),
            }
            return;
        }
        if flags.contains(EventFlags::OUT)
            && let Err(failure) = connection.flush()
        {
            return self.close(key, failure);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP)
        {
            return self.refresh_connection(key);
        }
        connection.is_half_closed |= flags.contains(EventFlags::RDHUP);
        let mut completions = std::mem::take(&mut self.completions);
        let read = connection.receive(&mut self.buffer, &mut self.scratch, &mut completions);
        let now = self.now();
        for one in completions.drain(..) {
            self.end(key, one, now);
        }
        self.completions = completions;
        match read {
            Ok(ReadOutcome::Open) => self.refresh_connection(key),
            Ok(ReadOutcome::Closed) => self.close(key, Failure::Closed),
            Err(failure) => self.close(key, failure),
        }
    }

    fn end(&mut self, key: usize, one: Completion, now: u64) {
        self.pool[key].cancel_request(one.request_id);
        if let Some(failure) = one.failure {
            self.first_errors.add(failure, now, || self.pool[key].error_detail(failure));
            return self.fail(one.request_id, failure, now);
        }
        self.complete(one.request_id, now);
    }

    fn complete(&mut self, request_id: RequestId, now: u64) {
        let request = self.in_flight.end(request_id);
        let (response_ns, service_ns) = (now - request.due_ns, now - request.sent_ns);
        self.last_service_ns = service_ns;
        if !is_known(service_ns, self.late_ns + request.late_ns) {
            self.recorder.tally.observed_late += 1;
            return;
        }
        self.recorder.tally.completed += 1;
        self.recorder.response.record(response_ns);
        self.recorder.service.record(service_ns);
        self.per_second.record(request.due_ns - self.start_ns, response_ns);
        self.per_request[request.request.index].record(response_ns);
    }

    /// Returns the tally since the last call.
    fn drain_tally(&mut self) -> Tally {
        self.processes.iter().for_each(|(_, process)| process.truncate_output());
        let cpu = cpu_ns();
        let worked_ns = cpu - self.cpu_before_ns;
        self.recorder.tally.cpu_ns = worked_ns.saturating_sub(self.poller.take_idle_ns());
        self.cpu_before_ns = cpu;
        let tally = self.recorder.drain();
        // Requests in flight and connections carry over to the next second.
        self.recorder.tally.in_flight_peak = self.in_flight.len() as u64;
        self.update_peaks();
        tally
    }
}

/// Remaining polls whose events are observed late, after one with `found` events. Events beyond the
/// batch size come with the next polls, in turn; so this ends even if each socket always has
/// events.
fn late_polls_left(polls: u32, found: usize) -> u32 {
    let most = if found < Poller::MAX { 2 } else { u32::MAX };
    polls.min(most).saturating_sub(1)
}

/// Whether a time is exact to one bucket if its end was observed this late at most. Response times
/// are longer than service times, so the check of those suffices.
fn is_known(service_ns: u64, late_ns: u64) -> bool {
    late_ns == 0 || late_ns as f64 <= service_ns.saturating_sub(late_ns) as f64 * bucket_width()
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::protocols::EchoProtocol;
    use crate::request::Request;

    /// Reports of a worker that starts this late. With a grace period there is a server that
    /// accepts connections and never responds.
    fn reports(
        due: Vec<u64>,
        is_stopped: bool,
        late_ns: u64,
        grace_period_ns: u64,
    ) -> Vec<WorkerReport> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let _listener = (grace_period_ns > 0).then_some(listener);
        let worker = Worker::new(WorkerConfig {
            connect_options: Some(ConnectOptions {
                protocol: Arc::new(EchoProtocol),
                addresses: vec![address],
                tls: None,
            }),
            programs: Arc::default(),
            number: 0,
            threads: 1,
            due: Box::new(due.into_iter()),
            requests: Requests::single(Request::default()),
            seed: 1,
            connections: 0,
            max_connections: 10,
            timeout_ns: 8 * SECOND_NS,
            duration_ns: SECOND_NS,
            grace_period_ns,
            has_dedicated_cpu: false,
            stop: Arc::new(AtomicBool::new(is_stopped)),
            abort: Arc::default(),
        });
        let (tell, reports) = mpsc::channel();
        worker.unwrap().run(clock::now() - late_ns, &tell);
        drop(tell);
        reports.into_iter().collect()
    }

    #[test]
    fn late_times_count_if_exact_to_a_bucket() {
        assert!(is_known(0, 0) && is_known(1, 0));
        assert!(!is_known(10, 10) && !is_known(10, 20));
        // A bucket is 2.19 % wide.
        assert!(is_known(470_000_000, 10_000_000) && !is_known(460_000_000, 10_000_000));
    }

    #[test]
    fn late_polls_end() {
        assert_eq!([0, 1, 2, 9].map(|polls| late_polls_left(polls, 0)), [0, 0, 1, 1]);
        assert_eq!([0, 1, 2, 9].map(|polls| late_polls_left(polls, Poller::MAX)), [0, 0, 1, 8]);
    }

    /// Also more requests than are dequeued at once.
    #[test]
    fn stopped_worker_counts_due_requests() {
        let mut due = vec![0; DUE_BATCH_MAX + 3];
        due.push(30 * SECOND_NS);
        let all = reports(due, true, 0, 0);
        let [WorkerReport::Final(end)] = &all[..] else { panic!("{} reports", all.len()) };
        let all = DUE_BATCH_MAX as u64 + 3;
        assert_eq!((end.tally.scheduled, end.tally.accounted()), (all, all));
        assert!(end.tally.not_sent >= 3, "{}", end.tally.not_sent);
    }

    #[test]
    fn late_worker_reports_each_second() {
        let all = reports(vec![0], false, 3 * SECOND_NS + SECOND_NS / 2, 0);
        let second = |one: &WorkerReport| match one {
            WorkerReport::Interval(end_ns, _) => Some(end_ns / SECOND_NS),
            WorkerReport::Final(_) => None,
        };
        let seconds: Vec<Option<u64>> = all.iter().map(second).collect();
        assert_eq!(seconds[..3], [Some(1), Some(2), Some(3)]);
        assert_eq!(seconds.last(), Some(&None));
    }
    /// All is sent: a stop ends the wait for responses.
    #[test]
    fn stop_ends_the_grace_period() {
        let all = reports(vec![0], true, SECOND_NS * 5 / 4, 60 * SECOND_NS);
        let Some(WorkerReport::Final(end)) = all.last() else { panic!("{} reports", all.len()) };
        assert_eq!((end.tally.unfinished, end.tally.accounted()), (1, 1));
    }

    #[test]
    fn long_requests_are_in_flight_in_each_second() {
        let all = reports(vec![0, 0], false, 0, SECOND_NS);
        let Some(WorkerReport::Final(end)) = all.last() else { panic!("{} reports", all.len()) };
        let most = all.iter().map(|one| match one {
            WorkerReport::Interval(_, tally) => tally.in_flight_peak,
            WorkerReport::Final(end) => end.tally.in_flight_peak,
        });
        let most: Vec<u64> = most.collect();
        assert!(
            most.len() >= 3 && most.iter().all(|most| *most == end.tally.unfinished),
            "{most:?}"
        );
        let not_sent = all.iter().map(|one| match one {
            WorkerReport::Interval(_, tally) => tally.not_sent,
            WorkerReport::Final(end) => end.tally.not_sent,
        });
        assert_eq!(end.tally.unfinished + not_sent.sum::<u64>(), 2);
    }
}
