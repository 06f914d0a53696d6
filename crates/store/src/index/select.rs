//! Evaluation of selectors on the index.
//!
//! Each part of a selector evaluates to an ascending list of numbers or to the complement of one:
//! `not` costs nothing, and a missing label is the complement of the series that have it. An `and`
//! evaluates exact values first, the rarest first; the remaining candidates are intersected with
//! the other parts or, if few are left, tested one by one on their keys.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::borrow::Cow;

use model::Selector;
use model::selector::{KIND, KINDS, NAME, Pattern, UNIT};

use crate::gallop::count_before;

use super::label::{LabelIndex, LabelValue};
use super::{ParsedKey, SeriesIndex, SeriesNumber};

/// Numbers merged in the time that testing one candidate takes.
const NUMBERS_PER_CANDIDATE: usize = 64;
/// Values whose first bytes are compared in that time.
const BEGINS_PER_CANDIDATE: usize = 8;

pub(super) fn select(index: &SeriesIndex, selector: &Selector) -> Vec<SeriesNumber> {
    let selection = index.evaluate(selector);
    if !selection.is_complement {
        return selection.numbers.iter().copied().map(SeriesNumber).collect();
    }
    let mut without = selection.numbers.iter().copied().peekable();
    let all = 0..index.len() as u32;
    let has_deleted = index.keys.deleted() > 0;
    let all = all.filter(|number| !has_deleted || index.keys.is_live(*number));
    all.filter(|number| without.next_if_eq(number).is_none()).map(SeriesNumber).collect()
}

/// Set of postings or its complement.
struct PostingsSet<'a> {
    numbers: Cow<'a, [u32]>,
    is_complement: bool,
}

impl<'a> PostingsSet<'a> {
    fn including(numbers: impl Into<Cow<'a, [u32]>>) -> PostingsSet<'a> {
        PostingsSet { numbers: numbers.into(), is_complement: false }
    }

    fn complement(self) -> PostingsSet<'a> {
        PostingsSet { is_complement: !self.is_complement, ..self }
    }
}

impl SeriesIndex {
    fn evaluate(&self, selector: &Selector) -> PostingsSet<'_> {
        match selector {
            Selector::All => PostingsSet::including(&[][..]).complement(),
            Selector::And(parts) => self.all_of(parts),
            Selector::Or(parts) => self.any_of(parts),
            Selector::Not(part) => self.evaluate(part).complement(),
            Selector::Tag { name, pattern } => self.tag(name, pattern),
        }
    }

    fn all_of(&self, parts: &[Selector]) -> PostingsSet<'_> {
        let mut parts: Vec<(usize, &Selector)> =
            parts.iter().map(|part| (self.selection_cost(part), part)).collect();
        model::sort::by_key(&mut parts, |&(effort, _)| effort);
        let mut candidates: Option<Cow<'_, [u32]>> = None;
        let mut without = Vec::new();
        for (effort, part) in parts {
            if let Some(numbers) = &candidates
                && numbers.len() < effort
                && !is_precomputed(part)
            {
                let is_picked = |number: &u32| self.is_selected(*number, part);
                candidates = Some(numbers.iter().copied().filter(is_picked).collect());
                continue;
            }
            let selection = self.evaluate(part);
            match (&candidates, selection.is_complement) {
                (None, true) => without.push(selection.numbers),
                (None, false) => candidates = Some(selection.numbers),
                (Some(numbers), is_complement) => {
                    candidates =
                        Some(intersect(numbers, &selection.numbers, !is_complement).into());
                }
            }
        }
        match candidates {
            None => PostingsSet::including(
                self.union(without.iter().map(|numbers| &numbers[..])).into_owned(),
            )
            .complement(),
            Some(numbers) if without.is_empty() => PostingsSet::including(numbers),
            Some(numbers) => {
                let without = self.union(without.iter().map(|numbers| &numbers[..]));
                PostingsSet::including(intersect(&numbers, &without, false))
            }
        }
    }

    fn any_of(&self, parts: &[Selector]) -> PostingsSet<'_> {
        let (complements, selections): (Vec<_>, Vec<_>) = parts
            .iter()
            .map(|part| self.evaluate(part))
            .partition(|selections| selections.is_complement);
        let selections =
            self.union(selections.iter().map(|selections| &selections.numbers[..])).into_owned();
        // The union excludes a number only if every complement excludes it.
        let complements = complements.into_iter().map(|selections| selections.numbers);
        match complements.reduce(|a, b| intersect(&a, &b, true).into()) {
            None => PostingsSet::including(selections),
            Some(without) => {
                PostingsSet::including(intersect(&without, &selections, false)).complement()
            }
        }
    }

    fn tag(&self, name: &str, pattern: &Pattern) -> PostingsSet<'_> {
        if name == KIND {
            let numbers =
                KINDS.iter().zip(&self.kinds).filter(|((_, word), _)| pattern.matches(word));
            return PostingsSet::including(self.union(numbers.map(|(_, numbers)| &numbers[..])));
        }
        let label = self.tag_label(name);
        let is_missing = matches!(pattern, Pattern::Exact(text) if text.is_empty());
        let Some(label) = label else {
            let none = PostingsSet::including(&[][..]);
            return if is_missing { none.complement() } else { none };
        };
        match pattern {
            _ if is_missing => {
                let numbers = label.values.iter().map(|value| value.postings.as_slice());
                PostingsSet::including(self.union(numbers)).complement()
            }
            Pattern::Exact(text) => PostingsSet::including(self.exact(label, text)),
            pattern => {
                let begin = pattern.begin().as_bytes();
                let is_matching = |value: &&LabelValue| {
                    self.keys.begins(value.text, begin)
                        && pattern.matches(self.keys.text(value.text))
                };
                let values = label.values.iter().filter(is_matching);
                let lists: Vec<&[u32]> = values.map(|value| value.postings.as_slice()).collect();
                PostingsSet::including(self.union(lists.iter().copied()))
            }
        }
    }

    fn tag_label(&self, name: &str) -> Option<&LabelIndex> {
        match name {
            NAME => Some(&self.names),
            UNIT => Some(&self.units),
            name => self.label(name),
        }
    }

    fn exact<'a>(&self, label: &'a LabelIndex, text: &str) -> &'a [u32] {
        let at = label.find(&self.keys, self.hash(text.as_bytes()), text.as_bytes());
        at.map_or(&[], |at| label.values[at as usize].postings.as_slice())
    }

    /// Cost of evaluating a selector, in candidate tests.
    fn selection_cost(&self, selector: &Selector) -> usize {
        match selector {
            Selector::All => 0,
            Selector::And(parts) | Selector::Or(parts) => {
                parts.iter().map(|part| self.selection_cost(part)).sum()
            }
            Selector::Not(part) => self.selection_cost(part),
            Selector::Tag { name, pattern } => {
                if name == KIND {
                    return self.len() / NUMBERS_PER_CANDIDATE;
                }
                let Some(label) = self.tag_label(name) else { return 0 };
                match pattern {
                    Pattern::Exact(text) if !text.is_empty() => {
                        self.exact(label, text).len() / NUMBERS_PER_CANDIDATE
                    }
                    _ => {
                        let candidates = label.series as usize / NUMBERS_PER_CANDIDATE;
                        let values = match pattern.begin() {
                            "" => label.values.len(),
                            _ => label.values.len() / BEGINS_PER_CANDIDATE,
                        };
                        values.saturating_add(candidates)
                    }
                }
            }
        }
    }

    /// Whether a series matches a selector.
    fn is_selected(&self, number: u32, selector: &Selector) -> bool {
        match selector {
            Selector::All => true,
            Selector::And(parts) => parts.iter().all(|part| self.is_selected(number, part)),
            Selector::Or(parts) => parts.iter().any(|part| self.is_selected(number, part)),
            Selector::Not(part) => !self.is_selected(number, part),
            Selector::Tag { name, pattern } => pattern.matches(self.tag_of(number, name)),
        }
    }

    /// Value of a tag; empty if the series lacks it.
    fn tag_of(&self, number: u32, name: &str) -> &str {
        let parts = ParsedKey::parse(self.keys.key(number));
        let bytes = match name {
            NAME => parts.name,
            UNIT => parts.unit,
            KIND => {
                let has = |numbers: &Vec<u32>| numbers.binary_search(&number).is_ok();
                // A deleted series has no key.
                return self.kinds.iter().position(has).map_or("", |at| KINDS[at].1);
            }
            name => {
                let mut labels = parts.labels();
                let found = labels.find(|(label, _)| *label >= name.as_bytes());
                found.filter(|(label, _)| *label == name.as_bytes()).unwrap_or_default().1
            }
        };
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Union of lists.
    fn union<'a>(&self, lists: impl Iterator<Item = &'a [u32]> + Clone) -> Cow<'a, [u32]> {
        let mut some = lists.filter(|numbers| !numbers.is_empty());
        let first = some.clone().next().unwrap_or_default();
        let total: usize = some.clone().map(<[u32]>::len).sum();
        if first.len() == total {
            return Cow::Borrowed(first);
        }
        if total < self.len() / 64 {
            let mut numbers = Vec::with_capacity(total);
            some.for_each(|list| numbers.extend_from_slice(list));
            numbers.sort_unstable();
            numbers.dedup();
            return Cow::Owned(numbers);
        }
        // A bitmap with a bit per series is small here.
        let mut bits = vec![0u64; self.len().div_ceil(64)];
        some.by_ref()
            .flatten()
            .for_each(|&number| bits[number as usize / 64] |= 1 << (number % 64));
        let mut numbers =
            Vec::with_capacity(bits.iter().map(|word| word.count_ones() as usize).sum());
        for (at, &word) in bits.iter().enumerate() {
            let mut left = word;
            while left != 0 {
                // Series numbers fit 32 bits.
                numbers.push((at as u32).wrapping_mul(64) | left.trailing_zeros());
                left &= left.wrapping_sub(1);
            }
        }
        Cow::Owned(numbers)
    }
}

/// Whether the postings exist without merging.
fn is_precomputed(selector: &Selector) -> bool {
    match selector {
        Selector::Not(part) => is_precomputed(part),
        Selector::Tag { pattern: Pattern::Exact(text), .. } => !text.is_empty(),
        _ => false,
    }
}

/// Numbers of `these` that are in `those`, or that are not. Both are ascending.
fn intersect(these: &[u32], those: &[u32], is_among: bool) -> Vec<u32> {
    let (these, mut rest) = match is_among && those.len() < these.len() {
        true => (those, these),
        false => (these, those),
    };
    let mut out =
        Vec::with_capacity(if is_among { these.len().min(rest.len()) } else { these.len() });
    for &number in these {
        rest = &rest[count_before(rest, number)..];
        if (rest.first() == Some(&number)) == is_among {
            out.push(number);
        }
    }
    out
}
