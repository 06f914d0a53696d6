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

    /// Packets of these ports are captured from now on.
    fn set_ports(&mut self, _ports: &[u16]) -> Result<(), CaptureError> {
        Ok(())
    }

    /// Calls `each` with the plaintext of TLS libraries up to now. Returns the number of chunks
    /// that were lost since the start of the capture; `None` if no library is read.
    fn read_tls(&mut self, _each: &mut dyn FnMut(&TlsEvent<'_>)) -> Option<u64> {
        None
    }
}

/// Longest wait for packets while TLS libraries are read: their events do not end it. An interval
/// is open for longer after its end. A stop waits for packets for at most this time.
const TLS_WAIT: Duration = Duration::from_millis(60);

/// Rings of all interfaces that one thread reads, and probes at TLS libraries.
pub(crate) struct InterfaceRings {
    rings: Vec<PacketRing>,
    tls: Option<TlsProbes>,
    /// Probes that are opened while this is read arrive here.
    mailbox: Option<TlsProbeMailbox>,
}

/// Hands probes from the thread that opens them to the one that reads them. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsProbeMailbox(Arc<Mutex<Option<TlsProbes>>>);

impl TlsProbeMailbox {
    pub(crate) fn put(&self, probes: TlsProbes) {
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
        let rings = || InterfaceRings { rings: Vec::new(), tls: None, mailbox: None };
        let mut all: Vec<InterfaceRings> = (0..settings.threads).map(|_| rings()).collect();
        for interface in interfaces {
            let (ports, blocks) = (settings.ports(), settings.ring_blocks);
            let settings = RingSettings { interface, ports, blocks };
            let rings = PacketRing::open_group(&settings, all.len())?;
            all.iter_mut().zip(rings).for_each(|(of_thread, ring)| of_thread.rings.push(ring));
        }
        Ok(all)
    }

    /// Takes further probes from a mailbox.
    pub(crate) fn set_probe_mailbox(&mut self, mailbox: TlsProbeMailbox) {
        self.mailbox = Some(mailbox);
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

    fn set_ports(&mut self, ports: &[u16]) -> Result<(), CaptureError> {
        self.rings.iter().try_for_each(|ring| ring.set_ports(ports))
    }

    fn read_tls(&mut self, each: &mut dyn FnMut(&TlsEvent<'_>)) -> Option<u64> {
        if let Some(probes) = self.mailbox.as_ref().and_then(TlsProbeMailbox::take) {
            self.tls = Some(probes);
        }
        let probes = self.tls.as_mut()?;
        probes.read(each);
        Some(probes.lost_events())
    }
}
