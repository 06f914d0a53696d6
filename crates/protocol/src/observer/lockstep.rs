//! When an observer may pair requests and responses again after a gap, in protocols that respond in
//! the order of the requests.
//!
//! Such a protocol has no number that pairs a response with its request. After a gap the number of
//! requests in flight is unknown, and a response that is paired with the next request instead of
//! its own has a latency that is wrong and plausible. The observer therefore waits for evidence
//! that nothing is in flight:
//!
//! 1. The server has completed a response, and then the client starts a message with a packet.
//! 2. [`EXCHANGES`] exchanges follow in lockstep: all requests of the client's packets are answered
//!    when its next packet arrives. They are not measured.
//! 3. On a connection on which a client was seen to send before all its requests were answered
//!    (a window of requests in flight), lockstep proves nothing; there the client must start after
//!    a pause of [`PAUSE_NS`].
//!
//! A client that always has the same number of requests in flight, on a connection captured from
//! its middle, looks as if it were in lockstep; no observer can tell.

use super::{FlowDirection, PacketTime};

/// Exchanges in lockstep after which requests are measured.
const EXCHANGES: u8 = 2;
/// Pause after which nothing is in flight: longer than requests take on connections that have many
/// of them in flight.
const PAUSE_NS: u64 = 1_000_000_000;

/// Evidence that nothing is in flight.
#[derive(Debug)]
pub(crate) struct Lockstep {
    phase: LockstepPhase,
    /// Whether the client was seen to send before all its requests were answered.
    has_window: bool,
    /// Direction whose missing bytes would explain an unexpected order of packets; whether any are
    /// missing is known when its next bytes arrive.
    suspect: Option<FlowDirection>,
    last: Option<(FlowDirection, PacketTime)>,
    /// Whether the server has responded after all bytes of the client.
    is_response_last: bool,
}

/// Progress of the resynchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockstepPhase {
    /// Requests and responses are paired and measured.
    Synchronized,
    /// They are paired, but not measured; this many exchanges are left.
    Probation(u8),
    /// They are not paired.
    Lost,
}

impl Lockstep {
    pub(crate) fn new(phase: LockstepPhase) -> Lockstep {
        Lockstep { phase, has_window: false, suspect: None, last: None, is_response_last: false }
    }

    pub(crate) fn phase(&self) -> LockstepPhase {
        self.phase
    }

    /// A packet arrives. `is_idle`: whether no request is in flight. Returns whether requests and
    /// responses can no longer be paired.
    pub(crate) fn packet(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        is_idle: bool,
    ) -> bool {
        let is_turn = self.last.is_some_and(|last| last.0 != direction);
        self.last = Some((direction, time));
        self.is_response_last = direction == FlowDirection::ToClient;
        if self.suspect == Some(direction) {
            // Nothing was missing.
            self.suspect = None;
            self.has_window = true;
            if matches!(self.phase, LockstepPhase::Probation(_)) {
                self.phase = LockstepPhase::Lost;
                return true;
            }
        }
        if direction == FlowDirection::ToServer && is_turn && self.phase != LockstepPhase::Lost {
            match (is_idle, self.phase) {
                (false, _) => self.suspect = Some(FlowDirection::ToClient),
                (true, LockstepPhase::Probation(0)) => self.phase = LockstepPhase::Synchronized,
                (true, LockstepPhase::Probation(left)) => {
                    self.phase = LockstepPhase::Probation(left - 1);
                }
                (true, _) => {}
            }
        }
        false
    }

    /// Whether a client that starts a message now may be in lockstep: the server was the last to
    /// send, or there was a pause.
    /// Called before [`packet`](Self::packet).
    pub(crate) fn can_start(&mut self, time: PacketTime) -> bool {
        if self.suspect.take() == Some(FlowDirection::ToServer) {
            self.has_window = true;
        }
        let pause_ns = self.last.map_or(0, |last| time.saturating_sub(last.1));
        pause_ns >= PAUSE_NS || self.is_response_last && !self.has_window
    }

    /// The client starts a message after a complete response.
    pub(crate) fn start(&mut self) {
        self.phase = LockstepPhase::Probation(EXCHANGES);
        self.suspect = None;
    }

    /// A response has no request: bytes of the client are missing, or the responses belong to
    /// earlier requests.
    pub(crate) fn lose_by_response(&mut self) {
        self.phase = LockstepPhase::Lost;
        self.suspect = Some(FlowDirection::ToServer);
    }

    /// Bytes of a direction are missing, or cannot be read.
    pub(crate) fn lose_position(&mut self, direction: FlowDirection) {
        self.phase = LockstepPhase::Lost;
        if self.suspect == Some(direction) {
            self.suspect = None;
        }
        self.is_response_last &= direction == FlowDirection::ToClient;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FlowDirection::{ToClient, ToServer};

    #[test]
    fn exchanges_in_lockstep_are_measured_again() {
        let mut lockstep = Lockstep::new(LockstepPhase::Lost);
        assert!(!lockstep.packet(ToClient, 1, true) && lockstep.can_start(2));
        lockstep.start();
        assert!(!lockstep.packet(ToServer, 2, true));
        for time in 3..7 {
            let direction = if time % 2 == 0 { ToServer } else { ToClient };
            assert_ne!(lockstep.phase(), LockstepPhase::Synchronized, "{time}");
            assert!(!lockstep.packet(direction, time, true));
        }
        assert_eq!(lockstep.phase(), LockstepPhase::Synchronized);
    }

    #[test]
    fn a_window_of_requests_needs_a_pause() {
        let mut lockstep = Lockstep::new(LockstepPhase::Lost);
        lockstep.start();
        // The client continues while a response is outstanding, and no bytes are missing.
        for (direction, is_idle) in [(ToServer, true), (ToClient, false), (ToServer, false)] {
            assert!(!lockstep.packet(direction, 1, is_idle));
        }
        assert!(lockstep.packet(ToClient, 2, false));
        assert_eq!(lockstep.phase(), LockstepPhase::Lost);
        assert!(!lockstep.can_start(PAUSE_NS + 1) && lockstep.can_start(PAUSE_NS + 2));
    }

    #[test]
    fn missing_bytes_are_no_window() {
        let mut lockstep = Lockstep::new(LockstepPhase::Synchronized);
        lockstep.packet(ToServer, 1, true);
        lockstep.lose_by_response();
        lockstep.lose_position(ToServer);
        lockstep.packet(ToServer, 2, true);
        assert!(!lockstep.can_start(3));
        lockstep.packet(ToClient, 3, true);
        assert!(lockstep.can_start(4));
        lockstep.lose_by_response();
        lockstep.packet(ToServer, 4, true);
        lockstep.packet(ToClient, 5, true);
        assert!(!lockstep.can_start(6));
    }
}
