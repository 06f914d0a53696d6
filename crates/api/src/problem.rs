//! An answer that says what went wrong: the status, and one line with what, where, why and what to do.

use std::fmt;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The status.
    pub(crate) status: StatusCode,
    /// What went wrong, for the one who asked.
    pub(crate) what: String,
    /// After how long the same request may be tried again.
    pub(crate) after: Option<Duration>,
}

impl Problem {
    /// A problem of a status.
    pub(crate) fn new(status: StatusCode, what: impl Into<String>) -> Problem {
        Problem { status, what: what.into(), after: None }
    }

    /// What was sent makes no sense.
    pub(crate) fn bad(what: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, what)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Problem {}

impl From<intake::Error> for Problem {
    fn from(error: intake::Error) -> Problem {
        let what = error.to_string();
        match error {
            intake::Error::Full { after, .. } => {
                Problem { status: StatusCode::TOO_MANY_REQUESTS, what, after: Some(after) }
            }
            intake::Error::TooLarge { .. } => Problem::new(StatusCode::PAYLOAD_TOO_LARGE, what),
            intake::Error::Refused(_) => Problem::bad(what),
            intake::Error::Forbidden(_) => Problem::new(StatusCode::FORBIDDEN, what),
            intake::Error::SequenceJump { .. } => Problem::new(StatusCode::CONFLICT, what),
            _ => Problem::new(StatusCode::SERVICE_UNAVAILABLE, what),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::json!({ "error": self.what }).to_string() + "\n";
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(after) = self.after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // Those whose answers are not JSON find it there.
        response.extensions_mut().insert(self);
        response
    }
}
