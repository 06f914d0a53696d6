//! Routes that roles and added ingest formats offer to the server, and the document of all routes.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::ingest::ingest_format::IngestFormatRow;
use crate::route::ApiRoute;

/// Routes that roles and added ingest formats offer, and the document of all routes.
#[derive(Debug, Default)]
pub(crate) struct OfferedRoutes {
    pub(crate) routes: Vec<role::Route>,
    pub(crate) write_routes: Vec<role::WriteRoute>,
    pub(crate) formats: Vec<IngestFormatRow>,
    /// Generated once: clients need no token, and may request it at any rate.
    document: OnceLock<Bytes>,
}

impl OfferedRoutes {
    pub(crate) fn new(
        routes: Vec<role::Route>,
        write_routes: Vec<role::WriteRoute>,
        formats: Vec<IngestFormatRow>,
    ) -> OfferedRoutes {
        OfferedRoutes { routes, write_routes, formats, document: OnceLock::new() }
    }

    /// The document of all routes; `write` generates it from the added ones.
    pub(crate) fn document(&self, write: impl FnOnce(Vec<ApiRoute>) -> String) -> Bytes {
        let of_roles = || self.routes.iter().map(|route| ApiRoute::of_role(route.spec));
        let of_writes =
            || self.write_routes.iter().map(|route| ApiRoute::of_role_write(route.spec));
        let of_formats = || self.formats.iter().flat_map(|row| row.routes).copied();
        let added = || of_roles().chain(of_writes()).chain(of_formats()).collect();
        self.document.get_or_init(|| write(added()).into()).clone()
    }
}
