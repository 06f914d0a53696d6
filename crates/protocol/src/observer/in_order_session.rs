//! State of a connection that starts with a request, in protocols that respond in the order of the
//! requests.

use super::lockstep::{Lockstep, LockstepPhase};
use super::tls::TlsEvidence;
use super::{CaptureStart, FlowDirection, ObserverState, OperationSink, PacketTime};

/// First byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;

/// What a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionContent {
    /// Messages of the protocol.
    Messages,
    Encrypted,
    /// Another protocol, or a stream without requests, to its end.
    Unmeasurable,
}

/// State of a connection that starts with a request, without a handshake.
pub(crate) struct InOrderSession {
    pub(crate) content: ConnectionContent,
    /// Whether the position in the client's bytes is known.
    pub(crate) is_client_known: bool,
    /// Whether the connection has had no message; it may be of another protocol.
    pub(crate) is_new: bool,
    pub(crate) lockstep: Lockstep,
    tls: TlsEvidence,
}

impl InOrderSession {
    pub(crate) fn new(start: CaptureStart) -> InOrderSession {
        let has_first_byte = start == CaptureStart::FirstByte;
        let phase = if has_first_byte { LockstepPhase::Synchronized } else { LockstepPhase::Lost };
        InOrderSession {
            content: ConnectionContent::Messages,
            is_client_known: has_first_byte,
            is_new: has_first_byte,
            lockstep: Lockstep::new(phase),
            tls: TlsEvidence::default(),
        }
    }

    /// Whether requests and responses are not paired.
    pub(crate) fn is_lost(&self) -> bool {
        self.lockstep.phase() == LockstepPhase::Lost
    }

    /// Whether requests are measured.
    pub(crate) fn is_measured(&self) -> bool {
        self.lockstep.phase() == LockstepPhase::Synchronized
    }

    pub(crate) fn has_messages(&self) -> bool {
        self.content == ConnectionContent::Messages
    }

    /// A packet arrives. Returns whether it has messages.
    pub(crate) fn accepts_packet(
        &mut self,
        direction: FlowDirection,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) -> bool {
        let Some(first) = bytes.first() else { return false };
        let is_handshake =
            self.is_new && direction == FlowDirection::ToServer && *first == TLS_HANDSHAKE;
        if is_handshake || self.is_lost() && self.tls.packet(direction, bytes) {
            self.content = ConnectionContent::Encrypted;
        }
        if self.content == ConnectionContent::Unmeasurable {
            sink.unparsed(direction, bytes.len() as u64);
        }
        self.has_messages()
    }

    /// `missing` bytes were not captured. Returns whether they may have had messages.
    pub(crate) fn accepts_gap(&mut self, missing: u64) -> bool {
        let is_accepted = self.has_messages() && missing > 0;
        self.is_new &= !is_accepted;
        is_accepted
    }

    /// The client sends while requests and responses are not paired; `is_start` says whether the
    /// packet starts with a message. Returns whether they are paired from here on.
    pub(crate) fn resume(&mut self, time: PacketTime, is_start: bool) -> bool {
        let resumes = self.lockstep.can_start(time) && is_start;
        if resumes {
            self.is_client_known = true;
            self.lockstep.start();
        }
        resumes
    }

    /// Bytes of the client are not of the protocol, or follow a gap that was not noticed.
    pub(crate) fn reject_client(&mut self) {
        self.is_client_known = false;
        if self.is_new {
            self.content = ConnectionContent::Unmeasurable;
        }
    }

    pub(crate) fn state(&self) -> ObserverState {
        match self.content {
            ConnectionContent::Encrypted => ObserverState::Encrypted,
            ConnectionContent::Unmeasurable => ObserverState::Unmeasurable,
            ConnectionContent::Messages if self.is_measured() => ObserverState::Synchronized,
            ConnectionContent::Messages => ObserverState::Resynchronizing,
        }
    }
}
