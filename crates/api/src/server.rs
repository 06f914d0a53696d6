//! HTTP server: listeners, connection limits, graceful shutdown.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use axum::extract::DefaultBodyLimit;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use http::{HeaderMap, Method, StatusCode, Uri, header};
use intake::{Restartable, keep_running};
use net::forward_protocol::PORT;
use net::tls::{ServerTls, TlsError};
use role::WriteScope;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::acceptor::{Acceptor, ListenerContext, TlsConfigCell};
use crate::access::{AccessPolicy, is_loopback, require_scope};
use crate::api_error::ApiError;
use crate::batches;
use crate::connection::ServerPhase;
use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::foreign_routes;
use crate::ingest;
use crate::json::Json;
use crate::limits::Limits;
use crate::middleware::{DisallowedMethod, RequestMiddleware};
use crate::openapi;
use crate::prometheus::PrometheusError;
use crate::query_service::QueryService;
use crate::role_routes;
use crate::token::{Scope, TokenError, TokenFile};
use crate::web_files;

/// Listen address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenSettings {
    /// The address; port 0 for any free port.
    pub address: SocketAddr,
    /// TLS settings; `None` for plain text.
    pub tls: Option<ServerTls>,
}

/// Server settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Listen addresses; each serves all routes, including gRPC. Default: 127.0.0.1:7717.
    pub listen: Vec<ListenSettings>,
    /// Token file. Without it only loopback addresses are allowed.
    pub tokens: Option<PathBuf>,
    /// Whether tokens are required on loopback addresses too.
    pub tokens_required: bool,
    /// Host names accepted without a token, beside localhost: those of a reverse proxy.
    pub hosts: Vec<String>,
    /// Limits.
    pub limits: Limits,
}

/// Poll interval of the token file.
const TOKENS_POLL_INTERVAL: Duration = Duration::from_secs(2);

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: vec![ListenSettings {
                address: SocketAddr::from(([127, 0, 0, 1], PORT)),
                tls: None,
            }],
            tokens: None,
            tokens_required: false,
            hosts: Vec::new(),
            limits: Limits::default(),
        }
    }
}

impl Settings {
    /// Returns the first reason why a server could not start with these settings, as far as this
    /// can be known without opening a port: missing tokens, invalid certificates.
    pub fn verify(&self) -> Result<(), ServerError> {
        load_tokens(self)?;
        self.listen.iter().try_for_each(|listen| match &listen.tls {
            Some(tls) => {
                let wrong = |source| ServerError::Tls { address: listen.address, source };
                tls.config().map(drop).map_err(wrong)
            }
            None => Ok(()),
        })
    }
}

/// Start errors of the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Binding an address failed.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// Another process uses the address.
    #[error(
        "cannot listen on {address}: port in use by another process or a connection; find it with \
         `ss -tanp 'sport = :{port}'`, or set [http] listen = [\"ADDRESS:PORT\"]",
        port = address.port()
    )]
    AddressInUse {
        /// The address.
        address: SocketAddr,
    },
    /// The address is not loopback, and there are no tokens.
    #[error(
        "cannot listen on {address} without tokens: every client could read and write; add a token \
         (`topdeck token DIR add NAME read`), or listen on 127.0.0.1"
    )]
    AuthRequired {
        /// The address.
        address: SocketAddr,
    },
    /// Tokens are required and there are none.
    #[error(
        "cannot start: tokens are required, but none exists; create one with `topdeck token DIR \
         add NAME admin`"
    )]
    NoTokens,
    /// The token file cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// The certificates are invalid.
    #[error("cannot set up TLS on {address}: {source}")]
    Tls {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: TlsError,
    },
}

/// Running server. Drop aborts; [`Server::stop`] shuts down gracefully.
pub struct Server {
    middleware: Arc<RequestMiddleware>,
    settings: Settings,
    listeners: Vec<(SocketAddr, TlsConfigCell)>,
    permits: Arc<Semaphore>,
    connections_max: usize,
    phase: watch::Sender<ServerPhase>,
    tasks: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts the server inside a tokio runtime with time and network enabled.
    pub async fn start(settings: Settings, context: Context) -> Result<Server, ServerError> {
        let tokens = load_tokens(&settings)?;
        let limits = settings.limits.clone();
        let files = raise_open_files(limits.max_connections);
        let meter = Arc::clone(context.intake.meter());
        let access = AccessPolicy {
            tokens: RwLock::new(Arc::new(tokens)),
            is_required: settings.tokens_required,
            hosts: settings.hosts.clone(),
            senders: RwLock::default(),
        };
        let queries = Arc::clone(&context.queries);
        let supervisor = context.intake.supervisor().clone();
        let router = router(&context, limits.max_body_bytes).with_state(context);
        let middleware = Arc::new(RequestMiddleware::new(access, limits, router, &meter));
        let connections_max =
            middleware.limits.max_connections.min(files).min(Semaphore::MAX_PERMITS);
        let mut server = Server {
            permits: Arc::new(Semaphore::new(connections_max)),
            connections_max,
            middleware,
            settings,
            listeners: Vec::new(),
            phase: watch::channel(ServerPhase::Open).0,
            tasks: Vec::new(),
        };
        server.register_metrics(&meter);
        let mut bound = Vec::new();
        for listen in server.settings.listen.clone() {
            bound.push((bind(&listen).await?, listen.tls.map(Arc::new)));
        }
        for ((listener, address, secured), tls_settings) in bound {
            server.listeners.push((address, secured.clone()));
            let accepting = ListenerContext {
                middleware: Arc::clone(&server.middleware),
                permits: Arc::clone(&server.permits),
                phase: server.phase.subscribe(),
                tls: secured,
                tls_settings,
                supervisor: supervisor.clone(),
            };
            let acceptor = Acceptor { listener, context: accepting };
            let task = keep_running(supervisor.thread("accept"), acceptor);
            server.tasks.push(tokio::spawn(task));
        }
        if let Some(path) = server.settings.tokens.clone() {
            let watch =
                TokenFileWatcher { path, middleware: Arc::clone(&server.middleware), queries };
            let task = keep_running(supervisor.thread("tokens"), watch);
            server.tasks.push(tokio::spawn(task));
        }
        Ok(server)
    }

    fn register_metrics(&self, meter: &intake::Meter) {
        let max = self.connections_max;
        let connections = Arc::clone(&self.permits);
        meter.gauge("topdeck_http_connections", "Open connections", &[], move || {
            max.saturating_sub(connections.available_permits()) as f64
        });
        let room = Arc::clone(&self.middleware.body_budget);
        let about = "Size of request bodies being read or handled, in bytes";
        meter.gauge("topdeck_http_body_buffer_bytes", about, &[], move || room.used() as f64);
        let unread = Arc::clone(&self.middleware.response_buffers);
        let about = "Size of responses not yet read by clients, in bytes";
        meter
            .gauge("topdeck_http_response_buffer_bytes", about, &[], move || unread.bytes() as f64);
    }

    /// Listen addresses, in the order of the settings.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|listener| listener.0).collect()
    }

    /// The connections limit and the configured one, if the limit of open files reduces it.
    pub fn reduced_connection_limit(&self) -> Option<(usize, usize)> {
        let configured = self.settings.limits.max_connections.min(Semaphore::MAX_PERMITS);
        (self.connections_max < configured).then_some((self.connections_max, configured))
    }

    /// Reloads tokens and certificates. After an error the previous ones stay in use.
    pub fn reload(&self) -> Result<(), ServerError> {
        let tokens = load_tokens(&self.settings)?;
        let mut changed = Vec::new();
        for (listen, (address, secured)) in self.settings.listen.iter().zip(&self.listeners) {
            if let (Some(tls), Some(secured)) = (&listen.tls, secured) {
                let wrong = |reason| ServerError::Tls { address: *address, source: reason };
                changed.push((secured, Arc::new(tls.config().map_err(wrong)?)));
            }
        }
        for (secured, config) in changed {
            *secured.write().unwrap_or_else(PoisonError::into_inner) = config;
        }
        set_tokens(&self.middleware, tokens);
        Ok(())
    }

    /// Stops accepting connections, answers requests in flight, and aborts the rest after
    /// `deadline`. Returns whether all were answered.
    pub async fn stop(mut self, deadline: Duration) -> bool {
        self.phase.send_replace(ServerPhase::Stopping);
        let all = u32::try_from(self.connections_max).unwrap_or(u32::MAX);
        let ended = tokio::time::timeout(deadline, self.permits.acquire_many(all)).await;
        let is_ended = ended.is_ok();
        self.phase.send_replace(ServerPhase::Closed);
        for task in self.tasks.drain(..) {
            task.abort();
            // A result of the stop, not an error.
            let _ = task.await;
        }
        is_ended
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.phase.send_replace(ServerPhase::Closed);
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

pub(crate) fn router(context: &Context, body_bytes: usize) -> Router<Context> {
    let write_routes = |scope| role_routes::write_routes(&context.offered, scope);
    let scoped_routes = Scope::ALL.map(|scope| {
        let scope_routes = openapi::routes(Some(scope));
        let scope_routes = match scope {
            Scope::Read => scope_routes.merge(role_routes::read_routes(&context.offered)),
            Scope::Alerts => scope_routes.merge(write_routes(WriteScope::Alerts)),
            Scope::Ingest => scope_routes.merge(write_routes(WriteScope::Ingest)),
            Scope::Admin | Scope::Exemplars => scope_routes,
            // The handler verifies the token in its file: it may have been created just now.
            Scope::Enroll => return scope_routes,
        };
        // axum rejects a layer over an empty router.
        match scope_routes.has_routes() {
            true => require_scope(scope_routes, scope),
            false => scope_routes,
        }
    });
    let batches = require_scope(batches::routes(), Scope::Ingest);
    let router =
        ingest::routes(&context.offered.formats).merge(batches).merge(openapi::routes(None));
    let router = router.merge(role_routes::picture_routes(&context.offered));
    let router = scoped_routes.into_iter().fold(router, Router::merge);
    router
        .fallback(fallback)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(body_bytes))
}

/// Other paths: a file of the web UI, or 404.
async fn fallback(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let is_read = method == Method::GET || method == Method::HEAD;
    let found = if is_read { web_files::file_response(uri.path(), &headers) } else { None };
    let accepts_html = headers
        .get_all(header::ACCEPT)
        .iter()
        .any(|accepted| accepted.to_str().is_ok_and(|accepted| accepted.contains("text/html")));
    let elsewhere = || {
        let address = foreign_routes::browser_address(&uri, accepts_html).filter(|_| is_read)?;
        Some((StatusCode::FOUND, [(header::LOCATION, address)]).into_response())
    };
    found.or_else(elsewhere).unwrap_or_else(|| {
        let missing = not_found(&uri);
        // Clients of Prometheus read `status` and `errorType`.
        match uri.path().starts_with("/api/v1/") {
            true => PrometheusError::from(ApiError::NotFound(missing.message)).into_response(),
            false => missing.into_response(),
        }
    })
}

fn not_found(uri: &Uri) -> ErrorResponse {
    let what = match uri.path() {
        "/v1/logs" | "/opentelemetry.proto.collector.logs.v1.LogsService/Export" => {
            "topdeck accepts metrics and traces, not logs; disable them in the exporter".to_owned()
        }
        path => format!("no route {path}; {}", foreign_routes::remedy(path)),
    };
    ErrorResponse::new(StatusCode::NOT_FOUND, what)
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let what = format!("method {method} is not allowed for {}", uri.path());
    let answer = ErrorResponse::new(StatusCode::METHOD_NOT_ALLOWED, what.clone());
    (Extension(DisallowedMethod(what)), answer).into_response()
}

/// Loads the tokens, and checks that the addresses are allowed with them.
fn load_tokens(settings: &Settings) -> Result<TokenFile, ServerError> {
    let tokens = match &settings.tokens {
        Some(path) => TokenFile::open(path)?,
        None => TokenFile::empty(),
    };
    if tokens.tokens().is_empty() {
        let mut open = settings.listen.iter().filter(|listen| !is_loopback(listen.address.ip()));
        if let Some(listen) = open.next() {
            return Err(ServerError::AuthRequired { address: listen.address });
        }
        if settings.tokens_required {
            return Err(ServerError::NoTokens);
        }
    }
    Ok(tokens)
}

fn set_tokens(middleware: &RequestMiddleware, tokens: TokenFile) {
    *middleware.access.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
}

/// Number of attempts to bind a port that is in use: three seconds in total.
const BIND_TRIES: u32 = 30;
const BIND_PAUSE: Duration = Duration::from_millis(100);

async fn bind(
    listen: &ListenSettings,
) -> Result<(TcpListener, SocketAddr, TlsConfigCell), ServerError> {
    let address = listen.address;
    let secured = match &listen.tls {
        None => None,
        Some(tls) => {
            let config =
                tls.config().map_err(|reason| ServerError::Tls { address, source: reason })?;
            Some(Arc::new(RwLock::new(Arc::new(config))))
        }
    };
    let wrong = |reason| ServerError::Listen { address, source: reason };
    let mut tries = 0;
    let listener = loop {
        match TcpListener::bind(address).await {
            // The kernel may have assigned the port to an outgoing connection, which soon ends.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < BIND_TRIES => {
                tries += 1;
                tokio::time::sleep(BIND_PAUSE).await;
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(ServerError::AddressInUse { address });
            }
            bound => break bound.map_err(wrong)?,
        }
    };
    let bound = listener.local_addr().map_err(wrong)?;
    Ok((listener, bound, secured))
}

fn modified(path: &Path) -> Option<(SystemTime, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

/// Watches the token file; changes apply within seconds without a reload. On read errors the
/// previous tokens stay valid and `/v1/status` reports it.
struct TokenFileWatcher {
    path: PathBuf,
    middleware: Arc<RequestMiddleware>,
    queries: Arc<QueryService>,
}

impl Restartable for TokenFileWatcher {
    async fn run(&mut self) {
        let TokenFileWatcher { path, middleware, queries } = self;
        let mut last_change = None;
        queries.add_status_section("tokens_error", || Json::Null);
        loop {
            let now = modified(path);
            queries.failpoint("tokens");
            if now != last_change {
                match TokenFile::open(path) {
                    Ok(tokens) => {
                        set_tokens(middleware, tokens);
                        last_change = now;
                        queries.add_status_section("tokens_error", || Json::Null);
                    }
                    // Retried soon, even if the file does not change.
                    Err(error) => {
                        middleware.token_file_errors.add(1);
                        let why = format!("{error}; the previous tokens stay valid");
                        queries.add_status_section("tokens_error", move || Json::Text(why.clone()));
                    }
                }
            }
            tokio::time::sleep(TOKENS_POLL_INTERVAL).await;
        }
    }

    /// The task is aborted instead.
    async fn wait_for_stop(&mut self) {
        std::future::pending().await
    }
}

/// Open files reserved for the store, the journal and logs.
const RESERVED_FILES: usize = 256;

/// Raises the limit of open files (RLIMIT_NOFILE) as `connections` requires; returns the possible
/// number of connections.
fn raise_open_files(connections: usize) -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let required = connections.saturating_add(RESERVED_FILES) as u64;
    if limit.current.is_some_and(|current| current < required) {
        limit.current = Some(limit.maximum.map_or(required, |maximum| maximum.min(required)));
        // After an error the connections limit is lower.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
    files.unwrap_or(usize::MAX).saturating_sub(RESERVED_FILES).max(1)
}
