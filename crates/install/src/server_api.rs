//! Requests to the server: enrollment, and whether batches of this host have arrived.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use net::dial::{DialTimeouts, Dialer, ResponseLimits};
use net::tls::ClientTls;
use net::{Endpoint, PublicKeyPin};
use serde_json::{Value, json};

const ENROLL_PATH: &str = "/v1/enroll";
const LIMITS: ResponseLimits =
    ResponseLimits { timeout: Duration::from_secs(30), max_bytes: 64 << 10 };

/// Server of an installation.
#[derive(Clone, Debug)]
pub(crate) struct ServerApi {
    url: String,
    pins: Vec<PublicKeyPin>,
}

/// Token of this host.
#[derive(Clone, Debug)]
pub(crate) struct HostToken {
    pub(crate) name: String,
    pub(crate) secret: String,
}

impl ServerApi {
    /// A server by its URL. Pins replace the CAs.
    pub(crate) fn new(url: &str, pins: &[String]) -> Result<ServerApi> {
        let endpoint = Endpoint::parse(url)?;
        if !pins.is_empty() && !endpoint.secure {
            bail!(
                "cannot verify the pin of {url}: found a server without TLS; give its https \
                 address, or leave out --pin"
            );
        }
        let pins = pins.iter().map(|pin| pin.parse::<PublicKeyPin>().map_err(anyhow::Error::new));
        let pins = pins.collect::<Result<_>>()?;
        Ok(ServerApi { url: url.trim_end_matches('/').to_owned(), pins })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn pins(&self) -> Vec<String> {
        self.pins.iter().map(ToString::to_string).collect()
    }

    /// Exchanges an enrollment token for a token of this host.
    pub(crate) fn enroll(&self, enrollment_token: &str, name: &str) -> Result<HostToken> {
        let body = json!({ "name": name }).to_string();
        let (status, answer) =
            self.exchange(Method::POST, ENROLL_PATH, Some(enrollment_token), &body)?;
        if status != StatusCode::CREATED {
            return Err(self.refusal("cannot enroll", status, &answer));
        }
        let text = |key: &str| answer[key].as_str().map(str::to_owned);
        let token = text("name").zip(text("token"));
        let (name, secret) = token.with_context(|| {
            format!("cannot enroll: {} is no topdeck server, or a newer one", self.url)
        })?;
        Ok(HostToken { name, secret })
    }

    /// Name of a host's token, and the time of the last batch forwarded with it.
    pub(crate) fn enrollment(&self, secret: &str) -> Result<(String, Option<i64>)> {
        let (status, answer) = self.exchange(Method::GET, ENROLL_PATH, Some(secret), "")?;
        match (status, answer["name"].as_str()) {
            (StatusCode::OK, Some(name)) => Ok((name.to_owned(), answer["received_ns"].as_i64())),
            _ => Err(self.refusal("cannot use the token of this host", status, &answer)),
        }
    }

    /// Removes the token of this host from the server.
    pub(crate) fn unenroll(&self, secret: &str) -> Result<()> {
        let (status, answer) = self.exchange(Method::DELETE, ENROLL_PATH, Some(secret), "")?;
        match status {
            // 401: it was removed on the server.
            StatusCode::OK | StatusCode::UNAUTHORIZED => Ok(()),
            _ => Err(self.refusal("cannot remove the token of this host", status, &answer)),
        }
    }

    fn refusal(&self, what: &str, status: StatusCode, answer: &Value) -> anyhow::Error {
        let reason = answer["error"].as_str().unwrap_or("no reason given");
        anyhow!("{what}: {} says {status}: {reason}", self.url)
    }

    fn exchange(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> Result<(StatusCode, Value)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let target = Endpoint::parse(&self.url)?.join(path);
        let tls = ClientTls { pins: self.pins.clone(), ..ClientTls::default() };
        let dialer = Dialer::for_target(&target, &tls, &[], DialTimeouts::default())?;
        let mut request = Request::builder().method(method).uri(&target.path);
        if let Some(token) = token {
            let value = net::bearer(token);
            let value = value.map_err(|_| anyhow!("the token has characters of no token"))?;
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Bytes::copy_from_slice(body.as_bytes()))?;
        let response = runtime.block_on(async {
            let (mut connection, _) = dialer.dial(&target).await?;
            connection.send(request, LIMITS).await
        });
        let response = match response {
            Ok(response) => response.response,
            Err(error) => bail!(
                "cannot reach the server at {}: {error}; check its address, that it runs, and \
                 firewalls between this host and it",
                self.url
            ),
        };
        let json = serde_json::from_slice(response.body()).unwrap_or(Value::Null);
        Ok((response.status(), json))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIN: &str = "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    #[test]
    fn given_pin_is_kept_or_refused() {
        let pins = [PIN.to_owned()];
        assert_eq!(ServerApi::new("https://north:7717/", &pins).unwrap().pins(), pins);
        let error = ServerApi::new("http://north:7717", &pins).unwrap_err().to_string();
        assert!(error.ends_with("give its https address, or leave out --pin"), "{error}");
        assert_eq!(ServerApi::new("http://north:7717", &[]).unwrap().pins(), [""; 0]);
        ServerApi::new("https://north:7717", &["sha256//AA=".to_owned()]).unwrap_err();
    }
}
