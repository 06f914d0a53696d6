//! Real servers for tests: PostgreSQL and Redis, if installed, and hyper.

use std::convert::Infallible;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use net::tls::{ClientTls, ServerTls};
use rustix::process::{Pid, Signal};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

/// More than enough for two servers; one takes about 1 MiB.
const POSTGRES_ROOM_BYTES: u64 = 16 << 20;
/// Address of all servers.
pub(crate) const ADDRESS: &str = "127.0.0.1";
/// The same host, by an address that no certificate contains.
pub(crate) const OTHER_ADDRESS: &str = "127.0.0.2";

/// A server program with its own directory, until it is dropped.
pub(crate) struct Server {
    child: Child,
    _dir: Dir,
    _port: Socket,
    pub(crate) port: u16,
    /// Client TLS settings for this server, at [`ADDRESS`].
    pub(crate) tls: ClientTls,
    end: Signal,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), self.end);
        let _ = self.child.wait();
    }
}

/// A temporary directory, deleted on drop.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Dir {
        // An earlier process with this PID may have left one.
        for number in 0.. {
            let name = format!("topdeck-load-{name}-{}-{number}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            match std::fs::create_dir(&dir) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => {
                    made.unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
                    return Dir(dir);
                }
            }
        }
        unreachable!("numbers do not end")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A self-signed certificate for the address of this host, which needs no name resolution, and its
/// key, in files. It is its own CA.
fn certificate(dir: &Path) -> (ServerTls, ClientTls) {
    let own = rcgen::generate_simple_self_signed([ADDRESS.to_owned()]).unwrap();
    let (certificate, key) = (dir.join("certificate"), dir.join("key"));
    std::fs::write(&certificate, own.cert.pem()).unwrap();
    std::fs::write(&key, own.signing_key.serialize_pem()).unwrap();
    let client = ClientTls { ca: Some(certificate.clone()), ..ClientTls::default() };
    (ServerTls { certificate, key, client_ca: None }, client)
}

/// PostgreSQL with the roles `plain`, `old` and `new` (password, MD5, SCRAM), `secure` (SCRAM, TLS
/// only), and any other without a password.
pub(crate) fn postgres() -> Option<Server> {
    const LOGINS: &str = "\
        host all plain 127.0.0.1/32 password\n\
        host all old   127.0.0.1/32 md5\n\
        host all new   127.0.0.1/32 scram-sha-256\n\
        hostssl all secure 127.0.0.1/32 scram-sha-256\n\
        host all secure 127.0.0.1/32 reject\n\
        host all all   127.0.0.1/32 trust\n";
    let (Some(initdb), Some(postgres)) = (program("initdb"), program("postgres")) else {
        println!("skipped: PostgreSQL is not installed (initdb and postgres)");
        return None;
    };
    // It needs shared memory to start.
    let room = rustix::fs::statvfs("/dev/shm").map_or(0, |found| found.f_bavail * found.f_frsize);
    if room < POSTGRES_ROOM_BYTES {
        println!("skipped: PostgreSQL needs {POSTGRES_ROOM_BYTES} bytes in /dev/shm, has {room}");
        return None;
    }
    let dir = Dir::new("postgres");
    let database = dir.0.join("data");
    // It refuses to run as root.
    let user = rustix::process::geteuid().is_root().then(|| user("postgres"));
    let above = dir.0.ancestors().skip(1);
    if let Some((uid, _)) = user
        && let Some(closed) = above.into_iter().find(|dir| !lets_in(dir, uid))
    {
        println!("skipped: PostgreSQL's user {uid} may not enter {}", closed.display());
        return None;
    }
    let run = |program: &Path| {
        let mut command = Command::new(program);
        command.current_dir(&dir.0).arg("-D").arg(&database);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((user, group)) = user {
            command.uid(user).gid(group);
        }
        command
    };
    if let Some((user, group)) = user {
        chown(&dir.0, Some(user), Some(group)).unwrap();
    }
    let mut make = run(&initdb);
    make.args(["-U", "postgres", "--no-sync", "--locale=C", "-E", "UTF8", "-A", "trust"]);
    assert!(make.status().unwrap().success(), "initdb failed");
    std::fs::write(database.join("pg_hba.conf"), LOGINS).unwrap();
    let (own, tls) = certificate(&dir.0);
    // It refuses a key that others may read.
    std::fs::set_permissions(&own.key, Permissions::from_mode(0o600)).unwrap();
    if let Some((user, group)) = user {
        for file in [&own.key, &own.certificate] {
            chown(file, Some(user), Some(group)).unwrap();
        }
    }
    let (socket, port) = own_port();
    let mut command = run(&postgres);
    for (name, file) in [("ssl_cert_file", &own.certificate), ("ssl_key_file", &own.key)] {
        command.args(["-c", "ssl=on", "-c", &format!("{name}={}", file.display())]);
    }
    let addresses = format!("listen_addresses={ADDRESS},{OTHER_ADDRESS}");
    command.args(["-p", &port.to_string(), "-c", &addresses, "-c", "fsync=off"]);
    command.args(["-c", "unix_socket_directories=", "-c", "shared_buffers=8MB"]);
    // Immediate shutdown, without a checkpoint.
    let child = command.spawn().unwrap();
    Some(Server { child, _dir: dir, _port: socket, port, tls, end: Signal::QUIT })
}

/// Redis with the password `p@w`.
pub(crate) fn redis() -> Option<Server> {
    let Some(redis) = program("redis-server") else {
        println!("skipped: Redis is not installed (redis-server)");
        return None;
    };
    let (dir, (socket, port)) = (Dir::new("redis"), own_port());
    let mut command = Command::new(redis);
    command.current_dir(&dir.0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.args(["--requirepass", "p@w"]);
    let tls = ClientTls::default();
    let child = command.spawn().unwrap();
    Some(Server { child, _dir: dir, _port: socket, port, tls, end: Signal::KILL })
}

/// Finds a program in `PATH`, or where distributions install PostgreSQL.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    dirs.extend(versions.map(|version| version.path().join("bin")));
    dirs.iter().map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Whether a user may traverse a directory, by its mode.
fn lets_in(dir: &Path, uid: u32) -> bool {
    let found = std::fs::metadata(dir).unwrap();
    found.mode() & 0o001 != 0 || found.uid() == uid && found.mode() & 0o100 != 0
}

/// UID and GID of a user; those of nobody if it does not exist.
fn user(name: &str) -> (u32, u32) {
    let all = std::fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let mut fields = line.split(':').skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    find(name).or_else(|| find("nobody")).expect("no user to run PostgreSQL as")
}

/// Waits up to a minute until a server accepts connections.
pub(crate) fn wait_for(port: u16) {
    for _ in 0..6_000 {
        if std::net::TcpStream::connect((ADDRESS, port)).is_ok() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("nobody listens on port {port}");
}

/// A free port and the socket that reserves it: it is bound but does not listen, so that a server
/// with SO_REUSEADDR can use the port, and the kernel assigns it to nobody else.
fn own_port() -> (Socket, u16) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SockAddr::from(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    (socket, port)
}

/// HTTP/1.1, HTTP/2 and gRPC, until dropped.
pub(crate) struct Hyper {
    pub(crate) port: u16,
    /// Client TLS settings for this server, at [`ADDRESS`].
    pub(crate) tls: ClientTls,
    _runtime: tokio::runtime::Runtime,
}

impl Hyper {
    pub(crate) fn start() -> Hyper {
        Hyper::with(None, ClientTls::default())
    }

    /// With TLS and a self-signed certificate.
    pub(crate) fn secured(dir: &Dir) -> Hyper {
        let (server, client) = certificate(&dir.0);
        Hyper::with(Some(TlsAcceptor::from(Arc::new(server.config().unwrap()))), client)
    }

    fn with(acceptor: Option<TlsAcceptor>, tls: ClientTls) -> Hyper {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                // A response in two segments would be delayed by 40 ms now and then (RFC 896, RFC
                // 1122 4.2.3.2).
                socket.set_nodelay(true).unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    match acceptor {
                        None => serve(socket).await,
                        Some(acceptor) => match acceptor.accept(socket).await {
                            Ok(socket) => serve(socket).await,
                            Err(error) => println!("no TLS: {error}"),
                        },
                    }
                });
            }
        });
        Hyper { port, tls, _runtime: runtime }
    }
}

async fn serve(socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(20);
    let service = hyper::service::service_fn(answer);
    let _ = builder.serve_connection(TokioIo::new(socket), service).await;
}

/// `/length/3` responds with three bytes, `/status/404` with that status, `/a.B/<status>` is a gRPC
/// call; all after reading the request.
async fn answer(
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let path = request.uri().path().to_owned();
    let is_head = request.method() == http::Method::HEAD;
    let Ok(body) = request.into_body().collect().await else {
        return Ok(Response::new(Full::default().boxed()));
    };
    let body = body.to_bytes();
    let mut parts = path.trim_start_matches('/').split('/');
    let response = match (parts.next(), parts.next()) {
        (Some("length"), Some(length)) if is_head => {
            let response = Response::builder().header("content-length", length);
            response.body(Full::default().boxed()).unwrap()
        }
        (Some("length"), Some(length)) => {
            Response::new(Full::from(vec![b'x'; length.parse().unwrap()]).boxed())
        }
        (Some("status"), Some(status)) => {
            Response::builder().status(status).body(Full::default().boxed()).unwrap()
        }
        // Echoes the message. Without one, the response is only a status, in the headers.
        (Some("a.B"), Some(status)) => {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_str(status).unwrap());
            if body.len() > 5 {
                let body = Full::new(body);
                let body = body.with_trailers(std::future::ready(Some(Ok(trailers))));
                Response::new(body.boxed())
            } else {
                let mut response = Response::new(Full::default().boxed());
                *response.headers_mut() = trailers;
                response
            }
        }
        _ => Response::new(Full::new(body).boxed()),
    };
    Ok(response)
}
