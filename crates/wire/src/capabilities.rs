//! Capabilities of Linux (capabilities(7)), which a thread has until it gives them up. A new thread
//! has those of the thread that starts it.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What opening a [`PacketRing`](crate::PacketRing) requires.
const OF_PACKETS: CapabilitySet = CapabilitySet::NET_RAW;
/// What opening [`TlsProbes`](crate::TlsProbes) requires: to load and attach programs (for which
/// Linux 6.18 wants CAP_SYS_ADMIN), and to look at the files of other users' processes.
const OF_PROBES: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH);

/// Whether the calling thread may capture packets.
pub fn may_capture() -> io::Result<bool> {
    Ok(capabilities(None)?.permitted.intersects(OF_PACKETS))
}

/// Gives up all capabilities of the calling thread; other threads keep theirs. A thread that has a
/// [`PacketRing`](crate::PacketRing) needs none to read it.
pub fn give_up_capabilities() -> io::Result<()> {
    keep(CapabilitySet::empty())
}

/// Gives up the capability to capture packets: those of the calling thread that other parts of a
/// server need stay.
pub fn give_up_capture() -> io::Result<()> {
    keep(!OF_PACKETS)
}

/// Gives up what opening packet rings and probes does not require.
pub fn give_up_all_but_capture() -> io::Result<()> {
    keep(OF_PACKETS | OF_PROBES)
}

/// Gives up all other capabilities of the calling thread. A capability that is in none of these
/// sets is in no ambient one either.
fn keep(kept: CapabilitySet) -> io::Result<()> {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    let sets = CapabilitySets {
        effective: effective & kept,
        permitted: permitted & kept,
        inheritable: inheritable & kept,
    };
    Ok(set_capabilities(None, sets)?)
}
