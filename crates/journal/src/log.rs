//! Log lines for the operator: one per change of state.

use std::sync::Arc;

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// A start, a stop, a change that was asked for, or a recovery.
    Info,
    /// Something is missing, late or rejected, and the rest works.
    Warn,
    /// Data is lost or not accepted, or a part of the program failed.
    Error,
}

impl LogLevel {
    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        }
    }
}

/// Receives log lines. It adds the time.
pub type LogFn = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;
