//! `[wire]`: requests to another server on this host, captured on the loopback interface.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::client::request_at;
use super::server_process::{ServerProcess, wait_until};
use crate::environment::thread_capabilities;

const REQUESTS: usize = 50;
const REQUEST: &[u8] = b"GET /users/7/orders HTTP/1.1\r\nHost: shop\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Answers the requests of one connection.
fn serve(listener: &TcpListener) {
    let (mut client, _) = listener.accept().expect("a client connects");
    let mut request = vec![0; REQUEST.len()];
    while client.read_exact(&mut request).is_ok() {
        client.write_all(RESPONSE).expect("the client reads");
    }
}

fn send_requests(server: SocketAddr) {
    let mut client = TcpStream::connect(server).expect("the server listens");
    for _ in 0..REQUESTS {
        client.write_all(REQUEST).expect("the server reads");
        client.read_exact(&mut vec![0; RESPONSE.len()]).expect("the server answers");
    }
}

/// The latest value of a query with one result, over the last minutes.
fn value(server: &ServerProcess, query: &str) -> Option<f64> {
    let query: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = server.get(&format!("/api/v1/query?query={query}")).json();
    answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

#[test]
fn requests_on_loopback_are_measured_and_survive_a_stop() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let settings = format!(
        "[wire]\ninterfaces = [\"lo\"]\nprotocols = []\nservices = \
         [\"shop={}/http\"]\nroutes = [\"/users/*/orders\"]\n",
        address.port()
    );
    let mut server = ServerProcess::new("serve", &settings);
    server.start();
    let status = server.get("/v1/status").json()["wire"].clone();
    if status["capturing"] == false {
        let error = status["error"].as_str().expect("a reason").to_owned();
        assert!(error.contains("CAP_NET_RAW"), "{error}");
        assert!(server.log().contains(&error), "{}", server.log());
        return println!("skipped: {error}");
    }
    let serving = thread::spawn(move || serve(&listener));
    send_requests(address);
    serving.join().expect("it serves");
    // At once: the last interval is written at the stop.
    server.stop();
    server.start();
    let all = "sum(max_over_time(wire_measured_requests_total{service=\"shop\"}[5m]))";
    assert_eq!(value(&server, all), Some(REQUESTS as f64));
    let labels = "service=\"shop\",verb=\"GET\",statement=\"/users/*/orders\",outcome=\"ok\"";
    let count = format!("sum(histogram_count(sum_over_time(wire_latency{{{labels}}}[5m])))");
    assert_eq!(value(&server, &count), Some(REQUESTS as f64));
}

/// Two nodes on this host, one of which is said to be at the client's end of the connections.
#[test]
fn requests_of_both_ends_are_compared_while_they_are_captured() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let capture = format!(
        "[wire]\ninterfaces = [\"lo\"]\nprotocols = []\nservices = [\"shop={}/http\"]\n\
         [wire_ends]\n",
        address.port()
    );
    let mut server =
        ServerProcess::new("serve", &format!("{capture}receive = true\nend = \"server\"\n"));
    let report_to = format!("report_to = \"http://{}\"\nend = \"client\"\n", server.address());
    let mut client = ServerProcess::new("serve", &format!("{capture}{report_to}"));
    server.start();
    let status = server.get("/v1/status").json()["wire"].clone();
    if status["capturing"] == false {
        let error = status["error"].as_str().expect("a reason").to_owned();
        assert!(error.contains("CAP_NET_RAW"), "{error}");
        return println!("skipped: {error}");
    }
    client.start();
    let report_line = "wire: reporting requests to http://";
    wait_until("the client's end reports", || client.log().contains(report_line));
    let serving = thread::spawn(move || serve(&listener));
    send_requests(address);
    serving.join().expect("it serves");
    let requests = Some(REQUESTS as f64);
    let sum = |metric: &str| format!("sum(max_over_time({metric}{{service=\"shop\"}}[5m]))");
    wait_until("all requests are matched", || {
        value(&server, &sum("wire_ends_matched_requests_total")) == requests
    });
    assert_eq!(
        value(&server, &sum("wire_ends_reported_requests_total")),
        requests.map(|n| 2.0 * n)
    );
    assert_eq!(value(&server, &sum("wire_ends_unmatched_requests_total")), Some(0.0));
    let server_times = "sum(histogram_count(sum_over_time(wire_ends_server_latency[5m])))";
    assert_eq!(value(&server, server_times), requests);
    // Each capture stamps the packets itself, some nanoseconds apart.
    let network = "sum(histogram_count(sum_over_time(wire_ends_network_latency[5m])))";
    let negative = "sum(max_over_time(wire_ends_untimed_requests_total{reason=\"negative\"}[5m]))";
    let [timed, negative] = [network, negative].map(|query| value(&server, query).unwrap_or(0.0));
    assert_eq!(timed + negative, REQUESTS as f64);
    let own = "sum(topdeck_wire_ends_requests_total{outcome=\"reported\"})";
    wait_until("its reports are counted", || value(&client, own) == requests);
    client.stop();
    server.stop();
}

/// One thread may capture, and reads no packet; those that read packets may do nothing.
#[track_caller]
fn check_capabilities(server: &ServerProcess) {
    const NET_RAW: u64 = 1 << 13;
    let threads = || thread_capabilities(server.pid());
    let is_confined = |(name, of): &(String, u64)| name == "wire rights" || of & NET_RAW == 0;
    let found = threads();
    assert!(found.iter().all(is_confined), "{found:x?}");
    let may_capture = found.iter().filter(|(_, of)| of & NET_RAW != 0).count();
    assert_eq!(may_capture, 1, "{found:x?}");
    // Each does so when it starts.
    wait_until("the threads that read packets have given up all capabilities", || {
        let found = threads();
        let reading = found.iter().filter(|(name, _)| name == "wire").map(|(_, of)| *of);
        reading.eq([0, 0])
    });
}

#[test]
fn one_thread_of_a_server_has_the_right_to_capture_and_reloads_use_it() {
    let settings = "[wire]\ninterfaces = [\"lo\"]\nthreads = 2\nprotocols = []\nservices = ";
    let mut server = ServerProcess::new("serve", &format!("{settings}[\"7/http\"]\n"));
    server.start();
    let status = server.get("/v1/status").json()["wire"].clone();
    if status["capturing"] == false {
        let error = status["error"].as_str().expect("a reason");
        assert!(error.contains("CAP_NET_RAW"), "{error}");
        return println!("skipped: {error}");
    }
    wait_until("it captures", || server.log().matches("wire: capturing 1 ports").count() == 1);
    check_capabilities(&server);
    let text = std::fs::read_to_string(server.settings()).expect("there are settings");
    let text = text.replace("[\"7/http\"]", "[\"7/http\", \"9/http\"]");
    std::fs::write(server.settings(), text).expect("settings are written");
    server.reload();
    wait_until("it captures anew", || server.log().contains("wire: capturing 2 ports"));
    assert_eq!(server.get("/v1/status").json()["wire"]["capturing"], true, "{}", server.log());
    check_capabilities(&server);
    server.stop();
}

#[test]
fn a_node_that_does_not_compare_rejects_reports() {
    let mut server = ServerProcess::new("serve", "");
    server.start();
    let report = std::fs::read_to_string(crate::root().join("docs/formats/wire-ends.md"))
        .expect("the page of the format");
    let block = report.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let digits: Vec<u8> = block.expect("a block").bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16).expect("a number")
    };
    let body: Vec<u8> = digits.chunks(2).map(byte).collect();
    let post = |body: &[u8]| {
        request_at(server.address(), "POST", "/v1/wire/ends", &[], body).expect("it answers")
    };
    let answer = post(&body);
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("receive = true in [wire_ends]"), "{}", answer.text());
    let answer = post(b"TDE1");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("byte 4 of the report of requests"), "{}", answer.text());
    server.stop();
}

#[test]
fn a_capture_that_cannot_start_does_not_stop_the_server() {
    let mut server = ServerProcess::new("serve", "[wire]\ninterfaces = [\"nosuchlink\"]\n");
    server.start();
    let status = server.get("/v1/status").json()["wire"].clone();
    assert_eq!(status["capturing"], false, "{status}");
    let error = status["error"].as_str().expect("a reason");
    assert!(error.starts_with("cannot capture "), "{error}");
    wait_until("it is logged", || server.log().contains(error));
    wait_until("it is a metric", || value(&server, "topdeck_wire_capturing") == Some(0.0));
    server.stop();
}
