//! Handlers of the routes of roles: `GET` for tokens with the scope read, others with alerts or
//! ingest; pictures by signed links, without a token.
//!
//! Errors have the shape that the clients of a path know: under `/api/v1/` that of Prometheus,
//! under `/api/v2/` that of Alertmanager (the message as a JSON string), else topdeck's own. Paths
//! of other systems ignore unknown parameters, as these systems do.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::RawPathParams;
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use role::{
    RouteError, RouteEvents, RouteFormat, RouteQuery, RouteSpec, WriteMethod, WriteRequest,
    WriteScope,
};

use crate::access::Principal;
use crate::active_query::ActiveQuery;
use crate::api_error::{ApiError, RETRY_AFTER_BUSY};
use crate::blocking::blocking;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json;
use crate::offered_routes::OfferedRoutes;
use crate::parameters::Parameters;
use crate::prometheus::PrometheusError;
use crate::role_events::{self, EventClients, accepts_events};
use crate::route::Parameter;
use crate::routing;

/// Prefix of the paths of Prometheus' API, whose clients read `status` and `errorType`.
const PROMETHEUS_PATH: &str = "/api/v1/";
/// Prefix of the paths of Alertmanager's API.
const ALERTMANAGER_PATH: &str = "/api/v2/";
/// Maximum size of the body of a change in bytes: 1,000 alerts of 16 KiB.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Handlers of the routes of signed pictures, which need no token.
pub(crate) fn picture_routes(offered: &OfferedRoutes) -> Router<Context> {
    let routes = offered.routes.iter().filter(|route| route.picture.is_some());
    routes.fold(Router::new(), |router, route| {
        let own = Arc::new(route.clone());
        let handler = move |context: Context, path: RawPathParams, parameters: Parameters| {
            answer(Arc::clone(&own), context, path_pairs(&path), parameters)
        };
        router.route(route.spec.path, routing::get(handler))
    })
}

/// Handlers of the routes that change nothing.
pub(crate) fn read_routes(offered: &OfferedRoutes) -> Router<Context> {
    let routes = offered.routes.iter().filter(|route| route.picture.is_none());
    routes.fold(Router::new(), |router, route| {
        let (own, clients) = (Arc::new(route.clone()), EventClients::default());
        let handler = move |context: Context,
                            path: RawPathParams,
                            headers: HeaderMap,
                            parameters: Parameters| {
            let (route, clients) = (Arc::clone(&own), clients.clone());
            let path = path_pairs(&path);
            async move {
                match route.events.clone().filter(|_| accepts_events(&headers)) {
                    Some(events) => {
                        follow(route.spec, events, clients, context, path, parameters, headers)
                            .await
                    }
                    None => answer(route, context, path, parameters).await,
                }
            }
        };
        router.route(route.spec.path, routing::get(handler))
    })
}

/// Handlers of the routes that change something, for tokens with this scope.
pub(crate) fn write_routes(offered: &OfferedRoutes, scope: WriteScope) -> Router<Context> {
    let routes = offered.write_routes.iter().filter(|route| route.spec.scope == scope);
    routes.fold(Router::new(), |router, route| router.route(route.spec.path, write_handler(route)))
}

fn write_handler(route: &role::WriteRoute) -> MethodRouter<Context> {
    let own = Arc::new(route.clone());
    let handler = move |context: Context,
                        axum::Extension(principal): axum::Extension<Principal>,
                        path: RawPathParams,
                        request: axum::extract::Request| {
        change(Arc::clone(&own), context, principal, path_pairs(&path), request)
    };
    match route.spec.method {
        WriteMethod::Post => routing::post(handler),
        WriteMethod::Delete => routing::delete(handler),
    }
}

fn path_pairs(path: &RawPathParams) -> Vec<(String, String)> {
    path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

async fn answer(
    route: Arc<role::Route>,
    context: Context,
    path: Vec<(String, String)>,
    parameters: Parameters,
) -> Response {
    let spec = route.spec;
    let outcome = match route_query(spec.path, spec.parameters, path, parameters) {
        Ok(query) => run(route, context, query).await,
        Err(error) => Err(error),
    };
    outcome.unwrap_or_else(|error| error_response(spec.path, error))
}

async fn follow(
    spec: &'static RouteSpec,
    events: RouteEvents,
    clients: EventClients,
    context: Context,
    path: Vec<(String, String)>,
    parameters: Parameters,
    headers: HeaderMap,
) -> Response {
    let outcome = match route_query(spec.path, spec.parameters, path, parameters) {
        Ok(query) => {
            role_events::respond(events, spec.name, clients, context, query, &headers).await
        }
        Err(error) => Err(error),
    };
    outcome.unwrap_or_else(|error| error_response(spec.path, error))
}

fn route_query(
    route_path: &str,
    known: &[Parameter],
    path: Vec<(String, String)>,
    parameters: Parameters,
) -> Result<RouteQuery, ApiError> {
    let is_foreign =
        [PROMETHEUS_PATH, ALERTMANAGER_PATH].iter().any(|it| route_path.starts_with(it));
    let parameters = if is_foreign { parameters } else { parameters.reject_unknown(known)? };
    Ok(RouteQuery::new(path.into_iter().chain(parameters.into_pairs()).collect()))
}

fn error_response(route_path: &str, error: ApiError) -> Response {
    if route_path.starts_with(PROMETHEUS_PATH) {
        return PrometheusError::from(error).into_response();
    }
    if !route_path.starts_with(ALERTMANAGER_PATH) {
        return error.into_response();
    }
    let text = Json::Text(error.message().to_owned()).to_string();
    let mut response = (error.status(), JsonBody(text)).into_response();
    if let Some(after) = error.retry_after() {
        let after = HeaderValue::from(after.as_secs().max(1));
        response.headers_mut().insert(header::RETRY_AFTER, after);
    }
    response
}

impl From<RouteError> for ApiError {
    fn from(error: RouteError) -> ApiError {
        match error {
            RouteError::Parameter { name, found, expected } => {
                ApiError::invalid_parameter(&name, &found, &expected)
            }
            RouteError::BadRequest(what) => ApiError::BadRequest(what),
            RouteError::NotFound(what) => ApiError::NotFound(what),
            RouteError::Limit(message) => {
                ApiError::TooManyRequests { message, retry_after: RETRY_AFTER_BUSY }
            }
            RouteError::Unavailable(what) => ApiError::Timeout(what),
        }
    }
}

async fn run(
    route: Arc<role::Route>,
    context: Context,
    query: RouteQuery,
) -> Result<Response, ApiError> {
    if let Some(wait) = &route.wait {
        tokio::select! {
            () = wait(&query) => {}
            () = context.queries.stopped() => {}
        }
    }
    let (name, queries) = (route.spec.name, Arc::clone(&context.queries));
    let work = move |active: &ActiveQuery| {
        if let Some(picture) = &route.picture {
            return picture(&query).map(picture_response).map_err(ApiError::from);
        }
        let json = (route.handler)(&query, active)?;
        match (route.spec.format, json) {
            (RouteFormat::Text, Json::Text(line)) => {
                let kind = HeaderValue::from_static("text/plain");
                Ok(([(header::CONTENT_TYPE, kind)], line + "\n").into_response())
            }
            (_, json) => queries.json_response(&json).map(IntoResponse::into_response),
        }
    };
    context.run_light(name, None, work).await
}

fn picture_response(png: Vec<u8>) -> Response {
    // A link has a signature: no cache that others share keeps what it opens.
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("image/png")),
        (header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=3600")),
    ];
    (headers, png).into_response()
}

async fn change(
    route: Arc<role::WriteRoute>,
    context: Context,
    principal: Principal,
    path: Vec<(String, String)>,
    request: axum::extract::Request,
) -> Response {
    let spec = route.spec;
    let outcome = run_change(route, context, principal, path, request).await;
    outcome.unwrap_or_else(|error| error_response(spec.path, error))
}

async fn run_change(
    route: Arc<role::WriteRoute>,
    context: Context,
    principal: Principal,
    path: Vec<(String, String)>,
    request: axum::extract::Request,
) -> Result<Response, ApiError> {
    let spec = route.spec;
    let parameters = Parameters::from_query(request.uri().query().unwrap_or(""))?;
    let query = route_query(spec.path, spec.parameters, path, parameters)?;
    let body = read_body(request.into_body()).await?;
    let request = WriteRequest { query, body, token_name: principal.name };
    let supervisor = context.intake.supervisor().clone();
    let done = blocking(&supervisor, move || (route.handler)(&request)).await;
    match done.map_err(ApiError::Internal)?? {
        Json::Null => Ok(StatusCode::OK.into_response()),
        json => context.queries.json_response(&json).map(IntoResponse::into_response),
    }
}

async fn read_body(body: Body) -> Result<Vec<u8>, ApiError> {
    let read = axum::body::to_bytes(body, BODY_BYTES_MAX).await.map_err(|error| {
        ApiError::BadRequest(format!(
            "cannot read the body: {error}; the size limit is {BODY_BYTES_MAX} bytes"
        ))
    })?;
    Ok(read.into())
}
