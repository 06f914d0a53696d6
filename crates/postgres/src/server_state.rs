//! State of a server for the status and the log.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use intake::LogLevel;
use role::json::Json::{self, Integer, List, Null, Object, Text};

/// What is known of a server.
#[derive(Debug)]
pub(crate) struct ServerState {
    name: String,
    address: String,
    inner: Mutex<ServerFacts>,
}

#[derive(Debug, Default)]
struct ServerFacts {
    is_up: Option<bool>,
    since: i64,
    version: String,
    last_error: Option<(i64, String)>,
    /// Collectors, and why one has no metrics.
    collectors: BTreeMap<&'static str, Option<String>>,
    blocking_tree: String,
}

impl ServerState {
    pub(crate) fn new(name: &str, address: String) -> ServerState {
        ServerState { name: name.to_owned(), address, inner: Mutex::default() }
    }

    /// Records whether the server is reached. Returns a log line if this changed.
    pub(crate) fn record(
        &self,
        at: i64,
        outcome: Result<&str, &str>,
    ) -> Option<(LogLevel, String)> {
        let mut held = self.lock();
        let server = format!("postgres {:?}", self.name);
        let (is_up, was_up) = (outcome.is_ok(), held.is_up);
        let line = match (outcome, was_up) {
            (Err(reason), None | Some(true)) => {
                Some((LogLevel::Warn, format!("{server} is down: {reason}")))
            }
            (Ok(version), Some(false)) => {
                let seconds = at.saturating_sub(held.since) / 1_000_000_000;
                let what = format!("{server} (PostgreSQL {version}) is up again after {seconds} s");
                Some((LogLevel::Info, what))
            }
            _ => None,
        };
        if was_up != Some(is_up) {
            (held.is_up, held.since) = (Some(is_up), at);
        }
        match outcome {
            Ok(version) => version.clone_into(&mut held.version),
            Err(reason) => held.last_error = Some((at, reason.to_owned())),
        }
        line
    }

    /// Records why a collector has no metrics, or that it has. Returns whether this changed, and a
    /// log line for a new reason.
    pub(crate) fn record_collector(
        &self,
        name: &'static str,
        error: Option<&str>,
    ) -> (bool, Option<(LogLevel, String)>) {
        let mut held = self.lock();
        let last = held.collectors.insert(name, error.map(str::to_owned));
        let is_new = last.flatten().as_deref() != error;
        let server = &self.name;
        let line = error.filter(|_| is_new).map(|reason| {
            (LogLevel::Warn, format!("postgres {server:?} has no metrics of {name}: {reason}"))
        });
        (is_new, line)
    }

    pub(crate) fn set_blocking_tree(&self, tree: &str) {
        tree.clone_into(&mut self.lock().blocking_tree);
    }

    fn lock(&self) -> MutexGuard<'_, ServerFacts> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server in the section `postgres` of the status.
    pub(crate) fn to_json(&self) -> Json {
        let held = self.lock();
        let state = match held.is_up {
            None => "unknown",
            Some(true) => "up",
            Some(false) => "down",
        };
        let text = |text: &str| if text.is_empty() { Null } else { Text(text.to_owned()) };
        let error = held.last_error.as_ref().map(|(at, reason)| {
            Object(vec![("at_ns", Integer((*at).into())), ("reason", Text(reason.clone()))])
        });
        let collectors = held.collectors.iter().map(|(name, error)| {
            Object(vec![
                ("name", Text((*name).to_owned())),
                ("error", error.clone().map_or(Null, Text)),
            ])
        });
        Object(vec![
            ("name", Text(self.name.clone())),
            ("address", Text(self.address.clone())),
            ("state", Text(state.to_owned())),
            ("since_ns", held.is_up.map_or(Null, |_| Integer(held.since.into()))),
            ("version", text(&held.version)),
            ("last_error", error.unwrap_or(Null)),
            ("collectors", List(collectors.collect())),
            ("blocking_tree", text(&held.blocking_tree)),
        ])
    }
}
