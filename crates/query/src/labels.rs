//! Label sets of streams, including `__name__`.

mod label_table;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use label_table::{HashedLabel, LabelTable, SetLocation};

pub(crate) use label_table::LabelTableBuilder;

/// Label of the metric name.
pub const NAME: &str = "__name__";
/// Label of the metric type, if type and unit labels are enabled.
pub const TYPE: &str = "__type__";
/// Label of the metric unit, if type and unit labels are enabled.
pub const UNIT: &str = "__unit__";

/// Labels sorted by unique names, with non-empty values. Cheap to clone, to compare with sets of
/// the same selection, and to reduce to adjacent labels.
#[derive(Clone)]
pub struct LabelSet {
    /// Labels of all sets of a selection, or of this one.
    table: Arc<LabelTable>,
    /// Position of the first label in the table.
    start: u32,
    len: u32,
}

static EMPTY: LazyLock<LabelSet> = LazyLock::new(|| LabelSet::of_labels(Vec::new()));

impl PartialEq for LabelSet {
    fn eq(&self, other: &LabelSet) -> bool {
        self.len == other.len && self.cmp(other) == Ordering::Equal
    }
}

impl Eq for LabelSet {}

impl Hash for LabelSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.labels().for_each(|label| state.write_u64(label.hash));
        state.write_u32(self.len);
    }
}

impl PartialOrd for LabelSet {
    fn partial_cmp(&self, other: &LabelSet) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LabelSet {
    /// By name and value, label by label. Of sets of one table, no text is read.
    fn cmp(&self, other: &LabelSet) -> Ordering {
        if Arc::ptr_eq(&self.table, &other.table) {
            return match self.start == other.start {
                true => self.len.cmp(&other.len),
                false => self.ranks().cmp(other.ranks()),
            };
        }
        for (label, other) in self.labels().zip(other.labels()) {
            let by_label = label.cmp(other);
            if by_label != Ordering::Equal {
                return by_label;
            }
        }
        self.len.cmp(&other.len)
    }
}

impl fmt::Debug for LabelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Default for LabelSet {
    fn default() -> LabelSet {
        EMPTY.clone()
    }
}

impl LabelSet {
    /// Label set of any pairs: the last pair of each name wins, and an empty value removes the
    /// label.
    pub fn new<N: Into<Arc<str>>, V: Into<Arc<str>>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> LabelSet {
        let mut labels: Vec<HashedLabel> = pairs
            .into_iter()
            .map(|(name, value)| HashedLabel::new(name.into(), value.into()))
            .collect();
        labels.reverse();
        model::sort::by(&mut labels, |a, b| a.name.cmp(&b.name));
        labels.dedup_by(|a, b| a.name == b.name);
        labels.retain(|label| !label.value.is_empty());
        LabelSet::of_labels(labels)
    }

    /// Sets of a selection in the order of their labels, each with its position among the added
    /// ones.
    pub(crate) fn of_selection(
        added: LabelTableBuilder,
    ) -> impl Iterator<Item = (usize, LabelSet)> {
        let (table, locations) = added.finish();
        let table = Arc::new(table);
        locations.into_iter().map(move |SetLocation { at, start, len }| {
            (at, LabelSet { table: Arc::clone(&table), start, len })
        })
    }

    /// Label set with a table of its own.
    fn of_labels(labels: Vec<HashedLabel>) -> LabelSet {
        let len = labels.len() as u32;
        LabelSet { table: Arc::new(LabelTable::of_set(labels)), start: 0, len }
    }

    /// Ranks of the labels in their table.
    fn ranks(&self) -> impl Iterator<Item = u32> {
        (self.start..self.start + self.len).map(|at| self.table.rank(at))
    }

    fn labels(&self) -> impl Iterator<Item = &HashedLabel> {
        self.ranks().map(|rank| self.table.label(rank))
    }

    fn label(&self, at: u32) -> &HashedLabel {
        self.table.label(self.table.rank(self.start + at))
    }

    /// Position of a label, or where it would be.
    fn position(&self, name: &str) -> Result<u32, u32> {
        let (mut from, mut to) = (0, self.len);
        while from < to {
            let middle = from.midpoint(to);
            match (*self.label(middle).name).cmp(name) {
                Ordering::Less => from = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => to = middle,
            }
        }
        Err(from)
    }

    /// Value of a label; empty if it is absent.
    pub fn get(&self, name: &str) -> &str {
        self.position(name).map_or("", |at| &self.label(at).value)
    }

    /// Metric name; empty if there is none.
    pub fn name(&self) -> &str {
        self.get(NAME)
    }

    /// All labels by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels().map(|label| (&*label.name, &*label.value))
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of labels.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Copy with one label set; an empty value removes it.
    pub fn with(&self, name: &str, value: &str) -> LabelSet {
        let at = self.position(name);
        if value.is_empty() && at.is_err() {
            return self.clone();
        }
        let mut labels: Vec<HashedLabel> = self.labels().cloned().collect();
        match at {
            Ok(at) if value.is_empty() => drop(labels.remove(at as usize)),
            Ok(at) => {
                let name = Arc::clone(&labels[at as usize].name);
                labels[at as usize] = HashedLabel::new(name, value.into());
            }
            Err(at) => labels.insert(at as usize, HashedLabel::new(name.into(), value.into())),
        }
        LabelSet::of_labels(labels)
    }

    /// Labels whose names satisfy a predicate.
    pub fn filter(&self, predicate: impl Fn(&str) -> bool) -> LabelSet {
        let is_kept = |label: &&HashedLabel| predicate(&label.name);
        let Some(first) = self.labels().position(|label| is_kept(&label)) else {
            return LabelSet { len: 0, table: Arc::clone(&self.table), start: self.start };
        };
        let kept = self.labels().filter(is_kept).count();
        let adjacent = self.labels().skip(first).take_while(is_kept).count();
        match kept == adjacent {
            // A range of the same labels.
            true => LabelSet {
                table: Arc::clone(&self.table),
                start: self.start + first as u32,
                len: kept as u32,
            },
            false => LabelSet::of_labels(self.labels().filter(is_kept).cloned().collect()),
        }
    }

    /// Copy without the metric's name, type and unit, which do not apply to computed values.
    pub(crate) fn without_metadata(&self) -> LabelSet {
        self.filter(|name| !is_metadata(name))
    }

    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len() + 64).sum()
    }
}

/// Whether label sets that differ also differ without their metadata: of one selection, and
/// their metric name, the only metadata, is the same. False for other sets, whether they differ or
/// not.
pub(crate) fn differ_without_metadata<'l>(mut sets: impl Iterator<Item = &'l LabelSet>) -> bool {
    let Some(first) = sets.next() else { return true };
    let (table, rank) = (&first.table, first.ranks().next());
    rank.is_some_and(|rank| *table.label(rank).name == *NAME)
        && !table.has_name(TYPE)
        && !table.has_name(UNIT)
        && sets.all(|set| Arc::ptr_eq(&set.table, table) && set.ranks().next() == rank)
}

/// Whether a label describes the metric rather than the measured object.
pub(crate) fn is_metadata(name: &str) -> bool {
    matches!(name, NAME | TYPE | UNIT)
}

impl fmt::Display for LabelSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        let plain = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
        let mut others = self.iter().filter(|(label, _)| !plain || *label != NAME).peekable();
        if plain {
            out.write_str(name)?;
            if others.peek().is_none() {
                return Ok(());
            }
        }
        out.write_str("{")?;
        for (at, (label, value)) in others.enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let plain = label.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            match plain {
                true => write!(out, "{comma}{label}={value:?}")?,
                false => write!(out, "{comma}{label:?}={value:?}")?,
            }
        }
        out.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sorted_and_each_once() {
        let labels = LabelSet::new([("b", "1"), ("a", "2"), ("b", "3"), ("c", "")]);
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "3")]);
        assert_eq!(labels.get("b"), "3");
        assert_eq!(labels.get("c"), "");
    }

    #[test]
    fn setting_and_unsetting() {
        let labels = LabelSet::new([(NAME, "up"), ("host", "a")]);
        assert_eq!(labels.with("host", "b").to_string(), r#"up{host="b"}"#);
        assert_eq!(labels.with("host", "").to_string(), "up");
        assert_eq!(labels.with("zone", "eu").get("zone"), "eu");
        assert_eq!(labels.without_metadata().to_string(), r#"{host="a"}"#);
    }

    /// Sets of one table, in the order of their labels.
    fn sets_of_one_table(all: &[&[(&str, &str)]]) -> Vec<LabelSet> {
        let mut builder = LabelTableBuilder::default();
        for set in all {
            builder.add_set(set.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        }
        LabelSet::of_selection(builder).map(|(_, labels)| labels).collect()
    }

    #[test]
    fn sets_of_a_selection_equal_sets_of_their_own() {
        let texts: [&[(&str, &str)]; 6] = [
            &[(NAME, "m"), ("host", "b"), ("pod", "1")],
            &[(NAME, "m"), ("host", "a"), ("pod", "2")],
            &[(NAME, "m"), ("host", "a")],
            &[(NAME, "m"), ("host", "a"), ("pod", "1")],
            &[],
            &[(NAME, "m"), ("host", "a"), ("pod", "1")],
        ];
        let mut own: Vec<LabelSet> =
            texts.iter().map(|set| LabelSet::new(set.iter().copied())).collect();
        own.sort();
        let shared = sets_of_one_table(&texts);
        assert_eq!(shared, own);
        let hash = |labels: &LabelSet| {
            let mut hasher = std::hash::DefaultHasher::new();
            labels.hash(&mut hasher);
            hasher.finish()
        };
        for (shared, own) in shared.iter().zip(&own) {
            assert_eq!((shared.get("pod"), shared.len()), (own.get("pod"), own.len()));
            for keep in [&["host"][..], &["pod"], &[NAME, "pod"], &["host", "pod"], &[]] {
                let of = |labels: &LabelSet| labels.filter(|name| keep.contains(&name));
                assert_eq!(of(shared), of(own), "{own} {keep:?}");
                assert_eq!(hash(&of(shared)), hash(&of(own)), "{own} {keep:?}");
            }
            for other in &own_and(&shared.with("pod", "1"), shared) {
                assert_eq!(shared.cmp(other), own.cmp(other), "{own} {other}");
            }
        }
    }

    fn own_and(changed: &LabelSet, shared: &LabelSet) -> [LabelSet; 3] {
        [changed.clone(), shared.clone(), shared.without_metadata()]
    }

    #[test]
    fn sets_of_one_metric_differ_without_its_name() {
        let differ =
            |all: &[&[(&str, &str)]]| differ_without_metadata(sets_of_one_table(all).iter());
        assert!(differ(&[]));
        assert!(differ(&[&[(NAME, "m"), ("host", "a")], &[(NAME, "m")]]));
        assert!(!differ(&[&[(NAME, "m"), ("host", "a")], &[(NAME, "n"), ("host", "a")]]));
        assert!(!differ(&[&[("host", "a")], &[("host", "b")]]));
        assert!(!differ(&[&[(NAME, "m"), (TYPE, "gauge")], &[(NAME, "m")]]));
        assert!(!differ(&[&[(NAME, "m"), (UNIT, "s")], &[(NAME, "m")]]));
        let own = [LabelSet::new([(NAME, "m")]), LabelSet::new([(NAME, "m"), ("host", "a")])];
        assert!(!differ_without_metadata(own.iter()));
    }

    #[test]
    fn series_keep_their_order_where_labels_are_equal() {
        let mut builder = LabelTableBuilder::default();
        for value in ["b", "a", "b", "a"] {
            builder.add_set([(&b"x"[..], value.as_bytes())].into_iter());
        }
        let order: Vec<usize> = LabelSet::of_selection(builder).map(|(at, _)| at).collect();
        assert_eq!(order, [1, 3, 0, 2]);
    }
}
