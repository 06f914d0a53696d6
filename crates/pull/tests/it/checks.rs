//! Tests of checks.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use model::{SampleValue, Series};
use net::tls::ClientTls;
use pull::{AnyProbe, CheckJobSettings, HttpProbe, Probe, Settings, TcpProbe};

use crate::fixture::{
    ConnectionBarrier, PullFixture, TestTarget, head, http_response, server_certificate,
    text_response,
};

/// Longer than any test takes on the slowest machine.
const LONG: Duration = Duration::from_secs(60);

fn settings_with(check: CheckJobSettings) -> Settings {
    Settings { checks: vec![check], ..Settings::default() }
}

pub(crate) fn check(probe: impl Probe) -> CheckJobSettings {
    CheckJobSettings {
        name: "j".to_owned(),
        target: AnyProbe::new(probe),
        // Only one attempt, and no timeout on a loaded machine.
        interval: LONG,
        timeout: LONG,
        ..CheckJobSettings::default()
    }
}

pub(crate) fn page(address: SocketAddr, body: Option<&str>) -> HttpProbe {
    let http = format!("http://{address}/page?x");
    HttpProbe { http, body: body.map(str::to_owned), ..HttpProbe::default() }
}

/// Durations of each attempt by phase, in milliseconds.
fn phases(world: &PullFixture, phase: &str, outcome: &str) -> Vec<f64> {
    let is = |series: &Series| {
        series.name() == "probe_duration"
            && series.label("phase") == Some(phase)
            && series.label("outcome") == Some(outcome)
    };
    let (rows, _) = world.stored();
    let milliseconds = |value: &SampleValue| match value {
        SampleValue::Histogram(histogram) => histogram.tracked_max().value().unwrap() / 1e6,
        other => panic!("{other:?}"),
    };
    rows.iter().filter(|row| is(&row.0)).map(|row| milliseconds(&row.1.value)).collect()
}

#[test]
fn phase_durations_are_measured() {
    let held = Duration::from_millis(50);
    let server = TestTarget::new(move |_| {
        // A lower bound that holds on any machine, for the client's wait too.
        thread::sleep(held);
        text_response("Welcome")
    });
    let mut world = PullFixture::new();
    let labels = vec![("env".to_owned(), "test".to_owned())];
    world.start(&settings_with(CheckJobSettings {
        labels,
        ..check(page(server.address, Some("come")))
    }));
    world.wait("check", "success", 1);
    world.stop();
    let of = |phase| phases(&world, phase, "success")[0];
    assert!(
        of("wait") >= held.as_secs_f64() * 1e3 && of("total") >= of("wait"),
        "{} {}",
        of("wait"),
        of("total")
    );
    let parts: f64 = ["resolve", "connect", "wait", "read"].map(of).iter().sum();
    assert!(parts <= of("total") * 1.001, "{parts} {}", of("total"));
    let labels = "{check=\"j\",env=\"test\"}";
    let values = world.values();
    assert_eq!(values[&format!("probe_success{labels}")], ["1"]);
    assert_eq!(values[&format!("probe_http_status_code{labels}")], ["200"]);
    assert!(server.heads()[0].starts_with("GET /page?x HTTP/1.1\r\n"));
    // The row covers the duration of the attempt.
    let (rows, _) = world.stored();
    let (_, total) =
        rows.iter().find(|(series, _)| series.label("phase") == Some("total")).unwrap();
    assert!(total.end - total.start >= held.as_nanos() as i64);
}

#[test]
fn tcp_connect_is_a_check() {
    let server = TestTarget::new(|_| Vec::new());
    let mut world = PullFixture::new();
    world.start(&settings_with(check(TcpProbe {
        tcp: server.address.to_string(),
        ..TcpProbe::default()
    })));
    world.wait("check", "success", 1);
    world.stop();
    assert_eq!(
        (phases(&world, "connect", "success").len(), world.values_of("probe_success")),
        (1, vec!["1".to_owned()])
    );
    assert!(phases(&world, "wait", "success").is_empty());
}

#[track_caller]
fn probe_failure_reason(what: HttpProbe, timeout: Duration, came: &[&str], why: &str) {
    let mut world = PullFixture::new();
    world.start(&settings_with(CheckJobSettings { timeout, ..check(what) }));
    world.wait("check", "failed", 1);
    world.stop();
    let up = world.values_of("probe_success");
    assert!(up.iter().all(|up| up == "0"), "{up:?}");
    let said = world.values_of("probe_failure_reason");
    assert!(said[0].contains(why), "{said:?}");
    for phase in ["resolve", "connect", "wait", "read", "total"] {
        let is_there = came.contains(&phase) || phase == "total";
        let expected = if is_there { up.len() } else { 0 };
        assert_eq!(phases(&world, phase, "failed").len(), expected, "{phase}");
    }
}

#[test]
fn failures_are_stored_with_their_phase() {
    let mut running = Vec::new();
    let mut check_within = |timeout, what, came: &'static [&'static str], why: &'static str| {
        running.push(thread::spawn(move || probe_failure_reason(what, timeout, came, why)));
    };
    let silent = TestTarget::new(|_| {
        loop {
            thread::park();
        }
    });
    let way = &["resolve", "connect"];
    let second = Duration::from_secs(1);
    check_within(second, page(silent.address, None), way, "no response within 1000 ms");
    let mut check = |what, came, why| check_within(LONG, what, came, why);
    // A bound port that does not listen: connections are refused and no other process gets the
    // port.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    check(page(nobody.local_addr().unwrap(), None), &[], "cannot connect to");
    let wrong = TestTarget::new(|_| http_response("500 Internal Server Error", "", b""));
    let all = &["resolve", "connect", "wait", "read"];
    check(page(wrong.address, None), all, "HTTP 500");
    let other = TestTarget::new(|_| text_response("Sorry"));
    check(page(other.address, Some("Welcome")), all, "not found in the response body");
    let closed = TestTarget::new(|_| Vec::new());
    check(page(closed.address, None), way, "no response from");
    running.into_iter().for_each(|one| one.join().unwrap());
}

#[test]
fn long_response_is_read_up_to_the_limit() {
    let body = format!("Welcome{}", "x".repeat(3 << 20));
    let server = TestTarget::new(move |_| text_response(&body));
    let mut world = PullFixture::new();
    world.start(&settings_with(check(page(server.address, Some("Welcome")))));
    world.wait("check", "success", 1);
    world.stop();
    assert_eq!(world.values_of("probe_success"), ["1"]);
}

/// Five attempts must be in flight before any gets a response; a closed schedule would never start
/// the second.
#[test]
fn attempts_continue_while_others_hang() {
    let gate = ConnectionBarrier::new(5);
    let waited = Arc::new(Mutex::new(Vec::new()));
    let at_server = Arc::clone(&waited);
    let server = TestTarget::new(move |_| {
        let waited = gate.wait();
        at_server.lock().unwrap().push(waited);
        text_response("")
    });
    let mut world = PullFixture::new();
    let interval = Duration::from_millis(200);
    let timeout = 60 * interval;
    world.start(&settings_with(CheckJobSettings {
        interval,
        timeout,
        ..check(page(server.address, None))
    }));
    world.wait("check", "success", 5);
    world.stop();
    let mut totals = phases(&world, "total", "success");
    totals.sort_by(f64::total_cmp);
    // An attempt's duration includes the server's delay.
    let longest = waited.lock().unwrap().iter().copied().max().unwrap().as_secs_f64() * 1e3;
    assert!(*totals.last().unwrap() >= longest, "{totals:?} {longest}");
}

#[test]
fn certificate_expiry_is_stored() {
    let dir = std::env::temp_dir().join(format!("topdeck-pull-{:x}", journal::random_id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (certificate, mut config) = server_certificate(&dir);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            if head(&mut stream).is_some() {
                stream.write_all(&text_response("")).unwrap();
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    let http = format!("https://127.0.0.1:{port}/");
    let mut world = PullFixture::new();
    let tls = ClientTls { ca: Some(certificate), ..ClientTls::default() };
    let what = HttpProbe { http, ..HttpProbe::default() };
    world.start(&settings_with(CheckJobSettings { tls, ..check(what) }));
    world.wait("check", "success", 1);
    world.stop();
    std::fs::remove_dir_all(dir).unwrap();
    assert_eq!(world.values_of("probe_ssl_earliest_cert_expiry"), ["2340403200"]);
    assert_eq!(phases(&world, "tls", "success").len(), 1);
}
