//! Webhook receiver on loopback that fails on request, and the messages that arrived at it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use serde_json::Value;

/// What the receiver does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiverAnswer {
    /// 200. The message arrives.
    Accept,
    /// 429 with `Retry-After: 1`. The message does not arrive.
    RateLimit,
    /// 500. The message does not arrive.
    ServerError,
    /// The message arrives, and the connection is reset without a response.
    Reset,
    /// The message arrives, and there is no response until the sender closes the connection.
    Hold,
}

/// A message that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AlertMessage {
    /// Path of the URL, which tells contacts apart.
    pub(super) path: String,
    /// Key of the notification.
    pub(super) key: String,
    pub(super) state: String,
    /// Label `host` of the alert.
    pub(super) host: String,
    /// Whether it says that it is a repeat.
    pub(super) may_be_duplicate: bool,
    /// Requests and users that it says are affected.
    pub(super) affected: (Option<u64>, Option<u64>),
    /// Address of the series; empty if there is none.
    pub(super) link: String,
}

/// A running receiver; it runs until the test ends.
pub(super) struct AlertReceiver {
    pub(super) address: SocketAddr,
    shared: Arc<Mutex<ReceiverState>>,
}

struct ReceiverState {
    answer: ReceiverAnswer,
    messages: Vec<AlertMessage>,
    refused: usize,
    held: usize,
}

impl AlertReceiver {
    pub(super) fn start() -> AlertReceiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let answer = ReceiverAnswer::Accept;
        let state = ReceiverState { answer, messages: Vec::new(), refused: 0, held: 0 };
        let receiver = AlertReceiver { address, shared: Arc::new(Mutex::new(state)) };
        let shared = Arc::clone(&receiver.shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shared) = (stream.expect("a connection"), Arc::clone(&shared));
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        receiver
    }

    pub(super) fn set_answer(&self, answer: ReceiverAnswer) {
        lock(&self.shared).answer = answer;
    }

    /// All messages that arrived, in order.
    pub(super) fn messages(&self) -> Vec<AlertMessage> {
        lock(&self.shared).messages.clone()
    }

    /// Number of requests that got 429 or 500.
    pub(super) fn refused(&self) -> usize {
        lock(&self.shared).refused
    }

    /// Number of messages that arrived and got no response.
    pub(super) fn held(&self) -> usize {
        lock(&self.shared).held
    }

    /// Messages on a state of the alert of a host, at a path.
    pub(super) fn of(&self, path: &str, host: &str, state: &str) -> Vec<AlertMessage> {
        let is_meant = |message: &AlertMessage| {
            message.path == path && message.host == host && message.state == state
        };
        self.messages().into_iter().filter(is_meant).collect()
    }

    /// Whether there is one.
    pub(super) fn has(&self, path: &str, host: &str, state: &str) -> bool {
        !self.of(path, host, state).is_empty()
    }
}

fn serve(stream: TcpStream, shared: &Mutex<ReceiverState>) {
    let mut stream = BufReader::new(stream);
    // The sender may be killed before its request is complete.
    let Some((path, body)) = read_request(&mut stream) else { return };
    let answer = {
        let mut state = lock(shared);
        match state.answer {
            ReceiverAnswer::RateLimit | ReceiverAnswer::ServerError => state.refused += 1,
            ReceiverAnswer::Accept | ReceiverAnswer::Reset | ReceiverAnswer::Hold => {
                state.messages.push(message(path, &body));
            }
        }
        state.held += usize::from(state.answer == ReceiverAnswer::Hold);
        state.answer
    };
    let head = match answer {
        ReceiverAnswer::Accept => "200 OK",
        ReceiverAnswer::RateLimit => "429 Too Many Requests\r\nretry-after: 1",
        ReceiverAnswer::ServerError => "500 Internal Server Error",
        ReceiverAnswer::Reset => {
            let reset = set_socket_linger(stream.get_ref(), Some(Duration::ZERO));
            return reset.expect("it is a socket");
        }
        ReceiverAnswer::Hold => {
            // It ends with the connection.
            let _ = stream.read(&mut [0]);
            return;
        }
    };
    let text = format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    // The sender may be gone.
    let _ = stream.get_mut().write_all(text.as_bytes());
}

/// Path and body of a request; `None` if it is not complete.
pub(super) fn read_request(stream: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let (mut line, mut length) = (String::new(), 0);
    stream.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    while line != "\r\n" {
        line.clear();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((path, body))
}

fn message(path: String, body: &[u8]) -> AlertMessage {
    let body: Value = serde_json::from_slice(body).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    AlertMessage {
        path,
        key: text(&body["topdeck"]["key"]),
        state: text(&body["topdeck"]["state"]),
        host: text(&body["alerts"][0]["labels"]["host"]),
        may_be_duplicate: body["topdeck"]["mayBeDuplicate"] == true,
        affected: (body["topdeck"]["requests"].as_u64(), body["topdeck"]["users"].as_u64()),
        link: text(&body["alerts"][0]["generatorURL"]),
    }
}

fn lock(shared: &Mutex<ReceiverState>) -> MutexGuard<'_, ReceiverState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
