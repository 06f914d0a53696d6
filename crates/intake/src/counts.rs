//! Monotonic counts of a producer.

use model::{Batch, BatchReader, BatchSeries, Gap, SeriesId};

/// Maximum number of distinct loss reasons per producer; further reasons are added up as one.
pub(crate) const REASONS_MAX: usize = 16;
/// Maximum stored length of a reason, in bytes.
const REASON_BYTES_MAX: usize = 256;
/// Replaces all reasons beyond [`REASONS_MAX`].
const OTHER_REASONS: &str = "other reasons";

/// Counts of a producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerCounts {
    /// Batches, each counted once.
    pub batches: u64,
    /// Samples in the batches.
    pub samples: u64,
    /// Measurements in the samples: the count of a histogram, 1 for a number or text.
    pub values: u64,
    /// Duplicate batches.
    pub duplicates: u64,
    /// Undecodable batches.
    pub undecodable: u64,
    /// Journal records lost before they were counted.
    pub missing: u64,
}

impl ProducerCounts {
    /// Number of journal records.
    pub fn records(&self) -> u64 {
        let others = [self.duplicates, self.undecodable, self.missing];
        others.into_iter().fold(self.batches, u64::saturating_add)
    }

    /// Adds with saturation at 64 bits.
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
    /// The reason.
    pub reason: String,
    /// Number of gaps.
    pub gaps: u64,
    /// Samples or records lost in gaps of known size.
    pub samples_lost: u64,
    /// Number of gaps of unknown size.
    pub gaps_of_unknown_size: u64,
    /// Start of the earliest gap, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// End of the latest gap.
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

/// Counts a batch, and returns the gaps in it.
pub(crate) fn count_batch(bytes: &[u8]) -> model::Result<(ProducerCounts, Vec<Gap>)> {
    let mut counts = ProducerCounts { batches: 1, ..ProducerCounts::default() };
    let mut reader = BatchReader::new(bytes)?;
    for entry in reader.by_ref() {
        counts.samples += 1;
        counts.values = counts.values.saturating_add(entry?.values()?);
    }
    Ok((counts, reader.gaps().to_vec()))
}

/// The first series that a batch references by id only.
pub(crate) fn first_by_id(batch: &Batch) -> Option<SeriesId> {
    let mut entries = batch.read().map(|entry| entry.expect("BUG: the batch was checked"));
    entries.find_map(|entry| match entry.series {
        BatchSeries::Id(id) => Some(id),
        BatchSeries::Key(_) => None,
    })
}
