//! Where packets come from: rings of interfaces, or a list in tests.

use std::time::Duration;

use wire::{CaptureError, CapturedPacket, PacketRing, RingSettings, RingStatistics};

use crate::settings::CaptureSettings;

/// A source of packets.
pub trait PacketSource: Send {
    /// Calls `each` with the next packets, after waiting for them for at most `timeout`. Returns
    /// whether there were any.
    fn read(
        &mut self,
        timeout: Duration,
        each: &mut dyn FnMut(&CapturedPacket<'_>),
    ) -> Result<bool, CaptureError>;

    /// Counts since the start of the capture.
    fn statistics(&mut self) -> Result<RingStatistics, CaptureError>;
}

/// Rings of the interfaces.
pub(crate) struct InterfaceRings(Vec<PacketRing>);

impl InterfaceRings {
    /// Opens a ring for each interface, or one for all.
    pub(crate) fn open(settings: &CaptureSettings) -> Result<InterfaceRings, CaptureError> {
        let interfaces: Vec<Option<String>> = match settings.interfaces.is_empty() {
            true => vec![None],
            false => settings.interfaces.iter().cloned().map(Some).collect(),
        };
        let open = |interface| {
            let ports = settings.ports();
            PacketRing::open(&RingSettings { interface, ports, blocks: settings.ring_blocks })
        };
        Ok(InterfaceRings(interfaces.into_iter().map(open).collect::<Result<_, _>>()?))
    }
}

impl PacketSource for InterfaceRings {
    fn read(
        &mut self,
        timeout: Duration,
        each: &mut dyn FnMut(&CapturedPacket<'_>),
    ) -> Result<bool, CaptureError> {
        PacketRing::wait_any(&self.0, timeout)?;
        let mut has_packets = false;
        for ring in &mut self.0 {
            has_packets |= ring.read(Duration::ZERO, each)?;
        }
        Ok(has_packets)
    }

    fn statistics(&mut self) -> Result<RingStatistics, CaptureError> {
        let mut total = RingStatistics::default();
        for ring in &mut self.0 {
            let found = ring.statistics()?;
            total.packets += found.packets;
            total.drops += found.drops;
            total.freezes += found.freezes;
        }
        Ok(total)
    }
}
