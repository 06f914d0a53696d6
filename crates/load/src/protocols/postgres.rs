//! PostgreSQL, one query at a time (protocol 3.0).
//!
//! The body of a request is the query, `arguments` are its parameters as text. Without parameters
//! it is a simple query; with parameters, or with prepared statements, it is Parse, Bind, Execute
//! and Sync in one write. A prepared statement is parsed with its first request on each connection,
//! which takes longer; a statement with changing text is parsed each time. A response ends with
//! ReadyForQuery. Of the messages before it only the type matters: rows are skipped.

mod login;

use std::collections::HashMap;

use bytes::BytesMut;
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;
use protocol::postgres::{
    PostgresMessageParser, PostgresMessagePart, RETAINED_BYTES_MAX, SSL_REQUEST, error_text,
};

use crate::codec::{Codec, Completion, RequestId};
use crate::failure::Failure;
use crate::load_protocol::{LoadProtocol, ProtocolRow, ProtocolTarget, UrlScheme};
use crate::rendered_request::RenderedRequest;
use crate::secret::Secret;
use crate::target_url::{TargetUrl, decoded};

use login::Login;

/// Maximum number of parameters: the protocol sends their number in two bytes.
const PARAMETERS_MAX: usize = 65_535;
/// Types of messages whose contents matter: authentication requests and errors.
const RETAINED: &[u8] = b"RE";

/// The row of the table.
pub(super) const ROW: ProtocolRow = ProtocolRow {
    schemes: &[
        UrlScheme {
            name: "postgres",
            is_tls: false,
            default_port: Some(5432),
            help: Some("postgres"),
        },
        UrlScheme { name: "postgresql", is_tls: false, default_port: Some(5432), help: None },
    ],
    has_credentials: true,
    body: Some("the SQL"),
    argument: Some("a parameter, $1 first"),
    open: |url| {
        let (protocol, mode) = PostgresProtocol::read(url)?;
        Ok(ProtocolTarget {
            is_tls: mode != SslMode::Disable,
            is_verified: mode != SslMode::Require,
            ..ProtocolTarget::new(protocol, url.scheme)
        })
    },
};

/// One query at a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PostgresProtocol {
    user: String,
    password: Option<Secret>,
    database: String,
    /// Whether statements are prepared once per connection.
    is_prepared: bool,
}

/// `sslmode` of libpq. Modes in which the server decides about TLS are not supported: the measured
/// protocol would be unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SslMode {
    Disable,
    /// TLS without verification.
    Require,
    VerifyFull,
}

impl PostgresProtocol {
    fn read(url: &TargetUrl<'_>) -> Result<(PostgresProtocol, SslMode), &'static str> {
        let (database, query) = url.path.split_once('?').unwrap_or((&url.path, ""));
        let (mut is_prepared, mut mode) = (false, SslMode::Disable);
        for one in query.split('&').filter(|one| !one.is_empty()) {
            match one {
                "prepared=true" => is_prepared = true,
                "prepared=false" => is_prepared = false,
                "sslmode=disable" => mode = SslMode::Disable,
                "sslmode=require" => mode = SslMode::Require,
                "sslmode=verify-full" => mode = SslMode::VerifyFull,
                _ => {
                    return Err("unknown parameter; supported are prepared=true or false, and \
                         sslmode=disable, require or verify-full");
                }
            }
        }
        let invalid = "the name of the database is not UTF-8 without NUL";
        let database = decoded(database.trim_start_matches('/'), invalid)?;
        // Like psql, except that the OS user is not the default.
        let user = url.user.clone().filter(|name| !name.is_empty());
        let user = user.unwrap_or_else(|| "postgres".to_owned());
        let database = if database.is_empty() { user.clone() } else { database };
        let password = url.password.clone();
        Ok((PostgresProtocol { user, password, database, is_prepared }, mode))
    }
}

impl LoadProtocol for PostgresProtocol {
    fn codec(&self) -> Box<dyn Codec> {
        let login = Login::new(&self.user, self.password.clone(), &self.database);
        Box::new(Postgres::new(login, self.is_prepared))
    }

    fn check(&self, request: &RenderedRequest) -> Result<(), String> {
        request.refuse_headers()?;
        let sql = std::str::from_utf8(&request.body);
        let sql = sql.map_err(|error| format!("the SQL is not valid UTF-8: {error}"))?;
        if let Some(at) = sql.find('\0') {
            return Err(format!("the SQL contains a NUL at byte {at}"));
        }
        match request.arguments.len() {
            0..=PARAMETERS_MAX => Ok(()),
            many => {
                Err(format!("{many} parameters exceed the limit of PostgreSQL ({PARAMETERS_MAX})"))
            }
        }
    }

    fn secret(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    fn tls_request(&self) -> Option<&'static [u8]> {
        Some(&SSL_REQUEST)
    }
}

/// Codec of one connection.
pub(crate) struct Postgres {
    login: Login,
    is_prepared: bool,
    phase: SessionPhase,
    parser: PostgresMessageParser,
    request_id: Option<RequestId>,
    failure: Option<Failure>,
    /// Detail of the last failure.
    error_detail: Option<(Failure, String)>,
    /// Whether the query produced a result; otherwise its end is an error.
    has_result: bool,
    /// Prepared statements by request index, with the name `s<index>`.
    statements: HashMap<usize, Vec<u8>>,
    /// The statement parsed by the current request.
    parsing: Option<usize>,
    is_extended: bool,
    /// Whether the server ends the session: no further request is sent.
    is_ending: bool,
    outgoing: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionPhase {
    /// Until authentication succeeds.
    Login,
    /// Until ReadyForQuery.
    Starting,
    Ready,
    Busy,
}

impl Postgres {
    pub(crate) fn new(login: Login, is_prepared: bool) -> Postgres {
        Postgres {
            login,
            is_prepared,
            phase: SessionPhase::Login,
            parser: PostgresMessageParser::new(RETAINED),
            request_id: None,
            failure: None,
            error_detail: None,
            has_result: false,
            statements: HashMap::new(),
            parsing: None,
            is_extended: false,
            is_ending: false,
            outgoing: BytesMut::new(),
        }
    }

    /// Encodes a query. `None` if it cannot be represented: invalid UTF-8, a NUL, or too many
    /// parameters.
    fn write(&mut self, request: &RenderedRequest) -> Option<()> {
        let sql = std::str::from_utf8(&request.body).ok()?;
        self.is_extended = self.is_prepared || !request.arguments.is_empty();
        let out = &mut self.outgoing;
        if !self.is_extended {
            return frontend::query(sql, out).ok();
        }
        let known = self.statements.get(&request.index);
        // Its text changes: a prepared statement is not reusable.
        let changes = known.is_some_and(|known| *known != request.body);
        let name = match self.is_prepared && !changes {
            true => format!("s{}", request.index),
            false => String::new(),
        };
        if name.is_empty() || known.is_none() {
            frontend::parse(&name, sql, [], out).ok()?;
        }
        let parameters = request.arguments.iter();
        let write = |parameter: &Vec<u8>, out: &mut BytesMut| {
            out.extend_from_slice(parameter);
            Ok(IsNull::No)
        };
        frontend::bind("", &name, [], parameters, write, [], out).ok()?;
        frontend::execute("", 0, out).ok()?;
        frontend::sync(out);
        if !name.is_empty() && known.is_none() {
            self.statements.insert(request.index, request.body.clone());
            self.parsing = Some(request.index);
        }
        Some(())
    }

    /// Handles the header of a message.
    fn begin(&mut self, kind: u8, length: u32) -> Result<(), Failure> {
        match (self.phase, kind) {
            (SessionPhase::Login, b'R') if length as usize <= RETAINED_BYTES_MAX => {}
            // Parameters, notices and notifications are asynchronous.
            (_, b'S' | b'N') | (SessionPhase::Ready | SessionPhase::Busy, b'A') => {}
            (SessionPhase::Login | SessionPhase::Starting, b'v')
            | (SessionPhase::Starting, b'K' | b'Z') => {}
            // Authentication failed: the error message is the reason.
            (SessionPhase::Login | SessionPhase::Starting, b'E')
                if length as usize <= RETAINED_BYTES_MAX => {}
            // The server shuts down or closes the session.
            (SessionPhase::Ready, b'E') => self.is_ending = true,
            (SessionPhase::Busy, b'E') => {
                self.failure = Some(Failure::Status);
                if let Some(index) = self.parsing.take() {
                    self.statements.remove(&index);
                }
            }
            (SessionPhase::Busy, b'1') => self.parsing = None,
            // Empty, complete, or suspended portal.
            (SessionPhase::Busy, b'C' | b'I' | b's') => self.has_result = true,
            // Row descriptions, rows, COPY data, and intermediate steps.
            (SessionPhase::Busy, b'2' | b'3' | b'D' | b'G' | b'H' | b'T' | b'V' | b'Z') => {}
            (SessionPhase::Busy, b'c' | b'd' | b'n' | b't') => {}
            _ => return Err(Failure::Malformed),
        }
        Ok(())
    }

    /// Handles a complete message.
    fn end(
        &mut self,
        kind: u8,
        out: &mut Vec<u8>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Failure> {
        match (self.phase, kind) {
            (phase, b'E') => {
                let failure =
                    if phase == SessionPhase::Ready { Failure::Closed } else { Failure::Status };
                self.error_detail = error_text(self.parser.body()).map(|detail| (failure, detail));
                if matches!(phase, SessionPhase::Login | SessionPhase::Starting) {
                    return Err(failure);
                }
            }
            (_, b'R') => {
                let result = self.login.answer(self.parser.body(), &mut self.outgoing);
                let is_authenticated = result.map_err(|(failure, detail)| {
                    self.error_detail = Some((failure, detail.to_owned()));
                    failure
                })?;
                self.phase =
                    if is_authenticated { SessionPhase::Starting } else { SessionPhase::Login };
            }
            (SessionPhase::Starting, b'Z') => self.phase = SessionPhase::Ready,
            (SessionPhase::Busy, b'Z') => {
                if !self.has_result && self.failure.is_none() {
                    self.failure = Some(Failure::Malformed);
                }
                self.phase = SessionPhase::Ready;
                let failure = self.failure.take();
                completions.extend(
                    self.request_id.take().map(|request_id| Completion { request_id, failure }),
                );
            }
            // COPY FROM STDIN expects rows: it receives none.
            (SessionPhase::Busy, b'G') => {
                frontend::copy_fail("topdeck load sends no COPY data", &mut self.outgoing)
                    .map_err(|_| Failure::Malformed)?;
                // During COPY the server ignored the Sync of the query.
                if self.is_extended {
                    frontend::sync(&mut self.outgoing);
                }
            }
            _ => {}
        }
        out.extend_from_slice(&self.outgoing);
        self.outgoing.clear();
        Ok(())
    }
}

impl Codec for Postgres {
    fn open(&mut self, out: &mut Vec<u8>) {
        match self.login.open(&mut self.outgoing) {
            Ok(()) => out.extend_from_slice(&self.outgoing),
            // A name that cannot be represented.
            Err(_) => self.is_ending = true,
        }
        self.outgoing.clear();
    }

    fn capacity(&self) -> usize {
        usize::from(self.phase == SessionPhase::Ready && !self.is_ending)
    }

    fn is_ending(&self) -> bool {
        self.is_ending
    }

    fn send(&mut self, request: &RenderedRequest, request_id: RequestId, out: &mut Vec<u8>) {
        self.failure = None;
        self.has_result = false;
        if self.write(request).is_none() {
            // Without a query the server reports only ReadyForQuery, and the request fails.
            self.outgoing.clear();
            frontend::sync(&mut self.outgoing);
        }
        out.extend_from_slice(&self.outgoing);
        self.outgoing.clear();
        self.request_id = Some(request_id);
        self.phase = SessionPhase::Busy;
    }

    fn receive(
        &mut self,
        mut bytes: &[u8],
        out: &mut Vec<u8>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Failure> {
        while let Some(part) = self.parser.read(&mut bytes)? {
            match part {
                PostgresMessagePart::Start { kind, length } => self.begin(kind, length)?,
                PostgresMessagePart::End { kind } => self.end(kind, out, completions)?,
            }
        }
        Ok(())
    }

    fn error_detail(&mut self, failure: Failure) -> Option<String> {
        self.error_detail.take_if(|one| one.0 == failure).map(|one| one.1)
    }

    fn close(&mut self, completions: &mut Vec<Completion>) {
        // An error before the server closes is a response too.
        if let Some(failure) = self.failure.take() {
            let request_id = self.request_id.take();
            completions.extend(
                request_id.map(|request_id| Completion { request_id, failure: Some(failure) }),
            );
        }
    }
}

#[cfg(test)]
mod tests;
