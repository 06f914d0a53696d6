//! A connection to a server: startup, and queries by the simple query protocol, one at a time.
//!
//! Each query is its own transaction. Results are text. The bounds on messages and results keep a
//! broken or hostile server from using memory.
//! <https://www.postgresql.org/docs/current/protocol-message-formats.html>

use std::io::ErrorKind;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use net::tls::ClientTls;
use postgres_protocol::message::frontend;
use protocol::postgres::{LoginError, PostgresLogin, SSL_REQUEST, ServerTrust, error_text};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::connection_string::{ConnectionString, SessionEncryption};
use crate::metric::VERSIONS;
use crate::password::PasswordSource;
use crate::report::first_chars;

/// Time in which the server cancels a query.
pub(crate) const STATEMENT_TIMEOUT_MS: u32 = 5_000;
/// Time to connect and to log in, and for a response: a server that cancels none of its queries
/// hangs.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(8);
/// Largest message; rows of statistics have some hundred bytes.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Largest number of rows of a result: `pg_stat_statements.max` is 5,000 by default.
const ROWS_MAX: usize = 20_000;
/// Largest size of a result: the largest one has 10,000 statements of some hundred bytes.
const RESULT_BYTES_MAX: usize = 16 << 20;
/// Largest number of columns of a row.
const COLUMNS_MAX: u16 = 64;
/// Longest text of an error, and of a version.
const ERROR_CHARS_MAX: usize = 500;
const VERSION_CHARS_MAX: usize = 100;

/// Values of a row as text; `None` is NULL.
pub(crate) type ResultRow = Vec<Option<String>>;

/// Why a query has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueryFailure {
    /// The server reported an error; the connection can be used. Code (SQLSTATE) and text.
    Rejected(String, String),
    /// The connection is lost or unusable.
    Broken(String),
}

impl From<LoginError> for QueryFailure {
    fn from(error: LoginError) -> QueryFailure {
        match error {
            LoginError::Rejected(reason) => QueryFailure::Rejected(String::new(), reason),
            LoginError::Malformed => {
                QueryFailure::Broken("invalid authentication request".to_owned())
            }
        }
    }
}

/// Whether a server may learn the password.
fn trust(server: &ConnectionString) -> ServerTrust {
    match server.is_local() || server.encryption() == SessionEncryption::VerifyFull {
        true => ServerTrust::Trusted,
        false => ServerTrust::Unverified("sslmode=verify-full in `dsn`"),
    }
}

trait SessionStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> SessionStream for T {}

/// A logged-in connection.
pub(crate) struct PostgresSession {
    stream: Box<dyn SessionStream>,
    received: BytesMut,
    outgoing: BytesMut,
    response_timeout: Duration,
    /// Major version of the server, and its full name.
    pub(crate) version: u32,
    pub(crate) version_text: String,
}

/// What a connection needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionSettings {
    pub(crate) server: ConnectionString,
    pub(crate) password: PasswordSource,
    pub(crate) tls: ClientTls,
    pub(crate) response_timeout: Duration,
}

impl PostgresSession {
    /// Connects and logs in. The error has a remedy where there is one.
    pub(crate) async fn open(settings: &SessionSettings) -> Result<PostgresSession, QueryFailure> {
        let address = settings.server.address();
        let limit = settings.response_timeout;
        let opened = tokio::time::timeout(limit, PostgresSession::connect(settings));
        let fail = |reason| format!("cannot connect to {address}: {reason}");
        match opened.await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(QueryFailure::Broken(reason))) => Err(QueryFailure::Broken(fail(reason))),
            Ok(Err(QueryFailure::Rejected(code, text))) => {
                let remedy = login_remedy(&code, &settings.server);
                Err(QueryFailure::Rejected(code, fail(text + &remedy)))
            }
            Err(_) => Err(QueryFailure::Broken(fail(late_text(limit)))),
        }
    }

    async fn connect(settings: &SessionSettings) -> Result<PostgresSession, QueryFailure> {
        let broken = |error: std::io::Error| {
            let remedy = match error.kind() {
                ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
                    "; start the server, or set host and port in `dsn`"
                }
                ErrorKind::PermissionDenied => "; permit it in unix_socket_permissions",
                _ => "",
            };
            QueryFailure::Broken(format!("{error}{remedy}"))
        };
        let server = &settings.server;
        let stream: Box<dyn SessionStream> = if server.is_unix() {
            Box::new(UnixStream::connect(server.socket_path()).await.map_err(broken)?)
        } else {
            let target = (&*server.host, server.port);
            let stream = TcpStream::connect(target).await.map_err(broken)?;
            stream.set_nodelay(true).map_err(broken)?;
            match server.encryption() {
                SessionEncryption::Disable => Box::new(stream),
                encryption => start_tls(stream, encryption, settings).await?,
            }
        };
        let (received, outgoing) = (BytesMut::new(), BytesMut::new());
        let mut session = PostgresSession {
            stream,
            received,
            outgoing,
            response_timeout: settings.response_timeout,
            version: 0,
            version_text: String::new(),
        };
        session.log_in(settings).await?;
        Ok(session)
    }

    async fn log_in(&mut self, settings: &SessionSettings) -> Result<(), QueryFailure> {
        let server = &settings.server;
        let timeout = STATEMENT_TIMEOUT_MS.to_string();
        let parameters = [
            ("user", &*server.user),
            ("database", &*server.database),
            ("application_name", "topdeck"),
            ("client_encoding", "UTF8"),
            // Objects of users do not hide those of the system.
            ("search_path", "pg_catalog"),
            ("default_transaction_read_only", "on"),
            ("statement_timeout", &*timeout),
            ("lock_timeout", "500"),
            ("jit", "off"),
        ];
        let broken = |error: std::io::Error| QueryFailure::Broken(error.to_string());
        frontend::startup_message(parameters, &mut self.outgoing).map_err(broken)?;
        self.send().await?;
        let password = || settings.password.read(server, |name| std::env::var_os(name));
        let mut login = PostgresLogin::new(&server.user, &password, trust(server));
        loop {
            let (kind, body) = self.message().await?;
            match kind {
                b'R' => {
                    login.answer(&body, &mut self.outgoing)?;
                    self.send().await?;
                }
                b'S' => self.read_parameter(&body),
                b'E' => return Err(rejection(&body)),
                b'Z' => break,
                b'K' | b'N' | b'v' => {}
                _ => return Err(unexpected(kind)),
            }
        }
        login.check_end()?;
        if self.version < *VERSIONS.start() {
            return Err(QueryFailure::Rejected(
                String::new(),
                format!(
                    "the server is PostgreSQL {}, topdeck needs {} or later; upgrade the server",
                    self.version_text,
                    VERSIONS.start()
                ),
            ));
        }
        Ok(())
    }

    /// Runs a query and returns its rows.
    pub(crate) async fn query(&mut self, sql: &str) -> Result<Vec<ResultRow>, QueryFailure> {
        let limit = self.response_timeout;
        match tokio::time::timeout(limit, self.run(sql)).await {
            Ok(result) => result,
            Err(_) => Err(QueryFailure::Broken(late_text(limit))),
        }
    }

    async fn run(&mut self, sql: &str) -> Result<Vec<ResultRow>, QueryFailure> {
        let broken = |error: std::io::Error| QueryFailure::Broken(error.to_string());
        frontend::query(sql, &mut self.outgoing).map_err(broken)?;
        self.send().await?;
        let (mut rows, mut bytes, mut failure) = (Vec::new(), 0, None);
        loop {
            let (kind, body) = match self.message().await {
                Ok(message) => message,
                // The last error says why the server closed the connection.
                Err(error) => {
                    return Err(match failure {
                        Some(QueryFailure::Rejected(_, text)) => QueryFailure::Broken(text),
                        _ => error,
                    });
                }
            };
            match kind {
                // The rest of a result that is too large is skipped: the connection remains.
                b'D' if failure.is_some() => {}
                b'D' if rows.len() >= ROWS_MAX => {
                    failure = Some(too_large(format!("more than {ROWS_MAX} rows")));
                }
                b'D' if bytes + body.len() > RESULT_BYTES_MAX => {
                    failure = Some(too_large(format!("more than {RESULT_BYTES_MAX} bytes")));
                }
                b'D' => {
                    bytes += body.len();
                    let row = parse_row(&body);
                    rows.push(row.ok_or_else(|| QueryFailure::Broken("malformed row".into()))?);
                }
                b'E' => failure = Some(rejection(&body)),
                b'Z' => break,
                b'T' | b'C' | b'I' | b'N' | b'S' | b'A' => {}
                _ => return Err(unexpected(kind)),
            }
        }
        failure.map_or(Ok(rows), Err)
    }

    /// Tells the server that the session ends, so that it logs no lost connection.
    pub(crate) async fn close(mut self) {
        frontend::terminate(&mut self.outgoing);
        let _ = tokio::time::timeout(Duration::from_secs(1), self.send()).await;
    }

    async fn send(&mut self) -> Result<(), QueryFailure> {
        let sent = self.stream.write_all(&self.outgoing).await;
        self.outgoing.clear();
        sent.map_err(|error| QueryFailure::Broken(error.to_string()))
    }

    /// The next message: its type and body.
    async fn message(&mut self) -> Result<(u8, BytesMut), QueryFailure> {
        loop {
            if let Some((head, _)) = self.received.split_first_chunk::<5>() {
                let [kind, length @ ..] = *head;
                let length = u32::from_be_bytes(length) as usize;
                if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
                    let what = "the server does not speak PostgreSQL's protocol; check the port";
                    return Err(QueryFailure::Broken(what.to_owned()));
                }
                if self.received.len() > length {
                    let mut message = self.received.split_to(length + 1);
                    message.advance(5);
                    return Ok((kind, message));
                }
            }
            match self.stream.read_buf(&mut self.received).await {
                Ok(0) => {
                    let what = "the server closed the connection";
                    return Err(QueryFailure::Broken(what.to_owned()));
                }
                Ok(_) => {}
                Err(error) => return Err(QueryFailure::Broken(error.to_string())),
            }
        }
    }

    /// `server_version` is `15.18 (Debian …)` or `19beta1`.
    fn read_parameter(&mut self, body: &[u8]) {
        let text = String::from_utf8_lossy(body);
        let Some(value) = text.strip_prefix("server_version\0") else { return };
        let name = value.trim_end_matches('\0');
        self.version_text = first_chars(name, VERSION_CHARS_MAX).to_owned();
        let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
        self.version = value[..end].parse().unwrap_or(0);
    }
}

async fn start_tls(
    mut stream: TcpStream,
    encryption: SessionEncryption,
    settings: &SessionSettings,
) -> Result<Box<dyn SessionStream>, QueryFailure> {
    let broken = |error: std::io::Error| QueryFailure::Broken(error.to_string());
    stream.write_all(&SSL_REQUEST).await.map_err(broken)?;
    let mut answer = [0];
    stream.read_exact(&mut answer).await.map_err(broken)?;
    if answer != *b"S" {
        let what = "the server has no TLS; set ssl = on there, or sslmode=disable in `dsn`";
        return Err(QueryFailure::Rejected(String::new(), what.to_owned()));
    }
    let config = match encryption {
        SessionEncryption::Require => settings.tls.unverified_config(),
        _ => settings.tls.config(),
    };
    let config = config.map_err(|error| QueryFailure::Broken(error.to_string()))?;
    let name = ServerName::try_from(settings.server.host.clone())
        .map_err(|error| QueryFailure::Broken(error.to_string()))?;
    let connector = TlsConnector::from(std::sync::Arc::new(config));
    Ok(Box::new(connector.connect(name, stream).await.map_err(broken)?))
}

fn too_large(what: String) -> QueryFailure {
    QueryFailure::Rejected(String::new(), format!("the result has {what}"))
}

fn late_text(limit: Duration) -> String {
    format!("no response within {limit:?}")
}

fn unexpected(kind: u8) -> QueryFailure {
    let kind = kind.escape_ascii();
    QueryFailure::Broken(format!("the server sent an unexpected message ({kind})"))
}

/// The error of an ErrorResponse.
fn rejection(body: &[u8]) -> QueryFailure {
    let code = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"C"));
    let code = String::from_utf8_lossy(code.unwrap_or_default());
    let code = first_chars(&code, ERROR_CHARS_MAX).to_owned();
    let text = error_text(body).unwrap_or_else(|| "the server reported an error".to_owned());
    QueryFailure::Rejected(code, first_chars(&text, ERROR_CHARS_MAX).to_owned())
}

/// What to do about an error of the login, with a separator.
fn login_remedy(code: &str, server: &ConnectionString) -> String {
    let user = &server.user;
    match code {
        "28P01" => "; check the password (`password_file`)".to_owned(),
        "28000" => format!(
            "; create the role (CREATE ROLE {user} LOGIN; GRANT pg_monitor TO {user};) and permit \
             it in pg_hba.conf"
        ),
        "3D000" => "; set dbname in `dsn`".to_owned(),
        _ => String::new(),
    }
}

/// Values of a DataRow: their number in two bytes; then the length of each, -1 for NULL, and its
/// bytes.
fn parse_row(body: &[u8]) -> Option<ResultRow> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let count = u16::from_be_bytes(*count);
    if count > COLUMNS_MAX {
        return None;
    }
    let mut row = Vec::new();
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = i32::from_be_bytes(*length);
        let Ok(length) = usize::try_from(length) else {
            row.push(None);
            rest = after;
            continue;
        };
        let (value, after) = after.split_at_checked(length)?;
        row.push(Some(String::from_utf8_lossy(value).into_owned()));
        rest = after;
    }
    rest.is_empty().then_some(row)
}

#[cfg(test)]
mod tests;
