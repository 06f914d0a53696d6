//! Request middleware: limits, authentication, request metrics.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::MatchedPath;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{HOST, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Version, header};
use intake::{EventCounter, LatencyHistogram, Meter};
use model::FORWARD_REQUEST_BYTES_MAX;
use render::time::format_age;
use tower::ServiceExt as _;

use crate::access::{AccessPolicy, Peer, is_host};
use crate::body::{BodyLimits, LimitedBody, RETRY_AFTER_FULL};
use crate::error_response::ErrorResponse;
use crate::grpc;
use crate::limits::{
    BodyBudget, BodyReservation, DecodePermits, Limits, RejectCounters, RejectReason,
};
use crate::response_buffers::ResponseBuffers;
use crate::route::{RULE_REPLAY_PATH, SERIES_CHANGES_PATH, SNAPSHOTS_PATH};

/// Routes that take a file.
const FILE_PATHS: [&str; 2] = ["/v1/import", "/v1/hlog"];

/// Request middleware: limits, access, metrics, routing.
pub(crate) struct RequestMiddleware {
    pub(crate) access: Arc<AccessPolicy>,
    pub(crate) limits: Limits,
    pub(crate) reject_counters: Arc<RejectCounters>,
    pub(crate) body_budget: Arc<BodyBudget>,
    pub(crate) response_buffers: Arc<ResponseBuffers>,
    /// Failed reads of the token file, after which the previous tokens stayed valid.
    pub(crate) token_file_errors: EventCounter,
    /// Permits for decoding bodies.
    decode_permits: DecodePermits,
    router: Router,
    metrics: RequestMetrics,
}

/// What a request with a method that its route does not have asked for.
#[derive(Clone)]
pub(crate) struct DisallowedMethod(pub(crate) String);

/// Names the allowed methods, which the router adds to the response for a [`DisallowedMethod`].
fn name_allowed_methods(mut response: Response) -> Response {
    let Some(DisallowedMethod(what)) = response.extensions_mut().remove() else { return response };
    let Some(allowed) = response.headers_mut().remove(header::ALLOW) else { return response };
    let methods = allowed.to_str().unwrap_or_default().replace(',', " or ");
    let what = format!("{what}; use {methods}");
    let mut named = ErrorResponse::new(StatusCode::METHOD_NOT_ALLOWED, what).into_response();
    let more = response.extensions_mut().remove::<MatchedRoute>();
    more.map(|route| named.extensions_mut().insert(route));
    named.headers_mut().insert(header::ALLOW, allowed);
    named
}

impl RequestMiddleware {
    pub(crate) fn new(
        access: AccessPolicy,
        limits: Limits,
        router: Router,
        meter: &Arc<Meter>,
    ) -> RequestMiddleware {
        RequestMiddleware {
            access: Arc::new(access),
            reject_counters: Arc::new(RejectCounters::new(meter)),
            body_budget: BodyBudget::new(limits.max_buffered_body_bytes),
            response_buffers: ResponseBuffers::new(limits.max_buffered_response_bytes),
            token_file_errors: meter.counter(
                "topdeck_http_token_file_errors_total",
                "Failed reads of the token file (the previous tokens stay valid)",
                &[],
            ),
            decode_permits: DecodePermits::new(limits.max_concurrent_decodes),
            router: router.layer(from_fn(record_route)),
            metrics: RequestMetrics { meter: Arc::clone(meter), histograms: RwLock::default() },
            limits,
        }
    }

    /// Handles a request.
    pub(crate) async fn handle<B>(
        self: Arc<RequestMiddleware>,
        peer: Peer,
        request: Request<B>,
    ) -> Response
    where
        B: http_body::Body<Data = Bytes, Error = hyper::Error> + Send + Unpin + 'static,
    {
        let began = Instant::now();
        let is_grpc = grpc::is_grpc(request.headers());
        let mut response = match host_error(&request) {
            None => name_allowed_methods(self.route(peer, request).await),
            Some(what) => {
                ErrorResponse::new(StatusCode::BAD_REQUEST, what.to_owned()).into_response()
            }
        };
        let sniffing = response.headers_mut().entry(X_CONTENT_TYPE_OPTIONS);
        sniffing.or_insert(HeaderValue::from_static("nosniff"));
        match response.status() {
            StatusCode::UNAUTHORIZED => self.reject_counters.count(RejectReason::Token),
            StatusCode::FORBIDDEN => self.reject_counters.count(RejectReason::Forbidden),
            _ => {}
        }
        let route = response.extensions_mut().remove::<MatchedRoute>();
        let route = route.as_ref().map_or("other", |route| route.0.as_str());
        self.metrics.record(route, response.status(), began);
        if is_grpc && let Some(problem) = response.extensions_mut().remove::<ErrorResponse>() {
            return grpc::error_response(&problem);
        }
        response
    }

    /// Error response if the response buffers are full.
    pub(crate) fn response_buffers_full(&self, is_grpc: bool) -> Response {
        self.reject_counters.count(RejectReason::BufferedResponseBytes);
        let (bytes, max) = (self.response_buffers.bytes(), self.response_buffers.bytes_max());
        let problem = ErrorResponse {
            status: StatusCode::TOO_MANY_REQUESTS,
            message: format!(
                "cannot buffer the response: limit reached: {bytes} of {max} bytes not read by \
                 clients (max_buffered_response_bytes in [http.limits] of the settings); retry in \
                 1 s, or query less data"
            ),
            retry_after: Some(RETRY_AFTER_FULL),
        };
        match is_grpc {
            true => grpc::error_response(&problem),
            false => problem.into_response(),
        }
    }

    async fn route<B>(self: &Arc<RequestMiddleware>, peer: Peer, request: Request<B>) -> Response
    where
        B: http_body::Body<Data = Bytes, Error = hyper::Error> + Send + Unpin + 'static,
    {
        // The sender determines the size of a forward request, and cannot split it.
        let body_bytes = match request.uri().path() == net::forward_protocol::PATH {
            true => self.limits.max_body_bytes.max(FORWARD_REQUEST_BYTES_MAX),
            false => self.limits.max_body_bytes,
        };
        let body_reservation = BodyReservation::new(&self.body_budget);
        let bound = BodyLimits::new(
            body_reservation,
            &self.reject_counters,
            body_bytes,
            self.limits.body_read_timeout,
        );
        let has_file = FILE_PATHS.contains(&request.uri().path());
        let bound = Arc::new(if has_file { bound.for_file() } else { bound });
        if let Some(length) = content_length(request.headers())
            && let Err(problem) = bound.check_content_length(length)
        {
            return problem.into_response();
        }
        let mut request = request.map(|body| Body::new(LimitedBody::new(body, Arc::clone(&bound))));
        let extensions = request.extensions_mut();
        extensions.insert(Arc::clone(&self.access));
        extensions.insert(self.decode_permits.clone());
        extensions.insert(peer);
        extensions.insert(Arc::clone(&bound));
        let path = request.uri().path();
        let is_as_long_as_data = path.starts_with(SNAPSHOTS_PATH)
            || path.starts_with(SERIES_CHANGES_PATH)
            || path == RULE_REPLAY_PATH;
        let request_time = match is_as_long_as_data {
            true => Duration::MAX,
            false => self.limits.request_timeout,
        };
        let answer = self.router.clone().oneshot(request);
        let response = match tokio::time::timeout(request_time, answer).await {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_) => {
                self.reject_counters.count(RejectReason::RequestTimeout);
                let what = format!(
                    "request timed out after {}; the sent data may have been accepted",
                    format_age(self.limits.request_timeout)
                );
                return ErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, what).into_response();
            }
        };
        // The handler knows only that the body cannot be read; the violation has the cause.
        match bound.violation.get() {
            Some(problem) => {
                let mut problem_response = problem.clone().into_response();
                if let Some(route) = response.extensions().get::<MatchedRoute>() {
                    problem_response.extensions_mut().insert(route.clone());
                }
                problem_response
            }
            None => response,
        }
    }
}

/// Why the Host of a request is ambiguous: a proxy may have routed it by another host (RFC 9112,
/// 3.2).
fn host_error<B>(request: &Request<B>) -> Option<&'static str> {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Some("cannot accept the request: duplicate header Host; send one"),
        (Some(host), None) if !is_host(host) => {
            Some("cannot accept the request: invalid header Host; send HOST or HOST:PORT")
        }
        (None, None) if request.version() == Version::HTTP_11 => {
            Some("cannot accept the request: header Host is missing; send one")
        }
        _ => None,
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The matched route pattern: `/module/httptrap/{check}/{secret}`.
#[derive(Clone)]
struct MatchedRoute(String);

async fn record_route(request: axum::extract::Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let mut response = next.run(request).await;
    if let Some(route) = route {
        response.extensions_mut().insert(MatchedRoute(route));
    }
    response
}

/// Request durations by route and status class (at most routes × 5).
struct RequestMetrics {
    meter: Arc<Meter>,
    histograms: RwLock<HashMap<(String, u16), LatencyHistogram>>,
}

impl RequestMetrics {
    fn record(&self, route: &str, status: StatusCode, began: Instant) {
        let key = (route.to_owned(), status.as_u16() / 100);
        let known =
            self.histograms.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let timer = known.unwrap_or_else(|| {
            let class = format!("{}xx", key.1);
            let timer = self.meter.histogram(
                "topdeck_http_request_duration",
                "Time from a request to the start of its response",
                &[("route", route), ("status", &class)],
            );
            let mut known = self.histograms.write().unwrap_or_else(PoisonError::into_inner);
            known.entry(key).or_insert(timer).clone()
        });
        timer.record(began.elapsed());
    }
}
