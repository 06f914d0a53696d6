//! Requests on connections to a server.

use rustix::event::epoll::EventFlags;

use crate::codec::Completion;
use crate::connection::ReadOutcome;
use crate::failure::Failure;
use crate::worker::Worker;

impl Worker {
    /// Sends queued requests as capacity allows; opens connections if there is none.
    pub(super) fn dispatch(&mut self) {
        if self.is_command() {
            return self.start_next();
        }
        while let Some(request_id) = self.in_flight.next_waiting() {
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

    /// Whether the queued requests need another connection or process.
    pub(super) fn needs_connection(&self) -> bool {
        self.pool.needs_connection(self.in_flight.waiting())
    }

    /// After activity on a connection: makes it available, closes it, or updates its poll interest.
    pub(super) fn refresh_connection(&mut self, key: usize) {
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
    pub(super) fn connect(&mut self) -> bool {
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

    /// Fails the longest waiting request: no connection.
    pub(super) fn not_connected(&mut self, failure: Failure) {
        if let Some(request_id) = self.in_flight.next_waiting() {
            self.fail(request_id, failure, clock::now());
        }
    }

    /// Closes a connection and fails its requests in flight.
    pub(super) fn close(&mut self, key: usize, failure: Failure) {
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

    pub(super) fn handle_connection_event(&mut self, key: usize, flags: EventFlags) {
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

    pub(super) fn end(&mut self, key: usize, one: Completion, now: u64) {
        self.pool[key].cancel_request(one.request_id);
        if let Some(failure) = one.failure {
            self.first_errors.add(failure, now, || self.pool[key].error_detail(failure));
            return self.fail(one.request_id, failure, now);
        }
        self.complete(one.request_id, now);
    }
}
