//! Heap of numbered values with the same layout, and so the same choice among ties, as Go's
//! `container/heap`.

/// Values with their indices; the first is the worst.
pub(super) struct TopKHeap {
    pub(super) items: Vec<(f64, usize)>,
    is_reversed: bool,
}

impl TopKHeap {
    /// Min-heap, or max-heap if reversed; NaN sorts before all numbers.
    pub(super) fn new(is_reversed: bool) -> TopKHeap {
        TopKHeap { items: Vec::new(), is_reversed }
    }

    fn is_before(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.items[a].0, self.items[b].0);
        a.is_nan() || if self.is_reversed { a > b } else { a < b }
    }

    pub(super) fn push(&mut self, item: (f64, usize)) {
        self.items.push(item);
        let mut child = self.items.len() - 1;
        while child > 0 {
            let parent = (child - 1) / 2;
            if !self.is_before(child, parent) {
                break;
            }
            self.items.swap(child, parent);
            child = parent;
        }
    }

    /// Replaces the first element if that is worse.
    pub(super) fn offer(&mut self, item: (f64, usize)) {
        let Some((worst, _)) = self.items.first().copied() else { return };
        let is_better = if self.is_reversed { item.0 < worst } else { item.0 > worst };
        if !is_better && (!worst.is_nan() || item.0.is_nan()) {
            return;
        }
        self.items[0] = item;
        let mut parent = 0;
        loop {
            let left = 2 * parent + 1;
            if left >= self.items.len() {
                break;
            }
            let right = left + 1;
            let is_right = right < self.items.len() && self.is_before(right, left);
            let child = if is_right { right } else { left };
            if !self.is_before(child, parent) {
                break;
            }
            self.items.swap(child, parent);
            parent = child;
        }
    }

    /// Elements in reverse heap order, NaN last.
    pub(super) fn best_first(self) -> Vec<(f64, usize)> {
        let (nans, mut numbers): (Vec<_>, Vec<_>) =
            self.items.into_iter().partition(|item| item.0.is_nan());
        model::sort::by(&mut numbers, |a, b| {
            let ascending = a.0.partial_cmp(&b.0).unwrap_or(std::cmp::Ordering::Equal);
            if self.is_reversed { ascending } else { ascending.reverse() }
        });
        numbers.extend(nans.into_iter().rev());
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[f64], k: usize, is_reversed: bool, expected: &[usize]) {
        let mut heap = TopKHeap::new(is_reversed);
        for item in values.iter().copied().enumerate().map(|(at, value)| (value, at)) {
            if heap.items.len() < k { heap.push(item) } else { heap.offer(item) }
        }
        let found: Vec<usize> = heap.best_first().iter().map(|item| item.1).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn best_values_come_first() {
        check(&[3.0, 1.0, 4.0, 1.5, 9.0], 3, false, &[4, 2, 0]);
        check(&[3.0, 1.0, 4.0, 1.5, 9.0], 3, true, &[1, 3, 0]);
        check(&[f64::NAN, 1.0, f64::NAN, 2.0], 3, false, &[3, 1, 0]);
        check(&[f64::NAN, 1.0, 2.0], 2, true, &[1, 2]);
    }

    #[test]
    fn equal_values_do_not_replace() {
        check(&[1.0, 1.0, 2.0], 2, false, &[2, 1]);
        check(&[1.0, 1.0, 1.0], 2, false, &[0, 1]);
    }
}
