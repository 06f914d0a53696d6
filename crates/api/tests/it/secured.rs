//! Tokens, scopes, TLS, certificates.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{Listen, Scope, ServerError, Tokens};
use net::tls::{ClientTls, ServerTls};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::client::{Answer, answer, ask, connect, request};
use crate::fixture::{Dir, Fixture, local};

const RECORD: &str = "/v1/record?metric=a";

fn bearer(secret: &str) -> String {
    format!("Authorization: Bearer {secret}\r\n")
}

#[test]
fn tokens_are_needed_where_they_are_required() {
    let dir = Dir::new();
    let path = dir.0.join("tokens");
    let mut tokens = Tokens::open(&path).unwrap();
    let web = tokens.add("web", &[Scope::Ingest], 1).unwrap();
    let reader = tokens.add("reader", &[Scope::Read], 1).unwrap();
    let mut settings = local(None);
    settings.tokens = Some(path.clone());
    settings.tokens_required = true;
    let it = Fixture::with(settings);
    let refused = it.post(RECORD, "", "1");
    refused.is(401, "a token with the scope ingest is needed: send `Authorization: Bearer TOKEN`");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    it.post(RECORD, &bearer("x"), "1").is(401, "is not known");
    it.post(RECORD, &bearer(&reader), "1").is(403, "does not have the scope ingest");
    it.post(RECORD, &bearer(&web), "1").is(200, "");
    it.post(&format!("/module/httptrap/c/{web}"), "", "{\"a\":1}").is(200, "\"stats\":1");
    it.post("/module/httptrap/c/x", "", "{\"a\":1}").is(401, "");
    assert_eq!((it.refused("token"), it.refused("forbidden")), (3, 1));
    // Routes of roles are for those who may read.
    it.ask("GET", "/v1/offered", "", b"").is(401, "a token with the scope read is needed");
    it.ask("GET", "/v1/offered", &bearer(&web), b"").is(403, "does not have the scope read");
    it.ask("GET", "/v1/offered", &bearer(&reader), b"").is(200, "7");
    // What changes in the file counts after a reload.
    let new = tokens.add("new", &[Scope::Ingest], 1).unwrap();
    assert!(tokens.remove("web").unwrap());
    it.server.as_ref().unwrap().reload().unwrap();
    it.post(RECORD, &bearer(&new), "1").is(200, "");
    it.post(RECORD, &bearer(&web), "1").is(401, "");
    std::fs::write(&path, "nonsense\n").unwrap();
    assert!(it.server.as_ref().unwrap().reload().is_err());
    it.post(RECORD, &bearer(&new), "1").is(200, "");
    // It is looked at now and then, too.
    let why = "line 1: expected name, scopes, what, since; found 1 fields";
    let began = std::time::Instant::now();
    while !it.ask("GET", "/v1/status", &bearer(&reader), b"").text().contains(why) {
        assert!(began.elapsed().as_secs() < 60, "the status says so");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn nobody_listens_to_everybody_without_tokens() {
    let dir = Dir::new();
    let mut settings = local(None);
    let address = SocketAddr::from(([0, 0, 0, 0], 0));
    settings.listen.push(Listen { address, tls: None });
    let error =
        |settings: &api::Settings| Fixture::start(settings.clone()).err().map(|e| e.to_string());
    assert!(error(&settings).unwrap().contains("will not listen on 0.0.0.0:0 without tokens"));
    settings.tokens = Some(dir.0.join("tokens"));
    assert!(error(&settings).unwrap().contains("name a file of tokens with at least one in it"));
    let mut tokens = Tokens::open(&dir.0.join("tokens")).unwrap();
    tokens.add("one", &[Scope::Read], 1).unwrap();
    assert_eq!(error(&settings), None);
    settings.listen[1].address = SocketAddr::from(([192, 0, 2, 1], 1));
    assert!(error(&settings).unwrap().contains("cannot listen on 192.0.2.1:1: "));
    let mut settings = local(None);
    settings.tokens_required = true;
    let found = Fixture::start(settings).err();
    assert!(matches!(found, Some(ServerError::NoTokens)));
}

#[test]
fn pages_in_a_browser_do_not_get_in() {
    let it = Fixture::new();
    let asked =
        "POST /v1/record?metric=a HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1\r\n\r\n1";
    ask(&mut connect(it.address), asked.as_bytes())
        .is(403, "may be asked for, not \\\"evil.example");
    it.post(RECORD, "Origin: http://evil.example\r\n", "1").is(403, "may not write here");
    it.post(RECORD, "Origin: http://localhost\r\n", "1").is(200, "");
    assert_eq!(it.count("a"), 1);
}

/// An authority, and certificates of it in files.
struct Authority {
    dir: Dir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let dir = Dir::new();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(dir.0.join("ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { dir, issuer: Issuer::new(params, key) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.0.join(name)
    }

    fn issue(&self, name: &str, host: Option<&str>) {
        let key = KeyPair::generate().unwrap();
        let hosts: Vec<String> = host.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.crt")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn server(&self, name: &str) -> ServerTls {
        ServerTls {
            certificate: self.path(&format!("{name}.crt")),
            key: self.path(&format!("{name}.key")),
            client_ca: Some(self.path("ca.crt")),
        }
    }

    /// Asks over TLS, with a certificate or without; the server's name is localhost.
    fn ask(&self, address: SocketAddr, certificate: Option<&str>, ca: &Path) -> Option<Answer> {
        let file = |end: &str| certificate.map(|name| self.path(&format!("{name}.{end}")));
        let tls = ClientTls { ca: Some(ca.to_owned()), certificate: file("crt"), key: file("key") };
        let config = Arc::new(tls.config().unwrap());
        let name = "localhost".try_into().unwrap();
        let connection = rustls::ClientConnection::new(config, name).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, connect(address));
        use std::io::Write as _;
        stream.write_all(&request("POST", RECORD, "", b"1")).ok()?;
        answer(&mut stream)
    }
}

#[test]
fn a_certificate_stands_for_a_token() {
    let authority = Authority::new();
    for (name, host) in [("server", Some("localhost")), ("edge", None), ("other", None)] {
        authority.issue(name, host);
    }
    let mut tokens = Tokens::open(&authority.path("tokens")).unwrap();
    tokens.add_certificate("edge-1", "edge", &[Scope::Ingest], 1).unwrap();
    let mut settings = local(Some(authority.server("server")));
    settings.tokens = Some(authority.path("tokens"));
    settings.tokens_required = true;
    let it = Fixture::with(settings);
    let ca = authority.path("ca.crt");
    authority.ask(it.address, Some("edge"), &ca).unwrap().is(200, "\"values\":1");
    authority.ask(it.address, Some("other"), &ca).unwrap().is(401, "a token with the scope ingest");
    authority.ask(it.address, None, &ca).unwrap().is(401, "a token with the scope ingest");
    let stranger = Authority::new();
    stranger.issue("edge", None);
    assert_eq!(stranger.ask(it.address, Some("edge"), &ca), None, "of an unknown authority");
    assert_eq!(it.count("a"), 1);
    // A certificate that changed is shown to new connections.
    let renewed = Authority::new();
    renewed.issue("server", Some("localhost"));
    for end in ["server.crt", "server.key"] {
        std::fs::copy(renewed.path(end), authority.path(end)).unwrap();
    }
    it.server.as_ref().unwrap().reload().unwrap();
    assert_eq!(authority.ask(it.address, Some("edge"), &ca), None, "the old authority is no more");
    let new_ca = renewed.path("ca.crt");
    authority.ask(it.address, Some("edge"), &new_ca).unwrap().is(200, "\"values\":1");
}

#[test]
fn a_plain_request_to_tls_is_counted() {
    let authority = Authority::new();
    authority.issue("server", Some("localhost"));
    let it = Fixture::with(local(Some(authority.server("server"))));
    let mut plain = connect(it.address);
    use std::io::Write as _;
    plain.write_all(&request("POST", RECORD, "", b"1")).unwrap();
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain, &mut rest);
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
    authority.ask(it.address, None, &authority.path("ca.crt")).unwrap().is(200, "");
    assert_eq!((it.refused("handshake"), it.count("a")), (1, 1));
}
