//! Monotonic counts of a producer.

use model::{BatchReader, Gap};

/// Reasons of losses that are told apart for a producer; the others are added up as one.
pub(crate) const REASONS_MAX: usize = 16;
/// Bytes of a reason that are kept.
const REASON_BYTES_MAX: usize = 256;
/// Stands for all reasons beyond [`REASONS_MAX`].
const OTHER_REASONS: &str = "other reasons";

/// Counts of a producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerCounts {
    /// Batches, each once.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
    /// Single measurements in the samples: what a histogram has counted, 1 for a number or a text.
    pub values: u64,
    /// Batches that had come before.
    pub duplicates: u64,
    /// Batches that cannot be read.
    pub undecodable: u64,
    /// Records of the journal that were lost before they were counted.
    pub missing: u64,
}

impl ProducerCounts {
    /// Records of the journal that these are.
    pub fn records(&self) -> u64 {
        let others = [self.duplicates, self.undecodable, self.missing];
        others.into_iter().fold(self.batches, u64::saturating_add)
    }

    /// Adds up; at the end of 64 bits they stay there.
    pub fn add(&mut self, other: &ProducerCounts) {
        for (sum, n) in [
            (&mut self.batches, other.batches),
            (&mut self.samples, other.samples),
            (&mut self.values, other.values),
            (&mut self.duplicates, other.duplicates),
            (&mut self.undecodable, other.undecodable),
            (&mut self.missing, other.missing),
        ] {
            *sum = sum.saturating_add(n);
        }
    }
}

/// Losses of a producer for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub reason: String,
    /// Gaps that were told of.
    pub gaps: u64,
    /// Samples or records, of those gaps of which it is known.
    pub samples_lost: u64,
    /// Gaps of which it is not known how much they are.
    pub gaps_of_unknown_size: u64,
    /// When the earliest began, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// When the latest ended.
    pub end: i64,
}

/// Adds a gap to the losses of its reason.
pub(crate) fn add_loss(losses: &mut Vec<Loss>, gap: &Gap) {
    let mut reason = gap.reason.as_str();
    if reason.len() > REASON_BYTES_MAX {
        reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
    }
    let is_new = !losses.iter().any(|loss| loss.reason == reason);
    if is_new && losses.len() >= REASONS_MAX - 1 {
        reason = OTHER_REASONS;
    }
    let at = losses.iter().position(|loss| loss.reason == reason).unwrap_or_else(|| {
        let (start, end) = (gap.start, gap.end);
        losses.push(Loss {
            reason: reason.to_owned(),
            gaps: 0,
            samples_lost: 0,
            gaps_of_unknown_size: 0,
            start,
            end,
        });
        losses.len() - 1
    });
    let loss = &mut losses[at];
    loss.gaps = loss.gaps.saturating_add(1);
    loss.samples_lost = loss.samples_lost.saturating_add(gap.lost.unwrap_or(0));
    loss.gaps_of_unknown_size =
        loss.gaps_of_unknown_size.saturating_add(u64::from(gap.lost.is_none()));
    loss.start = loss.start.min(gap.start);
    loss.end = loss.end.max(gap.end);
}

/// Counts a batch that is counted for the first time, and gives the gaps in it.
pub(crate) fn count_batch(bytes: &[u8]) -> model::Result<(ProducerCounts, Vec<Gap>)> {
    let mut counts = ProducerCounts { batches: 1, ..ProducerCounts::default() };
    let mut reader = BatchReader::new(bytes)?;
    for entry in reader.by_ref() {
        counts.samples += 1;
        counts.values = counts.values.saturating_add(entry?.values()?);
    }
    Ok((counts, reader.gaps().to_vec()))
}
