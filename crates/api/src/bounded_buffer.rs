//! Response text with a size limit, accounted to its query.

use std::fmt::{self, Write as _};

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};

use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::json::Json;

/// Text with a maximum length.
#[derive(Debug)]
pub(crate) struct BoundedBuffer {
    pub(crate) text: String,
    max: usize,
    /// The query to which the memory is accounted.
    query: Option<ActiveQuery>,
    /// Error of a failed reservation.
    error: Option<ApiError>,
}

impl BoundedBuffer {
    /// A buffer of at most `max` bytes, accounted to a query.
    pub(crate) fn new(max: usize, query: Option<ActiveQuery>) -> BoundedBuffer {
        BoundedBuffer { text: String::new(), max, query, error: None }
    }

    /// Error of a failed write.
    pub(crate) fn into_error(self) -> ApiError {
        self.error.unwrap_or_else(|| {
            ApiError::Unprocessable(format!(
                "response size limit ({} bytes) exceeded (max_buffered_response_bytes in \
                 [http.limits] of the settings); use a longer step, a shorter range or fewer \
                 series",
                self.max
            ))
        })
    }

    pub(crate) fn write_json(mut self, json: &Json) -> Result<JsonBody, ApiError> {
        match write!(self, "{json:#}") {
            Ok(()) => Ok(JsonBody(self.text + "\n")),
            Err(_) => Err(self.into_error()),
        }
    }
}

impl fmt::Write for BoundedBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let bytes = self.text.len() + text.len();
        if bytes > self.max {
            return Err(fmt::Error);
        }
        if bytes > self.text.capacity() {
            // Doubles like a `String`, but reserves the memory first.
            let capacity =
                (2 * self.text.capacity()).min(self.max).max(INITIAL_BUFFER_BYTES).max(bytes);
            let more = capacity - self.text.capacity();
            if let Some(Err(denied)) = self.query.as_ref().map(|active| active.reserve(more)) {
                self.error = Some(denied);
                return Err(fmt::Error);
            }
            self.text.reserve_exact(capacity - self.text.len());
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// Initial capacity.
const INITIAL_BUFFER_BYTES: usize = 4 << 10;

/// Serialised JSON body.
#[derive(Debug)]
pub(crate) struct JsonBody(pub(crate) String);

impl IntoResponse for JsonBody {
    fn into_response(self) -> Response {
        let kind = HeaderValue::from_static("application/json");
        ([(header::CONTENT_TYPE, kind)], self.0).into_response()
    }
}
