//! Blocking work on a thread of its own. A panic is counted and reported.

use intake::{SupervisedThread, Supervisor};

/// The thread's name in `/v1/status` and in `topdeck_thread_panics_total`.
const THREAD: &str = "request";

/// Runs `work` on a blocking thread. After a panic the error is the client's response.
pub(crate) async fn blocking<T: Send + 'static>(
    supervisor: &Supervisor,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let supervised: SupervisedThread = supervisor.thread(THREAD);
    match role::run_blocking(work).await {
        Ok(done) => Ok(done),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => {
                supervised.record_caught_panic(&*panic);
                Err("BUG: handling this request panicked; see the log".to_owned())
            }
            Err(error) => Err(format!("cannot handle this request: {error}")),
        },
    }
}
