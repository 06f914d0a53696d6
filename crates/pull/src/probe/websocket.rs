//! WebSocket probe: the handshake, optionally a message each way, and a ping.

use std::hash::BuildHasher as _;
use std::time::Instant;

use net::{Endpoint, EndpointError};
use protocol::websocket::{
    FrameKind, WebsocketFrame, check_handshake, client_frame, close_reason, handshake_key,
    handshake_request, take_frame,
};
use role::settings::{SettingsCheck, TableRef};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::probe::{Attempt, Probe, random_id};

/// Size limit of the head of the response.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Size limit of a message, and of a frame.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Bytes that are read of a connection.
const RECEIVED_BYTES_MAX: usize = 1 << 20;
const AGENT: &str = concat!("topdeck/", env!("CARGO_PKG_VERSION"));

/// `websocket = "ws://host/path"` or `"wss://…"`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct WebsocketProbe {
    /// `ws://host:port/path` or `wss://…`.
    pub websocket: String,
    /// Text of a message that is sent after the handshake.
    pub send: Option<String>,
    /// Text expected in a message of the server after that.
    pub expect: Option<String>,
}

/// A connection after the handshake.
struct WebsocketConnection<S> {
    stream: S,
    received: Vec<u8>,
    received_total: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebsocketConnection<S> {
    /// Reads more; an error at the end of the connection.
    async fn receive(&mut self) -> Result<(), String> {
        let mut buffer = [0; 4096];
        let length = self.stream.read(&mut buffer).await;
        let length = length.map_err(|error| format!("connection lost: {error}"))?;
        if length == 0 {
            return Err("the server closed the connection".to_owned());
        }
        self.received_total += length;
        if self.received_total > RECEIVED_BYTES_MAX {
            return Err("the server sent more than 1 MiB".to_owned());
        }
        self.received.extend_from_slice(&buffer[..length]);
        Ok(())
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        sent.await.map_err(|error| format!("cannot send: {error}"))
    }

    async fn send_frame(&mut self, kind: FrameKind, payload: &[u8]) -> Result<(), String> {
        // The mask keeps a client from choosing the bytes on the wire; it is no secret.
        let mask = (random_id() as u32).to_ne_bytes();
        self.send(&client_frame(kind, payload, mask)).await
    }

    async fn handshake(&mut self, target: &Endpoint) -> Result<(), String> {
        let random = std::hash::RandomState::new();
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&random.hash_one(0).to_ne_bytes());
        bytes[8..].copy_from_slice(&random.hash_one(1).to_ne_bytes());
        let key = handshake_key(bytes);
        let request = handshake_request(&target.authority(), &target.path, &key, AGENT);
        self.send(request.as_bytes()).await?;
        let end = loop {
            let end = self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n");
            if let Some(end) = end {
                break end + 4;
            }
            if self.received.len() > HEAD_BYTES_MAX {
                return Err("the head of the response exceeds 16 KiB".to_owned());
            }
            self.receive().await?;
        };
        check_handshake(&self.received[..end], &key)?;
        self.received.drain(..end);
        Ok(())
    }

    /// The next frame that is neither a ping, which is answered, nor a close.
    async fn next_frame(&mut self) -> Result<WebsocketFrame, String> {
        loop {
            let Some(frame) = take_frame(&mut self.received, MESSAGE_BYTES_MAX)? else {
                self.receive().await?;
                continue;
            };
            match frame.kind {
                FrameKind::Ping => self.send_frame(FrameKind::Pong, &frame.payload).await?,
                FrameKind::Close => return Err(close_reason(&frame.payload)),
                _ => return Ok(frame),
            }
        }
    }

    /// Reads messages until one has the text.
    async fn find(&mut self, text: &str) -> Result<(), String> {
        let mut begun: Option<Vec<u8>> = None;
        loop {
            let frame = self.next_frame().await?;
            let message = match (frame.kind, begun.take()) {
                (FrameKind::Data, None) => frame.payload,
                (FrameKind::Continuation, Some(begun)) => [begun, frame.payload].concat(),
                (FrameKind::Data | FrameKind::Continuation, _) => {
                    return Err("the server sent a part of a message out of order".to_owned());
                }
                (_, before) => {
                    begun = before;
                    continue;
                }
            };
            if message.len() > MESSAGE_BYTES_MAX {
                return Err("the server sent a message above 64 KiB".to_owned());
            }
            match frame.is_last {
                true if super::http::contains(&message, text.as_bytes()) => return Ok(()),
                // A continuation of it would be searched again and again.
                true => {}
                false => begun = Some(message),
            }
        }
    }

    /// Sends a ping and waits for its pong.
    async fn ping(&mut self) -> Result<(), String> {
        let payload = random_id().to_ne_bytes();
        self.send_frame(FrameKind::Ping, &payload).await?;
        loop {
            let frame = self.next_frame().await?;
            if frame.kind == FrameKind::Pong && frame.payload == payload {
                return Ok(());
            }
        }
    }
}

impl WebsocketProbe {
    async fn exchange<S>(&self, attempt: &mut Attempt<'_>, stream: S) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut connection =
            WebsocketConnection { stream, received: Vec::new(), received_total: 0 };
        let began = Instant::now();
        let outcome = connection.handshake(attempt.target).await;
        attempt.report.phases.push(("upgrade", began.elapsed()));
        outcome?;
        let began = Instant::now();
        if let Some(text) = &self.send {
            connection.send_frame(FrameKind::Data, text.as_bytes()).await?;
        }
        if let Some(text) = &self.expect {
            let found = connection.find(text).await;
            attempt.report.phases.push(("wait", began.elapsed()));
            found.map_err(|reason| format!("{text:?} not found: {reason}"))?;
        }
        let began = Instant::now();
        let outcome = connection.ping().await;
        attempt.report.phases.push(("ping", began.elapsed()));
        outcome.map_err(|reason| format!("no pong: {reason}"))?;
        // 1000: the purpose is fulfilled. The server need not answer.
        let _ = connection.send_frame(FrameKind::Close, &1000_u16.to_be_bytes()).await;
        Ok(())
    }

    fn is_secure(&self) -> bool {
        self.websocket.starts_with("wss://")
    }
}

impl Probe for WebsocketProbe {
    const KEY: &'static str = "websocket";
    const KEYS: &'static [&'static str] = &["websocket", "send", "expect"];

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        if let Err(error) = self.endpoint() {
            let what = format!("invalid URL: {}; expected ws://host/path", error.reason);
            check.problem(table, "websocket", what);
        }
        if self.expect.as_ref().is_some_and(String::is_empty) {
            check.problem(table, "expect", "expect is empty; remove it, or name a text");
        }
    }

    fn url(&self) -> String {
        self.websocket.clone()
    }

    fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        let secure = self.is_secure();
        if !secure && !self.websocket.starts_with("ws://") {
            let reason = "the scheme is neither ws nor wss".to_owned();
            return Err(EndpointError { url: self.websocket.clone(), reason });
        }
        Endpoint::parse_as(&self.websocket, secure, Some(if secure { 443 } else { 80 }))
    }

    fn alpn(&self) -> &'static [&'static [u8]] {
        &[b"http/1.1"]
    }

    async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        let stream = attempt.connect_tcp().await?;
        match self.is_secure() {
            true => {
                let stream = attempt.secure(stream).await?;
                self.exchange(attempt, stream).await
            }
            false => self.exchange(attempt, stream).await,
        }
    }
}
