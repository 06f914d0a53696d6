//! Breakdown of a heatmap selection by label.
//!
//! The selection is a rectangle: a time range and a value range. For each label, the shares of its
//! values inside and outside the rectangle are compared; labels whose shares differ most come
//! first. The measure is the Jensen–Shannon divergence in bits (Lin, Divergence measures based on
//! the Shannon entropy, 1991): 0 if the shares are equal, 1 if the label determines whether a value
//! is inside.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hist::{Bracket, LimitInclusion, Mixture};
use model::{Gap, Selector};
use store::TimeGrid;

use crate::compare::{merge_error, select_histograms};
use crate::context::QueryContext;
use crate::error::{Error, Result, SourceSpan};
use crate::labels::NAME;
use crate::limits::{Limits, QueryBudget};
use crate::source::Source;
use crate::threshold_range::ThresholdRange;

/// Heatmap selection and its baseline.
#[derive(Clone, Debug)]
pub struct HeatmapSelection {
    /// Series to read; only histogram series count.
    pub selector: Selector,
    /// Time range of the heatmap, in nanoseconds since the Unix epoch.
    pub baseline: Range<i64>,
    /// Time range of the rectangle; within `baseline`.
    pub time: Range<i64>,
    /// Lower value bound, exclusive.
    pub above: f64,
    /// Upper value bound, inclusive.
    pub up_to: f64,
}

/// Breakdown of a selection by label.
#[derive(Clone, Debug)]
pub struct Breakdown {
    /// Number of values inside the rectangle.
    pub inside: Bracket<u64>,
    /// Number of values of the heatmap outside the rectangle.
    pub outside: Bracket<u64>,
    /// Least and greatest value of the heatmap, with the bounds of their buckets.
    pub values: Option<(f64, f64)>,
    /// Labels by falling divergence. A label that has the same value in all series is left out.
    pub labels: Vec<LabelBreakdown>,
    /// Known gaps in the heatmap.
    pub gaps: Vec<Gap>,
}

/// Difference of selection and baseline by one label.
#[derive(Clone, Debug)]
pub struct LabelBreakdown {
    /// Label name.
    pub label: String,
    /// Divergence in bits, 0 to 1, computed from the estimated counts.
    pub divergence: f64,
    /// Label values, the most over-represented inside first.
    pub values: Vec<ValueBreakdown>,
}

/// Counts of one label value inside and outside.
#[derive(Clone, Debug)]
pub struct ValueBreakdown {
    /// Label value; empty for series without the label.
    pub value: String,
    /// Number of values inside the rectangle.
    pub inside: Bracket<u64>,
    /// Number of values outside the rectangle.
    pub outside: Bracket<u64>,
    /// Share of all values inside, 0 to 1.
    pub share_inside: f64,
    /// Share of all values outside, 0 to 1.
    pub share_outside: f64,
}

/// Computes the breakdown of a rectangle. `context` carries cancellation.
pub fn break_down(
    source: &dyn Source,
    rectangle: &HeatmapSelection,
    limits: Limits,
    context: &dyn QueryContext,
) -> Result<Breakdown> {
    rectangle.check()?;
    let HeatmapSelection { baseline: picture, time, .. } = rectangle;
    let budget = QueryBudget::new(limits, context);
    let handles = select_histograms(source, &rectangle.selector, &budget)?;
    let mut gaps = Vec::new();
    let mut values: Option<(f64, f64)> = None;
    let mut counted = Vec::with_capacity(handles.len());
    let (mut merged, mut all_count) = (Mixture::default(), 0_u64);
    for handle in &handles {
        budget.check_deadline()?;
        let mut read = |range: Range<i64>| -> Result<Mixture> {
            if range.is_empty() {
                return Ok(Mixture::default());
            }
            let read = source.histograms(&[handle], single_column(&range))?;
            gaps.extend(read.gaps);
            let mut all = Mixture::default();
            for part in read.values.iter().flat_map(Mixture::components) {
                all.add(part).map_err(merge_error)?;
            }
            Ok(all)
        };
        let within = read(time.clone())?;
        let around = [read(picture.start..time.start)?, read(time.end..picture.end)?];
        for (min, max) in around.iter().chain([&within]).filter_map(ThresholdRange::values_of) {
            let (least, greatest) = values.unwrap_or((min, max));
            values = Some((least.min(min), greatest.max(max)));
        }
        let inside = between(&within, rectangle.above, rectangle.up_to);
        let others = within.count() + around.iter().map(Mixture::count).sum::<u64>();
        let outside = Bracket {
            lower: others - inside.upper,
            estimate: others - inside.estimate,
            upper: others - inside.lower,
        };
        counted.push((handle, [inside, outside]));
        for part in within.components() {
            merged.add(part).map_err(merge_error)?;
        }
        all_count = all_count.saturating_add(others);
    }
    let zero = [Bracket::exact(0); 2];
    // Shares are of this sum, so that those of a label add up to 1.
    let total = counted.iter().fold(zero, |total, (_, counts)| add_pairs(total, *counts));
    if total[0].upper == 0 {
        return Err(invalid("the rectangle contains no values"));
    }
    // The number of all is that of the merged values, as elsewhere: the sum of the estimates of the
    // series has the rounding of each.
    let inside = between(&merged, rectangle.above, rectangle.up_to);
    let outside = Bracket {
        lower: all_count - inside.upper,
        estimate: all_count - inside.estimate,
        upper: all_count - inside.lower,
    };
    let names: BTreeSet<&str> =
        handles.iter().flat_map(|handle| handle.labels.iter().map(|(name, _)| name)).collect();
    let mut labels = Vec::new();
    for name in names {
        let mut by_value: BTreeMap<&str, [Bracket<u64>; 2]> = BTreeMap::new();
        for (handle, counts) in &counted {
            let group_count = by_value.entry(handle.labels.get(name)).or_insert(zero);
            *group_count = add_pairs(*group_count, *counts);
        }
        if by_value.len() > 1 {
            labels.push(label_breakdown(name, by_value, total));
        }
    }
    model::sort::by(&mut labels, |a, b| {
        b.divergence.total_cmp(&a.divergence).then(a.label.cmp(&b.label))
    });
    gaps.sort_unstable();
    gaps.dedup();
    Ok(Breakdown { inside, outside, values, labels, gaps })
}

impl HeatmapSelection {
    fn check(&self) -> Result<()> {
        let HeatmapSelection { baseline: picture, time, above, up_to, .. } = self;
        if time.start >= time.end || time.start < picture.start || time.end > picture.end {
            return Err(invalid(
                "invalid rectangle: its time range is empty or exceeds that of the heatmap",
            ));
        }
        if up_to.is_nan() || above.is_nan() || above >= up_to {
            return Err(invalid("invalid rectangle: its lower value is not below its upper value"));
        }
        Ok(())
    }
}

fn invalid(message: &str) -> Error {
    Error::Execution { span: SourceSpan::default(), message: message.to_owned() }
}

/// One column for a time range; several if the range exceeds the maximum column length.
fn single_column(range: &Range<i64>) -> TimeGrid {
    match range.end.checked_sub(range.start) {
        Some(step) => TimeGrid { start: range.start, step, columns: 1 },
        None => TimeGrid { start: range.start, step: i64::MAX, columns: 3 },
    }
}

fn label_breakdown(
    name: &str,
    values: BTreeMap<&str, [Bracket<u64>; 2]>,
    total: [Bracket<u64>; 2],
) -> LabelBreakdown {
    let share = |count: u64, of: u64| if of == 0 { 0.0 } else { count as f64 / of as f64 };
    let mut splits: Vec<ValueBreakdown> = values
        .into_iter()
        .map(|(value, [inside, outside])| ValueBreakdown {
            value: value.to_owned(),
            inside,
            outside,
            share_inside: share(inside.estimate, total[0].estimate),
            share_outside: share(outside.estimate, total[1].estimate),
        })
        .collect();
    let term = |p: f64, q: f64| {
        let middle = f64::midpoint(p, q);
        let part = |x: f64| if x > 0.0 { x * (x / middle).log2() } else { 0.0 };
        (part(p) + part(q)) / 2.0
    };
    let divergence = splits
        .iter()
        .map(|of| term(of.share_inside, of.share_outside))
        .sum::<f64>()
        .clamp(0.0, 1.0);
    let excess = |of: &ValueBreakdown| of.share_inside - of.share_outside;
    model::sort::by(&mut splits, |a, b| {
        excess(b).total_cmp(&excess(a)).then(a.value.cmp(&b.value))
    });
    let label = if name == NAME { "name" } else { name }.to_owned();
    LabelBreakdown { label, divergence, values: splits }
}

/// Number of values above `above` and not above `up_to`.
fn between(mixture: &Mixture, above: f64, up_to: f64) -> Bracket<u64> {
    mixture.components().iter().fold(Bracket::exact(0), |total, part| {
        let over = |limit: f64| match limit {
            f64::INFINITY => Bracket::exact(0),
            limit => part.count_above(limit, LimitInclusion::Exclusive),
        };
        let (more, fewer) = (over(above), over(up_to));
        Bracket {
            lower: total.lower + more.lower.saturating_sub(fewer.upper),
            estimate: total.estimate + more.estimate.saturating_sub(fewer.estimate),
            upper: total.upper + more.upper.saturating_sub(fewer.lower),
        }
    })
}

fn add_pairs(a: [Bracket<u64>; 2], b: [Bracket<u64>; 2]) -> [Bracket<u64>; 2] {
    let plus = |a: Bracket<u64>, b: Bracket<u64>| Bracket {
        lower: a.lower.saturating_add(b.lower),
        estimate: a.estimate.saturating_add(b.estimate),
        upper: a.upper.saturating_add(b.upper),
    };
    [plus(a[0], b[0]), plus(a[1], b[1])]
}
