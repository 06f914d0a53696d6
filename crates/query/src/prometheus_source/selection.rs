//! Which stored series a selector means by the names of Prometheus.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use model::selector::{KIND, NAME as NAME_TAG, Pattern, UNIT as UNIT_TAG, kind_name};
use model::{Selector, SeriesKind};

use crate::classic_part::bound_label;
use crate::error::Result;
use crate::labels::{LabelSet, NAME};
use crate::prometheus_name::{SeriesTranslation, translations, untranslated_names};
use crate::source::{SeriesHandle, StoredMetric};

/// Label of the upper bound of a bucket.
pub(crate) const BOUND: &str = "le";

/// Suffix of a series of a classic histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ClassicSuffix {
    Bucket,
    Count,
    Sum,
}

pub(super) const SUFFIXES: [(&str, ClassicSuffix); 3] = [
    ("_bucket", ClassicSuffix::Bucket),
    ("_count", ClassicSuffix::Count),
    ("_sum", ClassicSuffix::Sum),
];

/// Stored series that a selector means under other labels.
pub(super) struct SeriesMatch {
    /// Labels that the selector matches; without `le`.
    pub(super) labels: LabelSet,
    /// Suffix; `None` for the series itself.
    pub(super) suffix: Option<ClassicSuffix>,
    /// Unit of the values under these labels, not of their number.
    pub(super) unit: String,
    /// Number by which stored values are divided.
    pub(super) divisor: f64,
    /// The series; with a suffix, the histogram first, then others with the same labels.
    pub(super) handles: Vec<SeriesHandle>,
}

/// Conditions that all must be true.
pub(crate) fn conditions(selector: &Selector) -> &[Selector] {
    match selector {
        Selector::And(parts) => parts,
        one => std::slice::from_ref(one),
    }
}

/// The exact name that a selector requires.
pub(crate) fn exact_name(selector: &Selector) -> Option<&str> {
    conditions(selector).iter().find_map(|part| match part {
        Selector::Tag { name, pattern: Pattern::Exact(text) } if name == NAME_TAG => {
            Some(text.as_str()).filter(|text| !text.is_empty())
        }
        _ => None,
    })
}

/// Whether any condition on a label satisfies a predicate.
fn has_tag(selector: &Selector, predicate: &dyn Fn(&str) -> bool) -> bool {
    match selector {
        Selector::All => false,
        Selector::And(parts) | Selector::Or(parts) => {
            parts.iter().any(|part| has_tag(part, predicate))
        }
        Selector::Not(part) => has_tag(part, predicate),
        Selector::Tag { name, .. } => predicate(name),
    }
}

/// Whether a stored label may have another name than the selected one.
fn is_translatable(label: &str) -> bool {
    !label.starts_with("__") && (label.contains('_') || matches!(label, "job" | "instance"))
}

/// Whether a selector has a condition on the bounds of buckets.
pub(crate) fn has_bound(selector: &Selector) -> bool {
    has_tag(selector, &|label| label == BOUND)
}

/// Conditions on the name, if one of them is a regex that not every name matches. An exact name is
/// looked up without a list of metrics.
fn name_regexes(selector: &Selector) -> Option<Selector> {
    let is_name = |label: &str| label == NAME_TAG;
    let is_regex = |part: &Selector| matches!(part, Selector::Tag { name, pattern: Pattern::Regex(_) } if name == NAME_TAG);
    let all = conditions(selector);
    let is_searched = all.iter().any(is_regex) && exact_name(selector).is_none();
    is_searched.then(|| {
        Selector::and(all.iter().filter(|part| has_tag(part, &is_name)).cloned().collect())
    })
}

/// Names of the stored metrics that name conditions mean under other names. A metric that matches
/// by its own name is meant as it is stored, unless its labels do not match.
fn other_names(
    selector: &Selector,
    name_conditions: &Selector,
    metrics: &[StoredMetric],
    is_unknown: bool,
) -> Vec<Selector> {
    let has_other_labels = is_unknown && has_tag(selector, &is_translatable);
    let mut names = BTreeSet::new();
    for StoredMetric { name, unit, kind } in metrics {
        let own = LabelSet::new([(NAME, name.as_str())]);
        let is_meant =
            |name: &str| is_selected(name_conditions, &own.with(NAME, name), *kind, unit);
        let is_own = is_meant(name);
        if is_own && !has_other_labels && !has_bound(selector) {
            continue;
        }
        let all = translations(&own, unit, *kind);
        let mut all = all.iter().map(|of| of.labels.name()).chain([name.as_str()]);
        let has_suffix = matches!(kind, SeriesKind::Histogram(_));
        let suffixed = |name: &str| {
            has_suffix && SUFFIXES.iter().any(|(suffix, _)| is_meant(&format!("{name}{suffix}")))
        };
        if is_own || all.any(|name| is_meant(name) || suffixed(name)) {
            names.insert(name);
        }
    }
    names.into_iter().map(|name| Selector::label_equals(NAME, name)).collect()
}

/// Selector of a superset of the series that may be meant, besides those that match as they are;
/// `None` if there are none, as without a condition on the name. `metrics` are all stored metrics.
pub(super) fn candidates(
    selector: &Selector,
    is_unknown: bool,
    metrics: &dyn Fn() -> Result<Arc<Vec<StoredMetric>>>,
) -> Result<Option<Selector>> {
    let names = match (exact_name(selector), name_regexes(selector)) {
        (Some(name), _) => names_of(name, selector, is_unknown),
        (None, Some(of_name)) => other_names(selector, &of_name, &metrics()?, is_unknown),
        (None, None) => return Ok(None),
    };
    if names.is_empty() {
        return Ok(None);
    }
    let is_changed =
        |label: &str| is_translatable(label) || matches!(label, BOUND | NAME_TAG | KIND | UNIT_TAG);
    let kept = conditions(selector).iter().filter(|part| !has_tag(part, &is_changed)).cloned();
    Ok(Some(Selector::and(kept.chain([Selector::or(names)]).collect())))
}

/// Conditions on stored names that an exact name may mean.
fn names_of(name: &str, selector: &Selector, is_unknown: bool) -> Vec<Selector> {
    let mut names: Vec<Selector> = Vec::new();
    // With its own name, but translated labels.
    if is_unknown && has_tag(selector, &is_translatable) {
        names.push(Selector::label_equals(NAME, name));
    }
    let histogram = || {
        Selector::or(
            ["delta-histogram", "cumulative-histogram", "cumulative-counter"]
                .map(|kind| Selector::label_equals(KIND, kind))
                .to_vec(),
        )
    };
    for (suffix, _) in SUFFIXES {
        if let Some(base) = name.strip_suffix(suffix).filter(|base| !base.is_empty()) {
            names.push(Selector::and(vec![Selector::label_equals(NAME, base), histogram()]));
        }
    }
    if let Some(regex) = untranslated_names(name)
        && let Ok(regex) = Selector::label_matches(NAME, &regex)
    {
        let itself = Selector::negate(Selector::label_equals(NAME, name));
        names.push(Selector::and(vec![regex, itself]));
    }
    names
}

/// Candidates that a selector means.
pub(super) fn matches(
    selector: &Selector,
    candidates: Vec<SeriesHandle>,
    stored: &[SeriesHandle],
) -> Vec<SeriesMatch> {
    let stored: HashSet<_> = stored.iter().map(identity).collect();
    // The bounds of buckets are not known yet.
    let without_bound = Selector::and(
        conditions(selector)
            .iter()
            .filter(|part| !has_tag(part, &|label| label == BOUND))
            .cloned()
            .collect(),
    );
    let mut found = Vec::new();
    let mut classic: BTreeMap<_, SeriesMatch> = BTreeMap::new();
    // Staleness markers of a histogram are numbers with the same labels.
    let mut numbers: BTreeMap<LabelSet, Vec<SeriesHandle>> = BTreeMap::new();
    for handle in candidates {
        // A stored series that is selected as it is.
        if stored.contains(&identity(&handle)) {
            continue;
        }
        let SeriesHandle { labels, kind, unit, .. } = &handle;
        let (kind, unit) = (*kind, unit.as_str());
        let all = translations(labels, unit, kind);
        let itself = all.iter().find(|of| is_selected(selector, &of.labels, kind, &of.unit));
        if let Some(itself) = itself.filter(|_| kind != SeriesKind::Text) {
            let SeriesTranslation { labels, unit, divisor } = itself.clone();
            let handles = vec![handle.clone()];
            found.push(SeriesMatch { labels, suffix: None, unit, divisor, handles });
            continue;
        }
        let SeriesKind::Histogram(temporality) = kind else {
            numbers.entry(labels.clone()).or_default().push(handle);
            continue;
        };
        let kind = SeriesKind::Counter(temporality);
        let (own_labels, own_unit) = (labels.clone(), unit.to_owned());
        let stored_labels = SeriesTranslation { labels: own_labels, unit: own_unit, divisor: 1.0 };
        for (text, suffix) in suffixes(selector) {
            let named = |of: &SeriesTranslation| SeriesTranslation {
                labels: of.labels.with(NAME, &format!("{}{text}", of.labels.name())),
                ..of.clone()
            };
            let mut selected = std::iter::once(&stored_labels).chain(&all).map(named);
            let selector = match suffix {
                ClassicSuffix::Bucket => &without_bound,
                _ => selector,
            };
            let selected = selected.find(|of| {
                // A count has no unit; that of its values tells it from others.
                let is_of = |unit: &str| is_selected(selector, &of.labels, kind, unit);
                match suffix {
                    ClassicSuffix::Sum => is_of(&of.unit),
                    ClassicSuffix::Count => is_of("") || is_of(&of.unit),
                    ClassicSuffix::Bucket => is_of(""),
                }
            });
            let Some(SeriesTranslation { labels: selected, unit, divisor }) = selected else {
                continue;
            };
            let (suffix, handles) = (Some(suffix), vec![handle.clone()]);
            let series = SeriesMatch { labels: selected, suffix, unit, divisor, handles };
            let key = (labels.clone(), text, kind_name(kind), handle.unit.clone());
            classic.insert(key, series);
        }
    }
    for ((labels, ..), series) in &mut classic {
        series.handles.extend(numbers.get(labels).into_iter().flatten().cloned());
    }
    found.extend(classic.into_values());
    found
}

/// What identifies a stored series.
fn identity(handle: &SeriesHandle) -> (LabelSet, SeriesKind, String) {
    (handle.labels.clone(), handle.kind, handle.unit.clone())
}

/// Suffixes that the name of a selector may have.
fn suffixes(selector: &Selector) -> impl Iterator<Item = (&'static str, ClassicSuffix)> {
    let name = exact_name(selector);
    SUFFIXES.into_iter().filter(move |(suffix, _)| name.is_none_or(|name| name.ends_with(suffix)))
}

/// Labels of a bucket, if it is selected. A bound may be selected in either spelling, `1` or `1.0`.
pub(super) fn bucket_labels(
    selector: &Selector,
    labels: &LabelSet,
    kind: SeriesKind,
    bound: f64,
) -> Option<LabelSet> {
    let text = bound_label(bound);
    let labels = labels.with(BOUND, &text);
    if is_selected(selector, &labels, kind, "") {
        return Some(labels);
    }
    // A negated condition would match the other spelling of the bound that it excludes.
    let is_negated = |part: &Selector| {
        matches!(part, Selector::Not(_)) && has_tag(part, &|label| label == BOUND)
    };
    let whole = text.strip_suffix(".0").filter(|_| !conditions(selector).iter().any(is_negated))?;
    Some(labels.with(BOUND, whole)).filter(|labels| is_selected(selector, labels, kind, ""))
}

/// Whether a selector matches labels.
fn is_selected(selector: &Selector, labels: &LabelSet, kind: SeriesKind, unit: &str) -> bool {
    let each = |part: &Selector| is_selected(part, labels, kind, unit);
    match selector {
        Selector::All => true,
        Selector::And(parts) => parts.iter().all(each),
        Selector::Or(parts) => parts.iter().any(each),
        Selector::Not(part) => !each(part),
        Selector::Tag { name, pattern } => pattern.matches(match name.as_str() {
            NAME_TAG => labels.name(),
            KIND => kind_name(kind),
            UNIT_TAG => unit,
            name => labels.get(name),
        }),
    }
}
