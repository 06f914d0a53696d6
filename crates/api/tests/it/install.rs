//! Installation of agents: the script, programs, and the enrollment of hosts.

use api::{EnrollmentTerms, Scope, TokenFile};

use crate::client::{RawResponse, connect, exchange};
use crate::fixture::{ServerFixture, TestDir, local_settings};

const RECORD: &str = "/v1/record?metric=a";
const HOST: &str = "{\"name\":\"web 1\"}";

/// A server that requires tokens, and its token file.
struct EnrollmentFixture {
    server: ServerFixture,
    tokens: TokenFile,
    _dir: TestDir,
}

impl EnrollmentFixture {
    fn new() -> EnrollmentFixture {
        let dir = TestDir::new();
        let path = dir.0.join("tokens");
        let mut tokens = TokenFile::open(&path).unwrap();
        tokens.add("other", &[Scope::Ingest], 1).unwrap();
        let mut settings = local_settings(None);
        settings.tokens = Some(path);
        settings.tokens_required = true;
        EnrollmentFixture { server: ServerFixture::with(settings), tokens, _dir: dir }
    }

    /// The secret of a new enrollment token.
    fn add(&mut self, expires_s: i64) -> String {
        let name = format!("e{}", self.tokens.tokens().len());
        let terms = EnrollmentTerms { expires_s, uses_left: 1 };
        self.tokens.add_enrollment(&name, terms, 1).unwrap()
    }

    fn enroll(&self, secret: &str) -> RawResponse {
        self.server.post("/v1/enroll", &bearer(secret), HOST)
    }
}

fn bearer(secret: &str) -> String {
    format!("Authorization: Bearer {secret}\r\n")
}

#[test]
fn a_host_exchanges_an_enrollment_token_for_its_own() {
    let mut it = EnrollmentFixture::new();
    // Created while the server runs, and used at once.
    let secret = it.add(i64::MAX / 2);
    let enrolled = it.enroll(&secret);
    enrolled.check(201, "\"name\":\"web-1\"");
    let answer: serde_json::Value = serde_json::from_slice(&enrolled.body).unwrap();
    let own = bearer(answer["token"].as_str().unwrap());
    // Valid at once, too.
    it.server.post(RECORD, &own, "1").check(200, "");
    it.enroll(&secret).check(403, "has no uses left");
    // It permits nothing else.
    it.server.post(RECORD, &bearer(&secret), "1").check(403, "lacks scope ingest");
    let found = it.server.request("GET", "/v1/enroll", &own, b"");
    found.check(200, "{\"name\":\"web-1\",\"received_ns\":null}");
    it.server.request("DELETE", "/v1/enroll", &own, b"").check(200, "\"removed\":\"web-1\"");
    it.server.post(RECORD, &own, "1").check(401, "unknown token");
}

/// A failed installation had spent a token for one host.
#[test]
fn an_enrollment_that_is_undone_gives_its_use_back() {
    let mut it = EnrollmentFixture::new();
    let secret = it.add(i64::MAX / 2);
    for _ in 0..2 {
        let enrolled = it.enroll(&secret);
        enrolled.check(201, "\"name\":\"web-1\"");
        it.enroll(&secret).check(403, "has no uses left");
        let answer: serde_json::Value = serde_json::from_slice(&enrolled.body).unwrap();
        let own = bearer(answer["token"].as_str().unwrap());
        it.server.request("DELETE", "/v1/enroll", &own, b"").check(200, "");
    }
}

#[test]
fn other_requests_enroll_nobody() {
    let mut it = EnrollmentFixture::new();
    let (secret, expired) = (it.add(i64::MAX / 2), it.add(2));
    it.enroll(&expired).check(403, "has expired; create one on the server");
    it.enroll(&secret[1..]).check(401, "unknown enrollment token; create one on the server");
    // A secret in the URL is none: it would be in logs of proxies.
    let path = format!("/v1/enroll?token={secret}");
    it.server.post(&path, "", HOST).check(401, "enrollment token required");
    let basic = "Authorization: Basic dTpz\r\n";
    it.server.post("/v1/enroll", basic, HOST).check(401, "enrollment token required");
    for body in ["", "[]", "{\"name\":7}"] {
        it.server.post("/v1/enroll", &bearer(&secret), body).check(400, "invalid body: expected");
    }
    let other = it.tokens.add("more", &[Scope::Ingest], 1).unwrap();
    it.server.server.as_ref().unwrap().reload().unwrap();
    let refused = it.server.request("DELETE", "/v1/enroll", &bearer(&other), b"");
    refused.check(403, "token more is not from an enrollment");
    // All of this used nothing up.
    it.enroll(&secret).check(201, "");
}

#[track_caller]
fn check_script(headers: &str, parts: &[&str]) {
    let it = ServerFixture::new();
    let request = format!("GET /install.sh HTTP/1.1\r\n{headers}\r\n");
    let response = exchange(&mut connect(it.address), request.as_bytes());
    response.check(200, "");
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let text = response.text();
    for part in parts {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("='@"), "a field is not filled");
}

#[test]
fn the_script_has_the_server_the_token_and_checksums() {
    let secret = format!("td_{}", "0f".repeat(32));
    let machine = std::env::consts::ARCH;
    let sum = format!("  topdeck-{machine}\n");
    let server = "\nserver='http://north:7717'\n";
    check_script("Host: north:7717\r\n", &[server, "\npin=''\n", "\ntoken=''\n", &sum]);
    let own = format!("\ntoken='{secret}'\n");
    check_script(&format!("Host: north:7717\r\n{}", bearer(&secret)), &[server, &own]);
    // Only what has the form of a secret gets into the script.
    let headers = format!("Host: north:7717\r\n{}", bearer("';touch x;'"));
    check_script(&headers, &["\ntoken=''\n"]);
    // Behind a proxy with TLS.
    let headers = "Host: north\r\nX-Forwarded-Proto: https\r\n";
    check_script(headers, &["\nserver='https://north'\n"]);
}

#[test]
fn a_host_with_quotes_gets_no_script() {
    let it = ServerFixture::new();
    let request = b"GET /install.sh HTTP/1.1\r\nHost: a';touch${IFS}x;'\r\n\r\n";
    exchange(&mut connect(it.address), request).check(400, "");
}

#[test]
fn programs_have_the_listed_checksums() {
    let it = ServerFixture::new();
    let get = |file: &str| it.request("GET", &format!("/v1/install/{file}"), "", b"");
    let machine = std::env::consts::ARCH;
    let sums = get("SHA256SUMS").text();
    // Programs of other architectures need a directory in the settings.
    assert_eq!(sums.lines().count(), 1, "{sums}");
    let program = get(&format!("topdeck-{machine}"));
    program.check(200, "");
    // The test is the server.
    assert_eq!(program.body, std::fs::read("/proc/self/exe").unwrap());
    let digest = ring::digest::digest(&ring::digest::SHA256, &program.body);
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(sums, format!("{digest}  topdeck-{machine}\n"));
    let other = if machine == "x86_64" { "aarch64" } else { "x86_64" };
    get(&format!("topdeck-{other}")).check(404, "set `binaries` in [install] of the server");
    get("topdeck-riscv64").check(404, "expected topdeck-x86_64, topdeck-aarch64");
    get("..%2ftokens").check(404, "no file");
}
