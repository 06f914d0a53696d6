//! Table of routes and the OpenAPI document generated from it.
//!
//! Handlers of read routes are registered from the table; those of ingest formats from the table of
//! `ingest.rs`. Topdeck's own routes reject parameters that are not in the table. Routes of other
//! systems' protocols ignore unknown parameters, as these systems do.

mod document;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing;
use http::{HeaderValue, header};
use role::{RouteError, RouteFormat, RouteQuery, RouteSpec};

use crate::api_error::ApiError;
use crate::context::Context;
use crate::json::Json;
use crate::offered_routes::OfferedRoutes;
use crate::parameters::Parameters;
use crate::prometheus::PrometheusError;
use crate::response_buffers::SharedBody;
use crate::route::ApiRoute;
use crate::token::Scope;
use crate::{
    annotations, audit, batches, damage, dashboards, health, ingest, metrics, prometheus, query,
    series_changes, snapshots, status, stream, texts,
};

/// Prefix of the paths of Prometheus' API, whose clients read `status` and `errorType`.
const PROMETHEUS_PATH: &str = "/api/v1/";

/// All routes.
pub(crate) fn all_routes() -> impl Iterator<Item = &'static ApiRoute> {
    [
        query::ROUTES,
        stream::ROUTES,
        annotations::ROUTES,
        texts::ROUTES,
        status::ROUTES,
        audit::ROUTES,
        metrics::ROUTES,
        snapshots::ROUTES,
        series_changes::ROUTES,
        dashboards::ROUTES,
        damage::ROUTES,
        health::ROUTES,
        ROUTES,
        prometheus::ROUTES,
        batches::ROUTES,
    ]
    .into_iter()
    .chain(ingest::FORMATS.iter().map(|row| row.routes))
    .flatten()
}

/// Handlers of a scope, except those registered elsewhere.
pub(crate) fn routes(scope: Option<Scope>) -> Router<Context> {
    let own = all_routes().filter(|route| route.scope == scope);
    own.filter_map(|route| Some((route.path, route.handler?)))
        .fold(Router::new(), |router, (path, handler)| router.route(path, handler()))
}

/// Handlers of the routes of roles, for tokens with scope read.
pub(crate) fn offered_routes(offered: &OfferedRoutes) -> Router<Context> {
    offered.routes.iter().fold(Router::new(), |router, route| {
        let own = Arc::new(route.clone());
        let handler = move |context: Context, parameters: Parameters| {
            answer(Arc::clone(&own), context, parameters)
        };
        router.route(route.spec.path, routing::get(handler))
    })
}

async fn answer(route: Arc<role::Route>, context: Context, parameters: Parameters) -> Response {
    let is_of_prometheus = route.spec.path.starts_with(PROMETHEUS_PATH);
    let parameters = match is_of_prometheus {
        true => Ok(parameters),
        false => parameters.reject_unknown(route.spec.parameters),
    };
    let outcome = match parameters {
        Ok(parameters) => run(route, context, RouteQuery::new(parameters.into_pairs())).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(response) => response,
        Err(error) if is_of_prometheus => PrometheusError::from(error).into_response(),
        Err(error) => error.into_response(),
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
    let work = move |_: &_| {
        let json = (route.handler)(&query).map_err(|error| match error {
            RouteError::Parameter { name, found, expected } => {
                ApiError::invalid_parameter(&name, &found, &expected)
            }
        })?;
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

/// The OpenAPI document: the server's routes and those of roles.
pub fn document<'a>(offered: impl IntoIterator<Item = &'a RouteSpec>) -> String {
    let offered: Vec<ApiRoute> = offered.into_iter().map(ApiRoute::of_role).collect();
    document::document_text(&offered)
}

pub(crate) const ROUTES: &[ApiRoute] =
    &[ApiRoute::get("/v1/openapi.json", "This document.", &[], || {
        routing::get(async |context: Context| {
            let kind = HeaderValue::from_static("application/json");
            let document = context.offered.document(|added| document::document_text(&added));
            let mut response = ([(header::CONTENT_TYPE, kind)], document).into_response();
            response.extensions_mut().insert(SharedBody);
            response
        })
    })
    .with_scope(None)];
