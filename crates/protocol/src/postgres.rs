//! PostgreSQL (protocol 3.0): messages of one direction, after the startup.
//!
//! A message is a type byte, a length that includes itself, and a body. The type is the kind of
//! operation (`Q`: a query) or the kind of response message (`E`: an error, `Z`: the end of a
//! response). The first message of a client, [`SSL_REQUEST`] or its startup message, has no type
//! byte.

mod exchanges;
mod login;
mod message_reader;
pub(crate) mod observer;
mod prepared_statements;
mod requests;
mod responses;
mod startup;

pub use self::login::{LoginError, PasswordReader, PostgresLogin, ServerTrust};
use crate::ProtocolViolation;

/// SSLRequest: length and code.
pub const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
/// Maximum size of a message whose body is needed, far above real ones. The rest of a longer body
/// is skipped.
pub const RETAINED_BYTES_MAX: usize = 8 << 10;

/// Type and length of a message.
const HEAD: usize = 5;

/// Part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostgresMessagePart {
    /// Start of a message.
    Start {
        /// Message type.
        kind: u8,
        /// Length of the body, in bytes.
        length: u32,
    },
    /// End of a message.
    End {
        /// Message type.
        kind: u8,
    },
}

/// Parser of one direction of a connection.
#[derive(Debug)]
pub struct PostgresMessageParser {
    /// Types of messages whose body is retained.
    retained: &'static [u8],
    head: [u8; HEAD],
    /// `received`: bytes of the head received; `rest`: bytes of the body still to read.
    received: usize,
    rest: u32,
    body: Vec<u8>,
}

impl PostgresMessageParser {
    /// A parser at the start of a message. The parser retains the bodies of messages of these
    /// types, up to [`RETAINED_BYTES_MAX`], and skips all others.
    pub fn new(retained: &'static [u8]) -> PostgresMessageParser {
        PostgresMessageParser { retained, head: [0; HEAD], received: 0, rest: 0, body: Vec::new() }
    }

    /// Consumes bytes up to the next start or end of a message; `None` if neither is complete. A
    /// message without a body ends without further bytes.
    pub fn read(
        &mut self,
        bytes: &mut &[u8],
    ) -> Result<Option<PostgresMessagePart>, ProtocolViolation> {
        if self.received < HEAD {
            if self.received == 0 {
                self.body.clear();
            }
            let byte_count = (HEAD - self.received).min(bytes.len());
            self.head[self.received..self.received + byte_count]
                .copy_from_slice(&bytes[..byte_count]);
            self.received += byte_count;
            *bytes = &bytes[byte_count..];
            if self.received < HEAD {
                return Ok(None);
            }
            let [kind, length @ ..] = self.head;
            let length = u32::from_be_bytes(length).checked_sub(4).ok_or(ProtocolViolation)?;
            self.rest = length;
            return Ok(Some(PostgresMessagePart::Start { kind, length }));
        }
        let kind = self.head[0];
        let byte_count = bytes.len().min(self.rest as usize);
        if self.retained.contains(&kind) {
            let space = RETAINED_BYTES_MAX.saturating_sub(self.body.len());
            self.body.extend_from_slice(&bytes[..byte_count.min(space)]);
        }
        *bytes = &bytes[byte_count..];
        self.rest -= byte_count as u32;
        if self.rest > 0 {
            return Ok(None);
        }
        self.received = 0;
        Ok(Some(PostgresMessagePart::End { kind }))
    }

    /// The retained body of the message whose end was just returned, until the next [`read`].
    ///
    /// [`read`]: PostgresMessageParser::read
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

/// Formats an ErrorResponse: severity, message, code. A field is a type byte and a string. `None`
/// without a message.
pub fn error_text(fields: &[u8]) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    }

    /// Parts of these bytes, which arrive whole, and byte by byte; an end is paired with the
    /// retained body.
    #[track_caller]
    fn check(bytes: &[u8], expected: Result<&[(PostgresMessagePart, &[u8])], ProtocolViolation>) {
        for pieces in [vec![bytes], bytes.chunks(1).collect()] {
            let (mut parser, mut parts) = (PostgresMessageParser::new(b"QE"), Vec::new());
            let result = pieces.into_iter().try_for_each(|mut piece| {
                while let Some(part) = parser.read(&mut piece)? {
                    let is_end = matches!(part, PostgresMessagePart::End { .. });
                    parts.push((part, if is_end { parser.body().to_vec() } else { Vec::new() }));
                }
                assert!(piece.is_empty());
                Ok(())
            });
            let parts: Vec<_> = parts.iter().map(|one| (one.0, &one.1[..])).collect();
            assert_eq!(result.map(|()| &parts[..]), expected, "{bytes:?}");
        }
    }

    fn start(kind: u8, length: u32) -> (PostgresMessagePart, &'static [u8]) {
        (PostgresMessagePart::Start { kind, length }, b"")
    }

    fn end(kind: u8, body: &[u8]) -> (PostgresMessagePart, &[u8]) {
        (PostgresMessagePart::End { kind }, body)
    }

    #[test]
    fn messages_of_both_directions_start_and_end() {
        let query = message(b'Q', b"select 1\0");
        check(&query, Ok(&[start(b'Q', 9), end(b'Q', b"select 1\0")]));
        let response = [message(b'D', b"abc"), message(b'E', b"Mno\0\0"), message(b'Z', b"I")];
        let parts = [
            start(b'D', 3),
            end(b'D', b""),
            start(b'E', 5),
            end(b'E', b"Mno\0\0"),
            start(b'Z', 1),
            end(b'Z', b""),
        ];
        check(&response.concat(), Ok(&parts));
        check(&query[..query.len() - 1], Ok(&[start(b'Q', 9)]));
        // Without a body the end is known at once.
        check(b"1\0\0\0\x04", Ok(&[start(b'1', 0), end(b'1', b"")]));
    }

    #[test]
    fn long_bodies_are_cut() {
        let body = vec![b'a'; RETAINED_BYTES_MAX + 1];
        let kept = &body[..RETAINED_BYTES_MAX];
        check(&message(b'E', &body), Ok(&[start(b'E', body.len() as u32), end(b'E', kept)]));
    }

    #[test]
    fn garbage_is_a_violation() {
        check(b"C\0\0\0\x03", Err(ProtocolViolation));
        check(b"Z\0\0\0\0", Err(ProtocolViolation));
    }

    #[test]
    fn errors_have_severity_message_and_code() {
        let text = error_text(b"SFATAL\0VFATAL\0C28000\0Mno entry\0Fauth.c\0\0");
        assert_eq!(text.as_deref(), Some("FATAL: no entry (28000)"));
        assert_eq!(error_text(b"Mno\0\0").as_deref(), Some("no"));
        assert_eq!(error_text(b"abc"), None);
    }
}
