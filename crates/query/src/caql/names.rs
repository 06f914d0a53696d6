//! Stream names: canonical name, tags, legend.
//!
//! A label is a tag; its name is the category. Reserved labels, which are not tags, hold the metric
//! name, the legend, which CAQL's function `label` sets, the vector and its key.

use super::kernel::LEGEND;
use super::label::StreamIdentity;
use crate::labels::{LabelSet, NAME};
use crate::stream::Stream;

/// Label that holds the key of a stream in a vector.
pub(super) const KEY: &str = "__key__";
/// Label that holds the vector of a stream.
pub(super) const VECTOR: &str = "__vector__";

/// Whether a label is a tag.
pub(super) fn is_tag(name: &str) -> bool {
    !matches!(name, NAME | LEGEND | KEY | VECTOR)
}

/// Tags as category and value, by category.
pub(super) fn tags(labels: &LabelSet) -> impl Iterator<Item = (&str, &str)> {
    labels.iter().filter(|(name, _)| is_tag(name))
}

/// Canonical name, as in `req|ST[dc:us,host:a]`.
pub(super) fn canonical(labels: &LabelSet) -> String {
    let tags: Vec<String> = tags(labels).map(|(name, value)| format!("{name}:{value}")).collect();
    match tags.is_empty() {
        true => labels.name().to_owned(),
        false => format!("{}|ST[{}]", labels.name(), tags.join(",")),
    }
}

/// Legend of a stream: the one that was set, otherwise the canonical name.
pub(super) fn legend(labels: &LabelSet) -> String {
    match labels.get(LEGEND) {
        "" => canonical(labels),
        legend => legend.to_owned(),
    }
}

/// Identities of streams: name, canonical name and tags.
pub(super) struct StreamIdentities {
    streams: Vec<OwnedIdentity>,
}

struct OwnedIdentity {
    name: String,
    canonical: String,
    tags: Vec<(String, String)>,
}

impl StreamIdentities {
    pub(super) fn from_streams(streams: &[Stream]) -> StreamIdentities {
        let identity = |stream: &Stream| {
            let labels = &stream.labels;
            let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            OwnedIdentity {
                name: labels.name().to_owned(),
                canonical: canonical(labels),
                tags: tags(labels).map(owned).collect(),
            }
        };
        StreamIdentities { streams: streams.iter().map(identity).collect() }
    }

    /// A formatted text for each stream, such as its legend.
    pub(super) fn texts(&self, formats: &[super::label::LabelFormat]) -> Vec<String> {
        let identities: Vec<StreamIdentity<'_>> = self
            .streams
            .iter()
            .map(|OwnedIdentity { name, canonical, tags }| StreamIdentity { name, canonical, tags })
            .collect();
        super::label::labels(formats, &identities)
    }
}

/// Labels common to all.
pub(super) fn common_labels<'a>(mut all: impl Iterator<Item = &'a LabelSet>) -> LabelSet {
    let Some(first) = all.next() else { return LabelSet::default() };
    let mut common = first.filter(|name| is_tag(name) || name == NAME);
    for labels in all {
        if common.is_empty() {
            break;
        }
        let is_common = |name: &str| labels.get(name) == common.get(name);
        common = common.filter(is_common);
    }
    common
}
