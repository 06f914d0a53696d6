//! A client of MySQL and MariaDB with several statements in a query and prepared statements.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context as _, Result, bail, ensure};

use super::server_process::ADDRESS;

/// LONG_PASSWORD, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, MULTI_STATEMENTS, MULTI_RESULTS,
/// PLUGIN_AUTH.
const CAPABILITIES: u32 = 0x1 | 0x200 | 0x2000 | 0x8000 | 0x1_0000 | 0x2_0000 | 0x8_0000;
/// Another result follows (`SERVER_MORE_RESULTS_EXISTS`).
const MORE_RESULTS: u16 = 8;

/// A connection of the user `root`, which needs no password.
pub(super) struct MysqlSession {
    stream: BufReader<TcpStream>,
    sequence: u8,
}

/// Results of a command.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MysqlReply {
    /// Complete results.
    pub(super) results: u64,
    pub(super) rows: u64,
    /// Error code, if the command ended with an error.
    pub(super) error: Option<u16>,
}

impl MysqlSession {
    pub(super) fn connect(port: u16) -> Result<MysqlSession> {
        let stream = TcpStream::connect((ADDRESS, port)).context("cannot connect to MariaDB")?;
        stream.set_nodelay(true)?;
        let mut session = MysqlSession { stream: BufReader::new(stream), sequence: 0 };
        session.read_packet()?;
        let head = [&CAPABILITIES.to_le_bytes()[..], &(1_u32 << 24).to_le_bytes(), &[33]].concat();
        session.send(&[&head[..], &[0; 23], b"root\0\0mysql_native_password\0"].concat())?;
        let reply = session.read_packet()?;
        ensure!(reply.first() == Some(&0), "MariaDB refuses the login: {reply:?}");
        Ok(session)
    }

    pub(super) fn query(&mut self, text: &str) -> Result<MysqlReply> {
        self.command(&[&b"\x03"[..], text.as_bytes()].concat())?;
        self.read_results()
    }

    /// Prepares a statement with one parameter. Returns its id.
    pub(super) fn prepare(&mut self, text: &str) -> Result<[u8; 4]> {
        self.command(&[&b"\x16"[..], text.as_bytes()].concat())?;
        let reply = self.read_packet()?;
        ensure!(reply.first() == Some(&0), "MariaDB cannot prepare {text}: {reply:?}");
        let id = reply.get(1..5).and_then(|id| id.try_into().ok());
        let counts = [reply.get(5), reply.get(7)];
        for count in counts {
            if count.is_some_and(|count| *count > 0) {
                self.skip_definitions()?;
            }
        }
        id.context("a response to Prepare without an id")
    }

    /// Executes a prepared statement with one integer.
    pub(super) fn execute(&mut self, id: [u8; 4], value: i64) -> Result<MysqlReply> {
        let head = [&b"\x17"[..], &id, b"\0\x01\0\0\0", b"\0\x01\x08\0"].concat();
        self.command(&[&head[..], &value.to_le_bytes()].concat())?;
        self.read_results()
    }

    fn command(&mut self, body: &[u8]) -> Result<()> {
        self.sequence = 0;
        self.send(body)
    }

    fn send(&mut self, body: &[u8]) -> Result<()> {
        let length = (body.len() as u32).to_le_bytes();
        let packet = [&length[..3], &[self.sequence], body].concat();
        self.stream.get_mut().write_all(&packet).context("cannot write to MariaDB")
    }

    fn read_packet(&mut self) -> Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).context("cannot read from MariaDB")?;
        let [low, middle, high, sequence] = head;
        self.sequence = sequence.wrapping_add(1);
        let mut body = vec![0; u32::from_le_bytes([low, middle, high, 0]) as usize];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    /// Packets up to an EOF packet. Returns their number and the flags of its status.
    fn read_rows(&mut self) -> Result<(u64, u16)> {
        let mut count = 0;
        loop {
            let packet = self.read_packet()?;
            match packet[..] {
                [0xfe, _, _, low, high] => return Ok((count, u16::from_le_bytes([low, high]))),
                [0xff, ..] => bail!("MariaDB ended a result with an error: {packet:?}"),
                _ => count += 1,
            }
        }
    }

    fn skip_definitions(&mut self) -> Result<()> {
        self.read_rows().map(drop)
    }

    fn read_results(&mut self) -> Result<MysqlReply> {
        let mut reply = MysqlReply::default();
        loop {
            let packet = self.read_packet()?;
            let flags = match packet[..] {
                [0xff, low, high, ..] => {
                    reply.error = Some(u16::from_le_bytes([low, high]));
                    return Ok(reply);
                }
                // Changed rows and the last id, which are small here, then the status.
                [0, _, _, low, high, ..] => u16::from_le_bytes([low, high]),
                [_, ..] => {
                    self.skip_definitions()?;
                    let (rows, flags) = self.read_rows()?;
                    reply.rows += rows;
                    flags
                }
                [] => bail!("MariaDB sent an empty packet"),
            };
            reply.results += 1;
            if flags & MORE_RESULTS == 0 {
                return Ok(reply);
            }
        }
    }
}
