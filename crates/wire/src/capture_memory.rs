//! Memory of a whole capture: the rings, the program, and what the tracker retains.
//!
//! The target is 200 MB with 10,000 connections. Of it, the program has 20 MB (a release build
//! without connections had 85 MB with a ring of 67 MB), and a connection 2,400 bytes beside its
//! buffers (10,000 of them had 23 MB more). What the rings leave is divided. Rings of more than
//! 100 MB exceed the target, because the tracker has 48 MB at least.

/// Memory of a capture with 10,000 connections, in bytes.
const TOTAL_BYTES: usize = 200_000_000;
const PROGRAM_BYTES: usize = 20_000_000;
const CONNECTIONS_BYTES: usize = 10_000 * 2_400;
/// Memory of the tracker whatever the rings have.
const TRACKER_BYTES_MIN: usize = 48_000_000;

/// Limits of a tracker, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureMemory {
    /// See [`TrackerSettings::observer_bytes_max`](crate::TrackerSettings::observer_bytes_max).
    pub observer_bytes_max: usize,
    /// See [`TrackerSettings::reorder_bytes_max`](crate::TrackerSettings::reorder_bytes_max).
    pub reorder_bytes_max: usize,
    /// See [`TrackerSettings::statement_bytes_max`](crate::TrackerSettings::statement_bytes_max).
    pub statement_bytes_max: usize,
    /// See [`TrackerSettings::cache_bytes_max`](crate::TrackerSettings::cache_bytes_max).
    pub cache_bytes_max: usize,
}

impl CaptureMemory {
    /// Limits of all trackers together beside rings of `ring_bytes` in all.
    pub fn beside_rings(ring_bytes: usize) -> CaptureMemory {
        let others = PROGRAM_BYTES + CONNECTIONS_BYTES + ring_bytes;
        let tracker = TOTAL_BYTES.saturating_sub(others).max(TRACKER_BYTES_MIN);
        // Sessions of TLS libraries have a quarter of the observers' memory, beside it.
        CaptureMemory {
            observer_bytes_max: tracker / 100 * 40,
            reorder_bytes_max: tracker / 100 * 20,
            statement_bytes_max: tracker / 100 * 22,
            cache_bytes_max: tracker / 100 * 8,
        }
    }

    /// Bytes of all limits, with those of sessions of TLS libraries.
    pub fn bytes(&self) -> usize {
        let CaptureMemory { observer_bytes_max, reorder_bytes_max, .. } = self;
        let of_connections = observer_bytes_max + observer_bytes_max / 4 + reorder_bytes_max;
        of_connections + self.statement_bytes_max + self.cache_bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_part_of_the_total() {
        for ring in [0, 2 << 20, 64 << 20, 100_000_000] {
            let budget = CaptureMemory::beside_rings(ring);
            let total = budget.bytes() + ring + PROGRAM_BYTES + CONNECTIONS_BYTES;
            assert!((199_000_000..=TOTAL_BYTES).contains(&total), "{ring}: {total}");
        }
        let large = CaptureMemory::beside_rings(1 << 30);
        assert!((47_000_000..=TRACKER_BYTES_MIN).contains(&large.bytes()), "{large:?}");
    }
}
