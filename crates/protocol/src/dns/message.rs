//! Headers and questions of messages (RFC 1035).

use std::fmt::Write;

/// Length over TCP, and the header.
pub(super) const HEADER_BYTES: usize = 14;

/// A name has at most 255 bytes; type and class follow it.
pub(super) const QUESTION_BYTES_MAX: usize = 255 + 4;

const IS_RESPONSE: u16 = 0x8000;

/// Header of a message.
#[derive(Clone, Copy)]
pub(super) struct MessageHeader {
    pub(super) bytes: u64,
    pub(super) id: u16,
    flags: u16,
    pub(super) has_question: bool,
    pub(super) answers: u16,
    /// Whether it is a message of DNS in its direction.
    pub(super) is_plausible: bool,
}

impl MessageHeader {
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES], is_request: bool) -> MessageHeader {
        let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let (length, flags, questions) = (number(0), number(4), number(6));
        let opcode = flags >> 11 & 15;
        let is_plausible = usize::from(length) >= HEADER_BYTES - 2
            && (flags & IS_RESPONSE == 0) == is_request
            && matches!(opcode, 0..=2 | 4..=6)
            && flags & 0x40 == 0 // reserved
            && (questions == 1 || (questions == 0 && !is_request));
        MessageHeader {
            bytes: 2 + u64::from(length),
            id: number(2),
            flags,
            has_question: questions == 1,
            answers: number(8),
            is_plausible,
        }
    }

    /// Class of the error, if there is one.
    pub(super) fn error(&self) -> Option<&'static str> {
        const NAMES: [&str; 11] = [
            "FORMERR",
            "SERVFAIL",
            "NXDOMAIN",
            "NOTIMP",
            "REFUSED",
            "YXDOMAIN",
            "YXRRSET",
            "NXRRSET",
            "NOTAUTH",
            "NOTZONE",
            "DSOTYPENI",
        ];
        match self.flags & 15 {
            0 => None,
            code => Some(NAMES.get(usize::from(code) - 1).unwrap_or(&"UNKNOWN")),
        }
    }

    /// Name of the operation: the type of a query.
    pub(super) fn verb(&self, question_type: u16) -> &'static str {
        match self.flags >> 11 & 15 {
            0 => type_name(question_type),
            1 => "IQUERY",
            2 => "STATUS",
            4 => "NOTIFY",
            5 => "UPDATE",
            _ => "DSO",
        }
    }
}

/// Responses to transfers of a zone are many messages, whose end only their records tell.
pub(super) fn is_transfer(verb: &str) -> bool {
    matches!(verb, "AXFR" | "IXFR")
}

fn type_name(question_type: u16) -> &'static str {
    match question_type {
        1 => "A",
        2 => "NS",
        5 => "CNAME",
        6 => "SOA",
        12 => "PTR",
        15 => "MX",
        16 => "TXT",
        28 => "AAAA",
        33 => "SRV",
        35 => "NAPTR",
        43 => "DS",
        46 => "RRSIG",
        47 => "NSEC",
        48 => "DNSKEY",
        52 => "TLSA",
        64 => "SVCB",
        65 => "HTTPS",
        251 => "IXFR",
        252 => "AXFR",
        255 => "ANY",
        257 => "CAA",
        _ => "OTHER",
    }
}

/// Reads a question: its name in lower case, without the last dot, and its type. `None` if it is
/// invalid.
pub(super) fn parse_question(mut bytes: &[u8], name: &mut String) -> Option<u16> {
    name.clear();
    loop {
        let (length, rest) = bytes.split_first()?;
        if *length == 0 {
            return Some(u16::from_be_bytes(*rest.first_chunk()?));
        }
        // A pointer has nothing to point to.
        let (label, rest) = rest.split_at_checked(usize::from(*length)).filter(|_| *length < 64)?;
        bytes = rest;
        if !name.is_empty() {
            name.push('.');
        }
        for byte in label {
            match byte.to_ascii_lowercase() {
                byte @ (b'.' | b'\\') => name.extend(['\\', char::from(byte)]),
                byte @ b'!'..=b'~' => name.push(char::from(byte)),
                // Writing to a string does not fail.
                byte => drop(write!(name, "\\{byte:03}")),
            }
        }
    }
}
