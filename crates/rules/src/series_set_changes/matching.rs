//! Matches series that vanished with those that appeared.
//!
//! A vanished series is matched with the new series of the same source and name that has the most
//! equal labels, or else with the one of another name whose labels are all equal: a renamed metric.
//! Series with the same difference are one change.

use std::collections::{BTreeMap, BTreeSet};

use model::{Series, SeriesId};

use super::SeriesSetChange;

/// Series named in a sentence.
const EXAMPLES: usize = 1;
/// Labels of a difference that a sentence names.
const LABELS_MAX: usize = 4;

/// Series that vanished or appeared.
#[derive(Clone, Debug)]
pub struct ObservedSeries {
    /// Name of its source.
    pub source: String,
    /// Series.
    pub series: Series,
    /// When it sent last, or first.
    pub time_ns: i64,
}

/// A change, and the series that vanished with it.
#[derive(Clone, Debug)]
pub struct MatchedChange {
    /// Change.
    pub change: SeriesSetChange,
    /// If all of them have samples again, it is over.
    pub vanished: Vec<SeriesId>,
}

/// How a series differs from the one in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct LabelDifference {
    /// Old and new name of the metric.
    renamed: Option<(String, String)>,
    removed: BTreeSet<String>,
    added: BTreeSet<String>,
    changed: BTreeSet<String>,
}

impl LabelDifference {
    /// Whether names differ, not only values.
    fn is_structural(&self) -> bool {
        self.renamed.is_some() || !self.removed.is_empty() || !self.added.is_empty()
    }
}

/// Series with the same difference.
#[derive(Default)]
struct ChangeGroup<'a> {
    vanished: Vec<&'a ObservedSeries>,
    /// Positions of their new series.
    appeared: BTreeSet<usize>,
    /// Old and new values of each changed label.
    values: BTreeMap<String, BTreeSet<(String, String)>>,
}

/// Changes of series. Series that only appeared are changes only in the place of others.
///
/// `has_others` says whether older series of a metric go on. If so, series that vanished, or that
/// have other values of the same labels, are the usual coming and going, such as that of processes:
/// no change.
pub fn match_changes(
    vanished: &[ObservedSeries],
    appeared: &[ObservedSeries],
    has_others: &dyn Fn(&str) -> bool,
) -> Vec<MatchedChange> {
    let mut groups: BTreeMap<(&str, Option<LabelDifference>), ChangeGroup<'_>> = BTreeMap::new();
    let candidates = SeriesCandidates::new(appeared);
    for old in vanished {
        let found = candidates.best(old);
        let difference = found.map(|at| difference(&old.series, &appeared[at].series));
        let is_structural = difference.as_ref().is_some_and(LabelDifference::is_structural);
        if !is_structural && has_others(old.series.name()) {
            continue;
        }
        let group = groups.entry((old.source.as_str(), difference.clone())).or_default();
        group.vanished.push(old);
        if let (Some(at), Some(difference)) = (found, difference) {
            group.appeared.insert(at);
            for label in difference.changed {
                let value = |series: &Series| series.label(&label).unwrap_or_default().to_owned();
                let pair = (value(&old.series), value(&appeared[at].series));
                group.values.entry(label.clone()).or_default().insert(pair);
            }
        }
    }
    let change =
        |((source, difference), group): ((&str, Option<LabelDifference>), ChangeGroup<'_>)| {
            let change = SeriesSetChange {
                time_ns: group.vanished.iter().map(|old| old.time_ns).max().unwrap_or(0),
                source: source.to_owned(),
                text: sentence(difference.as_ref(), &group),
                acceptance: None,
            };
            let vanished = group.vanished.iter().map(|old| old.series.id()).collect();
            MatchedChange { change, vanished }
        };
    groups.into_iter().map(change).collect()
}

/// New series by source, by name and by labels.
struct SeriesCandidates<'a> {
    series: &'a [ObservedSeries],
    by_name: BTreeMap<(&'a str, &'a str), Vec<usize>>,
    by_labels: BTreeMap<SourceLabels<'a>, Vec<usize>>,
}

/// Labels of a series, and its source.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SourceLabels<'a> {
    source: &'a str,
    labels: &'a [(String, String)],
}

/// New series that a vanished one is compared with.
const COMPARED_MAX: usize = 1_000;

impl<'a> SeriesCandidates<'a> {
    fn new(series: &'a [ObservedSeries]) -> SeriesCandidates<'a> {
        let mut by_name: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        let mut by_labels: BTreeMap<SourceLabels<'_>, Vec<usize>> = BTreeMap::new();
        for (at, observed) in series.iter().enumerate() {
            let (source, series) = (&observed.source[..], &observed.series);
            by_name.entry((source, series.name())).or_default().push(at);
            by_labels.entry(SourceLabels { source, labels: series.labels() }).or_default().push(at);
        }
        SeriesCandidates { series, by_name, by_labels }
    }

    fn best(&self, old: &ObservedSeries) -> Option<usize> {
        let source = &old.source[..];
        let series = &old.series;
        let overlap = |at: &usize| {
            let new = &self.series[*at].series;
            let is_equal = |(name, value): &&(String, String)| new.label(name) == Some(value);
            let equal = series.labels().iter().filter(is_equal).count();
            let others = series.labels().len().abs_diff(new.labels().len());
            (new.kind() == series.kind(), equal, usize::MAX - others)
        };
        let same_name = self.by_name.get(&(source, series.name())).into_iter().flatten();
        // The first one of equal ones.
        let best =
            same_name.take(COMPARED_MAX).max_by_key(|at| (overlap(at), std::cmp::Reverse(**at)));
        let renamed = || {
            let same = self
                .by_labels
                .get(&SourceLabels { source, labels: series.labels() })
                .into_iter()
                .flatten();
            let is_alike = |at: &&usize| {
                let new = &self.series[**at].series;
                new.kind() == series.kind() && new.unit() == series.unit()
            };
            let mut alike = same.filter(is_alike);
            // Without labels, or with several, the name could be any.
            let first = alike.next().filter(|_| !series.labels().is_empty())?;
            alike.next().is_none().then_some(first)
        };
        best.or_else(renamed).copied()
    }
}

fn difference(old: &Series, new: &Series) -> LabelDifference {
    let mut found = LabelDifference::default();
    if old.name() != new.name() {
        found.renamed = Some((old.name().to_owned(), new.name().to_owned()));
    }
    for (name, value) in old.labels() {
        match new.label(name) {
            None => _ = found.removed.insert(name.clone()),
            Some(other) if other != value => _ = found.changed.insert(name.clone()),
            Some(_) => {}
        }
    }
    let is_added = |name: &&String| old.label(name).is_none();
    found.added = new.labels().iter().map(|label| &label.0).filter(is_added).cloned().collect();
    found
}

/// ``label `LoadBalancer` disappeared from 14 series, 1 new``.
fn sentence(difference: Option<&LabelDifference>, group: &ChangeGroup<'_>) -> String {
    let vanished = group.vanished.len();
    let example = group.vanished.iter().take(EXAMPLES).map(|old| old.series.to_string());
    let example = example.collect::<Vec<_>>().join(", ");
    let Some(difference) = difference else {
        return format!("{vanished} series vanished, such as {example}");
    };
    let mut parts = Vec::new();
    if let Some((old, new)) = &difference.renamed {
        parts.push(format!("`{old}` became `{new}`"));
    }
    if !difference.removed.is_empty() {
        parts.push(format!("{} disappeared", labels_text(&difference.removed)));
    }
    if !difference.added.is_empty() {
        parts.push(format!("{} appeared", labels_text(&difference.added)));
    }
    for label in difference.changed.iter().take(LABELS_MAX) {
        let pairs = group.values.get(label);
        let only = pairs.filter(|pairs| pairs.len() == 1).and_then(|pairs| pairs.first());
        parts.push(match only {
            Some((old, new)) => format!("label `{label}` changed from {old:?} to {new:?}"),
            None => format!("label `{label}` changed"),
        });
    }
    let is_removal = parts.len() == 1 && !difference.removed.is_empty();
    let place = if is_removal { "from" } else { "in" };
    let new = group.appeared.len();
    if parts.is_empty() {
        // Only kind or unit differ.
        parts.push("kind or unit changed".to_owned());
    }
    format!("{} {place} {vanished} series, {new} new, such as {example}", parts.join(", "))
}

fn labels_text(labels: &BTreeSet<String>) -> String {
    let noun = if labels.len() == 1 { "label" } else { "labels" };
    let mut names: Vec<String> =
        labels.iter().take(LABELS_MAX).map(|label| format!("`{label}`")).collect();
    if labels.len() > LABELS_MAX {
        names.push(format!("{} more", labels.len() - LABELS_MAX));
    }
    format!("{noun} {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::SeriesKind;

    fn observed(text: &str) -> ObservedSeries {
        let (name, labels) = text.split_once('{').unwrap_or((text, "}"));
        let pairs = labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty());
        let series = pairs.fold(Series::new(name, SeriesKind::Gauge), |series, pair| {
            let (name, value) = pair.split_once('=').expect("a label");
            series.with_label(name, value)
        });
        let series = series.validate().expect("a valid series");
        ObservedSeries { source: "shop".to_owned(), series, time_ns: 7 }
    }

    #[track_caller]
    fn check(vanished: &[String], appeared: &[String], expected: &[&str]) {
        let list = |texts: &[String]| texts.iter().map(|text| observed(text)).collect::<Vec<_>>();
        let changes = match_changes(&list(vanished), &list(appeared), &|_| false);
        let texts: Vec<&str> = changes.iter().map(|it| &it.change.text[..]).collect();
        assert_eq!(texts, expected);
        assert!(changes.iter().all(|it| it.change.source == "shop" && it.change.time_ns == 7));
        // Each series that vanished is of one change.
        let of_changes: Vec<SeriesId> = changes.into_iter().flat_map(|it| it.vanished).collect();
        let all: BTreeSet<SeriesId> = of_changes.iter().copied().collect();
        assert_eq!((all.len(), of_changes.len()), (vanished.len(), vanished.len()));
    }

    fn all(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_label_that_is_dropped_is_named() {
        let old: Vec<String> =
            (0..14).map(|n| format!("latency{{LoadBalancer=lb{n},region=eu}}")).collect();
        let expected = "label `LoadBalancer` disappeared from 14 series, 1 new, such as \
                        latency{LoadBalancer=\"lb0\",region=\"eu\"}";
        check(&old, &all(&["latency{region=eu}", "other{region=eu}"]), &[expected]);
        // Without a new series nothing can be said of labels.
        let expected = "14 series vanished, such as latency{LoadBalancer=\"lb0\",region=\"eu\"}";
        check(&old, &[], &[expected]);
        check(&[], &old, &[]);
    }

    #[test]
    fn changed_values_are_told_if_they_are_the_same_everywhere() {
        check(
            &all(&["up{host=a,version=1}", "up{host=b,version=1}"]),
            &all(&["up{host=a,version=2}", "up{host=b,version=2}"]),
            &["label `version` changed from \"1\" to \"2\" in 2 series, 2 new, such as \
               up{host=\"a\",version=\"1\"}"],
        );
        check(
            &all(&["up{job=x,pod=a1}", "up{job=x,pod=a2}"]),
            &all(&["up{job=x,pod=b1}"]),
            &["label `pod` changed in 2 series, 1 new, such as up{job=\"x\",pod=\"a1\"}"],
        );
    }

    #[test]
    fn a_renamed_metric_and_an_added_label_are_told() {
        check(
            &all(&["requests{job=x}"]),
            &all(&["requests_total{job=x}"]),
            &["`requests` became `requests_total` in 1 series, 1 new, such as requests{job=\"x\"}"],
        );
        check(
            &all(&["requests{job=x}"]),
            &all(&["requests{job=x,zone=a}", "requests{job=y}"]),
            &["label `zone` appeared in 1 series, 1 new, such as requests{job=\"x\"}"],
        );
        // Two metrics with these labels: either could be it.
        let vanished = "1 series vanished, such as requests{job=\"x\"}";
        check(&all(&["requests{job=x}"]), &all(&["a{job=x}", "b{job=x}"]), &[vanished]);
        check(&all(&["plain"]), &all(&["other"]), &["1 series vanished, such as plain"]);
    }

    #[test]
    fn coming_and_going_is_no_change() {
        let others = |name: &str| name == "cpu";
        let list = |texts: &[&str]| texts.iter().map(|it| observed(it)).collect::<Vec<_>>();
        let changes =
            |old: &[&str], new: &[&str]| match_changes(&list(old), &list(new), &others).len();
        assert_eq!(changes(&["cpu{pid=1}"], &[]), 0);
        assert_eq!(changes(&["cpu{pid=1}"], &["cpu{pid=2}"]), 0);
        assert_eq!(changes(&["cpu{pid=1}"], &["cpu{process=a}"]), 1);
        assert_eq!(changes(&["mem{pid=1}"], &["mem{pid=2}"]), 1);
    }

    #[test]
    fn series_of_another_source_are_not_in_its_place() {
        let old = observed("latency{lb=a}");
        let new = ObservedSeries { source: "other".to_owned(), ..observed("latency") };
        let changes = match_changes(&[old], &[new], &|_| false);
        assert_eq!(changes[0].change.text, "1 series vanished, such as latency{lb=\"a\"}");
    }

    #[test]
    fn very_many_series_are_matched() {
        let old: Vec<String> = (0..2_000).map(|n| format!("x{{a={n},b=1}}")).collect();
        let new: Vec<String> = (0..2_000).map(|n| format!("x{{a={n}}}")).collect();
        let list = |texts: &[String]| texts.iter().map(|it| observed(it)).collect::<Vec<_>>();
        let changes = match_changes(&list(&old), &list(&new), &|_| false);
        let vanished: usize = changes
            .iter()
            .map(|found| {
                let words = found.change.text.split(' ').collect::<Vec<_>>();
                let at = words.iter().position(|word| word.starts_with("series")).expect("series");
                words[at - 1].parse::<usize>().expect("a number")
            })
            .sum();
        assert_eq!(vanished, 2_000);
    }
}
