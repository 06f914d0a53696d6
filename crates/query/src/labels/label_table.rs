//! Labels of many sets, each label once, sorted: a set is a list of ranks.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// A name with a value.
#[derive(Clone, Debug)]
pub(super) struct HashedLabel {
    pub(super) name: Arc<str>,
    pub(super) value: Arc<str>,
    /// Hash of both, equal in all tables.
    pub(super) hash: u64,
}

/// Randomly keyed, so that an attacker cannot choose colliding labels.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl HashedLabel {
    pub(super) fn new(name: Arc<str>, value: Arc<str>) -> HashedLabel {
        let hash = HASHER.hash_one((&*name, &*value));
        HashedLabel { name, value, hash }
    }

    /// By name and value. Shared texts are not read.
    pub(super) fn cmp(&self, other: &HashedLabel) -> Ordering {
        let compare = |a: &Arc<str>, b: &Arc<str>| match Arc::ptr_eq(a, b) {
            true => Ordering::Equal,
            false => a.cmp(b),
        };
        compare(&self.name, &other.name).then_with(|| compare(&self.value, &other.value))
    }
}

/// Labels of sets.
#[derive(Debug)]
pub(super) struct LabelTable {
    /// Ascending.
    labels: Vec<HashedLabel>,
    /// Ranks of the labels of all sets, set by set; empty if all labels are one set.
    ranks: Vec<u32>,
}

impl LabelTable {
    /// Table of one set, by ascending name.
    pub(super) fn of_set(labels: Vec<HashedLabel>) -> LabelTable {
        LabelTable { labels, ranks: Vec::new() }
    }

    /// Rank of the label at a position of the sets.
    pub(super) fn rank(&self, at: u32) -> u32 {
        if self.ranks.is_empty() { at } else { self.ranks[at as usize] }
    }

    /// Label by rank.
    pub(super) fn label(&self, rank: u32) -> &HashedLabel {
        &self.labels[rank as usize]
    }
}

/// Where the labels of a set are in a table.
pub(super) struct SetLocation {
    /// Position among the added sets.
    pub(super) at: usize,
    pub(super) start: u32,
    pub(super) len: u32,
}

/// Collects the label sets of a selection.
#[derive(Default)]
pub(crate) struct LabelTableBuilder {
    labels: Vec<HashedLabel>,
    /// Position of each label, by name, a byte that no text has, and value.
    positions: HashMap<Box<[u8]>, u32>,
    names: Vec<Arc<str>>,
    /// Positions of the labels of all sets, set by set.
    sets: Vec<u32>,
    /// End of each set in `sets`.
    ends: Vec<u32>,
    text: Vec<u8>,
}

impl LabelTableBuilder {
    /// Adds a set of names and values as UTF-8, by ascending name.
    pub(crate) fn add_set<'t>(&mut self, labels: impl Iterator<Item = (&'t [u8], &'t [u8])>) {
        let start = self.sets.len();
        let before = self.ends.len().checked_sub(2).map_or(0, |at| self.ends[at] as usize);
        for (at, (name, value)) in labels.enumerate() {
            // Sets of one metric have mostly the same names, and some have the same values.
            let similar = self.sets.get(before + at).filter(|_| before + at < start).copied();
            let is_equal = |position: &u32| {
                let label = &self.labels[*position as usize];
                label.value.as_bytes() == value && label.name.as_bytes() == name
            };
            let position = match similar.filter(is_equal) {
                Some(position) => position,
                None => self.position(name, value),
            };
            self.sets.push(position);
        }
        self.ends.push(self.sets.len() as u32);
    }

    /// Position of a label, which is added if it is new.
    fn position(&mut self, name: &[u8], value: &[u8]) -> u32 {
        self.text.clear();
        self.text.extend_from_slice(name);
        self.text.push(0xff);
        self.text.extend_from_slice(value);
        if let Some(position) = self.positions.get(&*self.text) {
            return *position;
        }
        let name = match self.names.iter().find(|known| known.as_bytes() == name) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Arc<str> = String::from_utf8_lossy(name).into();
                self.names.push(Arc::clone(&new));
                new
            }
        };
        let position = self.labels.len() as u32;
        self.labels.push(HashedLabel::new(name, String::from_utf8_lossy(value).into()));
        self.positions.insert(self.text.as_slice().into(), position);
        position
    }

    /// The table, and where the sets are, in the order of their labels.
    pub(super) fn finish(self) -> (LabelTable, Vec<SetLocation>) {
        let LabelTableBuilder { mut labels, sets, ends, .. } = self;
        if ends.is_empty() {
            return (LabelTable::of_set(Vec::new()), Vec::new());
        }
        let mut order: Vec<u32> = (0..labels.len() as u32).collect();
        order.sort_unstable_by(|a, b| labels[*a as usize].cmp(&labels[*b as usize]));
        let mut rank_of = vec![0; labels.len()];
        (0..).zip(&order).for_each(|(rank, position)| rank_of[*position as usize] = rank);
        labels = order.iter().map(|position| labels[*position as usize].clone()).collect();
        let ranks: Vec<u32> = sets.iter().map(|position| rank_of[*position as usize]).collect();
        let range = |at: u32| {
            let start = at.checked_sub(1).map_or(0, |before| ends[before as usize]);
            start as usize..ends[at as usize] as usize
        };
        // Labels that all sets begin with do not order them.
        let first = &ranks[range(0)];
        let shared = (0..ends.len() as u32).fold(first.len(), |shared, at| {
            let same = ranks[range(at)].iter().zip(&first[..shared]).take_while(|(a, b)| a == b);
            same.count()
        });
        // The next two ranks decide most comparisons. An absent label comes first.
        let key = |at: u32| {
            let mut next = ranks[range(at)][shared..].iter().map(|rank| u64::from(*rank) + 1);
            (next.next().unwrap_or(0) << 32 | next.next().unwrap_or(0), at)
        };
        let mut order: Vec<(u64, u32)> = (0..ends.len() as u32).map(key).collect();
        order.sort_unstable_by(|(a, a_at), (b, b_at)| {
            a.cmp(b)
                .then_with(|| ranks[range(*a_at)].cmp(&ranks[range(*b_at)]))
                .then(a_at.cmp(b_at))
        });
        let location = |(_, at): (u64, u32)| {
            let Range { start, end } = range(at);
            SetLocation { at: at as usize, start: start as u32, len: (end - start) as u32 }
        };
        let locations = order.into_iter().map(location).collect();
        (LabelTable { labels, ranks }, locations)
    }
}
