//! Capabilities of Linux (capabilities(7)), which a thread has until it gives them up.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Gives up all capabilities of the calling thread; other threads keep theirs. A thread that has a
/// [`PacketRing`](crate::PacketRing) needs none to read it.
pub fn give_up_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(set_capabilities(None, sets)?)
}
