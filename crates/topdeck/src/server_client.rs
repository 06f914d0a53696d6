//! HTTP client of a running topdeck.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::{Method, Request, header};
use net::Endpoint;
use net::dial::{DialTimeouts, Dialer, ResponseLimits};
use net::tls::ClientTls;
use serde_json::Value;

/// Response timeout: a snapshot of a large store takes a while.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum size of a response in bytes.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// Server and credentials.
#[derive(clap::Args)]
pub(crate) struct ServerClient {
    /// URL of the server
    #[arg(long, value_name = "URL", default_value_t = local_url())]
    server: String,

    /// File with the bearer token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// CA certificate (PEM) [default: system trust store]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

fn local_url() -> String {
    format!("http://127.0.0.1:{}", api::PORT)
}

/// Escapes a value for the query of a URL.
pub(crate) fn encode_parameter(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    value.bytes().map(encode).collect()
}

impl ServerClient {
    /// Client of a server, by default the local one.
    pub(crate) fn new(
        server: Option<String>,
        token_file: Option<PathBuf>,
        ca: Option<PathBuf>,
    ) -> ServerClient {
        ServerClient { server: server.unwrap_or_else(local_url), token_file, ca }
    }

    /// Sends a request and returns the JSON response.
    pub(crate) fn request(&self, method: Method, path: &str) -> Result<Value> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(self.exchange(method, path))
    }

    async fn exchange(&self, method: Method, path: &str) -> Result<Value> {
        let target = Endpoint::parse(&self.server)?.join(path);
        let tls = ClientTls { ca: self.ca.clone(), ..ClientTls::default() };
        let dialer = Dialer::for_target(&target, &tls, &[], DialTimeouts::default())?;
        let mut request = Request::builder().method(method).uri(&target.path);
        if let Some(file) = &self.token_file {
            let token = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the token in {}", file.display()))?;
            let shown = net::bearer(token.trim()).with_context(|| {
                format!(
                    "the token in {} has characters that a header cannot contain",
                    file.display()
                )
            })?;
            request = request.header(header::AUTHORIZATION, shown);
        }
        let request = request.body(Bytes::new())?;
        let (mut connection, _) = dialer
            .dial(&target)
            .await
            .context("is topdeck running? start it with `topdeck serve`")?;
        let allowed = ResponseLimits { timeout: RESPONSE_TIMEOUT, max_bytes: RESPONSE_BYTES_MAX };
        let answer = connection.send(request, allowed).await?.response;
        let json: Option<Value> = serde_json::from_slice(answer.body()).ok();
        let status = answer.status();
        if !status.is_success() {
            let reason =
                json.as_ref().and_then(|json| json["error"].as_str()).unwrap_or("no reason given");
            bail!("{}: {status}: {reason}", self.server);
        }
        json.with_context(|| {
            format!("{}: the response is not JSON; is this a topdeck server?", self.server)
        })
    }
}
