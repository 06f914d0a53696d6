//! What becomes of the writes to one file when the power goes.

use std::collections::BTreeMap;

use crate::sim::rng::Rng;

/// Which sectors of which writes to one file arrive. Were each a toss of its own, a write of many
/// sectors would never arrive in whole and an early one never without the next; hence the kinds.
pub(super) struct Fate<'a> {
    kind: Kind,
    write_count: usize,
    /// By sector: until which write it has everything, or that each write is a toss.
    sectors: BTreeMap<u64, Option<usize>>,
    rng: &'a mut Rng,
}

enum Kind {
    Nothing,
    All,
    /// The writes before this one, in whole.
    Until(usize),
    /// This many of 8 chances for each sector.
    Each(u64),
}

impl Fate<'_> {
    pub(super) fn new(write_count: usize, rng: &mut Rng) -> Fate<'_> {
        let kind = match rng.below(8) {
            0 => Kind::Nothing,
            1 => Kind::All,
            2 | 3 => Kind::Until(rng.up_to(write_count)),
            4 => Kind::Each(1),
            5 => Kind::Each(7),
            _ => Kind::Each(4),
        };
        Fate { kind, write_count, sectors: BTreeMap::new(), rng }
    }

    pub(super) fn arrives(&mut self, write: usize, sector: u64) -> bool {
        let eighths = match self.kind {
            Kind::Nothing => return false,
            Kind::All => return true,
            Kind::Until(end) => return write < end,
            Kind::Each(eighths) => eighths,
        };
        let (rng, write_count) = (&mut *self.rng, self.write_count);
        let fate = self.sectors.entry(sector).or_insert_with(|| match rng.chance(4) {
            true => Some(rng.up_to(write_count)),
            false => None,
        });
        match fate {
            Some(end) => write < *end,
            None => rng.chance(eighths),
        }
    }

    /// The same for a page that was changed through a map.
    pub(super) fn page_arrives(&mut self) -> bool {
        match self.kind {
            Kind::Nothing => false,
            Kind::All => true,
            Kind::Until(_) => self.rng.chance(4),
            Kind::Each(eighths) => self.rng.chance(eighths),
        }
    }
}
