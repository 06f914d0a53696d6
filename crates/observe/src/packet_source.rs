//! Where packets and plaintext of TLS come from: rings of interfaces and probes at libraries, or a
//! list in tests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wire::{
    CaptureError, CapturedPacket, PacketRing, RingSettings, RingStatistics, TlsEvent, TlsProbes,
};

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

    /// Calls `each` with the plaintext of TLS libraries up to now. Returns the number of chunks
    /// that were lost since the start of the capture; `None` if no library is read.
    fn read_tls(&mut self, _each: &mut dyn FnMut(&TlsEvent<'_>)) -> Option<u64> {
        None
    }
}

/// Longest wait for packets while TLS libraries are read, whose events do not end it: less than the
/// time after its end that an interval is open, and no less than a stop waits for packets.
const TLS_WAIT: Duration = Duration::from_millis(60);

/// Rings of all interfaces that one thread reads, and probes at TLS libraries.
pub(crate) struct InterfaceRings {
    rings: Vec<PacketRing>,
    tls: Option<TlsProbes>,
    /// Where probes come from that are opened while this is read.
    handover: Option<TlsHandover>,
}

/// Probes that another thread has opened, for the one that reads them. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsHandover(Arc<Mutex<Option<TlsProbes>>>);

impl TlsHandover {
    pub(crate) fn give(&self, probes: TlsProbes) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(probes);
    }

    fn take(&self) -> Option<TlsProbes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl InterfaceRings {
    /// Opens a ring of each interface, or one for all, for each thread. The packets of a connection
    /// are in the rings of one thread.
    pub(crate) fn open(settings: &CaptureSettings) -> Result<Vec<InterfaceRings>, CaptureError> {
        let interfaces: Vec<Option<String>> = match settings.interfaces.is_empty() {
            true => vec![None],
            false => settings.interfaces.iter().cloned().map(Some).collect(),
        };
        let rings = || InterfaceRings { rings: Vec::new(), tls: None, handover: None };
        let mut all: Vec<InterfaceRings> = (0..settings.threads).map(|_| rings()).collect();
        for interface in interfaces {
            let (ports, blocks) = (settings.ports(), settings.ring_blocks);
            let settings = RingSettings { interface, ports, blocks };
            let rings = PacketRing::open_group(&settings, all.len())?;
            all.iter_mut().zip(rings).for_each(|(of_thread, ring)| of_thread.rings.push(ring));
        }
        Ok(all)
    }

    /// Reads the probes that come this way.
    pub(crate) fn set_tls(&mut self, handover: TlsHandover) {
        self.handover = Some(handover);
    }
}

impl PacketSource for InterfaceRings {
    fn read(
        &mut self,
        timeout: Duration,
        each: &mut dyn FnMut(&CapturedPacket<'_>),
    ) -> Result<bool, CaptureError> {
        let timeout = if self.tls.is_some() { timeout.min(TLS_WAIT) } else { timeout };
        PacketRing::wait_any(&self.rings, timeout)?;
        let mut has_packets = false;
        for ring in &mut self.rings {
            has_packets |= ring.read(Duration::ZERO, each)?;
        }
        Ok(has_packets)
    }

    fn statistics(&mut self) -> Result<RingStatistics, CaptureError> {
        let mut total = RingStatistics::default();
        for ring in &mut self.rings {
            let found = ring.statistics()?;
            total.packets += found.packets;
            total.drops += found.drops;
            total.freezes += found.freezes;
        }
        Ok(total)
    }

    fn read_tls(&mut self, each: &mut dyn FnMut(&TlsEvent<'_>)) -> Option<u64> {
        if let Some(probes) = self.handover.as_ref().and_then(TlsHandover::take) {
            self.tls = Some(probes);
        }
        let probes = self.tls.as_mut()?;
        probes.read(each);
        Some(probes.lost_events())
    }
}
