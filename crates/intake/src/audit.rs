//! The audit: for each producer, what every hop on its way has of what the hop before it had, and why not the rest.
//!
//! The journal is held to what this process has taken since it began, the store and the sites are held to the
//! journal. A difference is zero or has a reason; one without a reason is a fault of topdeck.

use std::collections::BTreeMap;
use std::fmt::Debug;

use model::Gap;
use store::Fed;

use crate::book::{Book, Entry};
use crate::counts::{Counts, Loss, lose};
use crate::recent_batches::BatchSums;

/// Something behind the journal that keeps a book of what it has.
pub trait Hop: Send + Sync + Debug {
    /// What it has for sure: what it has acknowledged, durably counted.
    fn book(&self) -> Book;
}

/// What was counted everywhere, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Since when the journal's book counts, in nanoseconds since the Unix epoch.
    pub since: i64,
    /// When this process began.
    pub booted: i64,
    /// Records of the journal up to this position are counted.
    pub position: u64,
    /// Producers by name; those that have no line of their own last.
    pub producers: Vec<Account>,
    /// What whoever reads this should know about the books.
    pub notes: Vec<String>,
}

/// One producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its number; none for all that have no line of their own.
    pub id: Option<u64>,
    /// Its name; empty if nobody told it.
    pub name: String,
    /// What it says itself, if it is a source of this process.
    pub source: Option<Source>,
    /// Losses that were told of on the way into the journal.
    pub losses: Vec<Loss>,
    /// A line for each hop, the journal first.
    pub lines: Vec<Line>,
}

/// What a source of this process counts, in values and since the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Came from outside.
    pub received: u64,
    /// Are in batches that were taken.
    pub taken: u64,
    /// Were dropped, and why.
    pub dropped: Vec<(String, u64)>,
}

impl Source {
    /// Values that came and are neither taken nor dropped: the source is putting them together.
    pub fn waiting(&self) -> u64 {
        let dropped = self.dropped.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
        self.received.saturating_sub(self.taken).saturating_sub(dropped)
    }
}

/// What a hop has of a producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// `journal`, `store`, or `site NAME`.
    pub hop: String,
    /// What the hop before had for it.
    pub received: Counts,
    /// What it has acknowledged.
    pub acknowledged: Counts,
    /// What is in it.
    pub stored: Counts,
    /// What is known to be lost at it.
    pub lost: Vec<Loss>,
    /// Values that were received and are not stored, as far as that is known.
    pub difference: i128,
    /// Batches that were received and lost, and whose values nobody knows.
    pub unknown_batches: u64,
    /// The difference is none, or it is known why.
    pub is_explained: bool,
    /// In a sentence, for people.
    pub why: String,
}

/// What the audit is made of.
pub(crate) struct Facts {
    pub(crate) book: Book,
    /// The book as this process found it.
    pub(crate) before: Book,
    /// What this process has taken, by producer.
    pub(crate) taken: BTreeMap<Option<u64>, Counts>,
    /// The journal's end.
    pub(crate) end: u64,
    pub(crate) sources: BTreeMap<u64, (String, Source)>,
    pub(crate) store: Option<Fed>,
    /// Of each gap that the store misses, what the batches in it had, by producer; `None` if that
    /// is not known.
    pub(crate) lost: Vec<Option<BTreeMap<u64, BatchSums>>>,
    pub(crate) hops: Vec<(String, Book)>,
    pub(crate) booted: i64,
    pub(crate) notes: Vec<String>,
}

fn plural(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn batches(n: u64) -> String {
    if n == 1 { "1 batch".to_owned() } else { format!("{n} batches") }
}

fn entry_of(book: &Book, id: Option<u64>) -> Option<&Entry> {
    match id {
        Some(id) => book.entries().get(&id),
        None => Some(book.others()),
    }
}

fn counts_of(book: &Book, id: Option<u64>) -> Counts {
    entry_of(book, id).map(|entry| entry.counts).unwrap_or_default()
}

impl Facts {
    pub(crate) fn audit(self) -> Audit {
        let mut ids: Vec<Option<u64>> = self.book.entries().keys().copied().map(Some).collect();
        let strangers = self.sources.keys().filter(|id| !self.book.entries().contains_key(id));
        ids.extend(strangers.copied().map(Some));
        ids.push(None);
        let mut producers: Vec<Account> = ids.into_iter().map(|id| self.account(id)).collect();
        producers.retain(|account| account.id.is_some() || account.has_anything());
        producers
            .sort_by(|a, b| (a.id.is_none(), &a.name, a.id).cmp(&(b.id.is_none(), &b.name, b.id)));
        Audit {
            since: self.book.begun(),
            booted: self.booted,
            position: self.book.position(),
            producers,
            notes: self.notes,
        }
    }

    fn account(&self, id: Option<u64>) -> Account {
        let entry = entry_of(&self.book, id).cloned().unwrap_or_default();
        let (name, source) = match id.and_then(|id| self.sources.get(&id)) {
            Some((name, source)) => (name.clone(), Some(source.clone())),
            None => (entry.name.clone(), None),
        };
        let mut lines = vec![self.journal_line(id, &entry)];
        lines.extend(self.store.as_ref().map(|fed| self.store_line(id, &entry, fed)));
        lines.extend(self.hops.iter().map(|(hop, book)| self.site_line(id, &entry, hop, book)));
        Account { id, name, source, losses: entry.losses, lines }
    }

    fn journal_line(&self, id: Option<u64>, entry: &Entry) -> Line {
        let mut received = counts_of(&self.before, id);
        let taken = self.taken.get(&id).copied().unwrap_or_default();
        received.add(&taken);
        let stored = entry.counts;
        let missing = i128::from(received.records()) - i128::from(stored.records());
        let behind = self.end.saturating_sub(self.book.position());
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
        Line {
            hop,
            received,
            acknowledged: stored,
            stored,
            lost: Vec::new(),
            difference,
            unknown_batches: 0,
            is_explained,
            why,
        }
    }

    /// What the store misses of a producer where the books know it: the gap, and what was in it.
    fn lost_batches(&self, id: Option<u64>, fed: &Fed) -> Vec<(Gap, BatchSums)> {
        let is_listed = |producer: &u64| self.book.entries().contains_key(producer);
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

    fn store_line(&self, id: Option<u64>, entry: &Entry, fed: &Fed) -> Line {
        let is_own = |gap: &&Gap| match gap.producer {
            Some(producer) if self.book.entries().contains_key(&producer) => id == Some(producer),
            _ => id.is_none(),
        };
        let refused: Vec<&Gap> = fed.refused.iter().filter(is_own).collect();
        let mut lost = Vec::new();
        // Each record's reason has its position: told apart by what follows.
        for gap in &refused {
            let reason = gap.reason.split_once(": ").map_or(gap.reason.as_str(), |(_, why)| why);
            lose(&mut lost, &Gap { reason: reason.to_owned(), ..(*gap).clone() });
        }
        let received = entry.counts;
        let samples = lost.iter().fold(0u64, |sum, loss| sum.saturating_add(loss.lost));
        let mut stored = received;
        stored.samples = stored.samples.saturating_sub(samples);
        stored.values = stored.values.saturating_sub(samples);
        // Records that the journal had when its book was led, and had lost when the store read
        // them.
        let known = self.lost_batches(id, fed);
        let unknown: Vec<&Gap> = fed
            .missing
            .iter()
            .zip(&self.lost)
            .filter_map(|(gap, sums)| sums.is_none().then_some(gap))
            .collect();
        let mut in_known = BatchSums::default();
        known.iter().for_each(|(_, sums)| in_known.add(sums));
        let all = |counted: u64, of: &dyn Fn(&&Gap) -> bool| {
            let gaps = unknown.iter().copied().filter(|gap| of(gap));
            gaps.fold(0u64, |sum, gap| sum.saturating_add(gap.lost.unwrap_or(1)))
                .saturating_sub(counted)
        };
        let gone = all(received.missing, &is_own);
        let of_known =
            known.iter().map(|(gap, sums)| Gap { lost: Some(sums.batches), ..gap.clone() });
        let of_unknown = unknown.iter().copied().filter(is_own).filter(|_| gone > 0).cloned();
        for gap in of_known.chain(of_unknown) {
            let (_, why) = gap.reason.split_once(": ").unwrap_or(("", &gap.reason));
            let (why, _) = why.split_once(", from position").unwrap_or((why, ""));
            let reason = format!("missing in the journal: {why}");
            lose(&mut lost, &Gap { reason, ..gap });
        }
        stored.missing = stored.missing.saturating_add(gone).saturating_add(in_known.batches);
        stored.batches = stored.batches.saturating_sub(if id.is_some() { gone } else { 0 });
        stored.batches = stored.batches.saturating_sub(in_known.batches);
        stored.samples = stored.samples.saturating_sub(in_known.samples);
        stored.values = stored.values.saturating_sub(in_known.values);
        let nobodys = all(self.book.others().counts.missing, &|gap| gap.producer.is_none());
        let behind = self.book.position().saturating_sub(fed.position);
        let lost_in_journal = || {
            let whose = match (gone, id) {
                (0, _) => String::new(),
                (n, Some(_)) => format!("; how many values {} had is not known", batches(n)),
                (n, None) => {
                    format!("; whose {} were, and how many values, is not known", batches(n))
                }
            };
            format!(
                "{} with {} were damaged or dropped in the journal before the store had them, \
                 after they were counted: their values are not in the store{whose}",
                batches(in_known.batches.saturating_add(gone)),
                match (in_known.batches, gone) {
                    (0, _) => "an unknown number of values".to_owned(),
                    (_, 0) => plural(in_known.values, "value"),
                    _ => format!("at least {}", plural(in_known.values, "value")),
                }
            )
        };
        let (is_explained, why) = match (behind, refused.len() as u64) {
            (1.., _) => (
                false,
                format!("the store has not read {} of the journal", plural(behind, "record")),
            ),
            _ if gone > 0 || in_known.batches > 0 => (true, lost_in_journal()),
            (0, 0) if nobodys > 0 => (
                true,
                format!(
                    "all that is not among {} that were lost in the journal, whose is not known: \
                     see others",
                    batches(nobodys)
                ),
            ),
            (0, 0) => (true, "all of the journal is in the store".to_owned()),
            (0, n) => (
                true,
                format!("of {} some or all was refused; the reasons are beside it", batches(n)),
            ),
        };
        let difference = i128::from(received.values) - i128::from(stored.values);
        let (hop, unknown_batches) = ("store".to_owned(), gone);
        let acknowledged = stored;
        Line {
            hop,
            received,
            acknowledged,
            stored,
            lost,
            difference,
            unknown_batches,
            is_explained,
            why,
        }
    }

    fn site_line(&self, id: Option<u64>, entry: &Entry, hop: &str, book: &Book) -> Line {
        let theirs = entry_of(book, id).cloned().unwrap_or_default();
        let stored = theirs.counts;
        let is_whole = book.first() == self.book.first();
        let received = if is_whole { entry.counts } else { stored };
        let missing = i128::from(received.records()) - i128::from(stored.records());
        let behind = self.book.position().saturating_sub(book.position());
        let gone = stored.missing.saturating_sub(received.missing);
        let others = |book: &Book| i128::from(book.others().counts.missing);
        let nobodys = others(book) - others(&self.book);
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
            n if n < 0 && book.position() > self.book.position() => {
                (true, "the site is ahead of the journal's book".to_owned())
            }
            // Lost to the site before it had them, and only how many is known: they are in the line of all others.
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
        Line {
            hop,
            received,
            acknowledged,
            stored,
            lost,
            difference,
            unknown_batches,
            is_explained,
            why,
        }
    }
}

impl Account {
    fn has_anything(&self) -> bool {
        !self.losses.is_empty()
            || self.lines.iter().any(|line| {
                line.received.records() > 0 || line.stored.records() > 0 || !line.lost.is_empty()
            })
    }

    /// Whether every difference is none, or it is known why.
    pub fn is_explained(&self) -> bool {
        self.lines.iter().all(|line| line.is_explained)
    }
}
