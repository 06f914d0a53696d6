//! Label sets of streams, including `__name__`.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Label of the metric name.
pub const NAME: &str = "__name__";
/// Label of the metric type, if type and unit labels are enabled.
pub const TYPE: &str = "__type__";
/// Label of the metric unit, if type and unit labels are enabled.
pub const UNIT: &str = "__unit__";

/// Labels sorted by unique names, with non-empty values. Cheap to clone.
#[derive(Clone, Debug, Eq)]
pub struct LabelSet(Arc<[(Arc<str>, Arc<str>)]>);

impl PartialEq for LabelSet {
    fn eq(&self, other: &LabelSet) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Hash for LabelSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialOrd for LabelSet {
    fn partial_cmp(&self, other: &LabelSet) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LabelSet {
    /// By name and value, label by label. Texts that two sets share are not read.
    fn cmp(&self, other: &LabelSet) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        let compare = |a: &Arc<str>, b: &Arc<str>| match Arc::ptr_eq(a, b) {
            true => Ordering::Equal,
            false => a.cmp(b),
        };
        for ((name, value), (other_name, other_value)) in self.0.iter().zip(&*other.0) {
            let by_label = compare(name, other_name).then_with(|| compare(value, other_value));
            if by_label != Ordering::Equal {
                return by_label;
            }
        }
        self.len().cmp(&other.len())
    }
}

impl Default for LabelSet {
    fn default() -> LabelSet {
        LabelSet(Arc::new([]))
    }
}

impl LabelSet {
    /// Label set of any pairs: the last pair of each name wins, and an empty value removes the
    /// label.
    pub fn new<N: Into<Arc<str>>, V: Into<Arc<str>>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> LabelSet {
        let mut labels: Vec<(Arc<str>, Arc<str>)> =
            pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        labels.reverse();
        labels.sort_by(|a, b| a.0.cmp(&b.0));
        labels.dedup_by(|a, b| a.0 == b.0);
        labels.retain(|(_, value)| !value.is_empty());
        LabelSet(labels.into())
    }

    /// Label set of labels that are sorted by unique names and have values, as those of a series.
    /// Shares names and values at the same positions with `similar`: sets of series of one metric
    /// are mostly equal, and shared texts are neither allocated nor compared.
    pub(crate) fn sharing<'a>(
        similar: &LabelSet,
        pairs: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> LabelSet {
        let share = |text: &str, held: Option<&Arc<str>>| match held {
            Some(held) if **held == *text => Arc::clone(held),
            _ => Arc::from(text),
        };
        let labels = pairs.enumerate().map(|(at, (name, value))| {
            let held = similar.0.get(at);
            (share(name, held.map(|held| &held.0)), share(value, held.map(|held| &held.1)))
        });
        LabelSet(labels.collect())
    }

    /// Value of a label; empty if it is absent.
    pub fn get(&self, name: &str) -> &str {
        self.0.binary_search_by(|(held, _)| (**held).cmp(name)).map_or("", |at| &self.0[at].1)
    }

    /// Metric name; empty if there is none.
    pub fn name(&self) -> &str {
        self.get(NAME)
    }

    /// All labels by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of labels.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Copy with one label set; an empty value removes it.
    pub fn with(&self, name: &str, value: &str) -> LabelSet {
        let mut pairs = self.0.to_vec();
        match pairs.binary_search_by(|(held, _)| (**held).cmp(name)) {
            Ok(at) if value.is_empty() => drop(pairs.remove(at)),
            Ok(at) => pairs[at].1 = value.into(),
            Err(_) if value.is_empty() => return self.clone(),
            Err(at) => pairs.insert(at, (name.into(), value.into())),
        }
        LabelSet(pairs.into())
    }

    /// Labels whose names satisfy a predicate.
    pub fn filter(&self, predicate: impl Fn(&str) -> bool) -> LabelSet {
        if self.0.iter().all(|(name, _)| predicate(name)) {
            return self.clone();
        }
        LabelSet(self.0.iter().filter(|(name, _)| predicate(name)).cloned().collect())
    }

    /// Copy without the metric's name, type and unit, which do not apply to computed values.
    pub(crate) fn without_metadata(&self) -> LabelSet {
        self.filter(|name| !is_metadata(name))
    }

    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len() + 64).sum()
    }
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
}
