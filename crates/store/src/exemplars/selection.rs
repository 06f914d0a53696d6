//! Selection of exemplars, with the number of values that each stands for.
//!
//! The weights of the exemplars of a ladder cell add up to the cell's count. The maxima of the
//! minutes are not a random sample: each stands for itself, and the others share the rest equally,
//! as a uniform sample does. If more match than are wanted, the largest is returned with its own
//! weight, and the others are sampled by weight: those with the lowest exponential ranks -ln(u)/w,
//! and the weight of each is divided by the probability that its rank is below the lowest of those
//! left out (Cohen, Kaplan, “Summarizing data using bottom-k sketches”, PODC 2007). Sums of weights
//! are thus estimated without bias if at least two are wanted.
//!
//! Candidates are collected from the reservoir, which others wait for, without their attributes,
//! and ranked outside of it.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use hist::LimitInclusion::{self, Exclusive, Inclusive};
use model::{Exemplar, LadderCell, SeriesId, splitmix64};

use super::ExemplarRequest;
use super::reservoir::Reservoir;

/// Separates the hashes of this sampling from those of the cells.
const RANK_SEED: u64 = 0x5e1e_c710_4ca9_d13b;

/// Selected exemplars.
#[derive(Clone, Debug, PartialEq)]
pub struct ExemplarSelection {
    /// The exemplars, from the latest to the earliest.
    pub exemplars: Vec<SelectedExemplar>,
    /// Number of exemplars that match.
    pub matched: u64,
    /// Start of the time of which exemplars are known: earlier ones have expired or were evicted.
    pub covered_from: i64,
}

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectedExemplar {
    /// Its series.
    pub series: SeriesId,
    /// The exemplar.
    pub exemplar: Exemplar,
    /// Bounds of its ladder cell.
    pub cell: Range<f64>,
    /// Number of values that it stands for; `None` if their count is unknown.
    pub weight: Option<f64>,
    /// Whether it is the maximum of its series and minute.
    pub is_maximum: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct CellCounts {
    maxima: u64,
    sampled: u64,
    count: Option<f64>,
}

impl CellCounts {
    /// Weight of a maximum, and of another exemplar.
    fn weights(&self) -> (f64, f64) {
        let (maxima, sampled) = (self.maxima as f64, self.sampled as f64);
        // A histogram that was sent without the value of an exemplar.
        let count = self.count.unwrap_or(0.0).max(maxima + sampled);
        match self.sampled {
            0 => (count / maxima.max(1.0), 1.0),
            _ => (1.0, (count - maxima) / sampled),
        }
    }
}

/// An exemplar that matches, without its ids and attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExemplarCandidate {
    pub(super) series: SeriesId,
    key: u64,
    time: i64,
    value: f64,
    cell: LadderCell,
    is_maximum: bool,
}

/// Candidates of a request.
pub(crate) fn collect(reservoir: &Reservoir, request: &ExemplarRequest) -> Vec<ExemplarCandidate> {
    let is_selected = |id: &SeriesId| request.series.contains(id);
    let matches = reservoir.matches(&request.range, &is_selected);
    let candidates = matches.map(|found| ExemplarCandidate {
        series: found.series,
        key: found.kept.key,
        time: found.kept.exemplar.time,
        value: found.kept.exemplar.value,
        cell: found.kept.cell,
        is_maximum: found.is_maximum,
    });
    candidates.filter(|of| request.above < of.value && of.value <= request.up_to).collect()
}

/// A candidate with its weight.
pub(crate) type WeightedCandidate = (ExemplarCandidate, Option<f64>);

/// Chooses from candidates; from the latest to the earliest.
pub(crate) fn choose(
    mut candidates: Vec<ExemplarCandidate>,
    request: &ExemplarRequest,
    count_above: &dyn Fn(f64, LimitInclusion) -> Option<f64>,
) -> Vec<WeightedCandidate> {
    let mut cells: BTreeMap<LadderCell, CellCounts> = BTreeMap::new();
    for found in &candidates {
        let counts = cells.entry(found.cell).or_default();
        let count = if found.is_maximum { &mut counts.maxima } else { &mut counts.sampled };
        *count = count.saturating_add(1);
    }
    for (cell, counts) in &mut cells {
        counts.count = count_in_cell(*cell, request, count_above);
    }
    let weight = |found: &ExemplarCandidate| {
        let counts = cells.get(&found.cell).copied().unwrap_or_default();
        let (of_maximum, of_other) = counts.weights();
        if found.is_maximum { of_maximum } else { of_other }
    };
    let next_rank = sample(&mut candidates, request.limit, &weight);
    let mut chosen: Vec<WeightedCandidate> = Vec::with_capacity(candidates.len());
    for (at, found) in candidates.into_iter().enumerate() {
        let is_known = cells.get(&found.cell).is_some_and(|counts| counts.count.is_some());
        let weight = weight(&found);
        // The first one, the largest, is always chosen.
        let probability =
            next_rank.filter(|_| at > 0).map_or(1.0, |rank| -(-weight * rank).exp_m1());
        chosen.push((found, is_known.then_some(weight / probability)));
    }
    model::sort::by_key(&mut chosen, |(found, _)| (Reverse(found.time), found.key, found.series));
    chosen
}

/// The chosen exemplars that the reservoir still has.
pub(crate) fn complete(
    reservoir: &Reservoir,
    chosen: &[WeightedCandidate],
) -> Vec<SelectedExemplar> {
    let selected = chosen.iter().filter_map(|(found, weight)| {
        let exemplar = reservoir.find(&found.series, found.time, found.key)?.clone();
        let (series, cell, is_maximum) = (found.series, found.cell.bounds(), found.is_maximum);
        Some(SelectedExemplar { series, exemplar, cell, weight: *weight, is_maximum })
    });
    selected.collect()
}

/// Number of values of a cell that are within the request.
fn count_in_cell(
    cell: LadderCell,
    request: &ExemplarRequest,
    count_above: &dyn Fn(f64, LimitInclusion) -> Option<f64>,
) -> Option<f64> {
    let bounds = cell.bounds();
    let inclusion = if cell.includes_lower() { Inclusive } else { Exclusive };
    let above = match request.above >= bounds.start {
        true => count_above(request.above, Exclusive)?,
        false => count_above(bounds.start, inclusion)?,
    };
    let beyond = match request.up_to < bounds.end {
        true => count_above(request.up_to, Exclusive)?,
        false if bounds.end == f64::INFINITY => 0.0,
        false => count_above(bounds.end, inclusion)?,
    };
    Some((above - beyond).max(0.0))
}

/// Reduces to `limit` by weight, the largest first; returns the lowest rank of those left out.
fn sample(
    candidates: &mut Vec<ExemplarCandidate>,
    limit: usize,
    weight: &dyn Fn(&ExemplarCandidate) -> f64,
) -> Option<f64> {
    if candidates.len() <= limit {
        return None;
    }
    let largest = candidates.iter().enumerate();
    let largest =
        largest.max_by(|(_, a), (_, b)| a.value.total_cmp(&b.value).then(a.key.cmp(&b.key)));
    let at = largest.map(|(at, _)| at).filter(|_| limit > 0);
    let largest = at.map(|at| candidates.swap_remove(at));
    let mut others: Vec<(f64, ExemplarCandidate)> =
        candidates.drain(..).map(|found| (rank(&found, weight(&found)), found)).collect();
    model::sort::by(&mut others, |a, b| a.0.total_cmp(&b.0));
    let wanted = limit.saturating_sub(1);
    let next = others.get(wanted).map(|(rank, _)| *rank);
    candidates.extend(largest);
    candidates.extend(others.into_iter().take(wanted).map(|(_, found)| found));
    next
}

/// Exponentially distributed with the weight as rate.
fn rank(found: &ExemplarCandidate, weight: f64) -> f64 {
    let hash = splitmix64(found.key ^ RANK_SEED);
    // 53 random bits, from (0, 1).
    let uniform = (hash.unbounded_shr(11) as f64 + 0.5) / (1_u64.unbounded_shl(53) as f64);
    -uniform.ln() / weight
}
