//! The thread that keeps the right to capture packets, so that no other thread of a server has it.
//!
//! Capabilities belong to threads, and a new thread has those of the thread that starts it. A
//! server therefore calls [`confine_capture_rights`] while it has one thread. What opens rings and
//! probes, at the start and at each reload, runs in the thread that has the right. It reads no
//! packet.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;

/// Name of the thread.
const THREAD: &str = "wire rights";

/// Work for the thread, which has a way to return its result.
type Work = Box<dyn FnOnce() + Send>;

/// The thread of this process; none if no thread of it may capture, or all may.
static RIGHTS: OnceLock<Sender<Work>> = OnceLock::new();

/// Takes the right to capture from the calling thread, and so from those that it will start, and
/// gives it to a new one. Without the right it does nothing.
pub fn confine_capture_rights() -> io::Result<()> {
    if RIGHTS.get().is_some() || !wire::may_capture()? {
        return Ok(());
    }
    let (work, queue) = channel::<Work>();
    let (started, start) = channel();
    let run = move || {
        // The caller waits for it.
        let _ = started.send(wire::give_up_all_but_capture());
        queue.iter().for_each(|work| work());
    };
    Builder::new().name(THREAD.to_owned()).spawn(run)?;
    start.recv().map_err(|_| io::Error::other(format!("thread {THREAD} panicked")))??;
    wire::give_up_capture()?;
    RIGHTS.get_or_init(|| work);
    Ok(())
}

/// Runs `open` in the thread that may capture, and returns its result. A panic is the caller's.
pub(crate) fn with_capture_rights<T: Send + 'static>(
    open: impl FnOnce() -> T + Send + 'static,
) -> T {
    let Some(rights) = RIGHTS.get() else { return open() };
    let (result, opened) = channel();
    let work = move || {
        // The caller waits for it.
        let _ = result.send(catch_unwind(AssertUnwindSafe(open)));
    };
    let sent = rights.send(Box::new(work)).is_ok();
    assert!(sent, "BUG: thread {THREAD} has ended");
    let result = opened.recv().expect("BUG: a panic is caught");
    result.unwrap_or_else(|panic| resume_unwind(panic))
}
