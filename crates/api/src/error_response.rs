//! Error response: status and one line with value, expected syntax, position and remedy.

use std::fmt;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

/// Error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorResponse {
    /// The status.
    pub status: StatusCode,
    /// Message for the client.
    pub message: String,
    /// Retry delay.
    pub retry_after: Option<Duration>,
}

impl ErrorResponse {
    /// An error response with a status.
    pub fn new(status: StatusCode, what: impl Into<String>) -> ErrorResponse {
        ErrorResponse { status, message: what.into(), retry_after: None }
    }

    /// 400 Bad Request.
    pub fn bad_request(what: impl Into<String>) -> ErrorResponse {
        ErrorResponse::new(StatusCode::BAD_REQUEST, what)
    }
}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ErrorResponse {}

impl From<intake::Error> for ErrorResponse {
    fn from(error: intake::Error) -> ErrorResponse {
        let what = error.to_string();
        match error {
            intake::Error::Full { retry_after: after, .. } => ErrorResponse {
                status: StatusCode::TOO_MANY_REQUESTS,
                message: what,
                retry_after: Some(after),
            },
            intake::Error::WaitsForSpace { retry_after, .. } => ErrorResponse {
                status: StatusCode::SERVICE_UNAVAILABLE,
                message: what,
                retry_after: Some(retry_after),
            },
            intake::Error::TooLarge { .. } => {
                ErrorResponse::new(StatusCode::PAYLOAD_TOO_LARGE, what)
            }
            intake::Error::Rejected(_) => ErrorResponse::bad_request(what),
            intake::Error::Forbidden(_) => ErrorResponse::new(StatusCode::FORBIDDEN, what),
            intake::Error::SequenceJump { .. } => ErrorResponse::new(StatusCode::CONFLICT, what),
            _ => ErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, what),
        }
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        let body = serde_json::json!({ "error": self.message }).to_string() + "\n";
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // Protocols without JSON responses read it from the extensions.
        response.extensions_mut().insert(self);
        response
    }
}
