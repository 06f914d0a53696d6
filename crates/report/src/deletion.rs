//! A deletion of samples as text.

use std::ops::Range;

use render::text::plural;
use render::time::precise_time_text;
use store::{DeletionResult, RowCount};

/// Samples that were deleted, or would be.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// Number of matching series.
    pub series: u64,
    /// One of them; only for a dry run.
    pub example: String,
    /// Range of the ends of the samples, in nanoseconds since the Unix epoch.
    pub range: Range<i64>,
    /// What was deleted, or would be.
    pub outcome: DeletionOutcome,
}

/// What was deleted, or what a dry run counted.
#[derive(Clone, Copy, Debug)]
pub enum DeletionOutcome {
    /// Base samples that `--yes` deletes.
    DryRun(RowCount),
    /// Deleted samples.
    Deleted(DeletionResult),
}

impl Deletion {
    /// `2 series between … and …`.
    fn subject(&self) -> String {
        format!(
            "{} between {} and {}",
            plural(self.series, "series", "series"),
            precise_time_text(self.range.start),
            precise_time_text(self.range.end)
        )
    }
}

/// What was deleted, one line per kind of samples; for a dry run, what `--yes` would delete.
pub fn deletion_text(deletion: &Deletion) -> String {
    let (about, samples) = (deletion.subject(), |n| plural(n, "sample", "samples"));
    let deleted = match &deletion.outcome {
        DeletionOutcome::Deleted(deleted) => deleted,
        DeletionOutcome::DryRun(count) => {
            let mark = if deletion.series > 1 { ", such as" } else { ":" };
            let (count, example) = (sample_count_text(*count), &deletion.example);
            return format!("would delete {count} of {about}{mark} {example}; --yes deletes\n");
        }
    };
    let mut text = format!("deleted {} of {about}\n", samples(deleted.rows));
    if deleted.rollup_rows > 0 {
        text.push_str(&format!(
            "deleted {} of rollups whose base samples had expired\n",
            samples(deleted.rollup_rows)
        ));
    }
    if deleted.retained_rows > 0 {
        text.push_str(&format!(
            "{} of rollups kept: they extend beyond the range, and their base samples have \
             expired\n",
            samples(deleted.retained_rows)
        ));
    }
    text
}

/// `1 sample`, `at least 1,000,000 samples`.
pub fn sample_count_text(count: RowCount) -> String {
    let samples = plural(count.rows, "sample", "samples");
    if count.is_lower_bound { format!("at least {samples}") } else { samples }
}
