//! The dialer against servers of this process: plain, TLS 1.2 and 1.3, silent, and with long
//! responses.

use std::convert::Infallible;
use std::net::SocketAddr;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    let said = format!("{:?} {} {}", request.version(), request.uri().path(), host.unwrap_or("?"));
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let said = format!("{said} {}", String::from_utf8_lossy(&body));
    Ok(Response::new(Full::new(said.into())))
}

/// Serves connections one at a time, with or without TLS.
async fn serve(tls: Option<TlsAcceptor>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = match tls {
                    None => {
                        builder.serve_connection(TokioIo::new(stream), service_fn(respond)).await
                    }
                    Some(tls) => {
                        let Ok(stream) = tls.accept(stream).await else { return };
                        builder.serve_connection(TokioIo::new(stream), service_fn(respond)).await
                    }
                };
            });
        }
    });
    port
}

/// A server's certificate, and the client configuration that trusts it.
fn certificates(alpn: &[&[u8]]) -> (TlsAcceptor, Arc<ClientConfig>) {
    let own =
        rcgen::generate_simple_self_signed(["localhost", "127.0.0.1"].map(str::to_owned)).unwrap();
    let certificate = own.cert.der().clone();
    let key = rustls_pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    server.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (TlsAcceptor::from(Arc::new(server)), Arc::new(client))
}

/// Longer than any step takes on the slowest machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const LIMITS: ResponseLimits = ResponseLimits { timeout: TIMEOUT, max_bytes: 1 << 16 };

fn dialer(tls: Option<Arc<ClientConfig>>) -> Dialer {
    let limits = DialTimeouts { resolve: TIMEOUT, connect: TIMEOUT, tls: TIMEOUT };
    Dialer { tls, limits, ..Dialer::default() }
}

/// The name in the certificates, if this machine resolves it; otherwise the address, which they
/// contain too.
async fn local_host_name() -> &'static str {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let found = tokio::net::lookup_host(("localhost", 0)).await;
    if found.is_ok_and(|mut found| found.any(|it| it == address)) {
        return "localhost";
    }
    println!("skipped: localhost is not 127.0.0.1 here, names in certificates are not compared");
    "127.0.0.1"
}

fn post(body: &'static str) -> Request<Bytes> {
    Request::post("/a?b").body(Bytes::from_static(body.as_bytes())).unwrap()
}

async fn check_response(dialer: &Dialer, url: String, expected: &str) -> PhaseTimes {
    let target = Endpoint::parse(&url).unwrap();
    let (mut connection, phases) = dialer.dial(&target).await.unwrap();
    // Twice: a connection serves more than one request.
    for _ in 0..2 {
        let answer = connection.send(post("body"), LIMITS).await.unwrap();
        let body = String::from_utf8_lossy(answer.response.body()).into_owned();
        assert_eq!(body, expected.replace("PORT", &target.port.to_string()));
        assert!(connection.is_open());
    }
    phases
}

#[tokio::test]
async fn plain_connection_reports_phase_times() {
    let port = serve(None).await;
    let url = format!("http://127.0.0.1:{port}");
    let phases = check_response(&dialer(None), url, "HTTP/1.1 /a 127.0.0.1:PORT body").await;
    assert!(phases.connect > Duration::ZERO);
    assert_eq!(phases.tls, Duration::ZERO);
}

#[tokio::test]
async fn tls_negotiates_common_http_version() {
    let name = local_host_name().await;
    for (alpn, expected) in [
        (&[&b"h2"[..], b"http/1.1"][..], "HTTP/2.0 /a NAME:PORT body"),
        (&[&b"http/1.1"[..]], "HTTP/1.1 /a NAME:PORT body"),
        (&[], "HTTP/1.1 /a NAME:PORT body"),
    ] {
        let (server, client) = certificates(alpn);
        let port = serve(Some(server)).await;
        let url = format!("https://{name}:{port}");
        let phases =
            check_response(&dialer(Some(client)), url, &expected.replace("NAME", name)).await;
        assert!(phases.tls > Duration::ZERO);
    }
}

async fn dial_error(dialer: &Dialer, url: &str) -> Error {
    dialer.dial(&Endpoint::parse(url).unwrap()).await.unwrap_err()
}

#[tokio::test]
async fn error_names_the_failed_phase() {
    let (server, _) = certificates(&[]);
    let port = serve(Some(server)).await;
    let (_, stranger) = certificates(&[]);
    let url = format!("https://127.0.0.1:{port}");
    let error = dial_error(&dialer(Some(stranger)), &url).await;
    assert_eq!((error.phase, error.is_timeout), (RequestPhase::Tls, false), "{error}");
    let error = dial_error(&dialer(None), &url).await;
    assert_eq!(error.reason, "TLS is not configured");

    // A user who wrote https:// read of "corrupt message of type InvalidContentType".
    let plain = serve(None).await;
    let (_, client) = certificates(&[]);
    let error = dial_error(&dialer(Some(client)), &format!("https://127.0.0.1:{plain}")).await;
    assert_eq!(error.reason, "the server does not use TLS; use http://");

    // Bound, so that no other process gets the port, but not listening.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let port = closed.local_addr().unwrap().port();
    let error = dial_error(&dialer(None), &format!("http://127.0.0.1:{port}")).await;
    assert_eq!((error.phase, error.is_timeout), (RequestPhase::Connect, false), "{error}");
}

#[tokio::test]
async fn silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}", listener.local_addr().unwrap());
    let (mut connection, _) = dialer(None).dial(&Endpoint::parse(&target).unwrap()).await.unwrap();
    let allowed = ResponseLimits { timeout: Duration::from_millis(20), max_bytes: 100 };
    let error = connection.send(post(""), allowed).await.unwrap_err();
    assert_eq!((error.phase, error.is_timeout), (RequestPhase::Response, true), "{error}");
}

#[tokio::test]
async fn body_above_the_limit_is_rejected() {
    let port = serve(None).await;
    let target = Endpoint::parse(&format!("http://127.0.0.1:{port}")).unwrap();
    let (mut connection, _) = dialer(None).dial(&target).await.unwrap();
    let allowed = ResponseLimits { max_bytes: 10, ..LIMITS };
    let error = connection.send(post("more than ten bytes"), allowed).await.unwrap_err();
    assert_eq!(error.reason, "response body exceeds 10 bytes");
}
