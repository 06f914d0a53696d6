//! An HTTP/2 client that sends requests and reads no response body.

use std::sync::Mutex;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinHandle;

use crate::fixture::ServerFixture;

/// A connection with a flow control window of zero for every response.
pub(crate) struct ClosedWindowConnection<'a> {
    it: &'a ServerFixture,
    sender: SendRequest<Empty<Bytes>>,
    connection: JoinHandle<()>,
    /// Held, and not read.
    responses: Mutex<Vec<Response<Incoming>>>,
}

impl ClosedWindowConnection<'_> {
    pub(crate) fn connect(it: &ServerFixture) -> ClosedWindowConnection<'_> {
        let (sender, connection) = it.runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(it.address).await.unwrap();
            let mut builder = Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(0);
            let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
            (sender, tokio::spawn(async { drop(connection.await) }))
        });
        ClosedWindowConnection { it, sender, connection, responses: Mutex::default() }
    }

    /// Sends a request; returns the response's status.
    pub(crate) fn request(&self, path: &str) -> u16 {
        self.try_ask(path).unwrap()
    }

    /// The same, or the error.
    pub(crate) fn try_ask(&self, path: &str) -> Result<u16, String> {
        let uri = format!("http://localhost:{}{path}", self.it.address.port());
        let request = Request::get(uri).body(Empty::new()).unwrap();
        let mut sender = self.sender.clone();
        let answer = self.it.runtime.block_on(sender.send_request(request));
        let answer = answer.map_err(|error| format!("{error:?}"))?;
        let status = answer.status().as_u16();
        self.responses.lock().unwrap().push(answer);
        Ok(status)
    }
}

impl Drop for ClosedWindowConnection<'_> {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
