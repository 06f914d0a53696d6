//! Routes of the HTTP API that roles offer: `GET`, for tokens that may read, answered in JSON.
//!
//! A role knows nothing of the server. The description ([`RouteSpec`]) is a constant, so that the
//! OpenAPI document can be written without starting anything.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::json::Json;

/// A route as the OpenAPI document describes it.
#[derive(Debug)]
pub struct RouteSpec {
    /// The label `kind` of the server's metric `topdeck_query_duration`.
    pub name: &'static str,
    /// The path, without variable parts.
    pub path: &'static str,
    /// A sentence.
    pub about: &'static str,
    /// All parameters; others are refused.
    pub parameters: &'static [Parameter],
}

/// A parameter of a route.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Its type, as OpenAPI names types.
    pub kind: &'static str,
    /// Whether it has to be given.
    pub is_required: bool,
    /// Whether it may be given several times.
    pub is_many: bool,
}

impl Parameter {
    /// Any text.
    pub const fn text(name: &'static str, about: &'static str) -> Parameter {
        Parameter { name, about, kind: "string", is_required: false, is_many: false }
    }

    /// A whole number.
    pub const fn integer(name: &'static str, about: &'static str) -> Parameter {
        Parameter { kind: "integer", ..Parameter::text(name, about) }
    }

    /// True or false.
    pub const fn flag(name: &'static str, about: &'static str) -> Parameter {
        Parameter { kind: "boolean", ..Parameter::text(name, about) }
    }

    /// The same, and it has to be given.
    pub const fn required(self) -> Parameter {
        Parameter { is_required: true, ..self }
    }

    /// The same, and it may be given several times.
    pub const fn many(self) -> Parameter {
        Parameter { is_many: true, ..self }
    }
}

/// Answers a request, on a thread that may block.
pub type RouteHandler = Arc<dyn Fn(&RouteQuery) -> Result<Json, RouteError> + Send + Sync>;

/// A route and its handler.
#[derive(Clone)]
pub struct Route {
    /// Its description.
    pub spec: &'static RouteSpec,
    /// Its handler.
    pub handler: RouteHandler,
}

impl Route {
    /// A route that is answered by `handler`.
    pub fn new(
        spec: &'static RouteSpec,
        handler: impl Fn(&RouteQuery) -> Result<Json, RouteError> + Send + Sync + 'static,
    ) -> Route {
        Route { spec, handler: Arc::new(handler) }
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("spec", self.spec).finish_non_exhaustive()
    }
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// A parameter has a value that makes no sense: 400.
    Parameter {
        /// Its name.
        name: String,
        /// Its value.
        found: String,
        /// What it may be.
        expected: String,
    },
}

/// The parameters of a request, in their order. Names are those of the route's description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteQuery(Vec<(String, String)>);

impl RouteQuery {
    /// The parameters with these names and values.
    pub fn new(parameters: Vec<(String, String)>) -> RouteQuery {
        RouteQuery(parameters)
    }

    /// All values of a parameter.
    pub fn all<'a, 'b>(&'a self, name: &'b str) -> impl Iterator<Item = &'a str> + use<'a, 'b> {
        let own = self.0.iter().filter(move |(found, _)| found == name);
        own.map(|(_, value)| value.as_str())
    }

    /// The first value of a parameter that is not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).find(|value| !value.is_empty())
    }

    /// A number of at most `max`; `default` if it is not given.
    pub fn count<T: FromStr + PartialOrd + fmt::Display + Copy>(
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
