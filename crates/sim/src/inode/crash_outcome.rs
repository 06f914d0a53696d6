//! Crash outcome: which pending writes survive a power loss.

use std::collections::BTreeMap;

use crate::rng::Rng;

/// Which sectors of which pending writes survive a crash. With an independent choice per sector, a
/// long write would hardly ever survive whole, nor all early writes without any later one; hence
/// the kinds.
pub(super) struct CrashOutcome<'a> {
    kind: SurvivalKind,
    write_count: usize,
    /// By sector: the write up to which everything survives, or an independent choice for each
    /// write.
    sectors: BTreeMap<u64, Option<usize>>,
    rng: &'a mut Rng,
}

enum SurvivalKind {
    Nothing,
    All,
    /// All writes before this one; 0 is none, the number of writes is all.
    UntilWrite(usize),
    /// In half of the sectors, a prefix of the writes. In the others, each write with a probability
    /// of this many eighths.
    EachSector(u64),
}

impl CrashOutcome<'_> {
    pub(super) fn new(write_count: usize, rng: &mut Rng) -> CrashOutcome<'_> {
        let kind = match rng.below(8) {
            0 => SurvivalKind::Nothing,
            1 => SurvivalKind::All,
            2 | 3 => SurvivalKind::UntilWrite(rng.up_to(write_count)),
            4 => SurvivalKind::EachSector(1),
            5 => SurvivalKind::EachSector(7),
            _ => SurvivalKind::EachSector(4),
        };
        CrashOutcome { kind, write_count, sectors: BTreeMap::new(), rng }
    }

    pub(super) fn sector_survives(&mut self, write: usize, sector: u64) -> bool {
        let eighths = match self.kind {
            SurvivalKind::Nothing => return false,
            SurvivalKind::All => return true,
            SurvivalKind::UntilWrite(end) => return write < end,
            SurvivalKind::EachSector(eighths) => eighths,
        };
        let (rng, write_count) = (&mut *self.rng, self.write_count);
        let fate = self.sectors.entry(sector).or_insert_with(|| match rng.chance_in_eight(4) {
            true => Some(rng.up_to(write_count)),
            false => None,
        });
        match fate {
            Some(end) => write < *end,
            None => rng.chance_in_eight(eighths),
        }
    }

    /// Whether a page changed through a mapping survives.
    pub(super) fn page_survives(&mut self) -> bool {
        match self.kind {
            SurvivalKind::Nothing => false,
            SurvivalKind::All => true,
            SurvivalKind::UntilWrite(_) => self.rng.chance_in_eight(4),
            SurvivalKind::EachSector(eighths) => self.rng.chance_in_eight(eighths),
        }
    }
}
