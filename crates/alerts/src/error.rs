//! Errors of the role.

use std::io;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, AlertsError>;

/// Why rules are not evaluated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AlertsError {
    /// The settings enable rules on an agent.
    #[error(
        "cannot evaluate rules: an agent stores no data; remove rule_files from [alerts], and \
         evaluate them on the remote"
    )]
    Agent,
    /// The settings have SLOs on an agent.
    #[error(
        "cannot compute the budgets of SLOs: an agent stores no data; remove [[slo]] and \
         openslo_files, and have them on the remote"
    )]
    AgentSlos,
    /// The settings have contacts on an agent.
    #[error(
        "cannot send notifications: an agent evaluates no rules; remove the contacts, and send \
         notifications from the remote"
    )]
    AgentContacts,
    /// A rule file cannot be read.
    #[error("cannot read rule file {}: {cause}", path.display())]
    Read {
        /// File or directory.
        path: PathBuf,
        /// Cause; its text is in that of this error.
        cause: io::Error,
    },
    /// Rule files have errors; the text is the first one with its position.
    #[error("{0}")]
    Rules(String),
    /// The file of alert states cannot be read or written.
    #[error("cannot {action} alert states: {cause}")]
    States {
        /// `read` or `write`.
        action: &'static str,
        /// Cause.
        cause: String,
    },
    /// The history of alerts cannot be read or written; the text says which.
    #[error("{0}")]
    History(String),
    /// The thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}
