//! Audit: reconciliation of received, stored and lost samples per producer and hop.
//!
//! The journal is held to what this process has taken since it began, the store and the sites are
//! held to the journal. A difference is zero or has a reason; one without a reason is a fault of
//! topdeck.

use std::collections::BTreeMap;
use std::fmt::Debug;

use model::Gap;
use store::IngestProgress;

use crate::counts::{Loss, ProducerCounts, add_loss};
use crate::ledger::{Ledger, LedgerEntry};
use crate::recent_batches::BatchSums;

/// Downstream hop of the journal with a ledger of its own.
pub trait DownstreamHop: Send + Sync + Debug {
    /// What it has for sure: what it has acknowledged, durably counted.
    fn ledger(&self) -> Ledger;
}

/// Reconciled counts at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Since when the journal's book counts, in nanoseconds since the Unix epoch.
    pub started_at: i64,
    /// When this process began.
    pub process_started_at: i64,
    /// Records of the journal up to this position are counted.
    pub position: u64,
    /// Producers by name; those that have no line of their own last.
    pub producers: Vec<ProducerAudit>,
    /// What whoever reads this should know about the books.
    pub warnings: Vec<String>,
}

/// One producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerAudit {
    /// Its number; none for all that have no line of their own.
    pub id: Option<u64>,
    /// Its name; empty if nobody told it.
    pub name: String,
    /// What it says itself, if it is a source of this process.
    pub source: Option<SourceCounts>,
    /// Losses that were told of on the way into the journal.
    pub losses: Vec<Loss>,
    /// A line for each hop, the journal first.
    pub hops: Vec<HopAudit>,
}

/// Value counts of an internal source since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Came from outside.
    pub received: u64,
    /// Are in batches that were taken.
    pub accepted: u64,
    /// Were dropped, and why.
    pub dropped: Vec<(String, u64)>,
}

impl SourceCounts {
    /// Values that came and are neither taken nor dropped: the source is putting them together.
    pub fn buffered(&self) -> u64 {
        let dropped = self.dropped.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
        self.received.saturating_sub(self.accepted).saturating_sub(dropped)
    }
}

/// Counts of a producer at one hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopAudit {
    /// `journal`, `store`, or `site NAME`.
    pub hop: String,
    /// What the hop before had for it.
    pub received: ProducerCounts,
    /// What it has acknowledged.
    pub acknowledged: ProducerCounts,
    /// What is in it.
    pub stored: ProducerCounts,
    /// What is known to be lost at it.
    pub losses: Vec<Loss>,
    /// Values that were received and are not stored, as far as that is known.
    pub discrepancy: i128,
    /// Batches that were received and lost, and whose values nobody knows.
    pub unknown_batches: u64,
    /// The difference is none, or it is known why.
    pub is_reconciled: bool,
    /// In a sentence, for people.
    pub reason: String,
}

/// Inputs of the audit.
pub(crate) struct AuditInputs {
    pub(crate) ledger: Ledger,
    /// The book as this process found it.
    pub(crate) previous: Ledger,
    /// What this process has taken, by producer.
    pub(crate) accepted: BTreeMap<Option<u64>, ProducerCounts>,
    /// The journal's end.
    pub(crate) end: u64,
    pub(crate) sources: BTreeMap<u64, (String, SourceCounts)>,
    pub(crate) store: Option<IngestProgress>,
    /// Of each gap that the store misses, what the batches in it had, by producer; `None` if that
    /// is not known.
    pub(crate) lost: Vec<Option<BTreeMap<u64, BatchSums>>>,
    pub(crate) hops: Vec<(String, Ledger)>,
    pub(crate) process_started_at: i64,
    pub(crate) warnings: Vec<String>,
}

fn plural(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn batches(n: u64) -> String {
    if n == 1 { "1 batch".to_owned() } else { format!("{n} batches") }
}

fn find_entry(book: &Ledger, id: Option<u64>) -> Option<&LedgerEntry> {
    match id {
        Some(id) => book.entries().get(&id),
        None => Some(book.unattributed()),
    }
}

fn ledger_counts(book: &Ledger, id: Option<u64>) -> ProducerCounts {
    find_entry(book, id).map(|entry| entry.counts).unwrap_or_default()
}

impl AuditInputs {
    pub(crate) fn reconcile(self) -> Audit {
        let mut ids: Vec<Option<u64>> = self.ledger.entries().keys().copied().map(Some).collect();
        let strangers = self.sources.keys().filter(|id| !self.ledger.entries().contains_key(id));
        ids.extend(strangers.copied().map(Some));
        ids.push(None);
        let mut producers: Vec<ProducerAudit> =
            ids.into_iter().map(|id| self.producer_audit(id)).collect();
        producers.retain(|account| account.id.is_some() || account.has_data());
        producers
            .sort_by(|a, b| (a.id.is_none(), &a.name, a.id).cmp(&(b.id.is_none(), &b.name, b.id)));
        Audit {
            started_at: self.ledger.started_at(),
            process_started_at: self.process_started_at,
            position: self.ledger.position(),
            producers,
            warnings: self.warnings,
        }
    }

    fn producer_audit(&self, id: Option<u64>) -> ProducerAudit {
        let entry = find_entry(&self.ledger, id).cloned().unwrap_or_default();
        let (name, source) = match id.and_then(|id| self.sources.get(&id)) {
            Some((name, source)) => (name.clone(), Some(source.clone())),
            None => (entry.name.clone(), None),
        };
        let mut lines = vec![self.journal_hop(id, &entry)];
        lines.extend(self.store.as_ref().map(|fed| self.store_hop(id, &entry, fed)));
        lines.extend(self.hops.iter().map(|(hop, book)| self.remote_hop(id, &entry, hop, book)));
        ProducerAudit { id, name, source, losses: entry.losses, hops: lines }
    }

    fn journal_hop(&self, id: Option<u64>, entry: &LedgerEntry) -> HopAudit {
        let mut received = ledger_counts(&self.previous, id);
        let taken = self.accepted.get(&id).copied().unwrap_or_default();
        received.add(&taken);
        let stored = entry.counts;
        let missing = i128::from(received.records()) - i128::from(stored.records());
        let behind = self.end.saturating_sub(self.ledger.position());
        let (is_explained, why) = match u64::try_from(missing) {
            Ok(0) => (true, "all that was taken is in the journal".to_owned()),
            Ok(n) if n <= behind => (true, format!("{} wait for the disk", batches(n))),
            Ok(n) => (
                false,
                format!("{} were taken and are not in the journal: a fault of topdeck", batches(n)),
            ),
            Err(_) => {
                let n = u64::try_from(-missing).unwrap_or(u64::MAX);
                let why = "being taken at this moment, or appended by another program";
                (true, format!("{} more than were taken here: {why}", batches(n)))
            }
        };
        let difference = i128::from(received.values) - i128::from(stored.values);
        let hop = "journal".to_owned();
        HopAudit {
            hop,
            received,
            acknowledged: stored,
            stored,
            losses: Vec::new(),
            discrepancy: difference,
            unknown_batches: 0,
            is_reconciled: is_explained,
            reason: why,
        }
    }

    /// What the store misses of a producer where the books know it: the gap, and what was in it.
    fn lost_batches(&self, id: Option<u64>, fed: &IngestProgress) -> Vec<(Gap, BatchSums)> {
        let is_listed = |producer: &u64| self.ledger.entries().contains_key(producer);
        let is_own = |producer: &u64| match is_listed(producer) {
            true => id == Some(*producer),
            false => id.is_none(),
        };
        let of_gap = |(gap, sums): (&Gap, &Option<BTreeMap<u64, BatchSums>>)| {
            let mut own = BatchSums::default();
            let sums = sums.iter().flatten().filter(|(producer, _)| is_own(producer));
            sums.for_each(|(_, sum)| own.add(sum));
            (own.batches > 0).then(|| (gap.clone(), own))
        };
        fed.missing.iter().zip(&self.lost).filter_map(of_gap).collect()
    }

    fn store_hop(&self, id: Option<u64>, entry: &LedgerEntry, fed: &IngestProgress) -> HopAudit {
        let (received, lost) = (entry.counts, self.store_losses(id, entry, fed));
        let behind = self.ledger.position().saturating_sub(fed.position);
        let (is_reconciled, reason) = match behind {
            0 => (true, lost.reason(id)),
            n => (false, format!("the store has not read {} of the journal", plural(n, "record"))),
        };
        let StoreLosses { losses, stored, .. } = lost;
        HopAudit {
            hop: "store".to_owned(),
            received,
            acknowledged: stored,
            stored,
            losses,
            discrepancy: i128::from(received.values) - i128::from(stored.values),
            unknown_batches: lost.unknown,
            is_reconciled,
            reason,
        }
    }

    fn store_losses(
        &self,
        id: Option<u64>,
        entry: &LedgerEntry,
        fed: &IngestProgress,
    ) -> StoreLosses {
        let is_own = |gap: &&Gap| match gap.producer {
            Some(producer) if self.ledger.entries().contains_key(&producer) => id == Some(producer),
            _ => id.is_none(),
        };
        let mut losses = Vec::new();
        let mut rejected = 0;
        // Each record's reason has its position: told apart by what follows.
        for gap in fed.rejected.iter().filter(is_own) {
            rejected += 1;
            let reason = gap.reason.split_once(": ").map_or(gap.reason.as_str(), |(_, why)| why);
            add_loss(&mut losses, &Gap { reason: reason.to_owned(), ..gap.clone() });
        }
        let samples = losses.iter().fold(0u64, |sum, loss| sum.saturating_add(loss.samples_lost));
        // Records that the journal had when its book was led, and had lost when the store read
        // them.
        let of_known = self.lost_batches(id, fed);
        let mut known = BatchSums::default();
        of_known.iter().for_each(|(_, sums)| known.add(sums));
        let of_unknown = fed.missing.iter().zip(&self.lost);
        let of_unknown: Vec<&Gap> =
            of_unknown.filter_map(|(gap, sums)| sums.is_none().then_some(gap)).collect();
        let all = |counted: u64, of: &dyn Fn(&&Gap) -> bool| {
            let gaps = of_unknown.iter().copied().filter(|gap| of(gap));
            gaps.fold(0u64, |sum, gap| sum.saturating_add(gap.lost.unwrap_or(1)))
                .saturating_sub(counted)
        };
        let unknown = all(entry.counts.missing, &is_own);
        let unattributed =
            all(self.ledger.unattributed().counts.missing, &|gap| gap.producer.is_none());
        let known_gaps =
            of_known.iter().map(|(gap, sums)| Gap { lost: Some(sums.batches), ..gap.clone() });
        let unknown_gaps =
            of_unknown.iter().copied().filter(is_own).filter(|_| unknown > 0).cloned();
        for gap in known_gaps.chain(unknown_gaps) {
            let (_, why) = gap.reason.split_once(": ").unwrap_or(("", &gap.reason));
            let (why, _) = why.split_once(", from position").unwrap_or((why, ""));
            let reason = format!("missing in the journal: {why}");
            add_loss(&mut losses, &Gap { reason, ..gap });
        }
        let mut stored = entry.counts;
        stored.missing = stored.missing.saturating_add(unknown).saturating_add(known.batches);
        stored.batches = stored.batches.saturating_sub(if id.is_some() { unknown } else { 0 });
        stored.batches = stored.batches.saturating_sub(known.batches);
        stored.samples = stored.samples.saturating_sub(samples).saturating_sub(known.samples);
        stored.values = stored.values.saturating_sub(samples).saturating_sub(known.values);
        StoreLosses { losses, stored, rejected, known, unknown, unattributed }
    }

    fn remote_hop(
        &self,
        id: Option<u64>,
        entry: &LedgerEntry,
        hop: &str,
        book: &Ledger,
    ) -> HopAudit {
        let theirs = find_entry(book, id).cloned().unwrap_or_default();
        let stored = theirs.counts;
        let is_whole = book.first() == self.ledger.first();
        let received = if is_whole { entry.counts } else { stored };
        let missing = i128::from(received.records()) - i128::from(stored.records());
        let behind = self.ledger.position().saturating_sub(book.position());
        let gone = stored.missing.saturating_sub(received.missing);
        let others = |book: &Ledger| i128::from(book.unattributed().counts.missing);
        let nobodys = others(book) - others(&self.ledger);
        let (is_explained, why) = match missing {
            _ if !is_whole => (
                true,
                format!(
                    "counted from position {} on, where the site began; {} wait there",
                    book.first(),
                    plural(behind, "record"),
                ),
            ),
            0 => match gone {
                0 => (true, "all of the journal is there".to_owned()),
                n => (true, format!("{} did not get there; the reasons are beside it", batches(n))),
            },
            n if n > 0 && n <= i128::from(behind) => {
                (true, format!("{n} of {} that wait for the site", batches(behind)))
            }
            // It is ahead: what it has was counted there first.
            n if n < 0 && book.position() > self.ledger.position() => {
                (true, "the site is ahead of the journal's book".to_owned())
            }
            // Lost to the site before it had them, and only how many is known: they are in the line
            // of all others.
            n if n > 0 && n <= nobodys + i128::from(behind) => (
                true,
                format!(
                    "{n} batches did not get there: of {nobodys} whose is not known, see others"
                ),
            ),
            n if n < 0 && id.is_none() && -n <= nobodys => {
                (true, format!("{} did not get there, whose they were is not known", -n))
            }
            n => (false, format!("{n} batches are not there: a fault of topdeck")),
        };
        let difference = i128::from(received.values) - i128::from(stored.values);
        let (hop, lost) = (hop.to_owned(), theirs.losses);
        // Its own book has its values, so that the difference is known whatever was lost.
        let (acknowledged, unknown_batches) = (stored, 0);
        HopAudit {
            hop,
            received,
            acknowledged,
            stored,
            losses: lost,
            discrepancy: difference,
            unknown_batches,
            is_reconciled: is_explained,
            reason: why,
        }
    }
}

/// What the store lacks of a producer's batches in the journal.
struct StoreLosses {
    losses: Vec<Loss>,
    /// What is stored without them.
    stored: ProducerCounts,
    /// Batches of which the store rejected some or all.
    rejected: u64,
    /// What was lost in the journal before the store had it, where its values are known.
    known: BatchSums,
    /// Batches that were lost so, and whose values are not known.
    unknown: u64,
    /// Batches that were lost so of producers that are not known.
    unattributed: u64,
}

impl StoreLosses {
    /// Why a store that has read all of the journal has less than the journal.
    fn reason(&self, id: Option<u64>) -> String {
        if self.unknown > 0 || self.known.batches > 0 {
            return self.journal_reason(id);
        }
        match (self.rejected, self.unattributed) {
            (0, 0) => "all of the journal is in the store".to_owned(),
            (0, n) => format!(
                "all that is not among {} that were lost in the journal, whose is not known: see \
                 others",
                batches(n)
            ),
            (n, _) => {
                format!("of {} some or all was refused; the reasons are beside it", batches(n))
            }
        }
    }

    fn journal_reason(&self, id: Option<u64>) -> String {
        let whose = match (self.unknown, id) {
            (0, _) => String::new(),
            (n, Some(_)) => format!("; how many values {} had is not known", batches(n)),
            (n, None) => format!("; whose {} were, and how many values, is not known", batches(n)),
        };
        format!(
            "{} with {} were damaged or dropped in the journal before the store had them, after \
             they were counted: their values are not in the store{whose}",
            batches(self.known.batches.saturating_add(self.unknown)),
            match (self.known.batches, self.unknown) {
                (0, _) => "an unknown number of values".to_owned(),
                (_, 0) => plural(self.known.values, "value"),
                _ => format!("at least {}", plural(self.known.values, "value")),
            }
        )
    }
}

impl ProducerAudit {
    fn has_data(&self) -> bool {
        !self.losses.is_empty()
            || self.hops.iter().any(|line| {
                line.received.records() > 0 || line.stored.records() > 0 || !line.losses.is_empty()
            })
    }

    /// Whether every difference is none, or it is known why.
    pub fn is_reconciled(&self) -> bool {
        self.hops.iter().all(|line| line.is_reconciled)
    }
}
