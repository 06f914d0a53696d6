//! API errors, before rendering as topdeck's or Prometheus' JSON.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::error_response::ErrorResponse;

/// API error, before rendering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// It cannot be read: the asker's.
    BadRequest(String),
    /// It cannot be answered of what there is, or costs more than it may.
    Unprocessable(String),
    /// Its time was up.
    Timeout(String),
    /// Too many are asked at once.
    TooManyRequests {
        /// What there is too much of.
        message: String,
        /// After how long to ask again.
        retry_after: Duration,
    },
    /// There is no such thing.
    NotFound(String),
    /// It is not, or no longer, as the asker takes it to be.
    PreconditionFailed(String),
    /// The store failed.
    Internal(String),
}

impl ApiError {
    /// A parameter that makes no sense.
    pub(crate) fn invalid_parameter(name: &str, found: &str, expected: &str) -> ApiError {
        let start: String = found.chars().take(VALUE_CHARS_MAX).collect();
        let more = if start.len() < found.len() { "…" } else { "" };
        ApiError::BadRequest(format!(
            "parameter {name}: found {start:?}{more}, expected {expected}"
        ))
    }

    /// Of a question, whose places are told as line and column.
    pub(crate) fn from_query_error(error: query::Error, text: &str) -> ApiError {
        let message = match error.span() {
            // Of what is asked by parameters alone.
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

    /// The text of it.
    pub(crate) fn message(&self) -> &str {
        match self {
            ApiError::BadRequest(what)
            | ApiError::Unprocessable(what)
            | ApiError::Timeout(what)
            | ApiError::TooManyRequests { message: what, .. }
            | ApiError::NotFound(what)
            | ApiError::PreconditionFailed(what)
            | ApiError::Internal(what) => what,
        }
    }

    /// The status, which is that of Prometheus where it knows the case.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            ApiError::BadRequest(_) => StatusCode::BAD_REQUEST,
            ApiError::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ApiError::Timeout(_) => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
            ApiError::NotFound(_) => StatusCode::NOT_FOUND,
            ApiError::PreconditionFailed(_) => StatusCode::PRECONDITION_FAILED,
            ApiError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// After how long one who was refused may ask again.
pub(crate) const RETRY_AFTER_BUSY: Duration = Duration::from_secs(1);
/// So much of what was found is told.
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
        if let ApiError::TooManyRequests { retry_after: after, .. } = refusal {
            problem.retry_after = Some(after);
        }
        problem
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        ErrorResponse::from(self).into_response()
    }
}
