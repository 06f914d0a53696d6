//! HTTP API routes of roles that change something: `POST` and `DELETE`.

use std::fmt;
use std::sync::Arc;

use crate::json::Json;
use crate::route::{Parameter, RouteError, RouteQuery};

/// Method of a route that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMethod {
    /// `POST` with a body.
    Post,
    /// `DELETE` without a body.
    Delete,
}

impl WriteMethod {
    /// Name in lower case, as in OpenAPI documents.
    pub fn name(self) -> &'static str {
        match self {
            WriteMethod::Post => "post",
            WriteMethod::Delete => "delete",
        }
    }
}

/// Scope that a token needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteScope {
    /// `alerts`; bodies are JSON.
    Alerts,
    /// `ingest`; bodies are bytes of a format of topdeck.
    Ingest,
}

/// OpenAPI description of a route that changes something.
#[derive(Debug)]
pub struct WriteRouteSpec {
    /// Method.
    pub method: WriteMethod,
    /// The path, with variable parts in braces, which are parameters.
    pub path: &'static str,
    /// Scope of the tokens.
    pub scope: WriteScope,
    /// Description, one sentence.
    pub about: &'static str,
    /// All parameters; other parameters are rejected.
    pub parameters: &'static [Parameter],
    /// Description of the body; `None` if there is none.
    pub body: Option<&'static str>,
    /// Description of the response.
    pub response: &'static str,
}

/// A request to such a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteRequest {
    /// Parameters, those of the path included.
    pub query: RouteQuery,
    /// Body; its size is limited by the server.
    pub body: Vec<u8>,
    /// Name of the client's token; `None` on loopback without a token.
    pub token_name: Option<String>,
}

/// Handles a request, on a thread that may block. The change is durable when it returns. A `null`
/// is an empty response.
pub type WriteHandler = Arc<dyn Fn(&WriteRequest) -> Result<Json, RouteError> + Send + Sync>;

/// A route that changes something, and its handler.
#[derive(Clone)]
pub struct WriteRoute {
    /// Its description.
    pub spec: &'static WriteRouteSpec,
    /// Its handler.
    pub handler: WriteHandler,
}

impl WriteRoute {
    /// A route with its handler.
    pub fn new(
        spec: &'static WriteRouteSpec,
        handler: impl Fn(&WriteRequest) -> Result<Json, RouteError> + Send + Sync + 'static,
    ) -> WriteRoute {
        WriteRoute { spec, handler: Arc::new(handler) }
    }
}

impl fmt::Debug for WriteRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteRoute").field("spec", self.spec).finish_non_exhaustive()
    }
}
