//! HTTP receiver on the loopback interface: keeps the requests, and answers with faults on request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What the receiver does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiverFault {
    /// Nothing.
    None,
    /// 429 with `Retry-After: 7`.
    RateLimit,
    /// 500.
    ServerError,
    /// No response.
    Silence,
    /// Reset of the connection after the request.
    Reset,
    /// The response arrives byte by byte.
    SlowAnswer,
    /// 200 and `{"ok": false}`.
    NotOk,
    /// 400.
    BadRequest,
}

/// A request as received.
#[derive(Clone, Debug)]
pub(crate) struct HttpMessage {
    pub(crate) method: String,
    pub(crate) path: String,
    /// By lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// Status and body of a good response to a request. `URL` in the body is replaced by that of the
/// receiver.
pub(crate) type AnswerFunction = fn(&HttpMessage) -> (u16, &'static str);

/// A running receiver.
pub(crate) struct HttpReceiver {
    pub(crate) address: SocketAddr,
    state: Arc<ReceiverState>,
    task: JoinHandle<()>,
}

struct ReceiverState {
    answer: AnswerFunction,
    fault: Mutex<ReceiverFault>,
    requests: Mutex<Vec<HttpMessage>>,
}

impl Drop for HttpReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HttpReceiver {
    pub(crate) async fn start(answer: AnswerFunction) -> HttpReceiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(ReceiverState {
            answer,
            fault: Mutex::new(ReceiverFault::None),
            requests: Mutex::default(),
        });
        let served = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&served)));
            }
        });
        HttpReceiver { address, state, task }
    }

    pub(crate) fn set_fault(&self, fault: ReceiverFault) {
        *self.state.fault.lock().unwrap() = fault;
    }

    /// Number of requests that were not taken.
    pub(crate) fn request_count(&self) -> usize {
        self.state.requests.lock().unwrap().len()
    }

    /// The requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<HttpMessage> {
        std::mem::take(&mut self.state.requests.lock().unwrap())
    }
}

async fn serve(stream: TcpStream, state: Arc<ReceiverState>) {
    let mut stream = BufReader::new(stream);
    let Some(request) = read_request(&mut stream).await else { return };
    let fault = *state.fault.lock().unwrap();
    let good = (state.answer)(&request);
    let url = format!("http://{}", request.headers.get("host").map_or("", String::as_str));
    let good = (good.0, good.1.replace("URL", &url));
    state.requests.lock().unwrap().push(request);
    let mut stream = stream.into_inner();
    let (status, head, body) = match fault {
        ReceiverFault::None | ReceiverFault::SlowAnswer => (good.0, "", good.1.as_str()),
        ReceiverFault::RateLimit => (429, "retry-after: 7\r\n", "slow down"),
        ReceiverFault::ServerError => (500, "", "internal error"),
        ReceiverFault::NotOk => (200, "", r#"{"ok": false}"#),
        ReceiverFault::BadRequest => (400, "", "invalid payload"),
        ReceiverFault::Silence => {
            // The client closes the connection.
            let _ = stream.read(&mut [0]).await;
            return;
        }
        ReceiverFault::Reset => {
            stream.set_zero_linger().unwrap();
            return;
        }
    };
    let length = body.len();
    let answer = format!("HTTP/1.1 {status} x\r\n{head}content-length: {length}\r\n\r\n{body}");
    let step = if fault == ReceiverFault::SlowAnswer { 1 } else { answer.len() };
    for part in answer.as_bytes().chunks(step) {
        if stream.write_all(part).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    let _ = stream.shutdown().await;
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<HttpMessage> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(HttpMessage { method, path, headers, body })
}
