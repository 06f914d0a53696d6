//! What can be asked over HTTP: one table of routes, and the OpenAPI document that is written out of it.
//!
//! Handlers of questions are registered from it; those that take measurements are registered where they are written.
//! Topdeck's own routes refuse parameters that are not in the table. Those that other systems know by their own
//! protocols pass over what they do not know, as these systems do.

mod document;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use axum::Router;
use axum::response::IntoResponse as _;
use axum::routing::{self, MethodRouter};
use bytes::Bytes;
use http::{HeaderValue, header};

use crate::context::Context;
use crate::token::Scope;
use crate::unread::SharedBody;
use crate::{
    annotations, audit, batches, boards, health, ingest, metrics, processes, prometheus, query,
    snapshots, status, stream, texts,
};

/// Something that can be asked for.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// With names of its variable parts in braces.
    pub(crate) path: &'static str,
    /// What a token has to allow; none where no token is asked for.
    pub(crate) scope: Option<Scope>,
    /// A sentence.
    pub(crate) about: &'static str,
    pub(crate) parameters: &'static [Parameter],
    /// What the body is: its media type and a sentence.
    pub(crate) body: Option<(&'static str, &'static str)>,
    /// The status of success, the media type of the answer and a sentence.
    pub(crate) answer: (u16, &'static str, &'static str),
    /// Who answers; `None` where the route is registered elsewhere.
    pub(crate) handler: Option<fn() -> MethodRouter<Context>>,
}

/// A parameter of a route.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// As OpenAPI names types.
    pub(crate) kind: &'static str,
    pub(crate) is_required: bool,
    /// It may be given several times.
    pub(crate) is_many: bool,
}

impl Parameter {
    pub(crate) const fn text(name: &'static str, about: &'static str) -> Parameter {
        Parameter { name, about, kind: "string", is_required: false, is_many: false }
    }

    pub(crate) const fn integer(name: &'static str, about: &'static str) -> Parameter {
        Parameter { kind: "integer", ..Parameter::text(name, about) }
    }

    pub(crate) const fn flag(name: &'static str, about: &'static str) -> Parameter {
        Parameter { kind: "boolean", ..Parameter::text(name, about) }
    }

    pub(crate) const fn required(self) -> Parameter {
        Parameter { is_required: true, ..self }
    }

    pub(crate) const fn many(self) -> Parameter {
        Parameter { is_many: true, ..self }
    }
}

pub(crate) const FROM: Parameter =
    Parameter::text("from", "when it begins; from the first row, if not said");
pub(crate) const TO: Parameter =
    Parameter::text("to", "when it ends; with the last row, if not said");
pub(crate) const SELECTOR: Parameter = Parameter::text(
    "selector",
    "which series, such as latency, latency{host=\"a\"} or and(host:web-*)",
);
pub(crate) const TIMEOUT: Parameter =
    Parameter::text("timeout", "how long the answer may take at the most");
pub(crate) const MAX_SERIES: Parameter =
    Parameter::integer("max_series", "series that a selector may pick; no more than is set");

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
            about,
            parameters,
            body: None,
            answer: (200, JSON, "what was asked for"),
            handler: Some(handler),
        }
    }

    /// The same with the parameters in a form, for what is too long for an address.
    pub(crate) const fn form(
        path: &'static str,
        about: &'static str,
        parameters: &'static [Parameter],
        handler: fn() -> MethodRouter<Context>,
    ) -> Route {
        let body = Some((
            "application/x-www-form-urlencoded",
            "the parameters, if they are not in the address",
        ));
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
            about,
            parameters,
            body: Some(body),
            answer: (200, JSON, "what was taken; it is durable"),
            handler: None,
        }
    }

    /// Whether its request may be a batch with an identity of its sender.
    fn takes_batches(&self) -> bool {
        let is_ingest = self.scope.is_some_and(|scope| scope.name() == Scope::Ingest.name());
        is_ingest && self.handler.is_none() && self.path != net::parcels::PATH
    }

    pub(crate) const fn with_scope(self, scope: Option<Scope>) -> Route {
        Route { scope, ..self }
    }

    pub(crate) const fn answers(
        self,
        status: u16,
        kind: &'static str,
        about: &'static str,
    ) -> Route {
        Route { answer: (status, kind, about), ..self }
    }
}

/// All there is.
pub(crate) fn all() -> impl Iterator<Item = &'static Route> {
    [
        query::ROUTES,
        stream::ROUTES,
        annotations::ROUTES,
        texts::ROUTES,
        processes::ROUTES,
        status::ROUTES,
        audit::ROUTES,
        metrics::ROUTES,
        snapshots::ROUTES,
        boards::ROUTES,
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
    let own = all().filter(|route| route.scope == scope);
    own.filter_map(|route| Some((route.path, route.handler?)))
        .fold(Router::new(), |router, (path, handler)| router.route(path, handler()))
}

/// Written once: whoever asks needs no token, and may ask as often as they like.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| document::text().into());

pub(crate) const ROUTES: &[Route] =
    &[Route::get("/v1/openapi.json", "This document.", &[], || {
        routing::get(async |_: Context| {
            let kind = HeaderValue::from_static("application/json");
            let mut response = ([(header::CONTENT_TYPE, kind)], DOCUMENT.clone()).into_response();
            response.extensions_mut().insert(SharedBody);
            response
        })
    })
    .with_scope(None)];
