//! Changes of a process per interval, as text.

use render::table::format_table;
use render::text::{escape_control, plural};
use render::time::format_ns;
use render::value_formatter::count;
use shm::snapshot::ProcessSeries;

use crate::metric_patterns::MetricPatterns;
use crate::{reference_time, report, value_change};

/// Counts for the summary line.
#[derive(Default)]
pub struct WatchSummary {
    /// Number of intervals.
    pub intervals: u64,
    /// Intervals without a change.
    pub unchanged: u64,
    /// Intervals merged with the next one.
    pub delayed: u64,
}

/// Changes of the selected metrics.
pub fn change_rows(
    before: &[ProcessSeries],
    now: &[ProcessSeries],
    patterns: &MetricPatterns,
    over_ns: u64,
) -> Vec<[String; 4]> {
    let mut rows = Vec::new();
    for (at, metric) in now.iter().enumerate().filter(|(_, metric)| patterns.matches(metric)) {
        // A series keeps its index as long as none before it disappears.
        let is_it = |it: &&ProcessSeries| it.name == metric.name && it.labels == metric.labels;
        let before = before.get(at).filter(is_it).or_else(|| before.iter().find(is_it));
        if let Some(change) =
            value_change::change_between(before.map(|it| &it.value), &metric.value)
        {
            rows.push(report::change_row(metric, &change, Some(over_ns)));
        }
    }
    rows.sort_unstable();
    rows
}

/// Line of the interval, which ends now, and its rows.
pub fn change_lines(rows: &[[String; 4]], over_ns: u64, late: u64) -> String {
    let at = reference_time::time_ms_text(clock::wall().unix_ns);
    let mut text = format!("{at}  {} long", format_ns(over_ns as f64));
    if late > 0 {
        text.push_str(&format!(", {} intervals late", count(late)));
    }
    if rows.is_empty() {
        return text + ", nothing changed\n";
    }
    text + "\n" + &format_table(rows, [false, true, true, false])
}

/// Summary line: why it ended, and the number of intervals.
pub fn summary_text(reason: &str, summary: &WatchSummary) -> String {
    let mut text = format!("{reason}: {}", plural(summary.intervals, "interval", "intervals"));
    if summary.unchanged > 0 {
        text.push_str(&format!(", nothing changed in {}", count(summary.unchanged)));
    }
    match summary.delayed {
        0 => text.push_str(", none late"),
        late => text.push_str(&format!(
            ", {} late and made one with the next: take longer ones, or fewer metrics",
            count(late)
        )),
    }
    escape_control(&text) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_interval_is_singular() {
        let seen = WatchSummary { intervals: 1, ..WatchSummary::default() };
        assert_eq!(summary_text("done", &seen), "done: 1 interval, none late\n");
    }
}
