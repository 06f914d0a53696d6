//! Stable sorts that are compiled once, and maps made without the sort of `collect`.
//!
//! `slice::sort_by` is compiled anew for each type and comparison: 5 kB, and the program had 230
//! of them. Here one function sorts positions, and what is compiled per call is the comparison and
//! the exchange of values. It takes one more indirection per comparison and 8 bytes per value, so
//! it is for lists of rows, problems and labels, not for samples.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Sorts values by a comparison; equal values keep their order.
pub fn by<T>(values: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut from: Vec<usize> = (0..values.len()).collect();
    sort_positions(&mut from, &|a, b| compare(&values[a], &values[b]));
    // Each position gets the value of the position that is sorted to it, cycle by cycle.
    for start in 0..from.len() {
        let mut to = start;
        while from[to] != start {
            let next = from[to];
            values.swap(to, next);
            from[to] = to;
            to = next;
        }
        from[to] = to;
    }
}

/// Sorts values by a key; values with equal keys keep their order.
pub fn by_key<T, K: Ord>(values: &mut [T], key: impl Fn(&T) -> K) {
    by(values, |a, b| key(a).cmp(&key(b)));
}

/// A map of entries; of several with equal keys, it has the value of the last. `collect` sorts the
/// entries first, by a function that is compiled anew for each call.
pub fn map<K: Ord, V>(entries: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(entries);
    map
}

#[inline(never)]
fn sort_positions(positions: &mut [usize], compare: &dyn Fn(usize, usize) -> Ordering) {
    positions.sort_by(|&a, &b| compare(a, b));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_as_the_standard_library_does() {
        let mut random = 61u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 33
        };
        for length in (0..40).chain([1_000]) {
            let drawn: Vec<(u64, usize)> = (0..length).map(|at| (next() % 8, at)).collect();
            let (mut ours, mut theirs) = (drawn.clone(), drawn);
            by_key(&mut ours, |value| value.0);
            theirs.sort_by_key(|value| value.0);
            assert_eq!(ours, theirs);
            by(&mut ours, |a, b| b.1.cmp(&a.1));
            theirs.sort_by_key(|value| std::cmp::Reverse(value.1));
            assert_eq!(ours, theirs);
        }
    }
}
