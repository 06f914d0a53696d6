//! Threads of the role, which the supervisor restarts after a panic.

use std::thread::{Builder, JoinHandle};

use intake::SupervisedThread;

use crate::error::Error;

/// Starts a thread that its owner joins.
pub(crate) fn spawn<T: Send + 'static>(
    name: &'static str,
    supervised: SupervisedThread,
    is_stopping: impl Fn() -> bool + Send + 'static,
    mut work: impl FnMut() -> T + Send + 'static,
) -> Result<JoinHandle<Option<T>>, Error> {
    let run = move || {
        let run = || {
            supervised.failpoint();
            work()
        };
        supervised.run(is_stopping, run)
    };
    Builder::new().name(name.to_owned()).spawn(run).map_err(|source| Error::Thread { name, source })
}
