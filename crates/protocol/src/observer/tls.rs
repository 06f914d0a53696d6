//! Recognition of TLS (RFC 8446, section 5.1) in packets of another protocol.

use super::FlowDirection;
use crate::tls_record::is_tls_record;

/// Evidence that a connection captured from its middle is encrypted: both directions have packets
/// that start with a TLS record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TlsEvidence {
    to_server: bool,
    to_client: bool,
}

impl TlsEvidence {
    /// Returns whether the connection is encrypted.
    pub(crate) fn packet(&mut self, direction: FlowDirection, packet: &[u8]) -> bool {
        let seen = match direction {
            FlowDirection::ToServer => &mut self.to_server,
            FlowDirection::ToClient => &mut self.to_client,
        };
        *seen |= is_tls_record(packet);
        self.to_server && self.to_client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_both_directions_are_evidence() {
        let mut evidence = TlsEvidence::default();
        assert!(!evidence.packet(FlowDirection::ToServer, b"\x17\x03\x03\x00\x20abc"));
        assert!(!evidence.packet(FlowDirection::ToClient, b"HTTP/1.1 200 OK"));
        assert!(evidence.packet(FlowDirection::ToClient, b"\x15\x03\x01\x00\x02ab"));
        for packet in [&b"\x17\x03\x03"[..], b"\x13\x03\x03\0\x02", b"\x17\x03\x03\xff\xff"] {
            assert!(!is_tls_record(packet), "{packet:?}");
        }
    }
}
