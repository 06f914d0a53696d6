//! What every request passes, in and out: limits, who asks, and how long it took.

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
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use intake::{Counter, Meter, Timer};
use model::PARCEL_BYTES_MAX;
use tokio::sync::Semaphore;
use tower::ServiceExt as _;

use crate::access::{Access, Peer};
use crate::body::{AFTER_NO_ROOM, Bound, Limited};
use crate::grpc;
use crate::limits::{Held, Limits, Refused, Room, Why};
use crate::problem::Problem;
use crate::snapshots;
use crate::unread::UnreadAnswers;

/// What all requests share.
pub(crate) struct Gate {
    pub(crate) access: Access,
    pub(crate) limits: Limits,
    pub(crate) refused: Arc<Refused>,
    pub(crate) room: Arc<Room>,
    pub(crate) unread: Arc<UnreadAnswers>,
    /// How often the file of tokens could not be read, so that those before it went on counting.
    pub(crate) unread_tokens: Counter,
    /// Who may decode a body now.
    pub(crate) decoding: Arc<Semaphore>,
    router: Router,
    times: Times,
}

impl Gate {
    pub(crate) fn new(access: Access, limits: Limits, router: Router, meter: &Arc<Meter>) -> Gate {
        Gate {
            access,
            refused: Arc::new(Refused::new(meter)),
            room: Room::new(limits.bodies_bytes),
            unread: UnreadAnswers::new(limits.answers_bytes),
            unread_tokens: meter.counter(
                "topdeck_http_tokens_unread_total",
                "times that the file of tokens could not be read; those before go on counting",
                &[],
            ),
            decoding: Arc::new(Semaphore::new(limits.decoding)),
            router: router.layer(from_fn(remember_route)),
            times: Times { meter: Arc::clone(meter), known: RwLock::default() },
            limits,
        }
    }

    /// Answers a request.
    pub(crate) async fn answer<B>(self: Arc<Gate>, peer: Peer, request: Request<B>) -> Response
    where
        B: http_body::Body<Data = Bytes, Error = hyper::Error> + Send + Unpin + 'static,
    {
        let began = Instant::now();
        let is_grpc = grpc::is_grpc(request.headers());
        let mut response = match request.headers().get_all(HOST).iter().nth(1) {
            None => self.pass(peer, request).await,
            // Whoever stands between may have looked at the other one (RFC 9112, 3.2).
            Some(_) => {
                let what = "there are two headers Host: send one".to_owned();
                Problem::new(StatusCode::BAD_REQUEST, what).into_response()
            }
        };
        let sniffing = response.headers_mut().entry(X_CONTENT_TYPE_OPTIONS);
        sniffing.or_insert(HeaderValue::from_static("nosniff"));
        match response.status() {
            StatusCode::UNAUTHORIZED => self.refused.count(Why::Token),
            StatusCode::FORBIDDEN => self.refused.count(Why::Forbidden),
            _ => {}
        }
        let route = response.extensions_mut().remove::<Route>();
        let route = route.as_ref().map_or("other", |route| route.0.as_str());
        self.times.record(route, response.status(), began);
        if is_grpc && let Some(problem) = response.extensions_mut().remove::<Problem>() {
            return grpc::refusal(&problem);
        }
        response
    }

    /// The refusal of a request whose answer there is no room for until others are taken.
    pub(crate) fn no_room_for_answer(&self, is_grpc: bool) -> Response {
        self.refused.count(Why::AnswersBytes);
        let (bytes, max) = (self.unread.bytes(), self.unread.bytes_max());
        let problem = Problem {
            status: StatusCode::TOO_MANY_REQUESTS,
            what: format!(
                "cannot hold the answer: {bytes} bytes of answers wait for clients that do not \
                 read them, of {max} (answers_bytes in [http.limits] of the settings); try again \
                 in 1 s, or ask for less"
            ),
            after: Some(AFTER_NO_ROOM),
        };
        match is_grpc {
            true => grpc::refusal(&problem),
            false => problem.into_response(),
        }
    }

    async fn pass<B>(self: &Arc<Gate>, peer: Peer, request: Request<B>) -> Response
    where
        B: http_body::Body<Data = Bytes, Error = hyper::Error> + Send + Unpin + 'static,
    {
        // How large a parcel is depends on the one who sends it, and it could never be sent in parts.
        let body_bytes = match request.uri().path() == net::parcels::PATH {
            true => self.limits.body_bytes.max(PARCEL_BYTES_MAX),
            false => self.limits.body_bytes,
        };
        let held = Held::new(&self.room);
        let bound = Bound::new(held, &self.refused, body_bytes, self.limits.body_time);
        let bound = Arc::new(bound);
        if let Some(length) = length(request.headers())
            && let Err(problem) = bound.announced(length)
        {
            return problem.into_response();
        }
        let mut request = request.map(|body| Body::new(Limited::new(body, Arc::clone(&bound))));
        let extensions = request.extensions_mut();
        extensions.insert(Arc::clone(self));
        extensions.insert(peer);
        extensions.insert(Arc::clone(&bound));
        let request_time = match request.uri().path().starts_with(snapshots::PATH) {
            true => Duration::MAX,
            false => self.limits.request_time,
        };
        let answer = self.router.clone().oneshot(request);
        let response = match tokio::time::timeout(request_time, answer).await {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_) => {
                self.refused.count(Why::RequestTime);
                let what = format!(
                    "there is no answer after {} s; what was sent may have been taken",
                    self.limits.request_time.as_secs_f64()
                );
                return Problem::new(StatusCode::SERVICE_UNAVAILABLE, what).into_response();
            }
        };
        // A handler knows only that the body cannot be read; why is known here.
        match bound.broken.get() {
            Some(problem) => {
                let mut told = problem.clone().into_response();
                if let Some(route) = response.extensions().get::<Route>() {
                    told.extensions_mut().insert(route.clone());
                }
                told
            }
            None => response,
        }
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The route that answered, as it is written in the code: `/module/httptrap/{check}/{secret}`.
#[derive(Clone)]
struct Route(String);

async fn remember_route(request: axum::extract::Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let mut response = next.run(request).await;
    if let Some(route) = route {
        response.extensions_mut().insert(Route(route));
    }
    response
}

/// How long requests took, by route and class of the status. There are as many as routes are written in the code, times 5.
struct Times {
    meter: Arc<Meter>,
    known: RwLock<HashMap<(String, u16), Timer>>,
}

impl Times {
    fn record(&self, route: &str, status: StatusCode, began: Instant) {
        let key = (route.to_owned(), status.as_u16() / 100);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let timer = known.unwrap_or_else(|| {
            let class = format!("{}xx", key.1);
            let timer = self.meter.timer(
                "topdeck_http_request",
                "how long requests took until their answer began",
                &[("route", route), ("status", &class)],
            );
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            known.entry(key).or_insert(timer).clone()
        });
        timer.record(began.elapsed());
    }
}
