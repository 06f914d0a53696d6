//! HTTPTrap JSON, as Circonus brokers take it from programs: docs/formats/httptrap.md.
//!
//! Any JSON is read, with comments. Nested names are joined by back-quotes (`container`, back-quote, `key`; in an array
//! the place from 0); a name may end with stream tags, which become labels. A number is a number, a string is text, true
//! and false are 1 and 0; `{"_type": t, "_value": v, "_ts": ms, "_fl": f, "_tags": [..]}` is read as `t` says. A key may
//! be repeated and documents may follow one another: every value is a reading of its own. What stands before a syntax
//! error has been read. Nesting deeper than 32 is a syntax error, as for a broker.
//!
//! Source: circonus-labs/reconnoiter `src/modules/httptrap.c`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod tags;
mod typed;

use crate::json::{Token, Tokens};
use crate::number;
use crate::reading::{Over, Reading, Sink, Value};
use crate::trouble::{Place, Trouble, quote};

use typed::Typed;

/// As many levels as a broker reads.
const NESTING_MAX: usize = 32;
/// Bytes of a whole name with its tags at the most: every value below it has them.
const NAME_BYTES_MAX: usize = 4096;

type Result<T> = std::result::Result<T, Trouble>;

/// Reads documents, one after another. What a sender is answered, `{"stats": n, "filtered": m}`, is the number of
/// readings, and of what was skipped or was a trouble.
pub fn read(bytes: &[u8], sink: &mut dyn Sink) {
    let mut reader = Reader {
        bytes,
        tokens: tokens(bytes),
        path: String::new(),
        labels: Vec::new(),
        name_bytes: 0,
        stop: false,
    };
    while !reader.stop && !reader.tokens.at_end() {
        reader.path.clear();
        reader.labels.clear();
        if let Err(trouble) = reader.value(sink) {
            let _ = sink.trouble(trouble);
            return;
        }
    }
}

fn tokens(bytes: &[u8]) -> Tokens<'_> {
    Tokens::new(bytes).with_comments().with_nesting(NESTING_MAX)
}

struct Reader<'a> {
    bytes: &'a [u8],
    tokens: Tokens<'a>,
    path: String,
    /// Tags of the names that lead here.
    labels: Vec<(String, String)>,
    /// Of both.
    name_bytes: usize,
    stop: bool,
}

impl Reader<'_> {
    fn value(&mut self, sink: &mut dyn Sink) -> Result<()> {
        match self.tokens.value()? {
            Token::Object => self.object(sink)?,
            Token::Array => {
                let mut place = 0_u64;
                while self.tokens.element()? {
                    self.below(&place.to_string(), sink)?;
                    place = place.saturating_add(1);
                }
            }
            Token::Text(text) => self.plain(Value::Text(text), sink),
            Token::Number(text) => self.plain(Value::Number(double(text)), sink),
            Token::Bool(value) => self.plain(Value::Integer(value.into()), sink),
            Token::Null => sink.skipped("a null"),
        }
        Ok(())
    }

    fn below(&mut self, name: &str, sink: &mut dyn Sink) -> Result<()> {
        if self.name_bytes.saturating_add(name.len()) > NAME_BYTES_MAX {
            let at = Place::Byte(self.tokens.offset() as u64);
            let trouble =
                Trouble::new(at, "a name of 4096 bytes at the most", quote(name.as_bytes()));
            self.stop |= sink.trouble(trouble).is_break();
            return self.tokens.skip();
        }
        let (length, labels) = (self.path.len(), self.labels.len());
        let name_bytes = self.name_bytes;
        self.name_bytes = name_bytes.saturating_add(name.len()).saturating_add(1);
        if length > 0 {
            self.path.push('`');
        }
        self.path.push_str(tags::split(name, &mut self.labels));
        self.value(sink)?;
        self.path.truncate(length);
        self.labels.truncate(labels);
        self.name_bytes = name_bytes;
        Ok(())
    }

    fn object(&mut self, sink: &mut dyn Sink) -> Result<()> {
        let start = self.tokens.offset();
        let mut typed = Typed::default();
        while let Some(key) = self.tokens.key()? {
            match key.as_str() {
                "_type" => {
                    let at = self.tokens.offset();
                    typed.kind = match self.tokens.value()? {
                        Token::Text(kind) => Some((at, kind)),
                        _ => return Err(self.trouble(at, "a type in quotes")),
                    };
                }
                "_value" => typed.value = Some(self.passed()?),
                "_ts" => typed.time = Some(self.passed()?),
                "_fl" => typed.flags = Some(self.passed()?),
                "_tags" => typed.tags = Some(self.passed()?),
                _ => self.below(&key, sink)?,
            }
        }
        // The document goes on behind a value that its type does not allow.
        if let Err(trouble) = self.typed(start, &typed, sink) {
            self.stop |= sink.trouble(trouble).is_break();
        }
        Ok(())
    }

    /// Where a value stands, which is passed over.
    fn passed(&mut self) -> Result<(usize, usize)> {
        let start = self.tokens.offset();
        self.tokens.skip()?;
        Ok((start, self.tokens.offset()))
    }

    fn plain(&self, value: Value, sink: &mut dyn Sink) {
        sink.reading(self.reading(value));
    }

    fn reading(&self, value: Value) -> Reading {
        let labels = tags::joined(self.labels.clone());
        Reading { metric: self.path.clone(), labels, ..Reading::new(value) }
    }

    fn trouble(&self, at: usize, expected: &'static str) -> Trouble {
        let rest = &self.bytes[at..];
        let end = rest.iter().position(|b| b",}]\n".contains(b)).unwrap_or(rest.len());
        Trouble::new(Place::Byte(at as u64), expected, quote(&rest[..end]))
    }
}

fn double(text: &str) -> f64 {
    // Every number of JSON is one.
    number::parse(text.as_bytes()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests;
