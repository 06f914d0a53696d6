//! Sources whose buffered data is lost if the process is killed, and what the previous process may
//! have lost of them.

use std::collections::{BTreeMap, BTreeSet};

use model::Gap;

use crate::ledger::Ledger;
use crate::ledger_file::VOLATILE_PRODUCERS_MAX;

/// Volatile sources of this process, and the loss of the previous one.
#[derive(Debug, Default)]
pub(crate) struct VolatileSources {
    are_running: bool,
    /// Whether all of their producers are known. If not, a kill may concern any series.
    are_known: bool,
    producers: BTreeSet<u64>,
    /// Producers that have stopped, and the journal position up to which their batches must be
    /// durable.
    stopped: BTreeMap<u64, u64>,
    /// What the previous process may have lost, until it is in the journal.
    unclean_shutdown: Option<UncleanShutdown>,
}

/// Possible loss of a killed process.
#[derive(Clone, Debug)]
pub(crate) struct UncleanShutdown {
    /// One gap for each producer, or one if the producers are not known.
    pub(crate) gaps: Vec<Gap>,
    start: i64,
    producers: BTreeSet<u64>,
}

impl UncleanShutdown {
    /// The possible loss, if a process was killed since it wrote the ledger.
    fn of(ledger: &Ledger, now: i64) -> Option<UncleanShutdown> {
        if ledger.is_closed || !ledger.is_volatile {
            return None;
        }
        let start = ledger.saved_at.min(now);
        let gap = |producer| Gap {
            start,
            end: now,
            producer,
            lost: None,
            reason: Gap::UNCLEAN_SHUTDOWN.to_owned(),
        };
        let producers = ledger.volatile_producers.clone();
        let gaps = match producers.is_empty() {
            true => vec![gap(None)],
            false => producers.iter().map(|&producer| gap(Some(producer))).collect(),
        };
        Some(UncleanShutdown { gaps, start, producers })
    }

    /// The interval, for the log.
    pub(crate) fn summary(&self) -> Option<Gap> {
        self.gaps.first().map(|gap| Gap { producer: None, ..gap.clone() })
    }
}

impl VolatileSources {
    /// None of this process yet. `ledger` is that of the previous process.
    pub(crate) fn after(ledger: &Ledger, now: i64) -> VolatileSources {
        VolatileSources {
            unclean_shutdown: UncleanShutdown::of(ledger, now),
            ..VolatileSources::default()
        }
    }

    pub(crate) fn unclean_shutdown(&self) -> Option<&UncleanShutdown> {
        self.unclean_shutdown.as_ref()
    }

    /// The gaps of the unclean shutdown are in the journal.
    pub(crate) fn clear_unclean_shutdown(&mut self) {
        self.unclean_shutdown = None;
    }

    /// Sources start, whose producers are not known yet. Returns whether the ledger must say so.
    pub(crate) fn begin_start(&mut self) -> bool {
        let is_recorded = self.are_running && !self.are_known;
        (self.are_running, self.are_known) = (true, false);
        !is_recorded
    }

    /// All sources have started, with `producer` as one of their producers.
    pub(crate) fn finish_start(&mut self, producer: u64) {
        self.are_known = true;
        self.add(producer);
    }

    pub(crate) fn add(&mut self, producer: u64) {
        self.stopped.remove(&producer);
        self.producers.insert(producer);
    }

    /// A producer has stopped; its batches end before a position of the journal.
    pub(crate) fn remove(&mut self, producer: u64, end: u64) {
        self.stopped.insert(producer, end);
    }

    /// Writes to the ledger what a kill would lose, and from when on. Everything before `durable`
    /// is durable in the journal.
    pub(crate) fn write_to(&mut self, ledger: &mut Ledger, durable: u64, now: i64) {
        for (producer, _) in self.stopped.extract_if(.., |_, end| *end <= durable) {
            self.producers.remove(&producer);
        }
        let running = self.are_running.then_some(&self.producers);
        let is_unknown = self.are_running && !self.are_known;
        // Until the gaps of the previous process are in the journal, they are reported again.
        let before = self.unclean_shutdown.as_ref().map(|lost| &lost.producers);
        let is_unknown = is_unknown || before.is_some_and(BTreeSet::is_empty);
        let all: BTreeSet<u64> = running.into_iter().chain(before).flatten().copied().collect();
        ledger.is_volatile = running.is_some() || before.is_some();
        ledger.volatile_producers =
            if is_unknown || all.len() > VOLATILE_PRODUCERS_MAX { BTreeSet::new() } else { all };
        ledger.saved_at = self.unclean_shutdown.as_ref().map_or(now, |lost| lost.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ledger after a write: whether a kill loses data, and of which producers.
    fn written(sources: &mut VolatileSources, durable: u64) -> (bool, Vec<u64>) {
        let mut ledger = Ledger::new(1, 0, 0);
        sources.write_to(&mut ledger, durable, 10);
        (ledger.is_volatile, ledger.volatile_producers.into_iter().collect())
    }

    #[test]
    fn producers_are_unknown_until_all_sources_have_started() {
        let mut sources = VolatileSources::after(&Ledger::new(1, 0, 0), 5);
        assert_eq!(written(&mut sources, 0), (false, vec![]));
        assert!(sources.begin_start());
        sources.add(7);
        assert_eq!(written(&mut sources, 0), (true, vec![]));
        assert!(!sources.begin_start(), "the ledger says so already");
        sources.finish_start(1);
        assert_eq!(written(&mut sources, 0), (true, vec![1, 7]));
        assert!(sources.begin_start(), "a reload may add one");
        assert_eq!(written(&mut sources, 0), (true, vec![]));
        sources.finish_start(1);
        assert_eq!(written(&mut sources, 0), (true, vec![1, 7]));
    }

    #[test]
    fn stopped_source_is_listed_until_its_batches_are_durable() {
        let mut sources = VolatileSources::default();
        sources.begin_start();
        sources.add(7);
        sources.finish_start(1);
        sources.remove(7, 20);
        assert_eq!(written(&mut sources, 19), (true, vec![1, 7]));
        sources.add(7);
        assert_eq!(written(&mut sources, 20), (true, vec![1, 7]), "it was started again");
        sources.remove(7, 20);
        assert_eq!(written(&mut sources, 20), (true, vec![1]));
    }

    #[test]
    fn unreported_loss_stays_in_the_ledger() {
        let mut killed = Ledger::new(1, 0, 3);
        (killed.is_volatile, killed.volatile_producers) = (true, BTreeSet::from([7, 8]));
        let mut sources = VolatileSources::after(&killed, 5);
        let lost = sources.unclean_shutdown().unwrap().clone();
        let producers: Vec<_> = lost.gaps.iter().map(|gap| gap.producer).collect();
        assert_eq!(producers, [Some(7), Some(8)]);
        assert_eq!(
            lost.summary().map(|gap| (gap.start, gap.end, gap.producer)),
            Some((3, 5, None))
        );
        sources.begin_start();
        sources.finish_start(1);
        let mut ledger = Ledger::new(1, 0, 0);
        sources.write_to(&mut ledger, 0, 10);
        assert_eq!((ledger.saved_at, ledger.volatile_producers.len()), (3, 3));
        sources.clear_unclean_shutdown();
        sources.write_to(&mut ledger, 0, 10);
        assert_eq!((ledger.saved_at, ledger.volatile_producers.len()), (10, 1));
    }
}
