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

/// How long an answer may take: a snapshot of a large store takes a while.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes of an answer at the most.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// Which one, and who asks.
#[derive(clap::Args)]
pub(crate) struct ServerClient {
    /// Where it is
    #[arg(long, value_name = "URL", default_value_t = format!("http://127.0.0.1:{}", api::PORT))]
    server: String,

    /// A file with the token, where one is asked for
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Who signed its certificate, PEM, if not one that the system trusts
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl ServerClient {
    /// Asks, and reads the answer, which is JSON.
    pub(crate) fn request(&self, method: Method, path: &str) -> Result<Value> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
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
                format!("the token in {} has characters that no header can have", file.display())
            })?;
            request = request.header(header::AUTHORIZATION, shown);
        }
        let request = request.body(Bytes::new())?;
        let (mut connection, _) = dialer
            .dial(&target)
            .await
            .context("is topdeck running there? `topdeck serve` starts it")?;
        let allowed = ResponseLimits { timeout: RESPONSE_TIMEOUT, max_bytes: RESPONSE_BYTES_MAX };
        let answer = connection.send(request, allowed).await?.response;
        let json: Option<Value> = serde_json::from_slice(answer.body()).ok();
        let status = answer.status();
        if !status.is_success() {
            let why =
                json.as_ref().and_then(|json| json["error"].as_str()).unwrap_or("no reason given");
            bail!("{}: {status}: {why}", self.server);
        }
        json.with_context(|| format!("{}: the answer is no JSON: is that topdeck?", self.server))
    }
}
