//! The error of all parsers.

/// The bytes violate the protocol: the peer is at fault, or speaks another one. The position in the
/// stream is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes violate the protocol")]
pub struct ProtocolViolation;
