//! Encoders and parsers of network protocol messages, without I/O, clock or runtime: bytes in,
//! messages out.
//!
//! Two kinds of programs use them: a client, which sends requests and reads responses, and an
//! observer, which sees both directions of a connection between other programs. A parser therefore
//! handles one direction and knows nothing of the other; information about the other direction is
//! an argument.
//!
//! All parsers have one form: `read(&mut bytes)` consumes bytes up to the end of a message and
//! returns it, or consumes all of them and returns `None`. The result does not depend on how the
//! bytes are divided. After an error the position in the stream is unknown, and the parser must be
//! replaced. A parser that starts in the middle of a message returns an error or waits for the end
//! of a message that does not exist; an observer that joins a connection late must start the parser
//! at a packet that starts a message.
//!
//! Memory per parser is bounded for messages of any size and depth: bodies are skipped.
#![forbid(unsafe_code)]

mod cassandra;
mod dns;
pub mod fingerprint;
pub mod grpc;
pub mod http1;
mod http2;
mod kafka;
mod mongodb;
pub mod mysql;
pub mod observer;
pub mod postgres;
pub mod redis;
pub mod snmp;
pub mod websocket;

mod id_hasher;
mod message_position;
mod message_reader;
mod protocol_table;
mod stream_buffer;
mod text_pool;
mod tls_record;
mod violation;

pub use protocol_table::PROTOCOLS;
pub use violation::ProtocolViolation;
