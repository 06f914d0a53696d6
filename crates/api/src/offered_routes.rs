//! Routes that roles offer to the server, and the document of all routes.

use std::sync::OnceLock;

use bytes::Bytes;
use role::RouteSpec;

/// Routes that roles offer, and the document of all routes.
#[derive(Debug, Default)]
pub(crate) struct OfferedRoutes {
    pub(crate) routes: Vec<role::Route>,
    /// Written once: clients need no token, and may ask as often as they like.
    document: OnceLock<Bytes>,
}

impl OfferedRoutes {
    pub(crate) fn new(routes: Vec<role::Route>) -> OfferedRoutes {
        OfferedRoutes { routes, document: OnceLock::new() }
    }

    /// The document of all routes, as `write` writes it.
    pub(crate) fn document(&self, write: impl FnOnce(&[&'static RouteSpec]) -> String) -> Bytes {
        let specs = || self.routes.iter().map(|route| route.spec).collect::<Vec<_>>();
        self.document.get_or_init(|| write(&specs()).into()).clone()
    }
}
