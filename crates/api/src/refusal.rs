//! Why a question is not answered, before it is known in which dialect that is said: topdeck's own or Prometheus'.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::problem::Problem;

/// Why a question is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It cannot be read: the asker's.
    Bad(String),
    /// It cannot be answered of what there is, or costs more than it may.
    Execution(String),
    /// Its time was up.
    Time(String),
    /// Too many are asked at once.
    Busy {
        /// What there is too much of.
        what: String,
        /// After how long to ask again.
        after: Duration,
    },
    /// There is no such thing.
    Missing(String),
    /// It is not, or no longer, as the asker takes it to be.
    Changed(String),
    /// The store failed.
    Internal(String),
}

impl Refusal {
    /// A parameter that makes no sense.
    pub(crate) fn parameter(name: &str, found: &str, expected: &str) -> Refusal {
        let start: String = found.chars().take(FOUND_CHARS).collect();
        let more = if start.len() < found.len() { "…" } else { "" };
        Refusal::Bad(format!("parameter {name}: found {start:?}{more}, expected {expected}"))
    }

    /// Of a question, whose places are told as line and column.
    pub(crate) fn of_question(error: query::Error, text: &str) -> Refusal {
        let message = match error.place() {
            // Of what is asked by parameters alone.
            Some(_) if text.is_empty() => error.to_string(),
            Some(place) => {
                let (line, column) = place.line_and_column(text);
                format!("{line}:{column}: {error}")
            }
            None => error.to_string(),
        };
        match error {
            query::Error::Parse { .. } => Refusal::Bad(message),
            query::Error::Execution { .. } | query::Error::Limit { .. } => {
                Refusal::Execution(message)
            }
            query::Error::Time => Refusal::Time(message),
            query::Error::Memory { is_transient: true, .. } => {
                Refusal::Busy { what: message, after: AFTER_BUSY }
            }
            query::Error::Memory { is_transient: false, .. } => Refusal::Execution(message),
            query::Error::Store(error) => error.into(),
            _ => Refusal::Internal(message),
        }
    }

    /// The text of it.
    pub(crate) fn what(&self) -> &str {
        match self {
            Refusal::Bad(what)
            | Refusal::Execution(what)
            | Refusal::Time(what)
            | Refusal::Busy { what, .. }
            | Refusal::Missing(what)
            | Refusal::Changed(what)
            | Refusal::Internal(what) => what,
        }
    }

    /// The status, which is that of Prometheus where it knows the case.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Refusal::Bad(_) => StatusCode::BAD_REQUEST,
            Refusal::Execution(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::Time(_) => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Busy { .. } => StatusCode::TOO_MANY_REQUESTS,
            Refusal::Missing(_) => StatusCode::NOT_FOUND,
            Refusal::Changed(_) => StatusCode::PRECONDITION_FAILED,
            Refusal::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// After how long one who was refused may ask again.
pub(crate) const AFTER_BUSY: Duration = Duration::from_secs(1);
/// So much of what was found is told.
const FOUND_CHARS: usize = 100;

impl From<store::Error> for Refusal {
    fn from(error: store::Error) -> Refusal {
        let message = error.to_string();
        match error {
            store::Error::TooMuch { .. } | store::Error::Model(_) => Refusal::Execution(message),
            store::Error::Setting { .. } => Refusal::Bad(message),
            store::Error::Over => Refusal::of_question(query::Error::Time, ""),
            _ => Refusal::Internal(message),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let mut problem = Problem::new(refusal.status(), refusal.what());
        if let Refusal::Busy { after, .. } = refusal {
            problem.after = Some(after);
        }
        problem
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        Problem::from(self).into_response()
    }
}
