//! `--heatmap`: histograms of a group as time columns.
//!
//! A column is a multiple of the input's own interval and columns start with the first interval, so
//! no interval is split. A histogram is counted as a whole in the column of its midpoint.

use crate::error::{Result, bail};

use crate::distribution::DistributionOptions;
use crate::distribution::collected_input::CollectedInput;
use crate::distribution::group::{DistributionGroup, GroupRow};
use crate::distribution::{text, threshold_count};
use render::chart::heatmap::{Heatmap, HeatmapColumn};
use render::merged_distribution::MergedDistribution;
use render::svg::heatmap as svg_heatmap;
use render::terminal::Terminal;
use render::terminal::heatmap as terminal_heatmap;
use render::time::NS_PER_S;
use render::value_formatter;

/// Default number of columns of a file: four pixels each.
const COLUMNS_SVG: usize = 212;

/// A heatmap per group.
pub fn heatmap_text(
    options: &DistributionOptions,
    collected: &CollectedInput,
    terminal: &Terminal,
) -> Result<String> {
    let mut texts = Vec::new();
    for map in maps(options, collected, terminal_heatmap::column_capacity(terminal))? {
        texts.push(terminal_heatmap::heatmap_text(&map, terminal)?);
    }
    let notes = text::report_notes(options, collected);
    if !notes.is_empty() {
        texts.push(notes.join("\n") + "\n");
    }
    Ok(texts.join("\n"))
}

/// The same as an SVG document.
pub fn heatmap_svg(options: &DistributionOptions, collected: &CollectedInput) -> Result<String> {
    Ok(svg_heatmap::document(&maps(options, collected, COLUMNS_SVG)?)?)
}

/// One heatmap per group, with the requested number of columns, by default `usual`.
fn maps(
    options: &DistributionOptions,
    collected: &CollectedInput,
    usual: usize,
) -> Result<Vec<Heatmap>> {
    let columns_max = options.columns.map_or(usual, usize::from);
    let groups = collected.groups.iter().filter(|group| !group.distribution.is_empty());
    groups.map(|group| map(options, group, columns_max)).collect()
}

fn map(
    options: &DistributionOptions,
    group: &DistributionGroup,
    columns_max: usize,
) -> Result<Heatmap> {
    if group.rows.is_empty() {
        bail!("--heatmap: the input has no timestamps");
    }
    let mut notes = Vec::new();
    if group.untimed > 0 {
        let n = value_formatter::count(group.untimed);
        notes.push(format!("{n} histograms without a timestamp skipped."));
    }
    Ok(Heatmap {
        title: text::title(options, group),
        unit: group.key.unit.clone(),
        columns: columns(group, columns_max)?,
        thresholds: threshold_count::count_all(options, group)?
            .iter()
            .map(|above| above.threshold)
            .collect(),
        warnings: notes,
    })
}

/// Time span in nanoseconds since 1970; 128 bits, so that differences cannot overflow.
type TimeSpan = (i128, i128);

/// Columns of equal width; the last ends with the input.
struct ColumnLayout {
    first: i128,
    last: i128,
    length: i128,
    columns: i128,
}

impl ColumnLayout {
    /// At most `columns_max` columns, each a multiple of the interval.
    fn covering(stretches: &[TimeSpan], interval: i128, columns_max: usize) -> ColumnLayout {
        let first = stretches[0].0;
        let last = stretches.iter().map(|stretch| stretch.1).max().unwrap_or(first);
        // Intervals rarely have exactly the same length.
        let intervals = ((last - first + interval / 2) / interval).max(1);
        let together = ceil(intervals, columns_max as i128);
        ColumnLayout {
            first,
            last,
            length: together * interval,
            columns: ceil(intervals, together),
        }
    }

    fn column_of(&self, time: i128) -> usize {
        ((time - self.first) / self.length).min(self.columns - 1) as usize
    }

    fn column(&self, at: usize) -> TimeSpan {
        let edge = |at: i128| match at == self.columns {
            true => self.last,
            false => self.first + at * self.length,
        };
        (edge(at as i128), edge(at as i128 + 1))
    }

    /// Columns that overlap a time span, with the length of the overlap and of the column.
    fn parts(&self, (from, to): TimeSpan) -> impl Iterator<Item = (usize, i128, i128)> + '_ {
        (self.column_of(from)..=self.column_of(to)).map(move |at| {
            let (start, end) = self.column(at);
            (at, to.min(end) - from.max(start), end - start)
        })
    }
}

fn columns(group: &DistributionGroup, columns_max: usize) -> Result<Vec<HeatmapColumn>> {
    let interval = interval(group);
    let stretch = |(&start, row): (&i64, &GroupRow)| -> TimeSpan {
        let start = i128::from(start);
        let end = row.end.map(i128::from).filter(|&end| end > start);
        (start, end.unwrap_or(start + interval))
    };
    let stretches: Vec<TimeSpan> = group.rows.iter().map(stretch).collect();
    let grid = ColumnLayout::covering(&stretches, interval, columns_max);
    let mut wholes = vec![MergedDistribution::default(); grid.columns as usize];
    let mut gaps: Vec<Vec<String>> = vec![Vec::new(); wholes.len()];
    for (&(start, end), row) in stretches.iter().zip(group.rows.values()) {
        let column = grid.column_of((start + end) / 2);
        wholes[column].merge(&row.distribution)?;
        for (at, part, length) in grid.parts((start, end)) {
            // A histogram that only crosses an edge is drawn in the column with most of it.
            if at != column && 4 * part > 3 * length && gaps[at].is_empty() {
                gaps[at].push(
                    "a histogram longer than a column is counted in another column".to_owned(),
                );
            }
        }
    }
    for (from, to) in uncovered(&stretches, interval / 2) {
        for (at, part, _) in grid.parts((from, to)) {
            if 2 * part >= interval {
                gaps[at].push(format!("no histograms for {}", duration_text(to - from)));
            }
        }
    }
    let time = |at: i128| i64::try_from(at).unwrap_or(if at > 0 { i64::MAX } else { i64::MIN });
    let columns = wholes.into_iter().zip(gaps).enumerate().map(|(at, (values, gaps))| {
        let (start, end) = grid.column(at);
        HeatmapColumn { start: time(start), end: time(end), values, gaps }
    });
    Ok(columns.collect())
}

/// Most common duration of the histograms, or otherwise their distance.
fn interval(group: &DistributionGroup) -> i128 {
    let median = |mut lengths: Vec<i128>| {
        lengths.retain(|&length| length > 0);
        model::sort::by(&mut lengths, Ord::cmp);
        lengths.get(lengths.len() / 2).copied()
    };
    let starts: Vec<i128> = group.rows.keys().copied().map(i128::from).collect();
    let lengths = group.rows.iter().filter_map(|(&start, row)| Some((start, row.end?)));
    median(lengths.map(|(start, end)| i128::from(end) - i128::from(start)).collect())
        .or_else(|| median(starts.windows(2).map(|pair| pair[1] - pair[0]).collect()))
        .unwrap_or(i128::from(NS_PER_S))
}

/// Spans longer than `least` that no given span (sorted) covers.
fn uncovered(stretches: &[TimeSpan], least: i128) -> Vec<TimeSpan> {
    let mut gaps = Vec::new();
    let mut covered = stretches[0].1;
    for &(start, end) in &stretches[1..] {
        if start - covered > least {
            gaps.push((covered, start));
        }
        covered = covered.max(end);
    }
    gaps
}

/// Division rounded up; both are above zero.
fn ceil(n: i128, by: i128) -> i128 {
    (n + by - 1) / by
}

fn duration_text(length: i128) -> String {
    render::time::duration_text(i64::try_from(length).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::group::{GroupKey, ROW_NS};
    use decode::{DecodedSample, DecodedValue, SampleTemporality};
    use hist::Histogram;

    /// Columns of histograms with these starts and ends in tenths of a second and one value each:
    /// counts, and `?` for a gap.
    #[track_caller]
    fn check(stretches: &[(i64, Option<i64>)], columns_max: usize, expected: &str) {
        let unit = None;
        let key = GroupKey { file: None, metric: String::new(), by: None, unit: unit.clone() };
        let mut group = DistributionGroup::new(key);
        for &(start, end) in stretches {
            let mut histogram = Histogram::default();
            histogram.record(1.0);
            let (start, end) = (Some(start * NS_PER_S / 10), end.map(|end| end * NS_PER_S / 10));
            let (metric, labels, value) =
                (String::new(), Vec::new(), DecodedValue::Text(String::new()));
            let (unit, over) = (unit.clone(), SampleTemporality::Delta);
            let reading =
                DecodedSample { metric, labels, unit, start, end, temporality: over, value };
            group.add(&reading, &histogram, Some(ROW_NS)).unwrap();
        }
        let columns = columns(&group, columns_max).unwrap();
        assert!(columns.windows(2).all(|pair| pair[0].end == pair[1].start));
        let shown: Vec<String> = columns
            .iter()
            .map(|column| {
                let missing = if column.gaps.is_empty() { "" } else { "?" };
                format!("{}{missing}", column.values.count())
            })
            .collect();
        assert_eq!(shown.join(" "), expected);
    }

    fn spans_from(starts: &[i64], length: i64) -> Vec<(i64, Option<i64>)> {
        starts.iter().map(|&start| (start, Some(start + length))).collect()
    }

    #[test]
    fn intervals_become_whole_columns() {
        check(&spans_from(&[0, 10, 20, 30], 10), 100, "1 1 1 1");
        check(&spans_from(&[0, 10, 20, 30, 40], 10), 2, "3 2");
        check(&spans_from(&[7], 10), 100, "1");
        // Clock jitter; two histograms may have the same start.
        let jittering =
            [(0, Some(10)), (10, Some(21)), (21, Some(30)), (30, Some(39)), (39, Some(50))];
        check(&jittering, 100, "1 1 1 1 1");
        check(&[(0, Some(10)), (0, Some(10)), (10, Some(20)), (10, Some(20))], 100, "2 2");
        // A scrape has a timestamp and no duration.
        check(&[(0, None), (10, None), (20, None)], 100, "1 1 1");
        check(&[(5, None)], 100, "1");
    }

    #[test]
    fn uncovered_time_is_missing_not_empty() {
        check(&spans_from(&[0, 10, 50, 60], 10), 100, "1 1 0? 0? 0? 1 1");
        check(&spans_from(&[0, 10, 30, 40], 10), 3, "2 1? 1");
        // A histogram that spans several columns is counted in one of them.
        check(&[(0, Some(10)), (10, Some(40)), (40, Some(50))], 100, "1 0? 1 0? 1");
    }
}
