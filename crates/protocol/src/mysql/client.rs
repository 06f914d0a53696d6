//! Client's side of MySQL and MariaDB: login with a password, and the result of one query.
//!
//! Payloads of packets in, payloads out: the caller reads the heads (length, sequence number).
//! Authentication: `mysql_native_password` and `caching_sha2_password`; the whole password is sent
//! to a trusted server over TLS alone.
//!
//! Source: MySQL Server Doxygen documentation, "Client/Server Protocol".

use ring::digest::{Digest, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

use super::packets::{TLS, is_eof, parse_integer};

/// Longest text of the server that is kept.
const TEXT_CHARS_MAX: usize = 500;
/// Longest value that is kept.
const VALUE_BYTES_MAX: usize = 1_000;
/// Largest number of columns of a result, as in MySQL.
const COLUMNS_MAX: u64 = 4_096;
/// Bytes of the server's random data.
const NONCE_BYTES: usize = 20;
/// Limit of packets, as sent to the server.
const PACKET_BYTES: u32 = 1 << 24;
/// Character set `utf8mb4_general_ci`.
const CHARACTER_SET: u8 = 45;

/// Capabilities: LONG_PASSWORD, CONNECT_WITH_DB, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION,
/// PLUGIN_AUTH.
const CAPABILITIES: u32 = 1 | 1 << 3 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 19;
/// CONNECT_WITH_DB.
const WITH_DATABASE: u32 = 1 << 3;

const NATIVE: &str = "mysql_native_password";
const SHA2: &str = "caching_sha2_password";

/// Who logs in.
#[derive(Clone, Copy, Debug)]
pub struct MysqlAccount<'a> {
    /// Name of the user.
    pub user: &'a str,
    /// Its password, empty if it has none.
    pub password: &'a str,
    /// Database; empty for none.
    pub database: &'a str,
    /// Whether the connection has TLS, and the server is verified.
    pub is_secure: bool,
}

/// What the client does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MysqlStep {
    /// Sends a payload, then reads a packet.
    Send(Vec<u8>),
    /// Reads a packet.
    Read,
    /// Is logged in.
    Done,
}

/// A login, from the server's first packet on.
#[derive(Debug)]
pub struct MysqlLogin<'a> {
    account: MysqlAccount<'a>,
    plugin: String,
    nonce: [u8; NONCE_BYTES],
    /// Whether the server is MariaDB.
    pub is_mariadb: bool,
    capabilities: u32,
}

impl<'a> MysqlLogin<'a> {
    /// Reads the server's first packet.
    pub fn new(greeting: &[u8], account: MysqlAccount<'a>) -> Result<MysqlLogin<'a>, String> {
        if greeting.first() == Some(&0xff) {
            return Err(error_text(greeting));
        }
        read_greeting(greeting, account)
            .ok_or_else(|| "the server does not speak MySQL's protocol; check the port".to_owned())
    }

    /// The packet that begins TLS; an error if the server has none.
    pub fn tls_request(&self) -> Result<Vec<u8>, String> {
        match self.capabilities & TLS != 0 {
            true => Ok(self.head(CAPABILITIES | TLS)),
            false => Err("the server has no TLS; set ssl_cert and ssl_key there".to_owned()),
        }
    }

    /// The first 32 bytes of the response.
    fn head(&self, capabilities: u32) -> Vec<u8> {
        let without = if self.account.database.is_empty() { WITH_DATABASE } else { 0 };
        let mut out = (capabilities & !without).to_le_bytes().to_vec();
        out.extend(PACKET_BYTES.to_le_bytes());
        out.push(CHARACTER_SET);
        out.resize(32, 0);
        out
    }

    /// The response to the first packet.
    pub fn response(&self) -> Result<Vec<u8>, String> {
        let tls = if self.account.is_secure { TLS } else { 0 };
        let mut out = self.head(CAPABILITIES | tls);
        let texts = [self.account.user, self.account.database, &self.plugin];
        if texts.iter().any(|text| text.contains('\0')) {
            return Err("a zero byte in the name of the user or database".to_owned());
        }
        out.extend(self.account.user.as_bytes());
        out.push(0);
        // A plugin that is not known here: the server asks for another one.
        let proof = self.proof().unwrap_or_default();
        out.push(proof.len() as u8);
        out.extend(proof);
        if !self.account.database.is_empty() {
            out.extend(self.account.database.as_bytes());
            out.push(0);
        }
        out.extend(self.plugin.as_bytes());
        out.push(0);
        Ok(out)
    }

    /// Proof that the client knows the password; an error for an unknown method.
    fn proof(&self) -> Result<Vec<u8>, String> {
        let password = self.account.password.as_bytes();
        let hash = |algorithm, parts: &[&[u8]]| digest(algorithm, &parts.concat());
        let xor = |a: Digest, b: Digest| -> Vec<u8> {
            a.as_ref().iter().zip(b.as_ref()).map(|(a, b)| a ^ b).collect()
        };
        match &*self.plugin {
            NATIVE | SHA2 if password.is_empty() => Ok(Vec::new()),
            NATIVE => {
                let algorithm = &SHA1_FOR_LEGACY_USE_ONLY;
                let once = hash(algorithm, &[password]);
                let twice = hash(algorithm, &[once.as_ref()]);
                Ok(xor(once, hash(algorithm, &[&self.nonce, twice.as_ref()])))
            }
            SHA2 => {
                let once = hash(&SHA256, &[password]);
                let twice = hash(&SHA256, &[once.as_ref()]);
                Ok(xor(once, hash(&SHA256, &[twice.as_ref(), &self.nonce])))
            }
            other => Err(format!(
                "the server asks for the unsupported authentication method {:?}; create the user \
                 with {NATIVE} or {SHA2}",
                first_chars(other)
            )),
        }
    }

    /// Answers a packet of the server after the response.
    pub fn answer(&mut self, payload: &[u8]) -> Result<MysqlStep, String> {
        match payload {
            [0, ..] => Ok(MysqlStep::Done),
            [0xff, ..] => Err(error_text(payload)),
            // Another method, with new random data.
            [0xfe, switch @ ..] => {
                let (plugin, nonce) = split_text(switch).unwrap_or((switch, &[]));
                self.plugin = first_chars(&String::from_utf8_lossy(plugin)).to_owned();
                if let Some(nonce) = nonce.first_chunk() {
                    self.nonce = *nonce;
                }
                self.proof().map(MysqlStep::Send)
            }
            // The server knows the hash.
            [1, 3] => Ok(MysqlStep::Read),
            [1, 4] if self.plugin == SHA2 && self.account.is_secure => {
                let password = [self.account.password.as_bytes(), &[0]].concat();
                Ok(MysqlStep::Send(password))
            }
            [1, 4] => {
                let what = "the server asks for the whole password, which is sent over TLS alone; \
                            set secure = true";
                Err(what.to_owned())
            }
            _ => Err("the server sent an unexpected packet at the login".to_owned()),
        }
    }
}

/// Protocol version 10; version of the server; connection; 8 bytes of random data; 0;
/// capabilities (low half); character set; status; capabilities (high half); length of the random
/// data; 10 bytes; the rest of the random data; name of the method.
fn read_greeting<'a>(greeting: &[u8], account: MysqlAccount<'a>) -> Option<MysqlLogin<'a>> {
    let (version, rest) = split_text(greeting.strip_prefix(&[10])?)?;
    let (_, rest) = rest.split_first_chunk::<4>()?;
    let (first, rest) = rest.split_first_chunk::<8>()?;
    let (&[_, low_0, low_1, _, _, _, high_0, high_1, _], rest) = rest.split_first_chunk::<9>()?;
    let (_, rest) = rest.split_first_chunk::<10>()?;
    let (second, rest) = rest.split_first_chunk::<{ NONCE_BYTES - 8 }>()?;
    let mut nonce = [0; NONCE_BYTES];
    nonce[..8].copy_from_slice(first);
    nonce[8..].copy_from_slice(second);
    let plugin = rest.strip_prefix(&[0]).and_then(split_text).map_or(NATIVE.as_bytes(), |it| it.0);
    Some(MysqlLogin {
        account,
        plugin: first_chars(&String::from_utf8_lossy(plugin)).to_owned(),
        nonce,
        is_mariadb: String::from_utf8_lossy(version).contains("MariaDB"),
        capabilities: u32::from_le_bytes([low_0, low_1, high_0, high_1]),
    })
}

/// Text up to a zero byte, and the rest.
fn split_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn first_chars(text: &str) -> &str {
    let end = text.char_indices().nth(TEXT_CHARS_MAX).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// Text of an ERR packet: `(code) text`.
fn error_text(payload: &[u8]) -> String {
    let Some((&[_, low, high], rest)) = payload.split_first_chunk::<3>() else {
        return "the server reported an error".to_owned();
    };
    // `#` and an SQLSTATE of five characters.
    let rest = rest.strip_prefix(b"#").and_then(|rest| rest.get(5..)).unwrap_or(rest);
    let text = String::from_utf8_lossy(rest);
    format!("({}) {}", u16::from_le_bytes([low, high]), first_chars(&text))
}

/// Command of a query.
pub fn query_command(sql: &str) -> Vec<u8> {
    [&[3], sql.as_bytes()].concat()
}

/// Result of a query, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MysqlResult {
    /// Number of rows.
    pub rows: u64,
    /// First value of the first row, at most its first 1,000 bytes; `None` is NULL, or no row.
    pub first: Option<String>,
    /// Column definitions that follow.
    columns: u64,
    stage: ResultStage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ResultStage {
    #[default]
    Head,
    Columns,
    Rows,
}

impl MysqlResult {
    /// Reads a packet; returns whether the result is complete.
    pub fn read(&mut self, payload: &[u8]) -> Result<bool, String> {
        if payload.first() == Some(&0xff) {
            return Err(error_text(payload));
        }
        let malformed = || "the server sent a malformed result".to_owned();
        let is_end = is_eof(payload, payload.len());
        match self.stage {
            // A statement without rows.
            ResultStage::Head if payload.first() == Some(&0) => Ok(true),
            ResultStage::Head => {
                let mut rest = payload;
                let columns = parse_integer(&mut rest).filter(|_| rest.is_empty());
                let columns = columns.filter(|columns| (1..=COLUMNS_MAX).contains(columns));
                (self.columns, self.stage) = (columns.ok_or_else(malformed)?, ResultStage::Columns);
                Ok(false)
            }
            ResultStage::Columns if is_end && self.columns == 0 => {
                self.stage = ResultStage::Rows;
                Ok(false)
            }
            ResultStage::Columns => {
                self.columns = self.columns.checked_sub(1).ok_or_else(malformed)?;
                Ok(false)
            }
            ResultStage::Rows if is_end => Ok(true),
            ResultStage::Rows => {
                if self.rows == 0 && payload.first() != Some(&0xfb) {
                    let mut rest = payload;
                    let length = parse_integer(&mut rest).ok_or_else(malformed)?;
                    let length = usize::try_from(length).map_err(|_| malformed())?;
                    let value = rest.get(..length).ok_or_else(malformed)?;
                    let kept = &value[..length.min(VALUE_BYTES_MAX)];
                    self.first = Some(String::from_utf8_lossy(kept).into_owned());
                }
                self.rows += 1;
                Ok(false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: MysqlAccount<'_> =
        MysqlAccount { user: "u", password: "secret", database: "d", is_secure: false };

    fn greeting(capabilities: u32, plugin: &str) -> Vec<u8> {
        let [a, b, c, d] = capabilities.to_le_bytes();
        let nonce: Vec<u8> = (1..=20).collect();
        let head =
            [b"\x0a8.0.36\0\x07\0\0\0", &nonce[..8], &[0, a, b, 45, 2, 0, c, d, 21]].concat();
        [&head[..], &[0; 10], &nonce[8..], &[0], plugin.as_bytes(), &[0]].concat()
    }

    /// Checked with the formulas of the documentation, computed by another program (Python's
    /// hashlib).
    #[test]
    fn proofs_are_those_of_the_methods() {
        let proof = |plugin| {
            let login = MysqlLogin::new(&greeting(0, plugin), ACCOUNT).unwrap();
            let digits = login.proof().unwrap().into_iter().map(|byte| format!("{byte:02x}"));
            digits.collect::<String>()
        };
        assert_eq!(proof(NATIVE), "b32bb3a583e1340c0a1108d58b1be49781ad8c2f");
        assert_eq!(proof(SHA2), "746ebe205d56a0707acb3e796e834e0dd7b1d61743b26bd5202c7a623230c7c9");
    }

    #[test]
    fn a_login_has_its_fields() {
        let login = MysqlLogin::new(&greeting(TLS, NATIVE), ACCOUNT).unwrap();
        let out = login.response().unwrap();
        assert_eq!(out[..9], [9, 0xa2, 8, 0, 0, 0, 0, 1, 45]);
        assert_eq!(out[32..35], [b'u', 0, 20]);
        assert_eq!(out[55..], *b"d\0mysql_native_password\0");
        let request = login.tls_request().unwrap();
        assert_eq!((request.len(), request[1]), (32, 0xaa));
        let none = MysqlAccount { password: "", database: "", ..ACCOUNT };
        let login = MysqlLogin::new(&greeting(0, SHA2), none).unwrap();
        assert_eq!(login.response().unwrap()[32..], *b"u\0\0caching_sha2_password\0");
        assert!(login.tls_request().unwrap_err().starts_with("the server has no TLS"));
        let zero = MysqlAccount { user: "a\0b", ..ACCOUNT };
        let login = MysqlLogin::new(&greeting(0, SHA2), zero).unwrap();
        assert!(login.response().unwrap_err().starts_with("a zero byte"));
    }

    #[test]
    fn the_whole_password_is_sent_over_tls_alone() {
        let answers = |is_secure| {
            let account = MysqlAccount { is_secure, ..ACCOUNT };
            let mut login = MysqlLogin::new(&greeting(0, SHA2), account).unwrap();
            assert_eq!(login.answer(&[1, 3]), Ok(MysqlStep::Read));
            login.answer(&[1, 4])
        };
        assert_eq!(answers(true), Ok(MysqlStep::Send(b"secret\0".to_vec())));
        assert!(answers(false).unwrap_err().ends_with("set secure = true"));
        let mut login = MysqlLogin::new(&greeting(0, SHA2), ACCOUNT).unwrap();
        let switch = [b"\xfemysql_native_password\0", &[7; 21][..]].concat();
        let Ok(MysqlStep::Send(proof)) = login.answer(&switch) else { panic!() };
        assert_eq!(proof.len(), 20);
        assert_eq!(login.answer(&[0, 0, 0, 2, 0, 0, 0]), Ok(MysqlStep::Done));
        let other = login.answer(b"\xfeauth_ed25519\0").unwrap_err();
        assert!(other.contains("unsupported authentication method \"auth_ed25519\""), "{other}");
        let denied = b"\xff\x15\x04#28000Access denied";
        assert_eq!(login.answer(denied), Err("(1045) Access denied".to_owned()));
        assert!(login.answer(&[7]).unwrap_err().contains("unexpected packet"));
    }

    #[test]
    fn damaged_greetings_are_rejected() {
        let whole = greeting(0, NATIVE);
        // The name of the method may be missing.
        let least = whole.len() - NATIVE.len() - 2;
        for end in 0..whole.len() {
            assert_eq!(MysqlLogin::new(&whole[..end], ACCOUNT).is_ok(), end >= least, "{end}");
        }
        let blocked = MysqlLogin::new(b"\xff\x69\x04Host is blocked", ACCOUNT).unwrap_err();
        assert_eq!(blocked, "(1129) Host is blocked");
        assert!(MysqlLogin::new(b"SSH-2.0", ACCOUNT).unwrap_err().contains("check the port"));
    }

    fn read(packets: &[&[u8]]) -> Result<(bool, u64, Option<String>), String> {
        let mut result = MysqlResult::default();
        let mut is_end = false;
        for packet in packets {
            is_end = result.read(packet)?;
        }
        Ok((is_end, result.rows, result.first))
    }

    #[test]
    fn results_are_read() {
        let eof = &[0xfe, 0, 0, 2, 0][..];
        let row = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
        let (seven, eight) = (row("7"), row("8"));
        let found = read(&[&[1], b"definition", eof, &seven, &eight, eof]);
        assert_eq!(found, Ok((true, 2, Some("7".to_owned()))));
        assert_eq!(read(&[&[1], b"definition", eof, eof]), Ok((true, 0, None)));
        assert_eq!(read(&[&[1], b"definition", eof, &[0xfb], eof]), Ok((true, 1, None)));
        assert_eq!(read(&[&[0, 1, 0, 2, 0, 0, 0]]), Ok((true, 0, None)));
        let error = b"\xff\x7a\x04#42S02no such table";
        assert_eq!(read(&[error]), Err("(1146) no such table".to_owned()));
        assert_eq!(read(&[&[1], b"definition", eof, error]).unwrap_err(), "(1146) no such table");
        let malformed = Err("the server sent a malformed result".to_owned());
        for packets in [
            &[&[0xfb, b'/'][..]][..],
            &[&[]],
            &[&[1], b"definition", b"another"],
            &[&[1], b"definition", eof, &[9, b'7']],
            &[&[1], b"definition", eof, &[]],
            &[&[0xfc, 0xff, 0xff]],
            &[&[1], b"definition", eof, &[0xfe, 255, 255, 255, 255, 255, 255, 255, 255, 1]],
        ] {
            assert_eq!(read(packets), malformed, "{packets:?}");
        }
        let long = [&[0xfd, 0, 0, 1][..], &[b'x'; 1 << 16]].concat();
        let (_, _, first) = read(&[&[1], b"definition", eof, &long]).unwrap();
        assert_eq!(first.unwrap().len(), VALUE_BYTES_MAX);
    }
}
