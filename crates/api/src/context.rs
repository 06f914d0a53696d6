//! Handler context.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;
use intake::Intake;
use store::ReadView;

use crate::access::{Peer, Principal};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::ingest::ingest_format::IngestFormatRow;
use crate::offered_routes::OfferedRoutes;
use crate::query_admission::{ClientId, QueryClass};
use crate::query_service::{QueryService, QueryServiceSettings};

/// Handler context; cheap to clone; includes the client's identity.
#[derive(Clone, Debug)]
pub struct Context {
    /// The intake, and the store behind it.
    pub intake: Arc<Intake>,
    /// The query service.
    pub queries: Arc<QueryService>,
    pub(crate) offered: Arc<OfferedRoutes>,
    client: ClientId,
}

impl Context {
    /// A context with an intake and query settings.
    pub fn new(intake: Arc<Intake>, settings: QueryServiceSettings) -> Context {
        let queries = Arc::new(QueryService::new(settings, Arc::clone(&intake)));
        Context { intake, queries, offered: Arc::default(), client: ClientId::default() }
    }

    /// Adds the routes of roles.
    pub fn with_routes(self, routes: Vec<role::Route>) -> Context {
        let OfferedRoutes { write_routes, formats, .. } = &*self.offered;
        let offered = OfferedRoutes::new(routes, write_routes.clone(), formats.clone());
        Context { offered: Arc::new(offered), ..self }
    }

    /// Adds the routes of roles that change something.
    pub fn with_write_routes(self, write_routes: Vec<role::WriteRoute>) -> Context {
        let OfferedRoutes { routes, formats, .. } = &*self.offered;
        let offered = OfferedRoutes::new(routes.clone(), write_routes, formats.clone());
        Context { offered: Arc::new(offered), ..self }
    }

    /// Adds ingest formats to those of the table.
    pub fn with_formats(self, formats: &[IngestFormatRow]) -> Context {
        let OfferedRoutes { routes, write_routes, .. } = &*self.offered;
        let offered = OfferedRoutes::new(routes.clone(), write_routes.clone(), formats.to_vec());
        Context { offered: Arc::new(offered), ..self }
    }

    /// The context of another client.
    pub(crate) fn for_client(&self, client: ClientId) -> Context {
        Context { client, ..self.clone() }
    }

    /// Runs work that reads little: [`QueryService::run`].
    pub(crate) async fn run_light<T: Send + 'static>(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&ActiveQuery) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.queries.run(QueryClass::Light, &self.client, what, timeout, work).await
    }

    /// Runs work that takes long.
    pub(crate) async fn run_heavy<T: Send + 'static>(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&ActiveQuery) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.queries.run(QueryClass::Heavy, &self.client, what, timeout, work).await
    }

    /// Runs work that reads little of the store: [`QueryService::run_light_with_view`].
    pub(crate) async fn run_light_with_view<T: Send + 'static>(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&ReadView, &ActiveQuery) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.queries.run_light_with_view(&self.client, what, timeout, work).await
    }

    /// Runs a replay of rules: [`QueryService::run_replay`].
    pub(crate) async fn run_replay<T: Send + 'static>(
        &self,
        timeout: Duration,
        work: impl FnOnce(&ReadView, &ActiveQuery) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.queries.run_replay(&self.client, timeout, work).await
    }

    /// Runs a query: [`QueryService::run_query`].
    pub(crate) async fn run_query<T: Send + 'static>(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        estimate: impl FnOnce(&ReadView, &ActiveQuery) -> u64 + Send + 'static,
        work: impl FnOnce(&ReadView, &ActiveQuery) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.queries.run_query(&self.client, what, timeout, estimate, work).await
    }
}

impl FromRequestParts<Context> for Context {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Context,
    ) -> Result<Context, Infallible> {
        let token = parts.extensions.get::<Principal>().and_then(|client| client.name.clone());
        let peer = parts.extensions.get::<Peer>().map(|peer| peer.remote);
        let client = token.map(ClientId::Token).or(peer.map(ClientId::Peer));
        Ok(shared.for_client(client.unwrap_or_default()))
    }
}
