//! SMTP client (RFC 5321) with STARTTLS (RFC 3207) and AUTH PLAIN and LOGIN (RFC 4954).
//!
//! One connection per message. Until the end of the message is sent, the server does not have it;
//! from then until its response it may have it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use net::tls::ClientTls;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::delivery_result::DeliveryError;
use crate::message::one_line;

/// Maximum length of a line of a response; the standard allows 512.
const LINE_BYTES_MAX: u64 = 4096;
/// Maximum number of lines of a response.
const LINES_MAX: usize = 100;

/// Encryption of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MailSecurity {
    /// Starts without encryption and requires STARTTLS.
    StartTls,
    /// TLS from the start.
    Tls,
    /// No encryption.
    None,
}

/// A mail server and how to use it.
pub(crate) struct MailServer<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) security: MailSecurity,
    pub(crate) credentials: Option<(String, String)>,
    pub(crate) tls: &'a ClientTls,
    /// Timeout of each command.
    pub(crate) timeout: Duration,
}

trait SmtpStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> SmtpStream for S {}

struct SmtpSession<'a> {
    server: &'a MailServer<'a>,
    stream: BufReader<Box<dyn SmtpStream>>,
    /// Whether the end of the message was sent.
    is_message_sent: bool,
}

struct SmtpReply {
    code: u16,
    lines: Vec<String>,
}

impl MailServer<'_> {
    /// Sends a message with CRLF line ends to all receivers.
    pub(crate) async fn send(
        &self,
        from: &str,
        to: &[String],
        message: &str,
    ) -> Result<(), DeliveryError> {
        let stream = self.timed(TcpStream::connect((self.host, self.port)), "connect").await?;
        let stream: Box<dyn SmtpStream> = match self.security {
            MailSecurity::Tls => self.encrypt(Box::new(stream)).await?,
            MailSecurity::StartTls | MailSecurity::None => Box::new(stream),
        };
        let stream = BufReader::new(stream);
        let mut session = SmtpSession { server: self, stream, is_message_sent: false };
        session.expect("greeting", 220).await?;
        let mut extensions = session.hello().await?;
        if self.security == MailSecurity::StartTls {
            if !has_extension(&extensions, "STARTTLS") {
                return Err(self.permanent("the server does not offer STARTTLS"));
            }
            session.command("STARTTLS", "STARTTLS", 220).await?;
            // What the server sent before the handshake is not trusted (RFC 3207, section 6).
            let stream = self.encrypt(session.stream.into_inner()).await?;
            let stream = BufReader::new(stream);
            session = SmtpSession { server: self, stream, is_message_sent: false };
            extensions = session.hello().await?;
        }
        if let Some((user, password)) = &self.credentials {
            session.authenticate(user, password, &extensions).await?;
        }
        session.command("MAIL", &format!("MAIL FROM:<{from}>"), 250).await?;
        for receiver in to {
            session.command("RCPT", &format!("RCPT TO:<{receiver}>"), 250).await?;
        }
        session.command("DATA", "DATA", 354).await?;
        session.write(dot_stuffed(message).as_bytes(), "DATA").await?;
        session.is_message_sent = true;
        session.command("DATA", ".", 250).await?;
        // The server has the message; it does not matter whether it hears this.
        let _ = timeout(self.timeout, session.stream.write_all(b"QUIT\r\n")).await;
        Ok(())
    }

    async fn encrypt(
        &self,
        stream: Box<dyn SmtpStream>,
    ) -> Result<Box<dyn SmtpStream>, DeliveryError> {
        let temporary = |cause: String| DeliveryError::temporary(self.reason(&cause));
        let config = self.tls.config().map_err(|error| temporary(error.to_string()))?;
        let name = ServerName::try_from(self.host.to_owned())
            .map_err(|error| self.permanent(&error.to_string()))?;
        let connect = TlsConnector::from(Arc::new(config)).connect(name, stream);
        Ok(Box::new(self.timed(connect, "TLS handshake").await?))
    }

    /// Waits for a step before the message is sent.
    async fn timed<T>(
        &self,
        step: impl Future<Output = std::io::Result<T>>,
        name: &str,
    ) -> Result<T, DeliveryError> {
        let cause = match timeout(self.timeout, step).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("timed out after {} ms", self.timeout.as_millis()),
        };
        Err(DeliveryError::temporary(self.reason(&format!("{name}: {cause}"))))
    }

    fn reason(&self, cause: &str) -> String {
        format!("mail server {}:{}: {cause}", self.host, self.port)
    }

    fn permanent(&self, cause: &str) -> DeliveryError {
        DeliveryError::permanent(self.reason(cause))
    }
}

impl SmtpSession<'_> {
    async fn hello(&mut self) -> Result<Vec<String>, DeliveryError> {
        Ok(self.command("EHLO", "EHLO topdeck", 250).await?.lines)
    }

    async fn authenticate(
        &mut self,
        user: &str,
        password: &str,
        extensions: &[String],
    ) -> Result<(), DeliveryError> {
        let offers = |method: &str| {
            let auth = extensions.iter().filter(|line| has_keyword(line, "AUTH"));
            auth.flat_map(|line| line.split_whitespace()).any(|word| word == method)
        };
        if offers("PLAIN") {
            let token = STANDARD.encode(format!("\0{user}\0{password}"));
            self.command("AUTH", &format!("AUTH PLAIN {token}"), 235).await?;
        } else if offers("LOGIN") {
            self.command("AUTH", "AUTH LOGIN", 334).await?;
            self.command("AUTH", &STANDARD.encode(user), 334).await?;
            self.command("AUTH", &STANDARD.encode(password), 235).await?;
        } else {
            return Err(self.server.permanent("the server offers neither AUTH PLAIN nor LOGIN"));
        }
        Ok(())
    }

    /// Sends a line and waits for its response. `name` is shown in errors, the line is not.
    async fn command(
        &mut self,
        name: &str,
        line: &str,
        expected: u16,
    ) -> Result<SmtpReply, DeliveryError> {
        self.write(format!("{line}\r\n").as_bytes(), name).await?;
        self.expect(name, expected).await
    }

    async fn write(&mut self, bytes: &[u8], name: &str) -> Result<(), DeliveryError> {
        let stream = &mut self.stream;
        let write = async {
            stream.write_all(bytes).await?;
            stream.flush().await
        };
        let cause = match timeout(self.server.timeout, write).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("timed out after {} ms", self.server.timeout.as_millis()),
        };
        Err(self.connection_error(name, &cause))
    }

    async fn expect(&mut self, name: &str, expected: u16) -> Result<SmtpReply, DeliveryError> {
        let limit = self.server.timeout;
        let reply = match timeout(limit, self.reply()).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => return Err(self.connection_error(name, &error.to_string())),
            Err(_) => {
                let cause = format!("timed out after {} ms", limit.as_millis());
                return Err(self.connection_error(name, &cause));
            }
        };
        if reply.code == expected {
            return Ok(reply);
        }
        let text = one_line(reply.lines.last().map_or("", String::as_str));
        let reason = self.server.reason(&format!("{name}: {} {text}", reply.code));
        // 4yz is temporary, 5yz permanent; others break the protocol.
        Err(match reply.code {
            500..600 => DeliveryError::permanent(reason),
            _ => DeliveryError::temporary(reason),
        })
    }

    async fn reply(&mut self) -> std::io::Result<SmtpReply> {
        let invalid = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
        let mut lines = Vec::new();
        while lines.len() < LINES_MAX {
            let mut line = Vec::new();
            let mut limited = (&mut self.stream).take(LINE_BYTES_MAX);
            limited.read_until(b'\n', &mut line).await?;
            if !line.ends_with(b"\n") {
                return Err(match line.len() as u64 == LINE_BYTES_MAX {
                    true => invalid("line of a response above 4096 bytes"),
                    false => std::io::ErrorKind::UnexpectedEof.into(),
                });
            }
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            let code = line.get(..3).and_then(|code| code.parse().ok());
            let code: u16 = code.ok_or_else(|| invalid("no response code"))?;
            let is_last = line.as_bytes().get(3) != Some(&b'-');
            lines.push(line.get(4..).unwrap_or_default().to_owned());
            if is_last {
                return Ok(SmtpReply { code, lines });
            }
        }
        Err(invalid("response above 100 lines"))
    }

    fn connection_error(&self, name: &str, cause: &str) -> DeliveryError {
        let reason = self.server.reason(&format!("{name}: {cause}"));
        match self.is_message_sent {
            true => DeliveryError::unconfirmed(reason),
            false => DeliveryError::temporary(reason),
        }
    }
}

fn has_extension(lines: &[String], keyword: &str) -> bool {
    lines.iter().any(|line| has_keyword(line, keyword))
}

fn has_keyword(line: &str, keyword: &str) -> bool {
    line.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case(keyword))
}

/// A leading dot of a line is doubled (RFC 5321, section 4.5.2).
fn dot_stuffed(message: &str) -> String {
    let stuffed = message.replace("\r\n.", "\r\n..");
    match stuffed.starts_with('.') {
        true => format!(".{stuffed}"),
        false => stuffed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_dot_does_not_end_the_message() {
        assert_eq!(dot_stuffed(".a\r\n.\r\nb.\r\n"), "..a\r\n..\r\nb.\r\n");
    }

    #[test]
    fn extensions_are_keywords_in_any_case() {
        let lines = ["mail.example".to_owned(), "starttls".to_owned(), "AUTH PLAIN".to_owned()];
        assert!(has_extension(&lines, "STARTTLS"));
        assert!(!has_extension(&lines, "PLAIN"));
    }
}
