//! Ingest formats over HTTP. A format is a type with [`IngestFormat`] and a row in the table of
//! `ingest.rs`. The common part (limits, access, decompression, identity, append, wait for
//! durability) is in `ingest_request.rs`.

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::MethodFilter;
use decode::SeriesSink;
use intake::SeriesKeyEncoding;

use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::ingest::ingest_request::{IngestOutcome, IngestRequest};
use crate::route::ApiRoute;
use crate::routing;

/// A push format over HTTP. A value of the type has what one request says about its body:
/// parameters, content type, version.
pub trait IngestFormat: Sized + Send + Sync + 'static {
    /// Name of the format, and of the producer of clients without an identity.
    const NAME: &'static str;
    /// Whether its clients send on a schedule, so that a long pause is reported as absence.
    const SENDS_REGULARLY: bool = true;
    /// Whether a body is rejected if it has a histogram in another unit than its metric has: its
    /// sender is told what to do. Clients of other formats cannot act on it: it is counted and
    /// logged.
    const REJECTS_OTHER_UNITS: bool = false;
    /// Its routes: paths, methods, parameters and content types, for the OpenAPI document.
    const ROUTES: &'static [ApiRoute];
    /// gRPC paths, which the OpenAPI document does not describe.
    const GRPC_PATHS: &'static [&'static str] = &[];

    /// Summary of its decoder.
    type Summary: Send + 'static;

    /// Parses the parameters and headers of a request.
    fn parse_request(request: &mut IngestRequest) -> Result<Self, ErrorResponse>;

    /// Encoding of the series keys, named by the decoder that writes them.
    fn key_encoding(&self) -> SeriesKeyEncoding {
        SeriesKeyEncoding::new(Self::NAME)
    }

    /// Decodes a body. `now` is in nanoseconds since the Unix epoch. After an error nothing of the
    /// body is stored.
    fn decode(
        &self,
        body: &[u8],
        now: i64,
        sink: &mut dyn SeriesSink,
    ) -> Result<Self::Summary, ErrorResponse>;

    /// Exemplars of a decoded body are left out because the batch would be too large with them.
    fn exemplars_discarded(_summary: &mut Self::Summary, _exemplars: u64) {}

    /// Samples that the decoder rejected while it accepted others, and the first reasons.
    fn rejected(_summary: &Self::Summary) -> (u64, &[String]) {
        (0, &[])
    }

    /// The response, sent when the batch is durable.
    fn response(&self, outcome: IngestOutcome<Self::Summary>) -> Response;

    /// The response to a failed request of which nothing is stored; `format` is `None`
    /// if parameters or headers are invalid.
    fn error_response(_format: Option<&Self>, error: ErrorResponse) -> Response {
        error.into_response()
    }
}

/// Row of a format in the table of formats.
#[derive(Clone, Copy)]
pub struct IngestFormatRow {
    pub(crate) name: &'static str,
    pub(crate) routes: &'static [ApiRoute],
    router: fn() -> Router<Context>,
}

impl std::fmt::Debug for IngestFormatRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("IngestFormatRow").field(&self.name).finish()
    }
}

impl IngestFormatRow {
    /// Row of this format.
    pub const fn of<F: IngestFormat>() -> IngestFormatRow {
        IngestFormatRow { name: F::NAME, routes: F::ROUTES, router: router::<F> }
    }

    /// The handlers of its routes.
    pub(crate) fn router(&self) -> Router<Context> {
        (self.router)()
    }
}

fn router<F: IngestFormat>() -> Router<Context> {
    let listed = F::ROUTES.iter().map(|route| (route.path, route.method));
    let all = listed.chain(F::GRPC_PATHS.iter().map(|&path| (path, "post")));
    all.fold(Router::new(), |router, (path, method)| {
        let filter = match method {
            "put" => MethodFilter::PUT,
            "post" => MethodFilter::POST,
            other => unreachable!("BUG: {path} has method {other}, expected PUT or POST"),
        };
        router.route(path, routing::on(filter, handle::<F>))
    })
}

async fn handle<F: IngestFormat>(mut request: IngestRequest) -> Response {
    let format = match F::parse_request(&mut request) {
        Ok(format) => Arc::new(format),
        Err(error) => {
            request.count_rejected::<F>(&error);
            return F::error_response(None, error);
        }
    };
    match request.ingest(Arc::clone(&format)).await {
        Ok(outcome) => format.response(outcome),
        Err(error) => F::error_response(Some(&format), error),
    }
}
