//! `topdeck trace`, with a recorded response of a server.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::thread;

use crate::{root, topdeck};

const ID: &str = "0af7651916cd43dd8448eb211c80319c";

/// Runs the command against a server that sends this response, and returns status, output and
/// errors.
fn run(options: &[&str], status: &str, body: Vec<u8>) -> (i32, String, String) {
    let (request, result) = ask(&[&["trace", ID], options].concat(), status, body);
    assert_eq!(request, format!("GET /api/v2/traces/{ID} HTTP/1.1"));
    result
}

/// The same of any command; with the request.
fn ask(command: &[&str], status: &str, body: Vec<u8>) -> (String, (i32, String, String)) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it has an address"));
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let lines = BufReader::new(&stream).lines().map(|line| line.expect("a request"));
        let request: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        stream.write_all(&[head.as_bytes(), &body].concat()).expect("it reads");
        request[0].clone()
    });
    let run = topdeck(&[command, &["--server", &url]].concat(), b"");
    (server.join().expect("it was asked"), (run.status, run.stdout, run.stderr))
}

#[test]
fn operations_that_grew_are_a_table() {
    let side = r#"{"exemplars":60,"stored":30}"#;
    let around = |ms: u64| {
        let ns = ms * 1_000_000;
        format!(r#"{{"lower":{},"estimate":{ns},"upper":{}}}"#, ns / 2, ns * 2)
    };
    let document = |operations: &str| {
        format!(
            r#"{{"selector":"latency","inside":{side},"outside":{side},"traces_min":20,
               "operations":[{operations}]}}"#
        )
    };
    let (inside, outside) = (around(900), around(8));
    let operation =
        format!(r#"{{"service":"db","name":"SELECT","inside":{inside},"outside":{outside}}}"#);
    let command = ["breakdown", "latency", "--above", "1s", "--source", "trace-shape"];
    let (request, (status, text, errors)) =
        ask(&command, "200 OK", document(&operation).into_bytes());
    assert_eq!((status, &*errors), (0, ""));
    let expected = "GET /v1/breakdown/trace-shape?selector=latency&above=1%20s HTTP/1.1";
    assert_eq!(request, expected);
    for part in ["30 of 60 traces", "db: SELECT", "900.0 ms", "450.0 ms to 1.800 s", "8.000 ms"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, (status, text, _)) = ask(&command, "200 OK", document("").into_bytes());
    assert!(status == 0 && text.contains("compared from 20 stored traces"), "{text}");
    let run = topdeck(&[&command[..], &["--csv"]].concat(), b"");
    assert!(run.status == 1 && run.stderr.contains("use --json"), "{}", run.stderr);
}

#[test]
fn a_trace_is_a_waterfall_or_the_response() {
    let body = fs::read(root().join("testdata/traces/checkout.json")).expect("a fixture");
    let (status, text, errors) = run(&[], "200 OK", body.clone());
    assert_eq!((status, &*errors), (0, ""));
    for part in
        [ID, "11 spans of 4 services in 140.0 ms", "1 span arrived", "fraud check (payment)"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (status, json, _) = run(&["--json"], "200 OK", body.clone());
    let document = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).expect("JSON");
    assert_eq!((status, document(json.as_bytes())), (0, document(&body)));
}

#[test]
fn a_trace_that_is_elsewhere_is_an_error_with_the_reason() {
    let body = br#"{"error":"trace 0af7 is not stored: no span of it was received"}"#;
    let (status, text, errors) = run(&[], "404 Not Found", body.to_vec());
    assert_eq!((status, &*text), (1, ""));
    assert!(errors.contains("is not stored: no span of it was received"), "{errors}");
    let run = topdeck(&["trace", "../v1/status"], b"");
    assert!(
        run.status == 1 && run.stderr.contains("expected hexadecimal digits"),
        "{}",
        run.stderr
    );
}
