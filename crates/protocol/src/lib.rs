//! Messages of network protocols, encoded and parsed without I/O, clock or runtime: bytes in,
//! messages out.
//!
//! Two kinds of programs use them: a client, which sends requests and reads responses, and an
//! observer, which sees both directions of somebody else's connection. A parser therefore belongs
//! to one direction and knows nothing of the other; what it must know of the other direction is an
//! argument.
//!
//! All parsers have one form: `read(&mut bytes)` consumes bytes up to the end of a message and
//! returns it, or consumes all of them and returns `None`. How the bytes are divided makes no
//! difference. After an error the position in the stream is unknown, and the parser is replaced. A
//! parser whose first byte is not the first of a message returns an error or waits for the end of a
//! message that does not exist; an observer that joins a connection late starts it at a packet that
//! begins a message.
//!
//! No message, however large or deep, takes memory beyond a bound: bodies are skipped.
#![forbid(unsafe_code)]

pub mod grpc;
pub mod http1;
pub mod postgres;
pub mod redis;

mod violation;

pub use violation::ProtocolViolation;
