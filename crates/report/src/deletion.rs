//! A deletion of rows as text.

use std::ops::Range;

use render::text::plural;
use render::time::precise_time_text;
use store::DeletionResult;

/// Rows that were deleted, or would be.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// Number of matching series.
    pub series: u64,
    /// One of them; only for a dry run.
    pub example: String,
    /// Range of the ends of the rows, in nanoseconds since the Unix epoch.
    pub range: Range<i64>,
    /// What was deleted; `None` for a dry run.
    pub result: Option<DeletionResult>,
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

/// What was deleted, one line per kind of rows; for a dry run, what `--yes` would delete.
pub fn deletion_text(deletion: &Deletion) -> String {
    let (about, rows) = (deletion.subject(), |n| plural(n, "row", "rows"));
    let Some(deleted) = &deletion.result else {
        let mark = if deletion.series > 1 { ", such as" } else { ":" };
        let example = &deletion.example;
        return format!("would delete the rows of {about}{mark} {example}; --yes deletes\n");
    };
    let mut text = format!("deleted {} of {about}\n", rows(deleted.rows));
    if deleted.rollup_rows > 0 {
        text.push_str(&format!(
            "deleted {} of rollups whose base rows had expired\n",
            rows(deleted.rollup_rows)
        ));
    }
    if deleted.retained_rows > 0 {
        text.push_str(&format!(
            "{} of rollups kept: they extend beyond the range, and their base rows have expired\n",
            rows(deleted.retained_rows)
        ));
    }
    text
}
