//! Breakdown of a heatmap selection by label.
//!
//! The rectangle is a stretch of time and of values. For each label the shares of its values inside
//! and outside are compared; labels whose shares differ most come first. The measure is the
//! Jensen–Shannon divergence in bits (Lin, Divergence measures based on the Shannon entropy, 1991):
//! 0 where inside is like outside, 1 where a look at the label tells which of the two it is.

use std::collections::BTreeMap;
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

/// Heatmap selection and its baseline.
#[derive(Clone, Debug)]
pub struct HeatmapSelection {
    /// Which series; those of histograms count.
    pub selector: Selector,
    /// From when to when the picture goes, in nanoseconds since the Unix epoch.
    pub baseline: Range<i64>,
    /// From when to when the rectangle goes; within the picture.
    pub time: Range<i64>,
    /// Values above this are in it.
    pub above: f64,
    /// Values up to this are in it.
    pub up_to: f64,
}

/// Breakdown of a selection by label.
#[derive(Clone, Debug)]
pub struct Breakdown {
    /// Values inside.
    pub inside: Bracket<u64>,
    /// Values of the picture outside.
    pub outside: Bracket<u64>,
    /// Labels, the one that tells most first. A label that all series share says nothing and is not
    /// here.
    pub labels: Vec<LabelBreakdown>,
    /// What is known to be missing in the picture.
    pub gaps: Vec<Gap>,
}

/// Difference of selection and baseline by one label.
#[derive(Clone, Debug)]
pub struct LabelBreakdown {
    /// Its name.
    pub label: String,
    /// How much it tells, in bits: 0 nothing, 1 all. Of the likeliest counts.
    pub divergence: f64,
    /// Its values, the one that is most over-represented inside first.
    pub values: Vec<ValueBreakdown>,
}

/// Counts of one label value inside and outside.
#[derive(Clone, Debug)]
pub struct ValueBreakdown {
    /// The value; the empty text of series without the label.
    pub value: String,
    /// Values measured inside.
    pub inside: Bracket<u64>,
    /// Outside.
    pub outside: Bracket<u64>,
    /// The share of all inside that it has, 0 to 1.
    pub share_inside: f64,
    /// The share of all outside.
    pub share_outside: f64,
}

/// Explains a rectangle. `context` says whether somebody still waits for it.
pub fn break_down(
    source: &dyn Source,
    rectangle: &HeatmapSelection,
    limits: Limits,
    context: &dyn QueryContext,
) -> Result<Breakdown> {
    let HeatmapSelection { baseline: picture, time, .. } = rectangle;
    let invalid = |message: &str| {
        let (place, message) = (SourceSpan::default(), message.to_owned());
        Err(Error::Execution { span: place, message })
    };
    if time.start >= time.end || time.start < picture.start || time.end > picture.end {
        return invalid("the rectangle's time is empty or goes beyond the picture's");
    }
    if rectangle.up_to.is_nan() || rectangle.above.is_nan() || rectangle.above >= rectangle.up_to {
        return invalid("the rectangle has no height: its lower value is not below its upper one");
    }
    let budget = QueryBudget::new(limits, context);
    let handles = select_histograms(source, &rectangle.selector, &budget)?;
    let mut gaps = Vec::new();
    let mut counted = Vec::with_capacity(handles.len());
    for handle in &handles {
        budget.check_deadline()?;
        let mut read = |range: Range<i64>| -> Result<Mixture> {
            if range.is_empty() {
                return Ok(Mixture::default());
            }
            let read = source.histograms(&[handle], single_column(&range))?;
            gaps.extend(read.gaps);
            let mut all = Mixture::default();
            for part in read.values.iter().flat_map(Mixture::parts) {
                all.add(part).map_err(merge_error)?;
            }
            Ok(all)
        };
        let within = read(time.clone())?;
        let around = [read(picture.start..time.start)?, read(time.end..picture.end)?];
        let inside = between(&within, rectangle.above, rectangle.up_to);
        let others = within.count() + around.iter().map(Mixture::count).sum::<u64>();
        let outside = Bracket {
            lower: others - inside.upper,
            estimate: others - inside.estimate,
            upper: others - inside.lower,
        };
        counted.push((handle, [inside, outside]));
    }
    let zero = [Bracket::exact(0); 2];
    let total = counted.iter().fold(zero, |total, (_, counts)| add_pairs(total, *counts));
    if total[0].upper == 0 {
        return invalid("there is nothing in the rectangle");
    }
    let names: BTreeMap<&str, ()> = handles
        .iter()
        .flat_map(|handle| handle.labels.iter().map(|(name, _)| (name, ())))
        .collect();
    let mut labels = Vec::new();
    for name in names.into_keys() {
        let mut values: BTreeMap<&str, [Bracket<u64>; 2]> = BTreeMap::new();
        for (handle, counts) in &counted {
            let held = values.entry(handle.labels.get(name)).or_insert(zero);
            *held = add_pairs(*held, *counts);
        }
        if values.len() > 1 {
            labels.push(label_breakdown(name, values, total));
        }
    }
    labels.sort_by(|a, b| b.divergence.total_cmp(&a.divergence).then(a.label.cmp(&b.label)));
    gaps.sort();
    gaps.dedup();
    let [inside, outside] = total;
    Ok(Breakdown { inside, outside, labels, gaps })
}

/// One column of a stretch of time; a few where it is longer than a column can be.
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
    splits.sort_by(|a, b| excess(b).total_cmp(&excess(a)).then(a.value.cmp(&b.value)));
    let label = if name == NAME { "name" } else { name }.to_owned();
    LabelBreakdown { label, divergence, values: splits }
}

/// How many values lie above one limit and not above another.
fn between(mixture: &Mixture, above: f64, up_to: f64) -> Bracket<u64> {
    mixture.parts().iter().fold(Bracket::exact(0), |total, part| {
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
