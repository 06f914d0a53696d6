//! PostgreSQL: one query after the other (protocol 3.0).
//!
//! A query is the request's body, its parameters are the `arguments`, as text. Without parameters it goes as a simple query; with some,
//! or if statements are to be prepared, as Parse, Bind, Execute and Sync in one piece. A statement that is prepared is parsed with its
//! first request on each connection, which takes longer by that; one whose text changes from request to request is parsed each time.
//! An answer ends with ReadyForQuery. Of what comes before only the kind matters: rows are skipped, not kept.

mod login;

use std::collections::HashMap;

use bytes::BytesMut;
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;

use crate::codec::{Codec, Ended, Ticket};
use crate::failure::Failure;
use crate::request::Rendered;

pub(crate) use login::Login;

/// Asks for TLS: its own length, and a number that is no version of the protocol.
pub(crate) const REQUEST_FOR_TLS: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
/// Kind and length of a message; the length counts itself.
const HEAD: usize = 5;
/// Their number is sent in two bytes.
const ARGUMENTS_MAX: usize = 65_535;
/// What is asked about who we are is far shorter.
const KEPT_MAX: usize = 8 << 10;

/// Why a query cannot be said.
pub(super) fn check(request: &Rendered) -> Result<(), String> {
    let sql = std::str::from_utf8(&request.body);
    let sql = sql.map_err(|error| format!("its SQL is no text (UTF-8): {error}"))?;
    if let Some(at) = sql.find('\0') {
        return Err(format!("its SQL has a zero after {at} bytes, where no text goes on"));
    }
    match request.arguments.len() {
        0..=ARGUMENTS_MAX => Ok(()),
        many => Err(format!("it has {many} arguments, and PostgreSQL takes {ARGUMENTS_MAX}")),
    }
}

/// One connection.
pub(crate) struct Postgres {
    login: Login,
    is_prepared: bool,
    phase: Phase,
    /// A message that comes: its kind and length, as far as they have come, and how much of it is still to come.
    head: [u8; HEAD],
    come: usize,
    rest: u32,
    /// What came of its contents, if they matter.
    kept: Vec<u8>,
    ticket: Option<Ticket>,
    failure: Option<Failure>,
    /// What was said when something failed.
    words: Option<(Failure, String)>,
    /// Something was said about the query: without that its end means nothing.
    is_answered: bool,
    /// By the request's number: texts that the server has under the name `s<number>`.
    statements: HashMap<usize, Vec<u8>>,
    /// Which of them it gets with this request.
    parsing: Option<usize>,
    is_extended: bool,
    is_last: bool,
    written: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Until the server says who we are.
    Login,
    /// Until it takes queries.
    Starting,
    Ready,
    Busy,
}

impl Postgres {
    pub(crate) fn new(login: Login, is_prepared: bool) -> Postgres {
        Postgres {
            login,
            is_prepared,
            phase: Phase::Login,
            head: [0; HEAD],
            come: 0,
            rest: 0,
            kept: Vec::new(),
            ticket: None,
            failure: None,
            words: None,
            is_answered: false,
            statements: HashMap::new(),
            parsing: None,
            is_extended: false,
            is_last: false,
            written: BytesMut::new(),
        }
    }

    /// Writes a query. `None` if it cannot be said: it is no text, holds a zero, or has too many parameters.
    fn write(&mut self, request: &Rendered) -> Option<()> {
        let sql = std::str::from_utf8(&request.body).ok()?;
        self.is_extended = self.is_prepared || !request.arguments.is_empty();
        let out = &mut self.written;
        if !self.is_extended {
            return frontend::query(sql, out).ok();
        }
        let known = self.statements.get(&request.index);
        // The text of this one changes, so that it is worth no name.
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

    /// A message of this kind begins.
    fn begin(&mut self, kind: u8, length: u32) -> Result<(), Failure> {
        match (self.phase, kind) {
            (Phase::Login, b'R') if length as usize <= KEPT_MAX => {}
            // Parameters, notices and notifications come when they like.
            (_, b'S' | b'N') | (Phase::Ready | Phase::Busy, b'A') => {}
            (Phase::Login | Phase::Starting, b'v') | (Phase::Starting, b'K' | b'Z') => {}
            // Whoever is refused cannot ask: it ends with the reason.
            (Phase::Login | Phase::Starting, b'E') if length as usize <= KEPT_MAX => {}
            // The server shuts down, or has had enough of us.
            (Phase::Ready, b'E') => self.is_last = true,
            (Phase::Busy, b'E') => {
                self.failure = Some(Failure::Status);
                if let Some(index) = self.parsing.take() {
                    self.statements.remove(&index);
                }
            }
            (Phase::Busy, b'1') => self.parsing = None,
            // Empty, complete, or portals that go on.
            (Phase::Busy, b'C' | b'I' | b's') => self.is_answered = true,
            // Columns, rows, what is copied, and steps on the way.
            (Phase::Busy, b'2' | b'3' | b'D' | b'G' | b'H' | b'T' | b'V' | b'Z') => {}
            (Phase::Busy, b'c' | b'd' | b'n' | b't') => {}
            _ => return Err(Failure::Malformed),
        }
        Ok(())
    }

    /// The message that came is whole.
    fn end(&mut self, out: &mut Vec<u8>, ended: &mut Vec<Ended>) -> Result<(), Failure> {
        match (self.phase, self.head[0]) {
            (phase, b'E') => {
                let failure = if phase == Phase::Ready { Failure::Closed } else { Failure::Status };
                self.words = said(&self.kept).map(|words| (failure, words));
                if matches!(phase, Phase::Login | Phase::Starting) {
                    return Err(failure);
                }
            }
            (_, b'R') => {
                let answered = self.login.answer(&self.kept, &mut self.written);
                let is_content = answered.map_err(|(failure, words)| {
                    self.words = Some((failure, words.to_owned()));
                    failure
                })?;
                self.phase = if is_content { Phase::Starting } else { Phase::Login };
            }
            (Phase::Starting, b'Z') => self.phase = Phase::Ready,
            (Phase::Busy, b'Z') => {
                if !self.is_answered && self.failure.is_none() {
                    self.failure = Some(Failure::Malformed);
                }
                self.phase = Phase::Ready;
                let failure = self.failure.take();
                ended.extend(self.ticket.take().map(|ticket| Ended { ticket, failure }));
            }
            // It waits for rows, and gets none.
            (Phase::Busy, b'G') => {
                frontend::copy_fail("topdeck has nothing to copy", &mut self.written)
                    .map_err(|_| Failure::Malformed)?;
                // While it waited, it passed over the one that was sent with the query.
                if self.is_extended {
                    frontend::sync(&mut self.written);
                }
            }
            _ => {}
        }
        out.extend_from_slice(&self.written);
        self.written.clear();
        self.come = 0;
        self.kept.clear();
        Ok(())
    }
}

/// An error as people read it: how bad it is, what it says, and its code. Its fields are a letter and a text each.
fn said(fields: &[u8]) -> Option<String> {
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
        match self.login.open(&mut self.written) {
            Ok(()) => out.extend_from_slice(&self.written),
            // A name that cannot be said.
            Err(_) => self.is_last = true,
        }
        self.written.clear();
    }

    fn room(&self) -> usize {
        usize::from(self.phase == Phase::Ready && !self.is_last)
    }

    fn is_ending(&self) -> bool {
        self.is_last
    }

    fn send(&mut self, request: &Rendered, ticket: Ticket, out: &mut Vec<u8>) {
        self.failure = None;
        self.is_answered = false;
        if self.write(request).is_none() {
            // The server says that it is ready, and nothing about a query: so it fails.
            self.written.clear();
            frontend::sync(&mut self.written);
        }
        out.extend_from_slice(&self.written);
        self.written.clear();
        self.ticket = Some(ticket);
        self.phase = Phase::Busy;
    }

    fn receive(
        &mut self,
        mut bytes: &[u8],
        out: &mut Vec<u8>,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Failure> {
        while !bytes.is_empty() {
            if self.come < HEAD {
                let taken = (HEAD - self.come).min(bytes.len());
                self.head[self.come..self.come + taken].copy_from_slice(&bytes[..taken]);
                self.come += taken;
                bytes = &bytes[taken..];
                if self.come < HEAD {
                    return Ok(());
                }
                let [kind, length @ ..] = self.head;
                let length = u32::from_be_bytes(length);
                self.rest = length.checked_sub(4).ok_or(Failure::Malformed)?;
                self.begin(kind, self.rest)?;
            }
            let taken = bytes.len().min(self.rest as usize);
            if matches!(self.head[0], b'R' | b'E') {
                let room = KEPT_MAX.saturating_sub(self.kept.len());
                self.kept.extend_from_slice(&bytes[..taken.min(room)]);
            }
            bytes = &bytes[taken..];
            self.rest -= taken as u32;
            if self.rest == 0 {
                self.end(out, ended)?;
            }
        }
        Ok(())
    }

    fn words(&mut self, failure: Failure) -> Option<String> {
        self.words.take_if(|one| one.0 == failure).map(|one| one.1)
    }

    fn close(&mut self, ended: &mut Vec<Ended>) {
        // An error after which the server closes is an answer too.
        if let Some(failure) = self.failure.take() {
            let ticket = self.ticket.take();
            ended.extend(ticket.map(|ticket| Ended { ticket, failure: Some(failure) }));
        }
    }
}

#[cfg(test)]
mod tests;
