//! HTTP client of a running topdeck.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use net::Endpoint;
use net::dial::{DialTimeouts, Dialer, HttpConnection, ResponseLimits};
use net::tls::ClientTls;
use render::time::format_age;
use serde_json::Value;

use crate::local_server::{STORE_DIR, default_data_dir, server_of};
use crate::progress_line::ProgressLine;

/// Response timeout: a snapshot of a large store takes a while.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum size of a response in bytes.
const RESPONSE_BYTES_MAX: usize = 256 << 20;
/// Time after which a request that is waiting is shown.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);
/// Environment variable with the URL of the server.
const SERVER_VARIABLE: &str = "TOPDECK_SERVER";
/// Maximum size of an error response of a stream, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Server and credentials.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ServerClient {
    /// URL of the server, http:// if it has no scheme [default: that of the environment variable
    /// TOPDECK_SERVER, else the local server]
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// File with the bearer token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// CA certificate (PEM) [default: system trust store]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Name of the sender of batches, for the server's list of sources.
    #[arg(skip)]
    sender: Option<HeaderValue>,
}

/// Parameters of a request, in order.
#[derive(Clone, Debug, Default)]
pub struct RequestParameters(String);

impl RequestParameters {
    /// Adds a parameter.
    pub fn with(mut self, name: &str, value: impl std::fmt::Display) -> RequestParameters {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(name);
        self.0.push('=');
        push_escaped(&mut self.0, &value.to_string());
        self
    }

    /// Adds a parameter if it has a value.
    pub fn with_option(
        self,
        name: &str,
        value: Option<impl std::fmt::Display>,
    ) -> RequestParameters {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// A time or a duration in nanoseconds.
    pub fn with_ns(self, name: &str, ns: i64) -> RequestParameters {
        self.with(name, format_args!("{ns}ns"))
    }
}

/// Percent-encodes text for a query or a form.
fn push_escaped(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

/// A request to send.
struct ServerRequest<'a> {
    method: Method,
    path: &'a str,
    parameters: &'a str,
    content_type: Option<&'a str>,
    body: Bytes,
}

impl ServerClient {
    /// Names the sender of batches; characters that a header cannot have become `?`.
    pub fn set_sender(&mut self, name: &str) {
        let plain = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
        self.sender = HeaderValue::from_str(&name.chars().map(plain).collect::<String>()).ok();
    }

    /// Name of the sender of batches.
    pub(crate) fn sender(&self) -> Option<HeaderValue> {
        self.sender.clone()
    }

    /// Whether the command line names a server.
    pub fn is_named(&self) -> bool {
        self.server.is_some()
    }

    /// URL of the server: as named, else that of the environment, else of the server that uses the
    /// default data directory, else the default address.
    pub fn url(&self) -> String {
        let local = || default_data_dir().and_then(|data| server_of(&data.join(STORE_DIR)));
        let default = || format!("http://127.0.0.1:{}", net::forward_protocol::PORT);
        let environment = || std::env::var(SERVER_VARIABLE).ok().filter(|url| !url.is_empty());
        let named = self.server.clone().or_else(environment).map(with_scheme);
        named.or_else(local).unwrap_or_else(default)
    }

    /// Sends a GET request and returns the JSON response.
    pub fn get(&self, path: &str, parameters: RequestParameters) -> Result<Value> {
        self.request(Method::GET, path, parameters)
    }

    /// Sends a request without a body and returns the JSON response.
    pub fn request(
        &self,
        method: Method,
        path: &str,
        parameters: RequestParameters,
    ) -> Result<Value> {
        let (content_type, body) = (None, Bytes::new());
        self.exchange(ServerRequest { method, path, parameters: &parameters.0, content_type, body })
    }

    /// Sends parameters as a form, which may be longer than a URL.
    pub fn post_form(&self, path: &str, parameters: RequestParameters) -> Result<Value> {
        let body = Bytes::from(parameters.0);
        self.post(path, "application/x-www-form-urlencoded", body)
    }

    /// Sends a body and returns the JSON response.
    pub fn post(&self, path: &str, content_type: &str, body: Bytes) -> Result<Value> {
        let (method, content_type) = (Method::POST, Some(content_type));
        self.exchange(ServerRequest { method, path, parameters: "", content_type, body })
    }

    /// Stores a body and returns the JSON response.
    pub fn put(&self, path: &str, content_type: &str, body: Bytes) -> Result<Value> {
        let (method, content_type) = (Method::PUT, Some(content_type));
        self.exchange(ServerRequest { method, path, parameters: "", content_type, body })
    }

    /// Receives server-sent events: calls `each` with the name and the data of each event, until it
    /// breaks.
    pub fn stream(
        &self,
        path: &str,
        parameters: RequestParameters,
        mut each: impl FnMut(&str, &str) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let url = self.url();
        let (content_type, body) = (None, Bytes::new());
        let (method, parameters) = (Method::GET, &parameters.0[..]);
        let message = ServerRequest { method, path, parameters, content_type, body };
        let mut parser = EventParser::default();
        let (mut outcome, mut failed, mut answer) =
            (Ok(ControlFlow::Continue(())), None, Vec::new());
        run(async {
            let (mut connection, request) = self.connect(&url, &message).await?;
            let mut take = |status: StatusCode, bytes: &[u8]| {
                if !status.is_success() {
                    failed = Some(status);
                    answer.extend_from_slice(bytes);
                    return match answer.len() > ERROR_BYTES_MAX {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    };
                }
                outcome = parser.push(bytes, &mut each);
                match outcome {
                    Ok(flow) => flow,
                    Err(_) => ControlFlow::Break(()),
                }
            };
            connection.send_and_stream(request, &mut take).await?;
            Ok(())
        })?;
        if let Some(status) = failed {
            return Err(response_error(&url, path, status, &answer));
        }
        match outcome? {
            ControlFlow::Break(()) => Ok(()),
            ControlFlow::Continue(()) => {
                bail!("{url}: the server ended the stream; is it stopping?")
            }
        }
    }

    /// Sends a body and returns the JSON response. While the server works, shows the progress that
    /// it reports at the same path, as `show` writes it.
    pub fn post_with_progress(
        &self,
        path: &str,
        parameters: RequestParameters,
        content_type: &str,
        body: Bytes,
        show: fn(&Value) -> Option<String>,
    ) -> Result<Value> {
        let (method, content_type) = (Method::POST, Some(content_type));
        let parameters = &parameters.0[..];
        let message = ServerRequest { method, path, parameters, content_type, body };
        self.exchange_with(message, Some(show))
    }

    fn exchange(&self, message: ServerRequest<'_>) -> Result<Value> {
        self.exchange_with(message, None)
    }

    /// Progress of a request; `None` if the server does not say.
    async fn progress(&self, url: &str, path: &str) -> Option<Value> {
        let (method, body) = (Method::GET, Bytes::new());
        let message = ServerRequest { method, path, parameters: "", content_type: None, body };
        let (mut connection, request) = self.connect(url, &message).await.ok()?;
        let limits = ResponseLimits { timeout: PROGRESS_AFTER, max_bytes: ERROR_BYTES_MAX };
        let response = connection.send(request, limits).await.ok()?.response;
        serde_json::from_slice(response.body()).ok()
    }

    fn exchange_with(
        &self,
        message: ServerRequest<'_>,
        show: Option<fn(&Value) -> Option<String>>,
    ) -> Result<Value> {
        let url = self.url();
        let (status, body) = run(async {
            let (mut connection, request) = self.connect(&url, &message).await?;
            let allowed =
                ResponseLimits { timeout: RESPONSE_TIMEOUT, max_bytes: RESPONSE_BYTES_MAX };
            let mut sending = std::pin::pin!(connection.send(request, allowed));
            let mut tick = tokio::time::interval(PROGRESS_AFTER);
            let mut progress = ProgressLine::new();
            tick.tick().await;
            let response = loop {
                tokio::select! {
                    response = &mut sending => break response?.response,
                    _ = tick.tick() => {
                        let reported = match show.filter(|_| progress.is_visible()) {
                            Some(show) => self.progress(&url, message.path).await.and_then(
                                |answer| show(&answer)
                            ),
                            None => None,
                        };
                        let more = reported.map_or_else(String::new, |text| format!(", {text}"));
                        progress.show(|elapsed| {
                            let seconds = Duration::from_secs(elapsed.as_secs());
                            format!("{url}, {}{more}", format_age(seconds))
                        });
                    }
                }
            };
            let (head, body) = response.into_parts();
            Ok((head.status, body))
        })?;
        if !status.is_success() {
            return Err(response_error(&url, message.path, status, &body));
        }
        serde_json::from_slice(&body).map_err(|error| {
            anyhow!("{url}: the response is not JSON: {error}; is this a topdeck server?")
        })
    }

    async fn connect(
        &self,
        url: &str,
        message: &ServerRequest<'_>,
    ) -> Result<(HttpConnection, Request<Bytes>)> {
        let path = match message.parameters {
            "" => message.path.to_owned(),
            parameters => format!("{}?{parameters}", message.path),
        };
        let target = Endpoint::parse(url)?.join(&path);
        let dialer = self.dialer(&target)?;
        let mut request = Request::builder().method(message.method.clone()).uri(&target.path);
        if let Some(content_type) = message.content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        if let Some(token) = self.read_token()? {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(message.body.clone())?;
        let (connection, _) =
            dialer.dial(&target).await.map_err(|error| unreachable_error(url, &error))?;
        Ok((connection, request))
    }

    /// Opens connections to an endpoint of the server.
    pub(crate) fn dialer(&self, target: &Endpoint) -> Result<Dialer> {
        let tls = ClientTls { ca: self.ca.clone(), ..ClientTls::default() };
        Ok(Dialer::for_target(target, &tls, &[], DialTimeouts::default())?)
    }

    /// Value of the header `authorization`, if a token is named.
    pub(crate) fn read_token(&self) -> Result<Option<http::HeaderValue>> {
        self.token_file.as_deref().map(read_token).transpose()
    }
}

/// `localhost:7717` is meant as curl takes it: `http://localhost:7717`.
fn with_scheme(url: String) -> String {
    match url.contains("://") {
        true => url,
        false => format!("http://{url}"),
    }
}

/// The server does not accept a connection.
pub fn unreachable_error(url: &str, error: &net::dial::Error) -> anyhow::Error {
    anyhow!(
        "cannot reach the server at {url}: {error}; start it with `topdeck serve`, or name another \
         one with --server URL"
    )
}

fn run<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(work)
}

fn read_token(file: &Path) -> Result<http::HeaderValue> {
    let token = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the token in {}", file.display()))?;
    net::bearer(token.trim()).with_context(|| {
        format!("the token in {} has characters that a header cannot contain", file.display())
    })
}

/// What a response with an error status means, and what to do.
pub fn response_error(url: &str, path: &str, status: StatusCode, body: &[u8]) -> anyhow::Error {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let reason = json.as_ref().and_then(|json| json["error"].as_str()).unwrap_or("no reason given");
    let is_older = status == StatusCode::NOT_FOUND && reason.starts_with("no route ")
        || status == StatusCode::METHOD_NOT_ALLOWED
        || status == StatusCode::BAD_REQUEST && reason.starts_with("unknown parameter ");
    let remedy = match status {
        _ if is_older => {
            return anyhow!(
                "{url}: the server does not know this request ({path}: {status}: {reason}); it is \
                 older than this program: update it"
            );
        }
        StatusCode::UNAUTHORIZED => "; name a file with a token: --token-file FILE",
        StatusCode::FORBIDDEN => "; use a token with the scope (`topdeck token`)",
        _ => "",
    };
    anyhow!("{url}: {status}: {reason}{remedy}")
}

/// Splits a stream into events: lines `event: NAME` and `data: TEXT`, ended by an empty line.
#[derive(Default)]
struct EventParser {
    rest: Vec<u8>,
    name: String,
    data: String,
}

impl EventParser {
    fn push(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(&str, &str) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            match line.trim_end().split_once(": ") {
                Some(("event", name)) => name.clone_into(&mut self.name),
                Some(("data", data)) => data.clone_into(&mut self.data),
                // Comments keep the connection open.
                Some(_) => {}
                None if !self.name.is_empty() => {
                    if each(&self.name, &self.data)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    self.name.clear();
                    self.data.clear();
                }
                None => {}
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_escaped() {
        let parameters = RequestParameters::default()
            .with("query", "sum(x{a=\"b c\"}) + 1")
            .with_ns("from", -5)
            .with_option("step", None::<&str>);
        assert_eq!(parameters.0, "query=sum%28x%7Ba%3D%22b%20c%22%7D%29%20%2B%201&from=-5ns");
    }

    /// `--server localhost:9` was an invalid URL: "scheme is neither http nor https".
    #[test]
    fn server_without_a_scheme_is_asked_by_http() {
        let url = |server: &str| {
            let server = Some(server.to_owned());
            ServerClient { server, ..ServerClient::default() }.url()
        };
        assert_eq!(url("localhost:9"), "http://localhost:9");
        assert_eq!(url("[::1]:9/deck"), "http://[::1]:9/deck");
        assert_eq!(url("https://north:9"), "https://north:9");
        // Another scheme stays wrong.
        assert_eq!(url("ftp://north:9"), "ftp://north:9");
    }

    #[test]
    fn events_are_found_however_the_stream_is_cut() {
        let stream = b": topdeck\n\nevent: sample\ndata: {\"a\": 1}\n\nevent: gap\ndata: {}\n\n";
        for size in 1..stream.len() {
            let (mut parser, mut found) = (EventParser::default(), Vec::new());
            for part in stream.chunks(size) {
                let mut each = |name: &str, data: &str| {
                    found.push(format!("{name} {data}"));
                    Ok(ControlFlow::Continue(()))
                };
                assert!(parser.push(part, &mut each).unwrap().is_continue());
            }
            assert_eq!(found, ["sample {\"a\": 1}", "gap {}"], "{size}");
        }
    }

    #[track_caller]
    fn check_error(status: u16, body: &str, expected: &str) {
        let status = StatusCode::from_u16(status).unwrap();
        let error = response_error("http://a", "/v1/selection", status, body.as_bytes());
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn errors_of_a_server_say_what_to_do() {
        check_error(
            401,
            "{\"error\":\"a token is required\"}",
            "http://a: 401 Unauthorized: a token is required; name a file with a token: \
             --token-file FILE",
        );
        check_error(
            404,
            "{\"error\":\"no route /v1/selection; see /v1/openapi.json\"}",
            "http://a: the server does not know this request (/v1/selection: 404 Not Found: no \
             route /v1/selection; see /v1/openapi.json); it is older than this program: update it",
        );
        check_error(
            404,
            "{\"error\":\"x matches no series\"}",
            "http://a: 404 Not Found: x matches no series",
        );
    }
}
