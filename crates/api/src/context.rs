//! What all handlers share.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;
use intake::Intake;
use store::View;

use crate::access::{Client, Peer};
use crate::admission::{ClientId, Lane};
use crate::desk::{Asking, Desk, DeskSettings};
use crate::openapi::Offered;
use crate::refusal::Refusal;

/// What all handlers share; cheap to clone. As handlers take it, it knows who asks.
#[derive(Clone, Debug)]
pub struct Context {
    /// The way in, and the store behind it.
    pub intake: Arc<Intake>,
    /// Where questions are taken.
    pub desk: Arc<Desk>,
    pub(crate) offered: Arc<Offered>,
    client: ClientId,
}

impl Context {
    /// Of a way in.
    pub fn new(intake: Arc<Intake>, desk: DeskSettings) -> Context {
        let desk = Arc::new(Desk::new(desk, Arc::clone(&intake)));
        Context { intake, desk, offered: Arc::default(), client: ClientId::default() }
    }

    /// The same with routes that roles offer.
    pub fn with_routes(self, routes: Vec<role::Route>) -> Context {
        Context { offered: Arc::new(Offered::new(routes)), ..self }
    }

    /// The same for another client.
    pub(crate) fn of(&self, client: ClientId) -> Context {
        Context { client, ..self.clone() }
    }

    /// Works on something that reads little: [`Desk::run`].
    pub(crate) async fn light<T: Send + 'static>(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&Asking) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.desk.run(Lane::Light, &self.client, what, timeout, work).await
    }

    /// Works on something that takes long.
    pub(crate) async fn heavy<T: Send + 'static>(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&Asking) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.desk.run(Lane::Heavy, &self.client, what, timeout, work).await
    }

    /// Works on something that reads little of the store: [`Desk::light_view`].
    pub(crate) async fn light_view<T: Send + 'static>(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&View, &Asking) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.desk.light_view(&self.client, what, timeout, work).await
    }

    /// Works on a query: [`Desk::query`].
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        estimate: impl FnOnce(&View, &Asking) -> u64 + Send + 'static,
        work: impl FnOnce(&View, &Asking) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.desk.query(&self.client, what, timeout, estimate, work).await
    }
}

impl FromRequestParts<Context> for Context {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Context,
    ) -> Result<Context, Infallible> {
        let token = parts.extensions.get::<Client>().and_then(|client| client.name.clone());
        let peer = parts.extensions.get::<Peer>().map(|peer| peer.remote);
        let client = token.map(ClientId::Token).or(peer.map(ClientId::Peer));
        Ok(shared.of(client.unwrap_or_default()))
    }
}
