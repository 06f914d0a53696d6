//! Work on a thread with a lower priority.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::process::{getpriority_process, setpriority_process};

/// Difference to the nice value of the process. Of a CPU that a thread with this priority shares
/// with a usual one, it gets a quarter (sched(7): each step is a factor of 1.25).
const NICE_DIFFERENCE: i32 = 5;
const NICE_MAX: i32 = 19;

/// Runs `work` on a thread of its own, with a lower priority, as have the threads that it starts. A
/// process without privileges can lower the priority of a thread, but not raise it again.
pub(crate) fn run_with_low_priority<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = Mutex::new(Some(work));
    let run = || {
        let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
        work.expect("BUG: the work is done once")()
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("heavy query".to_owned());
        let running = thread.spawn_scoped(scope, || {
            lower_priority();
            run()
        });
        match running {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // There are too many threads: it takes the CPU from others, but it runs.
            Err(_) => run(),
        }
    })
}

/// Lowers the priority of this thread: on Linux a nice value is that of a thread. If this fails,
/// the thread keeps its priority.
fn lower_priority() {
    if let Ok(nice) = getpriority_process(None) {
        let _ = setpriority_process(None, nice.saturating_add(NICE_DIFFERENCE).min(NICE_MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn work_and_its_threads_have_a_lower_priority() {
        let nice = || getpriority_process(None).unwrap();
        let own = nice();
        let found = run_with_low_priority(|| [nice(), thread::spawn(nice).join().unwrap()]);
        assert_eq!(found, [(own + NICE_DIFFERENCE).min(NICE_MAX); 2]);
        assert_eq!(nice(), own);
    }

    #[test]
    fn a_panic_is_passed_on() {
        let panic = catch_unwind(|| run_with_low_priority(|| panic!("of the work"))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"of the work"));
    }
}
