//! Groups: one distribution per metric, unit and `--by` value.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Result, bail};
use decode::{DecodedSample, Unit};
use hist::Histogram;

use render::merged_distribution::MergedDistribution;

/// Histograms are grouped by exact start time until the column width is known.
pub(crate) const ROW_NS: i64 = 1;
/// A day of one-second intervals, and a reserve. All are kept until the end of the input.
pub(crate) const ROWS_MAX: usize = 100_000;
/// Maximum number of tags listed in a note.
const TAGS_MAX: usize = 20;

/// Grouping key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    /// Index of the file, if files are kept apart.
    pub(crate) file: Option<usize>,
    pub(crate) metric: String,
    /// Value of the `--by` key.
    pub(crate) by: Option<String>,
    pub(crate) unit: Option<Unit>,
}

/// Distribution, in total and over time.
#[derive(Debug)]
pub struct DistributionGroup {
    pub(crate) key: GroupKey,
    /// All values.
    pub distribution: MergedDistribution,
    /// Rows by start time.
    pub(crate) rows: BTreeMap<i64, GroupRow>,
    /// Number of histograms without a timestamp.
    pub(crate) untimed: u64,
    /// Tags that were merged.
    pub(crate) tags: BTreeSet<Option<String>>,
}

/// Histograms that start in one interval.
#[derive(Debug, Default)]
pub(crate) struct GroupRow {
    pub(crate) distribution: MergedDistribution,
    /// Number of histograms that end after the row.
    pub(crate) reach_past: u64,
    pub(crate) histograms: u64,
    /// End of the last histogram, if known.
    pub(crate) end: Option<i64>,
}

impl DistributionGroup {
    pub(crate) fn new(key: GroupKey) -> DistributionGroup {
        DistributionGroup {
            key,
            distribution: MergedDistribution::default(),
            rows: BTreeMap::new(),
            untimed: 0,
            tags: BTreeSet::new(),
        }
    }

    /// Adds a histogram; `row_ns` is the row length.
    pub(crate) fn add(
        &mut self,
        sample: &DecodedSample,
        histogram: &Histogram,
        row_ns: Option<i64>,
    ) -> Result<()> {
        self.distribution.add(histogram)?;
        if self.tags.len() < TAGS_MAX {
            self.tags.insert(sample.label("tag").map(str::to_owned));
        }
        let Some(row_ns) = row_ns else { return Ok(()) };
        let Some(start) = sample.start.or(sample.end) else {
            self.untimed += 1;
            return Ok(());
        };
        if row_ns == ROW_NS && self.rows.len() == ROWS_MAX {
            bail!("--heatmap: more than {} histograms over time; shorten the input", ROWS_MAX);
        }
        let row_start = start.div_euclid(row_ns).saturating_mul(row_ns);
        let row = self.rows.entry(row_start).or_default();
        row.histograms += 1;
        row.end = row.end.max(sample.end);
        let reaches = |end: i64| end.saturating_sub(row_start) > row_ns;
        row.reach_past += u64::from(sample.end.is_some_and(reaches));
        Ok(row.distribution.add(histogram)?)
    }
}
