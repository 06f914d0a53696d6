//! Selection of exemplars, with the number of values that each stands for.
//!
//! The weights of the exemplars of a ladder cell add up to the cell's count. The maxima of the
//! minutes are not a random sample: each stands for itself, and the others share the rest equally,
//! as a uniform sample does. If more match than are wanted, exemplars are sampled by weight: those
//! with the lowest exponential ranks -ln(u)/w, and the weight of each is divided by the probability
//! that it is sampled (Cohen, Kaplan, “Summarizing data using bottom-k sketches”, PODC 2007). Sums
//! of weights are thus estimated without bias.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use hist::LimitInclusion::{self, Exclusive, Inclusive};
use model::{Exemplar, SeriesId};

use super::ExemplarRequest;
use super::ladder::LadderCell;
use super::reservoir::{ExemplarMatch, Reservoir, mix};

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

pub(crate) fn select(
    reservoir: &Reservoir,
    request: &ExemplarRequest,
    count_above: &dyn Fn(f64, LimitInclusion) -> Option<f64>,
) -> ExemplarSelection {
    let is_selected = |id: &SeriesId| request.series.contains(id);
    let is_within = |value: f64| request.above < value && value <= request.up_to;
    let matches = reservoir.matches(&request.range, &is_selected);
    let mut matches: Vec<ExemplarMatch<'_>> =
        matches.filter(|found| is_within(found.kept.exemplar.value)).collect();
    let matched = matches.len() as u64;
    let mut cells: BTreeMap<LadderCell, CellCounts> = BTreeMap::new();
    for found in &matches {
        let counts = cells.entry(found.kept.cell).or_default();
        let count = if found.is_maximum { &mut counts.maxima } else { &mut counts.sampled };
        *count = count.saturating_add(1);
    }
    for (cell, counts) in &mut cells {
        counts.count = count_in_cell(*cell, request, count_above);
    }
    let weight = |found: &ExemplarMatch<'_>| {
        let counts = cells.get(&found.kept.cell).copied().unwrap_or_default();
        let (of_maximum, of_other) = counts.weights();
        if found.is_maximum { of_maximum } else { of_other }
    };
    let next_rank = sample(&mut matches, request.limit, &weight);
    matches.sort_by_key(|found| (Reverse(found.kept.exemplar.time), found.kept.key, found.series));
    let selected = matches.iter().map(|found| {
        let is_known = cells.get(&found.kept.cell).is_some_and(|counts| counts.count.is_some());
        let weight = weight(found);
        let probability = next_rank.map_or(1.0, |rank| -(-weight * rank).exp_m1());
        SelectedExemplar {
            series: found.series,
            exemplar: found.kept.exemplar.clone(),
            cell: found.kept.cell.bounds(),
            weight: is_known.then_some(weight / probability),
            is_maximum: found.is_maximum,
        }
    });
    ExemplarSelection {
        exemplars: selected.collect(),
        matched,
        covered_from: reservoir.covered_from(),
    }
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

/// Reduces to `limit` by weight, with the maximum; returns the lowest rank of those left out.
fn sample(
    matches: &mut Vec<ExemplarMatch<'_>>,
    limit: usize,
    weight: &dyn Fn(&ExemplarMatch<'_>) -> f64,
) -> Option<f64> {
    if matches.len() <= limit {
        return None;
    }
    let largest = matches.iter().map(|found| found.kept.exemplar.value);
    let largest = largest.fold(f64::NEG_INFINITY, f64::max);
    let mut ranked: Vec<(f64, ExemplarMatch<'_>)> =
        matches.drain(..).map(|found| (rank(&found, weight(&found)), found)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The maximum is always shown: it takes the last place if it is not sampled.
    let at = ranked.iter().position(|(_, found)| found.kept.exemplar.value == largest);
    if let Some(at) = at.filter(|&at| at >= limit) {
        let last = limit.saturating_sub(1);
        let found = ranked.remove(at);
        ranked.insert(last, found);
    }
    let next = ranked.get(limit).map(|(rank, _)| *rank);
    matches.extend(ranked.into_iter().take(limit).map(|(_, found)| found));
    next
}

/// Exponentially distributed with the weight as rate.
fn rank(found: &ExemplarMatch<'_>, weight: f64) -> f64 {
    let hash = mix(found.kept.key ^ RANK_SEED);
    // 53 random bits, from (0, 1).
    let uniform = (hash.unbounded_shr(11) as f64 + 0.5) / (1_u64.unbounded_shl(53) as f64);
    -uniform.ln() / weight
}
