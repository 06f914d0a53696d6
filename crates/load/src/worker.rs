//! A worker: one thread's share of the schedule, its connections, and the loop that does nothing but send when it is time and look what
//! has come.
//!
//! A request is taken when it is due, and waits in a queue that has no end until a connection has room: the schedule never waits. Only
//! then is it bound to a connection, so that a server which accepts none keeps nothing that another connection could do.
//!
//! The worker watches itself. If it finds that it stood still for [`STALL_NS`] or longer (stopped, or without a processor), then what
//! was due by its end is not sent afterwards, as if nothing had been, but counted as missed; and what had been answered meanwhile, or
//! waited for a connection, is counted as seen late, for nobody knows when the answer came or would have come, unless the stall is so
//! short beside its service time that this does not matter.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use rustix::event::epoll::EventFlags;
use rustix::time::{ClockId, clock_gettime};
use slab::Slab;

use crate::codec::{Ended, Ticket};
use crate::connection::{Dial, Read};
use crate::events::Events;
use crate::failure::Failure;
use crate::flight::Flights;
use crate::pool::Pool;
use crate::process::{Ill, Process, REAP_NS};
use crate::protocol::Protocol;
use crate::request::Requests;
use crate::schedule::Random;
use crate::tally::{Counting, Seconds, Tally, bucket_width};
use crate::words::Words;

/// From this on, standing still is told.
pub const STALL_NS: u64 = 10_000_000;
/// It sleeps no longer than this, so that it notices when it was stopped.
const SLEEP_MAX_NS: u64 = 5_000_000;
/// So many that are due are taken at once: who is asked for more than it can do looks at answers and at its own end all the same.
const TAKEN_MAX: usize = 4_096;
/// Where a processor can be spared it is awake so long before a request is due: of a sleep of 10 ms on a virtual machine, 99 % end less
/// than 0.15 ms late.
const AWAKE_NS: u64 = 200_000;
/// Of an answer that takes longer, waking up for it ([`Events::WAKING_NS`]) is less than a bucket (2.19 %).
const QUICK_NS: u64 = 2_500_000;
const BUFFER: usize = 64 << 10;
const SECOND_NS: u64 = 1_000_000_000;

/// What a worker has to do.
pub(crate) struct Share {
    pub(crate) dial: Dial,
    /// Of commands, by request: where their programs are.
    pub(crate) programs: Arc<[Option<PathBuf>]>,
    /// Which worker it is, of how many.
    pub(crate) number: usize,
    pub(crate) threads: usize,
    /// When its requests are due, from the start.
    pub(crate) due: Box<dyn Iterator<Item = u64> + Send>,
    pub(crate) requests: Requests,
    pub(crate) seed: u64,
    pub(crate) connections: usize,
    pub(crate) connections_max: usize,
    pub(crate) timeout_ns: u64,
    /// From the start: no request is due after that.
    pub(crate) length_ns: u64,
    pub(crate) drain_ns: u64,
    /// Whether there are more processors than workers: then it may keep one while it waits.
    pub(crate) has_processor: bool,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) give_up: Arc<AtomicBool>,
}

/// What a worker tells each second, and at its end.
pub(crate) enum Told {
    /// What has ended in the second that ended so many nanoseconds after the start. None is left out.
    Second(u64, Box<Tally>),
    /// All the rest.
    End(Box<End>),
}

/// What is known at the end only.
pub(crate) struct End {
    /// When that was, from the start.
    pub(crate) length_ns: u64,
    /// What has ended since the last second.
    pub(crate) tally: Tally,
    pub(crate) by_second: std::collections::BTreeMap<u64, hist::Histogram>,
    pub(crate) by_request: Vec<hist::Histogram>,
    /// When it stood still, from the start.
    pub(crate) stalls: Vec<(u64, u64)>,
    /// It was stopped while something was still due.
    pub(crate) is_interrupted: bool,
    pub(crate) words: Words,
}

pub(crate) struct Worker {
    share: Share,
    events: Events,
    start_ns: u64,
    pool: Pool,
    /// Of commands, for which there are no connections.
    processes: Slab<Process>,
    /// Since when there may be one more process, when there may.
    room_since_ns: u64,
    flights: Flights,
    /// How long the one took that was answered last.
    last_service_ns: u64,
    /// So many of its share came before the next.
    passed: u64,
    next_due_ns: Option<u64>,
    random: Random,
    counting: Counting,
    seconds: Seconds,
    by_request: Vec<hist::Recorder>,
    stalls: Vec<(u64, u64)>,
    words: Words,
    /// Of how many looks what they find is seen late.
    late_looks: u32,
    /// By how much, at the most.
    late_ns: u64,
    /// When the worker was last known to be at work, or the end of the sleep that it meant to take.
    awake_ns: u64,
    /// The last request that is known to have waited because there were as many connections as allowed.
    waited_until: u64,
    cpu_before_ns: u64,
    buffer: Box<[u8]>,
    scratch: Vec<u8>,
    ended: Vec<Ended>,
}

impl Worker {
    pub(crate) fn new(mut share: Share) -> std::io::Result<Worker> {
        let names = share.requests.names().count();
        let awake_ns = if share.has_processor { AWAKE_NS } else { Events::WAKING_NS };
        Ok(Worker {
            events: Events::new(awake_ns)?,
            start_ns: 0,
            pool: Pool::default(),
            processes: Slab::new(),
            room_since_ns: 0,
            flights: Flights::default(),
            last_service_ns: 0,
            passed: 0,
            next_due_ns: share.due.next(),
            random: Random::new(share.seed),
            counting: Counting::default(),
            seconds: Seconds::default(),
            by_request: (0..names).map(|_| hist::Recorder::new()).collect(),
            stalls: Vec::new(),
            words: Words::default(),
            late_looks: 0,
            late_ns: 0,
            awake_ns: u64::MAX,
            waited_until: 0,
            cpu_before_ns: cpu_ns(),
            buffer: vec![0; BUFFER].into(),
            scratch: Vec::new(),
            ended: Vec::new(),
            share,
        })
    }

    /// Opens the connections that a run begins with, and waits until there are or it is clear that there are none.
    pub(crate) fn warm(&mut self, patience_ns: u64) {
        let until = clock::now() + patience_ns;
        for _ in 0..self.share.connections {
            self.connect();
        }
        while !self.pool.is_ready() && clock::now() < until {
            self.events.wait(clock::now() + SLEEP_MAX_NS);
            self.look();
        }
    }

    /// Does its share, from `start_ns` of the clock on.
    pub(crate) fn run(mut self, start_ns: u64, told: &Sender<Told>) {
        self.start_ns = start_ns;
        self.cpu_before_ns = cpu_ns();
        self.awake_ns = clock::now().max(start_ns);
        let mut report_ns = start_ns + SECOND_NS;
        let (mut is_stopped, mut is_interrupted) = (false, false);
        let end_ns = loop {
            let now = self.now();
            // Also those in which it stood still: others wait for its part of each second.
            while now >= report_ns {
                let tally = self.take();
                let _ = told.send(Told::Second(report_ns - start_ns, Box::new(tally)));
                report_ns += SECOND_NS;
            }
            self.take_due(now);
            if !is_stopped && self.share.stop.load(Ordering::Relaxed) {
                is_stopped = true;
                // What was due by then belongs to the books.
                self.miss(now + 1);
                is_interrupted = self.next_due_ns.take().is_some();
                let length_ns = now.saturating_sub(start_ns);
                if length_ns < self.share.length_ns {
                    self.share.length_ns = length_ns;
                } else {
                    // All was sent: what ends is the waiting.
                    self.share.drain_ns = 0;
                }
            }
            // After a stall it looks first: what was answered meanwhile has neither timed out nor stayed without an answer.
            let has_looked = self.late_looks == 0;
            if has_looked {
                self.expire(now);
            }
            self.pool.age(now, self.share.timeout_ns);
            self.dispatch();
            let end = start_ns + self.share.length_ns;
            let is_done = self.next_due_ns.is_none() && self.flights.len() == 0;
            let is_given_up = self.share.give_up.load(Ordering::Relaxed);
            let is_over = is_done || has_looked && now >= end.saturating_add(self.share.drain_ns);
            if is_given_up || now >= end && is_over {
                break now;
            }
            let can_add = self.has_too_few() && !self.is_full();
            let is_to_look = self.late_looks > 0 || can_add || self.is_answer_near(now);
            let until = match is_to_look {
                true => now,
                false => self.next_ns(now).min(report_ns).min(self.now() + SLEEP_MAX_NS),
            };
            self.events.wait(until);
            // It meant to sleep so long.
            self.awake_ns = self.awake_ns.max(until);
            self.now();
            self.look();
            self.late_looks = looks_left(self.late_looks, self.events.len());
            if self.late_looks == 0 {
                self.late_ns = 0;
            }
        };
        // All at once, and only then is each waited for.
        self.processes.iter().for_each(|(_, process)| process.kill());
        let until_ns = clock::now() + REAP_NS;
        self.processes.iter_mut().for_each(|(_, process)| process.reap(until_ns));
        for flight in self.flights.iter() {
            let age_ns = end_ns - flight.due_ns;
            self.counting.tally.unfinished += 1;
            self.counting.response.record(age_ns);
            self.seconds.record(flight.due_ns - start_ns, age_ns);
            self.by_request[flight.request.index].record(age_ns);
        }
        let end = End {
            length_ns: end_ns - start_ns,
            tally: self.take(),
            by_request: self.by_request.iter().map(hist::Recorder::snapshot).collect(),
            by_second: self.seconds.finish(),
            stalls: self.stalls,
            is_interrupted,
            words: self.words,
        };
        // Nobody listens if the run was given up.
        let _ = told.send(Told::End(Box::new(end)));
    }

    /// What time it is. Whoever asks learns by the way whether the worker stood still since it was last asked.
    fn now(&mut self) -> u64 {
        let now = clock::now();
        if now > self.awake_ns.saturating_add(STALL_NS) {
            self.stalled(self.awake_ns, now);
        }
        self.awake_ns = self.awake_ns.max(now);
        now
    }

    /// It stood still from one moment to the other.
    fn stalled(&mut self, from_ns: u64, to_ns: u64) {
        self.stalls.push((from_ns - self.start_ns, to_ns - self.start_ns));
        // Of events that were being looked at, and of all that had come by then.
        self.late_looks = 2 + (self.pool.len() / Events::MAX) as u32;
        self.late_ns += to_ns - from_ns;
        self.miss(to_ns);
        self.flights.stood_still(to_ns - from_ns);
    }

    /// What was due before this moment, and was not taken, is not sent any more.
    fn miss(&mut self, until_ns: u64) {
        while self.next_due_ns.is_some_and(|due| self.start_ns + due < until_ns) {
            self.counting.tally.intended += 1;
            self.counting.tally.missed += 1;
            self.advance();
        }
    }

    fn take_due(&mut self, now: u64) {
        for _ in 0..TAKEN_MAX {
            let Some(due) = self.next_due_ns.filter(|due| self.start_ns + due <= now) else {
                return;
            };
            self.counting.tally.intended += 1;
            self.begin(self.start_ns + due, now);
            self.advance();
        }
    }

    /// On to the next of its share.
    fn advance(&mut self) {
        self.next_due_ns = self.share.due.next();
        self.passed += 1;
    }

    fn begin(&mut self, due_ns: u64, now: u64) {
        if !self.is_command() {
            self.counting.own_lag.record(now - due_ns);
        }
        let request = self.share.requests.draw(&mut self.random);
        // Workers take requests in turns.
        let ordinal = self.passed * self.share.threads as u64 + self.share.number as u64 + 1;
        self.flights.begin(due_ns, ordinal, request);
        let in_flight = &mut self.counting.tally.in_flight_max;
        *in_flight = (*in_flight).max(self.flights.len() as u64);
    }

    /// Ends what has lasted longer than is allowed.
    fn expire(&mut self, now: u64) {
        let timeout_ns = self.share.timeout_ns;
        while let Some((ticket, flight)) = self.flights.oldest()
            && now >= flight.due_ns.saturating_add(timeout_ns)
        {
            let (is_sent, key) = (flight.is_sent(), flight.connection);
            self.fail(ticket, Failure::TimedOut, now);
            if is_sent && self.is_command() {
                self.give_up(key);
            } else if is_sent && !self.pool[key].abandon(ticket, &mut self.scratch) {
                self.close(key, Failure::Closed);
            } else if is_sent {
                self.settle(key);
            }
        }
    }

    /// Sends what waits, as far as there is room; opens connections where there is none.
    fn dispatch(&mut self) {
        if self.is_command() {
            return self.start_next();
        }
        while let Some(ticket) = self.flights.next() {
            let Some(key) = self.pool.with_room() else {
                if !self.has_too_few() {
                    return;
                }
                if self.is_full() {
                    return self.all_wait(ticket);
                }
                // One at a time: that takes so long that meanwhile others have room again, and a server that is behind is not asked
                // for more connections than it needs.
                match self.connect() {
                    true => return,
                    false => continue,
                }
            };
            // While it still waits, so that it is known of it if the worker stood still.
            let now = self.now();
            let Some(flight) = self.flights.send_next(now, key) else { return };
            self.counting.send_lag.record(now - flight.due_ns);
            match self.pool[key].send(&flight.request, ticket, &mut self.scratch) {
                Ok(()) => self.settle(key),
                Err(failure) => self.close(key, failure),
            }
        }
    }

    fn is_command(&self) -> bool {
        self.share.dial.protocol == Protocol::Command
    }

    /// Whether a connection is to be made, or a process to be started, for what waits.
    fn has_too_few(&self) -> bool {
        self.pool.has_too_few(self.flights.waiting())
    }

    /// Whether there are as many connections or processes as are allowed.
    fn is_full(&self) -> bool {
        self.pool.len() + self.processes.len() >= self.share.connections_max
    }

    /// Whether an answer may come so soon that waking up for it would be seen in its time.
    fn is_answer_near(&mut self, now: u64) -> bool {
        let is_quick = self.share.has_processor && self.last_service_ns < QUICK_NS;
        // Where that one waits, none is under way; where it hangs, answers are not quick now.
        let oldest = self.flights.oldest().filter(|_| is_quick);
        oldest.is_some_and(|(_, one)| one.is_sent() && now < one.sent_ns + QUICK_NS)
    }

    /// Starts the command of who waits for longest, if there may be one more process. One at a time: that takes so long that meanwhile
    /// others have ended, or are due.
    fn start_next(&mut self) {
        let Some(ticket) = self.flights.next() else { return };
        if self.is_full() {
            return self.all_wait(ticket);
        }
        let now = self.now();
        let entry = self.processes.vacant_entry();
        let Some(flight) = self.flights.send_next(now, entry.key()) else { return };
        self.counting.send_lag.record(now - flight.due_ns);
        // Starting takes so long that the next ones wait for this thread: all that is not a wait for room is its own.
        let could_start_ns = flight.due_ns.max(self.room_since_ns);
        self.counting.own_lag.record(now.saturating_sub(could_start_ns));
        let (request, number) = (&flight.request, flight.ordinal);
        let program = self.share.programs[request.index].as_deref();
        // One that tells why it failed is enough.
        let is_heard = !self.words.has(Failure::Exit);
        let process = Process::start(program, request, number, ticket, is_heard);
        let added = process.and_then(|process| {
            self.counting.tally.opened += 1;
            self.events.add(&process, entry.key(), false)?;
            entry.insert(process);
            Ok(())
        });
        self.see_connections();
        if let Err(error) = added {
            let Ill { failure, why } = Ill::start(&error);
            self.words.add(failure, now, || Some(why));
            self.fail(ticket, failure, clock::now());
        }
    }

    /// Nobody waits for this process any more.
    fn give_up(&mut self, key: usize) {
        let process = &mut self.processes[key];
        process.ticket = None;
        process.kill();
        let words = || process.words("was killed, for its time was over");
        self.words.add(Failure::TimedOut, clock::now(), words);
    }

    /// Looks whether a process has ended.
    fn touch_process(&mut self, key: usize) {
        let now = self.now();
        let Some(ended) = self.processes[key].ended() else { return };
        let process = self.processes.remove(key);
        if self.processes.len() + 1 == self.share.connections_max {
            self.room_since_ns = now;
        }
        let Some(ticket) = process.ticket else { return };
        match ended {
            Ok(()) => self.complete(ticket, now),
            Err(Ill { failure, why }) => {
                self.words.add(failure, now, || process.words(&why));
                self.fail(ticket, failure, now);
            }
        }
    }

    /// All requests from this one on wait because there are as many connections as allowed.
    fn all_wait(&mut self, first: Ticket) {
        let from = self.flights[first].number.max(self.waited_until + 1);
        self.counting.tally.waited += (self.flights.begun() + 1).saturating_sub(from);
        self.waited_until = self.flights.begun();
    }

    /// After something was done with a connection: it is listed if it has room, closed if it is over, and what it waits for is told.
    fn settle(&mut self, key: usize) {
        if self.pool[key].is_over() {
            return self.close(key, Failure::Closed);
        }
        self.pool.list(key);
        let connection = &mut self.pool[key];
        if connection.has_unsent() != connection.waits_to_send {
            connection.waits_to_send = !connection.waits_to_send;
            let changed = self.events.change(&*connection, key, connection.waits_to_send);
            if let Err(error) = changed {
                self.close(key, Failure::of(&error));
            }
        }
    }

    /// Whether a connection is being made; if not, who waits for longest knows.
    fn connect(&mut self) -> bool {
        self.counting.tally.opened += 1;
        match self.pool.connect(&self.share.dial, &self.events) {
            Ok(()) => {
                self.see_connections();
                true
            }
            Err(error) => {
                let failure = Failure::of(&error);
                self.words.add(failure, clock::now(), || Some(error.to_string()));
                self.not_connected(failure);
                false
            }
        }
    }

    fn see_connections(&mut self) {
        let most = &mut self.counting.tally.connected_max;
        *most = (*most).max((self.pool.len() + self.processes.len()) as u64);
    }

    /// Who waited for longest is told that there is no connection.
    fn not_connected(&mut self, failure: Failure) {
        if let Some(ticket) = self.flights.next() {
            self.fail(ticket, failure, clock::now());
        }
    }

    /// Closes a connection; what was under way on it has failed.
    fn close(&mut self, key: usize, failure: Failure) {
        let mut connection = self.pool.remove(key);
        let now = clock::now();
        self.words.add(failure, now, || connection.words(failure));
        for ticket in &connection.under_way {
            self.fail(*ticket, failure, now);
        }
        if !connection.is_ready {
            self.not_connected(failure);
        }
    }

    fn fail(&mut self, ticket: Ticket, failure: Failure, now: u64) {
        let flight = self.flights.end(ticket);
        self.counting.fail(failure, now.saturating_sub(flight.due_ns));
    }

    /// When something is to be done that nobody tells of.
    fn next_ns(&mut self, now: u64) -> u64 {
        let due = self.next_due_ns.map_or(u64::MAX, |due| self.start_ns + due);
        let oldest = self.flights.oldest();
        let times_out =
            oldest.map_or(u64::MAX, |(_, one)| one.due_ns.saturating_add(self.share.timeout_ns));
        let end = self.start_ns + self.share.length_ns;
        let end = match self.next_due_ns {
            Some(_) => u64::MAX,
            None if now < end => end,
            None => end.saturating_add(self.share.drain_ns),
        };
        due.min(times_out).min(end)
    }

    /// Looks what has come.
    fn look(&mut self) {
        for number in 0..self.events.len() {
            // What it belongs to may be gone by now. There are only connections, or only processes.
            match self.events.get(number) {
                Some((key, flags)) if self.pool.contains(key) => self.touch(key, flags),
                Some((key, _)) if self.processes.contains(key) => self.touch_process(key),
                _ => {}
            }
        }
    }

    fn touch(&mut self, key: usize, flags: EventFlags) {
        let connection = &mut self.pool[key];
        if !connection.is_connected() {
            match connection.connect(&mut self.scratch) {
                Ok(true) => self.settle(key),
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
            return self.settle(key);
        }
        connection.is_half_closed |= flags.contains(EventFlags::RDHUP);
        let mut ended = std::mem::take(&mut self.ended);
        let read = connection.receive(&mut self.buffer, &mut self.scratch, &mut ended);
        let now = self.now();
        for one in ended.drain(..) {
            self.end(key, one, now);
        }
        self.ended = ended;
        match read {
            Ok(Read::Open) => self.settle(key),
            Ok(Read::Closed) => self.close(key, Failure::Closed),
            Err(failure) => self.close(key, failure),
        }
    }

    fn end(&mut self, key: usize, one: Ended, now: u64) {
        self.pool[key].forget(one.ticket);
        if let Some(failure) = one.failure {
            self.words.add(failure, now, || self.pool[key].words(failure));
            return self.fail(one.ticket, failure, now);
        }
        self.complete(one.ticket, now);
    }

    fn complete(&mut self, ticket: Ticket, now: u64) {
        let flight = self.flights.end(ticket);
        let (response_ns, service_ns) = (now - flight.due_ns, now - flight.sent_ns);
        self.last_service_ns = service_ns;
        if !is_known(service_ns, self.late_ns + flight.late_ns) {
            self.counting.tally.seen_late += 1;
            return;
        }
        self.counting.tally.completed += 1;
        self.counting.response.record(response_ns);
        self.counting.service.record(service_ns);
        self.seconds.record(flight.due_ns - self.start_ns, response_ns);
        self.by_request[flight.request.index].record(response_ns);
    }

    /// What was counted since the last time.
    fn take(&mut self) -> Tally {
        self.processes.iter().for_each(|(_, process)| process.trim());
        let cpu = cpu_ns();
        let worked_ns = cpu - self.cpu_before_ns;
        self.counting.tally.cpu_ns = worked_ns.saturating_sub(self.events.take_idle_ns());
        self.cpu_before_ns = cpu;
        let tally = self.counting.take();
        // Those that are under way are so in the next second too, and so are connections.
        self.counting.tally.in_flight_max = self.flights.len() as u64;
        self.see_connections();
        tally
    }
}

/// Of how many looks more what they find is seen late, after one that found so many. What was not among as many as are told at once
/// comes with the next ones, each socket in its turn: so they come to an end, also where each has something to say at any time.
fn looks_left(looks: u32, found: usize) -> u32 {
    let most = if found < Events::MAX { 2 } else { u32::MAX };
    looks.min(most).saturating_sub(1)
}

/// Whether a time is known to within a bucket if its end was seen so late at the most. Response times are longer than service times, so
/// what holds for these holds for them.
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
    use crate::protocol::Protocol;
    use crate::request::Request;

    /// What a worker tells that begins so long after its start. If it waits for answers, there is a server, which takes connections and
    /// does nothing.
    fn told(due: Vec<u64>, is_stopped: bool, late_ns: u64, drain_ns: u64) -> Vec<Told> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let _listener = (drain_ns > 0).then_some(listener);
        let worker = Worker::new(Share {
            dial: Dial { protocol: Protocol::Echo, addresses: vec![address], tls: None },
            programs: Arc::default(),
            number: 0,
            threads: 1,
            due: Box::new(due.into_iter()),
            requests: Requests::one(Request::default()),
            seed: 1,
            connections: 0,
            connections_max: 10,
            timeout_ns: 8 * SECOND_NS,
            length_ns: SECOND_NS,
            drain_ns,
            has_processor: false,
            stop: Arc::new(AtomicBool::new(is_stopped)),
            give_up: Arc::default(),
        });
        let (tell, told) = mpsc::channel();
        worker.unwrap().run(clock::now() - late_ns, &tell);
        drop(tell);
        told.into_iter().collect()
    }

    #[test]
    fn a_time_is_known_as_well_as_a_bucket_tells() {
        assert!(is_known(0, 0) && is_known(1, 0));
        assert!(!is_known(10, 10) && !is_known(10, 20));
        // A bucket is 2.19 % wide.
        assert!(is_known(470_000_000, 10_000_000) && !is_known(460_000_000, 10_000_000));
    }

    #[test]
    fn what_is_seen_late_comes_to_an_end() {
        assert_eq!([0, 1, 2, 9].map(|looks| looks_left(looks, 0)), [0, 0, 1, 1]);
        assert_eq!([0, 1, 2, 9].map(|looks| looks_left(looks, Events::MAX)), [0, 0, 1, 8]);
    }

    /// What was due by then belongs to the books, also what was too much at once.
    #[test]
    fn who_is_stopped_counts_what_was_due() {
        let mut due = vec![0; TAKEN_MAX + 3];
        due.push(30 * SECOND_NS);
        let all = told(due, true, 0, 0);
        let [Told::End(end)] = &all[..] else { panic!("{} told", all.len()) };
        let all = TAKEN_MAX as u64 + 3;
        assert_eq!((end.tally.intended, end.tally.accounted()), (all, all));
        assert!(end.tally.missed >= 3, "{}", end.tally.missed);
    }

    #[test]
    fn who_is_late_tells_of_each_second() {
        let all = told(vec![0], false, 3 * SECOND_NS + SECOND_NS / 2, 0);
        let second = |one: &Told| match one {
            Told::Second(end_ns, _) => Some(end_ns / SECOND_NS),
            Told::End(_) => None,
        };
        let seconds: Vec<Option<u64>> = all.iter().map(second).collect();
        assert_eq!(seconds[..3], [Some(1), Some(2), Some(3)]);
        assert_eq!(seconds.last(), Some(&None));
    }
    /// All is sent, and answers are waited for: who is stopped then waits no longer.
    #[test]
    fn who_is_stopped_at_the_end_ends() {
        let all = told(vec![0], true, SECOND_NS * 5 / 4, 60 * SECOND_NS);
        let Some(Told::End(end)) = all.last() else { panic!("{} told", all.len()) };
        assert_eq!((end.tally.unfinished, end.tally.accounted()), (1, 1));
    }

    #[test]
    fn what_lasts_is_in_flight_in_each_second() {
        let all = told(vec![0, 0], false, 0, SECOND_NS);
        let Some(Told::End(end)) = all.last() else { panic!("{} told", all.len()) };
        let most = all.iter().map(|one| match one {
            Told::Second(_, tally) => tally.in_flight_max,
            Told::End(end) => end.tally.in_flight_max,
        });
        let most: Vec<u64> = most.collect();
        assert!(
            most.len() >= 3 && most.iter().all(|most| *most == end.tally.unfinished),
            "{most:?}"
        );
        let missed = all.iter().map(|one| match one {
            Told::Second(_, tally) => tally.missed,
            Told::End(end) => end.tally.missed,
        });
        assert_eq!(end.tally.unfinished + missed.sum::<u64>(), 2);
    }
}
