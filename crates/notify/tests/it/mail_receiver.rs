//! Mail server on the loopback interface: keeps the messages, and answers with faults on request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::http_receiver::ReceiverFault;

/// A message as received.
#[derive(Clone, Debug, Default)]
pub(crate) struct MailMessage {
    pub(crate) from: String,
    pub(crate) to: Vec<String>,
    /// User and password of AUTH.
    pub(crate) credentials: Option<String>,
    pub(crate) is_encrypted: bool,
    /// Without dot-stuffing.
    pub(crate) text: String,
}

/// A running mail server.
pub(crate) struct MailReceiver {
    pub(crate) address: SocketAddr,
    state: Arc<MailState>,
    task: JoinHandle<()>,
}

struct MailState {
    tls: Option<TlsAcceptor>,
    fault: Mutex<ReceiverFault>,
    messages: Mutex<Vec<MailMessage>>,
}

impl Drop for MailReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MailReceiver {
    /// With `tls`, the server offers STARTTLS, and AUTH after it.
    pub(crate) async fn start(tls: Option<TlsAcceptor>) -> MailReceiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(MailState {
            tls,
            fault: Mutex::new(ReceiverFault::None),
            messages: Mutex::default(),
        });
        let served = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&served)));
            }
        });
        MailReceiver { address, state, task }
    }

    pub(crate) fn set_fault(&self, fault: ReceiverFault) {
        *self.state.fault.lock().unwrap() = fault;
    }

    /// The messages since the last call.
    pub(crate) fn take_messages(&self) -> Vec<MailMessage> {
        std::mem::take(&mut self.state.messages.lock().unwrap())
    }
}

/// How a conversation ended.
enum SessionEnd {
    Closed,
    StartTls,
    Reset,
}

async fn serve(mut stream: TcpStream, state: Arc<MailState>) {
    stream.write_all(b"220 loopback\r\n").await.unwrap();
    let mut buffered = BufReader::new(&mut stream);
    let end = converse(&mut buffered, &state, false).await;
    match end {
        Some(SessionEnd::StartTls) => {
            let Ok(stream) = state.tls.as_ref().unwrap().accept(stream).await else { return };
            converse(&mut BufReader::new(stream), &state, true).await;
        }
        Some(SessionEnd::Reset) => stream.set_zero_linger().unwrap(),
        _ => {}
    }
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufReader<S>,
    state: &MailState,
    is_encrypted: bool,
) -> Option<SessionEnd> {
    let fault = *state.fault.lock().unwrap();
    let mut mail = MailMessage { is_encrypted, ..MailMessage::default() };
    loop {
        let line = read_line(stream).await?;
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match (verb, fault) {
            ("EHLO", _) if is_encrypted => "250-loopback\r\n250 AUTH LOGIN PLAIN\r\n",
            ("EHLO", _) if state.tls.is_some() => "250-loopback\r\n250 STARTTLS\r\n",
            ("EHLO", _) => "250 loopback\r\n",
            ("STARTTLS", _) => {
                stream.write_all(b"220 go\r\n").await.ok()?;
                return Some(SessionEnd::StartTls);
            }
            ("AUTH", _) => {
                let token = rest.strip_prefix("PLAIN ").unwrap();
                let token = String::from_utf8(STANDARD.decode(token).unwrap()).unwrap();
                mail.credentials = Some(token.trim_start_matches('\0').replace('\0', ":"));
                "235 welcome\r\n"
            }
            ("MAIL", ReceiverFault::RateLimit) => "421 too many messages\r\n",
            ("MAIL", _) => {
                mail.from = address(rest, "FROM:");
                "250 ok\r\n"
            }
            ("RCPT", ReceiverFault::BadRequest) => "550 no such user\r\n",
            ("RCPT", _) => {
                mail.to.push(address(rest, "TO:"));
                "250 ok\r\n"
            }
            ("DATA", _) => {
                stream.write_all(b"354 go ahead\r\n").await.ok()?;
                mail.text = read_data(stream).await?;
                state.messages.lock().unwrap().push(mail.clone());
                match fault {
                    ReceiverFault::ServerError => "451 no space\r\n",
                    ReceiverFault::NotOk => "554 looks like spam\r\n",
                    ReceiverFault::Reset => return Some(SessionEnd::Reset),
                    ReceiverFault::Silence => {
                        let _ = stream.read(&mut [0]).await;
                        return None;
                    }
                    _ => "250 queued\r\n",
                }
            }
            ("QUIT", _) => return Some(SessionEnd::Closed),
            other => panic!("unexpected command {other:?}"),
        };
        let step = if fault == ReceiverFault::SlowAnswer { 1 } else { answer.len() };
        for part in answer.as_bytes().chunks(step) {
            stream.write_all(part).await.ok()?;
            stream.flush().await.ok()?;
            tokio::task::yield_now().await;
        }
    }
}

fn address(rest: &str, prefix: &str) -> String {
    let address = rest.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('<'));
    address.and_then(|rest| rest.strip_suffix('>')).unwrap().to_owned()
}

async fn read_line<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufReader<S>) -> Option<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.strip_suffix("\r\n").map(str::to_owned)
}

async fn read_data<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufReader<S>) -> Option<String> {
    let mut text = String::new();
    loop {
        let line = read_line(stream).await?;
        if line == "." {
            return Some(text);
        }
        assert!(line.len() <= 998, "a line has {} bytes (RFC 5322, section 2.1.1)", line.len());
        text.push_str(line.strip_prefix('.').unwrap_or(&line));
        text.push_str("\r\n");
    }
}
