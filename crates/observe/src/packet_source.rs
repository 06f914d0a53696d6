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

/// Rings of all interfaces that one thread reads.
pub(crate) struct InterfaceRings(Vec<PacketRing>);

impl InterfaceRings {
    /// Opens a ring of each interface, or one for all, for each thread. The packets of a connection
    /// are in the rings of one thread.
    pub(crate) fn open(settings: &CaptureSettings) -> Result<Vec<InterfaceRings>, CaptureError> {
        let interfaces: Vec<Option<String>> = match settings.interfaces.is_empty() {
            true => vec![None],
            false => settings.interfaces.iter().cloned().map(Some).collect(),
        };
        let mut all: Vec<InterfaceRings> =
            (0..settings.threads).map(|_| InterfaceRings(Vec::new())).collect();
        for interface in interfaces {
            let (ports, blocks) = (settings.ports(), settings.ring_blocks);
            let settings = RingSettings { interface, ports, blocks };
            let rings = PacketRing::open_group(&settings, all.len())?;
            all.iter_mut().zip(rings).for_each(|(of_thread, ring)| of_thread.0.push(ring));
        }
        Ok(all)
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
