//! Redis, one command at a time (RESP 2; replies of RESP 3 are accepted).
//!
//! Only the end of a reply matters, and whether it contains an error: elements are counted and
//! skipped, so no reply, however large or deep, takes memory. A command is `arguments`; without
//! any, the words of the body; without those, `PING`.

use protocol::redis::{ReplyParser, encode_command};

use crate::codec::{Codec, Completion, RequestId};
use crate::failure::Failure;
use crate::load_protocol::{LoadProtocol, ProtocolRow, ProtocolTarget, UrlScheme};
use crate::rendered_request::RenderedRequest;
use crate::secret::Secret;
use crate::target_url::TargetUrl;

/// The row of the table.
pub(super) const ROW: ProtocolRow = ProtocolRow {
    schemes: &[
        UrlScheme { name: "redis", is_tls: false, default_port: Some(6379), help: Some("redis") },
        UrlScheme { name: "rediss", is_tls: true, default_port: Some(6379), help: Some("rediss") },
    ],
    has_credentials: true,
    body: Some("the words of a command"),
    argument: Some("a word of the command"),
    open: |url| Ok(ProtocolTarget::new(RedisProtocol::read(url)?, url.scheme)),
};

/// One command at a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RedisProtocol {
    /// User name; `None` for the default user.
    user: Option<String>,
    password: Option<Secret>,
    /// Database number; 0 is the default.
    database: u32,
}

impl RedisProtocol {
    fn read(url: &TargetUrl<'_>) -> Result<RedisProtocol, &'static str> {
        let database = match url.path.trim_start_matches('/') {
            "" => 0,
            number => number.parse().map_err(|_| "the database is not a number")?,
        };
        let user = url.user.clone().filter(|name| !name.is_empty());
        if user.is_some() && url.password.is_none() {
            return Err(
                "a user without a password; use redis://:password@host for the default user",
            );
        }
        Ok(RedisProtocol { user, password: url.password.clone(), database })
    }
}

impl LoadProtocol for RedisProtocol {
    fn codec(&self) -> Box<dyn Codec> {
        Box::new(Redis::new(self.user.as_deref(), self.password.as_ref(), self.database))
    }

    fn check(&self, request: &RenderedRequest) -> Result<(), String> {
        request.refuse_headers()?;
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

    fn secret(&self) -> Option<&Secret> {
        self.password.as_ref()
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
