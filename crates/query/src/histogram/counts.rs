//! Counts by rising index: the primitive operations of histogram sums.

use super::compensation::{KahanSum, add_compensated};

/// Index and count of each non-empty bucket.
pub(super) type BucketCounts = Vec<(i32, f64)>;

/// Adds `theirs`, each times `sign`, to `ours`. An index of theirs may occur several times in a
/// row.
pub(super) fn add(ours: &mut BucketCounts, theirs: &[(i32, f64)], sign: f64) {
    if same_indexes(ours, theirs) {
        for (our, their) in ours.iter_mut().zip(theirs) {
            our.1 += sign * their.1;
        }
        drop_empty(ours);
        return;
    }
    let mut merged = BucketCounts::with_capacity(ours.len() + theirs.len());
    let mut push = |(index, count): (i32, f64)| match merged.last_mut() {
        Some(last) if last.0 == index => last.1 += count,
        _ => merged.push((index, count)),
    };
    let mut theirs = theirs.iter().map(|&(index, count)| (index, sign * count)).peekable();
    for &our in ours.iter() {
        while let Some(their) = theirs.next_if(|their| their.0 < our.0) {
            push(their);
        }
        push(our);
    }
    theirs.for_each(push);
    drop_empty(&mut merged);
    *ours = merged;
}

/// Maps counts to other indexes by a non-decreasing function. Counts with the same index are added.
pub(super) fn map_indexes(counts: &[(i32, f64)], to: impl Fn(i32) -> i32) -> BucketCounts {
    let mut mapped = BucketCounts::with_capacity(counts.len());
    for &(index, count) in counts {
        let index = to(index);
        match mapped.last_mut() {
            Some(last) if last.0 == index => last.1 += count,
            _ => mapped.push((index, count)),
        }
    }
    drop_empty(&mut mapped);
    mapped
}

/// As [`add`], with the rounding errors in `rest`. `their_rest` holds theirs.
pub(super) fn add_kahan(
    ours: &mut BucketCounts,
    rest: &mut BucketCounts,
    theirs: &[(i32, f64)],
    their_rest: &[(i32, f64)],
) {
    if their_rest.is_empty() && same_indexes(ours, rest) && has_indexes(ours, theirs) {
        let mut has_empty = false;
        let mut place = Place::default();
        for &(index, more) in theirs {
            let Some(at) = place.find(ours, index) else { break };
            let (our, lost) = (&mut ours[at].1, &mut rest[at].1);
            let sum = add_compensated(more, KahanSum { sum: *our, compensation: *lost });
            (*our, *lost) = sum.parts();
            has_empty |= *our == 0.0;
        }
        if has_empty {
            drop_empty(ours);
        }
        return;
    }
    let cells = kahan_cells(ours, rest);
    let theirs = kahan_cells(theirs, their_rest);
    let mut merged: Vec<(i32, KahanSum)> = Vec::with_capacity(cells.len() + theirs.len());
    let mut push = |(index, cell): (i32, KahanSum)| match merged.last_mut() {
        Some(last) if last.0 == index => last.1 = last.1.plus(cell),
        _ => merged.push((index, cell)),
    };
    let mut theirs = theirs.into_iter().peekable();
    for our in cells {
        while let Some(their) = theirs.next_if(|their| their.0 < our.0) {
            push(their);
        }
        push(our);
    }
    theirs.for_each(push);
    (*ours, *rest) = split_cells(&merged);
}

/// As [`map_indexes`], with the rounding errors in `rest`.
pub(super) fn map_indexes_kahan(
    counts: &mut BucketCounts,
    rest: &mut BucketCounts,
    to: impl Fn(i32) -> i32,
) {
    let mut mapped: Vec<(i32, KahanSum)> = Vec::with_capacity(counts.len());
    for (index, cell) in kahan_cells(counts, rest) {
        let index = to(index);
        match mapped.last_mut() {
            Some(last) if last.0 == index => last.1 = last.1.plus(cell),
            _ => mapped.push((index, cell)),
        }
    }
    (*counts, *rest) = split_cells(&mapped);
}

/// Counts with their compensations.
fn kahan_cells(counts: &[(i32, f64)], rest: &[(i32, f64)]) -> Vec<(i32, KahanSum)> {
    let mut cells = Vec::with_capacity(counts.len().max(rest.len()));
    let mut rest = rest.iter().copied().peekable();
    for &(index, sum) in counts {
        while let Some((index, lost)) = rest.next_if(|lost| lost.0 < index) {
            cells.push((index, KahanSum { sum: 0.0, compensation: lost }));
        }
        let lost = rest.next_if(|lost| lost.0 == index).map_or(0.0, |lost| lost.1);
        cells.push((index, KahanSum { sum, compensation: lost }));
    }
    cells.extend(rest.map(|(index, lost)| (index, KahanSum { sum: 0.0, compensation: lost })));
    cells
}

fn split_cells(cells: &[(i32, KahanSum)]) -> (BucketCounts, BucketCounts) {
    let mut counts: BucketCounts = cells.iter().map(|&(index, cell)| (index, cell.sum)).collect();
    drop_empty(&mut counts);
    // Zeros stay in the compensations, so that both keep the same indexes and the next sum is a
    // linear merge.
    let rest = cells.iter().map(|&(index, cell)| (index, cell.compensation)).collect();
    (counts, rest)
}

fn same_indexes(a: &[(i32, f64)], b: &[(i32, f64)]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0)
}

/// Whether all indexes of `theirs` are in `ours`; both are ascending, without repetitions in ours.
fn has_indexes(ours: &[(i32, f64)], theirs: &[(i32, f64)]) -> bool {
    let mut place = Place::default();
    theirs.len() <= ours.len() && theirs.iter().all(|their| place.find(ours, their.0).is_some())
}

/// Place of the last index that was looked up. The next one is guessed from it, as if indexes were
/// consecutive: which buckets are empty cannot be predicted.
#[derive(Default)]
struct Place {
    at: usize,
    index: i32,
}

impl Place {
    fn find(&mut self, counts: &[(i32, f64)], index: i32) -> Option<usize> {
        let guess = self.at.wrapping_add(index.wrapping_sub(self.index) as u32 as usize);
        let at = match counts.get(guess) {
            Some(held) if held.0 == index => guess,
            _ => counts.binary_search_by_key(&index, |held| held.0).ok()?,
        };
        *self = Place { at, index };
        Some(at)
    }
}

pub(super) fn drop_empty(counts: &mut BucketCounts) {
    if counts.iter().any(|&(_, count)| count == 0.0) {
        counts.retain(|&(_, count)| count != 0.0);
    }
}
