//! The server: listens, holds connections within limits, and stops without losing what it was asked.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode, Uri};
use intake::{Restartable, keep_running};
use net::tls::{ServerTls, TlsError};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::accept::{Accepting, Acceptor};
use crate::access::{Access, is_loopback, scoped};
use crate::batches;
use crate::connection::Phase;
use crate::context::Context;
use crate::desk::Desk;
use crate::gate::Gate;
use crate::ingest;
use crate::json::Json;
use crate::limits::Limits;
use crate::openapi;
use crate::page;
use crate::problem::Problem;
use crate::token::{Scope, TokenError, Tokens};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address; port 0 for any that is free.
    pub address: SocketAddr,
    /// With TLS, or in the clear.
    pub tls: Option<ServerTls>,
}

/// How a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where it listens; each address answers everything, gRPC too. 127.0.0.1:7717 by default.
    pub listen: Vec<Listen>,
    /// The file of tokens. Without one it listens on loopback addresses only.
    pub tokens: Option<PathBuf>,
    /// Whether tokens are needed on loopback addresses too.
    pub tokens_required: bool,
    /// Names under which this host is asked for without a token, beside localhost: of a proxy before it.
    pub hosts: Vec<String>,
    /// How much one may ask of it.
    pub limits: Limits,
}

/// The port where nothing else is said.
pub const PORT: u16 = 7717;
/// How often the file of tokens is looked at for changes.
const TOKENS_LOOKED_AT: Duration = Duration::from_secs(2);

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: vec![Listen { address: SocketAddr::from(([127, 0, 0, 1], PORT)), tls: None }],
            tokens: None,
            tokens_required: false,
            hosts: Vec::new(),
            limits: Limits::default(),
        }
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {why}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        why: io::Error,
    },
    /// Somebody else has the address, and kept it.
    #[error(
        "cannot listen on {address}: the port is in use by another program, or is a connection's own; \
         `ss -tanp 'sport = :{port}'` says whose, and [http] listen = [\"ADDRESS:PORT\"] chooses another",
        port = address.port()
    )]
    Taken {
        /// Which.
        address: SocketAddr,
    },
    /// The address is not this host's own, and everybody would come in.
    #[error(
        "will not listen on {address} without tokens, because whoever reaches it could read and write: \
         name a file of tokens with at least one in it (`topdeck token DIR add NAME read`), or listen on 127.0.0.1"
    )]
    Open {
        /// Which.
        address: SocketAddr,
    },
    /// Tokens are required and there are none.
    #[error(
        "tokens are required, and there is none: make one with `topdeck token DIR add NAME admin`"
    )]
    NoTokens,
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// The certificates cannot be used.
    #[error("TLS on {address}: {why}")]
    Tls {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: TlsError,
    },
}

/// A server that listens. Dropped without [`Server::stop`] it ends without waiting for anybody.
pub struct Server {
    gate: Arc<Gate>,
    settings: Settings,
    listeners: Vec<(SocketAddr, Secured)>,
    connections: Arc<Semaphore>,
    connections_max: usize,
    phase: watch::Sender<Phase>,
    tasks: Vec<JoinHandle<()>>,
}

/// The configuration of TLS for new connections, where there is TLS.
pub(crate) type Secured = Option<Arc<RwLock<Arc<ServerConfig>>>>;

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Server {
    /// Listens. Needs a runtime of tokio with time and network.
    pub async fn start(settings: Settings, context: Context) -> Result<Server, ServerError> {
        let tokens = tokens(&settings)?;
        let limits = settings.limits.clone();
        let files = raise_open_files(limits.connections);
        let meter = Arc::clone(context.intake.meter());
        let access = Access {
            tokens: RwLock::new(Arc::new(tokens)),
            is_required: settings.tokens_required,
            hosts: settings.hosts.clone(),
        };
        let desk = Arc::clone(&context.desk);
        let supervisor = context.intake.supervisor().clone();
        let router = router(&context, limits.body_bytes).with_state(context);
        let gate = Arc::new(Gate::new(access, limits, router, &meter));
        let connections_max = gate.limits.connections.min(files).min(Semaphore::MAX_PERMITS);
        let mut server = Server {
            connections: Arc::new(Semaphore::new(connections_max)),
            connections_max,
            gate,
            settings,
            listeners: Vec::new(),
            phase: watch::channel(Phase::Open).0,
            tasks: Vec::new(),
        };
        server.measure(&meter);
        let mut bound = Vec::new();
        for listen in server.settings.listen.clone() {
            bound.push(bind(&listen).await?);
        }
        for (listener, address, secured) in bound {
            server.listeners.push((address, secured.clone()));
            let accepting = Accepting {
                gate: Arc::clone(&server.gate),
                connections: Arc::clone(&server.connections),
                phase: server.phase.subscribe(),
                secured,
                supervisor: supervisor.clone(),
            };
            let acceptor = Acceptor { listener, accepting };
            let task = keep_running(supervisor.thread("accept"), acceptor);
            server.tasks.push(tokio::spawn(task));
        }
        if let Some(path) = server.settings.tokens.clone() {
            let watch = TokenWatch { path, gate: Arc::clone(&server.gate), desk };
            let task = keep_running(supervisor.thread("tokens"), watch);
            server.tasks.push(tokio::spawn(task));
        }
        Ok(server)
    }

    fn measure(&self, meter: &intake::Meter) {
        let max = self.connections_max;
        let connections = Arc::clone(&self.connections);
        meter.gauge("topdeck_http_connections", "connections that are open", &[], move || {
            max.saturating_sub(connections.available_permits()) as f64
        });
        let room = Arc::clone(&self.gate.room);
        let about = "bytes of bodies that are being read or worked on";
        meter.gauge("topdeck_http_bodies_bytes", about, &[], move || room.used() as f64);
        let unread = Arc::clone(&self.gate.unread);
        let about = "bytes of answers that clients have not read yet";
        meter.gauge("topdeck_http_answers_bytes", about, &[], move || unread.bytes() as f64);
    }

    /// Where it listens, in the order of the settings.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|listener| listener.0).collect()
    }

    /// How many connections it holds at the most, and how many the settings ask for, if the limit
    /// of open files leaves fewer.
    pub fn connections_cut(&self) -> Option<(usize, usize)> {
        let wanted = self.settings.limits.connections.min(Semaphore::MAX_PERMITS);
        (self.connections_max < wanted).then_some((self.connections_max, wanted))
    }

    /// Reads tokens and certificates again. After an error all is as before.
    pub fn reload(&self) -> Result<(), ServerError> {
        let tokens = tokens(&self.settings)?;
        let mut changed = Vec::new();
        for (listen, (address, secured)) in self.settings.listen.iter().zip(&self.listeners) {
            if let (Some(tls), Some(secured)) = (&listen.tls, secured) {
                let wrong = |why| ServerError::Tls { address: *address, why };
                changed.push((secured, Arc::new(tls.config().map_err(wrong)?)));
            }
        }
        for (secured, config) in changed {
            *secured.write().unwrap_or_else(PoisonError::into_inner) = config;
        }
        put(&self.gate, tokens);
        Ok(())
    }

    /// Takes no more connections, answers what was asked, and ends what is left after `deadline`. Whether all was
    /// answered.
    pub async fn stop(mut self, deadline: Duration) -> bool {
        self.phase.send_replace(Phase::Stopping);
        let all = u32::try_from(self.connections_max).unwrap_or(u32::MAX);
        let ended = tokio::time::timeout(deadline, self.connections.acquire_many(all)).await;
        let is_ended = ended.is_ok();
        self.phase.send_replace(Phase::Closed);
        for task in self.tasks.drain(..) {
            task.abort();
            // It was told to end.
            let _ = task.await;
        }
        is_ended
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.phase.send_replace(Phase::Closed);
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

pub(crate) fn router(context: &Context, body_bytes: usize) -> Router<Context> {
    let asked = Scope::ALL.map(|scope| {
        let own = openapi::routes(Some(scope));
        // There may be none: a layer over no routes is refused.
        let offered = (scope == Scope::Read).then(|| context.offered.router());
        scoped(offered.into_iter().fold(own, Router::merge), scope)
    });
    let batches = scoped(batches::routes(), Scope::Ingest);
    let router = ingest::routes().merge(batches).merge(openapi::routes(None));
    let router = asked.into_iter().fold(router, Router::merge);
    router
        .fallback(elsewhere)
        .method_not_allowed_fallback(not_so)
        .layer(DefaultBodyLimit::max(body_bytes))
}

/// What is no route: a file of the page, or nothing.
async fn elsewhere(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let is_read = method == Method::GET || method == Method::HEAD;
    let found = if is_read { page::answer(uri.path(), &headers) } else { None };
    found.unwrap_or_else(|| nothing_there(&uri).into_response())
}

fn nothing_there(uri: &Uri) -> Problem {
    let what = match uri.path() {
        "/v1/traces"
        | "/v1/logs"
        | "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        | "/opentelemetry.proto.collector.logs.v1.LogsService/Export" => {
            "topdeck takes metrics, neither traces nor logs: leave them out of the exporter"
                .to_owned()
        }
        path => format!("there is nothing at {path}; /v1/openapi.json has all there is"),
    };
    Problem::new(StatusCode::NOT_FOUND, what)
}

async fn not_so(method: Method, uri: Uri) -> Problem {
    let what = format!("{method} is not for {}; the header Allow says what is", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, what)
}

/// The tokens, if there may be a server with them.
fn tokens(settings: &Settings) -> Result<Tokens, ServerError> {
    let tokens = match &settings.tokens {
        Some(path) => Tokens::open(path)?,
        None => Tokens::none(),
    };
    if tokens.list().is_empty() {
        let mut open = settings.listen.iter().filter(|listen| !is_loopback(listen.address.ip()));
        if let Some(listen) = open.next() {
            return Err(ServerError::Open { address: listen.address });
        }
        if settings.tokens_required {
            return Err(ServerError::NoTokens);
        }
    }
    Ok(tokens)
}

fn put(gate: &Gate, tokens: Tokens) {
    *gate.access.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
}

/// How often a port that is in use is tried again, and after how long each time: three seconds in
/// all.
const BIND_TRIES: u32 = 30;
const BIND_PAUSE: Duration = Duration::from_millis(100);

async fn bind(listen: &Listen) -> Result<(TcpListener, SocketAddr, Secured), ServerError> {
    let address = listen.address;
    let secured = match &listen.tls {
        None => None,
        Some(tls) => {
            let config = tls.config().map_err(|why| ServerError::Tls { address, why })?;
            Some(Arc::new(RwLock::new(Arc::new(config))))
        }
    };
    let wrong = |why| ServerError::Listen { address, why };
    let mut tries = 0;
    let listener = loop {
        match TcpListener::bind(address).await {
            // The kernel may have given the port to a connection of somebody's, which soon ends.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < BIND_TRIES => {
                tries += 1;
                tokio::time::sleep(BIND_PAUSE).await;
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(ServerError::Taken { address });
            }
            bound => break bound.map_err(wrong)?,
        }
    };
    let bound = listener.local_addr().map_err(wrong)?;
    Ok((listener, bound, secured))
}

fn changed(path: &Path) -> Option<(SystemTime, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

/// A token that is added or removed counts soon after, without a reload. While the file cannot be read, the tokens stay
/// as they were, and the status says so.
struct TokenWatch {
    path: PathBuf,
    gate: Arc<Gate>,
    desk: Arc<Desk>,
}

impl Restartable for TokenWatch {
    async fn run(&mut self) {
        let TokenWatch { path, gate, desk } = self;
        let mut seen = None;
        desk.tell("tokens_trouble", || Json::Null);
        loop {
            let now = changed(path);
            desk.fault_point("tokens");
            if now != seen {
                match Tokens::open(path) {
                    Ok(tokens) => {
                        put(gate, tokens);
                        seen = now;
                        desk.tell("tokens_trouble", || Json::Null);
                    }
                    // Looked at again soon, whether it changes or not.
                    Err(error) => {
                        gate.unread_tokens.add(1);
                        let why =
                            format!("{error}; the tokens that were read before go on counting");
                        desk.tell("tokens_trouble", move || Json::Text(why.clone()));
                    }
                }
            }
            tokio::time::sleep(TOKENS_LOOKED_AT).await;
        }
    }

    /// It is aborted.
    async fn stopped(&mut self) {
        std::future::pending().await
    }
}

/// Open files that are for everything but connections: the store's, the journal's, logs.
const FILES_FOR_OTHERS: usize = 256;

/// Lets this process have as many open files as `connections` need, if the system does; how many connections it may have.
fn raise_open_files(connections: usize) -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = connections.saturating_add(FILES_FOR_OTHERS) as u64;
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        // Where it is refused, fewer connections are held.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
    files.unwrap_or(usize::MAX).saturating_sub(FILES_FOR_OTHERS).max(1)
}
