//! Table of routes and the OpenAPI document generated from it.
//!
//! Handlers of read routes are registered from the table; those of ingest formats from the table of
//! `ingest.rs`. Topdeck's own routes reject parameters that are not in the table. Routes of other
//! systems' protocols ignore unknown parameters, as these systems do.

mod document;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::response::IntoResponse;
use http::{HeaderValue, header};
use role::{RouteSpec, WriteRouteSpec};

use crate::context::Context;
use crate::response_buffers::SharedBody;
use crate::route::ApiRoute;
use crate::routing;
use crate::token::Scope;
use crate::{
    annotations, audit, batches, damage, dashboards, health, ingest, install, metrics, prometheus,
    query, rule_replay, series_changes, series_set_changes, snapshots, status, stream, texts,
    traces,
};

/// All routes.
pub(crate) fn all_routes() -> impl Iterator<Item = &'static ApiRoute> {
    [
        query::ROUTES,
        traces::ROUTES,
        stream::ROUTES,
        annotations::ROUTES,
        texts::ROUTES,
        status::ROUTES,
        audit::ROUTES,
        metrics::ROUTES,
        snapshots::ROUTES,
        rule_replay::ROUTES,
        series_changes::ROUTES,
        series_set_changes::ROUTES,
        dashboards::ROUTES,
        damage::ROUTES,
        health::ROUTES,
        install::ROUTES,
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

/// The OpenAPI document: the server's routes and those of roles.
pub fn document<'a>(
    offered: impl IntoIterator<Item = &'a RouteSpec>,
    offered_writes: impl IntoIterator<Item = &'a WriteRouteSpec>,
) -> String {
    let writes = offered_writes.into_iter().map(ApiRoute::of_role_write);
    let offered: Vec<ApiRoute> = offered.into_iter().map(ApiRoute::of_role).chain(writes).collect();
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
