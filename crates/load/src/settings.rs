//! Settings of a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::Error;
use crate::process;
use crate::request::Requests;
use crate::schedule::Schedule;
use crate::target::Target;

/// Settings of a run.
#[derive(Clone)]
pub struct Settings {
    /// Where requests go; `None` if each request starts a command.
    pub target: Option<Target>,
    /// TLS settings of the client.
    pub tls: net::tls::ClientTls,
    /// When requests are due.
    pub schedule: Schedule,
    /// What is sent.
    pub requests: Requests,
    /// Random seed of request choice and variables.
    pub seed: u64,
    /// Sending threads. Each can use a whole CPU.
    pub threads: usize,
    /// CPUs of this machine. A thread spins only if there are more CPUs than threads.
    pub processors: usize,
    /// Initial connections; unused for commands.
    pub connections: usize,
    /// Limit of connections or processes. Further requests queue, and their response time
    /// continues.
    pub max_connections: usize,
    /// Request timeout, from the scheduled time. Nanoseconds.
    pub timeout_ns: u64,
    /// Wait for outstanding responses after the last scheduled time. Nanoseconds.
    pub grace_period_ns: u64,
    /// When set, the run ends at once with partial results.
    pub abort: Arc<AtomicBool>,
}

impl Settings {
    /// Checks the settings without contacting a server; missing programs are errors.
    pub fn check(&self) -> Result<(), Error> {
        self.check_connections()?;
        self.resolve_programs().map(|_| ())
    }

    /// Each thread needs a connection.
    pub(crate) fn check_connections(&self) -> Result<(), Error> {
        let (most, threads) = (self.max_connections, self.threads);
        if most >= threads.max(1) {
            return Ok(());
        }
        let what = if self.is_command() { "processes" } else { "connections" };
        let message =
            format!("{most} {what} are too few for {threads} threads; each thread needs one");
        Err(Error::InvalidSettings(message))
    }

    /// Paths of the programs of commands; empty for a server.
    pub(crate) fn resolve_programs(&self) -> Result<Arc<[Option<PathBuf>]>, Error> {
        if self.is_command() {
            return Ok(process::resolve_programs(&self.requests)?.into());
        }
        match self.requests.iter().find(|request| !request.command.is_empty()) {
            Some(request) => Err(Error::Command { name: request.name.clone() }),
            None => Ok(Arc::default()),
        }
    }

    /// Whether requests are commands instead of requests to a server.
    pub(crate) fn is_command(&self) -> bool {
        self.target.is_none()
    }

    /// Number of worker threads.
    pub(crate) fn worker_count(&self) -> usize {
        self.threads.max(1)
    }
}
