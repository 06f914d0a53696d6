//! HTTP/1.1 client on byte level, so that a test can send invalid requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Timeout of all waits in tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl RawResponse {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|field| field.0.eq_ignore_ascii_case(name)).map(|field| field.1.trim())
    }

    #[track_caller]
    pub(crate) fn check(&self, status: u16, part: &str) {
        assert!(self.status == status && self.text().contains(part), "{self:?}");
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// A request as bytes; `headers` are complete lines with line ends.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Reads one response; `None` if the connection ends before it begins.
pub(crate) fn read_response(stream: &mut impl Read) -> Option<RawResponse> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            Ok(_) | Err(_) if head.is_empty() => return None,
            other => panic!("{other:?} in {:?}", String::from_utf8_lossy(&head)),
        }
    }
    let head = String::from_utf8(head).unwrap();
    let status = head[9..12].parse().unwrap();
    let mut found = RawResponse { status, head, body: Vec::new() };
    let length = found.header("content-length").map_or(0, |length| length.parse().unwrap());
    found.body = vec![0; length];
    stream.read_exact(&mut found.body).unwrap();
    Some(found)
}

/// Sends bytes and reads the response.
pub(crate) fn exchange(stream: &mut (impl Read + Write), bytes: &[u8]) -> RawResponse {
    stream.write_all(bytes).unwrap();
    read_response(stream).expect("an answer")
}
