//! Table over time: one row per interval.

use crate::error::{Result, bail};
use decode::Quantity;
use render::time::{duration_text, time_text};

use crate::distribution::group::DistributionGroup;
use crate::distribution::threshold_count;
use crate::distribution::{DistributionOptions, interval_ns};
use render::terminal::{Terminal, TextStyle};
use render::value_formatter::{self, ValueFormatter};

pub(crate) fn lines(
    options: &DistributionOptions,
    group: &DistributionGroup,
    formatter: &ValueFormatter,
    terminal: &Terminal,
) -> Result<Vec<String>> {
    let written = options.interval.as_ref().expect("BUG: called for --interval only");
    let row_ns = interval_ns(written)?;
    check_times(written, group)?;
    let limits = threshold_count::count_all(options, group)?;
    let mut table: Vec<Vec<String>> = Vec::new();
    let mut heading =
        vec!["from".to_owned(), "count".into(), "p50".into(), "p99".into(), "max".into()];
    heading.extend(limits.iter().map(|above| format!("> {}", formatter.exact(above.threshold))));
    table.push(heading);
    let mut expected: Option<i64> = None;
    for (&start, row) in &group.rows {
        if let Some(missing) =
            expected.map(|expected| start.saturating_sub(expected)).filter(|&ns| ns > 0)
        {
            table.push(vec!["(no data".to_owned(), format!("for {})", duration_text(missing))]);
        }
        expected = Some(start.saturating_add(row_ns));
        let value =
            |value: Option<hist::Bracket>| value.map_or("-".to_owned(), |v| formatter.value(v));
        let mut cells = vec![
            time_text(start, row_ns),
            value_formatter::count(row.distribution.count()),
            value(row.distribution.quantile(0.5)),
            value(row.distribution.quantile(0.99)),
            value(row.distribution.max()),
        ];
        cells.extend(limits.iter().map(|above| {
            value_formatter::count_estimate(row.distribution.count_above(above.threshold))
        }));
        table.push(cells);
    }
    let columns = table[0].len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = table.iter().filter(|row| row.len() == columns);
            cells.map(|row| row[column].chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut lines = Vec::new();
    for (at, row) in table.iter().enumerate() {
        if row.len() < columns {
            lines.push(terminal.paint(TextStyle::Faint, &format!("  {}", row.join(" "))));
            continue;
        }
        let mut line = format!("  {:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        lines.push(if at == 0 { terminal.paint(TextStyle::Faint, &line) } else { line });
    }
    let total: u64 = group.rows.values().map(|row| row.histograms).sum();
    let past: u64 = group.rows.values().map(|row| row.reach_past).sum();
    if past > 0 {
        let (past, total) = (value_formatter::count(past), value_formatter::count(total));
        lines.push(format!(
            "  {past} of {total} histograms end after the row they start in; they are counted \
             there as a whole."
        ));
    }
    if group.untimed > 0 {
        let n = value_formatter::count(group.untimed);
        lines.push(format!("  {n} histograms without a timestamp skipped."));
    }
    Ok(lines)
}

/// Rejects a table over time if the input has no timestamps.
pub(crate) fn check_times(quantity: &Quantity, group: &DistributionGroup) -> Result<()> {
    if group.rows.is_empty() {
        bail!("--interval {quantity}: the input has no timestamps");
    }
    Ok(())
}
