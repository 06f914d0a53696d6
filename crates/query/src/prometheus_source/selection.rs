//! Which stored series a selector means by the names of Prometheus.

use std::collections::BTreeMap;

use model::selector::{KIND, NAME as NAME_TAG, Pattern, UNIT as UNIT_TAG, kind_name};
use model::{Selector, SeriesKind};

use crate::classic_part::bound_label;
use crate::labels::{LabelSet, NAME};
use crate::prometheus_name::{translations, untranslated_names};
use crate::source::SeriesHandle;

/// Label of the upper bound of a bucket.
const BOUND: &str = "le";

/// Suffix of a series of a classic histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ClassicSuffix {
    Bucket,
    Count,
    Sum,
}

const SUFFIXES: [(&str, ClassicSuffix); 3] = [
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
    /// The series; with a suffix, the histogram first, then others with the same labels.
    pub(super) handles: Vec<SeriesHandle>,
}

/// Conditions that all must be true.
fn conditions(selector: &Selector) -> &[Selector] {
    match selector {
        Selector::And(parts) => parts,
        one => std::slice::from_ref(one),
    }
}

fn exact_name(selector: &Selector) -> Option<&str> {
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

/// Selector of a superset of the series that may be meant, besides those that match as they are;
/// `None` if there are none, as without an exact name.
pub(super) fn candidates(selector: &Selector, is_unknown: bool) -> Option<Selector> {
    let name = exact_name(selector)?;
    let mut names: Vec<Selector> = Vec::new();
    // With its own name, but translated labels.
    if is_unknown && has_tag(selector, &is_translatable) {
        names.push(Selector::label_equals(NAME, name));
    }
    let histogram = || {
        Selector::or(
            ["histogram", "cumulative-histogram", "counter"]
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
    if names.is_empty() {
        return None;
    }
    let is_changed =
        |label: &str| is_translatable(label) || matches!(label, BOUND | NAME_TAG | KIND | UNIT_TAG);
    let kept = conditions(selector).iter().filter(|part| !has_tag(part, &is_changed)).cloned();
    Some(Selector::and(kept.chain([Selector::or(names)]).collect()))
}

/// Candidates that a selector means.
pub(super) fn matches(
    selector: &Selector,
    candidates: Vec<SeriesHandle>,
    stored: &[SeriesHandle],
) -> Vec<SeriesMatch> {
    let name = exact_name(selector).unwrap_or_default();
    let suffix = SUFFIXES.iter().find(|(suffix, _)| name.ends_with(suffix)).copied();
    // The bounds of buckets are not known yet.
    let without_bound = Selector::and(
        conditions(selector)
            .iter()
            .filter(|part| !has_tag(part, &|label| label == BOUND))
            .cloned()
            .collect(),
    );
    let mut found = Vec::new();
    let mut classic: BTreeMap<(LabelSet, &str, String), SeriesMatch> = BTreeMap::new();
    // Staleness markers of a histogram are numbers with the same labels.
    let mut numbers: BTreeMap<LabelSet, Vec<SeriesHandle>> = BTreeMap::new();
    for handle in candidates {
        let SeriesHandle { labels, kind, unit, .. } = &handle;
        let (kind, unit) = (*kind, unit.as_str());
        let all = translations(labels, unit, kind);
        let is_same = |other: &SeriesHandle| {
            (&other.labels, other.kind, other.unit.as_str()) == (labels, kind, unit)
        };
        let itself = all.iter().find(|labels| is_selected(selector, labels, kind, unit));
        if let Some(itself) = itself.filter(|_| kind != SeriesKind::Text) {
            if !stored.iter().any(is_same) {
                let (labels, handles) = (itself.clone(), vec![handle.clone()]);
                found.push(SeriesMatch { labels, suffix: None, handles });
            }
            continue;
        }
        let SeriesKind::Histogram(temporality) = kind else {
            numbers.entry(labels.clone()).or_default().push(handle);
            continue;
        };
        let Some((text, suffix)) = suffix else { continue };
        let kind = SeriesKind::Counter(temporality);
        let unit = if suffix == ClassicSuffix::Sum { unit } else { "" };
        let named = |labels: &LabelSet| labels.with(NAME, &format!("{}{text}", labels.name()));
        let mut selected = std::iter::once(labels).chain(&all).map(named);
        let selector = match suffix {
            ClassicSuffix::Bucket => &without_bound,
            _ => selector,
        };
        if let Some(selected) = selected.find(|labels| is_selected(selector, labels, kind, unit)) {
            let (suffix, handles) = (Some(suffix), vec![handle.clone()]);
            let series = SeriesMatch { labels: selected, suffix, handles };
            let key = (labels.clone(), kind_name(kind), handle.unit.clone());
            classic.insert(key, series);
        }
    }
    for ((labels, ..), series) in &mut classic {
        series.handles.extend(numbers.get(labels).into_iter().flatten().cloned());
    }
    found.extend(classic.into_values());
    found
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
