//! Route table and the OpenAPI document generated from it.
//!
//! Handlers of questions are registered from it; those that take measurements are registered where they are written.
//! Topdeck's own routes refuse parameters that are not in the table. Those that other systems know by their own
//! protocols pass over what they do not know, as these systems do.

mod document;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::response::IntoResponse as _;
use axum::routing::{self, MethodRouter};
use bytes::Bytes;
use http::{HeaderValue, header};
pub(crate) use role::Parameter;
use role::{RouteError, RouteQuery, RouteSpec};

use crate::api_error::ApiError;
use crate::context::Context;
use crate::parameters::Parameters;
use crate::query_service::JsonBody;
use crate::response_buffers::SharedBody;
use crate::token::Scope;
use crate::{
    annotations, audit, batches, dashboards, health, info_metrics, ingest, metrics, prometheus,
    query, snapshots, status, stream,
};

/// Route of the HTTP API.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// With names of its variable parts in braces.
    pub(crate) path: &'static str,
    /// What a token has to allow; none where no token is asked for.
    pub(crate) scope: Option<Scope>,
    /// A sentence.
    pub(crate) description: &'static str,
    pub(crate) parameters: &'static [Parameter],
    /// What the body is: its media type and a sentence.
    pub(crate) body: Option<(&'static str, &'static str)>,
    /// The status of success, the media type of the answer and a sentence.
    pub(crate) response: (u16, &'static str, &'static str),
    /// Who answers; `None` where the route is registered elsewhere, as those of roles are.
    pub(crate) handler: Option<fn() -> MethodRouter<Context>>,
}

pub(crate) const FROM: Parameter =
    Parameter::text("from", "start of the range; default: the first row");
pub(crate) const TO: Parameter = Parameter::text("to", "end of the range; default: the last row");
pub(crate) const SELECTOR: Parameter = Parameter::text(
    "selector",
    "series selector, such as latency, latency{host=\"a\"} or and(host:web-*)",
);
pub(crate) const TIMEOUT: Parameter = Parameter::text("timeout", "evaluation timeout");
pub(crate) const MAX_SERIES: Parameter = Parameter::integer(
    "max_series",
    "limit of series per selector; cannot exceed the server's limit",
);

/// The media type of most answers.
pub(crate) const JSON: &str = "application/json";

impl Route {
    /// Asks for something, in JSON.
    pub(crate) const fn get(
        path: &'static str,
        about: &'static str,
        parameters: &'static [Parameter],
        handler: fn() -> MethodRouter<Context>,
    ) -> Route {
        Route {
            method: "get",
            path,
            scope: Some(Scope::Read),
            description: about,
            parameters,
            body: None,
            response: (200, JSON, "the result"),
            handler: Some(handler),
        }
    }

    /// The same with the parameters in a form, for what is too long for an address.
    pub(crate) const fn post_form(
        path: &'static str,
        about: &'static str,
        parameters: &'static [Parameter],
        handler: fn() -> MethodRouter<Context>,
    ) -> Route {
        let body = Some(("application/x-www-form-urlencoded", "the parameters, if not in the URL"));
        Route { method: "post", body, ..Route::get(path, about, parameters, handler) }
    }

    /// Takes measurements; registered where its handler is written.
    pub(crate) const fn ingest(
        path: &'static str,
        about: &'static str,
        parameters: &'static [Parameter],
        body: (&'static str, &'static str),
    ) -> Route {
        Route {
            method: "post",
            path,
            scope: Some(Scope::Ingest),
            description: about,
            parameters,
            body: Some(body),
            response: (200, JSON, "counts of accepted data; stored durably"),
            handler: None,
        }
    }

    /// Whether its request may be a batch with an identity of its sender.
    fn takes_batches(&self) -> bool {
        let is_ingest = self.scope.is_some_and(|scope| scope.name() == Scope::Ingest.name());
        is_ingest && self.handler.is_none() && self.path != net::forward_protocol::PATH
    }

    /// As a role offers it.
    fn of_role(spec: &RouteSpec) -> Route {
        let RouteSpec { path, about, parameters, .. } = *spec;
        Route { handler: None, ..Route::get(path, about, parameters, MethodRouter::new) }
    }

    pub(crate) const fn with_scope(self, scope: Option<Scope>) -> Route {
        Route { scope, ..self }
    }

    pub(crate) const fn with_response(
        self,
        status: u16,
        kind: &'static str,
        about: &'static str,
    ) -> Route {
        Route { response: (status, kind, about), ..self }
    }
}

/// All there is.
pub(crate) fn all_routes() -> impl Iterator<Item = &'static Route> {
    [
        query::ROUTES,
        stream::ROUTES,
        annotations::ROUTES,
        info_metrics::ROUTES,
        status::ROUTES,
        audit::ROUTES,
        metrics::ROUTES,
        snapshots::ROUTES,
        dashboards::ROUTES,
        health::ROUTES,
        ROUTES,
        prometheus::ROUTES,
        batches::ROUTES,
    ]
    .into_iter()
    .chain(ingest::ROUTES)
    .flatten()
}

/// The handlers of a scope, but for those that are registered elsewhere.
pub(crate) fn routes(scope: Option<Scope>) -> Router<Context> {
    let own = all_routes().filter(|route| route.scope == scope);
    own.filter_map(|route| Some((route.path, route.handler?)))
        .fold(Router::new(), |router, (path, handler)| router.route(path, handler()))
}

/// Routes that roles offer, and the document of all routes.
#[derive(Debug, Default)]
pub(crate) struct Offered {
    routes: Vec<role::Route>,
    /// Written once: clients need no token, and may ask as often as they like.
    document: OnceLock<Bytes>,
}

impl Offered {
    pub(crate) fn new(routes: Vec<role::Route>) -> Offered {
        Offered { routes, document: OnceLock::new() }
    }

    /// Their handlers, for tokens that may read.
    pub(crate) fn router(&self) -> Router<Context> {
        self.routes.iter().fold(Router::new(), |router, route| {
            let own = Arc::new(route.clone());
            let handler = move |context: Context, parameters: Parameters| {
                answer(Arc::clone(&own), context, parameters)
            };
            router.route(route.spec.path, routing::get(handler))
        })
    }

    fn document(&self) -> Bytes {
        let specs = || self.routes.iter().map(|route| route.spec);
        self.document.get_or_init(|| document(specs()).into()).clone()
    }
}

async fn answer(
    route: Arc<role::Route>,
    context: Context,
    parameters: Parameters,
) -> Result<JsonBody, ApiError> {
    let query = RouteQuery::new(parameters.reject_unknown(route.spec.parameters)?.into_pairs());
    let (name, desk) = (route.spec.name, Arc::clone(&context.queries));
    let work = move |_: &_| {
        let json = (route.handler)(&query).map_err(|error| match error {
            RouteError::Parameter { name, found, expected } => {
                ApiError::invalid_parameter(&name, &found, &expected)
            }
        })?;
        desk.json_response(&json)
    };
    context.run_light(name, None, work).await
}

/// The OpenAPI document: the server's own routes, and those that roles offer.
pub fn document<'a>(offered: impl IntoIterator<Item = &'a RouteSpec>) -> String {
    let offered: Vec<Route> = offered.into_iter().map(Route::of_role).collect();
    document::document_text(&offered)
}

pub(crate) const ROUTES: &[Route] =
    &[Route::get("/v1/openapi.json", "This document.", &[], || {
        routing::get(async |context: Context| {
            let kind = HeaderValue::from_static("application/json");
            let document = context.offered.document();
            let mut response = ([(header::CONTENT_TYPE, kind)], document).into_response();
            response.extensions_mut().insert(SharedBody);
            response
        })
    })
    .with_scope(None)];
