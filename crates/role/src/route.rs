//! HTTP API routes of roles: `GET`, for tokens with read permission, or pictures by signed links.
//!
//! A role does not depend on the server. The description ([`RouteSpec`]) is a constant, so that the
//! OpenAPI document can be generated without starting a node.

use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use query::QueryContext;

use crate::json::Json;
use crate::route_events::RouteEvents;

/// OpenAPI description of a route.
#[derive(Debug)]
pub struct RouteSpec {
    /// Value of the label `kind` of the metric `topdeck_query_duration`.
    pub name: &'static str,
    /// The path, with variable parts in braces, which are parameters.
    pub path: &'static str,
    /// Description, one sentence.
    pub about: &'static str,
    /// All parameters; other parameters are rejected.
    pub parameters: &'static [Parameter],
    /// Format of the response.
    pub format: RouteFormat,
}

/// Format of a route's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteFormat {
    /// JSON.
    Json,
    /// A line of plain text: the handler returns a text.
    Text,
    /// A PNG picture, without a token: its handler verifies the signature of the link.
    SignedPicture,
}

/// A parameter of a route.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// Its OpenAPI type.
    pub kind: &'static str,
    /// Whether it is required.
    pub is_required: bool,
    /// Whether it may be repeated.
    pub is_many: bool,
}

impl Parameter {
    /// A string.
    pub const fn text(name: &'static str, about: &'static str) -> Parameter {
        Parameter { name, about, kind: "string", is_required: false, is_many: false }
    }

    /// An integer.
    pub const fn integer(name: &'static str, about: &'static str) -> Parameter {
        Parameter { kind: "integer", ..Parameter::text(name, about) }
    }

    /// A boolean.
    pub const fn flag(name: &'static str, about: &'static str) -> Parameter {
        Parameter { kind: "boolean", ..Parameter::text(name, about) }
    }

    /// Marks the parameter as required.
    pub const fn required(self) -> Parameter {
        Parameter { is_required: true, ..self }
    }

    /// Marks the parameter as repeatable.
    pub const fn many(self) -> Parameter {
        Parameter { is_many: true, ..self }
    }
}

/// Handles a request, on a thread that may block. The context tells when the client has gone, and
/// accounts memory.
pub type RouteHandler =
    Arc<dyn Fn(&RouteQuery, &dyn QueryContext) -> Result<Json, RouteError> + Send + Sync>;

/// Waits for a change before the handler runs, without occupying a thread.
pub type RouteWait =
    Arc<dyn Fn(&RouteQuery) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Returns the PNG file of a link, after it has verified its signature.
pub type PictureHandler = Arc<dyn Fn(&RouteQuery) -> Result<Vec<u8>, RouteError> + Send + Sync>;

/// A route and its handler.
#[derive(Clone)]
pub struct Route {
    /// Its description.
    pub spec: &'static RouteSpec,
    /// Its handler.
    pub handler: RouteHandler,
    /// What a request waits for, if it does.
    pub wait: Option<RouteWait>,
    /// Events, for clients that accept them.
    pub events: Option<RouteEvents>,
    /// Handler of a route of signed pictures.
    pub picture: Option<PictureHandler>,
}

impl Route {
    /// A route with its handler.
    pub fn new(
        spec: &'static RouteSpec,
        handler: impl Fn(&RouteQuery) -> Result<Json, RouteError> + Send + Sync + 'static,
    ) -> Route {
        Route::with_context(spec, move |query, _| handler(query))
    }

    /// A route whose handler reads much.
    pub fn with_context(
        spec: &'static RouteSpec,
        handler: impl Fn(&RouteQuery, &dyn QueryContext) -> Result<Json, RouteError>
        + Send
        + Sync
        + 'static,
    ) -> Route {
        Route { spec, handler: Arc::new(handler), wait: None, events: None, picture: None }
    }

    /// A route of signed pictures.
    pub fn of_pictures(
        spec: &'static RouteSpec,
        handler: impl Fn(&RouteQuery) -> Result<Vec<u8>, RouteError> + Send + Sync + 'static,
    ) -> Route {
        let picture: Option<PictureHandler> = Some(Arc::new(handler));
        Route { picture, ..Route::new(spec, |_| Ok(Json::Null)) }
    }

    /// Adds a wait before the handler (long poll). It ends early when the server stops. Invalid
    /// parameters end it at once: the handler reports them.
    pub fn with_wait<F: Future<Output = ()> + Send + 'static>(
        self,
        wait: impl Fn(&RouteQuery) -> F + Send + Sync + 'static,
    ) -> Route {
        Route { wait: Some(Arc::new(move |query| Box::pin(wait(query)))), ..self }
    }

    /// Adds server-sent events, for clients that accept `text/event-stream`.
    pub fn with_events(self, events: RouteEvents) -> Route {
        Route { events: Some(events), ..self }
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("spec", self.spec).finish_non_exhaustive()
    }
}

/// Reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// A parameter has an invalid value: 400.
    Parameter {
        /// Its name.
        name: String,
        /// Its value.
        found: String,
        /// Description of valid values.
        expected: String,
    },
    /// The body is invalid: 400.
    BadRequest(String),
    /// What the request names does not exist: 404.
    NotFound(String),
    /// A limit is reached: 429.
    Limit(String),
    /// The change could not be made; a repetition may succeed: 503.
    Unavailable(String),
}

/// Parameters of a request, in request order. All names are in the route's description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteQuery(Vec<(String, String)>);

impl RouteQuery {
    /// The parameters with these names and values.
    pub fn new(parameters: Vec<(String, String)>) -> RouteQuery {
        RouteQuery(parameters)
    }

    /// All values of a parameter.
    pub fn all<'a, 'b>(&'a self, name: &'b str) -> impl Iterator<Item = &'a str> + use<'a, 'b> {
        let values = self.0.iter().filter(move |(found, _)| found == name);
        values.map(|(_, value)| value.as_str())
    }

    /// The first value of a parameter that is not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).find(|value| !value.is_empty())
    }

    /// A number of at most `max`; default: `default`.
    pub fn integer<T: FromStr + PartialOrd + fmt::Display + Copy>(
        &self,
        name: &str,
        default: T,
        max: T,
    ) -> Result<T, RouteError> {
        let Some(text) = self.get(name) else { return Ok(default) };
        text.parse().ok().filter(|n| *n <= max).ok_or_else(|| RouteError::Parameter {
            name: name.to_owned(),
            found: text.to_owned(),
            expected: format!("a whole number up to {max}"),
        })
    }
}
