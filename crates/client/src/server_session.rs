//! Connection to a server that is kept open for many requests.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use net::Endpoint;
use net::dial::{Dialer, HttpConnection, ResponseLimits};
use net::forward_protocol::AGENT_HEADER;
use tokio::runtime::Runtime;

use crate::server_client::ServerClient;

/// Response timeout. A server that needs longer is asked again.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a response in bytes: these are acknowledgements and errors.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Requests of one kind to one server.
pub struct ServerSession {
    url: String,
    target: Endpoint,
    dialer: Dialer,
    content_type: &'static str,
    token: Option<HeaderValue>,
    sender: Option<HeaderValue>,
    runtime: Runtime,
    connection: Option<HttpConnection>,
}

impl ServerSession {
    /// Reads token and certificates; the first request connects.
    pub fn new(
        server: &ServerClient,
        path: &str,
        content_type: &'static str,
    ) -> Result<ServerSession> {
        let url = server.url();
        let target = Endpoint::parse(&url)?.join(path);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let (dialer, token) = (server.dialer(&target)?, server.read_token()?);
        let (sender, connection) = (server.sender(), None);
        Ok(ServerSession { url, target, dialer, content_type, token, sender, runtime, connection })
    }

    /// URL of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Posts a body and returns the response, whatever its status. An error means that there was no
    /// response; the request may have been handled.
    pub fn post(&mut self, body: &Bytes) -> net::dial::Result<Response<Bytes>> {
        let mut request = Request::builder()
            .method(http::Method::POST)
            .uri(&self.target.path)
            .header(header::CONTENT_TYPE, self.content_type);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        if let Some(sender) = &self.sender {
            request = request.header(AGENT_HEADER, sender);
        }
        let request = request.body(body.clone()).expect("BUG: the endpoint was parsed");
        let allowed = ResponseLimits { timeout: RESPONSE_TIMEOUT, max_bytes: RESPONSE_BYTES_MAX };
        let (target, dialer) = (&self.target, &self.dialer);
        let open = self.connection.take().filter(HttpConnection::is_open);
        let (connection, response) = self.runtime.block_on(async {
            let mut connection = match open {
                Some(connection) => connection,
                None => dialer.dial(target).await?.0,
            };
            let response = connection.send(request, allowed).await?;
            Ok((connection, response.response))
        })?;
        self.connection = Some(connection);
        Ok(response)
    }
}
