//! A route of the HTTP API, and the parameters that several routes have. Handlers describe their
//! routes with it; the table of all routes is in `openapi.rs`.

use axum::routing::MethodRouter;
pub(crate) use role::Parameter;
use role::RouteSpec;

use crate::context::Context;
use crate::token::Scope;

/// A route of the HTTP API.
#[derive(Clone, Copy, Debug)]
pub struct ApiRoute {
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
    /// Whether a request may be a batch with an identity of its sender.
    pub(crate) takes_batches: bool,
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

/// Where snapshots are made and removed. How long that takes is the store's size to say, not a
/// limit of the server.
pub(crate) const SNAPSHOTS_PATH: &str = "/v1/snapshots";

/// The media type of most answers.
pub(crate) const JSON: &str = "application/json";

impl ApiRoute {
    /// Asks for something, in JSON.
    pub(crate) const fn get(
        path: &'static str,
        about: &'static str,
        parameters: &'static [Parameter],
        handler: fn() -> MethodRouter<Context>,
    ) -> ApiRoute {
        ApiRoute {
            method: "get",
            path,
            scope: Some(Scope::Read),
            description: about,
            parameters,
            body: None,
            response: (200, JSON, "the result"),
            handler: Some(handler),
            takes_batches: false,
        }
    }

    /// The same with the parameters in a form, for what is too long for an address.
    pub(crate) const fn post_form(
        path: &'static str,
        about: &'static str,
        parameters: &'static [Parameter],
        handler: fn() -> MethodRouter<Context>,
    ) -> ApiRoute {
        let body = Some(("application/x-www-form-urlencoded", "the parameters, if not in the URL"));
        ApiRoute { method: "post", body, ..ApiRoute::get(path, about, parameters, handler) }
    }

    /// Takes measurements: a path, a sentence, parameters, and the media type of the body with a
    /// sentence. The handler is that of the row of the format.
    pub const fn ingest(
        path: &'static str,
        about: &'static str,
        parameters: &'static [Parameter],
        body: (&'static str, &'static str),
    ) -> ApiRoute {
        ApiRoute {
            method: "post",
            path,
            scope: Some(Scope::Ingest),
            description: about,
            parameters,
            body: Some(body),
            response: (200, JSON, "counts of accepted data; stored durably"),
            handler: None,
            takes_batches: true,
        }
    }

    /// As a role offers it.
    pub(crate) fn of_role(spec: &RouteSpec) -> ApiRoute {
        let RouteSpec { path, about, parameters, .. } = *spec;
        ApiRoute { handler: None, ..ApiRoute::get(path, about, parameters, MethodRouter::new) }
    }

    pub(crate) const fn with_scope(self, scope: Option<Scope>) -> ApiRoute {
        ApiRoute { scope, ..self }
    }

    /// The same with another status of success, media type of the answer and sentence.
    pub const fn with_response(
        self,
        status: u16,
        kind: &'static str,
        about: &'static str,
    ) -> ApiRoute {
        ApiRoute { response: (status, kind, about), ..self }
    }
}
