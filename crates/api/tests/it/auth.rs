//! Tokens, scopes, TLS, certificates.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{ListenSettings, Scope, ServerError, TokenFile};
use decode::SeriesSink as _;
use net::tls::{ClientTls, ServerTls};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::client::{RawResponse, connect, exchange, read_response, request};
use crate::fixture::{ServerFixture, TestDir, local_settings};

const RECORD: &str = "/v1/record?metric=a";

fn bearer(secret: &str) -> String {
    format!("Authorization: Bearer {secret}\r\n")
}

#[test]
fn tokens_are_needed_where_they_are_required() {
    let dir = TestDir::new();
    let path = dir.0.join("tokens");
    let mut tokens = TokenFile::open(&path).unwrap();
    let web = tokens.add("web", &[Scope::Ingest], 1).unwrap();
    let reader = tokens.add("reader", &[Scope::Read], 1).unwrap();
    let mut settings = local_settings(None);
    settings.tokens = Some(path.clone());
    settings.tokens_required = true;
    let it = ServerFixture::with(settings);
    let refused = it.post(RECORD, "", "1");
    refused.check(401, "token with scope ingest required: send `Authorization: Bearer TOKEN`");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    it.post(RECORD, &bearer("x"), "1").check(401, "unknown token");
    let refused = it.post(RECORD, &bearer(&reader), "1");
    refused
        .check(403, "lacks scope ingest; create one with it: `topdeck token DIR add NAME ingest`");
    it.post(RECORD, &bearer(&web), "1").check(200, "");
    it.post(&format!("/module/httptrap/c/{web}"), "", "{\"a\":1}").check(200, "\"stats\":1");
    it.post("/module/httptrap/c/x", "", "{\"a\":1}").check(401, "");
    assert_eq!((it.rejected("token"), it.rejected("forbidden")), (3, 1));
    // Routes of roles require scope read.
    it.request("GET", "/v1/offered", "", b"").check(401, "token with scope read required");
    it.request("GET", "/v1/offered", &bearer(&web), b"").check(403, "lacks scope read");
    it.request("GET", "/v1/offered", &bearer(&reader), b"").check(200, "7");
    // Changes of the file apply after a reload.
    let new = tokens.add("new", &[Scope::Ingest], 1).unwrap();
    assert!(tokens.remove("web").unwrap());
    it.server.as_ref().unwrap().reload().unwrap();
    it.post(RECORD, &bearer(&new), "1").check(200, "");
    it.post(RECORD, &bearer(&web), "1").check(401, "");
    std::fs::write(&path, "nonsense\n").unwrap();
    assert!(it.server.as_ref().unwrap().reload().is_err());
    it.post(RECORD, &bearer(&new), "1").check(200, "");
    // The file is polled too.
    let why = "line 1: expected name, scopes, credential, created; found 1 fields";
    let began = std::time::Instant::now();
    while !it.request("GET", "/v1/status", &bearer(&reader), b"").text().contains(why) {
        assert!(began.elapsed().as_secs() < 60, "the status says so");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn public_address_requires_tokens() {
    let dir = TestDir::new();
    let mut settings = local_settings(None);
    let address = SocketAddr::from(([0, 0, 0, 0], 0));
    settings.listen.push(ListenSettings { address, tls: None });
    let error = |settings: &api::Settings| {
        ServerFixture::start(settings.clone()).err().map(|e| e.to_string())
    };
    assert!(error(&settings).unwrap().contains("cannot listen on 0.0.0.0:0 without tokens"));
    settings.tokens = Some(dir.0.join("tokens"));
    assert!(error(&settings).unwrap().contains("add a token"));
    let mut tokens = TokenFile::open(&dir.0.join("tokens")).unwrap();
    tokens.add("one", &[Scope::Read], 1).unwrap();
    assert_eq!(error(&settings), None);
    settings.listen[1].address = SocketAddr::from(([192, 0, 2, 1], 1));
    assert!(error(&settings).unwrap().contains("cannot listen on 192.0.2.1:1: "));
    let mut settings = local_settings(None);
    settings.tokens_required = true;
    let found = ServerFixture::start(settings).err();
    assert!(matches!(found, Some(ServerError::NoTokens)));
}

#[test]
fn cross_origin_browser_requests_are_rejected() {
    let it = ServerFixture::new();
    let asked =
        "POST /v1/record?metric=a HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1\r\n\r\n1";
    exchange(&mut connect(it.address), asked.as_bytes()).check(403, "host \\\"evil.example");
    it.post(RECORD, "Origin: http://evil.example\r\n", "1").check(403, "cross-origin write from");
    it.post(RECORD, "Origin: http://localhost\r\n", "1").check(200, "");
    assert_eq!(it.count("a"), 1);
}

/// A certificate authority, with certificates in files.
struct TestCa {
    dir: TestDir,
    issuer: Issuer<'static, KeyPair>,
}

impl TestCa {
    fn new() -> TestCa {
        let dir = TestDir::new();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(dir.0.join("ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
        TestCa { dir, issuer: Issuer::new(params, key) }
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

    /// Sends a request over TLS, with or without a client certificate; the server name is
    /// localhost.
    fn request(
        &self,
        address: SocketAddr,
        certificate: Option<&str>,
        ca: &Path,
    ) -> Option<RawResponse> {
        let file = |end: &str| certificate.map(|name| self.path(&format!("{name}.{end}")));
        let (ca, certificate, key) = (Some(ca.to_owned()), file("crt"), file("key"));
        let tls = ClientTls { ca, certificate, key, pins: Vec::new() };
        let config = Arc::new(tls.config().unwrap());
        let name = "localhost".try_into().unwrap();
        let connection = rustls::ClientConnection::new(config, name).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, connect(address));
        use std::io::Write as _;
        stream.write_all(&request("POST", RECORD, "", b"1")).ok()?;
        read_response(&mut stream)
    }
}

#[test]
fn client_certificate_replaces_a_token() {
    let authority = TestCa::new();
    for (name, host) in [("server", Some("localhost")), ("edge", None), ("other", None)] {
        authority.issue(name, host);
    }
    let mut tokens = TokenFile::open(&authority.path("tokens")).unwrap();
    tokens.add_certificate("edge-1", "edge", &[Scope::Ingest], 1).unwrap();
    let mut settings = local_settings(Some(authority.server("server")));
    settings.tokens = Some(authority.path("tokens"));
    settings.tokens_required = true;
    let it = ServerFixture::with(settings);
    let ca = authority.path("ca.crt");
    authority.request(it.address, Some("edge"), &ca).unwrap().check(200, "\"values\":1");
    authority
        .request(it.address, Some("other"), &ca)
        .unwrap()
        .check(401, "token with scope ingest");
    authority.request(it.address, None, &ca).unwrap().check(401, "token with scope ingest");
    let stranger = TestCa::new();
    stranger.issue("edge", None);
    assert_eq!(stranger.request(it.address, Some("edge"), &ca), None, "of an unknown authority");
    assert_eq!(it.count("a"), 1);
    // New connections get a changed certificate.
    let renewed = TestCa::new();
    renewed.issue("server", Some("localhost"));
    for end in ["server.crt", "server.key"] {
        std::fs::copy(renewed.path(end), authority.path(end)).unwrap();
    }
    it.server.as_ref().unwrap().reload().unwrap();
    assert_eq!(
        authority.request(it.address, Some("edge"), &ca),
        None,
        "the old authority is no more"
    );
    let new_ca = renewed.path("ca.crt");
    authority.request(it.address, Some("edge"), &new_ca).unwrap().check(200, "\"values\":1");
}

#[test]
fn a_plain_request_to_tls_is_counted() {
    let authority = TestCa::new();
    authority.issue("server", Some("localhost"));
    let it = ServerFixture::with(local_settings(Some(authority.server("server"))));
    let mut plain = connect(it.address);
    use std::io::Write as _;
    plain.write_all(&request("POST", RECORD, "", b"1")).unwrap();
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain, &mut rest);
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
    authority.request(it.address, None, &authority.path("ca.crt")).unwrap().check(200, "");
    assert_eq!((it.rejected("handshake"), it.count("a")), (1, 1));
}

#[test]
fn routes_that_change_alerts_need_their_scope_and_know_the_token() {
    let dir = TestDir::new();
    let file = dir.0.join("tokens");
    let mut tokens = TokenFile::open(&file).unwrap();
    let operator = tokens.add("operator", &[Scope::Alerts], 1).unwrap();
    let reader = tokens.add("reader", &[Scope::Read, Scope::Admin], 1).unwrap();
    let mut settings = local_settings(None);
    (settings.tokens, settings.tokens_required) = (Some(file), true);
    let it = ServerFixture::with(settings);
    let (path, operator, reader) = ("/api/v2/offered", bearer(&operator), bearer(&reader));
    it.post(path, "", "x").check(401, "token with scope alerts required");
    it.post(path, &reader, "x").check(403, "token reader lacks scope alerts");
    it.post(path, &operator, "x").check(200, "- operator x");
    it.post(&format!("{path}?unknown=1"), &operator, "x").check(200, "- operator x");
    assert_eq!(it.post(path, &operator, "none").body, b"");
    // Clients of Alertmanager read an error as a text.
    assert_eq!(it.post(path, &operator, "bad").body, b"\"it is bad\"");
    let own = |path: &str, body: &[u8]| it.request("DELETE", path, &operator, body);
    own("/v1/offered/a%20b", b"x").check(200, "a b operator x");
    own("/v1/offered/a", b"bad").check(400, "{\"error\":\"it is bad\"}");
    own("/v1/offered/a?unknown=1", b"x").check(400, "unknown parameter");
    it.request("GET", path, &reader, b"").check(405, "method GET is not allowed");
    let described = it.request("GET", "/v1/openapi.json", "", b"").body;
    let described: serde_json::Value = serde_json::from_slice(&described).unwrap();
    let operation = &described["paths"]["/v1/offered/{id}"]["delete"];
    assert_eq!(operation["parameters"][0]["in"], "path", "{operation:#}");
    assert_eq!(operation["security"][0]["token"][0], "alerts", "{operation:#}");
}

/// Grafana has a token of scope read, and asks for exemplars beside each query.
#[test]
fn exemplars_need_a_scope_of_their_own() {
    let dir = TestDir::new();
    let path = dir.0.join("tokens");
    let mut tokens = TokenFile::open(&path).unwrap();
    let reader = tokens.add("reader", &[Scope::Read], 1).unwrap();
    let analyst = tokens.add("analyst", &[Scope::Read, Scope::Exemplars], 1).unwrap();
    let mut settings = local_settings(None);
    settings.tokens = Some(path);
    settings.tokens_required = true;
    let it = ServerFixture::with(settings);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let exemplar = model::Exemplar {
        time: now.as_nanos() as i64,
        value: 7.0,
        trace_id: [0xab; 16],
        span_id: [0; 8],
        attributes: model::ExemplarAttributes::new([("user", "u1")]).0,
        source: model::ExemplarSource::Otlp,
    };
    let mut writer = it.intake.writer(intake::SeriesKeyEncoding::CANONICAL);
    let series = model::Series::new("depth", model::SeriesKind::Gauge).validate().unwrap();
    let (key, mut make) = (series.canonical_key(), || Ok(series.clone()));
    writer.series(&key, &mut make).unwrap();
    let (at, value) = (exemplar.time, model::SampleValue::Number(1.0));
    writer.sample(&model::Sample { start: at, end: at, value }).unwrap();
    assert!(writer.exemplar(&key, &mut make, &exemplar));
    it.intake.append(&it.intake.producer("test"), writer).unwrap().wait_durable().unwrap();
    let get = |path: &str, token: &str| it.request("GET", path, &bearer(token), b"");
    let own = "/v1/exemplars?selector=depth";
    get(own, &reader).check(403, "lacks scope exemplars");
    get(own, &analyst).check(200, "\"user\":\"u1\"");
    for path in ["/api/traces/ab", "/api/v2/traces/ab", "/api/search", "/api/search/tags"] {
        get(path, &reader).check(403, "lacks scope exemplars");
        let status = get(path, &analyst).status;
        assert_eq!(status, if path.ends_with("ab") { 404 } else { 200 }, "{path}");
    }
    let prometheus = "/api/v1/query_exemplars?query=depth";
    let refused = get(prometheus, &reader);
    refused.check(200, "\"data\":[],\"warnings\":[\"exemplars are left out: the token lacks scope");
    let expected = format!(
        "{{\"status\":\"success\",\"data\":[{{\"seriesLabels\":{{\"__name__\":\"depth\"}},\
         \"exemplars\":[{{\"labels\":{{\"trace_id\":\"{}\",\"user\":\"u1\"}},\"value\":\"7\",\
         \"timestamp\":",
        "ab".repeat(16)
    );
    get(prometheus, &analyst).check(200, &expected);
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let posted = it.post("/api/v1/query_exemplars", &(bearer(&analyst) + form), "query=depth");
    posted.check(200, &expected);
    it.request("GET", prometheus, "", b"").check(401, "token with scope read required");
}
