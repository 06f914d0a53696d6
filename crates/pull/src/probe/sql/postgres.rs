//! Client of PostgreSQL: TLS, login, and one query by the simple query protocol.
//!
//! The transaction, its limits and the query are one message: that also works behind a pooler.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use protocol::postgres::{
    LoginError, PostgresLogin, PostgresMessageParser, PostgresMessagePart, RETAINED_BYTES_MAX,
    SSL_REQUEST, ServerTrust, error_text,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{BoxedStream, RESULT_BYTES_MAX, SqlAnswer, SqlTask, broken, too_large};
use crate::probe::Attempt;

/// Protocol version 3.0.
const VERSION: u32 = 3 << 16;
/// Longest value, and text of an error.
const TEXT_CHARS_MAX: usize = 500;

/// A connection with its messages.
struct PostgresMessages {
    stream: BoxedStream,
    parser: PostgresMessageParser,
    buffer: Vec<u8>,
    /// Range of `buffer` that is not parsed yet.
    unread: std::ops::Range<usize>,
    received: usize,
}

/// A message: its type.
type MessageKind = u8;

impl PostgresMessages {
    /// Reads the next message; its body is that of the parser, cut to its retained part.
    async fn next(&mut self) -> Result<MessageKind, String> {
        loop {
            let mut bytes = &self.buffer[self.unread.clone()];
            let violation = |_| "the server does not speak PostgreSQL's protocol; check the port";
            let part = self.parser.read(&mut bytes).map_err(violation)?;
            self.unread.start = self.unread.end - bytes.len();
            match part {
                Some(PostgresMessagePart::End { kind }) => return Ok(kind),
                Some(PostgresMessagePart::Start { .. }) => {}
                None => {
                    let length = self.stream.read(&mut self.buffer).await.map_err(broken)?;
                    if length == 0 {
                        return Err("the server closed the connection".to_owned());
                    }
                    self.unread = 0..length;
                    self.received += length;
                    if self.received > RESULT_BYTES_MAX {
                        return Err(too_large());
                    }
                }
            }
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).await.map_err(broken)?;
        self.stream.flush().await.map_err(broken)
    }

    /// The error of the last message.
    fn error(&self) -> String {
        let text = error_text(self.parser.body());
        let text = text.unwrap_or_else(|| "the server reported an error".to_owned());
        text.chars().take(TEXT_CHARS_MAX).collect()
    }

    async fn log_in(&mut self, task: &SqlTask<'_>) -> Result<(), String> {
        let parameters = [
            ("user", task.address.user),
            ("database", task.address.database),
            ("application_name", "topdeck"),
            ("client_encoding", "UTF8"),
        ];
        self.send(&startup(&parameters)).await?;
        let trust = match task.is_trusted {
            true => ServerTrust::Trusted,
            false => ServerTrust::Unverified("secure = true in the check"),
        };
        let password = || match task.password.is_empty() {
            true => Err("the server asks for a password; set password_file".to_owned()),
            false => Ok(task.password.to_owned()),
        };
        let mut login = PostgresLogin::new(task.address.user, &password, trust);
        let failure = |error| match error {
            LoginError::Rejected(reason) => reason,
            LoginError::Malformed => "invalid authentication request".to_owned(),
        };
        loop {
            match self.next().await? {
                b'R' => {
                    let mut answer = BytesMut::new();
                    login.answer(self.parser.body(), &mut answer).map_err(failure)?;
                    self.send(&answer).await?;
                }
                b'E' => return Err(self.error()),
                b'Z' => return login.check_end().map_err(failure),
                b'S' | b'K' | b'N' | b'v' => {}
                _ => return Err("the server sent an unexpected message".to_owned()),
            }
        }
    }

    async fn query(&mut self, sql: &str, timeout: Duration) -> Result<SqlAnswer, String> {
        let limit = timeout.as_millis().clamp(1, i32::MAX as u128);
        // A query may end in a comment.
        let sql = format!("BEGIN READ ONLY;SET LOCAL statement_timeout={limit};{sql}\n;ROLLBACK");
        self.send(&message(b'Q', &[sql.as_bytes(), b"\0"].concat())).await?;
        let mut answer = SqlAnswer::default();
        let mut failure = None;
        loop {
            let kind = match self.next().await {
                Ok(kind) => kind,
                // The last error says why the server closed the connection.
                Err(error) => return Err(failure.unwrap_or(error)),
            };
            match kind {
                b'D' => {
                    if answer.rows == 0 {
                        answer.first = first_value(self.parser.body());
                    }
                    answer.rows += 1;
                }
                b'E' => failure = Some(self.error()),
                b'Z' => return failure.map_or(Ok(answer), Err),
                b'T' | b'C' | b'I' | b'N' | b'S' | b'A' => {}
                _ => return Err("the server sent an unexpected message".to_owned()),
            }
        }
    }
}

/// Connects, logs in and queries.
pub(super) async fn run(
    task: &SqlTask<'_>,
    mut stream: TcpStream,
    attempt: &mut Attempt<'_>,
) -> Result<SqlAnswer, String> {
    let stream: BoxedStream = if task.secure {
        stream.write_all(&SSL_REQUEST).await.map_err(broken)?;
        if stream.read_u8().await.map_err(broken)? != b'S' {
            return Err("the server has no TLS; set ssl = on there".to_owned());
        }
        Box::new(attempt.secure(stream).await?)
    } else {
        Box::new(stream)
    };
    let mut messages = PostgresMessages {
        stream,
        parser: PostgresMessageParser::new(b"RED"),
        buffer: vec![0; RETAINED_BYTES_MAX],
        unread: 0..0,
        received: 0,
    };
    let began = Instant::now();
    let outcome = messages.log_in(task).await;
    attempt.report.phases.push(("auth", began.elapsed()));
    outcome.map_err(|reason| format!("cannot log in: {reason}"))?;
    let began = Instant::now();
    let answer = messages.query(task.query, task.timeout).await;
    attempt.report.phases.push(("query", began.elapsed()));
    let answer = answer.map_err(|reason| format!("the query failed: {reason}"))?;
    // The server need not log a lost connection.
    let _ = messages.send(&message(b'X', b"")).await;
    Ok(answer)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// The first message, which has no type.
fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = VERSION.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
    }
    body.push(0);
    message(0, &body)[1..].to_vec()
}

/// First value of a DataRow, up to some length; `None` is NULL, or none.
fn first_value(row: &[u8]) -> Option<String> {
    let (length, value) = row.get(2..)?.split_first_chunk::<4>()?;
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    let text = String::from_utf8_lossy(&value[..length.min(value.len())]);
    Some(text.chars().take(TEXT_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_is_read() {
        assert_eq!(first_value(b"\0\x01\0\0\0\x02ab"), Some("ab".to_owned()));
        assert_eq!(first_value(b"\0\x01\xff\xff\xff\xff"), None);
        for row in [&b""[..], b"\0", b"\0\x01", b"\0\x01\0\0\0"] {
            assert_eq!(first_value(row), None, "{row:?}");
        }
        // Cut: only the beginning of a long message is kept.
        assert_eq!(first_value(b"\0\x01\x7f\xff\xff\xffab"), Some("ab".to_owned()));
    }

    #[test]
    fn the_first_message_has_no_type() {
        let bytes = startup(&[("user", "u")]);
        assert_eq!(bytes, *b"\0\0\0\x10\0\x03\0\0user\0u\0\0");
    }
}
