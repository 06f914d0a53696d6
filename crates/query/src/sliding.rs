//! Sums over sliding ranges.
//!
//! A sum is any associative operation: addition, maximum, merging of distributions. No operation is
//! inverted, so rounding errors do not accumulate and no subtraction is needed.

use std::ops::Range;

/// Sum of each range; `None` for an empty one. Neither starts nor ends of ranges may decrease.
///
/// Overlapping ranges share sums: items up to a split point are summed from the back, those after
/// it from the front, so that each item is added at most three times whatever the range length (the
/// two stacks of a queue; Okasaki, Simple and efficient purely functional queues, 1995).
pub(crate) fn sliding_sums<T: Clone, E>(
    items: &[T],
    ranges: impl IntoIterator<Item = Range<usize>>,
    add: impl Fn(&mut T, &T) -> Result<(), E>,
) -> Result<Vec<Option<T>>, E> {
    // Sums from an item up to `turn`, the next one to be removed last; and the sum from `turn` on.
    let (mut back, mut front): (Vec<T>, Option<T>) = (Vec::new(), None);
    let (mut turn, mut end) = (0, 0);
    let mut sums = Vec::new();
    for range in ranges {
        let start = range.start.min(items.len());
        let stop = range.end.min(items.len());
        if start >= stop {
            sums.push(None);
            continue;
        }
        if start >= end {
            // Disjoint ranges: the items between them are never added.
            (turn, end, front) = (start, start, None);
            back.clear();
        }
        for item in &items[end.min(stop)..stop] {
            match &mut front {
                None => front = Some(item.clone()),
                Some(front) => add(front, item)?,
            }
        }
        end = end.max(stop);
        if start >= turn {
            back.clear();
            front = None;
            turn = end;
            for item in items[start..end].iter().rev() {
                let mut sum = item.clone();
                if let Some(later) = back.last() {
                    add(&mut sum, later)?;
                }
                back.push(sum);
            }
        } else {
            back.truncate(turn - start);
        }
        let mut sum = back.last().cloned();
        match (&mut sum, &front) {
            (Some(sum), Some(front)) => add(sum, front)?,
            (None, Some(front)) => sum = Some(front.clone()),
            (_, None) => {}
        }
        sums.push(sum);
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The operation is not commutative, so the order must be that of the items.
    fn slow(items: &[String], ranges: &[Range<usize>]) -> Vec<Option<String>> {
        let of = |range: &Range<usize>| {
            items.get(range.start..range.end.min(items.len())).unwrap_or(&[]).concat()
        };
        ranges.iter().map(|range| Some(of(range)).filter(|sum| !sum.is_empty())).collect()
    }

    proptest! {
        #[test]
        fn sums_are_of_all_items_in_order(moves in proptest::collection::vec((0usize..5, 0usize..5), 1..40)) {
            let (mut start, mut end) = (0, 0);
            let mut ranges = Vec::new();
            for (from, to) in moves {
                (start, end) = (start + from, (end + to).max(start + from));
                ranges.push(start..end);
            }
            let items: Vec<String> = (0..end.saturating_sub(3)).map(|at| format!("{at} ")).collect();
            let add = |held: &mut String, more: &String| {
                held.push_str(more);
                Ok::<(), ()>(())
            };
            let found = sliding_sums(&items, ranges.iter().cloned(), add).unwrap();
            prop_assert_eq!(found, slow(&items, &ranges));
        }
    }
}
