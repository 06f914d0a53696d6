//! A worker thread: sends its part of the schedule and polls its connections.
//!
//! A request is taken from the schedule when it is due and waits in an unbounded queue for a
//! connection: the schedule never waits. It is bound to a connection only when it is sent, so a
//! server that accepts no request holds back nothing that another connection could carry.
//!
//! The worker detects its own stalls (SIGSTOP, no CPU) of [`STALL_NS`] or more. Requests scheduled
//! during a stall are not sent; they count as `not_sent`. Responses that arrived during it, and
//! requests that waited for a connection, count as `observed_late` because their times are unknown,
//! unless the stall is shorter than one bucket of the service time.

mod commands;
mod connections;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use rustix::time::{ClockId, clock_gettime};
use slab::Slab;

use crate::codec::{Completion, RequestId};
use crate::connect_options::ConnectOptions;
use crate::failure::Failure;
use crate::first_errors::FirstErrors;
use crate::in_flight::InFlightQueue;
use crate::poller::Poller;
use crate::pool::Pool;
use crate::process::{Process, REAP_DEADLINE_NS};
use crate::recorder::{PerSecondSeries, TallyRecorder};
use crate::request::Requests;
use crate::schedule::SplitMix64;
use crate::tally::{Tally, bucket_width};

/// Shortest interruption that counts as a stall.
pub(crate) const STALL_NS: u64 = 10_000_000;
/// Longest sleep, so that stops are detected.
const SLEEP_MAX_NS: u64 = 5_000_000;
/// Due requests taken from the schedule at once: an overloaded worker must still handle responses
/// and its own end.
const DUE_BATCH_MAX: usize = 4_096;
/// How long a thread with its own CPU spins before a request is due: 99 % of sleeps of 10 ms on a
/// virtual machine end less than 0.15 ms late.
const SPIN_NS: u64 = 200_000;
/// Longest service time for which it spins. Beyond it the wake-up latency
/// ([`Poller::WAKEUP_LATENCY_NS`]) is less than one bucket (2.19 %).
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
        let spin_ns = if config.has_dedicated_cpu { SPIN_NS } else { Poller::WAKEUP_LATENCY_NS };
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
        self.late_polls = 2 + (self.pool.len() / Poller::EVENTS_MAX) as u32;
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
            let Some(due_ns) = self.next_due_ns.filter(|due_ns| self.start_ns + due_ns <= now)
            else {
                return;
            };
            self.recorder.tally.scheduled += 1;
            self.begin(self.start_ns + due_ns, now);
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

    fn is_command(&self) -> bool {
        self.config.connect_options.is_none()
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

    /// Counts all requests from this one on as queued.
    fn count_queued(&mut self, first: RequestId) {
        let from = self.in_flight[first].number.max(self.queued_until + 1);
        self.recorder.tally.queued_requests += (self.in_flight.started() + 1).saturating_sub(from);
        self.queued_until = self.in_flight.started();
    }

    fn update_peaks(&mut self) {
        let most = &mut self.recorder.tally.connections_peak;
        *most = (*most).max((self.pool.len() + self.processes.len()) as u64);
    }

    fn fail(&mut self, request_id: RequestId, failure: Failure, now: u64) {
        let request = self.in_flight.end(request_id);
        self.recorder.fail(failure, now.saturating_sub(request.due_ns));
    }

    /// Time of the next action without an event.
    fn next_ns(&mut self, now: u64) -> u64 {
        let due_ns = self.next_due_ns.map_or(u64::MAX, |due_ns| self.start_ns + due_ns);
        let oldest = self.in_flight.oldest();
        let times_out =
            oldest.map_or(u64::MAX, |(_, one)| one.due_ns.saturating_add(self.config.timeout_ns));
        let end = self.start_ns + self.config.duration_ns;
        let end = match self.next_due_ns {
            Some(_) => u64::MAX,
            None if now < end => end,
            None => end.saturating_add(self.config.grace_period_ns),
        };
        due_ns.min(times_out).min(end)
    }

    /// Handles the events of the last poll.
    fn poll_events(&mut self) {
        for number in 0..self.poller.len() {
            // The connection may be closed by now. There are only connections, or only processes.
            match self.poller.event(number) {
                Some((key, flags)) if self.pool.contains(key) => {
                    self.handle_connection_event(key, flags)
                }
                Some((key, _)) if self.processes.contains(key) => self.handle_process_exit(key),
                _ => {}
            }
        }
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
    let most = if found < Poller::EVENTS_MAX { 2 } else { u32::MAX };
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
mod tests;
