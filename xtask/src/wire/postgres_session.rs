//! A client of PostgreSQL (protocol 3.0) that sends what libpq does not: pipelines with many Syncs,
//! and several statements in a Query.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::server_process::ADDRESS;

/// Time for the recovery of a server on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// A connection of the user `postgres`, which needs no password.
pub(super) struct PostgresSession {
    stream: BufReader<TcpStream>,
}

/// Responses up to a ReadyForQuery.
#[derive(Debug, Default)]
pub(super) struct QueryReply {
    /// Statements that are complete (CommandComplete).
    pub(super) completed: u64,
    /// SQLSTATE of each error.
    pub(super) errors: Vec<String>,
    /// Values of all rows, in text form.
    pub(super) rows: Vec<Vec<String>>,
}

/// A message with its type and length.
pub(super) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[kind][..], &length, body].concat()
}

/// Parse, Bind, Execute and Sync of a statement without parameters.
pub(super) fn extended_query(text: &str) -> Vec<u8> {
    let parse = message(b'P', &[&b"\0"[..], text.as_bytes(), b"\0\0\0"].concat());
    let bind = message(b'B', b"\0\0\0\0\0\0\0\0");
    [parse, bind, message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat()
}

impl PostgresSession {
    pub(super) fn connect(port: u16) -> Result<PostgresSession> {
        let stream = TcpStream::connect((ADDRESS, port)).context("cannot connect to PostgreSQL")?;
        stream.set_nodelay(true)?;
        let mut session = PostgresSession { stream: BufReader::new(stream) };
        let fields = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
        let length = (fields.len() as u32 + 4).to_be_bytes();
        session.send(&[&length[..], fields].concat())?;
        session.read_reply()?;
        Ok(session)
    }

    /// Waits until the server accepts a session.
    pub(super) fn await_server(port: u16) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match PostgresSession::connect(port) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => sleep(PAUSE),
            }
        }
    }

    /// Sends a Query message and reads its responses.
    pub(super) fn query(&mut self, text: &str) -> Result<QueryReply> {
        self.send(&message(b'Q', &[text.as_bytes(), b"\0"].concat()))?;
        self.read_reply()
    }

    /// Sends messages.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(bytes).context("cannot write to PostgreSQL")
    }

    /// Reads messages up to ReadyForQuery. CopyIn is answered with two rows.
    pub(super) fn read_reply(&mut self) -> Result<QueryReply> {
        let mut reply = QueryReply::default();
        loop {
            let (kind, body) = self.read_message()?;
            match kind {
                b'Z' => return Ok(reply),
                b'C' => reply.completed += 1,
                b'E' => reply.errors.push(sqlstate(&body)),
                b'D' => reply.rows.push(row(&body)?),
                b'G' => {
                    let rows = message(b'd', b"17\n18\n");
                    self.send(&[rows, message(b'c', b"")].concat())?;
                }
                _ => {}
            }
        }
    }

    fn read_message(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).context("cannot read from PostgreSQL")?;
        let [kind, length @ ..] = head;
        let Some(length) = u32::from_be_bytes(length).checked_sub(4) else {
            bail!("PostgreSQL sent a message of invalid length");
        };
        let mut body = vec![0; length as usize];
        self.stream.read_exact(&mut body)?;
        Ok((kind, body))
    }
}

/// The field `C` of an ErrorResponse.
fn sqlstate(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0);
    let code = fields.filter_map(|field| field.strip_prefix(b"C")).next();
    String::from_utf8_lossy(code.unwrap_or_default()).into_owned()
}

/// Values of a DataRow; NULL is empty.
fn row(body: &[u8]) -> Result<Vec<String>> {
    let (count, mut rest) = body.split_first_chunk().context("a row without a count")?;
    let mut values = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk().context("a row without a value")?;
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        let (value, after) = after.split_at_checked(length).context("a row is cut")?;
        values.push(String::from_utf8_lossy(value).into_owned());
        rest = after;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_errors_are_read() {
        let body = b"\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\x01c";
        assert_eq!(row(body).unwrap(), ["ab", "", "c"]);
        assert!(row(&body[..body.len() - 1]).is_err());
        assert_eq!(sqlstate(b"SERROR\0C22012\0Mdivision by zero\0\0"), "22012");
    }
}
