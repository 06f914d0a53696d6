//! A route of the HTTP API, and parameters shared by routes. Handlers describe their routes with
//! it; the table of all routes is in `openapi.rs`.

use axum::routing::MethodRouter;
pub(crate) use role::Parameter;
use role::{RouteFormat, RouteSpec, WriteRouteSpec, WriteScope};

use crate::context::Context;
use crate::token::Scope;

/// A route of the HTTP API.
#[derive(Clone, Copy, Debug)]
pub struct ApiRoute {
    pub(crate) method: &'static str,
    /// Path, with parameters in braces.
    pub(crate) path: &'static str,
    /// Required scope of the token; `None` if no token is required.
    pub(crate) scope: Option<Scope>,
    /// Description, one sentence.
    pub(crate) description: &'static str,
    pub(crate) parameters: &'static [Parameter],
    /// Media type and description of the request body.
    pub(crate) body: Option<(&'static str, &'static str)>,
    /// Success status, media type and description of the response.
    pub(crate) response: (u16, &'static str, &'static str),
    /// Handler; `None` if the route is registered elsewhere, as those of roles are.
    pub(crate) handler: Option<fn() -> MethodRouter<Context>>,
    /// Whether a request may carry the sender's batch identity.
    pub(crate) takes_batches: bool,
}

pub(crate) const FROM: Parameter =
    Parameter::text("from", "start of the range; default: the first point");
pub(crate) const TO: Parameter = Parameter::text("to", "end of the range; default: the last point");
pub(crate) const SELECTOR: Parameter = Parameter::text(
    "selector",
    "series selector, such as latency, latency{host=\"a\"} or and(host:web-*)",
);
pub(crate) const TIMEOUT: Parameter = Parameter::text("timeout", "evaluation timeout");
pub(crate) const MAX_SERIES: Parameter = Parameter::integer(
    "max_series",
    "limit of series per selector; cannot exceed the server's limit",
);

/// Path of snapshots. The time to create or delete one depends on the store's size, so the server's
/// timeout does not apply.
pub(crate) const SNAPSHOTS_PATH: &str = "/v1/snapshots";

/// Start of the paths that change stored series. A change takes as long as they have rows, too.
pub(crate) const SERIES_CHANGES_PATH: &str = "/v1/series/";

/// Path of replays of rules, which have their own timeout.
pub(crate) const RULE_REPLAY_PATH: &str = "/v1/rules/replay";

/// Media type of most responses.
pub(crate) const JSON: &str = "application/json";

impl ApiRoute {
    /// A GET route with a JSON response.
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

    /// The same by POST with form parameters, for queries that are too long for a URL.
    pub(crate) const fn post_form(
        path: &'static str,
        about: &'static str,
        parameters: &'static [Parameter],
        handler: fn() -> MethodRouter<Context>,
    ) -> ApiRoute {
        let body = Some(("application/x-www-form-urlencoded", "the parameters, if not in the URL"));
        ApiRoute { method: "post", body, ..ApiRoute::get(path, about, parameters, handler) }
    }

    /// An ingest route: path, description, parameters, and media type and description of the body.
    /// The handler is that of the format's row.
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

    /// A route of a role.
    pub(crate) fn of_role(spec: &RouteSpec) -> ApiRoute {
        let RouteSpec { path, about, parameters, format, .. } = *spec;
        let route = ApiRoute::get(path, about, parameters, MethodRouter::new);
        let route = ApiRoute { handler: None, ..route };
        match format {
            RouteFormat::Json => route,
            RouteFormat::Text => route.with_response(200, "text/plain", "a line"),
            RouteFormat::SignedPicture => {
                route.with_scope(None).with_response(200, "image/png", "the picture")
            }
        }
    }

    /// A route of a role that changes something.
    pub(crate) fn of_role_write(spec: &WriteRouteSpec) -> ApiRoute {
        let route = ApiRoute::get(spec.path, spec.about, spec.parameters, MethodRouter::new);
        let (scope, body_type) = match spec.scope {
            WriteScope::Alerts => (Scope::Alerts, JSON),
            WriteScope::Ingest => (Scope::Ingest, "application/octet-stream"),
        };
        let route = ApiRoute {
            method: spec.method.name(),
            body: spec.body.map(|about| (body_type, about)),
            handler: None,
            ..route
        };
        route.with_scope(Some(scope)).with_response(200, JSON, spec.response)
    }

    pub(crate) const fn with_scope(self, scope: Option<Scope>) -> ApiRoute {
        ApiRoute { scope, ..self }
    }

    /// Replaces success status, media type and description of the response.
    pub const fn with_response(
        self,
        status: u16,
        kind: &'static str,
        about: &'static str,
    ) -> ApiRoute {
        ApiRoute { response: (status, kind, about), ..self }
    }
}
