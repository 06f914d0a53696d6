//! Envelope headers, names of opcodes and error codes.
//!
//! Source: `native_protocol_v3.spec`, `_v4.spec` and `_v5.spec` of Apache Cassandra.

/// Version, flags, stream id, opcode and length.
pub(super) const HEADER_BYTES: usize = 9;

/// Limit of the protocol: 256 MiB.
const BODY_BYTES_MAX: u32 = 256 << 20;

pub(super) const COMPRESSED: u8 = 0x01;
pub(super) const TRACING: u8 = 0x02;
pub(super) const CUSTOM_PAYLOAD: u8 = 0x04;
pub(super) const WARNING: u8 = 0x08;
const FLAGS: u8 = 0x1f;

pub(super) const ERROR: u8 = 0x00;
pub(super) const STARTUP: u8 = 0x01;
pub(super) const READY: u8 = 0x02;
pub(super) const AUTHENTICATE: u8 = 0x03;
pub(super) const QUERY: u8 = 0x07;
pub(super) const RESULT: u8 = 0x08;
pub(super) const PREPARE: u8 = 0x09;
pub(super) const EXECUTE: u8 = 0x0a;
pub(super) const BATCH: u8 = 0x0d;

/// Header of an envelope.
#[derive(Clone, Copy)]
pub(super) struct EnvelopeHeader {
    pub(super) version: u8,
    pub(super) flags: u8,
    pub(super) stream: i16,
    pub(super) opcode: u8,
    pub(super) body_bytes: u32,
}

impl EnvelopeHeader {
    /// The header at the start of bytes; `None` if it is not plausible.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES], is_request: bool) -> Option<EnvelopeHeader> {
        let &[version, flags, s0, s1, opcode, l0, l1, l2, l3] = bytes;
        let header = EnvelopeHeader {
            version: version & 0x7f,
            flags,
            stream: i16::from_be_bytes([s0, s1]),
            opcode,
            body_bytes: u32::from_be_bytes([l0, l1, l2, l3]),
        };
        let is_plausible = (version < 0x80) == is_request
            && (3..=5).contains(&header.version)
            && flags & !FLAGS == 0
            && header.body_bytes <= BODY_BYTES_MAX
            && match is_request {
                true => header.stream >= 0 && request_name(opcode).is_some(),
                false => matches!(opcode, 0 | 2 | 3 | 6 | 8 | 0x0c | 0x0e | 0x10),
            };
        is_plausible.then_some(header)
    }
}

/// Name of the opcode of a request.
pub(super) fn request_name(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        STARTUP => "STARTUP",
        0x05 => "OPTIONS",
        QUERY => "QUERY",
        PREPARE => "PREPARE",
        EXECUTE => "EXECUTE",
        0x0b => "REGISTER",
        BATCH => "BATCH",
        0x0f => "AUTH_RESPONSE",
        _ => return None,
    })
}

/// Class of an error.
pub(super) fn error_class(code: u32) -> &'static str {
    match code {
        0x0000 => "ServerError",
        0x000a => "ProtocolError",
        0x0100 => "AuthenticationError",
        0x1000 => "Unavailable",
        0x1001 => "Overloaded",
        0x1002 => "IsBootstrapping",
        0x1003 => "TruncateError",
        0x1100 => "WriteTimeout",
        0x1200 => "ReadTimeout",
        0x1300 => "ReadFailure",
        0x1400 => "FunctionFailure",
        0x1500 => "WriteFailure",
        0x1600 => "CdcWriteFailure",
        0x1700 => "CasWriteUnknown",
        0x2000 => "SyntaxError",
        0x2100 => "Unauthorized",
        0x2200 => "Invalid",
        0x2300 => "ConfigError",
        0x2400 => "AlreadyExists",
        0x2500 => "Unprepared",
        _ => "UnknownError",
    }
}
