//! Redis, one command at a time (RESP 2; replies of RESP 3 are accepted).
//!
//! Only the end of a reply matters, and whether it contains an error: elements are counted and
//! skipped, so no reply, however large or deep, takes memory. A command is `arguments`; without
//! any, the words of the body; without those, `PING`.

use protocol::redis::{ReplyParser, encode_command};

use crate::codec::{Codec, Completion, RequestId};
use crate::failure::Failure;
use crate::request::RenderedRequest;
use crate::secret::Secret;

/// Checks that a command can be represented.
pub(super) fn check(request: &RenderedRequest) -> Result<(), String> {
    match (request.arguments.as_slice(), request.body.as_slice()) {
        ([], []) => Ok(()),
        ([], body) if body.trim_ascii().is_empty() => {
            Err("the body contains no command".to_owned())
        }
        ([], _) => Ok(()),
        (_, [_, ..]) => {
            Err("both a body and arguments: the command must be one of them".to_owned())
        }
        ([first, ..], []) if first.is_empty() => Err("the command name is empty".to_owned()),
        _ => Ok(()),
    }
}

/// Codec of one connection.
pub(crate) struct Redis {
    /// AUTH and SELECT commands.
    opening: Vec<u8>,
    /// Replies to them that are outstanding.
    preliminary: usize,
    request_id: Option<RequestId>,
    parser: ReplyParser,
    /// The last error, as far as it arrived in one piece.
    error_detail: Option<String>,
}

impl Redis {
    pub(crate) fn new(user: Option<&str>, password: Option<&Secret>, database: u32) -> Redis {
        let (mut opening, mut preliminary) = (Vec::new(), 0);
        let mut add_command = |words: &[&[u8]]| {
            encode_command(words.iter().copied(), &mut opening);
            preliminary += 1;
        };
        match (user, password.map(|one| one.reveal().as_bytes())) {
            (Some(user), Some(password)) => add_command(&[b"AUTH", user.as_bytes(), password]),
            (None, Some(password)) => add_command(&[b"AUTH", password]),
            (_, None) => {}
        }
        if database > 0 {
            add_command(&[b"SELECT", database.to_string().as_bytes()]);
        }
        Redis {
            opening,
            preliminary,
            request_id: None,
            parser: ReplyParser::default(),
            error_detail: None,
        }
    }
}

impl Codec for Redis {
    fn open(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.opening);
    }

    fn capacity(&self) -> usize {
        usize::from(self.preliminary == 0 && self.request_id.is_none())
    }

    fn send(&mut self, request: &RenderedRequest, request_id: RequestId, out: &mut Vec<u8>) {
        if !request.arguments.is_empty() {
            encode_command(request.arguments.iter().map(Vec::as_slice), out);
        } else {
            let words = request.body.split(u8::is_ascii_whitespace);
            let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
            encode_command(if words.is_empty() { vec![b"PING".as_slice()] } else { words }, out);
        }
        self.request_id = Some(request_id);
    }

    fn receive(
        &mut self,
        mut bytes: &[u8],
        _out: &mut Vec<u8>,
        completions: &mut Vec<Completion>,
    ) -> Result<(), Failure> {
        while let Some(first) = bytes.first() {
            // Only push messages arrive unsolicited.
            let is_asked = self.preliminary > 0 || self.request_id.is_some();
            if self.parser.is_between() && !is_asked && *first != b'>' {
                return Err(Failure::Malformed);
            }
            if self.parser.is_between() && *first == b'-' {
                let line = bytes[1..].split(|byte| *byte == b'\r').next().unwrap_or_default();
                self.error_detail = Some(String::from_utf8_lossy(line).into_owned());
            }
            let Some(reply) = self.parser.read(&mut bytes)? else { return Ok(()) };
            let failure = reply.is_error.then_some(Failure::Status);
            if reply.is_push {
                continue;
            }
            if self.preliminary > 0 {
                // Rejected: later replies would not be those expected.
                failure.map_or(Ok(()), Err)?;
                self.preliminary -= 1;
            } else {
                completions.extend(
                    self.request_id.take().map(|request_id| Completion { request_id, failure }),
                );
            }
        }
        Ok(())
    }

    fn error_detail(&mut self, failure: Failure) -> Option<String> {
        self.error_detail.take_if(|_| failure == Failure::Status)
    }
}

#[cfg(test)]
mod tests;
