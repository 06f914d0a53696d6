//! Which series a selector picks.
//!
//! A part of a selector is answered with ascending numbers, or with those that it does not pick: so `not` costs
//! nothing, and a missing label is all series but those that have it. In an `and`, exact values come first, from the
//! rarest on; what is left of the candidates is then either met with the numbers of the other parts, or, where there
//! are few, each is asked by its form.

use std::borrow::Cow;

use model::Selector;
use model::selector::{KIND, KINDS, NAME, Pattern, UNIT};

use super::label::Label;
use super::{CHECKED, Index, Number, Parts};

/// How many numbers are put together in the time in which one candidate is asked.
const NUMBERS_PER_CANDIDATE: usize = 64;

pub(super) fn select(index: &Index, selector: &Selector) -> Vec<Number> {
    let picked = index.answer(selector);
    if !picked.is_complement {
        return picked.numbers.iter().copied().map(Number).collect();
    }
    let mut without = picked.numbers.iter().copied().peekable();
    let all = 0..index.len() as u32;
    let has_deleted = index.forms.deleted() > 0;
    let all = all.filter(|number| !has_deleted || index.forms.is_live(*number));
    all.filter(|number| without.next_if_eq(number).is_none()).map(Number).collect()
}

/// These series, or all but these; ascending.
struct Picked<'a> {
    numbers: Cow<'a, [u32]>,
    is_complement: bool,
}

impl<'a> Picked<'a> {
    fn these(numbers: impl Into<Cow<'a, [u32]>>) -> Picked<'a> {
        Picked { numbers: numbers.into(), is_complement: false }
    }

    fn but(self) -> Picked<'a> {
        Picked { is_complement: !self.is_complement, ..self }
    }
}

impl Index {
    fn answer(&self, selector: &Selector) -> Picked<'_> {
        match selector {
            Selector::All => Picked::these(&[][..]).but(),
            Selector::And(parts) => self.all_of(parts),
            Selector::Or(parts) => self.any_of(parts),
            Selector::Not(part) => self.answer(part).but(),
            Selector::Tag { name, pattern } => self.tag(name, pattern),
        }
    }

    fn all_of(&self, parts: &[Selector]) -> Picked<'_> {
        let mut parts: Vec<(usize, &Selector)> =
            parts.iter().map(|part| (self.effort(part), part)).collect();
        parts.sort_by_key(|&(effort, _)| effort);
        let mut candidates: Option<Cow<'_, [u32]>> = None;
        let mut without = Vec::new();
        for (effort, part) in parts {
            if let Some(numbers) = &candidates
                && numbers.len() < effort
                && !is_ready(part)
            {
                let is_picked = |number: &u32| self.is_picked(*number, part);
                candidates = Some(numbers.iter().copied().filter(is_picked).collect());
                continue;
            }
            let picked = self.answer(part);
            match (&candidates, picked.is_complement) {
                (None, true) => without.push(picked.numbers),
                (None, false) => candidates = Some(picked.numbers),
                (Some(numbers), is_complement) => {
                    candidates = Some(met(numbers, &picked.numbers, !is_complement).into());
                }
            }
        }
        match candidates {
            None => {
                Picked::these(self.union(without.iter().map(|numbers| &numbers[..])).into_owned())
                    .but()
            }
            Some(numbers) if without.is_empty() => Picked::these(numbers),
            Some(numbers) => {
                let without = self.union(without.iter().map(|numbers| &numbers[..]));
                Picked::these(met(&numbers, &without, false))
            }
        }
    }

    fn any_of(&self, parts: &[Selector]) -> Picked<'_> {
        let (complements, picked): (Vec<_>, Vec<_>) =
            parts.iter().map(|part| self.answer(part)).partition(|picked| picked.is_complement);
        let picked = self.union(picked.iter().map(|picked| &picked.numbers[..])).into_owned();
        // What one of them does not pick, all the others must not pick either.
        let complements = complements.into_iter().map(|picked| picked.numbers);
        match complements.reduce(|a, b| met(&a, &b, true).into()) {
            None => Picked::these(picked),
            Some(without) => Picked::these(met(&without, &picked, false)).but(),
        }
    }

    fn tag(&self, name: &str, pattern: &Pattern) -> Picked<'_> {
        if name == KIND {
            let numbers =
                KINDS.iter().zip(&self.kinds).filter(|((_, word), _)| pattern.matches(word));
            return Picked::these(self.union(numbers.map(|(_, numbers)| &numbers[..])));
        }
        let label = self.tag_label(name);
        let is_missing = matches!(pattern, Pattern::Exact(text) if text.is_empty());
        let Some(label) = label else {
            let none = Picked::these(&[][..]);
            return if is_missing { none.but() } else { none };
        };
        match pattern {
            _ if is_missing => {
                let numbers = label.values.iter().map(|value| value.numbers.as_slice());
                Picked::these(self.union(numbers)).but()
            }
            Pattern::Exact(text) => Picked::these(self.exact(label, text)),
            pattern => {
                let values = label.values.iter();
                let values = values.filter(|value| pattern.matches(self.forms.text(value.text)));
                Picked::these(self.union(values.map(|value| value.numbers.as_slice())))
            }
        }
    }

    fn tag_label(&self, name: &str) -> Option<&Label> {
        match name {
            NAME => Some(&self.names),
            UNIT => Some(&self.units),
            name => self.label(name),
        }
    }

    fn exact<'a>(&self, label: &'a Label, text: &str) -> &'a [u32] {
        let at = label.find(&self.forms, self.hash(text.as_bytes()), text.as_bytes());
        at.map_or(&[], |at| label.values[at as usize].numbers.as_slice())
    }

    /// What it takes to answer, in candidates that could be asked instead.
    fn effort(&self, selector: &Selector) -> usize {
        match selector {
            Selector::All => 0,
            Selector::And(parts) | Selector::Or(parts) => {
                parts.iter().map(|part| self.effort(part)).sum()
            }
            Selector::Not(part) => self.effort(part),
            Selector::Tag { name, pattern } => {
                if name == KIND {
                    return self.len() / NUMBERS_PER_CANDIDATE;
                }
                let Some(label) = self.tag_label(name) else { return 0 };
                match pattern {
                    Pattern::Exact(text) if !text.is_empty() => {
                        self.exact(label, text).len() / NUMBERS_PER_CANDIDATE
                    }
                    _ => label.values.len() + label.series as usize / NUMBERS_PER_CANDIDATE,
                }
            }
        }
    }

    /// Whether a selector picks that series.
    fn is_picked(&self, number: u32, selector: &Selector) -> bool {
        match selector {
            Selector::All => true,
            Selector::And(parts) => parts.iter().all(|part| self.is_picked(number, part)),
            Selector::Or(parts) => parts.iter().any(|part| self.is_picked(number, part)),
            Selector::Not(part) => !self.is_picked(number, part),
            Selector::Tag { name, pattern } => pattern.matches(self.tag_of(number, name)),
        }
    }

    /// The value of a tag, empty if the series has none of that name.
    fn tag_of(&self, number: u32, name: &str) -> &str {
        let parts = Parts::of(self.forms.form(number));
        let bytes = match name {
            NAME => parts.name,
            UNIT => parts.unit,
            KIND => {
                let has = |numbers: &Vec<u32>| numbers.binary_search(&number).is_ok();
                let at = self.kinds.iter().position(has).expect("BUG: a series has a kind");
                return KINDS[at].1;
            }
            name => {
                let mut labels = parts.labels();
                let found = labels.find(|(label, _)| *label >= name.as_bytes());
                found.filter(|(label, _)| *label == name.as_bytes()).unwrap_or_default().1
            }
        };
        std::str::from_utf8(bytes).expect(CHECKED)
    }

    /// What is in one of them at least.
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
        // A bit for each series takes as many words as are few here.
        let mut bits = vec![0u64; self.len().div_ceil(64)];
        some.by_ref()
            .flatten()
            .for_each(|&number| bits[number as usize / 64] |= 1 << (number % 64));
        let mut numbers =
            Vec::with_capacity(bits.iter().map(|word| word.count_ones() as usize).sum());
        for (at, &word) in bits.iter().enumerate() {
            let mut left = word;
            while left != 0 {
                numbers.push(at as u32 * 64 + left.trailing_zeros());
                left &= left - 1;
            }
        }
        Cow::Owned(numbers)
    }
}

/// Whether the numbers are there as they are.
fn is_ready(selector: &Selector) -> bool {
    match selector {
        Selector::Not(part) => is_ready(part),
        Selector::Tag { pattern: Pattern::Exact(text), .. } => !text.is_empty(),
        _ => false,
    }
}

/// The numbers of `these` that are among `those`, or that are not. Both ascend.
fn met(these: &[u32], those: &[u32], is_among: bool) -> Vec<u32> {
    let (these, mut rest) = match is_among && those.len() < these.len() {
        true => (those, these),
        false => (these, those),
    };
    let mut out =
        Vec::with_capacity(if is_among { these.len().min(rest.len()) } else { these.len() });
    for &number in these {
        rest = &rest[before(rest, number)..];
        if (rest.first() == Some(&number)) == is_among {
            out.push(number);
        }
    }
    out
}

/// How many numbers come before one: in steps that double, since it is near mostly.
fn before(numbers: &[u32], number: u32) -> usize {
    let mut step = 1;
    while step < numbers.len() && numbers[step - 1] < number {
        step *= 2;
    }
    let from = step / 2;
    let to = step.min(numbers.len());
    from + numbers[from..to].partition_point(|&n| n < number)
}
