//! Callsite map: callsite to metrics, lock-free lookup.
//!
//! A callsite is identified by the address of its metadata, which lives as long as the program. The
//! table is bounded: callsites without a slot near their hash are counted as `overflow`.

use std::ptr;
use std::sync::OnceLock;

use tracing_core::Metadata;

/// Limit of callsites, a power of two. Large programs have some hundred.
const CALLSITES_MAX: usize = 1 << CALLSITES_BITS;
const CALLSITES_BITS: u32 = 12;
/// Slots probed for a callsite.
const PROBES_MAX: usize = 64;

/// Shared-memory metrics of a `tracing` callsite.
pub(super) trait CallsiteMetrics {
    /// Metrics of a callsite; of all callsites without a slot if `None`.
    fn new(metadata: Option<&'static Metadata<'static>>) -> Self;
}

pub(super) struct CallsiteMap<T> {
    slots: Box<[OnceLock<Box<CachedCallsite<T>>>]>,
    overflow: T,
}

struct CachedCallsite<T> {
    metadata: &'static Metadata<'static>,
    metrics: T,
}

impl<T: CallsiteMetrics> CallsiteMap<T> {
    pub(super) fn new() -> CallsiteMap<T> {
        let slots = (0..CALLSITES_MAX).map(|_| OnceLock::new()).collect();
        CallsiteMap { slots, overflow: T::new(None) }
    }

    /// Metrics of a callsite, created if it is new.
    pub(super) fn find_or_insert(&self, metadata: &'static Metadata<'static>) -> &T {
        // Fibonacci hashing: addresses are close to each other, and their lowest bits are equal.
        let hash = (ptr::from_ref(metadata).addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (hash >> (64 - CALLSITES_BITS)) as usize;
        for at in first..first + PROBES_MAX {
            let slot = &self.slots[at % CALLSITES_MAX];
            let known = slot.get_or_init(|| {
                Box::new(CachedCallsite { metadata, metrics: T::new(Some(metadata)) })
            });
            if ptr::eq(known.metadata, metadata) {
                return &known.metrics;
            }
        }
        &self.overflow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestMetrics(Option<&'static str>);

    impl CallsiteMetrics for TestMetrics {
        fn new(metadata: Option<&'static Metadata<'static>>) -> TestMetrics {
            TestMetrics(metadata.map(|metadata| metadata.name()))
        }
    }

    fn metadata() -> &'static Metadata<'static> {
        static CALLSITE: Callsite = Callsite;
        struct Callsite;
        impl tracing_core::Callsite for Callsite {
            fn set_interest(&self, _: tracing_core::Interest) {}
            fn metadata(&self) -> &Metadata<'_> {
                unreachable!("it is never registered")
            }
        }
        let level = tracing_core::Level::INFO;
        let fields =
            tracing_core::field::FieldSet::new(&[], tracing_core::identify_callsite!(&CALLSITE));
        let kind = tracing_core::metadata::Kind::SPAN;
        Box::leak(Box::new(Metadata::new("a", "b", level, None, None, None, fields, kind)))
    }

    #[test]
    fn callsites_are_found_until_the_map_is_full() {
        let sites = CallsiteMap::<TestMetrics>::new();
        let all: Vec<_> = (0..CALLSITES_MAX + 500).map(|_| metadata()).collect();
        let first: Vec<_> =
            all.iter().map(|one| ptr::from_ref(sites.find_or_insert(one))).collect();
        for (metadata, first) in all.iter().zip(&first) {
            assert!(ptr::eq(sites.find_or_insert(metadata), *first));
        }
        let overflow = first.iter().filter(|one| ptr::eq(**one, &sites.overflow)).count();
        assert!((500..CALLSITES_MAX / 2).contains(&overflow), "{overflow} without room");
        assert_eq!(sites.overflow.0, None);
        assert_eq!(sites.find_or_insert(all[0]).0, Some("a"));
    }
}
