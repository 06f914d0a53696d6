//! Background threads of a command: they wait for signals, for a process, or for the end of input.
//!
//! A server restarts threads that panic ([`journal::Supervisor`]). A command does not: without the
//! thread it would miss the request to stop. So a panic of a background thread ends the command.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};

use client::print_message;
use journal::supervisor::panic_message;

/// Exit status of a Rust program whose main thread panicked.
const STATUS: i32 = 101;

/// Runs `work` on a new thread. A panic exits the program with status 101.
pub(crate) fn spawn<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    spawn_or(name, work, |message| {
        print_message(message);
        std::process::exit(STATUS)
    })
}

/// Runs `work` on a new thread, and `panicked` after a panic.
fn spawn_or<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
    panicked: impl FnOnce(&str) -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let run = move || match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done,
        Err(panic) => panicked(&format!("BUG: thread {name} panicked: {}", panic_message(&*panic))),
    };
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(work: impl FnOnce() -> String + Send + 'static, expected: &str) {
        let thread = spawn_or("signals", work, str::to_owned).unwrap();
        assert_eq!(thread.join().unwrap(), expected);
    }

    #[test]
    fn a_command_whose_background_thread_panicked_does_not_go_on_unnoticed() {
        check(|| "done".to_owned(), "done");
        check(|| panic!("no signal"), "BUG: thread signals panicked: no signal");
    }
}
