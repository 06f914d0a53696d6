//! TCP probe: connects; optionally with TLS, at once or after a command of the protocol, and waits
//! for a text.

use net::{Endpoint, EndpointError};
use role::settings::{SettingsCheck, TableRef};
use serde::Deserialize;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::probe::{Attempt, Probe};

/// Bytes of a response that are read until the expected text is found.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// `tcp = "host:port"`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct TcpProbe {
    /// `host:port`.
    pub tcp: String,
    /// Whether TLS begins with the connection.
    #[serde(default)]
    pub secure: bool,
    /// Protocol whose command begins TLS.
    pub starttls: Option<StartTls>,
    /// Text that is sent after the connection, or the TLS handshake.
    pub send: Option<String>,
    /// Text expected in the first 64 KiB that the server sends then.
    pub expect: Option<String>,
}

/// Protocol with a command that begins TLS.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum StartTls {
    /// STARTTLS of RFC 3207.
    Smtp,
    /// STARTTLS of RFC 9051.
    Imap,
    /// STLS of RFC 2595.
    Pop3,
    /// SSLRequest of the frontend/backend protocol.
    Postgres,
}

/// What is sent, and the beginning of the last line of the response.
type Exchange = (&'static [u8], &'static [u8]);

impl StartTls {
    fn exchanges(self) -> &'static [Exchange] {
        match self {
            StartTls::Smtp => &[
                (b"", b"220 "),
                (b"EHLO topdeck.invalid\r\n", b"250 "),
                (b"STARTTLS\r\n", b"220 "),
            ],
            StartTls::Imap => &[(b"", b"* OK"), (b"a STARTTLS\r\n", b"a OK")],
            StartTls::Pop3 => &[(b"", b"+OK"), (b"STLS\r\n", b"+OK")],
            // Length 8, code 80877103.
            StartTls::Postgres => &[(b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"S")],
        }
    }

    /// Runs the exchanges, until the server is ready for the TLS handshake.
    async fn run(self, stream: &mut TcpStream) -> Result<(), String> {
        for (request, expected) in self.exchanges() {
            stream.write_all(request).await.map_err(|error| format!("cannot send: {error}"))?;
            // The last line ends the response. What follows it belongs to TLS: no byte of that may
            // be read here.
            let is_line = self != StartTls::Postgres;
            let mut line = Vec::new();
            loop {
                line.push(read_byte(stream).await?);
                if !is_line || line.ends_with(b"\n") {
                    if line.starts_with(expected) {
                        break;
                    }
                    // Lines before the last one: `250-…` of SMTP, and `* …` of IMAP.
                    let goes_on = line.get(3) == Some(&b'-') || line.starts_with(b"* ");
                    if !goes_on {
                        return Err(refusal(&line, expected));
                    }
                    line.clear();
                }
                if line.len() >= RESPONSE_BYTES_MAX {
                    return Err(refusal(&line, expected));
                }
            }
        }
        Ok(())
    }
}

async fn read_byte(stream: &mut TcpStream) -> Result<u8, String> {
    stream.read_u8().await.map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        _ => format!("cannot read: {error}"),
    })
}

fn refusal(line: &[u8], expected: &[u8]) -> String {
    let expected = String::from_utf8_lossy(expected);
    format!("cannot begin TLS: the server sent {}, not {:?}", excerpt(line), expected.trim_end())
}

/// The first 100 bytes, quoted.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(100)]);
    format!("{:?}", text.trim_end())
}

impl TcpProbe {
    fn has_tls(&self) -> bool {
        self.secure || self.starttls.is_some()
    }

    /// Sends the text, and reads until the expected one.
    async fn exchange<S>(&self, attempt: &mut Attempt<'_>, mut stream: S) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let began = Instant::now();
        if let Some(text) = &self.send {
            let sent = async {
                stream.write_all(text.as_bytes()).await?;
                stream.flush().await
            };
            sent.await.map_err(|error| format!("cannot send: {error}"))?;
        }
        let Some(expected) = &self.expect else { return Ok(()) };
        let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
        let found = loop {
            let count = match stream.read(&mut buffer).await {
                Ok(count) => count,
                Err(error) => break Err(format!("cannot read: {error}")),
            };
            read.extend_from_slice(&buffer[..count]);
            if super::http::contains(&read, expected.as_bytes()) {
                break Ok(());
            }
            let end = match count {
                0 => "closed the connection",
                _ if read.len() >= RESPONSE_BYTES_MAX => "sent 64 KiB",
                _ => continue,
            };
            break Err(format!(
                "{expected:?} not found: the server {end}, beginning with {}",
                excerpt(&read)
            ));
        };
        attempt.report.phases.push(("wait", began.elapsed()));
        found
    }
}

impl Probe for TcpProbe {
    const KEY: &'static str = "tcp";
    const KEYS: &'static [&'static str] = &["tcp", "secure", "starttls", "send", "expect"];

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        check.host_and_port(table, "tcp", &self.tcp);
        if self.secure && self.starttls.is_some() {
            let what = "secure and starttls: TLS begins either with the connection or after a \
                        command; remove one of them";
            check.problem(table, "starttls", what);
        }
        if self.expect.as_ref().is_some_and(String::is_empty) {
            check.problem(table, "expect", "expect is empty; remove it, or name a text");
        }
    }

    fn url(&self) -> String {
        let scheme = if self.has_tls() { "tls" } else { "tcp" };
        format!("{scheme}://{}", self.tcp)
    }

    fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        Endpoint::parse_as(&self.url(), self.has_tls(), None)
    }

    /// A server may refuse protocols that it does not know.
    fn alpn(&self) -> &'static [&'static [u8]] {
        match self.starttls {
            Some(StartTls::Postgres) => &[b"postgresql"],
            _ => &[],
        }
    }

    async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        let mut stream = attempt.connect_tcp().await?;
        if let Some(protocol) = self.starttls {
            let began = Instant::now();
            let outcome = protocol.run(&mut stream).await;
            attempt.report.phases.push(("starttls", began.elapsed()));
            outcome?;
        }
        match self.has_tls() {
            true => {
                let stream = attempt.secure(stream).await?;
                self.exchange(attempt, stream).await
            }
            false => self.exchange(attempt, stream).await,
        }
    }
}
