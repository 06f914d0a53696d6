//! The error of all parsers.

/// The bytes violate the protocol: the peer is faulty, or speaks another protocol. The position in
/// the stream is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes violate the protocol")]
pub struct ProtocolViolation;
