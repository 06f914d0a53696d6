//! Tests of the kinds of checks besides HTTP, each against a small server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use net::tls::ClientTls;
use pull::{
    CheckJobSettings, CommandProbe, DnsProbe, DnsTransport, GrpcProbe, JsonProbe, NtpProbe,
    PingProbe, Probe, RecordType, Settings, StartTls, TcpProbe,
};

use crate::checks::check;
use crate::fixture::{PullFixture, TestTarget, http_response, server_certificate, wait_until};

/// What is stored of the first attempt of a check.
fn first_attempt(check: CheckJobSettings) -> PullFixture {
    let mut fixture = PullFixture::new();
    fixture.start(&Settings { checks: vec![check], ..Settings::default() });
    let count = |outcome| fixture.count("check", "j", outcome);
    wait_until("an attempt", || count("success") + count("failed") > 0);
    fixture.stop();
    fixture
}

/// A check with `probe` succeeds; the names of its phases.
#[track_caller]
pub(crate) fn success(probe: impl Probe) -> (PullFixture, Vec<String>) {
    success_of(check(probe))
}

#[track_caller]
fn success_of(check: CheckJobSettings) -> (PullFixture, Vec<String>) {
    let fixture = first_attempt(check);
    assert_eq!(fixture.values_of("probe_failure_reason"), [""; 0]);
    assert_eq!(fixture.values_of("probe_success"), ["1"]);
    let phases = fixture.stored().0.into_iter();
    let phases = phases.filter_map(|(series, _)| series.label("phase").map(str::to_owned));
    (fixture, phases.collect())
}

/// A check with `probe` fails, with a reason that contains `expected`.
#[track_caller]
pub(crate) fn failure(probe: impl Probe, expected: &str) -> PullFixture {
    failure_of(check(probe), expected)
}

#[track_caller]
pub(crate) fn failure_of(check: CheckJobSettings, expected: &str) -> PullFixture {
    let fixture = first_attempt(check);
    assert_eq!(fixture.values_of("probe_success"), ["0"]);
    let reason = fixture.values_of("probe_failure_reason");
    assert!(reason[0].contains(expected), "{reason:?}");
    fixture
}

/// Server of datagrams.
pub(crate) fn datagram_server(mut answer: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            socket.send_to(&answer(&buffer[..length]), peer).unwrap();
        }
    });
    address
}

/// Server of connections, one after the other.
pub(crate) fn stream_server(serve: impl Fn(std::net::TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || listener.incoming().for_each(|stream| serve(stream.unwrap())));
    address
}

/// Answer to a query, with an address.
fn dns_answer(query: &[u8]) -> Vec<u8> {
    // The question ends before the record of EDNS, which has 11 bytes.
    let mut answer = query[..query.len() - 11].to_vec();
    answer[2] |= 0x80;
    answer[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
    answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 7]);
    answer
}

fn dns(address: String) -> DnsProbe {
    let (query, answer) = ("shop.example".to_owned(), Some("192.0.2.7".to_owned()));
    DnsProbe { dns: address, query, answer, ..DnsProbe::default() }
}

#[test]
fn name_server_is_asked_over_both_transports() {
    let (fixture, phases) = success(dns(datagram_server(dns_answer)));
    assert_eq!(fixture.values_of("probe_dns_answer_rrs"), ["1"]);
    assert_eq!(fixture.values_of("probe_dns_ttl"), ["300"]);
    assert_eq!(phases, ["resolve", "wait", "total"]);
    let server = stream_server(|mut stream| {
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut query = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut query).unwrap();
        let answer = dns_answer(&query);
        stream.write_all(&(answer.len() as u16).to_be_bytes()).unwrap();
        stream.write_all(&answer).unwrap();
    });
    let (_, phases) = success(DnsProbe { transport: DnsTransport::Tcp, ..dns(server) });
    assert_eq!(phases, ["resolve", "connect", "wait", "total"]);
}

#[test]
fn unexpected_answers_of_a_name_server_fail() {
    let other = Some("192.0.2.8".to_owned());
    let server = datagram_server(dns_answer);
    let expected = "\"192.0.2.8\" not found in the answer, which has 192.0.2.7";
    failure(DnsProbe { answer: other, ..dns(server.clone()) }, expected);
    // The record is an address, and none of what was asked for.
    let wanted = DnsProbe { record_type: RecordType::Txt, ..dns(server) };
    failure(wanted, "which has no record");
    let absent = datagram_server(|query| {
        let mut answer = query.to_vec();
        (answer[2], answer[3]) = (0x81, 3);
        answer
    });
    failure(dns(absent.clone()), "response code NXDOMAIN, expected NOERROR");
    let rcode = Some("nxdomain".to_owned());
    success(DnsProbe { rcode, answer: None, ..dns(absent) });
    failure(dns(datagram_server(|query| query[..2].to_vec())), "shorter than its header");
}

/// Answers with the time of the request, moved by a number of seconds.
fn time_server(stratum: u8, ahead: u32) -> String {
    datagram_server(move |request| {
        let mut answer = vec![0; 48];
        (answer[0], answer[1]) = (4 << 3 | 4, stratum);
        answer[24..32].copy_from_slice(&request[40..48]);
        let seconds = u32::from_be_bytes(request[40..44].try_into().unwrap()) + ahead;
        for at in [32, 40] {
            answer[at..at + 4].copy_from_slice(&seconds.to_be_bytes());
            answer[at + 4..at + 8].copy_from_slice(&request[44..48]);
        }
        answer
    })
}

#[test]
fn clock_of_a_time_server_is_compared() {
    let probe =
        |server, seconds| NtpProbe { ntp: server, max_offset: Some(pull_duration(seconds)) };
    let (fixture, phases) = success(probe(time_server(2, 100), 200));
    let offset: f64 = fixture.values_of("probe_ntp_offset")[0].parse().unwrap();
    // Half of the round trip is missing in the server's times.
    assert!((40.0..=100.0).contains(&offset), "{offset}");
    assert_eq!(fixture.values_of("probe_ntp_stratum"), ["2"]);
    assert_eq!(phases, ["resolve", "wait", "total"]);
    let fixture = failure(probe(time_server(2, 1_000), 200), "is ahead of this host's");
    assert!(!fixture.values_of("probe_ntp_offset").is_empty(), "stored for failures too");
    failure(probe(time_server(0, 0), 200), "kiss code");
}

fn pull_duration(seconds: u64) -> role::settings::DurationSetting {
    role::settings::DurationSetting(Duration::from_secs(seconds))
}

#[test]
fn host_is_pinged() {
    let probe = |host: &str| PingProbe { ping: host.to_owned(), payload_bytes: Some(1_000) };
    let fixture = first_attempt(check(probe("127.0.0.1")));
    match fixture.values_of("probe_failure_reason").first() {
        None => {
            let phases = fixture.stored().0.into_iter();
            let phases: Vec<_> =
                phases.filter_map(|(series, _)| series.label("phase").map(str::to_owned)).collect();
            assert_eq!(phases, ["resolve", "wait", "total"]);
        }
        Some(reason) => {
            assert!(reason.contains("or grant CAP_NET_RAW"), "{reason}");
            eprintln!("SKIPPED: {reason}");
        }
    }
    failure(probe("host.invalid"), "cannot resolve host.invalid");
}

#[test]
fn numbers_of_json_are_stored() {
    let body = br#"{"queue":{"depth":7},"up":true,"name":"x"}"#;
    let server =
        TestTarget::new(|_| http_response("200 OK", "content-type: application/json\r\n", body));
    let json = format!("http://{}/stats", server.address);
    let (fixture, _) = success(JsonProbe { json: json.clone(), ..JsonProbe::default() });
    let values = fixture.values();
    let value = |path| &values[&format!("probe_json_value{{check=\"j\",json_path=\"{path}\"}}")];
    assert_eq!((value("queue.depth"), value("up")), (&vec!["7".to_owned()], &vec!["1".to_owned()]));
    assert!(server.heads()[0].contains("accept: application/json"), "{:?}", server.heads());
    let paths = vec!["name".to_owned()];
    failure(JsonProbe { json, paths, ..JsonProbe::default() }, "no number at \"name\"");
}

/// A value that an attempt no longer has ends.
#[test]
fn values_that_vanish_are_marked_stale() {
    let server = TestTarget::new(|number| {
        let body: &[u8] = if number == 0 { b"{\"a\":1,\"b\":2}" } else { b"{\"b\":3}" };
        http_response("200 OK", "", body)
    });
    let json = format!("http://{}/", server.address);
    let mut fixture = PullFixture::with_running_clock(&journal::Settings::default());
    let probe = check(JsonProbe { json, ..JsonProbe::default() });
    let interval = Duration::from_millis(100);
    let check = CheckJobSettings { interval, timeout: interval * 60, ..probe };
    fixture.start(&Settings { checks: vec![check], ..Settings::default() });
    fixture.wait("check", "success", 2);
    fixture.stop();
    let values = fixture.values();
    assert_eq!(values["probe_json_value{check=\"j\",json_path=\"a\"}"], ["1", "ended"]);
    assert_eq!(values["probe_json_value{check=\"j\",json_path=\"b\"}"][..2], ["2", "3"]);
}

fn shell(script: &str) -> CommandProbe {
    let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    CommandProbe { command }
}

#[test]
fn command_is_run() {
    let script = "echo 'DISK OK | /=80%;90;95 t=5ms'; echo noise >&2";
    let (fixture, phases) = success(shell(script));
    let values = fixture.values();
    let value = |label| &values[&format!("probe_perfdata{{check=\"j\",perfdata=\"{label}\"}}")];
    assert_eq!((value("/"), value("t")), (&vec!["80".to_owned()], &vec!["0.005".to_owned()]));
    assert_eq!(phases, ["start", "run", "total"]);
    let fixture = failure(shell("echo 'full | x=1'; exit 2"), "CRITICAL: full");
    assert_eq!(fixture.values_of("probe_exit_status"), ["2"]);
    failure(shell("kill -9 $$"), "ended by a signal");
    failure(shell("head -c 2000000 /dev/zero | tr '\\0' x; exit 3"), "UNKNOWN: xxx");
    let absent = CommandProbe { command: vec!["/nonexistent/check".to_owned()] };
    failure(absent, "cannot start /nonexistent/check: No such file");
}

#[test]
fn command_that_hangs_is_killed_with_its_children() {
    let dir = std::env::temp_dir().join(format!("topdeck-pull-{:x}", journal::random_id()));
    std::fs::create_dir_all(&dir).unwrap();
    // The program waits for its child, or ends before it, which keeps the output open.
    for (name, end) in [("waits", "wait"), ("ends", "exit 0")] {
        let pid = dir.join(name);
        let script = format!("sleep 600 & echo $! > {0}.new; mv {0}.new {0}; {end}", pid.display());
        let mut fixture = PullFixture::new();
        let checks = vec![check(shell(&script))];
        fixture.start(&Settings { checks, stop_timeout: Duration::ZERO, ..Settings::default() });
        wait_until("the child's start", || pid.exists());
        // An attempt that is given up, here by the stop, is dropped as at its timeout.
        fixture.stop();
        let child = std::fs::read_to_string(&pid).unwrap();
        let state = format!("/proc/{}/stat", child.trim());
        // Killed, and reaped or a zombie of a parent that does not reap.
        wait_until("the child's end", || {
            std::fs::read_to_string(&state).map_or(true, |stat| stat.contains(") Z "))
        });
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn greeting_and_response_are_expected() {
    let server = stream_server(|stream| {
        (&stream).write_all(b"220 mail ready\r\n").unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        (&stream).write_all(b"you said ").unwrap();
        (&stream).write_all(line.as_bytes()).unwrap();
    });
    let text = |text: &str| Some(text.to_owned());
    let probe = || TcpProbe { tcp: server.clone(), ..TcpProbe::default() };
    let (_, phases) = success(TcpProbe { expect: text("220 "), ..probe() });
    assert_eq!(phases, ["resolve", "connect", "wait", "total"]);
    let exchange = TcpProbe { send: text("PING\r\n"), expect: text("said PING"), ..probe() };
    success(exchange.clone());
    let other = TcpProbe { expect: text("+PONG"), ..exchange };
    let expected = "\"+PONG\" not found: the server closed the connection, beginning with \"220 ";
    failure(other, expected);
}

#[test]
fn tls_begins_after_a_command() {
    let dir = std::env::temp_dir().join(format!("topdeck-pull-{:x}", journal::random_id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (certificate, config) = server_certificate(&dir);
    let config = Arc::new(config);
    let server = stream_server(move |stream| {
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let mut exchange = |answer: &[u8]| {
            (&stream).write_all(answer).unwrap();
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            line
        };
        assert_eq!(exchange(b"220-two\r\n220 lines\r\n"), "EHLO topdeck.invalid\r\n");
        assert_eq!(exchange(b"250-mail\r\n250 STARTTLS\r\n"), "STARTTLS\r\n");
        (&stream).write_all(b"220 go\r\n").unwrap();
        let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, stream);
        stream.write_all(b"secret greeting").unwrap();
        stream.conn.send_close_notify();
        let _ = stream.flush();
    });
    let starttls = Some(StartTls::Smtp);
    let expect = Some("secret".to_owned());
    let probe = TcpProbe { tcp: server, starttls, expect, ..TcpProbe::default() };
    let tls = ClientTls { ca: Some(certificate), ..ClientTls::default() };
    let (fixture, phases) = success_of(CheckJobSettings { tls, ..check(probe) });
    assert_eq!(phases, ["resolve", "connect", "starttls", "tls", "wait", "total"]);
    assert_eq!(fixture.values_of("probe_ssl_earliest_cert_expiry"), ["2340403200"]);
    std::fs::remove_dir_all(dir).unwrap();
    let refusing = stream_server(|stream| (&stream).write_all(b"554 no\r\n").unwrap());
    let probe = TcpProbe { tcp: refusing, starttls, ..TcpProbe::default() };
    failure(probe, "cannot begin TLS: the server sent \"554 no\", not \"220\"");
}

/// A server of gRPC, whose health service says NOT_SERVING to a service and SERVING to others.
async fn serve_health(listener: tokio::net::TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(request) = connection.accept().await {
            let Ok((request, respond)) = request else { break };
            // The connection must go on for the body to arrive.
            tokio::spawn(answer_health(request.into_body(), respond));
        }
    }
}

async fn answer_health(
    mut body: h2::RecvStream,
    mut respond: h2::server::SendResponse<bytes::Bytes>,
) {
    let mut message = Vec::new();
    while let Some(Ok(part)) = body.data().await {
        message.extend_from_slice(&part);
    }
    let status = if message.ends_with(b"ill") { 2 } else { 1 };
    let response = http::Response::builder().header("content-type", "application/grpc");
    let mut stream = respond.send_response(response.body(()).unwrap(), false).unwrap();
    stream.send_data(vec![0, 0, 0, 0, 2, 8, status].into(), false).unwrap();
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    stream.send_trailers(trailers).unwrap();
}

#[test]
fn grpc_service_is_healthy() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let grpc = listener.local_addr().unwrap().to_string();
    thread::spawn(move || runtime.block_on(serve_health(listener)));
    let probe = |service: &str| GrpcProbe {
        grpc: grpc.clone(),
        service: service.to_owned(),
        ..GrpcProbe::default()
    };
    let (fixture, phases) = success(probe("well"));
    assert_eq!(phases, ["resolve", "connect", "wait", "read", "total"]);
    assert_eq!(fixture.values_of("probe_http_status_code"), ["200"]);
    failure(probe("ill"), "NOT_SERVING");
}
