//! What streams are called: canonical names, tags and legends, and labels that say them.
//!
//! A label is a tag: its name the category. What a stream carries besides is under names of its own, which are no
//! tags: the metric's name, the legend, and the key that it has in a vector.

use super::label::Identity;
use super::work::LABEL;
use crate::labels::{Labels, NAME};
use crate::stream::Stream;

/// Under which label stands the key that a stream has in a vector.
pub(super) const KEY: &str = "__key__";
/// Under which label stands which vector a stream is in.
pub(super) const VECTOR: &str = "__vector__";

/// Whether a label is a tag.
pub(super) fn is_tag(name: &str) -> bool {
    !matches!(name, NAME | LABEL | KEY | VECTOR)
}

/// The tags: category and value, by category.
pub(super) fn tags(labels: &Labels) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().filter(|(name, _)| is_tag(name))
}

/// Name and tags, as in `req|ST[dc:us,host:a]`.
pub(super) fn canonical(labels: &Labels) -> String {
    let tags: Vec<String> = tags(labels).map(|(name, value)| format!("{name}:{value}")).collect();
    match tags.is_empty() {
        true => labels.name().to_owned(),
        false => format!("{}|ST[{}]", labels.name(), tags.join(",")),
    }
}

/// What a legend says: what was set, else the canonical name.
pub(super) fn legend(labels: &Labels) -> String {
    match labels.get(LABEL) {
        "" => canonical(labels),
        legend => legend.to_owned(),
    }
}

/// What formats need of some streams.
pub(super) struct Named {
    named: Vec<One>,
}

struct One {
    name: String,
    canonical: String,
    tags: Vec<(String, String)>,
}

impl Named {
    pub(super) fn of(streams: &[Stream]) -> Named {
        let named = |stream: &Stream| {
            let labels = &stream.labels;
            let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            One {
                name: labels.name().to_owned(),
                canonical: canonical(labels),
                tags: tags(labels).map(owned).collect(),
            }
        };
        Named { named: streams.iter().map(named).collect() }
    }

    /// The formats' texts for each stream.
    pub(super) fn labels(&self, formats: &[super::label::Format]) -> Vec<String> {
        let identities: Vec<Identity<'_>> = self
            .named
            .iter()
            .map(|One { name, canonical, tags }| Identity { name, canonical, tags })
            .collect();
        super::label::labels(formats, &identities)
    }
}

/// What labels have in common.
pub(super) fn common<'a>(mut all: impl Iterator<Item = &'a Labels>) -> Labels {
    let Some(first) = all.next() else { return Labels::default() };
    let mut common = first.keep(|name| is_tag(name) || name == NAME);
    for labels in all {
        if common.is_empty() {
            break;
        }
        let kept = |name: &str| labels.get(name) == common.get(name);
        common = common.keep(kept);
    }
    common
}
