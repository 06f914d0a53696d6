//! Heatmap: distribution over time, a column per time interval and a row per value range.
//!
//! Four outputs draw it: [`terminal::heatmap`](crate::terminal::heatmap),
//! [`svg::heatmap`](crate::svg::heatmap), [`raster::heatmap`](crate::raster::heatmap),
//! [`json::heatmap`](crate::json::heatmap). `heatmap_rows` distributes the counts of a column over
//! the rows without loss; `colour_scale` maps counts to colours,
//! [`time_axis`](crate::chart::time_axis) labels times. Empty and unknown differ: a complete column
//! without values stays blank, a column with a gap is hatched.
//!
//! Times are nanoseconds since 1970 in UTC, values are in [`Heatmap::unit`].

use decode::Unit;
use hist::{Bracket, MergeError};

use crate::merged_distribution::MergedDistribution;
use crate::threshold_count::ThresholdCount;
use crate::time;
use crate::time::duration_text;
use crate::value_formatter::{self, ValueFormatter};

/// Heatmap column.
#[derive(Clone, Debug)]
pub struct HeatmapColumn {
    /// Start, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// End, in nanoseconds since the Unix epoch.
    pub end: i64,
    /// Values of the interval; may be empty.
    pub values: MergedDistribution,
    /// Distinct reasons of gaps; empty if no gap is known.
    pub gaps: Vec<String>,
}

/// Heatmap data. Columns ascend, do not overlap, and should have equal width.
#[derive(Clone, Debug)]
pub struct Heatmap {
    /// Title above the heatmap.
    pub title: String,
    /// Unit of the values.
    pub unit: Option<Unit>,
    /// Columns in order of time.
    pub columns: Vec<HeatmapColumn>,
    /// Thresholds whose exceedances are counted, in the unit of the values.
    pub thresholds: Vec<f64>,
    /// Warnings shown below the heatmap.
    pub warnings: Vec<String>,
}

/// Maximum number of gap reasons that are listed.
const REASONS_SHOWN: usize = 3;

impl HeatmapColumn {
    pub(crate) fn is_unknown(&self) -> bool {
        self.values.count() == 0 && !self.gaps.is_empty()
    }
}

impl Heatmap {
    /// Merges neighbouring columns so that at most `most` are left. Only time resolution is lost.
    pub(crate) fn fit_columns(&self, most: usize) -> Result<FittedColumns, MergeError> {
        let merged = self.columns.len().div_ceil(most.max(1)).max(1);
        let mut columns = Vec::new();
        for neighbours in self.columns.chunks(merged) {
            let mut column = neighbours[0].clone();
            for next in &neighbours[1..] {
                column.end = next.end;
                column.values.merge(&next.values)?;
                for reason in &next.gaps {
                    if !column.gaps.contains(reason) {
                        column.gaps.push(reason.clone());
                    }
                }
            }
            columns.push(column);
        }
        Ok(FittedColumns { columns, merged })
    }

    pub(crate) fn formatter(&self) -> ValueFormatter {
        ValueFormatter::new(self.unit.as_ref())
    }

    pub(crate) fn count(&self) -> u64 {
        self.columns.iter().map(|column| column.values.count()).fold(0, u64::saturating_add)
    }

    /// Maximum value and its column; the first column if several have it.
    pub fn max(&self) -> Option<(Bracket, &HeatmapColumn)> {
        let maxima = self.columns.iter().filter_map(|c| c.values.max().map(|max| (max, c)));
        maxima.reduce(|a, b| if bracket_key(b.0) > bracket_key(a.0) { b } else { a })
    }

    /// The estimate is that of all values, as in other answers: the sum of the estimates of the
    /// columns has the rounding of each.
    pub(crate) fn count_above(&self, limit: f64) -> Bracket<u64> {
        let counts = self.columns.iter().map(|column| column.values.count_above(limit));
        let sum = counts.fold(Bracket::exact(0u64), |total, n| Bracket {
            lower: total.lower.saturating_add(n.lower),
            estimate: total.estimate.saturating_add(n.estimate),
            upper: total.upper.saturating_add(n.upper),
        });
        let mut all = MergedDistribution::default();
        let is_merged = self.columns.iter().all(|column| all.merge(&column.values).is_ok());
        if !is_merged {
            return sum;
        }
        let whole = all.count_above(limit);
        let (lower, upper) = (sum.lower.max(whole.lower), sum.upper.min(whole.upper));
        Bracket { lower, estimate: whole.estimate.clamp(lower, upper.max(lower)), upper }
    }

    /// From the start of the first column to the end of the last.
    pub fn time_range(&self) -> Option<(i64, i64)> {
        Some((self.columns.first()?.start, self.columns.last()?.end))
    }

    /// Number of values and the maximum, as text.
    pub(crate) fn totals_text(&self) -> String {
        let values = if self.count() == 1 { "value" } else { "values" };
        let mut text = format!("{} {values}", value_formatter::count(self.count()));
        if let Some((max, column)) = self.max() {
            let (value, bounds) = (self.formatter().value(max), self.formatter().bounds(max));
            text.push_str(&format!(", max {value}"));
            if !bounds.is_empty() {
                text.push_str(&format!(" ({bounds})"));
            }
            text.push_str(&format!(" in the column from {}", column.start_text()));
        }
        text
    }

    /// One sentence per threshold; none if there are no values.
    pub(crate) fn exceedances(&self) -> Vec<String> {
        let (formatter, n) = (self.formatter(), self.count());
        let of = |&limit: &f64| {
            ThresholdCount { threshold: limit, count: self.count_above(limit) }
                .sentence(n, &formatter)
        };
        self.thresholds.iter().filter(|_| n > 0).map(of).collect()
    }

    /// Number of columns with gaps, and the reasons. Empty if no gap is known.
    pub(crate) fn gap_summary(&self) -> Vec<String> {
        let incomplete: Vec<&HeatmapColumn> =
            self.columns.iter().filter(|c| !c.gaps.is_empty()).collect();
        let Some(first) = incomplete.first() else { return Vec::new() };
        let (n, of) = (incomplete.len(), self.columns.len());
        let unknown = incomplete.iter().filter(|column| column.is_unknown()).count();
        let mut lines = vec![match (of, unknown) {
            (1, 0) => "the column has gaps".to_owned(),
            (1, _) => "no data for the column".to_owned(),
            (_, 0) => format!("{n} of {of} columns have gaps"),
            _ if unknown == n => format!("no data for {n} of {of} columns"),
            _ => format!("{n} of {of} columns have gaps, {unknown} have no data"),
        }];
        if of > 1 {
            lines[0].push_str(&format!("; first {}", first.start_text()));
        }
        let mut reasons: Vec<(&str, usize)> = Vec::new();
        for reason in incomplete.iter().flat_map(|column| &column.gaps) {
            match reasons.iter_mut().find(|known| known.0 == reason) {
                Some(known) => known.1 += 1,
                None => reasons.push((reason, 1)),
            }
        }
        let more = reasons.len().saturating_sub(REASONS_SHOWN);
        lines.extend(reasons.iter().take(REASONS_SHOWN).map(|(reason, times)| match times {
            1 => (*reason).to_owned(),
            times => format!("{reason} ({} columns)", value_formatter::count(*times as u64)),
        }));
        if more > 0 {
            lines.push(format!("{more} more reasons"));
        }
        lines
    }
}

impl HeatmapColumn {
    /// Start time, with as many decimals as the column width needs.
    pub fn start_text(&self) -> String {
        time::time_text(self.start, self.end.saturating_sub(self.start))
    }
}

/// Sort key of a maximum: estimate first, then upper bound.
fn bracket_key(max: Bracket) -> (f64, f64) {
    (max.estimate, max.upper)
}

/// Columns merged to fit the width.
pub(crate) struct FittedColumns {
    pub(crate) columns: Vec<HeatmapColumn>,
    /// Number of original columns per merged column.
    merged: usize,
}

impl FittedColumns {
    /// Column width as text.
    pub(crate) fn description(&self) -> Option<String> {
        let first = self.columns.first()?;
        let length_ns = first.end.saturating_sub(first.start);
        let length = duration_text(length_ns);
        Some(match self.merged {
            1 => format!("column width {length}"),
            merged => format!("column width {length}, {merged} columns merged into one"),
        })
    }

    /// Position of a time, in columns from the left. A time between two columns maps to their edge.
    pub(crate) fn position(&self, time: i64) -> Option<f64> {
        let at = self.columns.partition_point(|column| column.end <= time);
        let Some(column) = self.columns.get(at) else {
            return (self.columns.last()?.end == time).then_some(at as f64);
        };
        let length = (i128::from(column.end) - i128::from(column.start)).max(1);
        let inside = i128::from(time) - i128::from(column.start);
        (inside >= 0 || at > 0).then(|| at as f64 + inside.max(0) as f64 / length as f64)
    }
}

#[cfg(test)]
mod tests;
