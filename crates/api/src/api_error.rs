//! API errors, before rendering as topdeck's or Prometheus' JSON.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::error_response::ErrorResponse;

/// API error, before rendering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// Invalid request: the client is to blame.
    BadRequest(String),
    /// The query cannot be answered from the stored data, or exceeds a limit.
    Unprocessable(String),
    /// Timeout.
    Timeout(String),
    /// A concurrency or memory limit is reached.
    TooManyRequests {
        /// The limit.
        message: String,
        /// Retry delay.
        retry_after: Duration,
    },
    /// The object does not exist.
    NotFound(String),
    /// The object has changed since the client read it.
    PreconditionFailed(String),
    /// The store failed.
    Internal(String),
    /// The server is shutting down.
    ShuttingDown,
}

impl ApiError {
    /// An invalid parameter value.
    pub(crate) fn invalid_parameter(name: &str, found: &str, expected: &str) -> ApiError {
        let start: String = found.chars().take(VALUE_CHARS_MAX).collect();
        let more = if start.len() < found.len() { "…" } else { "" };
        ApiError::BadRequest(format!(
            "parameter {name}: found {start:?}{more}, expected {expected}"
        ))
    }

    /// A query error; positions are reported as line and column.
    pub(crate) fn from_query_error(error: query::Error, text: &str) -> ApiError {
        let message = match error.span() {
            // The request has parameters only, no query text.
            Some(_) if text.is_empty() => error.to_string(),
            Some(place) => {
                let (line, column) = place.line_and_column(text);
                format!("{line}:{column}: {error}")
            }
            None => error.to_string(),
        };
        match error {
            query::Error::Parse { .. } => ApiError::BadRequest(message),
            query::Error::Execution { .. } | query::Error::Limit { .. } => {
                ApiError::Unprocessable(message)
            }
            query::Error::Timeout => ApiError::Timeout(message),
            query::Error::Memory { is_transient: true, .. } => {
                ApiError::TooManyRequests { message, retry_after: RETRY_AFTER_BUSY }
            }
            query::Error::Memory { is_transient: false, .. } => ApiError::Unprocessable(message),
            query::Error::Store(error) => error.into(),
            _ => ApiError::Internal(message),
        }
    }

    /// The message.
    pub(crate) fn message(&self) -> &str {
        match self {
            ApiError::BadRequest(what)
            | ApiError::Unprocessable(what)
            | ApiError::Timeout(what)
            | ApiError::TooManyRequests { message: what, .. }
            | ApiError::NotFound(what)
            | ApiError::PreconditionFailed(what)
            | ApiError::Internal(what) => what,
            ApiError::ShuttingDown => "topdeck is shutting down; retry",
        }
    }

    /// Retry delay of a request that would succeed later.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            ApiError::TooManyRequests { retry_after, .. } => Some(*retry_after),
            ApiError::ShuttingDown => Some(RETRY_AFTER_SHUTDOWN),
            _ => None,
        }
    }

    /// The status: that of Prometheus if it has the case.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            ApiError::BadRequest(_) => StatusCode::BAD_REQUEST,
            ApiError::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ApiError::Timeout(_) | ApiError::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
            ApiError::NotFound(_) => StatusCode::NOT_FOUND,
            ApiError::PreconditionFailed(_) => StatusCode::PRECONDITION_FAILED,
            ApiError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Retry delay of a rejected query.
pub(crate) const RETRY_AFTER_BUSY: Duration = Duration::from_secs(1);
/// Retry delay during a shutdown: a restart takes longer than a query.
const RETRY_AFTER_SHUTDOWN: Duration = Duration::from_secs(5);
/// Maximum length of a value in a message, in characters.
const VALUE_CHARS_MAX: usize = 100;

impl From<store::Error> for ApiError {
    fn from(error: store::Error) -> ApiError {
        let message = error.to_string();
        match error {
            store::Error::QueryTooExpensive { .. } | store::Error::Model(_) => {
                ApiError::Unprocessable(message)
            }
            store::Error::InvalidSetting { .. } => ApiError::BadRequest(message),
            store::Error::Cancelled => ApiError::from_query_error(query::Error::Timeout, ""),
            _ => ApiError::Internal(message),
        }
    }
}

impl From<ApiError> for ErrorResponse {
    fn from(refusal: ApiError) -> ErrorResponse {
        let mut problem = ErrorResponse::new(refusal.status(), refusal.message());
        problem.retry_after = refusal.retry_after();
        problem
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        ErrorResponse::from(self).into_response()
    }
}
