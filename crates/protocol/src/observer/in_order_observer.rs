//! How observers of protocols that respond in the order of the requests read a packet.

use super::lockstep::{Lockstep, LockstepPhase};
use super::{FlowDirection, NotMeasuredReason, OperationSink, PacketTime};

/// Observer of a protocol that responds in the order of the requests.
pub(crate) trait InOrderObserver {
    fn lockstep(&mut self) -> &mut Lockstep;

    /// Whether no request is in flight.
    fn is_idle(&self) -> bool;

    fn read_client(&mut self, time: PacketTime, bytes: &[u8], sink: &mut dyn OperationSink);

    fn read_server(&mut self, time: PacketTime, bytes: &[u8], sink: &mut dyn OperationSink);

    /// Requests and responses can no longer be paired.
    fn lose_position(
        &mut self,
        direction: FlowDirection,
        reason: NotMeasuredReason,
        sink: &mut dyn OperationSink,
    );

    /// Reads a packet that is not empty.
    fn read_packet(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        // Before the packet is recorded: a pause ends with it.
        if direction == FlowDirection::ToServer && self.lockstep().phase() == LockstepPhase::Lost {
            self.read_client(time, bytes, sink);
            self.lockstep().packet(direction, time, true);
            return;
        }
        let is_idle = self.is_idle();
        if self.lockstep().packet(direction, time, is_idle) {
            self.lose_position(direction, NotMeasuredReason::Gap, sink);
        }
        match direction {
            FlowDirection::ToServer => self.read_client(time, bytes, sink),
            FlowDirection::ToClient => self.read_server(time, bytes, sink),
        }
    }
}
