//! Audit: reconciliation of received, stored and lost samples per producer and stage.
//!
//! The journal is compared with the counts of this process since its start; the store and the
//! remotes are compared with the journal. A discrepancy is zero or has a reason; one without a
//! reason is a bug in topdeck.

use std::collections::BTreeMap;
use std::fmt::Debug;

use model::Gap;
use store::IngestProgress;

use crate::counts::{Loss, ProducerCounts, add_loss};
use crate::ledger::{Ledger, LedgerEntry};
use crate::recent_batches::BatchSums;
use crate::rejected_input::SourceProblem;

/// Downstream stage of the journal with a ledger of its own.
pub trait DownstreamStage: Send + Sync + Debug {
    /// Counts that the stage has durably acknowledged.
    fn ledger(&self) -> Ledger;
}

/// Reconciled counts at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Start of the journal's ledger, in nanoseconds since the Unix epoch.
    pub started_at: i64,
    /// Start of this process.
    pub process_started_at: i64,
    /// Journal position up to which records are counted.
    pub position: u64,
    /// Producers by name; the shared entry of unlisted producers is last.
    pub producers: Vec<ProducerAudit>,
    /// Warnings about the ledgers, for operators.
    pub warnings: Vec<String>,
}

/// Audit of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerAudit {
    /// Producer id; `None` for the shared entry of unlisted producers.
    pub id: Option<u64>,
    /// Producer name; empty if unknown.
    pub name: String,
    /// Counts of the producer itself, if it is a source of this process.
    pub source: Option<SourceCounts>,
    /// Losses reported by gaps before the journal.
    pub losses: Vec<Loss>,
    /// An entry for each stage, the journal first.
    pub stages: Vec<StageAudit>,
}

/// Value counts of an internal source since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Values received from outside.
    pub received: u64,
    /// Values in accepted batches.
    pub accepted: u64,
    /// Dropped values by reason.
    pub dropped: Vec<(String, u64)>,
    /// The last problem with its input.
    pub last_problem: Option<SourceProblem>,
}

impl SourceCounts {
    /// Received values that are neither accepted nor dropped: the source buffers them.
    pub fn buffered(&self) -> u64 {
        let dropped = self.dropped.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
        self.received.saturating_sub(self.accepted).saturating_sub(dropped)
    }
}

/// Counts of a producer at one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageAudit {
    /// `journal`, `store`, or `remote NAME`.
    pub stage: String,
    /// Counts of the previous stage.
    pub received: ProducerCounts,
    /// Acknowledged counts.
    pub acknowledged: ProducerCounts,
    /// Stored counts.
    pub stored: ProducerCounts,
    /// Known losses at this stage.
    pub losses: Vec<Loss>,
    /// Values received and not stored, as far as known.
    pub discrepancy: i128,
    /// Batches received and lost whose number of values is unknown.
    pub unknown_batches: u64,
    /// Whether the discrepancy is zero or has a known reason.
    pub is_reconciled: bool,
    /// Reason in a sentence, for operators.
    pub reason: String,
}

/// Inputs of the audit.
pub(crate) struct AuditInputs {
    pub(crate) ledger: Ledger,
    /// The ledger at the start of this process.
    pub(crate) previous: Ledger,
    /// Counts that this process accepted, by producer.
    pub(crate) accepted: BTreeMap<Option<u64>, ProducerCounts>,
    /// The journal's end.
    pub(crate) end: u64,
    pub(crate) sources: BTreeMap<u64, (String, SourceCounts)>,
    pub(crate) store: Option<IngestProgress>,
    /// For each gap of the store: counts of its batches by producer; `None` if unknown.
    pub(crate) lost: Vec<Option<BTreeMap<u64, BatchSums>>>,
    pub(crate) stages: Vec<(String, Ledger)>,
    pub(crate) process_started_at: i64,
    pub(crate) warnings: Vec<String>,
}

fn plural(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn batches(n: u64) -> String {
    if n == 1 { "1 batch".to_owned() } else { format!("{n} batches") }
}

fn find_entry(ledger: &Ledger, id: Option<u64>) -> Option<&LedgerEntry> {
    match id {
        Some(id) => ledger.entries().get(&id),
        None => Some(ledger.unattributed()),
    }
}

fn ledger_counts(ledger: &Ledger, id: Option<u64>) -> ProducerCounts {
    find_entry(ledger, id).map(|entry| entry.counts).unwrap_or_default()
}

impl AuditInputs {
    pub(crate) fn reconcile(self) -> Audit {
        let mut ids: Vec<Option<u64>> = self.ledger.entries().keys().copied().map(Some).collect();
        let unlisted = self.sources.keys().filter(|id| !self.ledger.entries().contains_key(id));
        ids.extend(unlisted.copied().map(Some));
        ids.push(None);
        let mut producers: Vec<ProducerAudit> =
            ids.into_iter().map(|id| self.producer_audit(id)).collect();
        producers.retain(|producer| producer.id.is_some() || producer.has_data());
        model::sort::by(&mut producers, |a, b| {
            (a.id.is_none(), &a.name, a.id).cmp(&(b.id.is_none(), &b.name, b.id))
        });
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
        let mut stages = vec![self.journal_stage(id, &entry)];
        let store = self.store.as_ref();
        stages.extend(store.map(|progress| self.store_stage(id, &entry, progress)));
        let remotes = self.stages.iter();
        stages.extend(remotes.map(|(name, ledger)| self.remote_stage(id, &entry, name, ledger)));
        ProducerAudit { id, name, source, losses: entry.losses, stages }
    }

    fn journal_stage(&self, id: Option<u64>, entry: &LedgerEntry) -> StageAudit {
        let mut received = ledger_counts(&self.previous, id);
        let accepted = self.accepted.get(&id).copied().unwrap_or_default();
        received.add(&accepted);
        let stored = entry.counts;
        let missing = i128::from(received.records()) - i128::from(stored.records());
        let behind = self.end.saturating_sub(self.ledger.position());
        let (is_reconciled, reason) = match u64::try_from(missing) {
            Ok(0) => (true, "all accepted batches are in the journal".to_owned()),
            Ok(n) if n <= behind => (true, format!("{} wait for the disk", batches(n))),
            Ok(n) => {
                (false, format!("{} accepted, but not in the journal: bug in topdeck", batches(n)))
            }
            Err(_) => {
                let n = u64::try_from(-missing).unwrap_or(u64::MAX);
                let reason = "in flight, or appended by another process";
                (true, format!("{} more than accepted here: {reason}", batches(n)))
            }
        };
        let difference = i128::from(received.values) - i128::from(stored.values);
        let stage = "journal".to_owned();
        StageAudit {
            stage,
            received,
            acknowledged: stored,
            stored,
            losses: Vec::new(),
            discrepancy: difference,
            unknown_batches: 0,
            is_reconciled,
            reason,
        }
    }

    /// Gaps of the store that concern a producer and are in the ledger, with the counts in them.
    fn lost_batches(&self, id: Option<u64>, progress: &IngestProgress) -> Vec<(Gap, BatchSums)> {
        let is_listed = |producer: &u64| self.ledger.entries().contains_key(producer);
        let is_own = |producer: &u64| match is_listed(producer) {
            true => id == Some(*producer),
            false => id.is_none(),
        };
        let of_gap = |(gap, sums): (&Gap, &Option<BTreeMap<u64, BatchSums>>)| {
            let mut lost_sums = BatchSums::default();
            let sums = sums.iter().flatten().filter(|(producer, _)| is_own(producer));
            sums.for_each(|(_, sum)| lost_sums.add(sum));
            (lost_sums.batches > 0).then(|| (gap.clone(), lost_sums))
        };
        progress.missing.iter().zip(&self.lost).filter_map(of_gap).collect()
    }

    fn store_stage(
        &self,
        id: Option<u64>,
        entry: &LedgerEntry,
        progress: &IngestProgress,
    ) -> StageAudit {
        let (received, lost) = (entry.counts, self.store_losses(id, entry, progress));
        let behind = self.ledger.position().saturating_sub(progress.position);
        let (is_reconciled, reason) = match behind {
            0 => (true, lost.reason(id)),
            n => (false, format!("{} of the journal not yet in the store", plural(n, "record"))),
        };
        let StoreLosses { losses, stored, .. } = lost;
        StageAudit {
            stage: "store".to_owned(),
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
        progress: &IngestProgress,
    ) -> StoreLosses {
        let is_own = |gap: &&Gap| match gap.producer {
            Some(producer) if self.ledger.entries().contains_key(&producer) => id == Some(producer),
            _ => id.is_none(),
        };
        let mut losses = Vec::new();
        let mut rejected = 0;
        // Each rejected record's reason contains its position; records are grouped by the text
        // after it.
        for gap in progress.rejected.iter().filter(is_own) {
            rejected += 1;
            let reason =
                gap.reason.split_once(": ").map_or(gap.reason.as_str(), |(_, cause)| cause);
            add_loss(&mut losses, &Gap { reason: reason.to_owned(), ..gap.clone() });
        }
        let samples = losses.iter().fold(0u64, |sum, loss| sum.saturating_add(loss.samples_lost));
        // Records that the journal had when its ledger counted them and had lost when the store
        // read them.
        let of_known = self.lost_batches(id, progress);
        let mut known = BatchSums::default();
        of_known.iter().for_each(|(_, sums)| known.add(sums));
        let of_unknown = progress.missing.iter().zip(&self.lost);
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
            let (_, cause) = gap.reason.split_once(": ").unwrap_or(("", &gap.reason));
            let (cause, _) = cause.split_once(", from position").unwrap_or((cause, ""));
            let reason = format!("missing in the journal: {cause}");
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

    fn remote_stage(
        &self,
        id: Option<u64>,
        entry: &LedgerEntry,
        stage: &str,
        ledger: &Ledger,
    ) -> StageAudit {
        let remote = find_entry(ledger, id).cloned().unwrap_or_default();
        let stored = remote.counts;
        // Whether the remote has counted from the same position on as the journal.
        let is_whole = ledger.first() == self.ledger.first();
        let received = if is_whole { entry.counts } else { stored };
        let missing = i128::from(received.records()) - i128::from(stored.records());
        let behind = self.ledger.position().saturating_sub(ledger.position());
        let newly_missing = stored.missing.saturating_sub(received.missing);
        let others = |ledger: &Ledger| i128::from(ledger.unattributed().counts.missing);
        let unattributed = others(ledger) - others(&self.ledger);
        let (is_reconciled, reason) = match missing {
            _ if !is_whole => (
                true,
                format!(
                    "counted from position {}, where the remote was added; {} pending",
                    ledger.first(),
                    plural(behind, "record"),
                ),
            ),
            0 => match newly_missing {
                0 => (true, "the remote has all records of the journal".to_owned()),
                n => (true, format!("{} missing at the remote; see the losses", batches(n))),
            },
            n if n > 0 && n <= i128::from(behind) => {
                (true, format!("{n} of {} pending for the remote", batches(behind)))
            }
            // The remote is ahead: its ledger counted the records first.
            n if n < 0 && ledger.position() > self.ledger.position() => {
                (true, "the remote is ahead of the journal's ledger".to_owned())
            }
            // Lost before the remote received them, and only their number is known: they are in the
            // entry of unlisted producers.
            n if n > 0 && n <= unattributed + i128::from(behind) => (
                true,
                format!(
                    "{n} batches missing at the remote: {unattributed} of unknown producers, see \
                     others"
                ),
            ),
            n if n < 0 && id.is_none() && -n <= unattributed => {
                (true, format!("{} missing at the remote, of unknown producers", -n))
            }
            n => (false, format!("{n} batches missing at the remote: bug in topdeck")),
        };
        let difference = i128::from(received.values) - i128::from(stored.values);
        let (stage, lost) = (stage.to_owned(), remote.losses);
        // The remote's own ledger has the values: the discrepancy is known independently of losses.
        let (acknowledged, unknown_batches) = (stored, 0);
        StageAudit {
            stage,
            received,
            acknowledged,
            stored,
            losses: lost,
            discrepancy: difference,
            unknown_batches,
            is_reconciled,
            reason,
        }
    }
}

/// Losses between journal and store, of one producer.
struct StoreLosses {
    losses: Vec<Loss>,
    /// Counts stored apart from the losses.
    stored: ProducerCounts,
    /// Batches that the store rejected in part or whole.
    rejected: u64,
    /// Batches lost in the journal before the store read them, with known counts.
    known: BatchSums,
    /// Batches lost the same way, with unknown counts.
    unknown: u64,
    /// Batches lost the same way, of unknown producers.
    unattributed: u64,
}

impl StoreLosses {
    /// Reason why a store that has read the whole journal has less than the journal.
    fn reason(&self, id: Option<u64>) -> String {
        if self.unknown > 0 || self.known.batches > 0 {
            return self.journal_reason(id);
        }
        match (self.rejected, self.unattributed) {
            (0, 0) => "the store has all records of the journal".to_owned(),
            (0, n) => format!(
                "the store has all records but those of {} lost in the journal, of unknown \
                 producers: see others",
                batches(n)
            ),
            (n, _) => {
                format!("{} rejected in part or whole; see the losses", batches(n))
            }
        }
    }

    fn journal_reason(&self, id: Option<u64>) -> String {
        let whose = match (self.unknown, id) {
            (0, _) => String::new(),
            (n, Some(_)) => format!("; number of values of {} unknown", batches(n)),
            (n, None) => format!("; producers and number of values of {} unknown", batches(n)),
        };
        format!(
            "{} with {} damaged or dropped in the journal after they were counted and before the \
             store read them: their values are not in the store{whose}",
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
            || self.stages.iter().any(|stage| {
                let counts = [stage.received, stage.stored];
                counts.iter().any(|of| of.records() > 0) || !stage.losses.is_empty()
            })
    }

    /// Whether every discrepancy is zero or has a known reason.
    pub fn is_reconciled(&self) -> bool {
        self.stages.iter().all(|stage| stage.is_reconciled)
    }
}
