//! Redis: one command after the other (RESP 2; replies of RESP 3 are understood too).
//!
//! Of a reply only its end matters, and whether an error is in it: elements are counted and skipped, so that no reply, however large or
//! deep, takes memory. A command is the request's `arguments`; without any, the words of its body; without those, `PING`.

mod reader;

use crate::codec::{Codec, Ended, Ticket};
use crate::failure::Failure;
use crate::request::Rendered;
use crate::secret::Secret;

use reader::Reader;

/// Why a command cannot be said.
pub(super) fn check(request: &Rendered) -> Result<(), String> {
    match (request.arguments.as_slice(), request.body.as_slice()) {
        ([], []) => Ok(()),
        ([], body) if body.trim_ascii().is_empty() => {
            Err("its body has no words, and so no command".to_owned())
        }
        ([], _) => Ok(()),
        (_, [_, ..]) => Err("it has a body and arguments: the command is one of them".to_owned()),
        ([first, ..], []) if first.is_empty() => Err("its first word is empty".to_owned()),
        _ => Ok(()),
    }
}

/// One connection.
pub(crate) struct Redis {
    /// What is said first: who we are, and which database is meant.
    opening: Vec<u8>,
    /// How many replies to that are still to come.
    preliminary: usize,
    ticket: Option<Ticket>,
    reader: Reader,
    /// The last error, as far as it came in one piece.
    words: Option<String>,
}

impl Redis {
    pub(crate) fn new(user: Option<&str>, password: Option<&Secret>, database: u32) -> Redis {
        let (mut opening, mut preliminary) = (Vec::new(), 0);
        let mut say = |words: &[&[u8]]| {
            command(words.iter().copied(), &mut opening);
            preliminary += 1;
        };
        match (user, password.map(|one| one.reveal().as_bytes())) {
            (Some(user), Some(password)) => say(&[b"AUTH", user.as_bytes(), password]),
            (None, Some(password)) => say(&[b"AUTH", password]),
            (_, None) => {}
        }
        if database > 0 {
            say(&[b"SELECT", database.to_string().as_bytes()]);
        }
        Redis { opening, preliminary, ticket: None, reader: Reader::default(), words: None }
    }
}

impl Codec for Redis {
    fn open(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.opening);
    }

    fn room(&self) -> usize {
        usize::from(self.preliminary == 0 && self.ticket.is_none())
    }

    fn send(&mut self, request: &Rendered, ticket: Ticket, out: &mut Vec<u8>) {
        if !request.arguments.is_empty() {
            command(request.arguments.iter().map(Vec::as_slice), out);
        } else {
            let words = request.body.split(u8::is_ascii_whitespace);
            let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
            command(if words.is_empty() { vec![b"PING".as_slice()] } else { words }, out);
        }
        self.ticket = Some(ticket);
    }

    fn receive(
        &mut self,
        mut bytes: &[u8],
        _out: &mut Vec<u8>,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Failure> {
        while let Some(first) = bytes.first() {
            // Only what is pushed comes without a question.
            let is_asked = self.preliminary > 0 || self.ticket.is_some();
            if self.reader.is_between() && !is_asked && *first != b'>' {
                return Err(Failure::Malformed);
            }
            if self.reader.is_between() && *first == b'-' {
                let line = bytes[1..].split(|byte| *byte == b'\r').next().unwrap_or_default();
                self.words = Some(String::from_utf8_lossy(line).into_owned());
            }
            let Some(reply) = self.reader.read(&mut bytes)? else { return Ok(()) };
            let failure = reply.is_error.then_some(Failure::Status);
            if reply.is_push {
                continue;
            }
            if self.preliminary > 0 {
                // Refused: nothing that follows would be what was meant.
                failure.map_or(Ok(()), Err)?;
                self.preliminary -= 1;
            } else {
                ended.extend(self.ticket.take().map(|ticket| Ended { ticket, failure }));
            }
        }
        Ok(())
    }

    fn words(&mut self, failure: Failure) -> Option<String> {
        self.words.take_if(|_| failure == Failure::Status)
    }
}

/// A command as bytes: an array of strings, each with its length.
fn command<'a>(
    words: impl IntoIterator<Item = &'a [u8], IntoIter: ExactSizeIterator>,
    out: &mut Vec<u8>,
) {
    let words = words.into_iter();
    let head = |mark: u8, number: usize, out: &mut Vec<u8>| {
        out.push(mark);
        out.extend_from_slice(number.to_string().as_bytes());
        out.extend_from_slice(b"\r\n");
    };
    head(b'*', words.len(), out);
    for word in words {
        head(b'$', word.len(), out);
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests;
