//! Requests that start a process each.

use crate::failure::Failure;
use crate::process::{CommandFailure, Process};
use crate::worker::Worker;

impl Worker {
    /// Starts the command of the longest waiting request if a slot is free. One at a time: during a
    /// start others exit, or become due.
    pub(super) fn start_next(&mut self) {
        let Some(request_id) = self.in_flight.next_waiting() else { return };
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
            let CommandFailure { failure, cause } = CommandFailure::start(&error);
            self.first_errors.add(failure, now, || Some(cause));
            self.fail(request_id, failure, clock::now());
        }
    }

    /// Kills a process whose request timed out.
    pub(super) fn kill_process(&mut self, key: usize) {
        let process = &mut self.processes[key];
        process.request_id = None;
        process.kill();
        let detail = || process.error_detail("was killed after the timeout");
        self.first_errors.add(Failure::TimedOut, clock::now(), detail);
    }

    /// Handles the exit of a process.
    pub(super) fn handle_process_exit(&mut self, key: usize) {
        let now = self.now();
        let Some(result) = self.processes[key].poll_exit() else { return };
        let process = self.processes.remove(key);
        if self.processes.len() + 1 == self.config.max_connections {
            self.slot_free_since_ns = now;
        }
        let Some(request_id) = process.request_id else { return };
        match result {
            Ok(()) => self.complete(request_id, now),
            Err(CommandFailure { failure, cause }) => {
                self.first_errors.add(failure, now, || process.error_detail(&cause));
                self.fail(request_id, failure, now);
            }
        }
    }
}
