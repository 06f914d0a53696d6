//! Sums over sliding ranges.
//!
//! A sum is whatever two neighbouring stretches make together: a number, the greater of two, a
//! merged distribution. Nothing is taken away again, so no rounding adds up and nothing has to be
//! subtracted.

use std::ops::Range;

/// The sum of each stretch; `None` of an empty one. Neither starts nor ends of stretches may go
/// back.
///
/// Overlapping stretches share sums: items up to some place are added from the back, those after it
/// from the front, so that each item is added three times at the most however long a stretch is
/// (the two stacks of a queue; Okasaki, Simple and efficient purely functional queues, 1995).
pub(crate) fn sliding_sums<T: Clone, E>(
    items: &[T],
    stretches: impl IntoIterator<Item = Range<usize>>,
    add: impl Fn(&mut T, &T) -> Result<(), E>,
) -> Result<Vec<Option<T>>, E> {
    // Sums from an item up to `turn`, the next to be taken out last; and the sum from `turn` on.
    let (mut back, mut front): (Vec<T>, Option<T>) = (Vec::new(), None);
    let (mut turn, mut end) = (0, 0);
    let mut sums = Vec::new();
    for stretch in stretches {
        let start = stretch.start.min(items.len());
        let stop = stretch.end.min(items.len());
        if start >= stop {
            sums.push(None);
            continue;
        }
        if start >= end {
            // Nothing is shared: what lies between is never added.
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

    /// What is added says in which order, so it must be that of the items.
    fn slow(items: &[String], stretches: &[Range<usize>]) -> Vec<Option<String>> {
        let of = |stretch: &Range<usize>| {
            items.get(stretch.start..stretch.end.min(items.len())).unwrap_or(&[]).concat()
        };
        stretches.iter().map(|stretch| Some(of(stretch)).filter(|sum| !sum.is_empty())).collect()
    }

    proptest! {
        #[test]
        fn sums_are_of_all_items_in_order(moves in proptest::collection::vec((0usize..5, 0usize..5), 1..40)) {
            let (mut start, mut end) = (0, 0);
            let mut stretches = Vec::new();
            for (from, to) in moves {
                (start, end) = (start + from, (end + to).max(start + from));
                stretches.push(start..end);
            }
            let items: Vec<String> = (0..end.saturating_sub(3)).map(|at| format!("{at} ")).collect();
            let add = |held: &mut String, more: &String| {
                held.push_str(more);
                Ok::<(), ()>(())
            };
            let found = sliding_sums(&items, stretches.iter().cloned(), add).unwrap();
            prop_assert_eq!(found, slow(&items, &stretches));
        }
    }
}
