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

use crate::codec::{Codec, Completion, RequestId};
use crate::failure::Failure;
use crate::request::RenderedRequest;

pub(crate) use login::Login;

/// SSLRequest: length and code.
pub(crate) const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
/// Type and length of a message; the length includes itself.
const HEAD: usize = 5;
/// The protocol sends their number in two bytes.
const ARGUMENTS_MAX: usize = 65_535;
/// Maximum size of an authentication message, far above real ones.
const RETAINED_BYTES_MAX: usize = 8 << 10;

/// Checks that a query can be represented.
pub(super) fn check(request: &RenderedRequest) -> Result<(), String> {
    let sql = std::str::from_utf8(&request.body);
    let sql = sql.map_err(|error| format!("the SQL is not valid UTF-8: {error}"))?;
    if let Some(at) = sql.find('\0') {
        return Err(format!("the SQL contains a NUL at byte {at}"));
    }
    match request.arguments.len() {
        0..=ARGUMENTS_MAX => Ok(()),
        many => Err(format!("{many} arguments exceed the limit of PostgreSQL ({ARGUMENTS_MAX})")),
    }
}

/// Codec of one connection.
pub(crate) struct Postgres {
    login: Login,
    is_prepared: bool,
    phase: SessionPhase,
    /// Header of the current message, how much of it arrived, and how many bytes of its body are to
    /// come.
    head: [u8; HEAD],
    received: usize,
    rest: u32,
    /// Body of the current message, if needed.
    body: Vec<u8>,
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
    is_last: bool,
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
            head: [0; HEAD],
            received: 0,
            rest: 0,
            body: Vec::new(),
            request_id: None,
            failure: None,
            error_detail: None,
            has_result: false,
            statements: HashMap::new(),
            parsing: None,
            is_extended: false,
            is_last: false,
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
            (SessionPhase::Ready, b'E') => self.is_last = true,
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
    fn end(&mut self, out: &mut Vec<u8>, completions: &mut Vec<Completion>) -> Result<(), Failure> {
        match (self.phase, self.head[0]) {
            (phase, b'E') => {
                let failure =
                    if phase == SessionPhase::Ready { Failure::Closed } else { Failure::Status };
                self.error_detail = error_text(&self.body).map(|detail| (failure, detail));
                if matches!(phase, SessionPhase::Login | SessionPhase::Starting) {
                    return Err(failure);
                }
            }
            (_, b'R') => {
                let result = self.login.answer(&self.body, &mut self.outgoing);
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
        self.received = 0;
        self.body.clear();
        Ok(())
    }
}

/// Formats an ErrorResponse: severity, message, code. A field is a type byte and a string.
fn error_text(fields: &[u8]) -> Option<String> {
    let field = |kind: u8| {
        let mut fields = fields.split(|byte| *byte == 0);
        let found = fields.find(|field| field.first() == Some(&kind))?;
        Some(String::from_utf8_lossy(&found[1..]))
    };
    let message = field(b'M')?;
    let severity = field(b'S').map(|text| format!("{text}: ")).unwrap_or_default();
    let code = field(b'C').map(|text| format!(" ({text})")).unwrap_or_default();
    Some(format!("{severity}{message}{code}"))
}

impl Codec for Postgres {
    fn open(&mut self, out: &mut Vec<u8>) {
        match self.login.open(&mut self.outgoing) {
            Ok(()) => out.extend_from_slice(&self.outgoing),
            // A name that cannot be represented.
            Err(_) => self.is_last = true,
        }
        self.outgoing.clear();
    }

    fn capacity(&self) -> usize {
        usize::from(self.phase == SessionPhase::Ready && !self.is_last)
    }

    fn is_ending(&self) -> bool {
        self.is_last
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
        while !bytes.is_empty() {
            if self.received < HEAD {
                let taken = (HEAD - self.received).min(bytes.len());
                self.head[self.received..self.received + taken].copy_from_slice(&bytes[..taken]);
                self.received += taken;
                bytes = &bytes[taken..];
                if self.received < HEAD {
                    return Ok(());
                }
                let [kind, length @ ..] = self.head;
                let length = u32::from_be_bytes(length);
                self.rest = length.checked_sub(4).ok_or(Failure::Malformed)?;
                self.begin(kind, self.rest)?;
            }
            let taken = bytes.len().min(self.rest as usize);
            if matches!(self.head[0], b'R' | b'E') {
                let space = RETAINED_BYTES_MAX.saturating_sub(self.body.len());
                self.body.extend_from_slice(&bytes[..taken.min(space)]);
            }
            bytes = &bytes[taken..];
            self.rest -= taken as u32;
            if self.rest == 0 {
                self.end(out, completions)?;
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
