//! Labels of many sets, each label once, sorted: a set is a list of ranks.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
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

fn hash_of(name: &str, value: &str) -> u64 {
    HASHER.hash_one((name, value))
}

impl HashedLabel {
    pub(super) fn new(name: Arc<str>, value: Arc<str>) -> HashedLabel {
        let hash = hash_of(&name, &value);
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

    /// Whether any set has a label with this name.
    pub(super) fn has_name(&self, name: &str) -> bool {
        let at = self.labels.partition_point(|label| *label.name < *name);
        self.labels.get(at).is_some_and(|label| *label.name == *name)
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
    labels: Vec<BuiltLabel>,
    /// Position of the first label of each hash.
    positions: HashMap<u64, u32, BuildHasherDefault<HashOfHash>>,
    /// Positions of further labels with the hash of another one.
    colliding: Vec<u32>,
    names: Vec<Arc<str>>,
    /// Positions of the labels of all sets, set by set.
    sets: Vec<u32>,
    /// End of each set in `sets`.
    ends: Vec<u32>,
}

/// Label of a table under construction.
struct BuiltLabel {
    label: HashedLabel,
    /// Number of the name.
    name: u32,
}

impl BuiltLabel {
    fn is(&self, name: &[u8], value: &[u8]) -> bool {
        self.label.value.as_bytes() == value && self.label.name.as_bytes() == name
    }
}

/// Hasher of keys that are hashes.
#[derive(Default)]
struct HashOfHash(u64);

impl Hasher for HashOfHash {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl LabelTableBuilder {
    /// Adds a set of names and values as UTF-8, by ascending name.
    pub(crate) fn add_set<'t>(&mut self, labels: impl Iterator<Item = (&'t [u8], &'t [u8])>) {
        let start = self.sets.len();
        let before = self.ends.len().checked_sub(2).map_or(0, |at| self.ends[at] as usize);
        for (at, (name, value)) in labels.enumerate() {
            // Sets of one metric have mostly the same names, and some have the same values.
            let similar = self.sets.get(before + at).filter(|_| before + at < start).copied();
            let is_equal = |position: &u32| self.labels[*position as usize].is(name, value);
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
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        let hash = hash_of(&name, &value);
        let is_it = |at: &u32| self.labels[*at as usize].is(name.as_bytes(), value.as_bytes());
        let first = self.positions.get(&hash).copied();
        let known = match first {
            Some(at) if is_it(&at) => Some(at),
            Some(_) => self.colliding.iter().copied().find(|at| is_it(at)),
            None => None,
        };
        if let Some(at) = known {
            return at;
        }
        let position = self.labels.len() as u32;
        match first {
            Some(_) => self.colliding.push(position),
            None => _ = self.positions.insert(hash, position),
        }
        let number = self.names.iter().position(|known| **known == *name).unwrap_or_else(|| {
            self.names.push(Arc::from(&*name));
            self.names.len() - 1
        });
        let name = Arc::clone(&self.names[number]);
        let label = HashedLabel { name, value: (&*value).into(), hash };
        self.labels.push(BuiltLabel { label, name: number as u32 });
        position
    }

    /// Positions of the labels by name and value.
    fn label_order(&self) -> Vec<u32> {
        let mut names: Vec<usize> = (0..self.names.len()).collect();
        names.sort_unstable_by_key(|&at| &self.names[at]);
        let mut rank_of_name = vec![0; names.len()];
        (0..).zip(&names).for_each(|(rank, &at)| rank_of_name[at] = rank);
        // Most values differ in a few bytes after those with which all values of the name begin.
        let mut begins: Vec<Option<&[u8]>> = vec![None; names.len()];
        for BuiltLabel { label, name } in &self.labels {
            let value = label.value.as_bytes();
            let begin = begins[*name as usize].get_or_insert(value);
            let same = begin.iter().zip(value).take_while(|(a, b)| a == b).count();
            *begin = &begin[..same];
        }
        let key = |(at, BuiltLabel { label, name }): (u32, &BuiltLabel)| {
            let name = *name as usize;
            let differing = &label.value.as_bytes()[begins[name].map_or(0, <[u8]>::len)..];
            let mut next = [0; 8];
            let length = differing.len().min(next.len());
            next[..length].copy_from_slice(&differing[..length]);
            (rank_of_name[name], u64::from_be_bytes(next), at)
        };
        let mut keys: Vec<(u32, u64, u32)> = (0..).zip(&self.labels).map(key).collect();
        keys.sort_unstable_by(|a, b| {
            let value = |at: u32| &self.labels[at as usize].label.value;
            (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| value(a.2).cmp(value(b.2)))
        });
        keys.into_iter().map(|(.., at)| at).collect()
    }

    /// The table, and where the sets are, in the order of their labels.
    pub(super) fn finish(self) -> (LabelTable, Vec<SetLocation>) {
        if self.ends.is_empty() {
            return (LabelTable::of_set(Vec::new()), Vec::new());
        }
        let order = self.label_order();
        let LabelTableBuilder { labels, sets, ends, .. } = self;
        let mut rank_of = vec![0; labels.len()];
        (0..).zip(&order).for_each(|(rank, position)| rank_of[*position as usize] = rank);
        let mut built: Vec<Option<HashedLabel>> =
            labels.into_iter().map(|built| Some(built.label)).collect();
        let taken = order.iter().filter_map(|position| built[*position as usize].take());
        let labels: Vec<HashedLabel> = taken.collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_ordered_by_name_and_value() {
        let texts = [
            ("pod", "api-0000010"),
            ("pod", "api-0000002"),
            ("pod", "api-0000002-with-a-long-end"),
            ("pod", "api-0000002-with-a-long-end-2"),
            ("pod", "api-\0"),
            ("pod", "api-"),
            ("zone", "eu"),
            ("a", "x"),
            ("pod", "api-\u{e4}"),
        ];
        let mut builder = LabelTableBuilder::default();
        texts.iter().for_each(|(name, value)| {
            builder.add_set([(name.as_bytes(), value.as_bytes())].into_iter());
        });
        let (table, locations) = builder.finish();
        let mut expected = texts.to_vec();
        expected.sort_unstable();
        let found: Vec<(&str, &str)> =
            table.labels.iter().map(|label| (&*label.name, &*label.value)).collect();
        assert_eq!(found, expected);
        let found: Vec<(&str, &str)> = locations.iter().map(|set| texts[set.at]).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn labels_with_one_hash_differ() {
        let mut builder = LabelTableBuilder::default();
        let first = builder.position(b"a", b"1");
        for value in ["2", "3"] {
            builder.positions.insert(hash_of("a", value), first);
        }
        let mut position = |value: &str| builder.position(b"a", value.as_bytes());
        assert_eq!(["1", "2", "3", "2", "3", "1"].map(&mut position), [0, 1, 2, 1, 2, 0]);
    }
}
