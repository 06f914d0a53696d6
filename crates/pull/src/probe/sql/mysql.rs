//! Client of MySQL and MariaDB: TLS, login, and one query.

use std::time::Instant;

use protocol::mysql::{MysqlAccount, MysqlLogin, MysqlResult, MysqlStep, query_command};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{BoxedStream, RESULT_BYTES_MAX, SqlAnswer, SqlTask, broken, too_large};
use crate::probe::Attempt;

/// Largest packet; a row may not be larger.
const PACKET_BYTES_MAX: usize = 1 << 20;
/// Packets of the server at the login.
const LOGIN_PACKETS_MAX: usize = 10;

/// A connection with its packets.
struct MysqlPackets<S> {
    stream: S,
    payload: Vec<u8>,
    /// Number of the next packet.
    sequence: u8,
    received: usize,
}

impl<S: super::SqlStream> MysqlPackets<S> {
    fn new(stream: S, sequence: u8) -> MysqlPackets<S> {
        MysqlPackets { stream, payload: Vec::new(), sequence, received: 0 }
    }

    /// Reads the next packet into `payload`.
    async fn read(&mut self) -> Result<(), String> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).await.map_err(broken)?;
        let [low, middle, high, sequence] = head;
        let length = u32::from_le_bytes([low, middle, high, 0]) as usize;
        if length > PACKET_BYTES_MAX {
            let what = "the server sent a packet above 1 MiB; check the port, or select less";
            return Err(what.to_owned());
        }
        // A row may have no bytes.
        self.received += length + head.len();
        if self.received > RESULT_BYTES_MAX {
            return Err(too_large());
        }
        self.sequence = sequence.wrapping_add(1);
        self.payload.clear();
        // As much memory as the server sends, not as it says.
        let mut body = (&mut self.stream).take(length as u64);
        body.read_to_end(&mut self.payload).await.map_err(broken)?;
        match self.payload.len() == length {
            true => Ok(()),
            false => Err("the server closed the connection".to_owned()),
        }
    }

    async fn send(&mut self, payload: &[u8]) -> Result<(), String> {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
        let packet = [&length[..3], &[self.sequence], payload].concat();
        self.stream.write_all(&packet).await.map_err(broken)?;
        self.stream.flush().await.map_err(broken)
    }

    async fn log_in(&mut self, login: &mut MysqlLogin<'_>) -> Result<(), String> {
        self.send(&login.response()?).await?;
        for _ in 0..LOGIN_PACKETS_MAX {
            self.read().await?;
            match login.answer(&self.payload)? {
                MysqlStep::Done => return Ok(()),
                MysqlStep::Read => {}
                MysqlStep::Send(payload) => self.send(&payload).await?,
            }
        }
        Err("the login has no end".to_owned())
    }

    async fn query(&mut self, sql: &str) -> Result<SqlAnswer, String> {
        self.sequence = 0;
        self.send(&query_command(sql)).await?;
        let mut result = MysqlResult::default();
        loop {
            self.read().await?;
            if result.read(&self.payload)? {
                return Ok(SqlAnswer { rows: result.rows, first: result.first });
            }
        }
    }
}

/// Connects, logs in and queries.
pub(super) async fn run(
    task: &SqlTask<'_>,
    stream: TcpStream,
    attempt: &mut Attempt<'_>,
) -> Result<SqlAnswer, String> {
    // What the client proves of its password may be guessed from.
    if !task.is_trusted && !task.password.is_empty() {
        return Err(
            "a password is sent to other hosts over TLS alone; set secure = true".to_owned()
        );
    }
    let account = MysqlAccount {
        user: task.address.user,
        password: task.password,
        database: task.address.database,
        is_secure: task.secure,
    };
    let began = Instant::now();
    let mut packets = MysqlPackets::new(stream, 0);
    let mut tls = std::time::Duration::ZERO;
    let prepared = async {
        packets.read().await?;
        let login = MysqlLogin::new(&packets.payload, account)?;
        if task.secure {
            packets.send(&login.tls_request()?).await?;
        }
        Ok::<_, String>(login)
    };
    let mut login = prepared.await.map_err(|reason| format!("cannot log in: {reason}"))?;
    let MysqlPackets { stream, sequence, .. } = packets;
    let stream: BoxedStream = match task.secure {
        true => {
            let before = Instant::now();
            let stream = Box::new(attempt.secure(stream).await?);
            tls = before.elapsed();
            stream
        }
        false => Box::new(stream),
    };
    let mut packets = MysqlPackets::new(stream, sequence.wrapping_add(task.secure.into()));
    let outcome = async {
        packets.log_in(&mut login).await?;
        packets.query("SET SESSION TRANSACTION READ ONLY").await?;
        let limit = match login.is_mariadb {
            true => format!("SET SESSION max_statement_time={}", task.timeout.as_secs_f64()),
            false => format!("SET SESSION max_execution_time={}", task.timeout.as_millis().max(1)),
        };
        // Servers before 5.7.8 have no such limit.
        let _ = packets.query(&limit).await;
        Ok::<_, String>(())
    };
    let outcome = outcome.await;
    attempt.report.phases.push(("auth", began.elapsed().saturating_sub(tls)));
    outcome.map_err(|reason| format!("cannot log in: {reason}"))?;
    let began = Instant::now();
    let answer = packets.query(task.query).await;
    attempt.report.phases.push(("query", began.elapsed()));
    let answer = answer.map_err(|reason| format!("the query failed: {reason}"))?;
    // COM_QUIT.
    packets.sequence = 0;
    let _ = packets.send(&[1]).await;
    Ok(answer)
}
