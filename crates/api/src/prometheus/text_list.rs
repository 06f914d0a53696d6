//! Distinct texts in order, of which very many come in this order.

use std::collections::BTreeSet;

/// Collects texts.
#[derive(Default)]
pub(super) struct TextList {
    /// Ascending: a sender mostly lists its series by name.
    ascending: Vec<String>,
    /// The others: less than the last ascending one.
    others: BTreeSet<String>,
}

impl TextList {
    /// Adds a text.
    pub(super) fn add(&mut self, text: &str) {
        if self.ascending.last().is_none_or(|last| **last < *text) {
            self.ascending.push(text.to_owned());
        } else if self.ascending.binary_search_by(|held| (**held).cmp(text)).is_err()
            && !self.others.contains(text)
        {
            self.others.insert(text.to_owned());
        }
    }

    /// Number of texts.
    pub(super) fn len(&self) -> usize {
        self.ascending.len() + self.others.len()
    }

    /// The texts.
    pub(super) fn finish(self) -> Vec<String> {
        let mut texts = self.ascending;
        texts.extend(self.others);
        // Two ascending runs.
        texts.sort_unstable();
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_a_set() {
        let (mut list, mut set, mut seed) = (TextList::default(), BTreeSet::new(), 1u64);
        for round in 0..3_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = if round % 3 == 0 { round } else { (seed >> 33) % 900 };
            let text = format!("pod-{number:05}");
            list.add(&text);
            set.insert(text);
            assert_eq!(list.len(), set.len());
        }
        assert_eq!(list.finish(), Vec::from_iter(set));
        assert_eq!(TextList::default().finish(), [""; 0]);
    }
}
