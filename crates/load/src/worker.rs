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

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use rustix::event::epoll::EventFlags;
use rustix::time::{ClockId, clock_gettime};
use slab::Slab;

use crate::connection::{Connection, Dial, Read};
use crate::events::Events;
use crate::failure::Failure;
use crate::process::{Ill, Process, REAP_NS};
use crate::protocol::Protocol;
use crate::request::{Rendered, Requests};
use crate::schedule::Random;
use crate::session::{Ended, Ticket};
use crate::tally::{Counting, Seconds, Tally, bucket_width};
use crate::words::Words;

/// From this on, standing still is told.
pub const STALL_NS: u64 = 10_000_000;
/// It sleeps no longer than this, so that it notices when it was stopped.
const SLEEP_MAX_NS: u64 = 5_000_000;
/// Connections that are being made at once, for one worker, and have not taken longer than that.
const CONNECTING_MAX: usize = 64;
/// What takes longer keeps no others from being made: it may be that one of several addresses does not answer.
const CONNECTING_NS: u64 = 1_000_000_000;
/// So many that have ended are kept in the order of all flights, beside as many as there are flights.
const BY_DUE_SPARE: usize = 4_096;
/// So many that are due are taken at once: who is asked for more than it can do looks at answers and at its own end all the same.
const TAKEN_MAX: usize = 4_096;
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

/// A request that was due and has not ended.
struct Flight {
    due_ns: u64,
    /// Which of all that are due in the run; the first is 1.
    ordinal: u64,
    /// 0 while it waits for a connection.
    sent_ns: u64,
    /// Or its process, where requests are commands.
    connection: usize,
    /// How long the worker stood still while it waited for a connection.
    late_ns: u64,
    request: Arc<Rendered>,
    /// Tells it from others that had its ticket before.
    number: u64,
}

/// A connection that was begun.
struct Attempt {
    key: usize,
    /// Tells it from others that had its key before.
    number: usize,
    began_ns: u64,
}

pub(crate) struct Worker {
    share: Share,
    events: Events,
    start_ns: u64,
    connections: Slab<Connection>,
    /// Those of them that never had room yet, and are not slow.
    connecting: usize,
    /// The same in the order in which they began, with some that had room or are closed; then those that are slow.
    young: VecDeque<Attempt>,
    slow: VecDeque<Attempt>,
    opened: usize,
    /// Of commands, for which there are no connections.
    processes: Slab<Process>,
    /// Since when there may be one more process, when there may.
    room_since_ns: u64,
    /// Connections with room; some may have lost it.
    free: VecDeque<usize>,
    flights: Slab<Flight>,
    waiting: VecDeque<Ticket>,
    /// All flights in the order in which they were due, and so in which their time ends; with some that have ended.
    by_due: VecDeque<(Ticket, u64)>,
    number: u64,
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
        Ok(Worker {
            events: Events::new()?,
            start_ns: 0,
            connections: Slab::new(),
            connecting: 0,
            young: VecDeque::new(),
            slow: VecDeque::new(),
            opened: 0,
            processes: Slab::new(),
            room_since_ns: 0,
            free: VecDeque::new(),
            flights: Slab::new(),
            waiting: VecDeque::new(),
            by_due: VecDeque::new(),
            number: 0,
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
        while self.connections.iter().any(|(_, one)| one.room() == 0) && clock::now() < until {
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
            self.age(now);
            self.dispatch();
            let end = start_ns + self.share.length_ns;
            let is_done = self.next_due_ns.is_none() && self.flights.is_empty();
            let is_given_up = self.share.give_up.load(Ordering::Relaxed);
            let is_over = is_done || has_looked && now >= end.saturating_add(self.share.drain_ns);
            if is_given_up || now >= end && is_over {
                break now;
            }
            let until = match self.late_looks {
                0 if self.can_start() => now,
                0 => self.next_ns(now).min(report_ns).min(self.now() + SLEEP_MAX_NS),
                _ => now,
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
        for (_, flight) in &self.flights {
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
        self.late_looks = 2 + (self.connections.len() / Events::MAX) as u32;
        self.late_ns += to_ns - from_ns;
        self.miss(to_ns);
        // Nobody knows when these would have found a connection.
        for ticket in &self.waiting {
            self.flights[*ticket as usize].late_ns += to_ns - from_ns;
        }
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
        self.number += 1;
        let number = self.number;
        // Workers take requests in turns.
        let ordinal = self.passed * self.share.threads as u64 + self.share.number as u64 + 1;
        let (sent_ns, connection, late_ns) = (0, 0, 0);
        let flight = Flight { due_ns, ordinal, sent_ns, connection, late_ns, request, number };
        let ticket = self.flights.insert(flight) as Ticket;
        self.waiting.push_back(ticket);
        self.by_due.push_back((ticket, number));
        // Behind one that does not end, those that have ended would stay until its time is over.
        if self.by_due.len() > 2 * self.flights.len() + BY_DUE_SPARE {
            let flights = &self.flights;
            self.by_due.retain(|(ticket, number)| {
                flights.get(*ticket as usize).is_some_and(|one| one.number == *number)
            });
        }
        let in_flight = &mut self.counting.tally.in_flight_max;
        *in_flight = (*in_flight).max(self.flights.len() as u64);
    }

    /// Ends what has lasted longer than is allowed.
    fn expire(&mut self, now: u64) {
        while let Some(&(ticket, number)) = self.by_due.front() {
            let flight = self.flights.get(ticket as usize).filter(|one| one.number == number);
            match flight {
                None => {}
                Some(flight) if now < flight.due_ns.saturating_add(self.share.timeout_ns) => return,
                Some(flight) => {
                    let (is_sent, key) = (flight.sent_ns > 0, flight.connection);
                    self.fail(ticket, Failure::TimedOut, now);
                    if is_sent && self.is_command() {
                        self.give_up(key);
                    } else if is_sent && !self.connections[key].abandon(ticket, &mut self.scratch) {
                        self.close(key, Failure::Closed);
                    } else if is_sent {
                        self.settle(key);
                    } else if self.waiting.front() == Some(&ticket) {
                        // They wait in the order in which they were due: this one waited for longest.
                        self.waiting.pop_front();
                    }
                }
            }
            self.by_due.pop_front();
        }
    }

    /// Sends what waits, as far as there is room; opens connections where there is none.
    fn dispatch(&mut self) {
        if self.is_command() {
            return self.start_next();
        }
        while let Some(&ticket) = self.waiting.front() {
            let Some(key) = self.with_room() else {
                let all = self.connections.len();
                let wanted = self.waiting.len().min(CONNECTING_MAX);
                if self.connecting >= wanted {
                    return;
                }
                if all >= self.share.connections_max {
                    return self.all_wait(ticket);
                }
                self.connect();
                continue;
            };
            // While it still waits, so that it is known of it if the worker stood still.
            let now = self.now();
            self.waiting.pop_front();
            let flight = &mut self.flights[ticket as usize];
            (flight.sent_ns, flight.connection) = (now, key);
            self.counting.send_lag.record(now - flight.due_ns);
            let connection = &mut self.connections[key];
            match connection.send(&flight.request, ticket, &mut self.scratch) {
                Ok(()) => self.settle(key),
                Err(failure) => self.close(key, failure),
            }
        }
    }

    fn is_command(&self) -> bool {
        self.share.dial.protocol == Protocol::Command
    }

    /// Whether a command waits that may be started.
    fn can_start(&self) -> bool {
        self.is_command()
            && !self.waiting.is_empty()
            && self.processes.len() < self.share.connections_max
    }

    /// Starts the command of who waits for longest, if there may be one more process. One at a time: that takes so long that meanwhile
    /// others have ended, or are due.
    fn start_next(&mut self) {
        let Some(&ticket) = self.waiting.front() else { return };
        if !self.can_start() {
            return self.all_wait(ticket);
        }
        let now = self.now();
        self.waiting.pop_front();
        let entry = self.processes.vacant_entry();
        let flight = &mut self.flights[ticket as usize];
        (flight.sent_ns, flight.connection) = (now, entry.key());
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
        let first = self.flights[first as usize].number;
        let from = first.max(self.waited_until + 1);
        self.counting.tally.waited += (self.number + 1).saturating_sub(from);
        self.waited_until = self.number;
    }

    /// A connection with room for a request, the one that was idle for longest.
    fn with_room(&mut self) -> Option<usize> {
        while let Some(key) = self.free.pop_front() {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.is_listed = false;
                if connection.room() > 0 {
                    return Some(key);
                }
            }
        }
        None
    }

    /// After something was done with a connection: it is listed if it has room, closed if it is over, and what it waits for is told.
    fn settle(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        if connection.is_over() {
            return self.close(key, Failure::Closed);
        }
        if !connection.is_listed && connection.room() > 0 {
            connection.is_listed = true;
            self.free.push_back(key);
            self.connecting -= usize::from(connection.is_awaited());
            connection.is_ready = true;
        }
        if connection.has_unsent() != connection.waits_to_send {
            connection.waits_to_send = !connection.waits_to_send;
            let changed = self.events.change(&*connection, key, connection.waits_to_send);
            if let Err(error) = changed {
                self.close(key, Failure::of(&error));
            }
        }
    }

    fn connect(&mut self) {
        let connection = Connection::start(&self.share.dial, self.opened);
        self.opened += 1;
        self.counting.tally.opened += 1;
        let added = connection.and_then(|connection| {
            let entry = self.connections.vacant_entry();
            self.events.add(&connection, entry.key(), true)?;
            let (key, number) = (entry.key(), connection.number);
            entry.insert(connection);
            Ok(Attempt { key, number, began_ns: clock::now() })
        });
        match added {
            Ok(attempt) => {
                self.connecting += 1;
                self.see_connections();
                self.young.push_back(attempt);
            }
            Err(error) => {
                let failure = Failure::of(&error);
                self.words.add(failure, clock::now(), || Some(error.to_string()));
                self.not_connected(failure);
            }
        }
    }

    fn see_connections(&mut self) {
        let most = &mut self.counting.tally.connected_max;
        *most = (*most).max((self.connections.len() + self.processes.len()) as u64);
    }

    /// Connections that take long to get ready are no longer waited for; those that took as long as a request may, nobody waits for.
    fn age(&mut self, now: u64) {
        let unready = |connections: &Slab<Connection>, one: &Attempt| {
            connections
                .get(one.key)
                .is_some_and(|known| known.number == one.number && !known.is_ready)
        };
        while self.young.front().is_some_and(|one| now >= one.began_ns + CONNECTING_NS) {
            let Some(one) = self.young.pop_front() else { return };
            if unready(&self.connections, &one) {
                self.connections[one.key].is_slow = true;
                self.connecting -= 1;
                self.slow.push_back(one);
            }
        }
        let timeout_ns = self.share.timeout_ns;
        while self.slow.front().is_some_and(|one| now >= one.began_ns.saturating_add(timeout_ns)) {
            let Some(one) = self.slow.pop_front() else { return };
            if unready(&self.connections, &one) {
                // The request that it was made for has failed by now, and those that wait have time left.
                self.connections.remove(one.key);
            }
        }
    }

    /// Who waited for longest is told that there is no connection.
    fn not_connected(&mut self, failure: Failure) {
        if let Some(ticket) = self.waiting.pop_front() {
            self.fail(ticket, failure, clock::now());
        }
    }

    /// Closes a connection; what was under way on it has failed.
    fn close(&mut self, key: usize, failure: Failure) {
        let mut connection = self.connections.remove(key);
        let now = clock::now();
        self.words.add(failure, now, || connection.words(failure));
        for ticket in &connection.under_way {
            self.fail(*ticket, failure, now);
        }
        if !connection.is_ready {
            self.connecting -= usize::from(connection.is_awaited());
            self.not_connected(failure);
        }
    }

    fn fail(&mut self, ticket: Ticket, failure: Failure, now: u64) {
        let flight = self.flights.remove(ticket as usize);
        self.counting.fail(failure, now.saturating_sub(flight.due_ns));
    }

    /// When something is to be done that nobody tells of.
    fn next_ns(&self, now: u64) -> u64 {
        let due = self.next_due_ns.map_or(u64::MAX, |due| self.start_ns + due);
        let times_out =
            self.by_due.front().and_then(|(ticket, _)| self.flights.get(*ticket as usize));
        let times_out =
            times_out.map_or(u64::MAX, |one| one.due_ns.saturating_add(self.share.timeout_ns));
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
                Some((key, flags)) if self.connections.contains(key) => self.touch(key, flags),
                Some((key, _)) if self.processes.contains(key) => self.touch_process(key),
                _ => {}
            }
        }
    }

    fn touch(&mut self, key: usize, flags: EventFlags) {
        let connection = &mut self.connections[key];
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
        self.connections[key].forget(one.ticket);
        if let Some(failure) = one.failure {
            self.words.add(failure, now, || self.connections[key].words(failure));
            return self.fail(one.ticket, failure, now);
        }
        self.complete(one.ticket, now);
    }

    fn complete(&mut self, ticket: Ticket, now: u64) {
        let flight = self.flights.remove(ticket as usize);
        let (response_ns, service_ns) = (now - flight.due_ns, now - flight.sent_ns);
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
        self.counting.tally.cpu_ns = cpu - self.cpu_before_ns;
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
