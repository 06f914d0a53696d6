//! The places in the program that spans and events come from, each with what it has in shared memory, found without a lock.
//!
//! A place is known by the address of what describes it, which lives as long as the program. The table has a bound: what finds no
//! room near its place is counted as `overflow`.

use std::ptr;
use std::sync::OnceLock;

use tracing_core::Metadata;

/// Places at the most, a power of two. Large programs have some hundreds.
const SITES_MAX: usize = 1 << SITES_BITS;
const SITES_BITS: u32 = 12;
/// Places that are looked at for one.
const LOOKS: usize = 64;

/// What a place has in shared memory.
pub(super) trait Site {
    /// Of a place; of all that find no room where there is none.
    fn new(metadata: Option<&'static Metadata<'static>>) -> Self;
}

pub(super) struct Sites<T> {
    slots: Box<[OnceLock<Box<Known<T>>>]>,
    overflow: T,
}

struct Known<T> {
    metadata: &'static Metadata<'static>,
    site: T,
}

impl<T: Site> Sites<T> {
    pub(super) fn new() -> Sites<T> {
        let slots = (0..SITES_MAX).map(|_| OnceLock::new()).collect();
        Sites { slots, overflow: T::new(None) }
    }

    /// What a place has, which is made if it is new.
    pub(super) fn find(&self, metadata: &'static Metadata<'static>) -> &T {
        // Fibonacci hashing: addresses lie near each other, and their lowest bits are the same.
        let hash = (ptr::from_ref(metadata).addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (hash >> (64 - SITES_BITS)) as usize;
        for at in first..first + LOOKS {
            let slot = &self.slots[at % SITES_MAX];
            let known =
                slot.get_or_init(|| Box::new(Known { metadata, site: T::new(Some(metadata)) }));
            if ptr::eq(known.metadata, metadata) {
                return &known.site;
            }
        }
        &self.overflow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Name(Option<&'static str>);

    impl Site for Name {
        fn new(metadata: Option<&'static Metadata<'static>>) -> Name {
            Name(metadata.map(|metadata| metadata.name()))
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
    fn each_place_is_found_again_until_there_is_no_room() {
        let sites = Sites::<Name>::new();
        let all: Vec<_> = (0..SITES_MAX + 500).map(|_| metadata()).collect();
        let first: Vec<_> = all.iter().map(|one| ptr::from_ref(sites.find(one))).collect();
        for (metadata, first) in all.iter().zip(&first) {
            assert!(ptr::eq(sites.find(metadata), *first));
        }
        let overflow = first.iter().filter(|one| ptr::eq(**one, &sites.overflow)).count();
        assert!((500..SITES_MAX / 2).contains(&overflow), "{overflow} without room");
        assert_eq!(sites.overflow.0, None);
        assert_eq!(sites.find(all[0]).0, Some("a"));
    }
}
